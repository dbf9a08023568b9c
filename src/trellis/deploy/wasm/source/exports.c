/* What a page calls of a model that was built to WebAssembly.
 * Generated and run-time code of Trellis may be used under any licence.
 */
#include "model.h"

#define EXPORTED(name) __attribute__((export_name(#name)))

extern unsigned char __heap_base; /* the linker's: memory is free from here on */
static float scratch[TRELLIS_SCRATCH], output[TRELLIS_OUTPUTS];

EXPORTED(inputs) size_t exported_inputs(void) { return TRELLIS_INPUTS; }
EXPORTED(outputs) size_t exported_outputs(void) { return TRELLIS_OUTPUTS; }
EXPORTED(free) void *exported_free(void) { return &__heap_base; }
EXPORTED(scratch) float *exported_scratch(void) { return scratch; }
EXPORTED(output) float *exported_output(void) { return output; }

/* From an input anywhere in memory, or at the beginning of scratch, to output. Not 0 where a number
 * of it is not finite. */
EXPORTED(run) int exported_run(const float *input) { return trellis_run(input, output, scratch); }

#ifdef TRELLIS_FRAME
EXPORTED(frame) size_t exported_frame(void) { return TRELLIS_FRAME; }

/* What the network reads of a recording becomes the input at the beginning of scratch. */
EXPORTED(prepare) int exported_prepare(const float *recording, size_t frames) {
    return trellis_input(recording, frames, scratch);
}
#endif
