/* Lines of numbers, as people record them; see docs/skeletons.md of Trellis. Generated and run-time
 * code of Trellis may be used under any licence. */
#ifndef TRELLIS_FRAME_H
#define TRELLIS_FRAME_H

#include <float.h>
#include <locale.h>
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

#define TRELLIS_DIGITS 63 /* no number that somebody recorded is longer */
#define TRELLIS_FAR_AWAY 1e9 /* float32 can still square it, and no joint is there */

/* A cell of a line, without the white space and quotes around it. */
typedef struct {
    const char *text;
    size_t length;
    int quoted; /* what is in it of quotes is doubled */
} trellis_cell;

static int trellis_space(char c) { return c == ' ' || c == '\t'; }

/* What stands between the cells of a line, outside of quotes: a semicolon, a comma, or space. */
static char trellis_separator(const char *line, size_t length) {
    char found = ' ';
    int quotes = 0;
    for (size_t i = 0; i < length; i++) {
        quotes ^= line[i] == '"';
        if (!quotes && line[i] == ';') return ';';
        if (!quotes && line[i] == ',') found = ',';
    }
    return found;
}

static void trellis_trim(trellis_cell *cell) {
    while (cell->length && trellis_space(cell->text[0])) cell->text++, cell->length--;
    while (cell->length && trellis_space(cell->text[cell->length - 1])) cell->length--;
}

/* The next cell from *at on: 1, 0 at the end of the line, or -1 where quotes are not around all of
 * it. One separator may stand at the end. */
static int trellis_next_cell(
    const char *line, size_t length, char mark, size_t *at, trellis_cell *cell
) {
    int quotes = 0, some = 0;
    size_t end;
    while (*at < length && trellis_space(line[*at])) ++*at;
    if (*at == length) return 0;
    for (end = *at; end < length; end++) {
        quotes ^= line[end] == '"';
        some |= quotes;
        if (!quotes && (mark == ' ' ? trellis_space(line[end]) : line[end] == mark)) break;
    }
    cell->text = line + *at;
    cell->length = end - *at;
    cell->quoted = some;
    trellis_trim(cell);
    *at = end < length ? end + 1 : end;
    if (!some) return 1;
    if (cell->length < 2 || cell->text[0] != '"' || cell->text[cell->length - 1] != '"') return -1;
    cell->text++;
    cell->length -= 2;
    for (size_t i = 0; i < cell->length; i++)
        if (cell->text[i] == '"' && (++i == cell->length || cell->text[i] != '"')) return -1;
    trellis_trim(cell);
    return 1;
}

/* [+-] digits, with one point at most, and an exponent; 1 where that is all of it. */
static int trellis_spelled(const char *at, const char *end) {
    size_t digits = 0;
    if (at < end && (*at == '+' || *at == '-')) at++;
    for (; at < end && *at >= '0' && *at <= '9'; at++) digits++;
    if (at < end && *at == '.')
        for (at++; at < end && *at >= '0' && *at <= '9'; at++) digits++;
    if (!digits) return 0;
    if (at < end && (*at == 'e' || *at == 'E')) {
        at++;
        if (at < end && (*at == '+' || *at == '-')) at++;
        for (digits = 0; at < end && *at >= '0' && *at <= '9'; at++) digits++;
    }
    return digits && at == end;
}

/* Between semicolons a comma is a decimal comma. Whatever locale somebody has set, a point is a
 * point. */
static int trellis_number(const trellis_cell *cell, char mark, double *number) {
    const char *point = localeconv()->decimal_point;
    char word[TRELLIS_DIGITS + 1], local[TRELLIS_DIGITS + 17];
    size_t n = 0;
    if (cell->length > TRELLIS_DIGITS || strlen(point) > 16) return 0;
    for (size_t i = 0; i < cell->length; i++)
        word[i] = mark == ';' && cell->text[i] == ',' ? '.' : cell->text[i];
    if (!trellis_spelled(word, word + cell->length)) return 0;
    for (size_t i = 0; i < cell->length; i++) {
        if (word[i] != '.') local[n++] = word[i];
        else
            for (const char *p = point; *p; p++) local[n++] = *p;
    }
    local[n] = '\0';
    *number = strtod(local, NULL);
    return fabs(*number) <= DBL_MAX;
}

/* A blank line or a comment holds no frame. */
static int trellis_blank(const char *line, size_t length) {
    size_t at = 0;
    while (at < length && trellis_space(line[at])) at++;
    return at == length || line[at] == '#';
}

/* How many cells a line has, and whether all, none or some of them are numbers (2, 0, 1). */
static size_t trellis_words(const char *line, size_t length, int *numbers) {
    const char mark = trellis_separator(line, length);
    trellis_cell cell;
    double value;
    size_t at = 0, count = 0, numeric = 0;
    int found;
    while ((found = trellis_next_cell(line, length, mark, &at, &cell)) != 0) {
        count++;
        numeric += found > 0 && trellis_number(&cell, mark, &value);
    }
    *numbers = numeric == count ? 2 : numeric == 0 ? 0 : 1;
    return count;
}

/* Whether a cell, less the last `less` bytes, is a name; or, if `any`, is one in capitals or not. */
static int trellis_named(const trellis_cell *cell, size_t less, const char *name, int any) {
    for (size_t i = 0; i + less < cell->length; i++, name++) {
        char c = cell->text[i];
        if (cell->quoted && c == '"') i++;
        if (any && c >= 'A' && c <= 'Z') c = (char)(c | 0x20);
        if (*name == '\0' || c != *name) return 0;
    }
    return *name == '\0';
}

/* The names of columns, `joint_x` and so on in any order, as the place of each in a frame. Without
 * any z, joints lie in a plane. The place is -1 for
 * a column that says when ("frame", "time", "timestamp", "t", "index"). `places` has room for
 * `most`. Returns how many columns there are, or a negative number. */
static int trellis_header(
    const char *line, size_t length, const char *const *joints, size_t count, int *places,
    size_t most
) {
    static const char *const when[] = {"", "frame", "time", "timestamp", "t", "index"};
    const char mark = trellis_separator(line, length);
    trellis_cell cell;
    size_t at = 0, columns = 0, found = 0, deep = 0;
    int read;
    while ((read = trellis_next_cell(line, length, mark, &at, &cell)) != 0) {
        const size_t n = cell.length;
        const char axis = n > 2 && cell.text[n - 2] == '_' ? (char)(cell.text[n - 1] | 0x20) : '\0';
        int place = -1;
        if (columns == most) return TRELLIS_TOO_MANY;
        if (read < 0) return TRELLIS_NO_JOINT;
        if (axis >= 'x' && axis <= 'z')
            for (size_t j = 0; j < count; j++)
                if (trellis_named(&cell, 2, joints[j], 0)) place = (int)(3 * j) + (axis - 'x');
        if (place < 0) {
            int known = 0;
            for (size_t i = 0; i < sizeof when / sizeof *when; i++)
                known |= trellis_named(&cell, 0, when[i], 1);
            if (!known) return TRELLIS_NO_JOINT;
        } else {
            for (size_t i = 0; i < columns; i++)
                if (places[i] == place) return TRELLIS_MISSING;
            found++;
            deep += place % 3 == 2;
        }
        places[columns++] = place;
    }
    if (columns - found > most - 3 * count) return TRELLIS_TOO_MANY;
    return found == (deep ? 3 : 2) * count ? (int)columns : TRELLIS_MISSING;
}

/* One frame from a line. `places` says where in the frame each of `columns` numbers belongs. */
static int trellis_frame(
    const char *line, size_t length, const int *places, size_t columns, float *frame
) {
    const char mark = trellis_separator(line, length);
    trellis_cell cell;
    size_t at = 0, column = 0;
    int read;
    while ((read = trellis_next_cell(line, length, mark, &at, &cell)) != 0) {
        double value;
        if (column == columns) return TRELLIS_TOO_MANY;
        if (read < 0 || !trellis_number(&cell, mark, &value)) return TRELLIS_NO_NUMBER;
        if (places[column] >= 0) {
            if (!(fabs(value) <= TRELLIS_FAR_AWAY)) return TRELLIS_NO_NUMBER;
            frame[places[column]] = (float)value;
        }
        column++;
    }
    return column == columns ? 0 : TRELLIS_TOO_FEW;
}

#endif
