/* Loops: layers over planes, whose weights are stored once. Include after tables.h and activation.h.
 * Generated and run-time code of Trellis may be used under any licence.
 *
 * Each plane is computed in blocks of vectors that lie in registers: every kept tap is one weight,
 * times a vector of neighbours, added to each of them. Where input and output have the same pitch, a
 * plane is one long row; what falls into the gap between rows is set to zero again.
 */
#ifndef TRELLIS_ROW /* numbers to a vector */
#if defined(__GNUC__) && (defined(__SSE2__) || defined(__ARM_NEON) || defined(__wasm_simd128__))
#define TRELLIS_ROW 4
#else
#define TRELLIS_ROW 1
#endif
#endif

#define TRELLIS_SLACK 8 /* numbers behind memory that a vector of exported C may read */

#if !defined(TRELLIS_APART) && defined(__GNUC__)
#define TRELLIS_APART __attribute__((noinline))
#elif !defined(TRELLIS_APART)
#define TRELLIS_APART
#endif
#ifdef __GNUC__
#define TRELLIS_INLINE static inline __attribute__((always_inline))
#else
#define TRELLIS_INLINE static inline
#endif
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 8
#define TRELLIS_UNROLL _Pragma("GCC unroll 8")
#elif defined(__clang__)
#define TRELLIS_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TRELLIS_UNROLL
#endif

#if TRELLIS_ROW > 1
typedef float trellis_row __attribute__((vector_size(4 * TRELLIS_ROW)));
typedef int32_t trellis_row_bits __attribute__((vector_size(4 * TRELLIS_ROW)));
#else
typedef float trellis_row;
#endif

/* Neighbours, or numbers `column` apart, of which `count` are wanted. */
TRELLIS_INLINE trellis_row trellis_row_at(
    const float *from, const uint32_t column, const uint32_t count
) {
    trellis_row v;
#if TRELLIS_ROW > 1
    if (column == 1) {
        memcpy(&v, from, sizeof v);
        return v;
    }
#if (defined(__clang__) || __GNUC__ >= 12) && TRELLIS_ROW <= 16
    if (column == 2) {
        trellis_row w;
        memcpy(&v, from, sizeof v);
        memcpy(&w, from + TRELLIS_ROW, sizeof w);
#if TRELLIS_ROW == 4
        return __builtin_shufflevector(v, w, 0, 2, 4, 6);
#elif TRELLIS_ROW == 8
        return __builtin_shufflevector(v, w, 0, 2, 4, 6, 8, 10, 12, 14);
#else
        return __builtin_shufflevector(
            v, w, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
#endif
    }
#endif
    for (uint32_t i = 0; i < TRELLIS_ROW; i++) v[i] = from[i < count ? i * column : 0];
#else
    (void)column, (void)count;
    v = *from;
#endif
    return v;
}

TRELLIS_INLINE trellis_row trellis_row_max(trellis_row a, trellis_row b) {
#if TRELLIS_ROW > 1
    const trellis_row_bits more = a > b;
    return (trellis_row)(((trellis_row_bits)a & more) | ((trellis_row_bits)b & ~more));
#else
    return a > b ? a : b;
#endif
}

TRELLIS_INLINE trellis_row trellis_row_clipped(trellis_row v) {
#if TRELLIS_ROW > 1
    return (trellis_row)((trellis_row_bits)v & (v > 0.0f));
#else
    return trellis_relu(v);
#endif
}

/* Any activation but ReLU, of what a block has stored. */
static TRELLIS_APART void trellis_finish_row(
    const trellis_loop *l, float *to, uint32_t count, uint32_t column
) {
    for (uint32_t i = 0; i < count; i++)
        to[i * column] = trellis_activate(l->act, l->a, l->b, to[i * column]);
}

TRELLIS_INLINE void trellis_row_to(float *to, trellis_row v, uint32_t count, uint32_t column) {
#if TRELLIS_ROW > 1
    if (column != 1) {
        for (uint32_t i = 0; i < count; i++) to[i * column] = v[i];
        return;
    }
    if (count == TRELLIS_ROW) {
        memcpy(to, &v, sizeof v);
        return;
    }
#if TRELLIS_ROW == 16 && defined(__AVX512F__)
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << count) - 1u), (__m512)v);
#else
    for (uint32_t i = 0; i < count; i++) to[i] = v[i];
#endif
#else
    (void)count, (void)column;
    *to = v;
#endif
}

TRELLIS_INLINE uint32_t trellis_tap_at(const float *tap) {
    uint32_t at;
    memcpy(&at, tap, sizeof at);
    return at;
}

/* What a block of a plane needs to know. */
typedef struct {
    const trellis_loop *loop;
    const float *taps, *end; /* pairs: where it reads, as bits, and its weight */
    float scale, bias;
    const float *from, *extra; /* extra: NULL for none */
    float *to;
    uint32_t in, out; /* from one vector to the next */
    uint32_t each, last;  /* numbers of a vector, and of the last one */
} trellis_block;

/* `count`, `column`, `near` (vectors follow one another) and `peak` are known when it is compiled. */
TRELLIS_INLINE void trellis_some(
    const trellis_block *b, const uint32_t count, const uint32_t column, const int near,
    const int peak
) {
    trellis_row sum[8];
    const float *tap = b->taps, *const end = b->end, *const from = b->from;
    const size_t in = near ? TRELLIS_ROW : b->in;
    const uint32_t each = b->each, last = b->last;
    if (peak) {
        const float *first = from + trellis_tap_at(tap);
        TRELLIS_UNROLL
        for (uint32_t v = 0; v < count; v++)
            sum[v] = trellis_row_at(first + v * in, column, v == count - 1 ? last : each);
        tap += 2;
    } else {
        const trellis_row none = {0};
        TRELLIS_UNROLL
        for (uint32_t v = 0; v < count; v++) sum[v] = none;
    }
    for (; tap != end; tap += 2) {
        const float *at = from + trellis_tap_at(tap);
        const float w = tap[1];
        TRELLIS_UNROLL
        for (uint32_t v = 0; v < count; v++) {
            const trellis_row x =
                trellis_row_at(at + v * in, column, v == count - 1 ? last : each);
            if (peak) sum[v] = trellis_row_max(x, sum[v]);
            else sum[v] += x * w;
        }
    }
    const float *extra = b->extra;
    const float scale = b->scale, bias = b->bias;
    const int clips = b->loop->act == TRELLIS_RELU;
    const size_t out = b->out;
    TRELLIS_UNROLL
    for (uint32_t v = 0; v < count; v++) {
        trellis_row made = sum[v] * scale + bias;
        if (extra) made += trellis_row_at(extra + v * out, 1, TRELLIS_ROW);
        if (clips) made = trellis_row_clipped(made);
        trellis_row_to(b->to + v * out, made, v == count - 1 ? last : each, b->loop->column);
    }
}

#if TRELLIS_ROW > 1
#define TRELLIS_CASES(...)                                                              \
    switch (count) {                                                                    \
    case 1: trellis_some(b, 1, __VA_ARGS__); break;                                     \
    case 2: trellis_some(b, 2, __VA_ARGS__); break;                                     \
    case 3: trellis_some(b, 3, __VA_ARGS__); break;                                     \
    case 4: trellis_some(b, 4, __VA_ARGS__); break;                                     \
    case 5: trellis_some(b, 5, __VA_ARGS__); break;                                     \
    case 6: trellis_some(b, 6, __VA_ARGS__); break;                                     \
    case 7: trellis_some(b, 7, __VA_ARGS__); break;                                     \
    default: trellis_some(b, 8, __VA_ARGS__);                                           \
    }
#else
#define TRELLIS_CASES(...)                                                              \
    switch (count) {                                                                    \
    case 1: trellis_some(b, 1, __VA_ARGS__); break;                                     \
    case 2: trellis_some(b, 2, __VA_ARGS__); break;                                     \
    case 4: trellis_some(b, 4, __VA_ARGS__); break;                                     \
    default: trellis_some(b, 8, __VA_ARGS__);                                           \
    }
#endif

static TRELLIS_APART void trellis_near(const trellis_block *b, uint32_t count) {
    TRELLIS_CASES(1, 1, 0)
}

static TRELLIS_APART void trellis_apart(const trellis_block *b, uint32_t count) {
    TRELLIS_CASES(1, 0, 0)
}

#if TRELLIS_ROW > 1
static TRELLIS_APART void trellis_halved(const trellis_block *b, uint32_t count) {
    TRELLIS_CASES(2, 0, 0)
}
#endif

#ifndef TRELLIS_NO_PEAKS
static TRELLIS_APART void trellis_peaks(const trellis_block *b, uint32_t count) {
    for (trellis_block one = *b; count; count--) {
        one.last = count == 1 ? b->last : b->each;
        trellis_some(&one, 1, b->loop->step_column, 0, 1);
        one.from += one.in;
        one.to += one.out;
        if (one.extra) one.extra += one.out;
    }
}

#endif
static void trellis_blocks(const trellis_block *b, uint32_t count) {
    const uint32_t column = b->loop->step_column;
#ifndef TRELLIS_NO_PEAKS
    if (b->loop->kind == TRELLIS_PEAK) trellis_peaks(b, count);
    else
#endif
    if (TRELLIS_ROW > 1 && column == 1 && b->in == TRELLIS_ROW) trellis_near(b, count);
    else if (TRELLIS_ROW == 1 || column == 1) {
        if (b->in == 1) trellis_near(b, count);
        else trellis_apart(b, count);
    }
#if TRELLIS_ROW > 1
    else if (column == 2) trellis_halved(b, count);
    else
        for (trellis_block one = *b; count; count--) {
            one.last = count == 1 ? b->last : b->each;
            trellis_some(&one, 1, column, 0, 0);
            one.from += one.in;
            one.to += one.out;
            if (one.extra) one.extra += one.out;
        }
#endif
    (void)column;
}

/* `count` vectors, in blocks of equal size. */
static void trellis_vectors(trellis_block *b, uint32_t count, uint32_t last) {
    while (count) {
        uint32_t some = count;
#if TRELLIS_ROW > 1
        if (some > 8) some = (some + (some + 7) / 8 - 1) / ((some + 7) / 8);
#else
        if (some > 8) some = 8;
        while (some & (some - 1)) some &= some - 1;
#endif
        b->last = some == count ? last : b->each;
        trellis_blocks(b, some);
        if (b->loop->act > TRELLIS_RELU)
            for (uint32_t v = 0; v < some; v++)
                trellis_finish_row(
                    b->loop, b->to + v * b->out, v == some - 1 ? b->last : b->each,
                    b->loop->column);
        count -= some;
        b->from += some * b->in;
        b->to += some * b->out;
        if (b->extra) b->extra += some * b->out;
    }
}

/* One position: a sum over scattered units. */
static float trellis_one(const float *tap, const float *end, const float *from) {
    float a = 0.0f, b = 0.0f, c = 0.0f, d = 0.0f;
    for (; end - tap >= 8; tap += 8) {
        a += tap[1] * from[trellis_tap_at(tap)];
        b += tap[3] * from[trellis_tap_at(tap + 2)];
        c += tap[5] * from[trellis_tap_at(tap + 4)];
        d += tap[7] * from[trellis_tap_at(tap + 6)];
    }
    for (; tap != end; tap += 2) a += tap[1] * from[trellis_tap_at(tap)];
    return (a + b) + (c + d);
}

static void trellis_plane(trellis_block *b) {
    const trellis_loop *l = b->loop;
    uint32_t rows = l->height, width = l->width, in_row = l->step_row;
    if (rows == 1 && width == 1 && l->kind == TRELLIS_CONV) {
        float v = trellis_one(b->taps, b->end, b->from) * b->scale + b->bias;
        if (b->extra) v += *b->extra;
        *b->to = trellis_activate(l->act, l->a, l->b, v);
        return;
    }
    if (rows > 1 && l->step_column == 1 && l->column == 1 && in_row == l->row
        && l->row == width + l->gap) {
        width += (rows - 1) * l->row;
        rows = 1;
    }
    if (width <= TRELLIS_ROW && rows > 1) { /* a vector a row */
        b->in = in_row;
        b->out = l->row;
        b->each = width;
        trellis_vectors(b, rows, width);
        return;
    }
    const uint32_t count = (width + TRELLIS_ROW - 1) / TRELLIS_ROW;
    const trellis_block first = *b;
    for (uint32_t r = 0; r < rows; r++) {
        b->from = first.from + r * in_row;
        b->to = first.to + r * l->row;
        if (first.extra) b->extra = first.extra + r * l->row;
        b->in = TRELLIS_ROW * l->step_column;
        b->out = TRELLIS_ROW * (uint32_t)l->column;
        b->each = TRELLIS_ROW;
        trellis_vectors(b, count, width - (count - 1) * TRELLIS_ROW);
    }
}

#ifndef TRELLIS_NO_MEANS
/* The sum over a window, for each position. */
static void trellis_mean(const trellis_block *b) {
    const trellis_loop *l = b->loop;
    for (uint32_t y = 0; y < l->height; y++)
        for (uint32_t x = 0; x < l->width; x++) {
            const float *from = b->from + y * l->step_row + x * l->step_column;
            trellis_row sum = {0};
            float rest = 0.0f;
            for (uint32_t r = 0; r < l->window_height; r++) {
                const float *at = from + r * l->reach_row;
                uint32_t i = 0;
                if (l->reach_column == 1)
                    for (; i + TRELLIS_ROW <= l->window_width; i += TRELLIS_ROW)
                        sum += trellis_row_at(at + i, 1, TRELLIS_ROW);
                for (; i < l->window_width; i++) rest += at[i * l->reach_column];
            }
#if TRELLIS_ROW > 1
            for (int i = 0; i < TRELLIS_ROW; i++) rest += sum[i];
#else
            rest += sum;
#endif
            float v = rest * b->scale + b->bias;
            if (b->extra) v += b->extra[y * l->row + x];
            b->to[y * l->row + x * l->column] = trellis_activate(l->act, l->a, l->b, v);
        }
}

#endif
/* Zeros around a plane: in the gap behind each row, below, and before the first. */
static void trellis_clear(const trellis_loop *l, float *to, int first) {
    const uint32_t pitch = (uint32_t)l->grid_width + l->gap;
    if (first) memset(to - ((uint32_t)l->rows * pitch + l->gap), 0, (l->rows * pitch + l->gap) * 4u);
    for (uint32_t y = 0; y < l->grid_height; y++)
        for (uint32_t i = 0; i < l->gap; i++) to[y * pitch + l->grid_width + i] = 0.0f;
    memset(to + l->grid_height * pitch, 0, l->rows * pitch * 4u);
}

#ifdef TRELLIS_DECODED
static const float *trellis_taps(
    const trellis_loop *l, trellis_loop_cursor *at, float *list, const float **end
) {
    const float *taps = at->pairs;
    (void)l, (void)list;
    *end = at->pairs = taps + 2 * (size_t)*at->fan++;
    return taps;
}
#else
/* A tap is stored as its distance from the one before, less one, in the list of all taps that a
 * dense layer has; 255 is that far and no tap. Written to `list`, which has room for a channel's. */
static const float *trellis_taps(
    const trellis_loop *l, trellis_loop_cursor *at, float *list, const float **end
) {
    const uint32_t fan = *at->fan++, width = l->window_width;
    const uint32_t entries = (uint32_t)l->window_height * width;
    const trellis_index none = 0, *sources = l->shared ? &none : at->sources;
    const int several = !l->shared && l->sources > 1;
    uint32_t flat = 0;
    float *to = list;
    for (uint32_t t = 0; t < fan; t++, flat++, to += 2) {
        while (*at->gaps == 255) {
            flat += 255;
            at->gaps++;
        }
        flat += *at->gaps++;
        const uint32_t plane = several ? flat / entries : 0, inside = flat - plane * entries;
        const uint32_t i = inside / width;
        const uint32_t place =
            (uint32_t)sources[plane] + i * l->reach_row + (inside - i * width) * l->reach_column;
        memcpy(to, &place, sizeof place);
        to[1] = l->shared ? 1.0f : TRELLIS_WEIGHT(*at->weights++);
    }
    *end = to;
    return list;
}
#endif

static void trellis_loop_run(
    const trellis_loop *l, trellis_loop_cursor *at, float *x, float *list
) {
    trellis_block b;
    b.loop = l;
    b.taps = b.end = NULL;
    if (l->shared && l->kind != TRELLIS_MEAN) b.taps = trellis_taps(l, at, list, &b.end);
    for (uint32_t c = 0; c < l->channels; c++) {
        float *const to = x + l->out + c * l->plane;
        if (!l->shared) b.taps = trellis_taps(l, at, list, &b.end);
        b.scale = l->scaled ? *at->scale++ : 1.0f;
        b.bias = l->biased ? *at->bias++ : 0.0f;
        b.from = l->shared ? x + at->sources[c] : x;
        b.extra = NULL;
        if (l->extra && *at->extras++) b.extra = x + at->extras[-1];
        b.to = to;
#ifndef TRELLIS_NO_MEANS
        if (l->kind == TRELLIS_MEAN) trellis_mean(&b);
        else
#endif
            trellis_plane(&b);
        if (l->rows || l->gap) trellis_clear(l, to, c == 0);
    }
    at->sources += l->sources;
}
