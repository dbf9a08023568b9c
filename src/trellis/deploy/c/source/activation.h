/* Functions of one number. Generated and run-time code of Trellis may be used under any licence. */
#ifndef TRELLIS_ACTIVATION_H
#define TRELLIS_ACTIVATION_H

#include <math.h>
#include <stdint.h>

enum {
    TRELLIS_NONE, TRELLIS_RELU, TRELLIS_CLAMP, TRELLIS_LEAKY, TRELLIS_SIGMOID, TRELLIS_TANH,
    TRELLIS_GELU, TRELLIS_GELU_TANH, TRELLIS_SILU, TRELLIS_HARDSWISH, TRELLIS_HARDSIGMOID,
    TRELLIS_EXP, TRELLIS_RECIPROCAL, TRELLIS_RSQRT, TRELLIS_SQRT, TRELLIS_ABS, TRELLIS_ELU,
    TRELLIS_SOFTPLUS, TRELLIS_LOG, TRELLIS_ACTIVATIONS
};

static inline float trellis_clamp(float x, float low, float high) {
    return x < low ? low : x > high ? high : x;
}

/* Signs are as good as random: a branch on them would be mispredicted half of the time. Of these
 * two ways, clang makes a branch of the first and gcc of the second; WebAssembly chooses between
 * integers alone without one. */
static inline float trellis_relu(float x) {
#if !defined(__clang__) || defined(__wasm__)
    union {
        float value;
        uint32_t bits;
    } u = {x};
    u.bits &= (u.bits >> 31) - 1u;
    return u.value;
#else
    return x > 0.0f ? x : 0.0f;
#endif
}

static inline float trellis_activate(unsigned act, float a, float b, float x) {
    switch (act) {
    case TRELLIS_RELU: return trellis_relu(x);
    case TRELLIS_CLAMP: return trellis_clamp(x, a, b);
    case TRELLIS_LEAKY: return x > 0.0f ? x : a * x;
    case TRELLIS_HARDSWISH: return x * trellis_clamp(x / 6.0f + 0.5f, 0.0f, 1.0f);
    case TRELLIS_HARDSIGMOID: return trellis_clamp(x / 6.0f + 0.5f, 0.0f, 1.0f);
    case TRELLIS_RECIPROCAL: return 1.0f / x;
    case TRELLIS_ABS: return x < 0.0f ? -x : x;
#ifndef TRELLIS_NO_MATH /* a model that needs none of these links without the maths library */
    case TRELLIS_SIGMOID: return 1.0f / (1.0f + expf(-x));
    case TRELLIS_TANH: return tanhf(x);
    case TRELLIS_GELU: return 0.5f * x * (1.0f + erff(x * 0.70710678f));
    case TRELLIS_GELU_TANH:
        return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    case TRELLIS_SILU: return x / (1.0f + expf(-x));
    case TRELLIS_EXP: return expf(x);
    case TRELLIS_RSQRT: return 1.0f / sqrtf(x);
    case TRELLIS_SQRT: return sqrtf(x);
    case TRELLIS_ELU: return x > 0.0f ? x : a * expm1f(x * b);
    case TRELLIS_SOFTPLUS: {
        float y = a * x;
        return ((y > 0.0f ? y : 0.0f) + log1pf(expf(y > 0.0f ? -y : y))) / a;
    }
    case TRELLIS_LOG: return logf(x);
#endif
    default: return x;
    }
}

#endif
