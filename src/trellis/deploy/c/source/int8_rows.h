/* Steps of single units in 8 bits. Include after int8.h.
 * Generated and run-time code of Trellis may be used under any licence.
 */
static const trellis_band *trellis_rows8(
    const trellis_step *step, const trellis_rescale *how, const trellis_band *band,
    trellis_rows_cursor *at, uint8_t *x
) {
    for (uint32_t b = 0; b < step->bands; b++, band++)
        for (uint32_t g = 0; g < band->groups; g++) {
            const int32_t bias = *at->offset++, multiplier = *at->multiplier++;
            for (uint32_t n = 0; n < band->count; n++) {
                const uint8_t *from = x + *at->offsets++;
                int32_t sum = 0;
                if (step->kind == TRELLIS_MAX) {
                    for (uint32_t t = 0; t < band->fan; t++)
                        sum = from[at->terms[t]] > sum ? from[at->terms[t]] : sum;
                } else {
                    for (uint32_t t = 0; t < band->fan; t++)
                        sum += at->weights[t] * from[at->terms[t]];
                }
                x[*at->outs++] = trellis_rescaled(how, sum + bias, multiplier, how->absent);
            }
            at->terms += band->fan;
            if (step->kind != TRELLIS_MAX) at->weights += band->fan;
        }
    return band;
}
