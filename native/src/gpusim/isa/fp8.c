/* Floats of 8 bits: e4m3 has no infinity and one NaN, e5m2 is as IEEE 754 would have it. */
#include "gpusim/state.h"

typedef struct {
    int fraction, bias;
    double most; /* the largest finite value */
} fp8_format;

static fp8_format fp8_format_of(sim_type type)
{
    return type == T_E4M3 ? (fp8_format){3, 7, 448} : (fp8_format){2, 15, 57344};
}

float sim_fp8_value(sim_type type, uint32_t bits)
{
    fp8_format f = fp8_format_of(type);
    int exponent = (int)(bits & 0x7f) >> f.fraction, fraction = (int)bits & ((1 << f.fraction) - 1);
    float sign = bits & 0x80 ? -1.0f : 1.0f;
    if (type == T_E4M3 ? (bits & 0x7f) == 0x7f : exponent == 31)
        return type == T_E5M2 && fraction == 0 ? sign * INFINITY : f32_of(NAN_F32);
    int significand = exponent == 0 ? fraction : fraction + (1 << f.fraction);
    return sign * ldexpf((float)significand, (exponent == 0 ? 1 : exponent) - f.bias - f.fraction);
}

uint32_t sim_fp8_bits(sim_type type, double value)
{
    if (value != value)
        return 0x7f;
    fp8_format f = fp8_format_of(type);
    double magnitude = fabs(value);
    uint32_t sign = signbit(value) ? 0x80 : 0;
    if (magnitude > f.most)
        magnitude = f.most;
    if (magnitude == 0)
        return sign;
    int least = 1 - f.bias, exponent = ilogb(magnitude) < least ? least : ilogb(magnitude);
    /* To nearest, ties to even; a carry into the exponent gives the right bits. */
    uint32_t significand = (uint32_t)nearbyint(ldexp(magnitude, f.fraction - exponent));
    uint32_t bits = ((uint32_t)(exponent - least) << f.fraction) + significand;
    return sign | bits;
}
