/* A recording of a person in the frame of the body.
 * Generated and run-time code of Trellis may be used under any licence.
 */
#ifndef TRELLIS_TURN_H
#define TRELLIS_TURN_H

#include <float.h>
#include <math.h>
#include <stddef.h>

/* From where a joint is, over time, to where another is. */
static void trellis_between(
    const float *input, size_t chunks, unsigned from, unsigned to, float *vector) {
    float ends[2][3];
    const unsigned joints[2] = {from, to};
    for (size_t e = 0; e < 2; e++) {
        const float *places = input + joints[e] * chunks * 3;
        trellis_total total = trellis_from(places);
        trellis_add(&total, places + 3, chunks - 1, 3);
        trellis_mean(&total, chunks, ends[e]);
    }
    for (size_t i = 0; i < 3; i++) vector[i] = ends[1][i] - ends[0][i];
}

static float trellis_along(const float *a, const float *b) {
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

/* Turn a normalised recording, so that the average body stands upright and faces the same way: y is
 * from joint body[0] up to body[1], x from body[2] across to body[3]. Where one of the two is next
 * to nothing beside the other, or both point the same way, what is left of it is rounding: then the
 * recording stays as it is. normalisation.py in Python has the same rule.
 */
static void trellis_turn(float *input, size_t joints, size_t chunks, const unsigned *body) {
    float y[3], x[3];
    trellis_between(input, chunks, body[0], body[1], y);
    trellis_between(input, chunks, body[2], body[3], x);
    const float height = sqrtf(trellis_along(y, y)), span = sqrtf(trellis_along(x, x));
    if (!(height <= FLT_MAX && span <= FLT_MAX)) input[0] = NAN; /* trellis_run refuses it */
    const float least = 1e-4f * (height > span ? height : span);
    if (!(height > least)) return;
    for (size_t i = 0; i < 3; i++) y[i] /= height;
    const float slope = trellis_along(x, y);
    for (size_t i = 0; i < 3; i++) x[i] -= slope * y[i];
    const float width = sqrtf(trellis_along(x, x));
    if (!(width > least)) return;
    for (size_t i = 0; i < 3; i++) x[i] /= width;
    const float z[3] = {
        x[1] * y[2] - x[2] * y[1], x[2] * y[0] - x[0] * y[2], x[0] * y[1] - x[1] * y[0]};
    for (size_t i = 0; i < joints * chunks; i++, input += 3) {
        const float place[3] = {input[0], input[1], input[2]};
        input[0] = trellis_along(x, place);
        input[1] = trellis_along(y, place);
        input[2] = trellis_along(z, place);
    }
}

#endif
