/* Reads a .trellis file from memory. See format/encoding.py for what lies where.
 * Generated and run-time code of Trellis may be used under any licence.
 */
#ifndef TRELLIS_READER_H
#define TRELLIS_READER_H

#include <stddef.h>

#include "tables.h"

#define TRELLIS_MOST_UNITS (1u << 24)
#define TRELLIS_MOST_USES (1u << 26)
#define TRELLIS_MOST_LOOPED (1u << 28)
#define TRELLIS_MOST_STEPS (1u << 16)
#define TRELLIS_MOST_CODINGS (1u << 10)
#define TRELLIS_MOST_SUM (1 << 30)
#define TRELLIS_MOST_SHIFTED (1 << 14)
#define TRELLIS_MOST_AFTER 20
#define TRELLIS_MOST_BESIDE (1 << 20)
#define TRELLIS_MOST_OFFSET (1 << 29)
#define TRELLIS_LEAST_SCALE 1e-30f

typedef struct {
    uint32_t units;
    float scale;
    uint8_t zero;
} trellis_coding;

/* What a file of arithmetic in 8 bits has beside its tables, whose weights are whole then. */
typedef struct {
    uint32_t inputs, outputs; /* codings; 0 of a file of floats */
    const trellis_coding *input, *output;
    const trellis_rescale *rescale; /* of each step */
    const int32_t *offset, *loop_offset; /* of each group, and of each channel of a loop */
    const int16_t *multiplier, *loop_multiplier;
} trellis_whole;

typedef struct {
    trellis_looped looped;
    trellis_whole whole;
    trellis_tables tables; /* weights in fp32, scales multiplied out */
    uint32_t bands, instances, terms, weights;
    void *memory[26]; /* all that was allocated */
} trellis_file;

/* Fills `file` and returns NULL, or says why the bytes are refused. Nothing stays allocated then. */
const char *trellis_read(const unsigned char *data, size_t length, trellis_file *file);
void trellis_free(trellis_file *file);

#endif
