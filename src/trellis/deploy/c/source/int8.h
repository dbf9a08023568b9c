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
    const float low = (float)(-2 * zero), high = (float)(2 * (255 - zero));
    for (uint32_t i = 0; i < count; i++) {
        float v = from[i] * twice;
        v = v < low ? low : v;
        v = v > high ? high : v;
        const int32_t q = (int32_t)v; /* twice the number, towards zero */
        to[i] = (uint8_t)(((q + 1 + (q >> 31)) >> 1) + zero);
    }
}
