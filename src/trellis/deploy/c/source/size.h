/* Recordings of skeletons that are all of one size.
 * Generated and run-time code of Trellis may be used under any licence.
 */
#ifndef TRELLIS_SIZE_H
#define TRELLIS_SIZE_H

#include <float.h>
#include <math.h>
#include <stddef.h>

/* Bring a normalised recording to the size in which its bones, `count` pairs of joints, are `length`
 * long on average, over time. Bones shorter than a twentieth of that were lost by their sensor: such
 * a recording stays as it is. normalisation.py in Python has the same rule. What the sum loses by
 * rounding is carried along, as in chunk.h. Lengths beyond all numbers leave one that is none, which
 * trellis_run refuses.
 */
static void trellis_size(
    float *input, size_t joints, size_t chunks, const unsigned *bones, size_t count, float length) {
    float sum = 0.0f, lost = 0.0f;
    for (size_t b = 0; b < count; b++) {
        const float *one = input + bones[2 * b] * chunks * 3;
        const float *other = input + bones[2 * b + 1] * chunks * 3;
        for (size_t m = 0; m < chunks; m++, one += 3, other += 3) {
            const float x = one[0] - other[0], y = one[1] - other[1], z = one[2] - other[2];
            const float each = sqrtf(x * x + y * y + z * z) - lost, more = sum + each;
            lost = more - sum - each;
            sum = more;
        }
    }
    const float mean = sum / (float)(count * chunks);
    if (!(mean <= FLT_MAX)) input[0] = NAN;
    if (!(mean > 0.05f * length)) return;
    const float factor = length / mean;
    for (size_t i = 0; i < joints * chunks * 3; i++) input[i] *= factor;
}

#endif
