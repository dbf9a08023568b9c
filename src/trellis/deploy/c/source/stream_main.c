#include "stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

@INCLUDES@
#define COLUMNS (TRELLIS_FRAME + 8)

static trellis_stream stream;

@COLUMNS@
static void tell(const trellis_event *event) {
    printf("%s,%lu,%lu,%.4f\n", trellis_classes[event->label], (unsigned long)event->start,
           (unsigned long)event->end, (double)event->probability);
    fflush(stdout);
}

/* A frame of zeros alone has no skeleton. */
static int empty(const float *frame) {
    for (size_t i = 0; i < TRELLIS_FRAME; i++)
        if (frame[i] != 0.0f) return 0;
    return 1;
}

int main(void) {
    static int places[COLUMNS];
    trellis_line line = {0};
    trellis_event event;
    int columns = 0, status = 0;
    trellis_stream_begin(&stream);
    while ((status = trellis_next(stdin, &line)) > 0) {
        float frame[TRELLIS_FRAME] = {0};
        int header = 0;
        if (trellis_blank(line.text, line.length)) continue;
        if (columns == 0) {
            columns = columns_of(&line, places, &header);
            if (columns < 0) return failed(line.number, why(columns));
        }
        if (header) continue;
        status = trellis_frame(line.text, line.length, places, (size_t)columns, frame);
        if (status < 0) return failed(line.number, why(status));
        status = trellis_stream_push(&stream, empty(frame) ? NULL : frame, &event);
        if (status < 0) return failed(line.number, "a coordinate that is too far away");
        if (status > 0) tell(&event);
    }
    free(line.text);
    if (status == -2) return failed(line.number + 1, "this is not UTF-8 text");
    if (status < 0) return failed(line.number + 1, "the line is too long");
    if (trellis_stream_end(&stream, &event)) tell(&event);
    return 0;
}
