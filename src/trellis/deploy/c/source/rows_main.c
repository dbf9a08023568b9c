#include "model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

@INCLUDES@
static int failed(size_t line, const char *reason) {
    fprintf(stderr, "line %lu: %s\n", (unsigned long)line, reason);
    return 2;
}

static int run_all(trellis_line *line) {
    static float scratch[TRELLIS_SCRATCH], output[TRELLIS_OUTPUTS];
    static int places[TRELLIS_INPUTS];
    int status;
    for (int i = 0; i < TRELLIS_INPUTS; i++) places[i] = i;
    while ((status = trellis_next(stdin, line)) > 0) {
        const size_t number = line->number;
        if (trellis_blank(line->text, line->length)) continue;
        status = trellis_frame(line->text, line->length, places, TRELLIS_INPUTS, scratch);
        if (status == TRELLIS_TOO_FEW) return failed(number, "too few numbers for an input");
        if (status == TRELLIS_TOO_MANY) return failed(number, "too many numbers for an input");
        if (status < 0) return failed(number, "something that is no number");
        if (trellis_run(scratch, output, scratch) != 0) return failed(number, "something that is not finite");
        for (int i = 0; i < TRELLIS_OUTPUTS; i++)
            printf("%s%.9g", i ? "," : "", (double)output[i]);
        printf("\n");
    }
    if (status == -2) return failed(line->number + 1, "this is not UTF-8 text");
    return status < 0 ? failed(line->number + 1, "the line is too long") : 0;
}

int main(void) {
    trellis_line line = {0};
    const int status = run_all(&line);
    free(line.text);
    return status;
}
