/* How each step is computed for one sample. See plan.h.
 * Generated and run-time code of Trellis may be used under any licence.
 */
#define TRELLIS_DECODED
#include "plan.h"

#include <stdlib.h>
#include <string.h>

#define WIDE TRELLIS_ROOM

/* A row to be put into a slice. */
typedef struct {
    const uint32_t *terms;
    const float *weights;
    uint32_t fan, offset, out;
    float bias;
} row;

static uint32_t vectors_of(const uint32_t *offsets, uint32_t count) {
    return (offsets[count - 1] - offsets[0]) / WIDE + 1;
}

/* In hundredths of a cycle, roughly: a gathered term, a vector of neighbours, and what results
 * cost that have to be scattered. */
static int runs_better(const uint32_t *offsets, uint32_t count, uint32_t fan) {
    if (count < 4 || fan == 0) return 0;
    const uint64_t vectors = vectors_of(offsets, count);
    const uint64_t run = vectors * (100 * (uint64_t)fan + 300) + 100 * (uint64_t)count;
    const uint64_t gathered = 80 * (uint64_t)fan * count + 60 * (uint64_t)count;
    for (uint32_t n = 1; n < count; n++)
        if (offsets[n] == offsets[n - 1]) return 0; /* the same unit twice */
    return run < gathered;
}

static void *some(size_t count, size_t size, int *failed) {
    void *made = calloc(count ? count : 1, size);
    if (!made) *failed = 1;
    return made;
}

static void plan_lanes(
    trellis_lanes *lanes, const uint32_t *offsets, const uint32_t *outs, uint32_t count,
    uint32_t vectors
) {
    uint32_t n = 0;
    for (uint32_t v = 0; v < vectors; v++) {
        trellis_lanes *l = &lanes[v];
        uint32_t found = 0;
        l->mask = 0;
        l->out = TRELLIS_SCATTERED;
        int together = 1;
        for (; n < count && offsets[n] - offsets[0] < (v + 1) * WIDE; n++, found++) {
            const uint32_t lane = offsets[n] - offsets[0] - v * WIDE;
            l->mask = (uint16_t)(l->mask | 1u << lane);
            l->outs[lane] = outs[n];
            together &= found == 0 || outs[n] == outs[n - 1] + 1;
        }
        if (found && together) l->out = outs[n - found];
    }
}

static uint32_t address(const row *from, uint32_t term) { return from->terms[term] + from->offset; }

/* Cuts a slice into at most so many windows, and writes them where there is room for them. Returns
 * how many there are; 0 where they are more, or where terms do not ascend. */
static uint32_t plan_windows(
    const row *rows, uint32_t count, uint64_t most, uint32_t *from, trellis_window *window
) {
    uint32_t done[WIDE] = {0}, windows = 0;
    for (uint32_t r = 0; r < count; r++)
        for (uint32_t t = 1; t < rows[r].fan; t++)
            if (address(&rows[r], t) < address(&rows[r], t - 1)) return 0;
    for (; windows <= most; windows++) {
        uint32_t low = UINT32_MAX;
        for (uint32_t r = 0; r < count; r++)
            if (done[r] < rows[r].fan && address(&rows[r], done[r]) < low)
                low = address(&rows[r], done[r]);
        if (low == UINT32_MAX) return windows;
        if (window) from[windows] = low;
        for (uint32_t r = 0; r < count; r++)
            for (uint32_t t = 0; t < TRELLIS_PICKS && done[r] < rows[r].fan; t++, done[r]++) {
                const uint32_t place = address(&rows[r], done[r]) - low;
                if (place >= 2 * WIDE) break;
                if (!window) continue;
                window[windows].places[r] |= place << 8 * t;
                window[windows].weights[t * WIDE + r] = rows[r].weights[done[r]];
            }
    }
    return 0;
}

/* How many windows a slice is worth, or 0: three take about as long as two gathered vectors. */
static uint32_t windows_of(const row *rows, uint32_t count) {
    const uint64_t most = 3 * (uint64_t)rows[count - 1].fan / 2;
    return TRELLIS_WINDOWS ? plan_windows(rows, count, most, NULL, NULL) : 0;
}

static void plan_slice(
    trellis_part *p, const row *rows, uint32_t count, size_t *vector, size_t *window
) {
    trellis_slice *s = &p->slice[p->slices];
    const uint32_t width = rows[count - 1].fan; /* fans ascend */
    const uint32_t windows = windows_of(rows, count);
    float *bias = p->bias + (size_t)p->slices * WIDE;
    uint32_t *outs = p->outs + (size_t)p->slices * WIDE;
    int together = count == WIDE;
    for (uint32_t r = 0; r < WIDE; r++) {
        const row *from = &rows[r < count ? r : 0];
        /* Beyond its end a row reads its first term again, with weight zero; one that has no terms
         * reads what the longest row does. */
        const row *first = from->fan ? from : &rows[count - 1];
        bias[r] = r < count ? from->bias : 0.0f;
        outs[r] = r < count ? from->out : p->alone.size; /* a spare place behind the units */
        together &= r == 0 || outs[r] == outs[0] + r;
        for (uint32_t t = 0; t < width && !windows; t++) {
            const int real = r < count && t < from->fan;
            const uint32_t at = real ? from->terms[t] + from->offset
                                     : first->terms[0] + first->offset;
            const size_t place = (*vector + t) * WIDE + r;
            if (p->near) p->near[place] = (uint16_t)at;
            else p->far[place] = at;
            p->weights[place] = real ? from->weights[t] : 0.0f;
        }
    }
    s->width = windows ? 0 : width;
    s->windows = windows;
    s->out = together ? outs[0] : TRELLIS_SCATTERED;
    if (windows) plan_windows(rows, count, windows, p->from + *window, p->window + *window);
    *vector += s->width;
    *window += windows;
    p->slices++;
}

/* Goes over a step twice: to count, with fill 0, and to fill what was allocated in between. */
typedef struct {
    size_t runs, lanes, slices, vectors, windows;
} extent;

static void plan_full(trellis_part *p, const row *rows, uint32_t count, extent *e, int fill) {
    if (fill) {
        plan_slice(p, rows, count, &e->vectors, &e->windows);
    } else {
        const uint32_t windows = windows_of(rows, count);
        e->windows += windows;
        e->vectors += windows ? 0 : rows[count - 1].fan;
    }
    e->slices++;
}

static extent plan_rows(trellis_part *p, int fill) {
    extent e = {0, 0, 0, 0, 0};
    const trellis_tables *m = &p->alone;
    const uint32_t *terms = m->terms, *offsets = m->offsets, *outs = m->outs;
    const float *weights = m->weights;
    row rows[WIDE];
    uint32_t waiting = 0;
    uint32_t g = 0;
    for (uint32_t i = 0; i < p->step->bands; i++) {
        const uint32_t fan = m->band[i].fan, count = m->band[i].count;
        for (const uint32_t end = g + m->band[i].groups; g < end; g++) {
            if (!p->step->adds && runs_better(offsets, count, fan)) {
                const uint32_t vectors = vectors_of(offsets, count);
                if (fill) {
                    trellis_run_of *r = &p->run[e.runs];
                    r->first = offsets[0];
                    r->fan = fan;
                    r->vectors = vectors;
                    r->term = (uint32_t)(terms - m->terms);
                    r->bias = m->bias[g];
                    plan_lanes(p->lanes + e.lanes, offsets, outs, count, vectors);
                }
                e.runs++;
                e.lanes += vectors;
            } else {
                for (uint32_t n = 0; n < count; n++) {
                    const row made = {terms, weights, fan, offsets[n], outs[n], m->bias[g]};
                    rows[waiting++] = made;
                    if (waiting < WIDE) continue;
                    plan_full(p, rows, waiting, &e, fill);
                    waiting = 0;
                }
            }
            terms += fan;
            weights += fan;
            offsets += count;
            outs += count;
        }
    }
    if (waiting) plan_full(p, rows, waiting, &e, fill);
    return e;
}

static int plan_part(trellis_part *p) {
    int failed = 0;
    const extent e = plan_rows(p, 0);
    p->run = some(e.runs, sizeof *p->run, &failed);
    p->lanes = some(e.lanes, sizeof *p->lanes, &failed);
    p->slice = some(e.slices, sizeof *p->slice, &failed);
    p->weights = some(e.vectors, WIDE * sizeof *p->weights, &failed);
    p->bias = some(e.slices, WIDE * sizeof *p->bias, &failed);
    p->outs = some(e.slices, WIDE * sizeof *p->outs, &failed);
    p->from = some(e.windows, sizeof *p->from, &failed);
    p->unaligned = some(e.windows + 1, sizeof *p->window, &failed);
    p->window = (trellis_window *)(((uintptr_t)p->unaligned + 63u) & ~(uintptr_t)63u);
    if (p->alone.size < 0xffffu) p->near = some(e.vectors, WIDE * sizeof *p->near, &failed);
    else p->far = some(e.vectors, WIDE * sizeof *p->far, &failed);
    if (failed) return 0;
    plan_rows(p, 1);
    p->runs = (uint32_t)e.runs;
    return 1;
}

/* Where the tables of the next step begin. */
static void pass(trellis_tables *m, const trellis_step *s) {
    for (uint32_t i = 0; i < s->bands; i++, m->band++) {
        const uint32_t terms = m->band->groups * m->band->fan;
        m->terms += s->kind == TRELLIS_DOT ? 2 * terms : terms;
        m->weights += s->kind == TRELLIS_MAX ? 0 : terms;
        m->offsets += m->band->groups * m->band->count;
        m->outs += m->band->groups * m->band->count;
        m->bias += m->band->groups;
    }
}

/* Where the tables of the next loop begin. */
static void pass_loop(trellis_loop_cursor *at, const trellis_loop *l) {
    const uint32_t fans = l->shared ? 1 : l->channels;
    for (uint32_t i = 0; i < fans; i++) at->pairs += 2 * (size_t)at->fan[i];
    at->fan += fans;
    at->sources += l->sources;
    at->extras += l->channels;
    at->bias += l->channels;
    at->scale += l->channels;
}

/* Whether a loop reads every second number of memory, and always of the same parity. */
static int splits(const trellis_loop *l) {
    return TRELLIS_PLANNED && l->kind == TRELLIS_CONV && !l->shared && l->step_column == 2
           && l->step_row % 2 == 0 && l->width > 1;
}

static uint32_t tap_at(const float *tap) {
    uint32_t at;
    memcpy(&at, tap, sizeof at);
    return at;
}

/* See plan.h. Returns 0 where there is no memory. */
static int plan_split(trellis_part *p, size_t sorted) {
    const trellis_loop *l = p->loop;
    size_t count = 0;
    uint32_t low = UINT32_MAX, high = 0;
    for (uint32_t c = 0; c < l->channels; c++) count += p->at.fan[c];
    if (count == 0) return 1;
    for (size_t t = 0; t < count; t++) {
        const uint32_t at = tap_at(p->at.pairs + 2 * t);
        if (at < low) low = at;
        if (at > high) high = at;
    }
    high += (l->height - 1) * l->step_row + (l->width - 1) * 2;
    p->taps = malloc(2 * count * sizeof *p->taps);
    if (!p->taps) return 0;
    p->low = low;
    p->half = (high - low) / 2 + 1;
    for (size_t t = 0; t < count; t++) {
        const uint32_t at = tap_at(p->at.pairs + 2 * t) - low;
        const uint32_t place = (uint32_t)sorted + (at & 1u ? p->half : 0) + at / 2;
        memcpy(&p->taps[2 * t], &place, sizeof place);
        p->taps[2 * t + 1] = p->at.pairs[2 * t + 1];
    }
    p->split = *l;
    p->split.step_column = 1;
    p->split.step_row = l->step_row / 2;
    p->at.pairs = p->taps;
    return 1;
}

trellis_plan *trellis_planned(const trellis_tables *tables, const trellis_looped *looped) {
    trellis_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return NULL;
    plan->part = calloc(tables->steps + 1u, sizeof *plan->part);
    /* A spare place, and what the last vector of a run may read and not use. */
    plan->room = (size_t)tables->size + 1 + 2 * WIDE + TRELLIS_BEYOND;
    plan->sorted = plan->room;
    trellis_tables at = *tables;
    trellis_loop_cursor next = {
        looped->pairs, looped->fan, looped->sources, looped->extras, looped->bias, looped->scale,
        NULL, NULL, NULL, NULL};
    const trellis_loop *loop = looped->loop;
    for (; plan->part && plan->steps < tables->steps; plan->steps++) {
        trellis_part *p = &plan->part[plan->steps];
        p->step = &tables->step[plan->steps];
        if (p->step->kind == TRELLIS_CONV) {
            p->loop = loop;
            p->at = next;
            if (splits(loop) && !plan_split(p, plan->sorted)) {
                plan->steps++;
                trellis_drop(plan);
                return NULL;
            }
            const size_t room = plan->sorted + 2 * (size_t)p->half + TRELLIS_BEYOND;
            if (p->half && room > plan->room) plan->room = room;
            pass_loop(&next, loop++);
            continue;
        }
        p->alone = at;
        p->alone.steps = 1;
        p->alone.step = p->step;
        if (TRELLIS_PLANNED && p->step->kind == TRELLIS_SUM && !plan_part(p)) {
            plan->steps++;
            trellis_drop(plan);
            return NULL;
        }
        pass(&at, p->step);
    }
    if (plan->part) return plan;
    free(plan);
    return NULL;
}

void trellis_drop(trellis_plan *plan) {
    if (!plan) return;
    for (uint32_t i = 0; i < plan->steps; i++) {
        trellis_part *p = &plan->part[i];
        free(p->taps);
        free(p->run);
        free(p->lanes);
        free(p->slice);
        free(p->near);
        free(p->far);
        free(p->weights);
        free(p->bias);
        free(p->outs);
        free(p->from);
        free(p->unaligned);
    }
    free(plan->part);
    free(plan);
}
