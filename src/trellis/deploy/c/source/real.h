/* What a unit is in memory: a number or, with TRELLIS_LANES above 1, so many numbers side by side,
 * one for each sample. Include after activation.h.
 * Generated and run-time code of Trellis may be used under any licence.
 */
#ifndef TRELLIS_LANES
#define TRELLIS_LANES 1
#endif

#if TRELLIS_LANES == 1
typedef float trellis_real;
#define TRELLIS_LANE(v, l) (v)
#else
typedef float trellis_real __attribute__((vector_size(4 * TRELLIS_LANES)));
typedef int32_t trellis_bits __attribute__((vector_size(4 * TRELLIS_LANES)));
#define TRELLIS_LANE(v, l) ((v)[l])
#endif

static inline trellis_real trellis_clipped(trellis_real v) {
#if TRELLIS_LANES > 1
    return (trellis_real)((trellis_bits)v & (v > 0.0f));
#else
    return trellis_relu(v);
#endif
}

static inline void trellis_put(trellis_real v, trellis_real *to, int adds, int clips) {
    if (adds) v += *to;
    *to = clips ? trellis_clipped(v) : v;
}
