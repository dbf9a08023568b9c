/* One sample at a time in 8 bits: how each step is computed is settled when a model is opened.
 * Generated and run-time code of Trellis may be used under any licence.
 */
#ifndef TRELLIS_WHOLE_H
#define TRELLIS_WHOLE_H

#include "reader.h"

typedef struct trellis_whole_plan trellis_whole_plan;

trellis_whole_plan *trellis_whole_planned(const trellis_file *file); /* NULL without memory */
void trellis_whole_drop(trellis_whole_plan *plan);
size_t trellis_whole_room(const trellis_whole_plan *plan); /* bytes of scratch memory */
void trellis_whole_run(
    const trellis_whole_plan *plan, const float *input, float *output, uint8_t *x);

#endif
