/* How each step in 8 bits is computed for one sample. See whole.h.
 * Generated and run-time code of Trellis may be used under any licence.
 */
#define TRELLIS_DECODED
#include "whole.h"
#include "plan.h"

#include <stdlib.h>
#include <string.h>

#if defined(__AVX512VNNI__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define TRELLIS_WIDE8
#endif
#include "int8.h"
#include "int8_loops.h"
#ifdef TRELLIS_WIDE8
#include "int8_wide.h"
#else
static int trellis_is_wide(const trellis_loop *l) { return (void)l, 0; }
#endif
#include "int8_rows.h"

/* A loop that reads every second position reads from a copy in which they lie side by side: memory
 * from `low` on, its rows of `pitch` bytes taken apart into even and odd rows and columns. Rows of the
 * copy are as far apart as those of the loop's result, which is one long row then. */
typedef struct {
    uint32_t low, pitch, rows, to; /* rows of each part, and their bytes */
    uint32_t last;                 /* row of memory that is read */
    uint8_t used[4];               /* parts that a tap reads: even and odd rows by columns */
} parted;

typedef struct {
    const trellis_loop *loop; /* NULL of a step of single units */
    trellis_loop changed;
    trellis_loop_cursor at;
    parted parts;
    uint32_t taps, first; /* how many there are, and where the first one reads */
    int copies;           /* bytes stay what they are */
    uint8_t *tables; /* of channels that have an extra and no tap, */
    const uint8_t **mapped; /* and of each channel its table or NULL */
    const trellis_step *step;
    const trellis_band *band;
    trellis_rows_cursor rows;
    const trellis_part *single; /* of sums that single precision holds exactly; or NULL */
    uint32_t low, high;         /* of what they read */
} part;

struct trellis_whole_plan {
    const trellis_file *file;
    part *part;
    uint32_t *words, *fans; /* taps of all loops, and how many words each channel has */
    int8_t *weights;
    float *twice; /* of inputs */
    trellis_step *row; /* the steps of single units, */
    trellis_plan *rows; /* and how they are computed in single precision */
    size_t copy, room, floats; /* floats: where in memory those are */
};

static uint32_t place_of(const float *pair) {
    uint32_t at;
    memcpy(&at, pair, sizeof at);
    return at;
}

/* How to copy what a loop reads, where its planes are regular. Returns the bytes of the copy, or 0. */
static size_t plan_copy(parted *c, const trellis_loop *l, const float *pairs, uint32_t taps) {
    if (l->kind != TRELLIS_CONV || l->shared || l->step_column != 2 || l->column != 1 || !taps
        || TRELLIS_LANES8 == 1 || l->step_row % 2 || l->width < 2)
        return 0;
    uint32_t low = UINT32_MAX, high = 0;
    for (uint32_t t = 0; t < taps; t++) {
        const uint32_t at = place_of(pairs + 2 * t);
        if (at < low) low = at;
        if (at > high) high = at;
    }
    c->low = low;
    c->pitch = l->step_row / 2;
    c->to = l->row;
    if (l->height == 1 || c->pitch < 2 * (uint32_t)l->width) return 0;
    memset(c->used, 0, sizeof c->used);
    for (uint32_t t = 0; t < taps; t++) {
        const uint32_t at = place_of(pairs + 2 * t) - low;
        const uint32_t row = at / c->pitch, column = at % c->pitch;
        c->used[row % 2 * 2 + column % 2] = 1;
        /* All that is read lies in one row of the copy. Rows of it may overlap in memory. */
        if (column / 2 + l->width > c->to) return 0;
    }
    c->last = (high - low) / c->pitch + 2 * (l->height - 1u);
    c->rows = c->last / 2 + 1;
    return (size_t)4 * c->rows * c->to;
}

static uint32_t copied_place(const parted *c, uint32_t place) {
    const uint32_t at = place - c->low, row = at / c->pitch, column = at % c->pitch;
    const uint32_t number = row % 2 * 2 + column % 2;
    return number * c->rows * c->to + row / 2 * c->to + column / 2;
}

#ifndef TRELLIS_WIDE8
/* `count` even places and as many odd ones; NULL for those that are not wanted. */
static void trellis_even_odd(const uint8_t *from, uint8_t *even, uint8_t *odd, uint32_t count) {
    for (uint32_t i = 0; even && i < count; i++) even[i] = from[2 * i];
    for (uint32_t i = 0; odd && i < count; i++) odd[i] = from[2 * i + 1];
}
#endif

static void copy_parts(const parted *c, const uint8_t *x, uint8_t *to) {
    const size_t size = (size_t)c->rows * c->to;
    for (uint32_t number = 0; number < 4; number += 2) {
        const uint8_t *from = x + c->low + number / 2 * c->pitch;
        uint8_t *even = c->used[number] ? to + number * size : NULL;
        uint8_t *odd = c->used[number + 1] ? to + (number + 1) * size : NULL;
        /* No row begins behind memory, and there is room behind the copy for what one reads more. */
        for (uint32_t r = 0; (even || odd) && number / 2 + 2 * r <= c->last;
             r++, from += 2 * c->pitch)
            trellis_even_odd(
                from, even ? even + r * c->to : NULL, odd ? odd + r * c->to : NULL, c->to);
    }
}

/* Taps that a strip takes together. Those that are wanting have weight zero. */
static uint32_t *listed(uint32_t *to, const float *pairs, uint32_t fan, const part *p, uint32_t copy) {
    const int peak = p->loop->kind == TRELLIS_PEAK, wide = trellis_is_wide(&p->changed);
    const uint32_t together = peak ? 1 : wide ? 4 : TRELLIS_TOGETHER;
    for (uint32_t t = 0; t < fan; t += together) {
        uint32_t weights = 0;
        for (uint32_t i = t; i < t + together; i++) {
            const float *pair = pairs + 2 * (size_t)(i < fan ? i : t);
            const uint8_t weight = (uint8_t)(int8_t)(i < fan ? pair[1] : 0.0f);
            uint32_t place = place_of(pair);
            if (p->parts.rows) place = copy + copied_place(&p->parts, place);
            *to++ = wide ? place : place << 8 | weight;
            weights |= (uint32_t)weight << 8 * (i - t) % 32;
        }
        if (wide) *to++ = weights;
    }
    return to;
}

static void plan_loop(
    trellis_whole_plan *plan, part *p, trellis_loop_cursor *next, uint32_t **words, uint32_t **fans
) {
    const trellis_loop *l = p->loop;
    const uint32_t lists = l->shared ? 1 : l->channels;
    uint32_t taps = 0;
    for (uint32_t c = 0; c < lists; c++) taps += next->fan[c];
    p->changed = *l;
    p->taps = taps;
    p->first = taps ? place_of(next->pairs) : 0;
    const size_t copied = plan_copy(&p->parts, l, next->pairs, taps);
    if (copied && plan->copy + copied < TRELLIS_MOST_UNITS) {
        p->changed.step_column = 1;
        p->changed.step_row = (trellis_index)p->parts.to;
        if (plan->copy + copied + TRELLIS_SLACK > plan->room)
            plan->room = plan->copy + copied + TRELLIS_SLACK;
    } else p->parts.rows = 0;
    p->at = *next;
    p->at.words = *words;
    p->at.fan = *fans;
    for (uint32_t c = 0; c < lists; c++) {
        const uint32_t fan = *next->fan++, *first = *words;
        *words = listed(*words, next->pairs, fan, p, (uint32_t)plan->copy);
        *(*fans)++ = (uint32_t)(*words - first);
        next->pairs += 2 * (size_t)fan;
    }
    next->sources += l->sources;
    next->extras += l->channels;
    next->offset += l->channels;
    next->multiplier += l->channels;
}

/* What becomes of a byte that alone is read, and of an extra. */
static uint8_t made_of(
    const trellis_rescale *how, const trellis_loop_cursor *at, uint32_t c, int byte, int extra
) {
    return trellis_rescaled(how, at->offset[c] + byte, at->multiplier[c], extra);
}

/* Whether a loop copies rows of bytes as they are. */
static int copies(const part *p, const trellis_rescale *how) {
    const trellis_loop *l = p->loop;
    if (l->kind != TRELLIS_CONV || !l->shared || l->extra || l->step_column != 1 || l->column != 1
        || p->taps != 1)
        return 0;
    for (uint32_t c = 0; c < l->channels; c++)
        for (int q = 0; q < 256; q++)
            if (made_of(how, &p->at, c, q, how->absent) != q) return 0;
    return 1;
}

/* The tables of channels that have an extra and no tap. Returns 0 where there is no memory. */
static int plan_mapped(part *p, const trellis_rescale *how) {
    const trellis_loop *l = p->loop;
    if (!trellis_is_wide(&p->changed) || l->shared || !l->extra) return 1;
    p->tables = malloc(256 * (size_t)l->channels);
    p->mapped = calloc(l->channels, sizeof *p->mapped);
    if (!p->tables || !p->mapped) return 0;
    for (uint32_t c = 0; c < l->channels; c++) {
        if (p->at.fan[c] || !p->at.extras[c]) continue;
        uint8_t *table = p->tables + 256 * (size_t)c;
        for (int q = 0; q < 256; q++) table[q] = made_of(how, &p->at, c, 0, q);
        p->mapped[c] = table;
    }
    p->at.mapped = p->mapped;
    return 1;
}

static void run_copies(const part *p, const trellis_rescale *how, uint8_t *x) {
    const trellis_loop *l = p->loop;
    for (uint32_t c = 0; c < l->channels; c++) {
        uint8_t *const to = x + l->out + c * l->plane;
        const uint8_t *from = x + p->at.sources[c] + p->first;
        for (uint32_t y = 0; y < l->height; y++)
            memmove(to + y * l->row, from + y * l->step_row, l->width);
        if (l->rows || l->gap) trellis_clear8(l, to, c == 0, how->zero);
    }
}

enum { EXACT = 1 << 24 }; /* single precision holds whole numbers up to it */

/* Whether sums are exact in single precision, in any order; and what they read. */
static int exact(part *p) {
    const trellis_rows_cursor *r = &p->rows;
    const int8_t *weights = r->weights;
    const uint32_t *terms = r->terms, *offsets = r->offsets;
    const trellis_band *band = p->band;
    p->low = UINT32_MAX;
    p->high = 0;
    if (p->step->kind != TRELLIS_SUM || TRELLIS_WIDE == 0) return 0;
    for (uint32_t i = 0; i < p->step->bands; i++, band++)
        for (uint32_t g = 0; g < band->groups; g++) {
            uint32_t sizes = 0, far = 0;
            for (uint32_t t = 0; t < band->fan; t++, weights++, terms++) {
                const int32_t w = *weights;
                sizes += (uint32_t)(w < 0 ? -w : w);
                far = *terms > far ? *terms : far;
            }
            if (sizes >= EXACT / 255) return 0;
            for (uint32_t n = 0; n < band->count; n++, offsets++) {
                if (!band->fan) continue;
                p->low = *offsets < p->low ? *offsets : p->low;
                p->high = *offsets + far > p->high ? *offsets + far : p->high;
            }
        }
    return p->low <= p->high;
}

/* Sums in single precision, which the vectors of floats compute. */
static void run_exact(
    const trellis_whole_plan *plan, const part *p, const trellis_rescale *how, uint8_t *x
) {
    float *const whole = (float *)(void *)(x + plan->floats);
    const trellis_rows_cursor *r = &p->rows;
    const int32_t *offset = r->offset;
    const int16_t *multiplier = r->multiplier;
    const uint32_t *outs = r->outs;
    const trellis_band *band = p->band;
    for (uint32_t i = p->low; i <= p->high; i++) whole[i] = x[i];
    trellis_part_run(plan->rows, p->single, whole);
    for (uint32_t i = 0; i < p->step->bands; i++, band++)
        for (uint32_t g = 0; g < band->groups; g++, offset++, multiplier++)
            for (uint32_t n = 0; n < band->count; n++, outs++)
                x[*outs] = trellis_rescaled(
                    how, (int32_t)whole[*outs] + *offset, *multiplier, how->absent);
}

static void plan_rows(part *p, trellis_rows_cursor *next, const trellis_band **band) {
    p->band = *band;
    p->rows = *next;
    for (uint32_t i = 0; i < p->step->bands; i++, (*band)++) {
        const uint32_t groups = (*band)->groups, terms = groups * (*band)->fan;
        next->terms += terms;
        next->weights += p->step->kind == TRELLIS_MAX ? 0 : terms;
        next->offsets += groups * (*band)->count;
        next->outs += groups * (*band)->count;
        next->offset += groups;
        next->multiplier += groups;
    }
}

/* Steps of single units, `count` of them, in single precision. Returns 0 without memory. */
static int plan_singles(trellis_whole_plan *plan, uint32_t count) {
    const trellis_tables *t = &plan->file->tables;
    const trellis_looped none = {0};
    trellis_tables rows = *t;
    rows.steps = count;
    rows.step = plan->row;
    if (count == 0) return 1;
    plan->rows = trellis_planned(&rows, &none);
    if (!plan->rows) return 0;
    for (uint32_t i = 0, row = 0; i < t->steps; i++) {
        part *p = &plan->part[i];
        if (p->loop) continue;
        p->single = exact(p) ? &plan->rows->part[row] : NULL;
        row++;
    }
    plan->floats = (plan->room + 63) / 64 * 64;
    plan->room = plan->floats + plan->rows->room * sizeof(float);
    return 1;
}

trellis_whole_plan *trellis_whole_planned(const trellis_file *file) {
    const trellis_tables *t = &file->tables;
    const trellis_looped *looped = &file->looped;
    const trellis_whole *w = &file->whole;
    size_t taps = 0, lists = 0;
    for (uint32_t i = 0; i < looped->count; i++) {
        const uint32_t some = looped->loop[i].shared ? 1 : looped->loop[i].channels;
        for (uint32_t c = 0; c < some; c++) taps += looped->fan[lists++];
    }
    trellis_whole_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return NULL;
    plan->file = file;
    plan->part = calloc(t->steps + 1u, sizeof *plan->part);
    plan->words = malloc((2 * taps + 5 * lists + 1) * sizeof *plan->words);
    plan->fans = malloc((lists + 1) * sizeof *plan->fans);
    plan->weights = malloc(file->weights + 1u);
    plan->twice = malloc(w->inputs * sizeof *plan->twice);
    plan->row = calloc(t->steps + 1u, sizeof *plan->row);
    if (!plan->part || !plan->row || !plan->words || !plan->fans || !plan->weights || !plan->twice) {
        trellis_whole_drop(plan);
        return NULL;
    }
    for (uint32_t i = 0; i < w->inputs; i++)
        plan->twice[i] = (float)(2.0 / (double)w->input[i].scale);
    for (uint32_t i = 0; i < file->weights; i++) plan->weights[i] = (int8_t)t->weights[i];
    plan->copy = (size_t)t->size + TRELLIS_SLACK;
    plan->room = plan->copy;
    trellis_loop_cursor next = {
        looped->pairs, looped->fan, looped->sources, looped->extras, NULL, NULL,
        NULL, NULL, w->loop_offset, w->loop_multiplier};
    trellis_rows_cursor rows = {
        t->terms, t->offsets, t->outs, plan->weights, w->offset, w->multiplier};
    const trellis_band *band = t->band;
    const trellis_loop *loop = looped->loop;
    uint32_t *words = plan->words, *fans = plan->fans, single = 0;
    for (uint32_t i = 0; i < t->steps; i++) {
        part *p = &plan->part[i];
        p->step = &t->step[i];
        if (p->step->kind == TRELLIS_CONV) {
            p->loop = loop++;
            plan_loop(plan, p, &next, &words, &fans);
            p->copies = copies(p, &w->rescale[i]);
            if (!plan_mapped(p, &w->rescale[i])) {
                trellis_whole_drop(plan);
                return NULL;
            }
        } else {
            plan_rows(p, &rows, &band);
            plan->row[single++] = *p->step;
        }
    }
    if (!plan_singles(plan, single)) {
        trellis_whole_drop(plan);
        return NULL;
    }
    return plan;
}

void trellis_whole_drop(trellis_whole_plan *plan) {
    if (!plan) return;
    for (uint32_t i = 0; plan->part && i < plan->file->tables.steps; i++) {
        free(plan->part[i].tables);
        free((void *)plan->part[i].mapped);
    }
    free(plan->part);
    free(plan->words);
    free(plan->fans);
    free(plan->weights);
    free(plan->twice);
    free(plan->row);
    trellis_drop(plan->rows);
    free(plan);
}

size_t trellis_whole_room(const trellis_whole_plan *plan) { return plan->room; }

void trellis_whole_run(
    const trellis_whole_plan *plan, const float *input, float *output, uint8_t *x
) {
    const trellis_tables *t = &plan->file->tables;
    const trellis_whole *w = &plan->file->whole;
    uint8_t *to = x;
    for (uint32_t i = 0; i < w->inputs; i++) {
        const trellis_coding *c = &w->input[i];
        trellis_encode8(input, c->units, plan->twice[i], c->zero, to);
        input += c->units;
        to += c->units;
    }
    for (uint32_t i = 0; i < t->steps; i++) {
        const part *p = &plan->part[i];
        const trellis_rescale *how = &w->rescale[i];
        if (p->copies) run_copies(p, how, x);
        else if (p->loop) {
            trellis_loop_cursor at = p->at;
            if (p->parts.rows) copy_parts(&p->parts, x, x + plan->copy);
            trellis_loop_run8(&p->changed, how, &at, x, NULL);
        } else if (p->single) run_exact(plan, p, how, x);
        else {
            trellis_rows_cursor at = p->rows;
            trellis_rows8(p->step, how, p->band, &at, x);
        }
    }
    const uint32_t *result = t->results;
    for (uint32_t i = 0; i < w->outputs; i++)
        for (uint32_t u = 0; u < w->output[i].units; u++)
            *output++ = (float)((int32_t)x[*result++] - w->output[i].zero) * w->output[i].scale;
}
