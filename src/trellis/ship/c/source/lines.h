/* Lines from a stream, of any length up to a limit. Generated and run-time code of Trellis may be
 * used under any licence. */
#ifndef TRELLIS_LINES_H
#define TRELLIS_LINES_H

#include <stdio.h>
#include <stdlib.h>

#define TRELLIS_LINE (1u << 20)

typedef struct {
    char *text;
    size_t length, room;
} trellis_line;

/* 1 for a line, 0 at the end, -1 for a line that is too long or memory that ran out. */
static int trellis_next(FILE *from, trellis_line *line) {
    int c;
    line->length = 0;
    while ((c = getc(from)) != EOF && c != '\n') {
        if (line->length == line->room) {
            const size_t room = line->room ? 2 * line->room : 4096;
            char *text = room > TRELLIS_LINE ? NULL : realloc(line->text, room);
            if (!text) return -1;
            line->text = text;
            line->room = room;
        }
        line->text[line->length++] = (char)c;
    }
    return c != EOF || line->length > 0;
}

#endif
