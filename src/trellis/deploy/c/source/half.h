/* Half precision, stored in 16 bits. Generated and run-time code of Trellis may be used under any
 * licence. */
#ifndef TRELLIS_HALF_H
#define TRELLIS_HALF_H

#include <stdint.h>
#include <string.h>

static inline float trellis_half(uint16_t h) {
    /* Shifted into place, exponent and fraction are the number times 2^-112, subnormals included;
     * infinities are not among stored weights. */
    uint32_t bits = (uint32_t)(h & 0x7fffu) << 13;
    float value;
    memcpy(&value, &bits, sizeof value);
    value *= 5.192296858534828e+33f; /* 2^112 */
    return (h & 0x8000u) ? -value : value;
}

#endif
