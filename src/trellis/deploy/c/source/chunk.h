/* A recording of a moving skeleton as the input of a network.
 * Generated and run-time code of Trellis may be used under any licence.
 *
 * All in single precision, which small processors compute themselves. So that a hundred thousand
 * frames far from the origin are averaged as well as in double precision, a mean is taken of the
 * distances from its first place, and what a sum loses by rounding is carried along (Kahan).
 */
#ifndef TRELLIS_CHUNK_H
#define TRELLIS_CHUNK_H

#include <stddef.h>

#ifdef __FAST_MATH__
#error "-ffast-math takes what is carried along for zero: compile this file without it"
#endif

typedef struct {
    float first[3], sum[3], lost[3];
} trellis_total;

static inline trellis_total trellis_from(const float place[3]) {
    const trellis_total from = {{place[0], place[1], place[2]}, {0.0f}, {0.0f}};
    return from;
}

/* Add `count` places, x y z, each `stride` numbers after the one before. */
static inline void trellis_add(
    trellis_total *total, const float *places, size_t count, size_t stride) {
    const float x = total->first[0], y = total->first[1], z = total->first[2];
    float a = total->sum[0], b = total->sum[1], c = total->sum[2];
    float d = total->lost[0], e = total->lost[1], f = total->lost[2];
    for (size_t t = 0; t < count; t++, places += stride) {
        const float p = places[0] - x - d, q = places[1] - y - e, r = places[2] - z - f;
        const float u = a + p, v = b + q, w = c + r;
        d = u - a - p;
        e = v - b - q;
        f = w - c - r;
        a = u;
        b = v;
        c = w;
    }
    total->sum[0] = a;
    total->sum[1] = b;
    total->sum[2] = c;
    total->lost[0] = d;
    total->lost[1] = e;
    total->lost[2] = f;
}

static inline void trellis_mean(const trellis_total *total, size_t count, float mean[3]) {
    mean[0] = total->first[0] + total->sum[0] / (float)count;
    mean[1] = total->first[1] + total->sum[1] / (float)count;
    mean[2] = total->first[2] + total->sum[2] / (float)count;
}

/* Frame t of `frames` belongs to chunk floor(t * chunks / frames), and a chunk is the mean of its
 * frames; one that has none is interpolated at its centre. frames * joints * 3 numbers in,
 * joints * chunks * 3 out. Returns 0, or -1 where there is nothing to chunk.
 */
static int trellis_chunk(
    const float *recording, size_t frames, size_t joints, size_t chunks, float *input) {
    const size_t width = joints * 3;
    if (frames == 0 || chunks == 0 || chunks > (size_t)-1 / 4) return -1;
    if (frames > (size_t)-1 / (2 * chunks + 1)) return -1;
    for (size_t m = 0; m < chunks; m++) {
        /* A chunk's first frame is the smallest t with t * chunks / frames >= m. */
        const size_t start = (m * frames + chunks - 1) / chunks;
        const size_t stop = ((m + 1) * frames + chunks - 1) / chunks;
        float *to = input + m * 3;
        if (start < stop) {
            const float *from = recording + start * width;
            for (size_t j = 0; j < joints; j++, from += 3, to += chunks * 3) {
                trellis_total total = trellis_from(from);
                trellis_add(&total, from + width, stop - start - 1, width); /* the first is 0 */
                trellis_mean(&total, stop - start, to);
            }
        } else {
            /* Its centre is frame (m + 1/2) * frames / chunks. */
            const size_t centre = (2 * m + 1) * frames, before = centre / (2 * chunks);
            const float weight = (float)(centre % (2 * chunks)) / (float)(2 * chunks);
            const float *from = recording + before * width;
            const size_t next = before + 1 < frames ? width : 0;
            for (size_t j = 0; j < joints; j++, from += 3, to += chunks * 3)
                for (size_t i = 0; i < 3; i++)
                    to[i] = from[i] + weight * (from[next + i] - from[i]);
        }
    }
    return 0;
}

/* Move the mean position of the roots, over time, to the origin, and divide by scale. */
static void trellis_normalise(
    float *input, size_t joints, size_t chunks, const unsigned *roots, size_t count, float scale) {
    float origin[3] = {0.0f, 0.0f, 0.0f};
    if (count) {
        trellis_total total = trellis_from(input + roots[0] * chunks * 3);
        for (size_t r = 0; r < count; r++)
            trellis_add(&total, input + roots[r] * chunks * 3, chunks, 3);
        trellis_mean(&total, count * chunks, origin);
    }
    for (size_t i = 0; i < joints * chunks; i++, input += 3) {
        input[0] = (input[0] - origin[0]) / scale;
        input[1] = (input[1] - origin[1]) / scale;
        input[2] = (input[2] - origin[2]) / scale;
    }
}

#endif
