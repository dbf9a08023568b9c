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

/* Apart, so that sums stay in registers where no more than ReLU is asked for. */
static TRELLIS_APART wide activated(const trellis_step *s, wide v) {
    float lane[TRELLIS_WIDE];
    wide_to(lane, v);
    for (int l = 0; l < TRELLIS_WIDE; l++)
        lane[l] = trellis_activate(s->act, s->a, s->b, lane[l]);
    return wide_from(lane);
}

static inline wide finished(const trellis_step *s, wide v) {
    if (s->act == TRELLIS_RELU) return wide_relu(v);
    if (s->act == TRELLIS_NONE) return v;
    return activated(s, v);
}

#define ADDED(sum, t, v)                                                                    \
    sum = wide_fma(                                                                         \
        wide_all(weights[t]), wide_from(base + terms[t] + (v) * TRELLIS_WIDE), sum)

/* So many vectors at once: their sums stay in registers. Where they are few, even and odd terms are
 * summed up apart, so that an addition does not wait for the one before. */
#define ACROSS(vectors)                                                                     \
    do {                                                                                    \
        enum { APART = vectors < 4 ? 2 : 1 };                                               \
        wide sum[APART * vectors];                                                          \
        uint32_t t = 0;                                                                     \
        for (int v = 0; v < vectors; v++) sum[v] = wide_all(r->bias);                       \
        for (int v = vectors; v < APART * vectors; v++) sum[v] = wide_all(0.0f);            \
        for (; t + APART <= r->fan; t += APART)                                             \
            for (int v = 0; v < APART * vectors; v++)                                       \
                ADDED(sum[v], t + (uint32_t)(v / vectors), v % vectors);                    \
        for (; t < r->fan; t++)                                                             \
            for (int v = 0; v < vectors; v++) ADDED(sum[v], t, v);                          \
        for (int v = vectors; v < APART * vectors; v++)                                     \
            sum[v - vectors] = wide_add(sum[v - vectors], sum[v]);                          \
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

#if TRELLIS_WINDOWS

#define PICKED(sum, j)                                                                      \
    do {                                                                                    \
        const wide weights = wide_from(window->weights + (j) * TRELLIS_WIDE);               \
        wide picked = wide_pick(low, high, &places);                                        \
        if (exact) picked = wide_weighted(picked, weights);                                 \
        sum = wide_fma(weights, picked, sum);                                               \
    } while (0)

static inline wide windows_summed(
    const trellis_window *window, const uint32_t *from, uint32_t count, const float *x, wide a,
    int exact
) {
    wide b = wide_all(0.0f), c = b, d = b;
    for (; count; count--, window++, from++) {
        const wide low = wide_from(x + *from), high = wide_from(x + *from + TRELLIS_WIDE);
        wide_places places = wide_places_from(window->places);
        PICKED(a, 0);
        PICKED(b, 1);
        PICKED(c, 2);
        PICKED(d, 3);
    }
    return wide_add(wide_add(a, b), wide_add(c, d));
}

static TRELLIS_APART wide windows_again(
    const trellis_window *window, const uint32_t *from, uint32_t count, const float *x, wide a
) {
    return windows_summed(window, from, count, x, a, 1);
}

/* A lane that has no term left in a window reads some other number there, with weight zero. Where
 * that is infinite, the sum becomes NaN: so what is not finite is summed up again, exactly. */
static inline wide windows(
    const trellis_window *window, const uint32_t *from, uint32_t count, const float *x, wide a
) {
    const wide sum = windows_summed(window, from, count, x, a, 0);
    return wide_finite(sum) ? sum : windows_again(window, from, count, x, a);
}

#else

static inline wide windows(
    const trellis_window *window, const uint32_t *from, uint32_t count, const float *x, wide a
) {
    (void)window, (void)from, (void)count, (void)x;
    return a;
}

#endif

#define TERM(gather, sum, j)                                                                \
    sum = wide_fma(                                                                         \
        wide_from(weights + (j) * TRELLIS_WIDE), gather(x, index + (j) * TRELLIS_WIDE), sum)

#define GATHERED(name, type, gather)                                                        \
    static void name(const trellis_part *p, const type *index, float *x) {                  \
        const float *weights = p->weights;                                                  \
        const trellis_window *window = p->window;                                           \
        const uint32_t *from = p->from;                                                     \
        for (uint32_t i = 0; i < p->slices; i++) {                                          \
            const trellis_slice *s = &p->slice[i];                                          \
            const uint32_t *outs = p->outs + (size_t)i * TRELLIS_WIDE;                      \
            wide a = wide_from(p->bias + (size_t)i * TRELLIS_WIDE);                         \
            wide b = wide_all(0.0f), c = b, d = b;                                          \
            a = windows(window, from, s->windows, x, a);                                    \
            window += s->windows;                                                           \
            from += s->windows;                                                             \
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
