/* A vector of floats, as wide as the processor gathers. Only for single.c.
 * Generated and run-time code of Trellis may be used under any licence.
 */
#ifndef TRELLIS_WIDE_H
#define TRELLIS_WIDE_H

#include <immintrin.h>

#include "plan.h"

#if TRELLIS_WIDE == 16

typedef __m512 wide;

static inline wide wide_all(float v) { return _mm512_set1_ps(v); }
static inline wide wide_from(const float *at) { return _mm512_loadu_ps(at); }
static inline void wide_to(float *at, wide v) { _mm512_storeu_ps(at, v); }
static inline wide wide_add(wide a, wide b) { return _mm512_add_ps(a, b); }
static inline wide wide_fma(wide a, wide b, wide c) { return _mm512_fmadd_ps(a, b, c); }
static inline wide wide_relu(wide v) { return _mm512_max_ps(v, _mm512_setzero_ps()); }

static inline wide wide_far(const float *x, const uint32_t *places) {
    return _mm512_i32gather_ps(_mm512_loadu_si512(places), x, 4);
}

static inline wide wide_near(const float *x, const uint16_t *places) {
    const __m256i near = _mm256_loadu_si256((const __m256i *)places);
    return _mm512_i32gather_ps(_mm512_cvtepu16_epi32(near), x, 4);
}

typedef __m512i wide_places;

static inline wide_places wide_places_from(const uint32_t *places) {
    return _mm512_load_si512(places);
}

/* Each lane's number out of a window, and then the next place. */
static inline wide wide_pick(wide low, wide high, wide_places *places) {
    const wide picked = _mm512_permutex2var_ps(low, *places, high);
    *places = _mm512_srli_epi32(*places, 8);
    return picked;
}

/* A number, or 0 where the weight is zero. */
static inline wide wide_weighted(wide v, wide weights) {
    const __m512i bits = _mm512_castps_si512(weights);
    return _mm512_maskz_mov_ps(_mm512_test_epi32_mask(bits, bits), v);
}

static inline int wide_finite(wide v) {
    return _mm512_cmp_ps_mask(_mm512_sub_ps(v, v), _mm512_setzero_ps(), _CMP_EQ_OQ) == 0xffffu;
}

static inline void wide_scatter(float *x, const uint32_t *places, wide v) {
    _mm512_i32scatter_ps(x, _mm512_loadu_si512(places), v, 4);
}

static inline void wide_some(float *x, const trellis_lanes *to, wide v) {
    if (to->out != TRELLIS_SCATTERED) {
        const unsigned count = (unsigned)__builtin_popcount(to->mask);
        _mm512_mask_storeu_ps(
            x + to->out, (__mmask16)((1u << count) - 1u), _mm512_maskz_compress_ps(to->mask, v));
    } else {
        _mm512_mask_i32scatter_ps(x, to->mask, _mm512_loadu_si512(to->outs), v, 4);
    }
}

#else

typedef __m256 wide;

static inline wide wide_all(float v) { return _mm256_set1_ps(v); }
static inline wide wide_from(const float *at) { return _mm256_loadu_ps(at); }
static inline void wide_to(float *at, wide v) { _mm256_storeu_ps(at, v); }
static inline wide wide_add(wide a, wide b) { return _mm256_add_ps(a, b); }
static inline wide wide_fma(wide a, wide b, wide c) { return _mm256_fmadd_ps(a, b, c); }
static inline wide wide_relu(wide v) { return _mm256_max_ps(v, _mm256_setzero_ps()); }

static inline wide wide_far(const float *x, const uint32_t *places) {
    return _mm256_i32gather_ps(x, _mm256_loadu_si256((const __m256i *)places), 4);
}

static inline wide wide_near(const float *x, const uint16_t *places) {
    const __m128i near = _mm_loadu_si128((const __m128i *)places);
    return _mm256_i32gather_ps(x, _mm256_cvtepu16_epi32(near), 4);
}

static inline void wide_scatter(float *x, const uint32_t *places, wide v) {
    float lane[TRELLIS_WIDE];
    wide_to(lane, v);
    for (int l = 0; l < TRELLIS_WIDE; l++) x[places[l]] = lane[l];
}

static inline void wide_some(float *x, const trellis_lanes *to, wide v) {
    if (to->mask == 0xffu && to->out != TRELLIS_SCATTERED) {
        wide_to(x + to->out, v);
        return;
    }
    float lane[TRELLIS_WIDE];
    wide_to(lane, v);
    for (unsigned left = to->mask; left; left &= left - 1u) {
        const int l = __builtin_ctz(left);
        x[to->outs[l]] = lane[l];
    }
}

#endif
#endif
