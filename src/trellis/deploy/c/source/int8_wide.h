/* Strips in 8 bits on AVX-512 VNNI: four kept taps and 64 positions at a time. Include after int8_loops.h.
 * Generated and run-time code of Trellis may be used under any licence.
 *
 * Bytes of four taps are interleaved within lanes of 128 bits, and so their sums lie in four vectors
 * whose lanes are those of the bytes; packing brings them back in order. A list has five words for
 * four taps: where each reads, and the bytes of their weights.
 */
#include <immintrin.h>

static int trellis_is_wide(const trellis_loop *l) {
    return l->kind == TRELLIS_CONV && l->step_column == 1 && l->column == 1
           && (l->height > 1 || l->width > 1);
}

/* Of each width: four taps onto sums, and sums to bytes. */
#define TRELLIS_WIDTH(bits, vector, V, si)                                                    \
    TRELLIS_INLINE void trellis_four##bits(                                                   \
        vector *sum, const uint8_t *a, const uint8_t *b, const uint8_t *c, const uint8_t *d,  \
        const uint32_t weights                                                                \
    ) {                                                                                       \
        vector p = V(loadu_##si)((const void *)a), q = V(loadu_##si)((const void *)b);        \
        vector r = V(loadu_##si)((const void *)c), s = V(loadu_##si)((const void *)d);        \
        __asm__("" : "+v"(p), "+v"(q), "+v"(r), "+v"(s)); /* else gcc loads them twice */     \
        const vector pq = V(unpacklo_epi8)(p, q), rs = V(unpacklo_epi8)(r, s);                \
        const vector PQ = V(unpackhi_epi8)(p, q), RS = V(unpackhi_epi8)(r, s);                \
        const vector w = V(set1_epi32)((int)weights);                                         \
        sum[0] = V(dpbusd_epi32)(sum[0], V(unpacklo_epi16)(pq, rs), w);                       \
        sum[1] = V(dpbusd_epi32)(sum[1], V(unpackhi_epi16)(pq, rs), w);                       \
        sum[2] = V(dpbusd_epi32)(sum[2], V(unpacklo_epi16)(PQ, RS), w);                       \
        sum[3] = V(dpbusd_epi32)(sum[3], V(unpackhi_epi16)(PQ, RS), w);                       \
    }                                                                                         \
    TRELLIS_INLINE vector trellis_made##bits(                                                 \
        const trellis_strip *s, vector *sum, const int32_t offset, const uint8_t *extra       \
    ) {                                                                                       \
        const trellis_rescale *how = s->how;                                                  \
        const __m128i before = _mm_cvtsi32_si128(how->before);                                \
        const __m128i after = _mm_cvtsi32_si128(how->after);                                  \
        const vector times = V(set1_epi32)(s->multiplier & 0xffff);                           \
        const vector constant = V(set1_epi32)(offset);                                        \
        for (int k = 0; k < 4; k++)                                                           \
            sum[k] = V(add_epi32)(                                                            \
                V(madd_epi16)(V(sra_epi32)(sum[k], before), times), constant);                \
        if (extra) {                                                                          \
            const vector none = V(setzero_##si)(), e = V(loadu_##si)((const void *)extra);    \
            const vector low = V(unpacklo_epi8)(e, none), high = V(unpackhi_epi8)(e, none);   \
            const vector beside = V(set1_epi32)(how->beside);                                 \
            const vector wide[4] = {                                                          \
                V(unpacklo_epi16)(low, none), V(unpackhi_epi16)(low, none),                   \
                V(unpacklo_epi16)(high, none), V(unpackhi_epi16)(high, none)};                \
            for (int k = 0; k < 4; k++)                                                       \
                sum[k] = V(add_epi32)(sum[k], V(mullo_epi32)(wide[k], beside));               \
        }                                                                                     \
        for (int k = 0; k < 4; k++) sum[k] = V(sra_epi32)(sum[k], after);                     \
        const vector bytes = V(packus_epi16)(                                                 \
            V(packs_epi32)(sum[0], sum[1]), V(packs_epi32)(sum[2], sum[3]));                  \
        return V(min_epu8)(                                                                   \
            V(max_epu8)(bytes, V(set1_epi8)((char)how->low)), V(set1_epi8)((char)how->high)); \
    }

#define TRELLIS_V512(name) _mm512_##name
#define TRELLIS_V256(name) _mm256_##name
#define TRELLIS_V128(name) _mm_##name
TRELLIS_WIDTH(512, __m512i, TRELLIS_V512, si512)
TRELLIS_WIDTH(256, __m256i, TRELLIS_V256, si256)
#ifndef __AVX512VBMI__
TRELLIS_WIDTH(128, __m128i, TRELLIS_V128, si128)
#endif

/* Each byte's entry of a table of 256. */
static TRELLIS_APART void trellis_mapped(
    const uint8_t *table, const uint8_t *from, uint8_t *to, uint32_t count
) {
    uint32_t i = 0;
#ifdef __AVX512VBMI__
    const __m512i a = _mm512_loadu_si512((const void *)table);
    const __m512i b = _mm512_loadu_si512((const void *)(table + 64));
    const __m512i c = _mm512_loadu_si512((const void *)(table + 128));
    const __m512i d = _mm512_loadu_si512((const void *)(table + 192));
    for (; i < count; i += 64) {
        const uint32_t some = count - i < 64 ? count - i : 64;
        const __m512i v = _mm512_loadu_si512((const void *)(from + i));
        const __m512i low = _mm512_permutex2var_epi8(a, v, b);
        const __m512i high = _mm512_permutex2var_epi8(c, v, d);
        _mm512_mask_storeu_epi8(
            to + i, ~(__mmask64)0 >> (64 - some),
            _mm512_mask_blend_epi8(_mm512_movepi8_mask(v), low, high));
    }
#endif
    for (; i < count; i++) to[i] = table[from[i]];
}

#ifdef __AVX512VBMI__
/* Four taps of 16 positions: a position has a lane of its own, in order. */
TRELLIS_INLINE void trellis_four_short(
    __m512i *sum, const uint8_t *a, const uint8_t *b, const uint8_t *c, const uint8_t *d,
    const uint32_t weights, const __m512i order
) {
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const void *)a));
    v = _mm512_mask_broadcast_i32x4(v, 0x00f0, _mm_loadu_si128((const void *)b));
    v = _mm512_mask_broadcast_i32x4(v, 0x0f00, _mm_loadu_si128((const void *)c));
    v = _mm512_mask_broadcast_i32x4(v, 0xf000, _mm_loadu_si128((const void *)d));
    v = _mm512_permutexvar_epi8(order, v);
    *sum = _mm512_dpbusd_epi32(*sum, v, _mm512_set1_epi32((int)weights));
}

TRELLIS_INLINE __m128i trellis_made_short(
    const trellis_strip *s, __m512i sum, const int32_t offset, const uint8_t *extra
) {
    const trellis_rescale *how = s->how;
    sum = _mm512_sra_epi32(sum, _mm_cvtsi32_si128(how->before));
    sum = _mm512_madd_epi16(sum, _mm512_set1_epi32(s->multiplier & 0xffff));
    sum = _mm512_add_epi32(sum, _mm512_set1_epi32(offset));
    if (extra) {
        const __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)extra));
        sum = _mm512_add_epi32(sum, _mm512_mullo_epi32(e, _mm512_set1_epi32(how->beside)));
    }
    sum = _mm512_sra_epi32(sum, _mm_cvtsi32_si128(how->after));
    sum = _mm512_max_epi32(sum, _mm512_set1_epi32(how->low));
    sum = _mm512_min_epi32(sum, _mm512_set1_epi32(how->high));
    return _mm512_cvtepi32_epi8(sum);
}
#endif

/* `count` vectors of 64 positions, and one of `tail` (0, 16 or 32), both known when it is compiled. Of
 * the last vector, `last` positions are wanted. */
TRELLIS_INLINE void trellis_wide_some(
    const trellis_strip *s, const uint32_t count, const uint32_t tail, const uint32_t last
) {
    __m512i sum[4 * 4];
    __m256i half[4];
#ifdef __AVX512VBMI__
    __m512i short_sum = _mm512_set1_epi32(s->bias);
    const __m512i lanes = _mm512_set1_epi32(0x30201000);
    const __m512i order = _mm512_add_epi8(
        lanes, _mm512_mullo_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                                  _mm512_set1_epi32(0x01010101)));
#else
    __m128i quarter[4];
    for (int k = 0; k < 4; k++) quarter[k] = _mm_set1_epi32(s->bias);
#endif
    for (uint32_t k = 0; k < 4 * count; k++) sum[k] = _mm512_set1_epi32(s->bias);
    for (int k = 0; k < 4; k++) half[k] = _mm256_set1_epi32(s->bias);
    const uint8_t *const from = s->from;
    for (const uint32_t *tap = s->taps; tap != s->end; tap += 5) {
        const uint8_t *a = from + tap[0], *b = from + tap[1];
        const uint8_t *c = from + tap[2], *d = from + tap[3];
        for (uint32_t i = 0; i < count; i++)
            trellis_four512(sum + 4 * i, a + 64 * i, b + 64 * i, c + 64 * i, d + 64 * i, tap[4]);
        const uint32_t i = 64 * count;
        if (tail == 32) trellis_four256(half, a + i, b + i, c + i, d + i, tap[4]);
#ifdef __AVX512VBMI__
        if (tail == 16) trellis_four_short(&short_sum, a + i, b + i, c + i, d + i, tap[4], order);
#else
        if (tail == 16) trellis_four128(quarter, a + i, b + i, c + i, d + i, tap[4]);
#endif
    }
    const uint8_t *extra = s->extra;
    const int32_t offset = s->how->offset + (extra ? 0 : s->how->beside * s->how->absent);
    for (uint32_t i = 0; i < count; i++) {
        const __m512i made = trellis_made512(s, sum + 4 * i, offset, extra);
        if (tail || i < count - 1) _mm512_storeu_si512((void *)(s->to + 64 * i), made);
        else _mm512_mask_storeu_epi8(s->to + 64 * i, ~(__mmask64)0 >> (64 - last), made);
        if (extra) extra += 64;
    }
    if (tail == 32)
        _mm256_mask_storeu_epi8(
            s->to + 64 * count, ~(__mmask32)0 >> (32 - last),
            trellis_made256(s, half, offset, extra));
    if (tail == 16) {
#ifdef __AVX512VBMI__
        const __m128i made = trellis_made_short(s, short_sum, offset, extra);
#else
        const __m128i made = trellis_made128(s, quarter, offset, extra);
#endif
        _mm_mask_storeu_epi8(s->to + 64 * count, (__mmask16)(0xffffu >> (16 - last)), made);
    }
    if (s->how->table)
        trellis_mapped(s->how->table, s->to, s->to, 64 * count - (tail ? 0 : 64) + last);
}

/* `count` even places and as many odd ones; NULL for those that are not wanted. */
static void trellis_even_odd(const uint8_t *from, uint8_t *even, uint8_t *odd, uint32_t count) {
    for (uint32_t i = 0; i < count; i += 32) {
        const uint32_t some = count - i < 32 ? count - i : 32;
        const __mmask32 wanted = ~(__mmask32)0 >> (32 - some);
        const __m512i v = _mm512_loadu_si512((const void *)(from + 2 * i));
        if (even) _mm256_mask_storeu_epi8(even + i, wanted, _mm512_cvtepi16_epi8(v));
        if (odd)
            _mm256_mask_storeu_epi8(
                odd + i, wanted, _mm512_cvtepi16_epi8(_mm512_srli_epi16(v, 8)));
    }
}

#define TRELLIS_TAILS(count)                                                                  \
    if (tail == 0) trellis_wide_some(s, count, 0, last);                                      \
    else if (tail == 16) trellis_wide_some(s, count, 16, last);                               \
    else trellis_wide_some(s, count, 32, last);

static TRELLIS_APART void trellis_wide_block(
    const trellis_strip *s, uint32_t count, uint32_t tail, uint32_t last
) {
    switch (count) {
    case 0:
        if (tail == 16) trellis_wide_some(s, 0, 16, last);
        else trellis_wide_some(s, 0, 32, last);
        break;
    case 1: TRELLIS_TAILS(1) break;
    case 2: TRELLIS_TAILS(2) break;
    case 3: TRELLIS_TAILS(3) break;
    default: TRELLIS_TAILS(4)
    }
}

static void trellis_strip_run(const trellis_strip *all, uint32_t count) {
    if (!trellis_is_wide(all->loop)) {
        trellis_strip_narrow(all, count);
        return;
    }
    if (all->mapped) {
        trellis_mapped(all->mapped, all->extra, all->to, count);
        return;
    }
    trellis_strip s = *all;
    while (count) {
        uint32_t vectors = count / 64, tail = 0, last = 64;
        const uint32_t rest = count % 64;
        if (vectors > 4 || (vectors == 4 && rest > 32)) vectors = 4;
        else if (rest > 32) {
            vectors++;
            last = rest;
        } else if (rest) {
            tail = rest > 16 ? 32 : 16;
            last = rest;
        }
        const uint32_t most = 64 * vectors + tail, some = count < most ? count : most;
        trellis_wide_block(&s, vectors, tail, last);
        count -= some;
        s.from += some;
        s.to += some;
        if (s.extra) s.extra += some;
    }
}
