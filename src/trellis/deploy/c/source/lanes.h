/* Batches: the kernel with a sample in each lane. */
#ifndef TRELLIS_LANES_H
#define TRELLIS_LANES_H

#include "tables.h"

/* Up to TRELLIS_ABREAST samples. `used` are the inputs that anything reads. */
void trellis_abreast(
    const trellis_tables *m, const uint32_t *used, uint32_t count, const float *inputs,
    unsigned samples, float *outputs, void *scratch);

#endif
