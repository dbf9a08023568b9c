/* Little-endian numbers and Rice codes, none read beyond its end.
 * Generated and run-time code of Trellis may be used under any licence.
 */
#ifndef TRELLIS_BITS_H
#define TRELLIS_BITS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    const unsigned char *at;
    size_t left;
    int bad; /* something was read that is not there, or not sound */
} trellis_bytes;

static const unsigned char *trellis_take(trellis_bytes *b, size_t n) {
    const unsigned char *from = b->at;
    if (b->bad || n > b->left) {
        b->bad = 1;
        return NULL;
    }
    b->at += n;
    b->left -= n;
    return from;
}

static uint32_t trellis_u32(trellis_bytes *b) {
    const unsigned char *p = trellis_take(b, 4);
    return p ? (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24
             : 0;
}

static uint32_t trellis_u8(trellis_bytes *b) {
    const unsigned char *p = trellis_take(b, 1);
    return p ? p[0] : 0;
}

/* Seven bits a byte, low ones first, four bytes at most. */
static uint32_t trellis_varint(trellis_bytes *b) {
    uint32_t value = 0;
    for (unsigned place = 0; place < 4; place++) {
        const uint32_t byte = trellis_u8(b);
        value |= (byte & 0x7fu) << 7 * place;
        if (byte < 0x80u) return value;
    }
    b->bad = 1;
    return 0;
}

static float trellis_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A stream of Rice-coded numbers, to be taken one by one: of each the high part in unary, the low k
 * bits apart; one whose high part would be TRELLIS_FAR or more lies whole behind all others. */
#define TRELLIS_FAR 24u

typedef struct {
    const unsigned char *unary, *low, *far;
    size_t unary_bits, unary_end, low_bits; /* where the next bit is */
    uint32_t left, far_left;
    unsigned k;
    trellis_bytes *from;
} trellis_rice;

static uint32_t trellis_ones(const unsigned char *p, size_t size) {
    uint32_t n = 0;
    for (size_t i = 0; i < size; i++)
        for (unsigned v = p[i]; v; v &= v - 1) n++;
    return n;
}

/* `count` numbers, or as many as there are where that is TRELLIS_ALL. */
#define TRELLIS_ALL 0xffffffffu

static trellis_rice trellis_stream(trellis_bytes *b, uint32_t count) {
    trellis_rice r = {0};
    const unsigned k = trellis_u8(b);
    const uint32_t size = trellis_u32(b);
    r.far_left = (k & 0x80u) ? trellis_u32(b) : 0;
    r.k = k & 0x7fu;
    if (r.k > 31) b->bad = 1;
    r.unary = trellis_take(b, size);
    if (!b->bad && count == TRELLIS_ALL) count = trellis_ones(r.unary, size);
    if (count > 8 * (uint64_t)size) b->bad = 1; /* each takes a bit at least */
    r.low = trellis_take(b, (size_t)(((uint64_t)count * r.k + 7) / 8));
    r.far = trellis_take(b, 4 * (size_t)r.far_left);
    r.unary_end = b->bad ? 0 : (size_t)size * 8;
    r.left = count;
    r.from = b;
    return r;
}

static uint32_t trellis_code(trellis_rice *r) {
    uint64_t value = 0;
    if (r->from->bad || r->left == 0) {
        r->from->bad = 1;
        return 0;
    }
    r->left--;
    for (;;) {
        if (r->unary_bits == r->unary_end || value > TRELLIS_FAR) {
            r->from->bad = 1;
            return 0;
        }
        const unsigned bit = r->unary[r->unary_bits / 8] >> (7 - r->unary_bits % 8) & 1u;
        r->unary_bits++;
        if (bit) break;
        value++;
    }
    const int far = value == TRELLIS_FAR;
    for (unsigned i = 0; i < r->k; i++, r->low_bits++)
        value = value << 1 | (r->low[r->low_bits / 8] >> (7 - r->low_bits % 8) & 1u);
    if (far) {
        trellis_bytes whole = {r->far, r->far_left ? 4 : 0, 0};
        value = trellis_u32(&whole);
        if (whole.bad) r->from->bad = 1;
        else {
            r->far += 4;
            r->far_left--;
        }
    }
    if (value >= (uint64_t)1 << 31) r->from->bad = 1;
    return r->from->bad ? 0 : (uint32_t)value;
}

/* All codes were taken, and only padding is left: zeros to the end of the byte. */
static void trellis_over(trellis_rice *r) {
    if (r->from->bad) return;
    if (r->left || r->far_left || r->unary_end - r->unary_bits >= 8) r->from->bad = 1;
    for (; r->unary_bits < r->unary_end; r->unary_bits++)
        if (r->unary[r->unary_bits / 8] >> (7 - r->unary_bits % 8) & 1u) r->from->bad = 1;
}

static int64_t trellis_unzigzag(uint32_t code) {
    return (code & 1u) ? -(int64_t)(code >> 1) - 1 : (int64_t)(code >> 1);
}

static uint32_t trellis_crc(const unsigned char *data, size_t length) {
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < length; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0xedb88320u & (0u - (crc & 1u)));
    }
    return ~crc;
}

#endif
