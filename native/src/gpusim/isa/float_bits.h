/* Bits of floats, and one rounding for every format that is narrower than f64 or that has a
 * mode. */
#ifndef NOVA_GPUSIM_ISA_FLOAT_BITS_H
#define NOVA_GPUSIM_ISA_FLOAT_BITS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "gpusim/sim.h"

/* The canonical NaN of the device. */
#define NAN_F32 0x7fffffffu
#define NAN_HALF 0x7fffu

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

static inline float bf16_value(uint32_t bits)
{
    return f32_of(bits << 16);
}

static inline float f16_value(uint32_t bits)
{
    uint32_t sign = (bits & 0x8000u) << 16, sticky = bits & 0x7fffu;
    if (sticky >= 0x7c00u)
        return f32_of(sign | 0x7f800000u | (sticky & 0x3ffu) << 13);
    return f32_of(sign | bits_of(f32_of(sticky << 13) * 0x1p112f));
}

/* A format: bits of its fraction, bias of its exponent. */
typedef struct {
    int fraction, bias;
} float_format;
static const float_format F16_FORMAT = {10, 15}, BF16_FORMAT = {7, 127}, TF32_FORMAT = {10, 127},
                          F32_FORMAT = {23, 127}, F64_FORMAT = {52, 1023};

/* The bits of `magnitude` * 2^exponent, rounded by the mode; its sign only steers the rounding. */
static inline uint64_t round_magnitude(float_format to, int negative, uint64_t magnitude,
                                       int exponent, int mode)
{
    if (magnitude == 0)
        return 0;
    int empty = __builtin_clzll(magnitude), most = exponent - empty + 63, least = 1 - to.bias;
    magnitude <<= empty;
    int shift = 63 - to.fraction + (most < least ? least - most : 0);
    uint64_t significand = shift > 63 ? 0 : magnitude >> shift;
    int half = shift > 64 ? 0 : (int)(magnitude >> (shift - 1) & 1);
    int sticky = shift > 64 || (shift == 64 ? magnitude << 1 : magnitude << (65 - shift)) != 0;
    int up = mode == ROUND_NEAREST ? half && (sticky || (significand & 1))
             : mode == ROUND_AWAY  ? half
             : mode == ROUND_DOWN  ? negative && (half || sticky)
             : mode == ROUND_UP    ? !negative && (half || sticky)
                                   : 0;
    significand += (uint64_t)up;
    uint64_t infinite = (uint64_t)(2 * to.bias + 1) << to.fraction, bits = significand;
    if (most >= least)
        bits += (uint64_t)(most + to.bias - 1) << to.fraction;
    if (bits < infinite)
        return bits;
    int stays =
        mode == ROUND_ZERO || (mode == ROUND_DOWN && !negative) || (mode == ROUND_UP && negative);
    return stays ? infinite - 1 : infinite;
}

/* The magnitude of a finite or infinite number in another format. */
static inline uint64_t round_f64(float_format to, double value, int mode)
{
    uint64_t bits = bits_of_f64(value), fraction = bits & (((uint64_t)1 << 52) - 1);
    int exponent = (int)(bits >> 52 & 0x7ff), negative = (int)(bits >> 63);
    if (exponent == 0x7ff)
        return (uint64_t)(2 * to.bias + 1) << to.fraction;
    if (exponent == 0)
        return round_magnitude(to, negative, fraction, -1074, mode);
    return round_magnitude(to, negative, fraction | (uint64_t)1 << 52, exponent - 1075, mode);
}

static inline uint32_t f16_bits(double value)
{
    if (value != value)
        return NAN_HALF;
    return (signbit(value) ? 0x8000u : 0) | (uint32_t)round_f64(F16_FORMAT, value, ROUND_NEAREST);
}

static inline uint32_t bf16_bits(double value)
{
    if (value != value)
        return NAN_HALF;
    return (signbit(value) ? 0x8000u : 0) | (uint32_t)round_f64(BF16_FORMAT, value, ROUND_NEAREST);
}

/* x + y in f64, rounded to odd: rounding that to a narrower format is as good as rounding the exact
 * sum. */
static inline double odd_sum(double x, double y)
{
    double sum = x + y;
    if (!isfinite(sum))
        return sum;
    double part = sum - x, error = (x - (sum - part)) + (y - part);
    uint64_t bits = bits_of_f64(sum);
    if (error == 0 || (bits & 1))
        return sum;
    return f64_of((error > 0) == (sum > 0) ? bits + 1 : bits - 1);
}

#endif
