/* Four numbers at once, where there are vectors of 128 bits: TRELLIS_FOURS. There are no gathers:
 * a vector is put together from four places, and what is saved is arithmetic.
 * Include after tables.h and real.h.
 * Generated and run-time code of Trellis may be used under any licence.
 */
#if TRELLIS_LANES == 1 && defined(__GNUC__) \
    && (defined(__SSE2__) || defined(__ARM_NEON) || defined(__wasm_simd128__))
#define TRELLIS_FOURS 1

#include <string.h>

typedef float trellis_four __attribute__((vector_size(16)));
typedef int32_t trellis_four_bits __attribute__((vector_size(16)));

static inline trellis_four trellis_four_of(float v) {
    const trellis_four made = {v, v, v, v};
    return made;
}

static inline trellis_four trellis_four_from(const float *x) {
    trellis_four made;
    memcpy(&made, x, sizeof made);
    return made;
}

static inline trellis_four trellis_four_at(const float *x, const trellis_index *at) {
    const trellis_four made = {x[at[0]], x[at[1]], x[at[2]], x[at[3]]};
    return made;
}

static inline trellis_four trellis_four_weights(const trellis_value *w) {
    const trellis_four made = {
        TRELLIS_WEIGHT(w[0]), TRELLIS_WEIGHT(w[1]), TRELLIS_WEIGHT(w[2]), TRELLIS_WEIGHT(w[3])};
    return made;
}

static inline void trellis_four_put(
    trellis_four v, float *x, const trellis_index *outs, int adds, int clips
) {
    if (adds) v += trellis_four_at(x, outs);
#ifdef __wasm_simd128__
    if (clips) v = __builtin_wasm_pmax_f32x4(v, trellis_four_of(0.0f));
#else
    if (clips) v = (trellis_four)((trellis_four_bits)v & (v > 0.0f));
#endif
    /* As bits: WebAssembly stores a lane of integers at once, and takes one of floats out first. */
    const trellis_four_bits bits = (trellis_four_bits)v;
    for (int j = 0; j < 4; j++) {
        const int32_t lane = bits[j];
        memcpy(x + outs[j], &lane, sizeof lane);
    }
}
#else
#define TRELLIS_FOURS 0
#endif
