/* One sample, by plan. See plan.h.
 * Generated and run-time code of Trellis may be used under any licence.
 */
#define TRELLIS_DECODED
#include "plan.h"

#include <string.h>

#include "activation.h"
#include "real.h"
#include "fours.h"
#include "sums.h"
#include "kernel.h"

#if TRELLIS_PLANNED
#include <immintrin.h>
#endif
#define TRELLIS_ROW (TRELLIS_PLANNED ? TRELLIS_WIDE : 4)
#include "loops.h"

#if TRELLIS_PLANNED
#include "wide.h"

static inline wide finished(const trellis_step *s, wide v) {
    if (s->act == TRELLIS_RELU) return wide_relu(v);
    if (s->act == TRELLIS_NONE) return v;
    float lane[TRELLIS_WIDE];
    wide_to(lane, v);
    for (int l = 0; l < TRELLIS_WIDE; l++)
        lane[l] = trellis_activate(s->act, s->a, s->b, lane[l]);
    return wide_from(lane);
}

/* So many vectors at once: their sums stay in registers. */
#define ACROSS(vectors)                                                                     \
    do {                                                                                    \
        wide sum[vectors];                                                                  \
        for (int v = 0; v < vectors; v++) sum[v] = wide_all(r->bias);                       \
        for (uint32_t t = 0; t < r->fan; t++) {                                             \
            const wide w = wide_all(weights[t]);                                            \
            const float *from = base + terms[t];                                            \
            for (int v = 0; v < vectors; v++)                                               \
                sum[v] = wide_fma(w, wide_from(from + v * TRELLIS_WIDE), sum[v]);           \
        }                                                                                   \
        for (int v = 0; v < vectors; v++) wide_some(x, lanes++, finished(p->step, sum[v])); \
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

#define TERM(gather, sum, j)                                                                \
    sum = wide_fma(                                                                         \
        wide_from(weights + (j) * TRELLIS_WIDE), gather(x, index + (j) * TRELLIS_WIDE), sum)

#define GATHERED(name, type, gather)                                                        \
    static void name(const trellis_part *p, const type *index, float *x) {                  \
        const float *weights = p->weights;                                                  \
        for (uint32_t i = 0; i < p->slices; i++) {                                          \
            const trellis_slice *s = &p->slice[i];                                          \
            const uint32_t *outs = p->outs + (size_t)i * TRELLIS_WIDE;                      \
            wide a = wide_from(p->bias + (size_t)i * TRELLIS_WIDE);                         \
            wide b = wide_all(0.0f), c = b, d = b;                                          \
            uint32_t t = 0;                                                                 \
            for (; t + 4 <= s->width; t += 4) {                                             \
                TERM(gather, a, 0);                                                         \
                TERM(gather, b, 1);                                                         \
                TERM(gather, c, 2);                                                         \
                TERM(gather, d, 3);                                                         \
                index += 4 * TRELLIS_WIDE;                                                  \
                weights += 4 * TRELLIS_WIDE;                                                \
            }                                                                               \
            for (; t < s->width; t++) {                                                     \
                TERM(gather, a, 0);                                                         \
                index += TRELLIS_WIDE;                                                      \
                weights += TRELLIS_WIDE;                                                    \
            }                                                                               \
            a = wide_add(wide_add(a, b), wide_add(c, d));                                   \
            if (s->out != TRELLIS_SCATTERED) {                                              \
                if (p->step->adds) a = wide_add(a, wide_from(x + s->out));                  \
                wide_to(x + s->out, finished(p->step, a));                                  \
            } else {                                                                        \
                if (p->step->adds) a = wide_add(a, wide_far(x, outs));                      \
                wide_scatter(x, outs, finished(p->step, a));                                \
            }                                                                               \
        }                                                                                   \
    }

GATHERED(gathered_near, uint16_t, wide_near)
GATHERED(gathered_far, uint32_t, wide_far)

/* Even places, then odd ones, `half` of each. */
static void sort(const float *from, float *to, uint32_t half) {
    uint32_t i = 0;
    for (; i + TRELLIS_ROW <= half; i += TRELLIS_ROW) {
        const trellis_row even = trellis_row_at(from + 2 * i, 2, TRELLIS_ROW);
        memcpy(to + i, &even, sizeof even);
    }
    for (; i < half; i++) to[i] = from[2 * i];
    for (i = 0; i + TRELLIS_ROW <= half; i += TRELLIS_ROW) {
        const trellis_row odd = trellis_row_at(from + 2 * i + 1, 2, TRELLIS_ROW);
        memcpy(to + half + i, &odd, sizeof odd);
    }
    for (; i < half; i++) to[half + i] = from[2 * i + 1];
}

void trellis_part_run(const trellis_plan *plan, const trellis_part *p, float *x) {
    if (p->loop) {
        trellis_loop_cursor at = p->at;
        if (p->half) sort(x + p->low, x + plan->sorted, p->half);
        trellis_loop_run(p->half ? &p->split : p->loop, &at, x, NULL);
        return;
    }
    if (p->step->kind != TRELLIS_SUM) {
        trellis_evaluate(&p->alone, x);
        return;
    }
    ran(p, x);
    if (p->near) gathered_near(p, p->near, x);
    else gathered_far(p, p->far, x);
}

#else

void trellis_part_run(const trellis_plan *plan, const trellis_part *p, float *x) {
    trellis_loop_cursor at = p->at;
    (void)plan;
    if (p->loop) trellis_loop_run(p->loop, &at, x, NULL);
    else trellis_evaluate(&p->alone, x);
}

#endif

void trellis_single(const trellis_plan *plan, float *x) {
    for (uint32_t i = 0; i < plan->steps; i++) trellis_part_run(plan, &plan->part[i], x);
}
