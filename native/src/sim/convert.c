/* cvt and setp: conversions between all types, comparisons to predicates. */
#include "numbers.h"
#include "state.h"

/* Flags of a conversion: how to round, and whether to saturate. */
enum { TO_NEAREST = 0, TO_ZERO = 1, DOWN = 2, UP = 3, AWAY = 4, ROUNDING = 7, INTEGRAL = 8, SATURATE = 16, RELU = 32 };

static int is_float(sim_type type)
{
    return type == T_F16 || type == T_BF16 || type == T_F32 || type == T_F64 || type == T_TF32;
}

static int is_signed(sim_type type) { return type == T_S8 || type == T_S16 || type == T_S32 || type == T_S64; }

static uint32_t bits_in(sim_type type)
{
    switch (type) {
    case T_B8: case T_U8: case T_S8: return 8;
    case T_B16: case T_U16: case T_S16: case T_F16: case T_BF16: return 16;
    case T_B64: case T_U64: case T_S64: case T_F64: return 64;
    default: return 32;
    }
}

static double float_value(sim_type type, uint64_t bits)
{
    switch (type) {
    case T_F16: return f16_value((uint32_t)bits & 0xffff);
    case T_BF16: return bf16_value((uint32_t)bits & 0xffff);
    case T_F64: return f64_of(bits);
    default: return f32_of((uint32_t)bits);
    }
}

/* To a float that holds the value or its neighbours; f32 from f64 by the mode. */
static uint64_t float_bits(sim_type type, double value, uint32_t mode)
{
    switch (type) {
    case T_F16: return f16_bits(value);
    case T_BF16: return bf16_bits(value);
    case T_F64: return bits_of_f64(value);
    case T_TF32: { /* round half away from zero to ten bits of fraction */
        uint32_t bits = bits_of((float)value);
        if ((bits & 0x7f800000u) == 0x7f800000u)
            return bits;
        return (bits + 0x1000u) & ~0x1fffu;
    }
    default: {
        float near = (float)value;
        if (mode == TO_ZERO && fabs((double)near) > fabs(value))
            near = nextafterf(near, 0.0f);
        else if (mode == DOWN && near > value)
            near = nextafterf(near, -INFINITY);
        else if (mode == UP && near < value)
            near = nextafterf(near, INFINITY);
        return bits_of(near);
    }
    }
}

static double to_integral(double value, uint32_t mode)
{
    switch (mode) {
    case TO_ZERO: return trunc(value);
    case DOWN: return floor(value);
    case UP: return ceil(value);
    case AWAY: return round(value);
    default: return nearbyint(value);
    }
}

/* A float to an integer: what does not fit becomes the nearest that does, NaN zero. */
static uint64_t integer_bits(sim_type type, double value)
{
    uint32_t bits = bits_in(type);
    if (value != value)
        return 0;
    if (is_signed(type)) {
        double top = ldexp(1.0, (int)bits - 1);
        if (value >= top)
            return bits == 64 ? INT64_MAX : ((uint64_t)1 << (bits - 1)) - 1;
        return (uint64_t)(value <= -top ? (bits == 64 ? INT64_MIN : -((int64_t)1 << (bits - 1))) : (int64_t)value);
    }
    if (value <= 0)
        return 0;
    if (value >= ldexp(1.0, (int)bits))
        return bits == 64 ? ~(uint64_t)0 : ((uint64_t)1 << bits) - 1;
    return (uint64_t)value;
}

static uint64_t extended(sim_type type, uint64_t bits)
{
    switch (bits_in(type)) {
    case 8: return is_signed(type) ? (uint64_t)(int64_t)(int8_t)bits : (uint8_t)bits;
    case 16: return is_signed(type) ? (uint64_t)(int64_t)(int16_t)bits : (uint16_t)bits;
    case 32: return is_signed(type) ? (uint64_t)(int64_t)(int32_t)bits : (uint32_t)bits;
    default: return bits;
    }
}

static uint64_t saturated(sim_type to, sim_type from, uint64_t value)
{
    uint32_t bits = bits_in(to);
    if (bits == 64)
        return value;
    int64_t low = is_signed(to) ? -((int64_t)1 << (bits - 1)) : 0;
    int64_t high = is_signed(to) ? ((int64_t)1 << (bits - 1)) - 1 : ((int64_t)1 << bits) - 1;
    if (!is_signed(from))
        return value > (uint64_t)high ? (uint64_t)high : value;
    int64_t number = (int64_t)value;
    return (uint64_t)(number < low ? low : number > high ? high : number);
}

static uint64_t convert(sim_type to, sim_type from, uint32_t flags, uint64_t bits)
{
    uint32_t mode = flags & ROUNDING;
    if (is_float(from)) {
        double value = float_value(from, bits);
        if (!is_float(to))
            return integer_bits(to, to_integral(value, mode));
        if (flags & INTEGRAL)
            value = copysign(to_integral(value, mode), value);
        if (flags & RELU)
            value = value > 0 ? value : 0;
        if (flags & SATURATE)
            value = value > 0 ? value < 1 ? value : 1 : 0;
        return float_bits(to, value, mode);
    }
    uint64_t value = extended(from, bits);
    if (!is_float(to))
        return extended(to, flags & SATURATE ? saturated(to, from, value) : value);
    if (to == T_F32) /* at once: through f64 it would be rounded twice */
        return bits_of(is_signed(from) ? (float)(int64_t)value : (float)value);
    return float_bits(to, is_signed(from) ? (double)(int64_t)value : (double)value, mode);
}

void sim_convert(const sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    const sim_operand *source = operand(block, at, 1);
    for (int lane = 0; lane < LANES; lane++)
        if (mask >> lane & 1)
            put_lane(warp, operand(block, at, 0), lane,
                     convert(at->type, at->from, at->flags, lane_value(block, warp, source, lane)));
}

/* --- comparisons ----------------------------------------------------------------------------------- */

enum { C_EQ, C_NE, C_LT, C_LE, C_GT, C_GE, C_NUM, C_NAN };
enum { COMPARISON = 15, UNORDERED = 16, WITH_AND = 32, WITH_OR = 64, WITH_XOR = 128 };

static int holds(uint32_t comparison, int less, int equal)
{
    switch (comparison) {
    case C_EQ: return equal;
    case C_NE: return !equal;
    case C_LT: return less;
    case C_LE: return less || equal;
    case C_GT: return !less && !equal;
    default: return !less;
    }
}

static int compare(sim_type type, uint32_t flags, uint64_t a, uint64_t b)
{
    uint32_t comparison = flags & COMPARISON;
    if (!is_float(type)) {
        uint64_t x = extended(type, a), y = extended(type, b);
        int less = is_signed(type) ? (int64_t)x < (int64_t)y : x < y;
        return holds(comparison, less, x == y);
    }
    double x = float_value(type, a), y = float_value(type, b);
    int unordered = x != x || y != y;
    if (comparison == C_NUM || comparison == C_NAN)
        return (comparison == C_NAN) == unordered;
    return unordered ? (flags & UNORDERED) != 0 : holds(comparison, x < y, x == y);
}

/* Operands: p [, q], a, b [, c]: p = (a ? b) op c and q = !(a ? b) op c. */
void sim_compare(const sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    const sim_operand *a = operand(block, at, at->results), *b = operand(block, at, at->results + 1u);
    uint32_t result = 0;
    for (int lane = 0; lane < LANES; lane++)
        if (mask >> lane & 1 &&
            compare(at->type, at->flags, lane_value(block, warp, a, lane), lane_value(block, warp, b, lane)))
            result |= (uint32_t)1 << lane;
    uint32_t other = ~result;
    if (at->operands > at->results + 2u) {
        uint32_t c = predicate(block, warp, operand(block, at, at->results + 2u));
        result = at->flags & WITH_AND ? result & c : at->flags & WITH_OR ? result | c : result ^ c;
        other = at->flags & WITH_AND ? other & c : at->flags & WITH_OR ? other | c : other ^ c;
    }
    put_predicate(warp, operand(block, at, 0), result, mask);
    if (at->results > 1)
        put_predicate(warp, operand(block, at, 1), other, mask);
}
