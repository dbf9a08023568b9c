/* One sample at a time, on wide vectors: how each step is computed is settled when a model is
 * opened.
 *
 * A group whose instances lie side by side is a *run*: one weight times a vector of neighbours at
 * once, no address looked up. All other rows of a sum are cut into *slices*, as many rows abreast
 * as a vector has lanes, whose terms are gathered from memory. Rows come in order of their fan, so
 * a slice wastes little.
 *
 * With AVX-512, a gather takes far longer than picking numbers out of two registers. So a slice
 * whose rows are dense enough goes through memory in *windows* of two vectors, of which each lane
 * picks up to four terms. A window begins at the lowest term that is left: a lane that is ahead
 * waits for the others. What a lane does not need has the weight zero.
 * Generated and run-time code of Trellis may be used under any licence.
 */
#ifndef TRELLIS_PLAN_H
#define TRELLIS_PLAN_H

#include "tables.h"

/* Lanes of a vector; 0 where there are no gathers, and the plain kernel is as good. */
#if defined(__AVX512F__)
#define TRELLIS_WIDE 16
#elif defined(__AVX2__) && defined(__FMA__)
#define TRELLIS_WIDE 8
#else
#define TRELLIS_WIDE 0
#endif
#define TRELLIS_WINDOWS (TRELLIS_WIDE == 16)
#define TRELLIS_PLANNED (TRELLIS_WIDE > 0)
#define TRELLIS_ROOM (TRELLIS_PLANNED ? TRELLIS_WIDE : 1) /* of arrays that are there anyway */

typedef struct {
    uint32_t first, fan, vectors; /* reads from `first` on; so many vectors of results */
    uint32_t term;                /* where its terms and weights begin among the step's */
    float bias;
} trellis_run_of;

/* Where the results of one vector of a run go: lanes in `mask`, one after another from `out` on or,
 * where that is TRELLIS_SCATTERED, each to its own place in `outs`. */
typedef struct {
    uint32_t out;
    uint16_t mask;
    uint32_t outs[TRELLIS_ROOM];
} trellis_lanes;

typedef struct {
    uint32_t width;   /* vectors of terms that are gathered, */
    uint32_t windows; /* or else windows */
    uint32_t out;     /* the first of a vector's outs in a row, or TRELLIS_SCATTERED */
} trellis_slice;

enum { TRELLIS_PICKS = 4 }; /* terms of a lane in a window */

/* Byte t of `places` says which of the window's numbers is term t of a lane. Whole cache lines. */
typedef struct {
    uint32_t places[TRELLIS_ROOM];
    float weights[TRELLIS_PICKS * TRELLIS_ROOM];
} trellis_window;

#define TRELLIS_BEYOND 64 /* numbers behind memory that vectors of a loop may read */

#define TRELLIS_SCATTERED 0xffffffffu

typedef struct {
    const trellis_loop *loop; /* NULL of a table; else nothing but `at` follows */
    trellis_loop_cursor at;
    /* Every second number: memory from `low` on is first sorted into even and odd places, `half` of
     * each, so that a vector reads neighbours. `taps` and `split` then take the place of the file's. */
    uint32_t low, half;
    trellis_loop split;
    float *taps;
    const trellis_step *step;
    trellis_tables alone; /* the tables of this step */
    uint32_t runs, slices;
    trellis_run_of *run;
    trellis_lanes *lanes; /* of the runs' vectors, in order */
    trellis_slice *slice;
    uint16_t *near;  /* addresses of the slices' terms, where 16 bits are enough, */
    uint32_t *far;   /* or else */
    float *weights, *bias;
    uint32_t *outs;
    uint32_t *from; /* where each window of the slices begins */
    trellis_window *window; /* aligned, in `unaligned` */
    void *unaligned;
} trellis_part;

typedef struct {
    uint32_t steps;
    size_t room; /* floats of scratch memory */
    size_t sorted; /* where in it even and odd places lie */
    trellis_part *part;
} trellis_plan;

trellis_plan *trellis_planned(const trellis_tables *tables, const trellis_looped *looped); /* NULL where there is no memory */
void trellis_drop(trellis_plan *plan);
void trellis_single(const trellis_plan *plan, float *x);
void trellis_part_run(const trellis_plan *plan, const trellis_part *part, float *x); /* a step alone */

#endif
