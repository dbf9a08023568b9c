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

static inline trellis_real trellis_finish(const trellis_step *s, trellis_real v) {
    if (s->act == TRELLIS_NONE) return v;
#if TRELLIS_LANES > 1
    if (s->act == TRELLIS_RELU) return (trellis_real)((trellis_bits)v & (v > 0.0f));
#else
    if (s->act == TRELLIS_RELU) return trellis_relu(v);
#endif
    for (int l = 0; l < TRELLIS_LANES; l++)
        TRELLIS_LANE(v, l) = trellis_activate(s->act, s->a, s->b, TRELLIS_LANE(v, l));
    return v;
}

/* Four sums at once, so that no addition waits for the one before. */
static inline trellis_real trellis_sum(
    const trellis_index *terms, const trellis_value *weights, uint32_t fan, const trellis_real *x
) {
    if (fan == 1) return TRELLIS_WEIGHT(*weights) * x[*terms]; /* most rows of a pruned network */
    trellis_real a = {0}, b = {0}, c = {0}, d = {0};
    uint32_t t = 0;
    for (; t + 4 <= fan; t += 4) {
        a += TRELLIS_WEIGHT(weights[t]) * x[terms[t]];
        b += TRELLIS_WEIGHT(weights[t + 1]) * x[terms[t + 1]];
        c += TRELLIS_WEIGHT(weights[t + 2]) * x[terms[t + 2]];
        d += TRELLIS_WEIGHT(weights[t + 3]) * x[terms[t + 3]];
    }
    for (; t < fan; t++) a += TRELLIS_WEIGHT(weights[t]) * x[terms[t]];
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
    for (uint32_t t = 0; t < fan; t++) {
        const trellis_index i = terms[t];
        const float w = TRELLIS_WEIGHT(weights[t]);
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

static void trellis_evaluate(const trellis_tables *m, trellis_real *x) {
    const trellis_index *fans = m->fan, *counts = m->count, *terms = m->terms;
    const trellis_index *offsets = m->offsets, *outs = m->outs;
    const trellis_value *weights = m->weights;
    const float *biases = m->bias, *scales = m->scale;
    for (uint32_t i = 0; i < m->steps; i++) {
        const trellis_step step = m->step[i], *s = &step; /* a copy, which no x[...] can alias */
        for (uint32_t g = 0; g < s->groups; g++) {
            const uint32_t fan = *fans++, count = *counts++;
            const float bias = s->biased ? *biases++ : 0.0f;
            const float scale = s->scaled ? *scales++ : 1.0f;
            uint32_t n = 0;
            if (TRELLIS_LANES == 1 && s->kind == TRELLIS_SUM)
                for (; n + 4 <= count; n += 4) {
                    trellis_real v[4];
                    trellis_sums(terms, weights, fan, offsets + n, x, v);
                    for (int j = 0; j < 4; j++) {
                        v[j] = v[j] * scale + bias;
                        if (s->adds) v[j] += x[outs[n + (uint32_t)j]];
                        x[outs[n + (uint32_t)j]] = trellis_finish(s, v[j]);
                    }
                }
            for (; n < count; n++) {
                trellis_real v;
                if (s->kind == TRELLIS_SUM)
                    v = trellis_sum(terms, weights, fan, x + offsets[n]) * scale + bias;
                else if (s->kind == TRELLIS_MAX)
                    v = trellis_max(terms, fan, x + offsets[n]);
                else
                    v = trellis_dot(terms, weights, fan, offsets[n], x) * scale + bias;
                if (s->adds) v += x[outs[n]];
                x[outs[n]] = trellis_finish(s, v);
            }
            terms += s->kind == TRELLIS_DOT ? 2 * fan : fan;
            weights += s->kind == TRELLIS_MAX ? 0 : fan;
            offsets += count;
            outs += count;
        }
    }
}
