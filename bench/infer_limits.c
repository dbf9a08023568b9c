/* What this processor can do at best: `limits BYTES...`.
 *
 * Prints the nanoseconds of one multiply-add in float32, with every lane of every vector in use and
 * all numbers in registers. Then, for each count of bytes, the microseconds to read so many of them
 * again and again, from the nearest cache that holds them.
 */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif

typedef float vector __attribute__((vector_size(4 * LANES)));

enum { SUMS = 12, STEPS = 1000, READ = 4, ROUNDS = 2000 };

static double microseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e6 * (double)now.tv_sec + 1e-3 * (double)now.tv_nsec;
}

/* Twelve sums at once: none of them waits for the one before. */
static float multiplied(float by) {
    const vector w = (vector){0} + by;
    vector a = w, b = w + 1, c = w + 2, d = w + 3, e = w + 4, f = w + 5;
    vector g = w + 6, h = w + 7, i = w + 8, j = w + 9, k = w + 10, l = w + 11;
    for (int n = 0; n < STEPS; n++) {
        a = a * w + w, b = b * w + w, c = c * w + w, d = d * w + w, e = e * w + w, f = f * w + w;
        g = g * w + w, h = h * w + w, i = i * w + w, j = j * w + w, k = k * w + w, l = l * w + w;
    }
    a += b + c + d + e + f + g + h + i + j + k + l;
    return a[0];
}

static float summed(const float *at, size_t count) {
    vector sum[READ] = {{0}}, v;
    for (size_t i = 0; i + READ * LANES <= count; i += READ * LANES)
        for (size_t j = 0; j < READ; j++) {
            memcpy(&v, at + i + j * LANES, sizeof v);
            sum[j] += v;
        }
    sum[0] += sum[1] + sum[2] + sum[3];
    return sum[0][0];
}

int main(int argc, char **argv) {
    volatile float kept = 0.5f;
    double least = 1e12;
    for (int round = 0; round < ROUNDS; round++) {
        const double start = microseconds();
        kept = multiplied(kept < 0.9f ? kept : 0.5f) * 0.0f + 0.5f;
        const double took = microseconds() - start;
        if (took < least) least = took;
    }
    printf("%.6f\n", 1e3 * least / ((double)SUMS * STEPS * LANES));
    for (int n = 1; n < argc; n++) {
        const size_t bytes = (size_t)atol(argv[n]);
        void *data = NULL;
        if (posix_memalign(&data, 64, bytes + 64)) return 1;
        memset(data, 0, bytes + 64);
        least = 1e12;
        for (int round = 0; round < ROUNDS; round++) {
            const double start = microseconds();
            kept = summed(data, bytes / sizeof(float));
            const double took = microseconds() - start;
            if (took < least) least = took;
        }
        printf("%.6f\n", least);
        free(data);
    }
    return 0;
}
