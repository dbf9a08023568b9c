/* Lines of UTF-8 text from a stream, of any length up to a limit; see docs/skeletons.md of Trellis.
 * Generated and run-time code of Trellis may be used under any licence. */
#ifndef TRELLIS_LINES_H
#define TRELLIS_LINES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRELLIS_LINE (1u << 20)

typedef struct {
    char *text;
    size_t length, room, number;
} trellis_line;

/* Whether bytes are UTF-8: no longer than need be, no surrogates, nothing beyond U+10FFFF. */
static int trellis_utf8(const char *text, size_t length) {
    const unsigned char *s = (const unsigned char *)text;
    for (size_t i = 0; i < length;) {
        const unsigned c = s[i++];
        if (c < 0x80u) continue;
        const size_t more = c < 0xE0u ? 1 : c < 0xF0u ? 2 : 3;
        if (c < 0xC2u || c > 0xF4u || length - i < more) return 0;
        const unsigned first = s[i];
        if ((c == 0xE0u && first < 0xA0u) || (c == 0xEDu && first > 0x9Fu)) return 0;
        if ((c == 0xF0u && first < 0x90u) || (c == 0xF4u && first > 0x8Fu)) return 0;
        for (size_t n = 0; n < more; n++, i++)
            if ((s[i] & 0xC0u) != 0x80u) return 0;
    }
    return 1;
}

/* 1 for a line, 0 at the end, -1 for one that is too long or memory that ran out, -2 for one that is
 * no UTF-8. A line ends with LF, CR LF or CR. */
static int trellis_next(FILE *from, trellis_line *line) {
    int c;
    line->length = 0;
    while ((c = getc(from)) != EOF && c != '\n' && c != '\r') {
        if (line->length == line->room) {
            const size_t room = line->room ? 2 * line->room : 4096;
            char *text = room > TRELLIS_LINE ? NULL : realloc(line->text, room);
            if (!text) return -1;
            line->text = text;
            line->room = room;
        }
        line->text[line->length++] = (char)c;
    }
    if (c == '\r') {
        const int next = getc(from);
        if (next != '\n' && next != EOF) ungetc(next, from);
    }
    if (c == EOF && line->length == 0) return 0;
    if (line->length && !trellis_utf8(line->text, line->length)) return -2;
    if (line->number++ == 0 && line->length >= 3 && memcmp(line->text, "\xef\xbb\xbf", 3) == 0)
        memset(line->text, ' ', 3); /* a mark that some editors put before everything */
    return 1;
}

#endif
