/* Times the native run-time inside C: `driver model.trellis BATCH CALLS FD < inputs`.
 *
 * `inputs` are float32 samples, as many as there are; each call takes the next BATCH of them, so
 * that no two calls in a row see the same. A turn begins when a byte arrives on file descriptor FD,
 * which lets whoever measures several things take turns. It is CALLS calls, and prints the least
 * microseconds of one; calls that are shorter than the clock is exact are timed several together.
 */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "native.h"

static void *content(FILE *from, size_t *length) {
    size_t room = 1 << 16;
    unsigned char *data = malloc(room);
    *length = 0;
    while (data) {
        *length += fread(data + *length, 1, room - *length, from);
        if (*length < room) break;
        room *= 2;
        data = realloc(data, room);
    }
    return data;
}

static double microseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e6 * (double)now.tv_sec + 1e-3 * (double)now.tv_nsec;
}

int main(int argc, char **argv) {
    char why[200], turn;
    size_t length, bytes;
    if (argc != 5) return 2;
    const int turns = atoi(argv[4]);
    FILE *file = fopen(argv[1], "rb");
    const size_t batch = (size_t)atol(argv[2]), calls = (size_t)atol(argv[3]);
    unsigned char *data = file ? content(file, &length) : NULL;
    trellis_model *model = data ? trellis_open(data, length, why, sizeof why) : NULL;
    if (!model) return 3;
    float *inputs = content(stdin, &bytes);
    const size_t width = trellis_inputs(model), samples = bytes / sizeof *inputs / width;
    float *outputs = malloc(batch * trellis_outputs(model) * sizeof *outputs);
    void *scratch = NULL;
    if (!outputs || samples < batch || posix_memalign(&scratch, 64, trellis_scratch(model, batch)))
        return 4;
    size_t at = 0, together = 1;
    while (read(turns, &turn, 1) == 1) {
        double least = 1e12;
        for (size_t i = 0; i < calls; i++) {
            const double start = microseconds();
            for (size_t j = 0; j < together; j++) {
                if (at + batch > samples) at = 0;
                trellis_predict(model, inputs + at * width, batch, outputs, scratch);
                at += batch;
            }
            const double once = (microseconds() - start) / (double)together;
            if (once < least) least = once;
        }
        if (together == 1 && least < 10.0) together = (size_t)(20.0 / least) + 1;
        printf("%.4f\n", least);
        fflush(stdout);
    }
    return 0;
}
