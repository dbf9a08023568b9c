/* Batches: the kernel with a sample in each lane.
 * Generated and run-time code of Trellis may be used under any licence.
 */
#define TRELLIS_DECODED
#include "native.h"

#define TRELLIS_LANES TRELLIS_ABREAST

#include "lanes.h"
#include "activation.h"
#include "real.h"
#include "fours.h"
#include "sums.h"
#include "kernel.h"

void trellis_abreast(
    const trellis_tables *m, const uint32_t *used, uint32_t count, const float *inputs,
    unsigned samples, float *outputs, void *scratch
) {
    trellis_real *x = scratch;
    const uint32_t width = m->inputs;
    for (uint32_t i = 0; i < count; i++) {
        trellis_real v = {0};
        if (samples == TRELLIS_LANES)
            for (unsigned l = 0; l < TRELLIS_LANES; l++)
                v[l] = inputs[(size_t)l * width + used[i]];
        else
            for (unsigned l = 0; l < samples; l++) v[l] = inputs[(size_t)l * width + used[i]];
        x[used[i]] = v;
    }
    trellis_evaluate(m, x);
    for (uint32_t i = 0; i < m->outputs; i++) {
        const trellis_real v = x[m->results[i]];
        for (unsigned l = 0; l < samples; l++) outputs[(size_t)l * m->outputs + i] = v[l];
    }
}
