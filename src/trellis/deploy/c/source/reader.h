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

typedef struct {
    trellis_looped looped;
    trellis_tables tables; /* weights in fp32, scales multiplied out */
    uint32_t bands, instances, terms, weights;
    void *memory[20]; /* all that was allocated */
} trellis_file;

/* Fills `file` and returns NULL, or says why the bytes are refused. Nothing stays allocated then. */
const char *trellis_read(const unsigned char *data, size_t length, trellis_file *file);
void trellis_free(trellis_file *file);

#endif
