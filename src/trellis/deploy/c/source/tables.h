/* A network as tables. Generated and run-time code of Trellis may be used under any licence.
 *
 * Memory x holds `size` numbers, the inputs first. Steps are computed one after another. A step
 * has groups, and a group has a fan of terms, the first of them 0, and a count of instances.
 * Instance n of a sum is
 *
 *     x[outs[n]] = act(bias[g] + scale[g] * sum over t of weights[t] * x[terms[t] + offsets[n]])
 *
 * A dot multiplies each term by x[others[t] + offsets[n]] as well; its terms lie in pairs, term
 * and other. A max takes the largest term and has no weights. Groups that follow one another with
 * the same fan and the same count are a band. All tables are read in order, once.
 */
#ifndef TRELLIS_TABLES_H
#define TRELLIS_TABLES_H

#include <stddef.h>
#include <stdint.h>

#ifndef TRELLIS_INDEX
#define TRELLIS_INDEX uint32_t
#endif
#ifndef TRELLIS_VALUE
#define TRELLIS_VALUE float
#define TRELLIS_WEIGHT(w) (w)
#endif

typedef TRELLIS_INDEX trellis_index;
typedef TRELLIS_VALUE trellis_value;

enum { TRELLIS_SUM, TRELLIS_MAX, TRELLIS_DOT, TRELLIS_KINDS };
/* Kinds of loops, which follow those of tables in a file. */
enum { TRELLIS_CONV = TRELLIS_KINDS, TRELLIS_PEAK, TRELLIS_MEAN, TRELLIS_ALL_KINDS };

typedef struct {
    uint8_t kind, act;
    uint8_t biased, scaled; /* bias, and scale, have an entry for each of its groups */
    uint8_t adds;           /* what x[outs[n]] was before, to the sum */
    float a, b;             /* of the activation */
    uint32_t bands;
} trellis_step;

typedef struct {
    trellis_index fan, count, groups;
} trellis_band;

/* A layer over planes. Tap (p, i, j) of position (y, x) reads
 *
 *     sources[p] + i * reach_row + j * reach_column + y * step_row + x * step_column
 *
 * and position (y, x) of channel c lies at out + c * plane + y * row + x * column. Where it is
 * `shared`, all channels have the same taps, and channel c reads plane c. Around each plane of
 * grid_height by grid_width are zeros: a gap behind each row, and rows between planes. */
typedef struct {
    uint8_t kind, act, shared, biased, scaled, extra;
    float a, b;
    trellis_index channels, height, width;
    trellis_index out, plane, row, column;
    trellis_index step_row, step_column;
    trellis_index window_height, window_width, reach_row, reach_column;
    trellis_index sources;
    trellis_index rows, gap, grid_height, grid_width;
} trellis_loop;

/* Where the tables of a loop begin. In 8 bits, offset and multiplier stand for bias and scale. */
typedef struct {
#ifdef TRELLIS_DECODED
    const float *pairs;
#else
    const uint8_t *gaps;
    const trellis_value *weights;
#endif
    const trellis_index *fan, *sources, *extras;
#ifndef TRELLIS_INT8
    const float *bias, *scale;
#endif
#ifdef TRELLIS_DECODED
    const uint32_t *words; /* in 8 bits, in place of pairs */
    const uint8_t *const *mapped; /* of each channel; see int8_loops.h */
#endif
#if defined(TRELLIS_DECODED) || defined(TRELLIS_INT8)
    const int32_t *offset;
    const int16_t *multiplier;
#endif
} trellis_loop_cursor;

#if defined(TRELLIS_DECODED) || defined(TRELLIS_INT8)
/* Arithmetic in 8 bits: how the sums of a step become bytes. See int8.h. */
typedef struct {
    uint8_t before, after, low, high, zero, absent;
    int32_t beside, offset;
    const uint8_t *table; /* of 256 bytes, or NULL */
} trellis_rescale;

/* Where the tables of a step begin, in 8 bits. */
typedef struct {
    const trellis_index *terms, *offsets, *outs;
    const int8_t *weights;
    const int32_t *offset;
    const int16_t *multiplier;
} trellis_rows_cursor;
#endif

#ifndef TRELLIS_INT8
typedef struct {
    uint32_t inputs, outputs, size, steps;
    const trellis_step *step;
    const trellis_band *band;
    const float *bias, *scale;
    const trellis_index *terms;
    const trellis_value *weights;
    const trellis_index *offsets, *outs;
    const trellis_index *results;
#ifdef TRELLIS_LOOPS
    const trellis_loop *loop;
    trellis_loop_cursor loops;
#endif
} trellis_tables;
#endif

#ifdef TRELLIS_DECODED
/* The loops of a file, and their tables one after another. */
typedef struct {
    uint32_t count;
    const trellis_loop *loop;
    const float *pairs; /* of each tap: where it reads, as bits, and its weight */
    const uint32_t *fan, *sources, *extras;
    const float *bias, *scale;
} trellis_looped;

#endif
#endif
