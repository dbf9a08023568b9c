/* Sums: what nearly all work is. Include after tables.h, activation.h, real.h and fours.h.
 * Generated and run-time code of Trellis may be used under any licence.
 *
 * A band is of groups with one fan and one count. Each kind of band has a loop of its own, apart
 * from the others and so short that everything stays in registers. Tables are walked by pointers:
 * WebAssembly has addresses with a fixed distance, and none with an index.
 */
#ifdef __GNUC__
#define TRELLIS_APART __attribute__((noinline))
#else
#define TRELLIS_APART
#endif

/* Where in the tables a band begins. */
typedef struct {
    const trellis_index *terms, *offsets, *outs;
    const trellis_value *weights;
    const float *bias, *scale; /* NULL where a step has none */
} trellis_cursor;

/* Several sums at once, so that no addition waits for the one before. */
static inline trellis_real trellis_sum(
    const trellis_index *terms, const trellis_value *weights, uint32_t fan, const trellis_real *x
) {
#if TRELLIS_FOURS
    trellis_four a = {0}, b = {0};
    float rest = 0.0f;
    for (; fan >= 8; fan -= 8, terms += 8, weights += 8) {
        a += trellis_four_weights(weights) * trellis_four_at(x, terms);
        b += trellis_four_weights(weights + 4) * trellis_four_at(x, terms + 4);
    }
    if (fan & 4) {
        a += trellis_four_weights(weights) * trellis_four_at(x, terms);
        terms += 4;
        weights += 4;
    }
    if (fan & 2) {
        rest = TRELLIS_WEIGHT(weights[0]) * x[terms[0]] + TRELLIS_WEIGHT(weights[1]) * x[terms[1]];
        terms += 2;
        weights += 2;
    }
    if (fan & 1) rest += TRELLIS_WEIGHT(*weights) * x[*terms];
    a += b;
    return ((a[0] + a[2]) + (a[1] + a[3])) + rest;
#else
    trellis_real a = {0}, b = {0}, c = {0}, d = {0};
    for (; fan >= 4; fan -= 4, terms += 4, weights += 4) {
        a += TRELLIS_WEIGHT(weights[0]) * x[terms[0]];
        b += TRELLIS_WEIGHT(weights[1]) * x[terms[1]];
        c += TRELLIS_WEIGHT(weights[2]) * x[terms[2]];
        d += TRELLIS_WEIGHT(weights[3]) * x[terms[3]];
    }
    for (; fan; fan--) a += TRELLIS_WEIGHT(*weights++) * x[*terms++];
    return (a + b) + (c + d);
#endif
}

/* One term, one instance: most rows of a pruned network. The first term of a group is 0. */
static TRELLIS_APART void trellis_singles(
    uint32_t groups, const trellis_cursor *at, trellis_real *x, int adds, int clips
) {
    const trellis_index *offsets = at->offsets, *outs = at->outs;
    const trellis_value *weights = at->weights;
    const float *bias = at->bias, *scale = at->scale;
#if TRELLIS_FOURS
    for (; groups >= 4; groups -= 4, weights += 4, offsets += 4, outs += 4) {
        trellis_four v = trellis_four_weights(weights) * trellis_four_at(x, offsets);
        if (scale) {
            v *= trellis_four_from(scale);
            scale += 4;
        }
        if (bias) {
            v += trellis_four_from(bias);
            bias += 4;
        }
        trellis_four_put(v, x, outs, adds, clips);
    }
#endif
    for (; groups; groups--) {
        trellis_real v = TRELLIS_WEIGHT(*weights++) * x[*offsets++];
        if (scale) v *= *scale++;
        if (bias) v += *bias++;
        trellis_put(v, x + *outs++, adds, clips);
    }
}

/* One term, several instances. */
static inline void trellis_copied(
    uint32_t groups, uint32_t count, const trellis_cursor *at, trellis_real *x, int adds, int clips
) {
    const trellis_index *offsets = at->offsets, *outs = at->outs;
    for (uint32_t g = 0; g < groups; g++) {
        const float w = TRELLIS_WEIGHT(at->weights[g]) * (at->scale ? at->scale[g] : 1.0f);
        const float bias = at->bias ? at->bias[g] : 0.0f;
        uint32_t n = count;
#if TRELLIS_FOURS
        const trellis_four w4 = trellis_four_of(w), bias4 = trellis_four_of(bias);
        for (; n >= 4; n -= 4, offsets += 4, outs += 4)
            trellis_four_put(w4 * trellis_four_at(x, offsets) + bias4, x, outs, adds, clips);
#endif
        for (; n; n--) trellis_put(w * x[*offsets++] + bias, x + *outs++, adds, clips);
    }
}

/* Whether to clip is settled here, and asked no more in the loop. */
static TRELLIS_APART void trellis_copies(
    uint32_t groups, uint32_t count, const trellis_cursor *at, trellis_real *x, int adds, int clips
) {
    if (clips) trellis_copied(groups, count, at, x, adds, 1);
    else trellis_copied(groups, count, at, x, adds, 0);
}

/* Two terms, any number of instances. */
static TRELLIS_APART void trellis_pairs(
    uint32_t groups, uint32_t count, const trellis_cursor *at, trellis_real *x, int adds, int clips
) {
    const trellis_index *terms = at->terms, *offsets = at->offsets, *outs = at->outs;
    const trellis_value *weights = at->weights;
    for (uint32_t g = 0; g < groups; g++, terms += 2, weights += 2) {
        const float scale = at->scale ? at->scale[g] : 1.0f, bias = at->bias ? at->bias[g] : 0.0f;
        const float v = TRELLIS_WEIGHT(weights[0]) * scale, w = TRELLIS_WEIGHT(weights[1]) * scale;
        const trellis_real *other = x + terms[1];
        for (uint32_t n = count; n; n--, offsets++)
            trellis_put(v * x[*offsets] + w * other[*offsets] + bias, x + *outs++, adds, clips);
    }
}

/* Four instances of a group at once: each address and weight is fetched for all of them. With
 * lanes that is no gain: numbers are fetched by the line then. */
#if TRELLIS_LANES == 1
static inline void trellis_four_rows(
    const trellis_index *terms, const trellis_value *weights, uint32_t fan, float scale, float bias,
    const trellis_index *offsets, const trellis_index *outs, float *x, int adds, int clips
) {
    const float *p = x + offsets[0], *q = x + offsets[1], *r = x + offsets[2], *s = x + offsets[3];
#if TRELLIS_FOURS
    trellis_four sum = {0};
    for (; fan; fan--) {
        const trellis_index i = *terms++;
        const trellis_four v = {p[i], q[i], r[i], s[i]};
        sum += trellis_four_of(TRELLIS_WEIGHT(*weights++)) * v;
    }
    trellis_four_put(sum * trellis_four_of(scale) + trellis_four_of(bias), x, outs, adds, clips);
#else
    float a = 0.0f, b = 0.0f, c = 0.0f, d = 0.0f;
    for (; fan; fan--) {
        const trellis_index i = *terms++;
        const float w = TRELLIS_WEIGHT(*weights++);
        a += w * p[i];
        b += w * q[i];
        c += w * r[i];
        d += w * s[i];
    }
    trellis_put(a * scale + bias, x + outs[0], adds, clips);
    trellis_put(b * scale + bias, x + outs[1], adds, clips);
    trellis_put(c * scale + bias, x + outs[2], adds, clips);
    trellis_put(d * scale + bias, x + outs[3], adds, clips);
#endif
}
#endif

/* Any number of terms and instances. */
static TRELLIS_APART void trellis_rows(
    const trellis_band *band, const trellis_cursor *at, trellis_real *x, int adds, int clips
) {
    const trellis_index *terms = at->terms, *offsets = at->offsets, *outs = at->outs;
    const trellis_value *weights = at->weights;
    const uint32_t fan = band->fan, groups = band->groups;
    for (uint32_t g = 0; g < groups; g++, terms += fan, weights += fan) {
        const float scale = at->scale ? at->scale[g] : 1.0f, bias = at->bias ? at->bias[g] : 0.0f;
        uint32_t n = band->count;
#if TRELLIS_LANES == 1
        for (; n >= 4; n -= 4, offsets += 4, outs += 4)
            trellis_four_rows(terms, weights, fan, scale, bias, offsets, outs, x, adds, clips);
#endif
        for (; n; n--) {
            const trellis_real v = trellis_sum(terms, weights, fan, x + *offsets++);
            trellis_put(v * scale + bias, x + *outs++, adds, clips);
        }
    }
}

static void trellis_sums(
    const trellis_band *band, const trellis_cursor *at, trellis_real *x, int adds, int clips
) {
    const uint32_t fan = band->fan, count = band->count, groups = band->groups;
    if (fan == 1 && count == 1) trellis_singles(groups, at, x, adds, clips);
    else if (fan == 1) trellis_copies(groups, count, at, x, adds, clips);
    else if (fan == 2) trellis_pairs(groups, count, at, x, adds, clips);
    else trellis_rows(band, at, x, adds, clips);
}
