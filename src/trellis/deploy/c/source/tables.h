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

typedef struct {
    uint32_t inputs, outputs, size, steps;
    const trellis_step *step;
    const trellis_band *band;
    const float *bias, *scale;
    const trellis_index *terms;
    const trellis_value *weights;
    const trellis_index *offsets, *outs;
    const trellis_index *results;
} trellis_tables;

#endif
