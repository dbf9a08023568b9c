/* What a page calls of a stream. Generated and run-time code of Trellis may be used under any
 * licence. */
#include "stream.h"

#define EXPORTED(name) __attribute__((export_name(#name)))

static trellis_stream stream;
static trellis_event event;
static float frame[TRELLIS_FRAME];

EXPORTED(stream_frame) float *exported_stream_frame(void) { return frame; }
EXPORTED(stream_shares) float *exported_stream_shares(void) { return stream.shares; }
EXPORTED(stream_evaluated) int exported_stream_evaluated(void) { return stream.evaluated; }
EXPORTED(stream_active) int exported_stream_active(void) { return stream.active; }
EXPORTED(stream_bytes) size_t exported_stream_bytes(void) { return sizeof stream; }
EXPORTED(event_label) int exported_event_label(void) { return event.label; }
EXPORTED(event_start) uint32_t exported_event_start(void) { return event.start; }
EXPORTED(event_end) uint32_t exported_event_end(void) { return event.end; }
EXPORTED(event_probability) float exported_event_probability(void) { return event.probability; }

EXPORTED(stream_begin) void exported_stream_begin(void) { trellis_stream_begin(&stream); }
EXPORTED(stream_push) int exported_stream_push(int seen) {
    return trellis_stream_push(&stream, seen ? frame : NULL, &event);
}
EXPORTED(stream_end) int exported_stream_end(void) { return trellis_stream_end(&stream, &event); }
