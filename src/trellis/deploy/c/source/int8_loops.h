/* Loops in 8 bits. Include after int8.h. Generated and run-time code of Trellis may be used under any
 * licence.
 *
 * A strip is a run of positions that lie side by side. Two kept taps at a time, 16 positions each, are
 * multiplied and added to sums of 32 bits. Where there are no vectors, eight positions at a time.
 */
#include <string.h>

#define TRELLIS_SLACK 64 /* bytes behind memory that a vector may read */

#ifdef __GNUC__
#define TRELLIS_INLINE static inline __attribute__((always_inline))
#define TRELLIS_APART __attribute__((noinline))
#else
#define TRELLIS_INLINE static inline
#define TRELLIS_APART
#endif

#if (defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 12)) && !defined(TRELLIS_SCALAR)
#if defined(__SSE2__)
#include <emmintrin.h>
#define TRELLIS_LANES8 16
#elif defined(__aarch64__)
#include <arm_neon.h>
#define TRELLIS_LANES8 16
#elif defined(__wasm_simd128__)
#include <wasm_simd128.h>
#define TRELLIS_LANES8 16
#endif
#endif
#ifndef TRELLIS_LANES8
#define TRELLIS_LANES8 1
#endif
#define TRELLIS_TOGETHER (TRELLIS_LANES8 > 1 ? 2 : 1) /* taps; a list ends with some of weight 0 */

/* Positions side by side, of one channel. */
typedef struct {
    const trellis_loop *loop;
    const trellis_rescale *how;
    const uint32_t *taps, *end; /* a tap: where it reads, times 256, and the byte of its weight */
    int32_t bias, multiplier;
    const uint8_t *from, *extra; /* extra: NULL for none */
    const uint8_t *mapped; /* what a channel without taps makes of its extra, by 256; or NULL */
    uint8_t *to;
} trellis_strip;

#if TRELLIS_LANES8 > 1
typedef uint8_t trellis_v8 __attribute__((vector_size(16)));
typedef int16_t trellis_v16 __attribute__((vector_size(16)));
typedef int32_t trellis_v32 __attribute__((vector_size(16)));
#define TRELLIS_MIXED(a, b, f)                                                                \
    __builtin_shufflevector(                                                                  \
        a, b, f, f + 16, f + 1, f + 17, f + 2, f + 18, f + 3, f + 19, f + 4, f + 20, f + 5,    \
        f + 21, f + 6, f + 22, f + 7, f + 23)

TRELLIS_INLINE trellis_v8 trellis_bytes_at(const uint8_t *from, const uint32_t column) {
    trellis_v8 v;
    memcpy(&v, from, sizeof v);
    if (column == 2) {
        trellis_v8 w;
        memcpy(&w, from + 16, sizeof w);
        return __builtin_shufflevector(
            v, w, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    }
    return v;
}

/* Two taps of 16 positions, onto their sums. */
TRELLIS_INLINE void trellis_two(
    trellis_v32 *sum, trellis_v8 a, trellis_v8 b, const int32_t v, const int32_t w
) {
#if defined(__aarch64__)
    const int16x8_t a0 = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8((uint8x16_t)a)));
    const int16x8_t a1 = vreinterpretq_s16_u16(vmovl_u8(vget_high_u8((uint8x16_t)a)));
    const int16x8_t b0 = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8((uint8x16_t)b)));
    const int16x8_t b1 = vreinterpretq_s16_u16(vmovl_u8(vget_high_u8((uint8x16_t)b)));
    sum[0] = (trellis_v32)vmlal_n_s16((int32x4_t)sum[0], vget_low_s16(a0), (int16_t)v);
    sum[1] = (trellis_v32)vmlal_n_s16((int32x4_t)sum[1], vget_high_s16(a0), (int16_t)v);
    sum[2] = (trellis_v32)vmlal_n_s16((int32x4_t)sum[2], vget_low_s16(a1), (int16_t)v);
    sum[3] = (trellis_v32)vmlal_n_s16((int32x4_t)sum[3], vget_high_s16(a1), (int16_t)v);
    sum[0] = (trellis_v32)vmlal_n_s16((int32x4_t)sum[0], vget_low_s16(b0), (int16_t)w);
    sum[1] = (trellis_v32)vmlal_n_s16((int32x4_t)sum[1], vget_high_s16(b0), (int16_t)w);
    sum[2] = (trellis_v32)vmlal_n_s16((int32x4_t)sum[2], vget_low_s16(b1), (int16_t)w);
    sum[3] = (trellis_v32)vmlal_n_s16((int32x4_t)sum[3], vget_high_s16(b1), (int16_t)w);
#else
    const trellis_v8 none = {0};
    const trellis_v8 low = TRELLIS_MIXED(a, b, 0), high = TRELLIS_MIXED(a, b, 8);
    const trellis_v8 x[4] = {
        TRELLIS_MIXED(low, none, 0), TRELLIS_MIXED(low, none, 8), TRELLIS_MIXED(high, none, 0),
        TRELLIS_MIXED(high, none, 8)};
    const int32_t both = (int32_t)(((uint32_t)v & 0xffffu) | (uint32_t)w << 16);
    const trellis_v32 weights = {both, both, both, both};
    for (int k = 0; k < 4; k++)
#if defined(__SSE2__)
        sum[k] += (trellis_v32)_mm_madd_epi16((__m128i)x[k], (__m128i)weights);
#else
        sum[k] += (trellis_v32)wasm_i32x4_dot_i16x8((v128_t)x[k], (v128_t)weights);
#endif
#endif
}

TRELLIS_INLINE trellis_v8 trellis_larger(trellis_v8 a, trellis_v8 b) {
    const trellis_v8 more = (trellis_v8)(a > b);
    return (a & more) | (b & ~more);
}

TRELLIS_INLINE void trellis_widened(trellis_v8 v, trellis_v32 *to) {
    const trellis_v8 none = {0};
    const trellis_v8 low = TRELLIS_MIXED(v, none, 0), high = TRELLIS_MIXED(v, none, 8);
    to[0] = (trellis_v32)__builtin_shufflevector(
        low, none, 0, 1, 16, 16, 2, 3, 16, 16, 4, 5, 16, 16, 6, 7, 16, 16);
    to[1] = (trellis_v32)__builtin_shufflevector(
        low, none, 8, 9, 16, 16, 10, 11, 16, 16, 12, 13, 16, 16, 14, 15, 16, 16);
    to[2] = (trellis_v32)__builtin_shufflevector(
        high, none, 0, 1, 16, 16, 2, 3, 16, 16, 4, 5, 16, 16, 6, 7, 16, 16);
    to[3] = (trellis_v32)__builtin_shufflevector(
        high, none, 8, 9, 16, 16, 10, 11, 16, 16, 12, 13, 16, 16, 14, 15, 16, 16);
}

/* As bytes, from 0 to 255 at most. */
TRELLIS_INLINE trellis_v8 trellis_packed(const trellis_v32 *v) {
#if defined(__SSE2__)
    const __m128i low = _mm_packs_epi32((__m128i)v[0], (__m128i)v[1]);
    const __m128i high = _mm_packs_epi32((__m128i)v[2], (__m128i)v[3]);
    return (trellis_v8)_mm_packus_epi16(low, high);
#elif defined(__aarch64__)
    const int16x8_t low = vcombine_s16(vqmovn_s32((int32x4_t)v[0]), vqmovn_s32((int32x4_t)v[1]));
    const int16x8_t high = vcombine_s16(vqmovn_s32((int32x4_t)v[2]), vqmovn_s32((int32x4_t)v[3]));
    return (trellis_v8)vcombine_u8(vqmovun_s16(low), vqmovun_s16(high));
#else
    const v128_t low = wasm_i16x8_narrow_i32x4((v128_t)v[0], (v128_t)v[1]);
    const v128_t high = wasm_i16x8_narrow_i32x4((v128_t)v[2], (v128_t)v[3]);
    return (trellis_v8)wasm_u8x16_narrow_i16x8(low, high);
#endif
}

TRELLIS_INLINE trellis_v32 trellis_times(trellis_v32 v, const int32_t multiplier) {
#if defined(__SSE2__) /* |v| is at most 2^14 */
    return (trellis_v32)_mm_madd_epi16((__m128i)v, _mm_set1_epi32(multiplier & 0xffff));
#else
    return v * multiplier;
#endif
}

/* Sums become bytes, `some` of them. */
TRELLIS_INLINE void trellis_put8(
    const trellis_strip *s, trellis_v32 *sum, const uint32_t first, const uint32_t some
) {
    const trellis_rescale *r = s->how;
    const uint32_t column = s->loop->column;
    const int32_t before = r->before, after = r->after, multiplier = s->multiplier;
    int32_t offset = r->offset;
    uint8_t lane[16];
    trellis_v8 v;
    if (!s->extra) offset += r->beside * r->absent;
    for (int k = 0; k < 4; k++)
        sum[k] = trellis_times(sum[k] >> before, multiplier) + offset;
    if (s->extra) {
        trellis_v32 extra[4];
        if (column == 1) memcpy(&v, s->extra + first, sizeof v);
        else {
            for (uint32_t i = 0; i < 16; i++)
                lane[i] = i < some ? s->extra[(first + i) * column] : 0;
            memcpy(&v, lane, sizeof v);
        }
        trellis_widened(v, extra);
        for (int k = 0; k < 4; k++) sum[k] += extra[k] * r->beside;
    }
    for (int k = 0; k < 4; k++) sum[k] >>= after;
    const trellis_v8 none = {0}, low = none + r->low, high = none + r->high;
    v = trellis_larger(trellis_packed(sum), low);
    v = ~trellis_larger(~v, ~high);
    if (column == 1 && some == 16 && !r->table) {
        memcpy(s->to + first, &v, sizeof v);
        return;
    }
    memcpy(lane, &v, sizeof v);
    if (r->table)
        for (uint32_t i = 0; i < some; i++) lane[i] = r->table[lane[i]];
    for (uint32_t i = 0; i < some; i++) s->to[(first + i) * column] = lane[i];
}

/* `count` vectors of 16 positions, of the last one `last`. `count` and `column` are known when it is
 * compiled. */
TRELLIS_INLINE void trellis_some8(
    const trellis_strip *s, const uint32_t count, const uint32_t column, const uint32_t last
) {
    trellis_v32 sum[4 * 4];
    const trellis_v32 none = {0};
    for (uint32_t k = 0; k < 4 * count; k++) sum[k] = none + s->bias;
    for (const uint32_t *tap = s->taps; tap != s->end; tap += 2) {
        const uint8_t *a = s->from + (tap[0] >> 8), *b = s->from + (tap[1] >> 8);
        const int32_t v = (int8_t)tap[0], w = (int8_t)tap[1];
        for (uint32_t i = 0; i < count; i++)
            trellis_two(
                sum + 4 * i, trellis_bytes_at(a + 16 * column * i, column),
                trellis_bytes_at(b + 16 * column * i, column), v, w);
    }
    for (uint32_t i = 0; i < count; i++)
        trellis_put8(s, sum + 4 * i, 16 * i, i == count - 1 ? last : 16);
}

static TRELLIS_APART void trellis_near8(const trellis_strip *s, uint32_t count, uint32_t last) {
    if (count == 1) trellis_some8(s, 1, 1, last);
    else if (count == 2) trellis_some8(s, 2, 1, last);
    else trellis_some8(s, 3, 1, last);
}

static TRELLIS_APART void trellis_halved8(const trellis_strip *s, uint32_t count, uint32_t last) {
    if (count == 1) trellis_some8(s, 1, 2, last);
    else trellis_some8(s, 2, 2, last);
}

#ifndef TRELLIS_NO_PEAKS
static TRELLIS_APART void trellis_peaks8(const trellis_strip *s, uint32_t last) {
    trellis_v32 sum[4];
    trellis_v8 most = {0};
    for (const uint32_t *tap = s->taps; tap != s->end; tap++) {
        const uint8_t *from = s->from + (*tap >> 8);
        most = trellis_larger(
            most, s->loop->step_column == 1 ? trellis_bytes_at(from, 1) : trellis_bytes_at(from, 2));
    }
    trellis_widened(most, sum);
    for (int k = 0; k < 4; k++) sum[k] += s->bias;
    trellis_put8(s, sum, 0, last);
}
#endif
#endif

/* One position after another, any distance apart. */
static void trellis_each8(const trellis_strip *s, uint32_t count) {
    const uint32_t in = s->loop->step_column, out = s->loop->column;
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *from = s->from + i * in;
        int32_t sum = 0;
#ifndef TRELLIS_NO_PEAKS
        if (s->loop->kind == TRELLIS_PEAK) {
            for (const uint32_t *tap = s->taps; tap != s->end; tap++)
                sum = from[*tap >> 8] > sum ? from[*tap >> 8] : sum;
        } else
#endif
            for (const uint32_t *tap = s->taps; tap != s->end; tap++)
                sum += (int8_t)*tap * from[*tap >> 8];
        s->to[i * out] = trellis_rescaled(
            s->how, sum + s->bias, s->multiplier, s->extra ? s->extra[i * out] : s->how->absent);
    }
}

#if TRELLIS_LANES8 == 1
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 8
#define TRELLIS_UNROLL _Pragma("GCC unroll 8")
#elif defined(__clang__)
#define TRELLIS_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TRELLIS_UNROLL
#endif

/* `count` positions, `in` apart, both known when it is compiled: their sums stay in registers. */
TRELLIS_INLINE void trellis_few8(const trellis_strip *s, const uint32_t count, const uint32_t in) {
    const uint32_t out = s->loop->column;
    const uint32_t *tap = s->taps, *const end = s->end;
    const uint8_t *const from = s->from;
    int32_t sum[8];
    TRELLIS_UNROLL
    for (uint32_t i = 0; i < count; i++) sum[i] = s->bias;
    for (; tap != end; tap++) {
        const uint8_t *x = from + (*tap >> 8);
        const int32_t w = (int8_t)*tap;
        TRELLIS_UNROLL
        for (uint32_t i = 0; i < count; i++) sum[i] += w * x[i * in];
    }
    /* Copies: else each would be read again after each byte that is written. */
    const trellis_rescale how = *s->how;
    const uint8_t *const extra = s->extra;
    uint8_t *const to = s->to;
    const int32_t multiplier = s->multiplier;
    const int32_t offset = how.offset + (extra ? 0 : how.beside * how.absent);
    TRELLIS_UNROLL
    for (uint32_t i = 0; i < count; i++) {
        int32_t v = (sum[i] >> how.before) * multiplier + offset;
        if (extra) v += how.beside * extra[i * out];
        v >>= how.after;
        v = v < how.low ? how.low : v > how.high ? how.high : v;
        to[i * out] = how.table ? how.table[v] : (uint8_t)v;
    }
}

static TRELLIS_APART void trellis_near8(const trellis_strip *s, uint32_t count) {
    if (count == 8) trellis_few8(s, 8, 1);
    else if (count == 4) trellis_few8(s, 4, 1);
    else trellis_few8(s, 2, 1);
}

static TRELLIS_APART void trellis_halved8(const trellis_strip *s, uint32_t count) {
    if (count == 8) trellis_few8(s, 8, 2);
    else if (count == 4) trellis_few8(s, 4, 2);
    else trellis_few8(s, 2, 2);
}
#endif

static void trellis_strip_narrow(const trellis_strip *all, uint32_t count) {
    trellis_strip s = *all;
    const uint32_t in = s.loop->step_column, out = s.loop->column;
    while (count) {
        uint32_t some;
#if TRELLIS_LANES8 > 1
        if (in > 2) {
            trellis_each8(&s, count);
            return;
        }
        const uint32_t most = s.loop->kind == TRELLIS_PEAK ? 1 : in == 1 ? 3 : 2;
        uint32_t vectors = (count + 15) / 16;
        if (vectors > most) vectors = most;
        some = count < 16 * vectors ? count : 16 * vectors;
        const uint32_t last = some - 16 * (vectors - 1);
#ifndef TRELLIS_NO_PEAKS
        if (s.loop->kind == TRELLIS_PEAK) trellis_peaks8(&s, last);
        else
#endif
        if (in == 1) trellis_near8(&s, vectors, last);
        else trellis_halved8(&s, vectors, last);
#else
        if (s.loop->kind == TRELLIS_PEAK || in > 2) {
            trellis_each8(&s, count);
            return;
        }
        some = count > 7 ? 8 : count > 3 ? 4 : count > 1 ? 2 : 1;
        if (some == 1) trellis_each8(&s, 1);
        else if (in == 1) trellis_near8(&s, some);
        else trellis_halved8(&s, some);
#endif
        count -= some;
        s.from += some * in;
        s.to += some * out;
        if (s.extra) s.extra += some * out;
    }
}

#ifdef TRELLIS_WIDE8
static void trellis_strip_run(const trellis_strip *s, uint32_t count);
#else
#define trellis_strip_run trellis_strip_narrow
#endif

static void trellis_plane8(const trellis_strip *all) {
    const trellis_loop *l = all->loop;
    uint32_t rows = l->height, width = l->width;
    if (width == 1 && rows == 1) {
        trellis_each8(all, 1);
        return;
    }
    if (rows > 1 && l->step_column == 1 && l->column == 1 && l->step_row == l->row
        && l->row == width + l->gap) { /* one long row; its gaps become zero again */
        width += (rows - 1) * l->row;
        rows = 1;
    }
    trellis_strip s = *all;
    for (uint32_t y = 0; y < rows; y++) {
        s.from = all->from + y * l->step_row;
        s.to = all->to + y * l->row;
        if (s.extra) s.extra = all->extra + y * l->row;
        trellis_strip_run(&s, width);
    }
}

#ifndef TRELLIS_NO_MEANS
/* The sum of bytes side by side, eight at a time. */
static inline uint32_t trellis_total8(const uint8_t *from, uint32_t count) {
    uint32_t sum = 0;
    for (; count >= 8; count -= 8, from += 8) {
#if TRELLIS_LANES8 > 1 && defined(__SSE2__)
        const __m128i v = _mm_loadl_epi64((const void *)from);
        sum += (uint32_t)_mm_cvtsi128_si32(_mm_sad_epu8(v, _mm_setzero_si128()));
#else
        const uint64_t every = 0x00ff00ff00ff00ffu; /* each in a half of two of them */
        uint64_t v;
        memcpy(&v, from, sizeof v);
        sum += (uint32_t)(((v & every) + (v >> 8 & every)) * 0x0001000100010001u >> 48);
#endif
    }
    for (; count; count--) sum += *from++;
    return sum;
}

/* The sum over a window, for each position. */
static void trellis_mean8(const trellis_strip *s) {
    const trellis_loop *l = s->loop;
    for (uint32_t y = 0; y < l->height; y++)
        for (uint32_t x = 0; x < l->width; x++) {
            const uint8_t *from = s->from + y * l->step_row + x * l->step_column;
            const uint32_t to = y * l->row + x * l->column;
            int32_t sum = s->bias;
            for (uint32_t r = 0; r < l->window_height; r++, from += l->reach_row) {
                if (l->reach_column == 1) sum += (int32_t)trellis_total8(from, l->window_width);
                else
                    for (uint32_t i = 0; i < l->window_width; i++)
                        sum += from[i * l->reach_column];
            }
            s->to[to] = trellis_rescaled(
                s->how, sum, s->multiplier, s->extra ? s->extra[to] : s->how->absent);
        }
}

#endif
/* A few bytes: less than a call takes. */
static inline void trellis_fill8(uint8_t *to, uint32_t count, uint8_t zero) {
    const uint64_t eight = 0x0101010101010101u * zero;
    if (count < 8) {
        for (uint32_t i = 0; i < count; i++) to[i] = zero;
        return;
    }
    for (uint32_t i = 0; i < count - 8; i += 8) memcpy(to + i, &eight, sizeof eight);
    memcpy(to + count - 8, &eight, sizeof eight);
}

/* Zeros around a plane: in the gap behind each row, below, and before the first. */
static void trellis_clear8(const trellis_loop *l, uint8_t *to, int first, uint8_t zero) {
    const uint32_t pitch = (uint32_t)l->grid_width + l->gap, below = l->rows * pitch;
    if (first) trellis_fill8(to - (below + l->gap), below + l->gap, zero);
    uint8_t *gap = to + l->grid_width;
    if (l->gap == 1)
        for (uint32_t y = 1; y < l->grid_height; y++, gap += pitch) *gap = zero;
    else
        for (uint32_t y = 1; y < l->grid_height; y++, gap += pitch)
            trellis_fill8(gap, l->gap, zero);
    trellis_fill8(gap, l->gap + below, zero);
}

#ifdef TRELLIS_DECODED
static const uint32_t *trellis_taps8(
    const trellis_loop *l, trellis_loop_cursor *at, uint32_t *list, const uint32_t **end
) {
    const uint32_t *taps = at->words;
    (void)l, (void)list;
    *end = at->words = taps + *at->fan++;
    return taps;
}
#else
/* A tap is stored as its distance from the one before, less one, in the list of all taps that a
 * dense layer has; 255 is that far and no tap. Written to `list`, which has room for a channel's. */
static const uint32_t *trellis_taps8(
    const trellis_loop *l, trellis_loop_cursor *at, uint32_t *list, const uint32_t **end
) {
    const uint32_t fan = *at->fan++, width = l->window_width;
    const uint32_t entries = (uint32_t)l->window_height * width;
    const int several = !l->shared && l->sources > 1;
    uint32_t flat = 0, *to = list;
    for (uint32_t t = 0; t < fan; t++, flat++) {
        while (*at->gaps == 255) {
            flat += 255;
            at->gaps++;
        }
        flat += *at->gaps++;
        const uint32_t plane = several ? flat / entries : 0, inside = flat - plane * entries;
        const uint32_t i = inside / width;
        const uint32_t place = (l->shared ? 0u : (uint32_t)at->sources[plane])
                               + i * l->reach_row + (inside - i * width) * l->reach_column;
        *to++ = place << 8 | (uint8_t)(l->shared ? 1 : *at->weights++);
    }
    for (; (to - list) % TRELLIS_TOGETHER && l->kind != TRELLIS_PEAK; to++) *to = *list & ~255u;
    *end = to;
    return list;
}
#endif

static void trellis_loop_run8(
    const trellis_loop *l, const trellis_rescale *how, trellis_loop_cursor *at, uint8_t *x,
    uint32_t *list
) {
    trellis_strip s;
    s.loop = l;
    s.how = how;
    s.taps = s.end = NULL;
    s.mapped = NULL;
    if (l->shared && l->kind != TRELLIS_MEAN) s.taps = trellis_taps8(l, at, list, &s.end);
    for (uint32_t c = 0; c < l->channels; c++) {
        uint8_t *const to = x + l->out + c * l->plane;
        if (!l->shared) s.taps = trellis_taps8(l, at, list, &s.end);
        s.multiplier = *at->multiplier++;
        s.bias = *at->offset++;
        s.from = l->shared ? x + at->sources[c] : x;
        s.extra = NULL;
        if (l->extra && *at->extras++) s.extra = x + at->extras[-1];
#ifdef TRELLIS_DECODED
        if (at->mapped) s.mapped = at->mapped[c];
#endif
        s.to = to;
#ifndef TRELLIS_NO_MEANS
        if (l->kind == TRELLIS_MEAN) trellis_mean8(&s);
        else
#endif
            trellis_plane8(&s);
        if (l->rows || l->gap) trellis_clear8(l, to, c == 0, how->zero);
    }
    at->sources += l->sources;
}
