/* The kernel: tables in, activations out. Include after tables.h and activation.h.
 * Generated and run-time code of Trellis may be used under any licence.
 *
 * With TRELLIS_LANES above 1 every unit is that many numbers, one for each sample, side by side.
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

/* Four sums at once, so that no addition waits for the one before. Tables are walked by pointers:
 * WebAssembly has addresses with a fixed distance, and none with an index. */
static inline trellis_real trellis_sum(
    const trellis_index *terms, const trellis_value *weights, uint32_t fan, const trellis_real *x
) {
    trellis_real a = {0}, b = {0}, c = {0}, d = {0};
    const trellis_value *const fours = weights + (fan & ~3u), *const end = weights + fan;
    for (; weights != fours; terms += 4, weights += 4) {
        a += TRELLIS_WEIGHT(weights[0]) * x[terms[0]];
        b += TRELLIS_WEIGHT(weights[1]) * x[terms[1]];
        c += TRELLIS_WEIGHT(weights[2]) * x[terms[2]];
        d += TRELLIS_WEIGHT(weights[3]) * x[terms[3]];
    }
    while (weights != end) a += TRELLIS_WEIGHT(*weights++) * x[*terms++];
    return (a + b) + (c + d);
}

static inline trellis_real trellis_max(
    const trellis_index *terms, uint32_t fan, const trellis_real *x
) {
    trellis_real m = x[terms[0]];
    for (uint32_t t = 1; t < fan; t++) {
        trellis_real v = x[terms[t]];
        for (int l = 0; l < TRELLIS_LANES; l++)
            TRELLIS_LANE(m, l) =
                TRELLIS_LANE(v, l) > TRELLIS_LANE(m, l) ? TRELLIS_LANE(v, l) : TRELLIS_LANE(m, l);
    }
    return m;
}

/* Addresses are taken modulo the index type: of a dot, `others` may lie below its first term. */
static inline trellis_real trellis_dot(
    const trellis_index *terms, const trellis_value *weights, uint32_t fan, trellis_index offset,
    const trellis_real *x
) {
    trellis_real a = {0};
    for (uint32_t t = 0; t < fan; t++)
        a += TRELLIS_WEIGHT(weights[t]) * x[(trellis_index)(terms[2 * t] + offset)]
             * x[(trellis_index)(terms[2 * t + 1] + offset)];
    return a;
}

/* Four instances of a group at once: each address and weight is fetched for all of them. With
 * lanes that is no gain: numbers are fetched by the line then. */
static inline void trellis_sums(
    const trellis_index *terms, const trellis_value *weights, uint32_t fan,
    const trellis_index *offsets, const trellis_real *x, trellis_real sums[4]
) {
    const trellis_real *p = x + offsets[0], *q = x + offsets[1];
    const trellis_real *r = x + offsets[2], *s = x + offsets[3];
    trellis_real a = {0}, b = {0}, c = {0}, d = {0};
    for (; fan; fan--) {
        const trellis_index i = *terms++;
        const float w = TRELLIS_WEIGHT(*weights++);
        a += w * p[i];
        b += w * q[i];
        c += w * r[i];
        d += w * s[i];
    }
    sums[0] = a;
    sums[1] = b;
    sums[2] = c;
    sums[3] = d;
}

/* Where in the tables a step begins. */
typedef struct {
    const trellis_index *fan, *count, *terms, *offsets, *outs;
    const trellis_value *weights;
    const float *bias, *scale;
} trellis_cursor;

/* What nearly all work is: kept so short that everything stays in registers. */
static void trellis_run_sums(const trellis_step *s, trellis_cursor *at, trellis_real *x) {
    const trellis_index *terms = at->terms, *offsets = at->offsets, *outs = at->outs;
    const trellis_value *weights = at->weights;
    const uint32_t groups = s->groups;
    const int biased = s->biased, scaled = s->scaled, adds = s->adds, clips = s->act == TRELLIS_RELU;
    for (uint32_t g = 0; g < groups; g++) {
        const uint32_t fan = at->fan[g], count = at->count[g];
        const float bias = biased ? at->bias[g] : 0.0f, scale = scaled ? at->scale[g] : 1.0f;
        uint32_t n = count;
        if (fan == 1) { /* most rows of a pruned network */
            const float w = TRELLIS_WEIGHT(*weights);
            const trellis_real *from = x + *terms;
            for (; n; n--, offsets++, outs++) {
                trellis_real v = w * from[*offsets] * scale + bias;
                if (adds) v += x[*outs];
                x[*outs] = clips ? trellis_clipped(v) : v;
            }
        }
#if TRELLIS_LANES == 1
        for (; n >= 4; n -= 4, offsets += 4, outs += 4) {
            trellis_real v[4];
            trellis_sums(terms, weights, fan, offsets, x, v);
            for (int j = 0; j < 4; j++) {
                v[j] = v[j] * scale + bias;
                if (adds) v[j] += x[outs[j]];
                x[outs[j]] = clips ? trellis_clipped(v[j]) : v[j];
            }
        }
#endif
        for (; n; n--, offsets++, outs++) {
            trellis_real v = trellis_sum(terms, weights, fan, x + *offsets) * scale + bias;
            if (adds) v += x[*outs];
            x[*outs] = clips ? trellis_clipped(v) : v;
        }
        terms += fan;
        weights += fan;
    }
    at->terms = terms;
    at->weights = weights;
    at->offsets = offsets;
    at->outs = outs;
}

static void trellis_run_others(const trellis_step *s, trellis_cursor *at, trellis_real *x) {
    for (uint32_t g = 0; g < s->groups; g++) {
        const uint32_t fan = at->fan[g], count = at->count[g];
        const float bias = s->biased ? at->bias[g] : 0.0f, scale = s->scaled ? at->scale[g] : 1.0f;
        for (uint32_t n = 0; n < count; n++) {
            const trellis_index out = at->outs[n], offset = at->offsets[n];
            trellis_real v;
            if (s->kind == TRELLIS_MAX) v = trellis_max(at->terms, fan, x + offset);
            else v = trellis_dot(at->terms, at->weights, fan, offset, x) * scale + bias;
            if (s->adds) v += x[out];
            x[out] = s->act == TRELLIS_RELU ? trellis_clipped(v) : v;
        }
        at->terms += s->kind == TRELLIS_DOT ? 2 * fan : fan;
        at->weights += s->kind == TRELLIS_DOT ? fan : 0;
        at->offsets += count;
        at->outs += count;
    }
}

/* Any activation but ReLU, of what the step has computed. */
static void trellis_finish(
    const trellis_step *s, const trellis_index *outs, const trellis_index *end, trellis_real *x
) {
    for (; outs < end; outs++) {
        trellis_real v = x[*outs];
        for (int l = 0; l < TRELLIS_LANES; l++)
            TRELLIS_LANE(v, l) = trellis_activate(s->act, s->a, s->b, TRELLIS_LANE(v, l));
        x[*outs] = v;
    }
}

static void trellis_evaluate(const trellis_tables *m, trellis_real *x) {
    trellis_cursor at = {
        m->fan, m->count, m->terms, m->offsets, m->outs, m->weights, m->bias, m->scale};
    for (uint32_t i = 0; i < m->steps; i++) {
        const trellis_step step = m->step[i]; /* a copy, which no x[...] can alias */
        const trellis_index *outs = at.outs;
        if (step.kind == TRELLIS_SUM) trellis_run_sums(&step, &at, x);
        else trellis_run_others(&step, &at, x);
        if (step.act > TRELLIS_RELU) trellis_finish(&step, outs, at.outs, x);
        at.fan += step.groups;
        at.count += step.groups;
        if (step.biased) at.bias += step.groups;
        if (step.scaled) at.scale += step.groups;
    }
}
