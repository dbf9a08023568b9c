/* One sample, by plan. See plan.h.
 * Generated and run-time code of Trellis may be used under any licence.
 */
#include "plan.h"

#include "activation.h"
#include "kernel.h"

#if defined(__AVX512F__)
#include <immintrin.h>

static inline __m512 finished(const trellis_step *s, __m512 v) {
    if (s->act == TRELLIS_RELU) return _mm512_max_ps(v, _mm512_setzero_ps());
    if (s->act == TRELLIS_NONE) return v;
    float lane[TRELLIS_WIDE];
    _mm512_storeu_ps(lane, v);
    for (int l = 0; l < TRELLIS_WIDE; l++)
        lane[l] = trellis_activate(s->act, s->a, s->b, lane[l]);
    return _mm512_loadu_ps(lane);
}

static inline void put(const trellis_lanes *to, __m512 v, float *x) {
    if (to->out != TRELLIS_SCATTERED) {
        const unsigned count = (unsigned)__builtin_popcount(to->mask);
        _mm512_mask_storeu_ps(
            x + to->out, (__mmask16)((1u << count) - 1u), _mm512_maskz_compress_ps(to->mask, v));
    } else {
        _mm512_mask_i32scatter_ps(x, to->mask, _mm512_loadu_si512(to->outs), v, 4);
    }
}

/* So many vectors at once: their sums stay in registers. */
#define ACROSS(vectors)                                                                     \
    do {                                                                                    \
        __m512 sum[vectors];                                                                \
        for (int v = 0; v < vectors; v++) sum[v] = _mm512_set1_ps(r->bias);                 \
        for (uint32_t t = 0; t < r->fan; t++) {                                             \
            const __m512 w = _mm512_set1_ps(weights[t]);                                    \
            const float *from = base + terms[t];                                            \
            for (int v = 0; v < vectors; v++)                                               \
                sum[v] = _mm512_fmadd_ps(w, _mm512_loadu_ps(from + v * TRELLIS_WIDE), sum[v]); \
        }                                                                                   \
        for (int v = 0; v < vectors; v++) put(lanes++, finished(p->step, sum[v]), x);       \
        base += vectors * TRELLIS_WIDE;                                                     \
        left -= vectors;                                                                    \
    } while (0)

static void ran(const trellis_part *p, float *x) {
    const trellis_lanes *lanes = p->lanes;
    for (uint32_t i = 0; i < p->runs; i++) {
        const trellis_run_of *r = &p->run[i];
        const uint32_t *terms = p->alone.terms + r->term;
        const float *weights = p->alone.weights + r->term, *base = x + r->first;
        uint32_t left = r->vectors;
        while (left >= 6) ACROSS(6);
        if (left >= 4) ACROSS(4);
        if (left >= 2) ACROSS(2);
        if (left) ACROSS(1);
    }
}

#define TERM(sum, j)                                                                        \
    sum = _mm512_fmadd_ps(                                                                  \
        _mm512_loadu_ps(weights + (j) * TRELLIS_WIDE),                                      \
        _mm512_i32gather_ps(ADDRESSES(index + (j) * TRELLIS_WIDE), x, 4), sum)

#define GATHERED(name, type)                                                                \
    static void name(const trellis_part *p, const type *index, float *x) {                  \
        const float *weights = p->weights;                                                  \
        for (uint32_t i = 0; i < p->slices; i++) {                                          \
            const trellis_slice *s = &p->slice[i];                                          \
            __m512 a = _mm512_loadu_ps(p->bias + (size_t)i * TRELLIS_WIDE);                 \
            __m512 b = _mm512_setzero_ps(), c = b, d = b;                                   \
            uint32_t t = 0;                                                                 \
            for (; t + 4 <= s->width; t += 4) {                                             \
                TERM(a, 0);                                                                 \
                TERM(b, 1);                                                                 \
                TERM(c, 2);                                                                 \
                TERM(d, 3);                                                                 \
                index += 4 * TRELLIS_WIDE;                                                  \
                weights += 4 * TRELLIS_WIDE;                                                \
            }                                                                               \
            for (; t < s->width; t++) {                                                     \
                TERM(a, 0);                                                                 \
                index += TRELLIS_WIDE;                                                      \
                weights += TRELLIS_WIDE;                                                    \
            }                                                                               \
            a = _mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(c, d));                    \
            if (s->out != TRELLIS_SCATTERED) {                                              \
                if (p->step->adds) a = _mm512_add_ps(a, _mm512_loadu_ps(x + s->out));       \
                _mm512_storeu_ps(x + s->out, finished(p->step, a));                         \
            } else {                                                                        \
                const __m512i to = _mm512_loadu_si512(p->outs + (size_t)i * TRELLIS_WIDE);  \
                if (p->step->adds) a = _mm512_add_ps(a, _mm512_i32gather_ps(to, x, 4));     \
                _mm512_i32scatter_ps(x, to, finished(p->step, a), 4);                       \
            }                                                                               \
        }                                                                                   \
    }

#define ADDRESSES(from) _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(from)))
GATHERED(gathered_near, uint16_t)
#undef ADDRESSES
#define ADDRESSES(from) _mm512_loadu_si512(from)
GATHERED(gathered_far, uint32_t)

void trellis_single(const trellis_plan *plan, float *x) {
    for (uint32_t i = 0; i < plan->steps; i++) {
        const trellis_part *p = &plan->part[i];
        if (p->step->kind != TRELLIS_SUM) {
            trellis_evaluate(&p->alone, x);
            continue;
        }
        ran(p, x);
        if (p->near) gathered_near(p, p->near, x);
        else gathered_far(p, p->far, x);
    }
}

#else

void trellis_single(const trellis_plan *plan, float *x) {
    for (uint32_t i = 0; i < plan->steps; i++) trellis_evaluate(&plan->part[i].alone, x);
}

#endif
