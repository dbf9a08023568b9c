/* Arithmetic in 8 bits, equal to the bit to trellis/deploy/tables/int8.py, which defines it. Include
 * after tables.h. Generated and run-time code of Trellis may be used under any licence.
 */
static inline uint8_t trellis_rescaled(
    const trellis_rescale *r, int32_t sum, int32_t multiplier, int32_t extra
) {
    /* Right shifts of negative numbers round down on every compiler that this is meant for. */
    int32_t v = ((sum >> r->before) * multiplier + r->beside * extra + r->offset) >> r->after;
    v = v < r->low ? r->low : v > r->high ? r->high : v;
    return r->table ? r->table[v] : (uint8_t)v;
}

/* From numbers to bytes: one multiplication, rounded half away from zero. */
static void trellis_encode8(const float *from, uint32_t count, float twice, int zero, uint8_t *to) {
    for (uint32_t i = 0; i < count; i++) {
        float v = from[i] * twice;
        v = v < -1024.0f ? -1024.0f : v > 1024.0f ? 1024.0f : v;
        int32_t q = (int32_t)v;
        q = (q + (q < 0 ? -1 : 1)) / 2 + zero;
        to[i] = (uint8_t)(q < 0 ? 0 : q > 255 ? 255 : q);
    }
}
