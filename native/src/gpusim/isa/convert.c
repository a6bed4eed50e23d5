/* cvt: conversions between all types, each rounded once by its mode. */
#include "gpusim/state.h"

static double convert_float_value(sim_type type, uint64_t bits)
{
    switch (type) {
    case T_F16:
        return f16_value((uint32_t)bits & 0xffff);
    case T_BF16:
        return bf16_value((uint32_t)bits & 0xffff);
    case T_F64:
        return f64_of(bits);
    default:
        return f32_of((uint32_t)bits);
    }
}

static float_format convert_format_of(sim_type type)
{
    switch (type) {
    case T_F16:
        return F16_FORMAT;
    case T_BF16:
        return BF16_FORMAT;
    case T_TF32:
        return TF32_FORMAT;
    case T_F64:
        return F64_FORMAT;
    default:
        return F32_FORMAT;
    }
}

static uint32_t convert_bits_in(sim_type type)
{
    return 8 * bytes_of(type);
}

static uint64_t convert_nan_of(sim_type type)
{
    return type == T_F16 || type == T_BF16 ? NAN_HALF
           : type == T_F64                 ? 0x7ff8000000000000u
                                           : NAN_F32;
}

/* Sign and magnitude together; tf32 is the upper part of an f32. */
static uint64_t convert_with_sign(sim_type type, int negative, uint64_t magnitude)
{
    if (type == T_TF32)
        magnitude <<= 13;
    return magnitude | (uint64_t)(negative != 0) << (convert_bits_in(type) - 1);
}

/* Conversions of NaN, as observed on an H200: PTX leaves them undefined. */
static uint64_t convert_nan(sim_type to, sim_type from, uint32_t flags, uint64_t bits)
{
    if (flags & (CONVERT_INTEGRAL | CONVERT_RELU))
        return convert_nan_of(to);
    if (from == T_F32 && to == T_F32 && !(flags & CONVERT_FLUSH))
        return bits;
    if (from == T_BF16 && to == T_F32)
        return bits << 16 & 0xffff0000u;
    if (from == T_F64 && to != T_F64) {
        uint64_t quiet = to == T_F16 ? 0x7e00u : to == T_BF16 ? 0x7fc0u : 0x7fc00000u;
        return quiet | (bits >> 63) << (convert_bits_in(to) - 1);
    }
    if (to == T_TF32) /* rounded away from zero, it is truncated, even if that makes it infinite */
        return (flags & CONVERT_ROUNDING) == ROUND_AWAY ? bits & 0xffffe000u
                                                        : NAN_F32 & 0xffffe000u;
    return convert_nan_of(to);
}

static uint64_t convert_float_bits(sim_type type, double value, uint32_t flags)
{
    float_format format = convert_format_of(type);
    uint64_t magnitude = round_f64(format, value, (int)(flags & CONVERT_ROUNDING));
    uint64_t infinite = (uint64_t)(2 * format.bias + 1) << format.fraction;
    if (flags & CONVERT_FINITE && magnitude == infinite)
        magnitude--;
    if (flags & CONVERT_FLUSH && type == T_F32 && magnitude < 0x00800000u)
        magnitude = 0;
    return convert_with_sign(type, signbit(value), magnitude);
}

static double convert_to_integral(double value, uint32_t mode)
{
    switch (mode) {
    case ROUND_ZERO:
        return trunc(value);
    case ROUND_DOWN:
        return floor(value);
    case ROUND_UP:
        return ceil(value);
    case ROUND_AWAY:
        return round(value);
    default:
        return nearbyint(value);
    }
}

static uint64_t convert_extended(sim_type type, uint64_t bits)
{
    switch (bytes_of(type)) {
    case 1:
        return is_signed(type) ? (uint64_t)(int64_t)(int8_t)bits : (uint8_t)bits;
    case 2:
        return is_signed(type) ? (uint64_t)(int64_t)(int16_t)bits : (uint16_t)bits;
    case 4:
        return is_signed(type) ? (uint64_t)(int64_t)(int32_t)bits : (uint32_t)bits;
    default:
        return bits;
    }
}

/* Float to integer saturates; NaN converts to zero, but to the top bit if either type has 64
 * bits. */
static uint64_t convert_integer_bits(sim_type type, sim_type from, double value)
{
    uint32_t bits = convert_bits_in(type);
    if (value != value)
        return bits == 64 || from == T_F64 ? convert_extended(type, (uint64_t)1 << (bits - 1)) : 0;
    if (is_signed(type)) {
        double top = ldexp(1.0, (int)bits - 1);
        if (value >= top)
            return ((uint64_t)1 << (bits - 1)) - 1;
        return (uint64_t)(value <= -top ? -(int64_t)(((uint64_t)1 << (bits - 1)) - 1) - 1
                                        : (int64_t)value);
    }
    if (value <= 0)
        return 0;
    if (value >= ldexp(1.0, (int)bits))
        return bits == 64 ? ~(uint64_t)0 : ((uint64_t)1 << bits) - 1;
    return (uint64_t)value;
}

/* The nearest value that `to` has. */
static uint64_t convert_saturated(sim_type to, sim_type from, uint64_t value)
{
    uint32_t bits = convert_bits_in(to);
    uint64_t high = is_signed(to) ? ((uint64_t)1 << (bits - 1)) - 1
                    : bits == 64  ? ~(uint64_t)0
                                  : ((uint64_t)1 << bits) - 1;
    if (!is_signed(from) || (int64_t)value >= 0)
        return value > high ? high : value;
    if (!is_signed(to))
        return 0;
    int64_t low = -(int64_t)high - 1;
    return (uint64_t)((int64_t)value < low ? low : (int64_t)value);
}

static uint64_t convert(sim_type to, sim_type from, uint32_t flags, uint64_t bits)
{
    uint32_t mode = flags & CONVERT_ROUNDING;
    if (is_float(from)) {
        if (flags & CONVERT_FLUSH && from == T_F32 && !(bits & 0x7f800000u))
            bits &= 0x80000000u;
        double value = convert_float_value(from, bits);
        if (!is_float(to))
            return convert_integer_bits(to, from, convert_to_integral(value, mode));
        if (flags & CONVERT_INTEGRAL)
            value = copysign(convert_to_integral(value, mode), value),
            flags &= ~(uint32_t)CONVERT_ROUNDING;
        if (flags & CONVERT_RELU && value <= 0)
            value = 0;
        if (flags & CONVERT_SATURATE)
            value = value > 0 ? value < 1 ? value : 1 : 0;
        return value != value ? convert_nan(to, from, flags, bits)
                              : convert_float_bits(to, value, flags);
    }
    uint64_t value = convert_extended(from, bits);
    if (!is_float(to))
        return convert_extended(to, flags & CONVERT_SATURATE ? convert_saturated(to, from, value)
                                                             : value);
    int negative = is_signed(from) && (int64_t)value < 0;
    uint64_t magnitude = round_magnitude(convert_format_of(to), negative,
                                         negative ? 0 - value : value, 0, (int)mode);
    return convert_with_sign(to, negative, magnitude);
}

void sim_convert(const sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    const sim_operand *to = operand(block, at, 0), *source = operand(block, at, 1);
    for (int lane = 0; lane < LANES; lane++)
        if (mask >> lane & 1)
            put_lane(warp, to, lane,
                     convert(at->type, at->from, at->flags, lane_value(block, warp, source, lane)));
}

/* One element of a pair; fp8 saturates. */
static uint32_t convert_element(const sim_instruction *at, uint32_t bits)
{
    sim_type to = at->type, from = at->from;
    int is_fp8 = to == T_E4M3 || to == T_E5M2;
    if (!is_fp8 && from != T_E4M3 && from != T_E5M2)
        return (uint32_t)convert(to, from, at->flags, bits);
    double value = from == T_E4M3 || from == T_E5M2 ? (double)sim_fp8_value(from, bits & 0xff)
                                                    : convert_float_value(from, bits);
    if (at->flags & CONVERT_RELU && value <= 0)
        value = 0;
    if (is_fp8)
        return sim_fp8_bits(to, value);
    return value != value ? NAN_HALF : (uint32_t)convert_float_bits(to, value, 0);
}

/* Operands: d, then a and b, or a pair; `type` and `from` are those of one element. */
void sim_convert_pair(const sim_block *block, sim_warp *warp, const sim_instruction *at,
                      uint32_t mask)
{
    const uint32_t *a = narrow(block, warp, operand(block, at, 1));
    const uint32_t *b = at->operands > 2 ? narrow(block, warp, operand(block, at, 2)) : a;
    uint32_t values[LANES], width = convert_bits_in(at->type);
    uint32_t shift = at->operands > 2 ? 0 : convert_bits_in(at->from);
    for (int lane = 0; lane < LANES; lane++)
        values[lane] = convert_element(at, a[lane] >> shift) << width |
                       convert_element(at, shift ? b[lane] & ((1u << shift) - 1) : b[lane]);
    put_narrow(warp, operand(block, at, 0), values, mask);
}
