/* Lines of numbers, as people record them. Generated and run-time code of Trellis may be used
 * under any licence. */
#ifndef TRELLIS_FRAME_H
#define TRELLIS_FRAME_H

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum {
    TRELLIS_TOO_FEW = -1,    /* a frame needs more numbers */
    TRELLIS_TOO_MANY = -2,   /* a frame has fewer numbers */
    TRELLIS_NO_NUMBER = -3,  /* something that is no finite number */
    TRELLIS_NO_JOINT = -4,   /* a header names what is no joint's x, y or z */
    TRELLIS_MISSING = -5     /* a header misses a joint, or names one twice */
};

#define TRELLIS_WORD 64 /* no number that somebody recorded is as long */

static int trellis_space(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '"';
}

/* What stands between the cells of a line: a semicolon, a comma, or white space. */
static char trellis_separator(const char *line, size_t length) {
    if (length && memchr(line, ';', length)) return ';';
    return length && memchr(line, ',', length) ? ',' : ' ';
}

/* The next cell from *at on: 1, or 0 at the end of the line; cut where it is too long. Between
 * semicolons a comma is a decimal comma. */
static int trellis_word(
    const char *line, size_t length, char mark, size_t *at, char word[TRELLIS_WORD]
) {
    size_t n = 0, kept = 0, end;
    while (*at < length && trellis_space(line[*at])) ++*at;
    if (*at == length) return 0; /* one separator may stand at the end */
    for (end = *at; end < length; end++)
        if (mark == ' ' ? trellis_space(line[end]) : line[end] == mark) break;
    for (; *at < end; ++*at) {
        if (n + 1 < TRELLIS_WORD) word[n++] = mark == ';' && line[*at] == ',' ? '.' : line[*at];
        if (!trellis_space(line[*at])) kept = n;
    }
    word[kept] = '\0';
    if (*at < length) ++*at;
    return 1;
}

static int trellis_number(const char *word, float *number) {
    char *end;
    const double value = strtod(word, &end);
    if (end == word || *end != '\0' || !(fabs(value) <= 1e9)) return 0; /* nobody is that far */
    if (strlen(word) == TRELLIS_WORD - 1) return 0;
    *number = (float)value;
    return 1;
}

/* A blank line or a comment holds no frame. */
static int trellis_blank(const char *line, size_t length) {
    size_t at = 0;
    while (at < length && trellis_space(line[at])) at++;
    return at == length || line[at] == '#';
}

/* How many words a line has, and whether all, none or some of them are numbers (2, 0, 1). */
static size_t trellis_words(const char *line, size_t length, int *numbers) {
    const char mark = trellis_separator(line, length);
    char word[TRELLIS_WORD];
    float value;
    size_t at = 0, count = 0, numeric = 0;
    while (trellis_word(line, length, mark, &at, word)) {
        count++;
        numeric += (size_t)trellis_number(word, &value);
    }
    *numbers = numeric == count ? 2 : numeric == 0 ? 0 : 1;
    return count;
}

/* The names of columns, `joint_x` and so on in any order, as the place of each in a frame; -1 for
 * a column that says when ("frame", "time", "timestamp", "t", "index"). `places` has room for
 * `most`. Returns how many columns there are, or a negative number. */
static int trellis_header(
    const char *line, size_t length, const char *const *joints, size_t count, int *places,
    size_t most
) {
    static const char *const when[] = {"", "frame", "time", "timestamp", "t", "index"};
    const char mark = trellis_separator(line, length);
    char word[TRELLIS_WORD];
    size_t at = 0, columns = 0, found = 0;
    while (trellis_word(line, length, mark, &at, word)) {
        const size_t n = strlen(word);
        const char axis = n > 2 && word[n - 2] == '_' ? (char)(word[n - 1] | 0x20) : '\0';
        int place = -1;
        if (columns == most) return TRELLIS_TOO_MANY;
        if (axis >= 'x' && axis <= 'z')
            for (size_t j = 0; j < count; j++)
                if (strlen(joints[j]) == n - 2 && memcmp(joints[j], word, n - 2) == 0)
                    place = (int)(3 * j) + (axis - 'x');
        if (place < 0) {
            int known = 0;
            for (size_t i = 0; i < sizeof when / sizeof *when; i++)
                known |= strcmp(word, when[i]) == 0;
            if (!known) return TRELLIS_NO_JOINT;
        } else {
            for (size_t i = 0; i < columns; i++)
                if (places[i] == place) return TRELLIS_MISSING;
            found++;
        }
        places[columns++] = place;
    }
    return found == 3 * count ? (int)columns : TRELLIS_MISSING;
}

/* One frame from a line. `places` says where in the frame each of `columns` numbers belongs. */
static int trellis_frame(
    const char *line, size_t length, const int *places, size_t columns, float *frame
) {
    const char mark = trellis_separator(line, length);
    char word[TRELLIS_WORD];
    size_t at = 0, column = 0;
    while (trellis_word(line, length, mark, &at, word)) {
        float value;
        if (column == columns) return TRELLIS_TOO_MANY;
        if (!trellis_number(word, &value)) return TRELLIS_NO_NUMBER;
        if (places[column] >= 0) frame[places[column]] = value;
        column++;
    }
    return column == columns ? 0 : TRELLIS_TOO_FEW;
}

#endif
