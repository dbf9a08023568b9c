/* Whatever the text, the parser of recordings tells what is wrong or gives finite frames, which
 * are chunked, normalised and transformed within bounds. */
#include <stdlib.h>
#include <string.h>

#include "chunk.h"
#include "cosine.h"
#include "follow.h"
#include "size.h"
#include "turn.h"
#include "finite.h"
#include "frame.h"

enum { JOINTS = 3, FRAME = JOINTS * 3, COLUMNS = FRAME + 8, CHUNKS = 5, MOST = 64 };

static const char *const joints[JOINTS] = {"hip", "left hand", "x"};

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t length);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t length) {
    static float recording[MOST * FRAME], input[JOINTS * CHUNKS * 3];
    static const unsigned roots[1] = {1}, body[4] = {0, 1, 0, 2};
    static const unsigned bones[4] = {1, 0, 2, 1};
    int places[COLUMNS], columns = 0;
    size_t frames = 0, at = 0;
    /* Copies of their own, so that reading a byte too many is seen. */
    while (at < length && frames < MOST) {
        const unsigned char *end = memchr(data + at, '\n', length - at);
        const size_t size = end ? (size_t)(end - data) - at : length - at;
        char *line = malloc(size ? size : 1);
        if (!line) abort();
        memcpy(line, data + at, size);
        at += size + 1;
        int numbers = 0, header = 0;
        if (!trellis_blank(line, size)) {
            if (columns == 0) {
                const size_t words = trellis_words(line, size, &numbers);
                header = numbers == 0;
                if (header) columns = trellis_header(line, size, joints, JOINTS, places, COLUMNS);
                else if (words == FRAME)
                    for (columns = 0; columns < FRAME; columns++) places[columns] = columns;
                else columns = -1;
            }
            if (columns > 0 && !header) {
                float *frame = recording + frames * FRAME;
                memset(frame, 0, FRAME * sizeof *frame);
                if (trellis_frame(line, size, places, (size_t)columns, frame) == 0) {
                    for (int i = 0; i < FRAME; i++)
                        if (!(fabsf(frame[i]) <= 1e9f)) abort();
                    frames++;
                }
            }
        }
        free(line);
        if (columns < 0) break;
    }
    if (trellis_chunk(recording, frames, JOINTS, CHUNKS, input) == 0) {
        if (length & 1) trellis_follow(input, JOINTS, CHUNKS, roots, 1);
        trellis_normalise(input, JOINTS, CHUNKS, roots, 1, 0.5f);
        for (int i = 0; i < JOINTS * CHUNKS * 3; i++)
            if (!(fabsf(input[i]) <= 1e10f)) abort();
        trellis_turn(input, JOINTS, CHUNKS, body);
        for (int i = 0; i < JOINTS * CHUNKS * 3; i++)
            if (!(fabsf(input[i]) <= 2e10f)) abort();
        trellis_size(input, JOINTS, CHUNKS, bones, 2, 0.5f);
        for (int i = 0; i < JOINTS * CHUNKS * 3; i++)
            if (!(fabsf(input[i]) <= 4e11f)) abort(); /* twenty times as large, at most */
        /* Any number of chunks: what lies beyond the table and the work memory is seen. */
        const size_t chunks = 1 + length % CHUNKS, count = JOINTS * chunks * 3;
        float *made = malloc(count * sizeof *made), *work = malloc(chunks * 3 * sizeof *work);
        float *table = malloc((4 * chunks + 1) * sizeof *table);
        if (!made || !work || !table) abort();
        for (size_t i = 0; i <= 4 * chunks; i++) table[i] = 1.0f;
        memcpy(made, input, count * sizeof *made);
        trellis_cosines(made, JOINTS, chunks, table, work);
        if (!trellis_finite(made, count)) abort();
        free(table);
        free(work);
        free(made);
    }
    return 0;
}
