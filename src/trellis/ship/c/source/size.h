/* Recordings of skeletons that are all of one size.
 * Generated and run-time code of Trellis may be used under any licence.
 */
#ifndef TRELLIS_SIZE_H
#define TRELLIS_SIZE_H

#include <math.h>
#include <stddef.h>

/* Divide a centred recording by the mean length, over time, of its bones (`count` pairs of joints),
 * and by scale. Where bones have no length, by scale alone. normalisation.py in Python has the same
 * rule. What the sum loses by rounding is carried along, as in chunk.h.
 */
static void trellis_size(
    float *input, size_t joints, size_t chunks, const unsigned *bones, size_t count, float scale) {
    float sum = 0.0f, lost = 0.0f;
    for (size_t b = 0; b < count; b++) {
        const float *one = input + bones[2 * b] * chunks * 3;
        const float *other = input + bones[2 * b + 1] * chunks * 3;
        for (size_t m = 0; m < chunks; m++, one += 3, other += 3) {
            const float x = one[0] - other[0], y = one[1] - other[1], z = one[2] - other[2];
            const float length = sqrtf(x * x + y * y + z * z) - lost, more = sum + length;
            lost = more - sum - length;
            sum = more;
        }
    }
    const float mean = sum / (float)(count * chunks);
    const float divisor = mean > 1e-9f ? mean * scale : scale;
    for (size_t i = 0; i < joints * chunks * 3; i++) input[i] /= divisor;
}

#endif
