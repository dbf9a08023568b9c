/* Recordings of skeletons whose every frame is placed relative to its own root joints.
 * Generated and run-time code of Trellis may be used under any licence.
 */
#ifndef TRELLIS_FOLLOW_H
#define TRELLIS_FOLLOW_H

#include <stddef.h>

/* Move the mean position of the roots, `count` of them, to the origin in every chunk. This comes
 * before trellis_normalise, which then finds the roots at the origin. A chunk is a mean of frames,
 * so this equals moving every frame.
 */
static void trellis_follow(
    float *input, size_t joints, size_t chunks, const unsigned *roots, size_t count) {
    if (!count) return;
    for (size_t m = 0; m < chunks; m++, input += 3) {
        float origin[3];
        trellis_total total = trellis_from(input + roots[0] * chunks * 3);
        for (size_t r = 1; r < count; r++)
            trellis_add(&total, input + roots[r] * chunks * 3, 1, 3);
        trellis_mean(&total, count, origin);
        for (size_t j = 0; j < joints; j++)
            for (size_t i = 0; i < 3; i++) input[j * chunks * 3 + i] -= origin[i];
    }
}

#endif
