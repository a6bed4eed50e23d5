/* f16 and bf16, alone and in pairs: computed in f64 and rounded once. */
#include "gpusim/isa/lanes.h"

#define HALF_OF(x) ((u32)(x) & 0xffffu)
#define H_(x) ((double)f16_value(HALF_OF(x)))
#define B_(x) ((double)bf16_value(HALF_OF(x)))

static inline double half_least(double x, double y)
{
    return x != x ? y : y != y ? x : x == y ? (signbit(x) ? x : y) : x < y ? x : y;
}

static inline double half_greatest(double x, double y)
{
    return x != x ? y : y != y ? x : x == y ? (signbit(x) ? y : x) : x > y ? x : y;
}

static inline double half_or_nan(double value, double x, double y)
{
    return x != x || y != y ? NAN : value;
}

/* A function for one number and one for two: V reads, W rounds. */
#define HALF1(N, V, W, E)                                                                          \
    static inline u32 N##_scalar(u32 a_)                                                           \
    {                                                                                              \
        double x = V(a_);                                                                          \
        return W(E);                                                                               \
    }                                                                                              \
    LANE1(N, u32, u32, N##_scalar(a))                                                              \
    LANE1(N##x2, u32, u32, N##_scalar(a) | N##_scalar(a >> 16) << 16)
#define HALF2(N, V, W, E)                                                                          \
    static inline u32 N##_scalar(u32 a_, u32 b_)                                                   \
    {                                                                                              \
        double x = V(a_), y = V(b_);                                                               \
        return W(E);                                                                               \
    }                                                                                              \
    LANE2(N, u32, u32, u32, N##_scalar(a, b))                                                      \
    LANE2(N##x2, u32, u32, u32, N##_scalar(a, b) | N##_scalar(a >> 16, b >> 16) << 16)
#define HALF3(N, V, W, E)                                                                          \
    static inline u32 N##_scalar(u32 a_, u32 b_, u32 c_)                                           \
    {                                                                                              \
        double x = V(a_), y = V(b_), z = V(c_);                                                    \
        return W(E);                                                                               \
    }                                                                                              \
    LANE3(N, u32, u32, u32, u32, N##_scalar(a, b, c))                                              \
    LANE3(N##x2, u32, u32, u32, u32,                                                               \
          N##_scalar(a, b, c) | N##_scalar(a >> 16, b >> 16, c >> 16) << 16)

#define HALF_FUNCTIONS(T, V, W)                                                                    \
    HALF2(add_##T, V, W, odd_sum(x, y))                                                            \
    HALF2(sub_##T, V, W, odd_sum(x, -y))                                                           \
    HALF2(mul_##T, V, W, x *y)                                                                     \
    HALF3(fma_##T, V, W, odd_sum(x *y, z))                                                         \
    HALF2(min_##T, V, W, half_least(x, y))                                                         \
    HALF2(max_##T, V, W, half_greatest(x, y))                                                      \
    HALF2(min_nan_##T, V, W, half_or_nan(half_least(x, y), x, y))                                  \
    HALF2(max_nan_##T, V, W, half_or_nan(half_greatest(x, y), x, y))                               \
    HALF1(ex2_##T, V, W, exp2(x))                                                                  \
    HALF1(tanh_##T, V, W, tanh(x))                                                                 \
    HALF1(neg_##T, V, W, -x)                                                                       \
    HALF1(abs_##T, V, W, fabs(x))
HALF_FUNCTIONS(f16, H_, f16_bits)
HALF_FUNCTIONS(bf16, B_, bf16_bits)

#define HALF_ROWS1(name, f, T)                                                                     \
    ROW(name "." #T, f##_##T, 16, 16), ROW(name "." #T "x2", f##_##T##x2, 32, 32)
#define HALF_ROWS2(name, f, T)                                                                     \
    ROW(name "." #T, f##_##T, 16, 16, 16), ROW(name "." #T "x2", f##_##T##x2, 32, 32, 32)
#define HALF_ROWS(T)                                                                               \
    HALF_ROWS2("add", add, T), HALF_ROWS2("sub", sub, T), HALF_ROWS2("mul", mul, T),               \
        HALF_ROWS2("min", min, T), HALF_ROWS2("max", max, T), HALF_ROWS2("min.NaN", min_nan, T),   \
        HALF_ROWS2("max.NaN", max_nan, T), ROW("fma." #T, fma_##T, 16, 16, 16, 16),                \
        ROW("fma." #T "x2", fma_##T##x2, 32, 32, 32, 32), HALF_ROWS1("ex2", ex2, T),               \
        HALF_ROWS1("tanh", tanh, T), HALF_ROWS1("neg", neg, T), HALF_ROWS1("abs", abs, T)

const lane_row NOVA_SIM_HALVES[] = {HALF_ROWS(f16), HALF_ROWS(bf16), LAST_ROW};
