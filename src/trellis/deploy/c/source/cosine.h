/* Motion as waves: each joint's places over the chunks become their cosine transform (DCT-II).
 * Generated and run-time code of Trellis may be used under any licence.
 */
#ifndef TRELLIS_COSINE_H
#define TRELLIS_COSINE_H

#include <stddef.h>

/* One level down: the sums of places that lie opposite each other in a block of n, and their
 * differences times 2 cos(pi (m + 1/2) / n), are two blocks of half the size. */
static void trellis_halved(
    const float *from, float *to, size_t chunks, size_t n, const float *factors
) {
    for (size_t b = 0; b < chunks; b += n) {
        const float *low = from + 3 * b, *high = low + 3 * (n - 1);
        float *sums = to + 3 * b, *differences = sums + 3 * (n / 2);
        for (size_t m = 0; m < n / 2; m++) {
            const float factor = factors[m];
            const float x = low[0], y = low[1], z = low[2];
            const float u = high[0], v = high[1], w = high[2];
            sums[0] = x + u;
            sums[1] = y + v;
            sums[2] = z + w;
            differences[0] = (x - u) * factor;
            differences[1] = (y - v) * factor;
            differences[2] = (z - w) * factor;
            low += 3;
            high -= 3;
            sums += 3;
            differences += 3;
        }
    }
}

/* One level up: the transform of the sums is every other coefficient; that of the differences is
 * the sum of the two coefficients beside it, the first of all being half of the first sum. */
static void trellis_doubled(const float *from, float *to, size_t chunks, size_t n) {
    for (size_t b = 0; b < chunks; b += n) {
        const float *even = from + 3 * b, *odd = even + 3 * (n / 2);
        float x = 0.5f * odd[0], y = 0.5f * odd[1], z = 0.5f * odd[2];
        for (size_t k = 0; k < n / 2; k++) {
            x = odd[0] - x;
            y = odd[1] - y;
            z = odd[2] - z;
            to[0] = even[0];
            to[1] = even[1];
            to[2] = even[2];
            to[3] = x;
            to[4] = y;
            to[5] = z;
            even += 3;
            odd += 3;
            to += 6;
        }
    }
}

/* Blocks of four, in place. */
static void trellis_fours(float *x, size_t chunks) {
    const float c1 = 0.92387953f, c2 = 0.70710678f, c3 = 0.38268343f; /* cos(k pi / 8) */
    for (size_t b = 0; b < chunks; b += 4, x += 9)
        for (float *end = x + 3; x < end; x++) {
            const float p = x[0] + x[9], q = x[3] + x[6], r = x[0] - x[9], s = x[3] - x[6];
            x[0] = p + q;
            x[3] = c1 * r + c3 * s;
            x[6] = c2 * (p - q);
            x[9] = c3 * r - c1 * s;
        }
}

/* Blocks of an odd size n, by the definition; wheel[i] is cos(pi i / (2 n)), once around. Summed
 * eight by eight: one after the other, many of them lose more by rounding. */
static void trellis_waves(
    const float *from, float *to, size_t chunks, size_t n, const float *wheel
) {
    for (size_t b = 0; b < chunks; b += n, from += 3 * n)
        for (size_t k = 0; k < n; k++, to += 3) {
            float x = 0.0f, y = 0.0f, z = 0.0f;
            size_t at = k;
            for (size_t m = 0, end; m < n;) {
                float u = 0.0f, v = 0.0f, w = 0.0f;
                for (end = n - m > 8 ? m + 8 : n; m < end; m++) {
                    u += wheel[at] * from[3 * m];
                    v += wheel[at] * from[3 * m + 1];
                    w += wheel[at] * from[3 * m + 2];
                    at += 2 * k;
                    if (at >= 4 * n) at -= 4 * n;
                }
                x += u;
                y += v;
                z += w;
            }
            to[0] = x;
            to[1] = y;
            to[2] = z;
        }
}

/* In place, joint by joint: x y z of each of `chunks` become x y z of each coefficient. `table`
 * has the factors of every level and then the wheel; `work` is 3 * chunks numbers of memory. All
 * coefficients lack the factor sqrt(2 / chunks), which belongs into the scale of the places.
 */
static void trellis_cosines(
    float *input, size_t joints, size_t chunks, const float *table, float *work
) {
    for (size_t j = 0; j < joints; j++, input += 3 * chunks) {
        const float *factors = table;
        float *from = input, *to = work, *swapped;
        size_t n = chunks;
        for (; n % 2 == 0 && n != 4; n /= 2) {
            trellis_halved(from, to, chunks, n, factors);
            factors += n / 2;
            swapped = from, from = to, to = swapped;
        }
        if (n == 4) {
            trellis_fours(from, chunks);
        } else if (n > 1) {
            trellis_waves(from, to, chunks, n, factors);
            swapped = from, from = to, to = swapped;
        }
        for (; n < chunks; n *= 2) {
            trellis_doubled(from, to, chunks, 2 * n);
            swapped = from, from = to, to = swapped;
        }
        if (from != input) /* the waves were one step more than there and back */
            for (size_t i = 0; i < 3 * chunks; i++) input[i] = from[i];
        for (int i = 0; i < 3; i++) input[i] *= 0.70710678f;
    }
}

#endif
