/* The judge of `sweep.py`: results of f32 functions against the f64 functions of libm.
 *
 * In: results for the bit patterns first, first + stride, ... Out: the worst error and counts of
 * wrong special values, accumulated into a report that the caller owns. No state, any thread.
 * libm's f64 error is below 1e-15, a hundred-millionth of an ulp of
 * f32. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct report {
    double ulp;         /* the worst error of finite results, in ulp of the exact one */
    uint64_t at;        /* the bit pattern of the argument that has it */
    uint64_t nan;       /* NaN where a number is right, or the other way round */
    uint64_t inf;       /* infinite where finite is right, the other way round, or the wrong sign */
    uint64_t zero;      /* a zero of the wrong sign */
    uint64_t subnormal; /* more than one ulp off where a subnormal is right */
};

static inline float as_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* 1 / ulp of f32 at the size of x: 2**(23 - e), where e is at least that of the least normal. */
static inline double per_ulp(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int64_t exponent = (int64_t)(bits >> 52 & 0x7ff) - 1023;
    exponent = exponent < -126 ? -126 : exponent;
    bits = (uint64_t)(1023 + 23 - exponent) << 52;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline void judge(struct report *report, uint32_t bits, float got, double exact)
{
    float expected = (float)exact;
    if (isnan(got) || isnan(expected)) {
        report->nan += !isnan(got) != !isnan(expected);
        return;
    }
    if (isinf(got) || isinf(expected)) {
        report->inf += got != expected;
        return;
    }
    report->zero += got == 0 && expected == 0 && !signbit(got) != !signbit(expected);
    double error = fabs((double)got - exact) * per_ulp(exact);
    report->subnormal += expected != 0 && fabsf(expected) < 0x1p-126f && error > 1;
    if (error > report->ulp) {
        report->ulp = error;
        report->at = bits;
    }
}

#define CHECK(name, exact)                                                                         \
    void check_##name(struct report *report, uint32_t first, uint32_t stride, size_t count,        \
                      const float *got)                                                            \
    {                                                                                              \
        struct report local = *report;                                                             \
        for (size_t i = 0; i < count; i++) {                                                       \
            uint32_t bits = first + (uint32_t)i * stride;                                          \
            double x = as_float(bits);                                                             \
            judge(&local, bits, got[i], exact);                                                    \
        }                                                                                          \
        *report = local;                                                                           \
    }

CHECK(acos, acos(x))
CHECK(acosh, acosh(x))
CHECK(asin, asin(x))
CHECK(asinh, asinh(x))
CHECK(atan, atan(x))
CHECK(atanh, atanh(x))
CHECK(cos, cos(x))
CHECK(cosh, cosh(x))
CHECK(erf, erf(x))
CHECK(exp, exp(x))
CHECK(exp2, exp2(x))
CHECK(expm1, expm1(x))
CHECK(log, log(x))
CHECK(log10, log10(x))
CHECK(log1p, log1p(x))
CHECK(log2, log2(x))
CHECK(rsqrt, 1 / sqrt(x))
CHECK(sigmoid, 1 / (1 + exp(-x)))
CHECK(sin, sin(x))
CHECK(sinh, sinh(x))
CHECK(tan, tan(x))
CHECK(tanh, tanh(x))
