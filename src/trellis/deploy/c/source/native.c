/* The native library. See native.h.
 * Generated and run-time code of Trellis may be used under any licence.
 */
#define TRELLIS_DECODED
#include "native.h"

#include <stdlib.h>
#include <string.h>

#include "chunk.h"
#include "cosine.h"
#include "finite.h"
#include "follow.h"
#include "size.h"
#include "turn.h"
#include "lanes.h"
#include "reader.h"
#include "plan.h"
#include "whole.h"

enum { FEW = 3 }; /* so many samples are faster one by one than abreast */

struct trellis_model {
    trellis_file file;
    trellis_plan *plan;
    trellis_whole_plan *whole; /* of arithmetic in 8 bits, in place of `plan` */
    uint32_t *used, count; /* inputs that anything reads */
};

static uint32_t *read_inputs(const trellis_file *file, uint32_t *count) {
    const trellis_tables *m = &file->tables;
    unsigned char *seen = calloc(m->inputs + 1u, 1);
    uint32_t *used = calloc(m->inputs + 1u, sizeof *used);
    const uint32_t *terms = m->terms, *offsets = m->offsets;
    const trellis_band *band = m->band;
    *count = 0;
    for (uint32_t s = 0; seen && s < m->steps; s++)
        for (uint32_t b = 0; b < m->step[s].bands; b++, band++) {
            const uint32_t n = m->step[s].kind == TRELLIS_DOT ? 2 * band->fan : band->fan;
            for (uint32_t g = 0; g < band->groups; g++, terms += n)
                for (uint32_t i = 0; i < band->count; i++, offsets++)
                    for (uint32_t t = 0; t < n; t++)
                        if (terms[t] + *offsets < m->inputs) seen[terms[t] + *offsets] = 1;
        }
    for (uint32_t i = 0; seen && i < m->outputs; i++)
        if (m->results[i] < m->inputs) seen[m->results[i]] = 1;
    for (uint32_t i = 0; seen && used && i < m->inputs; i++)
        if (seen[i]) used[(*count)++] = i;
    if (!seen) {
        free(used);
        used = NULL;
    }
    free(seen);
    return used;
}

trellis_model *trellis_open(const unsigned char *data, size_t length, char *why, size_t room) {
    trellis_model *model = calloc(1, sizeof *model);
    const char *reason = model ? trellis_read(data, length, &model->file) : "out of memory";
    if (model && !reason) {
        const int whole = model->file.whole.inputs > 0;
        if (whole) model->whole = trellis_whole_planned(&model->file);
        else model->plan = trellis_planned(&model->file.tables, &model->file.looped);
        model->used = read_inputs(&model->file, &model->count);
        if (!(whole ? (void *)model->whole : (void *)model->plan) || !model->used) reason = "there is not enough memory";
    }
    if (!reason) return model;
    if (room) {
        const size_t size = strlen(reason) < room ? strlen(reason) : room - 1;
        memcpy(why, reason, size);
        why[size] = '\0';
    }
    trellis_close(model);
    return NULL;
}

void trellis_close(trellis_model *model) {
    if (!model) return;
    trellis_free(&model->file);
    trellis_drop(model->plan);
    trellis_whole_drop(model->whole);
    free(model->used);
    free(model);
}

uint32_t trellis_inputs(const trellis_model *model) { return model->file.tables.inputs; }
uint32_t trellis_outputs(const trellis_model *model) { return model->file.tables.outputs; }

size_t trellis_scratch(const trellis_model *model, size_t batch) {
    if (model->whole) return trellis_whole_room(model->whole);
    const size_t one = model->plan->room;
    const int alone = model->file.looped.count > 0; /* their lanes are neighbours in a row */
    const size_t units = batch > FEW && !alone ? TRELLIS_ABREAST * (size_t)model->file.tables.size : one;
    return 4 * (units > one ? units : one);
}

static void single(const trellis_model *model, const float *input, float *output, float *x) {
    const trellis_tables *m = &model->file.tables;
    memcpy(x, input, m->inputs * sizeof *x);
    trellis_single(model->plan, x);
    for (uint32_t i = 0; i < m->outputs; i++) output[i] = x[m->results[i]];
}

void trellis_predict(
    const trellis_model *model, const float *inputs, size_t batch, float *outputs, void *scratch
) {
    const trellis_tables *m = &model->file.tables;
    size_t done = 0;
    for (; model->whole && done < batch; done++)
        trellis_whole_run(
            model->whole, inputs + done * m->inputs, outputs + done * m->outputs, scratch);
    while (batch - done > FEW && model->file.looped.count == 0) {
        const size_t left = batch - done;
        const unsigned some = left < TRELLIS_ABREAST ? (unsigned)left : TRELLIS_ABREAST;
        trellis_abreast(
            m, model->used, model->count, inputs + done * m->inputs, some,
            outputs + done * m->outputs, scratch);
        done += some;
    }
    for (; done < batch; done++)
        single(model, inputs + done * m->inputs, outputs + done * m->outputs, scratch);
}

int trellis_checked(
    const trellis_model *model, const float *inputs, size_t batch, float *outputs, void *scratch
) {
    /* The kernel has no branches for NaN. */
    if (!trellis_finite(inputs, batch * trellis_inputs(model))) return -1;
    trellis_predict(model, inputs, batch, outputs, scratch);
    return trellis_finite(outputs, batch * trellis_outputs(model)) ? 0 : -2;
}

int trellis_recorded(
    const float *recording, size_t frames, size_t joints, size_t chunks, const unsigned *roots,
    size_t count, float scale, float *input, const unsigned *body, const unsigned *bones,
    size_t bone_count, float length, const float *table, float *work, int follow
) {
    if (trellis_chunk(recording, frames, joints, chunks, input) != 0) return -1;
    if (follow) trellis_follow(input, joints, chunks, roots, count);
    trellis_normalise(input, joints, chunks, roots, count, scale);
    if (body) trellis_turn(input, joints, chunks, body);
    if (bones) trellis_size(input, joints, chunks, bones, bone_count, length);
    if (table) trellis_cosines(input, joints, chunks, table, work);
    return 0;
}
