/* Gestures in a stream of frames. Nothing is allocated: a trellis_stream is all the memory. Generated
 * and run-time code of Trellis may be used under any licence. */
#ifndef TRELLIS_STREAM_H
#define TRELLIS_STREAM_H

#include <stdint.h>

#include "model.h"

@SETTINGS@
typedef struct {
    int label;          /* its class, trellis_classes[label] */
    uint32_t start, end; /* its first and its last frame, counted from 0 */
    float probability;  /* the largest that it reached */
} trellis_event;

typedef struct {
    uint32_t frames;                /* pushed so far */
    float shares[TRELLIS_OUTPUTS];  /* the probabilities at the last evaluation */
    int evaluated;                  /* whether there was a window to evaluate */
    int active;                     /* the class of the gesture under way, or -1 */
    /* What follows belongs to stream.c. */
    uint32_t sums[TRELLIS_RING][TRELLIS_FRAME], units[TRELLIS_FRAME];
    uint32_t at, seen, missing;
    float means[TRELLIS_CHUNKS * TRELLIS_FRAME], scratch[TRELLIS_SCRATCH], output[TRELLIS_OUTPUTS];
    uint32_t start, last, first, ended, next;
    int below, candidate, count, ended_label;
    float peak;
} trellis_stream;

/* Before the first frame. */
void trellis_stream_begin(trellis_stream *stream);

/* Add a frame of TRELLIS_FRAME numbers, or NULL where no skeleton was found. Returns 1 for a gesture
 * that is now over and is in *event, 0 for none, and -1 for a frame with a number that is not finite
 * or too far away, which changes nothing. */
int trellis_stream_push(trellis_stream *stream, const float *frame, trellis_event *event);

/* After the last frame: 1 for a gesture that was under way, 0 for none. */
int trellis_stream_end(trellis_stream *stream, trellis_event *event);

#endif
