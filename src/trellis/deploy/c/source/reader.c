/* Reads a .trellis file from memory; believes none of it.
 * Generated and run-time code of Trellis may be used under any licence.
 */
#define TRELLIS_DECODED
#include "reader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "activation.h"
#include "bits.h"
#include "half.h"

enum { FLAG_BIASED = 1, FLAG_SCALED = 2, FLAG_UNORDERED = 4, FLAG_ADDS = 8 };
enum { VALUES_FP32, VALUES_FP16, VALUES_INT8, VALUES_WHOLE, VALUES }; /* whole: 8 bits */
enum { STEP = 32 }; /* bytes of the head of a step */

/* What is being built: the arrays of trellis_tables, and how much of each is filled. */
typedef struct {
    trellis_step *step;
    trellis_band *band;
    uint32_t *fan, *count, *terms, *offsets, *outs, *results;
    float *bias, *weights;
    uint32_t bands, groups, instances, terms_used, weights_used;
    unsigned char *state; /* of each unit: 1 written before this step, 2 by it */
    uint64_t uses;
    trellis_loop *loop;
    float *pairs, *loop_bias, *loop_scale;
    uint32_t *loop_fan, *loop_sources, *loop_extras;
    uint32_t loops, channels, taps, sources, fans;
    uint64_t looped;
    trellis_rescale *rescale; /* of the steps that are read */
    uint8_t *tables;
    int32_t *offset, *loop_offset;
    int16_t *multiplier, *loop_multiplier;
} building;

typedef struct {
    uint32_t kind, act, flags, groups, instances, terms, offset, out;
    float a, b;
} step_head;

static step_head read_head(trellis_bytes *b, uint32_t values) {
    step_head h;
    h.kind = trellis_u8(b);
    h.act = trellis_u8(b);
    h.flags = trellis_u8(b);
    if (trellis_u8(b) != 0) b->bad = 1;
    h.a = trellis_float(trellis_u32(b));
    h.b = trellis_float(trellis_u32(b));
    h.groups = trellis_u32(b);
    h.instances = trellis_u32(b);
    h.terms = trellis_u32(b);
    h.offset = trellis_u32(b);
    h.out = trellis_u32(b);
    if (h.kind >= TRELLIS_KINDS || h.act >= TRELLIS_ACTIVATIONS || h.flags > 15u) b->bad = 1;
    if (h.groups == 0 || h.groups > h.instances || h.a != h.a || h.b != h.b) b->bad = 1;
    if (values == VALUES_WHOLE && (h.act || (h.flags | FLAG_UNORDERED) != FLAG_UNORDERED || h.kind == TRELLIS_DOT))
        b->bad = 1;
    return h;
}

static size_t value_size(uint32_t values) {
    return values == VALUES_FP32 ? 4 : values == VALUES_FP16 ? 2 : 1;
}

static float value_at(const unsigned char *p, uint32_t values) {
    if (values >= VALUES_INT8) return (float)(p[0] < 128 ? (int)p[0] : (int)p[0] - 256);
    if (values == VALUES_FP16) {
        const uint16_t half = (uint16_t)(p[0] | p[1] << 8);
        return (half & 0x7c00u) == 0x7c00u ? HUGE_VALF : trellis_half(half);
    }
    return trellis_float(
        (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
}

static int is_finite(float value) { return value - value == 0.0f; }

/* In 8 bits: how a step's sums become bytes, and where the values of its groups lie. */
typedef struct {
    const unsigned char *rescale, *table, *multipliers;
    trellis_rice offsets;
} whole_head;

static whole_head read_whole_head(trellis_bytes *b, uint32_t groups) {
    whole_head h;
    memset(&h, 0, sizeof h);
    h.rescale = trellis_take(b, 16);
    if (b->bad || h.rescale[6] > 1 || h.rescale[7]) {
        b->bad = 1;
        return h;
    }
    if (h.rescale[6]) h.table = trellis_take(b, 256);
    h.multipliers = trellis_take(b, 2 * (size_t)groups);
    h.offsets = trellis_stream(b, groups);
    return h;
}

/* Fills in the values of `groups` groups. Whether their sums fit is asked when weights are known. */
static void read_whole(
    trellis_bytes *b, whole_head *h, uint32_t groups, trellis_rescale *r, uint8_t *table,
    int32_t *offset, int16_t *multiplier
) {
    trellis_bytes head = {h->rescale, 16, 0};
    h->offsets.from = b;
    r->before = (uint8_t)trellis_u8(&head);
    r->after = (uint8_t)trellis_u8(&head);
    r->low = (uint8_t)trellis_u8(&head);
    r->high = (uint8_t)trellis_u8(&head);
    r->zero = (uint8_t)trellis_u8(&head);
    r->absent = (uint8_t)trellis_u8(&head);
    trellis_take(&head, 2);
    const uint32_t beside = trellis_u32(&head), constant = trellis_u32(&head);
    if (r->before > 30 || r->after > TRELLIS_MOST_AFTER || r->low > r->high
        || beside > TRELLIS_MOST_BESIDE
        || constant + TRELLIS_MOST_OFFSET > 2u * TRELLIS_MOST_OFFSET)
        b->bad = 1;
    r->beside = (int32_t)beside;
    r->offset = (int32_t)constant;
    r->table = NULL;
    if (h->table && !b->bad) r->table = memcpy(table, h->table, 256);
    for (uint32_t g = 0; g < groups && !b->bad; g++) {
        const unsigned char *at = h->multipliers + 2 * (size_t)g;
        multiplier[g] = (int16_t)(uint16_t)(at[0] | at[1] << 8);
        const int64_t made = trellis_unzigzag(trellis_code(&h->offsets));
        if (made >= TRELLIS_MOST_SUM || made <= -TRELLIS_MOST_SUM) b->bad = 1;
        else offset[g] = (int32_t)made;
    }
    trellis_over(&h->offsets);
}

/* Whether a sum of weights of this size, and an offset, fits. */
static int sum_fits(const trellis_rescale *r, uint64_t weights, int32_t offset) {
    const uint64_t largest = 255 * weights + (uint64_t)(offset < 0 ? -(int64_t)offset : offset);
    return largest < TRELLIS_MOST_SUM && largest >> r->before < TRELLIS_MOST_SHIFTED;
}

/* Biases, scales and weights of a step, whose fans are known. */
static void read_values(
    trellis_bytes *b, const step_head *h, uint32_t values, const unsigned char *biases,
    const unsigned char *scales, const unsigned char *weights, const trellis_rescale *rescale,
    building *m
) {
    uint32_t term = 0;
    const size_t size = value_size(values);
    for (uint32_t g = 0; g < h->groups; g++) {
        const float scale =
            scales ? trellis_float(((uint32_t)scales[2 * g] | (uint32_t)scales[2 * g + 1] << 8) << 16)
                   : 1.0f;
        const float bias = biases ? value_at(biases + 4 * (size_t)g, VALUES_FP32) : 0.0f;
        if (!is_finite(scale) || !is_finite(bias)) b->bad = 1;
        m->bias[m->groups + g] = bias;
        if (h->kind == TRELLIS_MAX) {
            if (bias != 0.0f || m->fan[m->groups + g] == 0) b->bad = 1;
            if (rescale && !sum_fits(rescale, 1, m->offset[m->groups + g])) b->bad = 1;
            continue;
        }
        uint64_t sizes = 0;
        for (uint32_t t = 0; t < m->fan[m->groups + g]; t++, term++) {
            const float w = value_at(weights + size * term, values);
            if (!is_finite(w) || !is_finite(w * scale)) b->bad = 1;
            m->weights[m->weights_used + term] = w * scale;
            if (rescale) sizes += (uint64_t)(w < 0.0f ? -w : w);
        }
        if (rescale && !sum_fits(rescale, sizes, m->offset[m->groups + g])) b->bad = 1;
    }
    if (h->kind != TRELLIS_MAX) m->weights_used += h->terms;
}

static void read_fans(trellis_bytes *b, const step_head *h, building *m) {
    uint64_t fan = 0, terms = 0, instances = 0;
    trellis_rice r = trellis_stream(b, h->groups);
    for (uint32_t g = 0; g < h->groups && !b->bad; g++) {
        fan += trellis_code(&r);
        terms += fan;
        if (terms > h->terms) b->bad = 1;
        m->fan[m->groups + g] = (uint32_t)fan;
    }
    trellis_over(&r);
    r = trellis_stream(b, h->groups);
    for (uint32_t g = 0; g < h->groups && !b->bad; g++) {
        const uint64_t count = (uint64_t)trellis_code(&r) + 1;
        instances += count;
        if (instances > h->instances) b->bad = 1;
        m->count[m->groups + g] = (uint32_t)count;
        m->uses += count * m->fan[m->groups + g];
    }
    trellis_over(&r);
    if (terms != h->terms || instances != h->instances || m->uses > TRELLIS_MOST_USES) b->bad = 1;
}

static void read_terms(trellis_bytes *b, const step_head *h, building *m) {
    const uint32_t pairs = h->kind == TRELLIS_DOT ? 2 : 1;
    uint32_t *to = m->terms + m->terms_used;
    uint32_t some = 0;
    for (uint32_t g = 0; g < h->groups; g++) some += m->fan[m->groups + g] > 0;
    trellis_rice r = trellis_stream(b, h->terms * pairs - some);
    for (uint32_t g = 0; g < h->groups && !b->bad; g++) {
        int64_t place = 0;
        const uint32_t fan = m->fan[m->groups + g] * pairs;
        for (uint32_t t = 0; t < fan && !b->bad; t++) {
            if (t > 0) {
                const uint32_t code = trellis_code(&r);
                place += pairs == 2 ? trellis_unzigzag(code) : (int64_t)code;
            }
            if (place <= -(int64_t)TRELLIS_MOST_UNITS || place >= (int64_t)TRELLIS_MOST_UNITS)
                b->bad = 1;
            *to++ = (uint32_t)place; /* of a dot modulo 2^32, as the kernel adds */
        }
    }
    trellis_over(&r);
    if (!b->bad) m->terms_used += h->terms * pairs;
}

static void keep(trellis_bytes *b, uint32_t *to, int64_t place, uint32_t size) {
    if (place < 0 || place >= (int64_t)size) b->bad = 1;
    else *to = (uint32_t)place;
}

static void read_offsets(trellis_bytes *b, const step_head *h, building *m, uint32_t size) {
    uint32_t *to = m->offsets + m->instances;
    int64_t first = h->offset;
    trellis_rice begins = trellis_stream(b, h->groups - 1);
    trellis_rice later = trellis_stream(b, h->instances - h->groups);
    for (uint32_t g = 0; g < h->groups && !b->bad; g++) {
        if (g > 0) first += trellis_unzigzag(trellis_code(&begins));
        int64_t place = first;
        for (uint32_t n = 0; n < m->count[m->groups + g] && !b->bad; n++) {
            if (n > 0) place += trellis_code(&later);
            keep(b, to++, place, size);
        }
    }
    trellis_over(&begins);
    trellis_over(&later);
}

static void read_outs(trellis_bytes *b, const step_head *h, building *m, uint32_t size) {
    uint32_t *to = m->outs + m->instances, several = 0;
    for (uint32_t g = 0; g < h->groups; g++) several += m->count[m->groups + g] > 1;
    trellis_rice begins = trellis_stream(b, h->groups - 1);
    trellis_rice strides = trellis_stream(b, several);
    trellis_rice gaps = trellis_stream(b, h->instances - h->groups);
    int64_t place = h->out;
    for (uint32_t g = 0; g < h->groups && !b->bad; g++) {
        const uint32_t count = m->count[m->groups + g];
        if (g > 0) place += trellis_unzigzag(trellis_code(&begins)) + 1;
        const int64_t stride = count > 1 ? trellis_code(&strides) : 0;
        for (uint32_t n = 0; n < count && !b->bad; n++) {
            if (n > 0) {
                const uint32_t code = trellis_code(&gaps);
                if (stride > (int64_t)size || code > TRELLIS_MOST_UNITS * 2u) b->bad = 1;
                else if (h->flags & FLAG_UNORDERED) place += trellis_unzigzag(code);
                else place += ((int64_t)code + 1) * stride;
            }
            keep(b, to++, place, size);
        }
    }
    trellis_over(&begins);
    trellis_over(&strides);
    trellis_over(&gaps);
}

/* Every read follows a write of an earlier step; every write is the only one of its step. */
static void check_step(
    trellis_bytes *b, const step_head *h, building *m, uint32_t inputs, uint32_t size,
    uint32_t first_term
) {
    const uint32_t *terms = m->terms + first_term, *offset = m->offsets + m->instances;
    const uint32_t *outs = m->outs + m->instances;
    const uint32_t pairs = h->kind == TRELLIS_DOT ? 2 : 1;
    for (uint32_t n = 0; n < h->instances; n++) {
        const int adds = (h->flags & FLAG_ADDS) && (h->kind == TRELLIS_MAX || !m->state[outs[n]]);
        if (outs[n] < inputs || (m->state[outs[n]] & 2u) || adds) {
            b->bad = 1;
            return;
        }
        m->state[outs[n]] |= 2u;
    }
    for (uint32_t g = 0; g < h->groups; g++) {
        const uint32_t fan = m->fan[m->groups + g] * pairs;
        for (uint32_t n = 0; n < m->count[m->groups + g]; n++, offset++)
            for (uint32_t t = 0; t < fan; t++) {
                const uint32_t at = terms[t] + *offset; /* modulo 2^32 */
                if (at >= size || m->state[at] != 1u) {
                    b->bad = 1;
                    return;
                }
            }
        terms += fan;
    }
    for (uint32_t n = 0; n < h->instances; n++) m->state[outs[n]] = 1u;
}

/* Groups of a step that follow one another and are alike, together: returns how many bands. */
static uint32_t make_bands(const step_head *h, building *m) {
    uint32_t made = 0;
    for (uint32_t g = m->groups; g < m->groups + h->groups; g++) {
        trellis_band *b = m->band + m->bands + made, fresh = {m->fan[g], m->count[g], 1};
        if (made && b[-1].fan == fresh.fan && b[-1].count == fresh.count) b[-1].groups++;
        else m->band[m->bands + made++] = fresh;
    }
    m->bands += made;
    return made;
}

static const char *read_step(
    trellis_bytes *b, uint32_t values, uint32_t inputs, uint32_t size, building *m,
    trellis_step *step
) {
    const step_head h = read_head(b, values);
    if (b->bad) return "a step is of no known kind";
    const unsigned char *biases = NULL, *scales = NULL, *weights = NULL;
    trellis_rescale *rescale = values == VALUES_WHOLE ? m->rescale++ : NULL;
    if (rescale) {
        whole_head whole = read_whole_head(b, h.groups);
        if (b->bad) return "a table ends too early";
        read_whole(
            b, &whole, h.groups, rescale, m->tables, m->offset + m->groups,
            m->multiplier + m->groups);
        m->tables += 256;
        if (b->bad) return "a step overflows";
    }
    if (h.flags & FLAG_BIASED) biases = trellis_take(b, 4 * (size_t)h.groups);
    if (h.flags & FLAG_SCALED) scales = trellis_take(b, 2 * (size_t)h.groups);
    if (h.kind != TRELLIS_MAX) weights = trellis_take(b, value_size(values) * (size_t)h.terms);
    if (b->bad) return "a table ends too early";
    const uint32_t first_term = m->terms_used;
    read_fans(b, &h, m);
    if (b->bad) return "a step's groups do not add up";
    read_terms(b, &h, m);
    read_offsets(b, &h, m, size);
    read_outs(b, &h, m, size);
    if (b->bad) return "a table is not sound, or reaches outside its memory";
    read_values(b, &h, values, biases, scales, weights, rescale, m);
    if (b->bad) return "a step has values that are not finite, or none";
    check_step(b, &h, m, inputs, size, first_term);
    if (b->bad) return "a step reads what is not computed yet, or writes twice";
    step->kind = (uint8_t)h.kind;
    step->act = (uint8_t)h.act;
    step->biased = 1;
    step->scaled = 0;
    step->adds = (h.flags & FLAG_ADDS) != 0;
    step->a = h.a;
    step->b = h.b;
    step->bands = make_bands(&h, m);
    m->groups += h.groups;
    m->instances += h.instances;
    return NULL;
}

#include "loop_reader.h"

/* How much all steps hold together, from their heads: what has to be allocated. Each step's
 * streams must be passed over to find the next head, so their sizes are checked on the way. */
typedef struct {
    uint64_t groups, instances, terms, weights;
    uint64_t loops, channels, taps, sources;
} totals;

static totals measure(
    trellis_bytes b, uint32_t steps, uint32_t values, uint32_t version, int *bad
) {
    totals sum = {0, 0, 0, 0, 0, 0, 0, 0};
    for (uint32_t s = 0; s < steps && !b.bad; s++) {
        if (is_loop(&b, version)) {
            const loop_head l = pass_loop(&b, values);
            sum.loops++;
            sum.channels += l.loop.channels;
            sum.taps += l.taps;
            sum.sources += l.loop.sources;
            continue;
        }
        const step_head h = read_head(&b, values);
        const uint64_t pairs = h.kind == TRELLIS_DOT ? 2 : 1;
        if (values == VALUES_WHOLE) read_whole_head(&b, h.groups);
        if (h.flags & FLAG_BIASED) trellis_take(&b, 4 * (size_t)h.groups);
        if (h.flags & FLAG_SCALED) trellis_take(&b, 2 * (size_t)h.groups);
        if (h.kind != TRELLIS_MAX) trellis_take(&b, value_size(values) * (size_t)h.terms);
        trellis_stream(&b, h.groups);
        trellis_stream(&b, h.groups);
        const trellis_rice gaps = trellis_stream(&b, TRELLIS_ALL);
        if (gaps.left + (uint64_t)h.groups < h.terms * pairs) b.bad = 1;
        trellis_stream(&b, h.groups - 1u);
        trellis_stream(&b, h.instances - h.groups);
        trellis_stream(&b, h.groups - 1u);
        trellis_stream(&b, TRELLIS_ALL);
        trellis_stream(&b, h.instances - h.groups);
        sum.groups += h.groups;
        sum.instances += h.instances;
        sum.terms += h.terms * pairs;
        sum.weights += h.kind == TRELLIS_MAX ? 0 : h.terms;
    }
    *bad = b.bad || sum.groups > UINT32_MAX / 8 || sum.instances > UINT32_MAX / 8
           || sum.terms > UINT32_MAX / 8 || sum.taps > UINT32_MAX / 16
           || sum.channels > UINT32_MAX / 16 || sum.sources > UINT32_MAX / 16;
    return sum;
}

static void *room(trellis_file *file, int slot, uint64_t count, size_t size) {
    file->memory[slot] = calloc((size_t)(count ? count : 1), size);
    return file->memory[slot];
}

/* The codings of inputs or outputs, `units` in all. Returns how many there are. */
static uint32_t read_codings(trellis_bytes *b, uint32_t units, trellis_coding *to) {
    const uint32_t count = trellis_varint(b);
    uint64_t sum = 0;
    if (count == 0 || count > TRELLIS_MOST_CODINGS) b->bad = 1;
    for (uint32_t i = 0; i < count && !b->bad; i++) {
        to[i].units = trellis_varint(b);
        to[i].scale = trellis_float(trellis_u32(b));
        to[i].zero = (uint8_t)trellis_u8(b);
        sum += to[i].units;
        if (!is_finite(to[i].scale) || !(to[i].scale >= TRELLIS_LEAST_SCALE)) b->bad = 1;
    }
    if (sum != units) b->bad = 1;
    return count;
}

static const char *read_data(trellis_bytes b, uint32_t version, trellis_file *file) {
    trellis_tables *t = &file->tables;
    t->inputs = trellis_u32(&b);
    t->outputs = trellis_u32(&b);
    t->size = trellis_u32(&b);
    t->steps = trellis_u32(&b);
    const uint32_t values = trellis_u8(&b);
    if (b.bad || values >= VALUES) return "its tables have no head";
    if (t->size > TRELLIS_MOST_UNITS || t->inputs > t->size || t->outputs == 0
        || t->outputs > TRELLIS_MOST_UNITS || t->outputs > 8 * (uint64_t)b.left
        || t->steps > TRELLIS_MOST_STEPS || t->steps > b.left / (version > 1 ? 16 : STEP))
        return "it asks for more units than fit";
    trellis_whole *whole = &file->whole;
    if ((version == 3) != (values == VALUES_WHOLE)) return "its values are of no known kind";
    if (version == 3) {
        trellis_coding *in = room(file, 18, TRELLIS_MOST_CODINGS, sizeof *in);
        trellis_coding *out = room(file, 19, TRELLIS_MOST_CODINGS, sizeof *out);
        if (!in || !out) return "there is not enough memory";
        whole->inputs = read_codings(&b, t->inputs, in);
        whole->outputs = read_codings(&b, t->outputs, out);
        whole->input = in;
        whole->output = out;
        if (b.bad) return "its codings are not sound";
    }
    int bad = 0;
    const totals sum = measure(b, t->steps, values, version, &bad);
    if (bad) return "a table ends too early";
    building m = {0};
    m.step = room(file, 0, t->steps, sizeof *m.step);
    m.fan = room(file, 1, sum.groups, sizeof *m.fan);
    m.count = room(file, 2, sum.groups, sizeof *m.count);
    m.bias = room(file, 3, sum.groups, sizeof *m.bias);
    m.terms = room(file, 4, sum.terms, sizeof *m.terms);
    m.weights = room(file, 5, sum.weights, sizeof *m.weights);
    m.offsets = room(file, 6, sum.instances, sizeof *m.offsets);
    m.outs = room(file, 7, sum.instances, sizeof *m.outs);
    m.results = room(file, 8, t->outputs, sizeof *m.results);
    m.state = room(file, 9, t->size, 1);
    m.band = room(file, 10, sum.groups, sizeof *m.band);
    m.loop = room(file, 11, sum.loops, sizeof *m.loop);
    m.pairs = room(file, 12, 2 * sum.taps, sizeof *m.pairs);
    m.loop_fan = room(file, 13, sum.channels, sizeof *m.loop_fan);
    m.loop_sources = room(file, 14, sum.sources, sizeof *m.loop_sources);
    m.loop_extras = room(file, 15, 2 * sum.channels, sizeof *m.loop_extras);
    m.loop_bias = room(file, 16, sum.channels, sizeof *m.loop_bias);
    m.loop_scale = room(file, 17, sum.channels, sizeof *m.loop_scale);
    for (int i = 0; i < 18; i++)
        if (!file->memory[i]) return "there is not enough memory";
    if (version == 3) {
        m.rescale = room(file, 20, t->steps, sizeof *m.rescale);
        m.tables = room(file, 21, t->steps, 256);
        m.offset = room(file, 22, sum.groups, sizeof *m.offset);
        m.multiplier = room(file, 23, sum.groups, sizeof *m.multiplier);
        m.loop_offset = room(file, 24, sum.channels, sizeof *m.loop_offset);
        m.loop_multiplier = room(file, 25, sum.channels, sizeof *m.loop_multiplier);
        for (int i = 20; i < 26; i++)
            if (!file->memory[i]) return "there is not enough memory";
        whole->rescale = m.rescale;
        whole->offset = m.offset;
        whole->multiplier = m.multiplier;
        whole->loop_offset = m.loop_offset;
        whole->loop_multiplier = m.loop_multiplier;
    }
    memset(m.state, 1, t->inputs);
    for (uint32_t s = 0; s < t->steps; s++) {
        const int loop = is_loop(&b, version);
        if (loop) m.step[s].kind = TRELLIS_CONV; /* and no band */
        const char *why = loop ? read_loop(&b, values, t->inputs, t->size, &m)
                               : read_step(&b, values, t->inputs, t->size, &m, &m.step[s]);
        if (why) return why;
    }
    int64_t place = trellis_u32(&b);
    trellis_rice later = trellis_stream(&b, t->outputs - 1);
    for (uint32_t i = 0; i < t->outputs && !b.bad; i++) {
        if (i > 0) place += trellis_unzigzag(trellis_code(&later)) + 1;
        keep(&b, &m.results[i], place, t->size);
        if (!b.bad && m.state[m.results[i]] != 1u) b.bad = 1;
    }
    trellis_over(&later);
    if (b.bad || b.left) return "its outputs are not computed, or something follows them";
    t->step = m.step;
    t->band = m.band;
    t->bias = m.bias;
    t->terms = m.terms;
    t->weights = m.weights;
    t->offsets = m.offsets;
    t->outs = m.outs;
    t->results = m.results;
    const trellis_looped looped = {m.loops, m.loop, m.pairs, m.loop_fan, m.loop_sources,
                                   m.loop_extras, m.loop_bias, m.loop_scale};
    file->looped = looped;
    file->bands = m.bands;
    file->instances = m.instances;
    file->terms = m.terms_used;
    file->weights = m.weights_used;
    return NULL;
}

/* A fuzzer would hardly ever guess a checksum, and look at nothing behind it. */
static int same(uint32_t crc, const unsigned char *data, size_t length) {
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
    (void)crc, (void)data, (void)length;
    return 1;
#else
    return crc == trellis_crc(data, length);
#endif
}

const char *trellis_read(const unsigned char *data, size_t length, trellis_file *file) {
    memset(file, 0, sizeof *file);
    trellis_bytes b = {data, length, 0};
    const unsigned char *magic = trellis_take(&b, 8);
    if (!magic || memcmp(magic, "TRELLIS\n", 8) != 0) return "it does not begin as one";
    const uint32_t version = trellis_u32(&b);
    if (version < 1 || version > 3) return "it is of another version";
    if (trellis_u32(&b) != 2) return "it has another number of sections";
    const unsigned char *tags = trellis_take(&b, 24);
    if (!tags || !same(trellis_u32(&b), data, 40)) return "its header is damaged";
    const char *why = NULL;
    for (int s = 0; s < 2 && !why; s++) {
        trellis_bytes head = {tags + 12 * s + 4, 8, 0};
        const size_t size = trellis_u32(&head);
        const unsigned char *body = trellis_take(&b, size);
        if (memcmp(tags + 12 * s, s ? "DATA" : "META", 4) != 0 || !body) return "a section is cut";
        if (!same(trellis_u32(&head), body, size)) return "a section is damaged";
        if (s == 1) {
            if (b.left) return "something follows its end";
            trellis_bytes inner = {body, size, 0};
            why = read_data(inner, version, file);
        }
    }
    if (why) trellis_free(file);
    return why;
}

void trellis_free(trellis_file *file) {
    for (size_t i = 0; i < sizeof file->memory / sizeof *file->memory; i++) free(file->memory[i]);
    memset(file, 0, sizeof *file);
}
