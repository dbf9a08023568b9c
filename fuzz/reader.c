/* Whatever the bytes, the .trellis reader refuses them or gives tables that run within bounds. */
#define TRELLIS_DECODED
#include <stdlib.h>
#include <string.h>

#include "native.h"
#include "reader.h"

enum { SOME = 1 << 18, BATCH = 5 };

static float *random_floats(size_t count) {
    float *made = malloc((count ? count : 1) * sizeof *made);
    if (!made) abort();
    for (size_t i = 0; i < count; i++) made[i] = (float)(i * 2654435761u % 2001) / 1000.0f - 1.0f;
    return made;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t length);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t length) {
    char why[100];
    trellis_file file;
    if (trellis_read(data, length, &file) != NULL) return 0;
    uint64_t uses = file.tables.size;
    const trellis_band *band = file.tables.band;
    for (uint32_t b = 0; b < file.bands; b++)
        uses += (uint64_t)band[b].fan * band[b].count * band[b].groups;
    for (uint32_t i = 0; i < file.looped.count; i++) {
        const trellis_loop *l = &file.looped.loop[i];
        uses += (uint64_t)l->channels * l->height * l->width * l->window_height * l->window_width
                * (l->shared ? 1 : l->sources + 1u);
    }
    trellis_free(&file);
    if (uses > SOME) return 0; /* sound, and too slow to try a thousand times a second */
    trellis_model *model = trellis_open(data, length, why, sizeof why);
    if (!model) abort();
    const size_t inputs = trellis_inputs(model), outputs = trellis_outputs(model);
    float *x = random_floats(BATCH * inputs), *y = random_floats(BATCH * outputs);
    void *scratch = NULL;
    if (posix_memalign(&scratch, 64, trellis_scratch(model, BATCH)) != 0) abort();
    memset(scratch, 0, trellis_scratch(model, BATCH));
    trellis_predict(model, x, 1, y, scratch);
    trellis_predict(model, x, BATCH, y, scratch);
    free(scratch);
    free(y);
    free(x);
    trellis_close(model);
    return 0;
}
