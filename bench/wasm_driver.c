/* Times model.c natively: `driver ROUNDS < inputs` prints the least nanoseconds of an inference.
 * Inputs are float32, one after another; every call takes the next of them. */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "model.h"

#define POOL 64

static float inputs[POOL][TRELLIS_INPUTS], scratch[TRELLIS_SCRATCH], output[TRELLIS_OUTPUTS];

static double nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e9 * (double)now.tv_sec + (double)now.tv_nsec;
}

int main(int argc, char **argv) {
    double least = 1e18;
    const int rounds = argc > 1 ? atoi(argv[1]) : 100;
    if (fread(inputs, sizeof inputs, 1, stdin) != 1) return 2;
    for (int r = 0; r < rounds; r++) {
        const double began = nanoseconds();
        for (int i = 0; i < POOL; i++) trellis_run(inputs[i], output, scratch);
        const double taken = (nanoseconds() - began) / POOL;
        if (taken < least) least = taken;
    }
    printf("%.1f\n", least);
    for (int i = 0; i < TRELLIS_OUTPUTS; i++) printf("%.9g\n", (double)output[i]);
    return 0;
}
