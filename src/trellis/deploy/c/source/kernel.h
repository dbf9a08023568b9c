/* The kernel: tables in, activations out. Include after tables.h, activation.h, real.h and sums.h.
 * Generated and run-time code of Trellis may be used under any licence.
 */
#ifndef TRELLIS_NO_MAXIMA
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

static void trellis_maxima(
    const trellis_band *band, const trellis_cursor *at, trellis_real *x, int clips
) {
    const trellis_index *terms = at->terms, *offsets = at->offsets, *outs = at->outs;
    for (uint32_t g = 0; g < band->groups; g++, terms += band->fan)
        for (uint32_t n = 0; n < band->count; n++)
            trellis_put(trellis_max(terms, band->fan, x + *offsets++), x + *outs++, 0, clips);
}
#endif

#ifndef TRELLIS_NO_DOTS
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

static void trellis_dots(
    const trellis_band *band, const trellis_cursor *at, trellis_real *x, int adds, int clips
) {
    const trellis_index *terms = at->terms, *offsets = at->offsets, *outs = at->outs;
    const trellis_value *weights = at->weights;
    for (uint32_t g = 0; g < band->groups; g++, terms += 2 * band->fan, weights += band->fan) {
        const float scale = at->scale ? at->scale[g] : 1.0f, bias = at->bias ? at->bias[g] : 0.0f;
        for (uint32_t n = 0; n < band->count; n++) {
            const trellis_real v = trellis_dot(terms, weights, band->fan, *offsets++, x);
            trellis_put(v * scale + bias, x + *outs++, adds, clips);
        }
    }
}
#endif

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
    trellis_cursor at = {m->terms, m->offsets, m->outs, m->weights, NULL, NULL};
    const trellis_band *band = m->band;
    const float *bias = m->bias, *scale = m->scale;
#ifdef TRELLIS_LOOPS
    const trellis_loop *loop = m->loop;
    trellis_loop_cursor next = m->loops;
#endif
    for (uint32_t i = 0; i < m->steps; i++) {
        const trellis_step step = m->step[i]; /* a copy, which no x[...] can alias */
        const trellis_index *outs = at.outs;
#ifdef TRELLIS_LOOPS
        if (step.kind == TRELLIS_CONV) { /* whichever kind the loop is of */
            trellis_loop_run(loop++, &next, x, x + m->size + TRELLIS_SLACK);
            continue;
        }
#endif
        const int adds = step.adds, clips = step.act == TRELLIS_RELU;
        for (uint32_t b = 0; b < step.bands; b++, band++) {
            const uint32_t terms = (uint32_t)band->groups * band->fan;
            at.bias = step.biased ? bias : NULL;
            at.scale = step.scaled ? scale : NULL;
            if (step.kind == TRELLIS_SUM) trellis_sums(band, &at, x, adds, clips);
#ifndef TRELLIS_NO_MAXIMA
            else if (step.kind == TRELLIS_MAX) trellis_maxima(band, &at, x, clips);
#endif
#ifndef TRELLIS_NO_DOTS
            else if (step.kind == TRELLIS_DOT) trellis_dots(band, &at, x, adds, clips);
#endif
            at.terms += step.kind == TRELLIS_DOT ? 2 * terms : terms;
            at.weights += step.kind == TRELLIS_MAX ? 0 : terms;
            at.offsets += (uint32_t)band->groups * band->count;
            at.outs += (uint32_t)band->groups * band->count;
            if (step.biased) bias += band->groups; /* else there may be none: NULL stays */
            if (step.scaled) scale += band->groups;
        }
        if (step.act > TRELLIS_RELU) trellis_finish(&step, outs, at.outs, x);
    }
}
