/* Whether numbers are numbers. Generated and run-time code of Trellis may be used under any
 * licence. */
#ifndef TRELLIS_FINITE_H
#define TRELLIS_FINITE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* 1, or 0 where one of them is infinite or NaN: its exponent is all ones, so one more carries into
 * the sign. By bits, which no flag of a compiler can take for something else, and no branch. */
static int trellis_finite(const float *x, size_t count) {
    uint32_t carried = 0, bits;
    for (size_t i = 0; i < count; i++) {
        memcpy(&bits, x + i, sizeof bits);
        carried |= (bits & 0x7F800000u) + 0x00800000u;
    }
    return carried >> 31 == 0;
}

#endif
