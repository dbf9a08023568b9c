/* Reads the loops of a .trellis file: see loops.h. Only for reader.c, whose functions it uses.
 * Generated and run-time code of Trellis may be used under any licence.
 */
#ifndef TRELLIS_LOOP_READER_H
#define TRELLIS_LOOP_READER_H

enum { LOOP_SHARED = 4, LOOP_BORDERED = 8, LOOP_EXTRAS = 16 };

typedef struct {
    trellis_loop loop;
    uint32_t flags, taps;
    const unsigned char *biases, *scales, *weights;
    whole_head whole;
} loop_head;

/* The head of a loop, and where its values lie: what is wrong with either makes `b` bad. */
static loop_head read_loop_head(trellis_bytes *b, uint32_t values) {
    loop_head h;
    memset(&h, 0, sizeof h);
    trellis_loop *l = &h.loop;
    const uint32_t kind = trellis_u8(b), act = trellis_u8(b);
    uint32_t number[19] = {0};
    h.flags = trellis_u8(b);
    if (trellis_u8(b) != 0) b->bad = 1;
    l->kind = (uint8_t)kind;
    l->act = (uint8_t)act;
    l->shared = (h.flags & LOOP_SHARED) != 0;
    l->extra = (h.flags & LOOP_EXTRAS) != 0;
    l->biased = l->scaled = 1;
    l->a = trellis_float(trellis_u32(b));
    l->b = trellis_float(trellis_u32(b));
    for (int i = 0; i < ((h.flags & LOOP_BORDERED) ? 19 : 15); i++) {
        number[i] = trellis_varint(b);
        if (number[i] > TRELLIS_MOST_UNITS) b->bad = 1;
    }
    l->channels = number[0];
    l->height = number[1];
    l->width = number[2];
    l->out = number[3];
    l->plane = number[4];
    l->row = number[5];
    l->column = number[6];
    l->step_row = number[7];
    l->step_column = number[8];
    l->window_height = number[9];
    l->window_width = number[10];
    l->reach_row = number[11];
    l->reach_column = number[12];
    l->sources = number[13];
    h.taps = number[14];
    l->rows = number[15];
    l->gap = number[16];
    l->grid_height = number[17];
    l->grid_width = number[18];
    if (kind < TRELLIS_CONV || kind >= TRELLIS_ALL_KINDS || act >= TRELLIS_ACTIVATIONS
        || h.flags > 31u || l->a != l->a || l->b != l->b)
        b->bad = 1;
    if (!l->channels || !l->height || !l->width || !l->window_height || !l->window_width) b->bad = 1;
    if (b->bad) return h;
    const uint64_t entries = (uint64_t)l->window_height * l->window_width;
    const uint64_t plane = (uint64_t)l->height * l->width;
    const uint64_t most = 8 * ((uint64_t)b->left + 64);
    if (plane > TRELLIS_MOST_UNITS || plane * l->channels > TRELLIS_MOST_UNITS
        || entries > TRELLIS_MOST_UNITS || entries * l->sources > TRELLIS_MOST_UNITS
        || l->channels > most || l->sources > most || h.taps > most)
        b->bad = 1;
    if (l->shared) {
        if (l->sources != l->channels || (h.taps == 0) != (kind == TRELLIS_MEAN)) b->bad = 1;
    } else if (kind != TRELLIS_CONV || (h.taps && !l->sources)) b->bad = 1;
    if ((h.flags & LOOP_BORDERED)
        && ((uint64_t)l->plane != ((uint64_t)l->grid_height + l->rows) * (l->grid_width + l->gap)
            || (!l->rows && !l->gap)))
        b->bad = 1;
    if (values == VALUES_WHOLE) {
        if (act || (h.flags & (FLAG_BIASED | FLAG_SCALED))) b->bad = 1;
        h.whole = read_whole_head(b, l->channels);
    }
    if (h.flags & FLAG_BIASED) h.biases = trellis_take(b, 4 * (size_t)l->channels);
    if (h.flags & FLAG_SCALED) h.scales = trellis_take(b, (l->shared ? 4 : 2) * (size_t)l->channels);
    if (!l->shared) h.weights = trellis_take(b, value_size(values) * (size_t)h.taps);
    return h;
}

/* Addresses by their first, a common divisor and the distances by it; each below `size`. */
static void read_places(trellis_bytes *b, uint32_t count, uint32_t *to, uint32_t size) {
    int64_t place = trellis_varint(b);
    const int64_t unit = trellis_varint(b);
    trellis_rice gaps = trellis_stream(b, count - 1);
    for (uint32_t i = 0; i < count && !b->bad; i++) {
        if (i > 0) place += (trellis_unzigzag(trellis_code(&gaps)) + 1) * unit;
        keep(b, &to[i], place, size);
    }
    if (unit > (int64_t)TRELLIS_MOST_UNITS) b->bad = 1;
    trellis_over(&gaps);
}

/* Whether all addresses of planes are within memory, and of the wanted state. */
static int check_plane(
    const building *m, uint32_t size, uint64_t first, const trellis_loop *l, uint64_t row,
    uint64_t column, unsigned wanted
) {
    for (uint64_t y = 0; y < l->height; y++)
        for (uint64_t x = 0; x < l->width; x++) {
            const uint64_t at = first + y * row + x * column;
            if (at >= size || m->state[at] != wanted) return 0;
        }
    return 1;
}

/* Marks a unit as written by this loop or, `after` it, as written. */
static int write_unit(building *m, uint64_t at, uint32_t inputs, uint32_t size, int after) {
    if (at < inputs || at >= size || (!after && (m->state[at] & 2u))) return 0;
    m->state[at] = (unsigned char)(after ? 1u : m->state[at] | 2u);
    return 1;
}

/* Marks what a loop writes: its positions, and the zeros around its planes. */
static int write_loop(
    building *m, const trellis_loop *l, uint32_t inputs, uint32_t size, int after
) {
    for (uint64_t c = 0; c < l->channels; c++)
        for (uint64_t y = 0; y < l->height; y++)
            for (uint64_t x = 0; x < l->width; x++)
                if (!write_unit(
                        m, l->out + c * l->plane + y * l->row + x * l->column, inputs, size, after))
                    return 0;
    const uint64_t pitch = (uint64_t)l->grid_width + l->gap, before = l->rows * pitch + l->gap;
    if (!l->rows && !l->gap) return 1;
    if (before > l->out || before > size) return 0;
    for (uint64_t at = l->out - before; at < l->out; at++)
        if (!write_unit(m, at, inputs, size, after)) return 0;
    if (l->out + (uint64_t)l->channels * l->plane > size) return 0;
    for (uint64_t c = 0; c < l->channels; c++)
        for (uint64_t y = 0; y < (uint64_t)l->grid_height + l->rows; y++)
            for (uint64_t x = y < l->grid_height ? l->grid_width : 0; x < pitch; x++)
                if (!write_unit(
                        m, l->out + c * l->plane + y * pitch + x, inputs, size, after))
                    return 0;
    return 1;
}

static void check_loop(
    trellis_bytes *b, building *m, const trellis_loop *l, uint32_t inputs, uint32_t size
) {
    const uint32_t *source = m->loop_sources + m->sources, *extra = m->loop_extras + m->channels;
    m->looped += (uint64_t)l->sources * l->window_height * l->window_width
                 * ((uint64_t)l->height * l->width);
    if (m->looped > TRELLIS_MOST_LOOPED || !write_loop(m, l, inputs, size, 0)) b->bad = 1;
    for (uint32_t p = 0; p < l->sources && !b->bad; p++)
        for (uint64_t i = 0; i < l->window_height && !b->bad; i++)
            for (uint64_t j = 0; j < l->window_width && !b->bad; j++)
                if (!check_plane(
                        m, size, source[p] + i * l->reach_row + j * l->reach_column, l,
                        l->step_row, l->step_column, 1u))
                    b->bad = 1;
    for (uint32_t c = 0; l->extra && c < l->channels && !b->bad; c++) {
        const unsigned wanted = extra[c] == l->out + (uint64_t)c * l->plane ? 3u : 1u;
        if (extra[c] && !check_plane(m, size, extra[c], l, l->row, l->column, wanted)) b->bad = 1;
    }
    if (!b->bad) write_loop(m, l, inputs, size, 1);
}

/* Where each tap reads, and its weight; the fans of channels before them. */
static void read_taps(
    trellis_bytes *b, const loop_head *h, uint32_t values, const trellis_rescale *rescale, building *m
) {
    const trellis_loop *l = &h->loop;
    const uint32_t groups = l->shared ? 1 : l->channels;
    uint32_t *fan = m->loop_fan + m->fans;
    uint64_t total = h->taps;
    if (l->shared) fan[0] = h->taps;
    else {
        trellis_rice fans = trellis_stream(b, groups);
        total = 0;
        for (uint32_t c = 0; c < groups && !b->bad; c++) total += fan[c] = trellis_code(&fans);
        trellis_over(&fans);
    }
    if (total != h->taps) b->bad = 1;
    const uint64_t entries = (uint64_t)l->window_height * l->window_width;
    const uint32_t *source = m->loop_sources + m->sources;
    float *to = m->pairs + 2 * (size_t)m->taps;
    trellis_rice gaps = trellis_stream(b, h->taps);
    uint32_t term = 0;
    for (uint32_t g = 0; g < groups && !b->bad; g++) {
        const float *scale = m->loop_scale + m->channels + g;
        uint64_t flat = 0, sizes = 0;
        for (uint32_t t = 0; t < fan[g] && !b->bad; t++, flat++, to += 2, term++) {
            flat += trellis_code(&gaps);
            if (flat >= entries * (l->shared ? 1 : l->sources)) {
                b->bad = 1;
                break;
            }
            const uint64_t inside = flat % entries;
            const uint64_t at = (l->shared ? 0 : source[flat / entries])
                                + inside / l->window_width * l->reach_row
                                + inside % l->window_width * l->reach_column;
            const uint32_t place = (uint32_t)at; /* check_loop has looked at all of the window */
            const float w =
                l->shared ? 1.0f : value_at(h->weights + value_size(values) * term, values);
            memcpy(to, &place, sizeof place);
            to[1] = w;
            if (rescale) sizes += (uint64_t)(w < 0.0f ? -w : w);
            if (!is_finite(w) || (!l->shared && !is_finite(w * *scale))) b->bad = 1;
        }
        if (rescale && !sum_fits(rescale, sizes, m->loop_offset[m->channels + g])) b->bad = 1;
    }
    trellis_over(&gaps);
}

static const char *read_loop(
    trellis_bytes *b, uint32_t values, uint32_t inputs, uint32_t size, building *m
) {
    loop_head h = read_loop_head(b, values);
    const trellis_loop *l = &h.loop;
    if (b->bad) return "a loop is not sound";
    trellis_rescale *rescale = values == VALUES_WHOLE ? m->rescale++ : NULL;
    if (rescale) {
        read_whole(
            b, &h.whole, l->channels, rescale, m->tables, m->loop_offset + m->channels,
            m->loop_multiplier + m->channels);
        m->tables += 256;
        uint64_t sizes = l->kind == TRELLIS_PEAK ? 1 : l->shared ? h.taps : 0;
        if (l->kind == TRELLIS_MEAN) sizes = (uint64_t)l->window_height * l->window_width;
        for (uint32_t c = 0; c < l->channels && !b->bad; c++)
            if (!sum_fits(rescale, sizes, m->loop_offset[m->channels + c])) b->bad = 1;
        if (b->bad) return "a loop overflows";
    }
    for (uint32_t c = 0; c < l->channels; c++) {
        float scale = 1.0f, bias = 0.0f;
        if (h.scales && l->shared) scale = value_at(h.scales + 4 * (size_t)c, VALUES_FP32);
        else if (h.scales) {
            const unsigned char *at = h.scales + 2 * (size_t)c;
            scale = trellis_float(((uint32_t)at[0] | (uint32_t)at[1] << 8) << 16);
        }
        if (h.biases) bias = value_at(h.biases + 4 * (size_t)c, VALUES_FP32);
        if (!is_finite(scale) || !is_finite(bias)) b->bad = 1;
        m->loop_scale[m->channels + c] = scale;
        m->loop_bias[m->channels + c] = bias;
    }
    if (l->sources) read_places(b, l->sources, m->loop_sources + m->sources, size);
    if (b->bad) return "a loop has values that are not finite, or sources outside its memory";
    read_taps(b, &h, values, l->shared ? NULL : rescale, m);
    if (b->bad) return "a loop's taps are not sound";
    if (l->extra) {
        uint32_t some = 0, *extra = m->loop_extras + m->channels;
        trellis_rice real = trellis_stream(b, l->channels);
        for (uint32_t c = 0; c < l->channels && !b->bad; c++) {
            const uint32_t code = trellis_code(&real);
            if (code > 1) b->bad = 1;
            extra[c] = code;
            some += code;
        }
        trellis_over(&real);
        if (!some) b->bad = 1;
        /* Read to the end of the array, then each moved to its channel. */
        uint32_t *found = extra + l->channels;
        if (!b->bad) read_places(b, some, found, size);
        for (uint32_t c = 0; c < l->channels && !b->bad; c++)
            if (extra[c] && (extra[c] = *found++) == 0) b->bad = 1;
        if (b->bad) return "a loop adds what is not there";
    }
    check_loop(b, m, l, inputs, size);
    if (b->bad) return "a loop reads what is not computed yet, or writes twice";
    m->loop[m->loops++] = *l;
    m->channels += l->channels;
    m->sources += l->sources;
    m->taps += h.taps;
    m->fans += l->shared ? 1 : l->channels;
    return NULL;
}

/* Passes over a loop, to find the next step. */
static loop_head pass_loop(trellis_bytes *b, uint32_t values) {
    const loop_head h = read_loop_head(b, values);
    if (b->bad) return h;
    if (h.loop.sources) {
        trellis_varint(b);
        trellis_varint(b);
        trellis_stream(b, h.loop.sources - 1);
    }
    if (!h.loop.shared) trellis_stream(b, h.loop.channels);
    trellis_stream(b, h.taps);
    if (h.loop.extra) {
        trellis_stream(b, h.loop.channels);
        trellis_varint(b);
        trellis_varint(b);
        trellis_stream(b, TRELLIS_ALL);
    }
    return h;
}

static int is_loop(const trellis_bytes *b, uint32_t version) {
    return version > 1 && b->left && *b->at >= TRELLIS_CONV;
}

#endif
