#include "model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

@INCLUDES@
#define COLUMNS (TRELLIS_FRAME + 8)
#define MOST_FRAMES 1000000u

static float *recording;
static size_t frames, room;

static const char *why(int status) {
    switch (status) {
    case TRELLIS_TOO_FEW: return "too few numbers for a frame";
    case TRELLIS_TOO_MANY: return "too many numbers for a frame";
    case TRELLIS_NO_NUMBER: return "something that is no number";
    case TRELLIS_NO_JOINT: return "a column that is no joint_x, joint_y or joint_z of this model";
    default: return "a joint without its x, y and z, or one that is named twice";
    }
}

static int failed(size_t line, const char *reason) {
    if (line) fprintf(stderr, "line %lu: ", (unsigned long)line);
    fprintf(stderr, "%s\n", reason);
    return 2;
}

/* What the first line says of the columns: names, or as many numbers as a frame has, in space or in
 * a plane, perhaps behind a frame number. Returns how many there are; *header is 1 where the line holds no frame. */
static int columns_of(const trellis_line *line, int *places, int *header) {
    int numbers;
    const size_t words = trellis_words(line->text, line->length, &numbers);
    *header = numbers == 0;
    if (*header)
        return trellis_header(
            line->text, line->length, trellis_joints, TRELLIS_JOINTS, places, COLUMNS);
    if (words > TRELLIS_FRAME + 1) return TRELLIS_TOO_MANY;
    const int axes = words >= TRELLIS_FRAME ? 3 : 2, least = axes * TRELLIS_JOINTS;
    const int numbered = (int)words == least + 1;
    if ((int)words != least + numbered) return TRELLIS_TOO_FEW;
    places[0] = -1;
    for (int i = 0; i < least; i++) places[i + numbered] = i / axes * 3 + i % axes;
    return (int)words;
}

static int add(const trellis_line *line, const int *places, size_t columns) {
    if (frames == room) {
        const size_t twice = room ? 2 * room : 256;
        const size_t more = twice < MOST_FRAMES ? twice : MOST_FRAMES;
        float *moved = room == MOST_FRAMES
                           ? NULL
                           : realloc(recording, more * TRELLIS_FRAME * sizeof *recording);
        if (!moved) return 1;
        recording = moved;
        room = more;
    }
    float *frame = recording + frames++ * TRELLIS_FRAME;
    memset(frame, 0, TRELLIS_FRAME * sizeof *frame); /* in a plane there is no z */
    return trellis_frame(line->text, line->length, places, columns, frame);
}

static int told(int every) {
    static float scratch[TRELLIS_SCRATCH], output[TRELLIS_OUTPUTS];
    double total = 0.0;
    int best = 0;
    if (trellis_input(recording, frames, scratch) != 0) return failed(0, "there are no frames");
    if (trellis_run(scratch, output, scratch) != 0) return failed(0, "the frames lead to a number that is not finite");
    for (int i = 1; i < TRELLIS_OUTPUTS; i++)
        if (output[i] > output[best]) best = i;
    for (int i = 0; i < TRELLIS_OUTPUTS; i++) total += exp((double)(output[i] - output[best]));
    if (every)
        for (int i = 0; i < TRELLIS_OUTPUTS; i++)
            printf("%s,%.9g\n", trellis_classes[i], (double)output[i]);
    else
        printf("%s %.1f %%\n", trellis_classes[best], 100.0 / total);
    return 0;
}

/* All frames from standard input into `recording`. */
static int read_all(trellis_line *line) {
    static int places[COLUMNS];
    int columns = 0, status = 0;
    while ((status = trellis_next(stdin, line)) > 0) {
        const size_t number = line->number;
        int header = 0;
        if (trellis_blank(line->text, line->length)) continue;
        if (columns == 0) {
            columns = columns_of(line, places, &header);
            if (columns < 0) return failed(number, why(columns));
        }
        if (header) continue;
        status = add(line, places, (size_t)columns);
        if (status > 0) return failed(number, "more frames than fit into memory");
        if (status < 0) return failed(number, why(status));
    }
    if (status == -2) return failed(line->number + 1, "this is not UTF-8 text");
    return status < 0 ? failed(line->number + 1, "the line is too long") : 0;
}

int main(int argc, char **argv) {
    trellis_line line = {0};
    const int every = argc > 1 && strcmp(argv[1], "--outputs") == 0;
    if (argc > 2 || (argc == 2 && !every)) {
        fprintf(stderr, "usage: %s [--outputs] < recording.csv\n", argv[0]);
        return 2;
    }
    int status = read_all(&line);
    if (status == 0) status = told(every);
    free(line.text);
    free(recording);
    return status;
}
