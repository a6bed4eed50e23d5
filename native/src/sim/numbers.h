/* Bits of floats, and the half types in terms of f32. */
#ifndef NOVA_SIM_NUMBERS_H
#define NOVA_SIM_NUMBERS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float f32_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

static inline double f64_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, 8);
    return value;
}

static inline uint64_t bits_of_f64(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, 8);
    return bits;
}

static inline float bf16_value(uint32_t bits) { return f32_of(bits << 16); }

static inline float f16_value(uint32_t bits)
{
    uint32_t sign = (bits & 0x8000u) << 16, rest = bits & 0x7fffu;
    if (rest >= 0x7c00u)
        return f32_of(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    return f32_of(sign | bits_of(f32_of(rest << 13) * 0x1p112f));
}

/* Rounds a double to a float format with `fraction` bits, exponents from `least` (of the smallest normal number) to
 * `most`, to nearest even; the bits are put together by the caller from sign, exponent and fraction. */
static inline double round_to(double value, int fraction, int least)
{
    int exponent;
    if (value == 0 || !isfinite(value))
        return value;
    (void)frexp(value, &exponent);
    exponent = exponent - 1 < least ? least : exponent - 1;
    double unit = ldexp(1.0, exponent - fraction);
    return nearbyint(value / unit) * unit;
}

static inline uint32_t f16_bits(double value)
{
    uint32_t sign = signbit(value) ? 0x8000u : 0;
    if (isnan(value))
        return 0x7fffu;
    double size = round_to(fabs(value), 10, -14);
    if (size >= 65536.0)
        return sign | 0x7c00u;
    if (size < 0x1p-14)
        return sign | (uint32_t)(size * 0x1p24);
    int exponent;
    double part = frexp(size, &exponent);
    return sign | (((uint32_t)(exponent + 14) << 10) + (uint32_t)(part * 2048.0 - 1024.0));
}

static inline uint32_t bf16_bits(double value)
{
    if (isnan(value))
        return 0x7fffu;
    double size = round_to(fabs(value), 7, -126);
    if (size >= 0x1p128)
        return (signbit(value) ? 0x8000u : 0) | 0x7f80u;
    return bits_of((float)copysign(size, value)) >> 16;
}

#endif
