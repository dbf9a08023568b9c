/* A recording of a moving skeleton as the input of a network.
 * Generated and run-time code of Trellis may be used under any licence.
 */
#ifndef TRELLIS_CHUNK_H
#define TRELLIS_CHUNK_H

#include <stddef.h>

/* Frame t of `frames` belongs to chunk floor(t * chunks / frames), and a chunk is the mean of its
 * frames; one that has none is interpolated at its centre. frames * joints * 3 numbers in,
 * joints * chunks * 3 out. Returns 0, or -1 where there is nothing to chunk.
 */
static int trellis_chunk(
    const float *recording, size_t frames, size_t joints, size_t chunks, float *input) {
    const size_t width = joints * 3;
    if (frames == 0 || chunks == 0 || frames > (size_t)-1 / (chunks + 1)) return -1;
    for (size_t m = 0; m < chunks; m++) {
        /* A chunk's first frame is the smallest t with t * chunks / frames >= m. */
        const size_t start = (m * frames + chunks - 1) / chunks;
        const size_t stop = ((m + 1) * frames + chunks - 1) / chunks;
        size_t before = frames - 1, after = frames - 1;
        double weight = 0.0;
        if (start >= stop) {
            double centre = ((double)m + 0.5) * (double)frames / (double)chunks;
            if (centre > (double)(frames - 1)) centre = (double)(frames - 1);
            before = (size_t)centre;
            after = before + 1 < frames ? before + 1 : frames - 1;
            weight = centre - (double)before;
        }
        for (size_t i = 0; i < width; i++) {
            double value = 0.0;
            if (start < stop) {
                for (size_t t = start; t < stop; t++) value += (double)recording[t * width + i];
                value /= (double)(stop - start);
            } else {
                value = (1.0 - weight) * (double)recording[before * width + i]
                        + weight * (double)recording[after * width + i];
            }
            input[(i / 3) * chunks * 3 + m * 3 + i % 3] = (float)value;
        }
    }
    return 0;
}

/* Move the mean position of the roots, over time, to the origin, and divide by scale. */
static void trellis_normalise(
    float *input, size_t joints, size_t chunks, const unsigned *roots, size_t count, float scale) {
    double centre[3] = {0.0, 0.0, 0.0};
    for (size_t r = 0; r < count; r++)
        for (size_t i = 0; i < chunks * 3; i++)
            centre[i % 3] += (double)input[roots[r] * chunks * 3 + i];
    for (size_t i = 0; i < joints * chunks * 3; i++) {
        const float origin =
            count ? (float)(centre[i % 3] / (double)(count * chunks)) : 0.0f;
        input[i] = (input[i] - origin) / scale;
    }
}

#endif
