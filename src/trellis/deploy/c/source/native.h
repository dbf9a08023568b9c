/* The native library: a .trellis file in memory, evaluated on the machine's vectors.
 * Generated and run-time code of Trellis may be used under any licence.
 */
#ifndef TRELLIS_NATIVE_H
#define TRELLIS_NATIVE_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define TRELLIS_API __declspec(dllexport)
#else
#define TRELLIS_API __attribute__((visibility("default")))
#endif

/* Samples side by side in a batch: as many as a vector has lanes. */
#if defined(__AVX512F__)
#define TRELLIS_ABREAST 16
#elif defined(__AVX__)
#define TRELLIS_ABREAST 8
#else
#define TRELLIS_ABREAST 4
#endif

typedef struct trellis_model trellis_model;

/* NULL where the bytes are refused, and then a reason in `why`, at most `room` bytes of it. */
TRELLIS_API trellis_model *trellis_open(
    const unsigned char *data, size_t length, char *why, size_t room);
TRELLIS_API void trellis_close(trellis_model *model);
TRELLIS_API uint32_t trellis_inputs(const trellis_model *model);
TRELLIS_API uint32_t trellis_outputs(const trellis_model *model);

/* Bytes of scratch memory that predicting this many samples at once needs. */
TRELLIS_API size_t trellis_scratch(const trellis_model *model, size_t batch);

/* `batch` inputs one after another in, as many outputs out. Models are never changed: any number
 * of threads may predict with one, each with scratch memory of its own, 64-byte aligned. */
TRELLIS_API void trellis_predict(
    const trellis_model *model, const float *inputs, size_t batch, float *outputs, void *scratch);

/* The same for inputs that nobody has looked at. Returns 0, -1 where an input is not finite (nothing
 * is computed then), or -2 where an output is not. */
TRELLIS_API int trellis_checked(
    const trellis_model *model, const float *inputs, size_t batch, float *outputs, void *scratch);

/* A recording as an input. See chunk.h; with a body, turn.h; with bones (so many pairs of joints, and
 * their length), size.h; with a table, cosine.h, which needs 3 * chunks numbers of work memory; to
 * follow the roots, follow.h.
 * Returns 0, or -1 where there is nothing to chunk. */
TRELLIS_API int trellis_recorded(
    const float *recording, size_t frames, size_t joints, size_t chunks, const unsigned *roots,
    size_t count, float scale, float *input, const unsigned *body, const unsigned *bones,
    size_t bone_count, float length, const float *table, float *work, int follow);

#endif
