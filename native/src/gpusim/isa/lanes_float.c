/* f32 and f64. The rounding mode is that of the calling thread; flushing and saturation are applied
 * around the functions. Approximate functions return the correctly rounded value: the device is
 * within two units in the last place. */
#include "gpusim/isa/lanes.h"

/* --- f32: a NaN that comes out is the device's ------------------------------------------------ */

#define F(x) f32_of(x)

static inline u32 f32_result(float x)
{
    return x != x ? NAN_F32 : bits_of(x);
}

/* Minima and maxima: the number where one is not a number; -0 is below +0. */
static inline u32 f32_least(u32 a, u32 b)
{
    float x = F(a), y = F(b);
    if (x != x)
        return y != y ? NAN_F32 : b;
    return y != y ? a : x == y ? a | b : x < y ? a : b;
}

static inline u32 f32_greatest(u32 a, u32 b)
{
    float x = F(a), y = F(b);
    if (x != x)
        return y != y ? NAN_F32 : b;
    return y != y ? a : x == y ? a & b : x > y ? a : b;
}

static inline int f32_is_nan(u32 a)
{
    return F(a) != F(a);
}
static inline int f32_either_nan(u32 a, u32 b)
{
    return f32_is_nan(a) || f32_is_nan(b);
}

#define SIGN 0x80000000u
#define SIZE 0x7fffffffu
/* The sign is that of the product, the size that of the smaller or the larger. */
#define XORSIGN(f)                                                                                 \
    (f32_is_nan(a) && f32_is_nan(b) ? NAN_F32 : ((a ^ b) & SIGN) | f(a & SIZE, b & SIZE))
#define OR_NAN(x) (f32_either_nan(a, b) ? NAN_F32 : (x))

/* clang-format off */
LANE2(add_f32, u32, u32, u32, f32_result(F(a) + F(b)))
LANE2(sub_f32, u32, u32, u32, f32_result(F(a) - F(b)))
LANE2(mul_f32, u32, u32, u32, f32_result(F(a) * F(b)))
LANE2(div_f32, u32, u32, u32, f32_result(F(a) / F(b)))
LANE3(fma_f32, u32, u32, u32, u32, f32_result(fmaf(F(a), F(b), F(c))))
LANE2(min_f32, u32, u32, u32, f32_least(a, b))
LANE2(max_f32, u32, u32, u32, f32_greatest(a, b))
LANE2(min_nan_f32, u32, u32, u32, OR_NAN(f32_least(a, b)))
LANE2(max_nan_f32, u32, u32, u32, OR_NAN(f32_greatest(a, b)))
LANE2(min_xorsign_f32, u32, u32, u32, XORSIGN(f32_least))
LANE2(max_xorsign_f32, u32, u32, u32, XORSIGN(f32_greatest))
LANE2(min_nan_xorsign_f32, u32, u32, u32, OR_NAN(XORSIGN(f32_least)))
LANE2(max_nan_xorsign_f32, u32, u32, u32, OR_NAN(XORSIGN(f32_greatest)))
LANE1(neg_f32, u32, u32, f32_is_nan(a) ? NAN_F32 : a ^ SIGN)
LANE1(abs_f32, u32, u32, f32_is_nan(a) ? NAN_F32 : a & SIZE)
LANE1(sqrt_f32, u32, u32, f32_result(sqrtf(F(a))))
LANE1(rcp_f32, u32, u32, f32_result(1.0f / F(a)))
LANE1(rsqrt_f32, u32, u32, f32_result((float)(1.0 / sqrt((double)F(a)))))
LANE1(ex2_f32, u32, u32, f32_result((float)exp2((double)F(a))))
LANE1(lg2_f32, u32, u32, f32_result((float)log2((double)F(a))))
LANE1(sin_f32, u32, u32, f32_result((float)sin((double)F(a))))
LANE1(cos_f32, u32, u32, f32_result((float)cos((double)F(a))))
LANE1(tanh_f32, u32, u32, f32_result((float)tanh((double)F(a))))
/* The sign of the first, the size of the second. */
LANE2(copysign_f32, u32, u32, u32, (a & SIGN) | (b & SIZE))
/* clang-format on */

/* --- two f32 in a word of 64 bits ------------------------------------------------------------- */

#define LO(x) F((u32)(x))
#define HI(x) F((u32)((x) >> 32))
#define PAIR(low, high) ((u64)f32_result(low) | (u64)f32_result(high) << 32)
/* clang-format off */
LANE2(add_f32x2, u64, u64, u64, PAIR(LO(a) + LO(b), HI(a) + HI(b)))
LANE2(sub_f32x2, u64, u64, u64, PAIR(LO(a) - LO(b), HI(a) - HI(b)))
LANE2(mul_f32x2, u64, u64, u64, PAIR(LO(a) * LO(b), HI(a) * HI(b)))
LANE3(fma_f32x2, u64, u64, u64, u64, PAIR(fmaf(LO(a), LO(b), LO(c)), fmaf(HI(a), HI(b), HI(c))))
/* clang-format on */

/* --- f64 -------------------------------------------------------------------------------------- */

#define D(x) f64_of(x)
#define RD(x) bits_of_f64(x)

static inline u64 f64_least(u64 a, u64 b)
{
    double x = D(a), y = D(b);
    return x != x ? b : y != y ? a : x == y ? a | b : x < y ? a : b;
}

static inline u64 f64_greatest(u64 a, u64 b)
{
    double x = D(a), y = D(b);
    return x != x ? b : y != y ? a : x == y ? a & b : x > y ? a : b;
}

/* clang-format off */
LANE2(add_f64, u64, u64, u64, RD(D(a) + D(b)))
LANE2(sub_f64, u64, u64, u64, RD(D(a) - D(b)))
LANE2(mul_f64, u64, u64, u64, RD(D(a) * D(b)))
LANE2(div_f64, u64, u64, u64, RD(D(a) / D(b)))
LANE3(fma_f64, u64, u64, u64, u64, RD(fma(D(a), D(b), D(c))))
LANE2(min_f64, u64, u64, u64, f64_least(a, b))
LANE2(max_f64, u64, u64, u64, f64_greatest(a, b))
LANE1(neg_f64, u64, u64, a ^ (u64)1 << 63)
LANE1(abs_f64, u64, u64, a & ~((u64)1 << 63))
LANE1(sqrt_f64, u64, u64, RD(sqrt(D(a))))
LANE1(rcp_f64, u64, u64, RD(1.0 / D(a)))
LANE1(rsqrt_f64, u64, u64, RD(1.0 / sqrt(D(a))))
LANE2(copysign_f64, u64, u64, u64, (a & (u64)1 << 63) | (b & ~((u64)1 << 63)))
/* clang-format on */

const lane_row NOVA_SIM_FLOATS[] = {
    ROW("add.f32", add_f32, 32, 32, 32),
    ROW("sub.f32", sub_f32, 32, 32, 32),
    ROW("mul.f32", mul_f32, 32, 32, 32),
    ROW("div.f32", div_f32, 32, 32, 32),
    ROW("fma.f32", fma_f32, 32, 32, 32, 32),
    ROW("min.f32", min_f32, 32, 32, 32),
    ROW("max.f32", max_f32, 32, 32, 32),
    ROW("min.NaN.f32", min_nan_f32, 32, 32, 32),
    ROW("max.NaN.f32", max_nan_f32, 32, 32, 32),
    ROW("min.xorsign.abs.f32", min_xorsign_f32, 32, 32, 32),
    ROW("max.xorsign.abs.f32", max_xorsign_f32, 32, 32, 32),
    ROW("min.NaN.xorsign.abs.f32", min_nan_xorsign_f32, 32, 32, 32),
    ROW("max.NaN.xorsign.abs.f32", max_nan_xorsign_f32, 32, 32, 32),
    ROW("neg.f32", neg_f32, 32, 32),
    ROW("abs.f32", abs_f32, 32, 32),
    ROW("sqrt.f32", sqrt_f32, 32, 32),
    ROW("rsqrt.f32", rsqrt_f32, 32, 32),
    ROW("rcp.f32", rcp_f32, 32, 32),
    ROW("ex2.f32", ex2_f32, 32, 32),
    ROW("lg2.f32", lg2_f32, 32, 32),
    ROW("sin.f32", sin_f32, 32, 32),
    ROW("cos.f32", cos_f32, 32, 32),
    ROW("tanh.f32", tanh_f32, 32, 32),
    ROW("copysign.f32", copysign_f32, 32, 32, 32),
    ROW("add.f32x2", add_f32x2, 64, 64, 64),
    ROW("sub.f32x2", sub_f32x2, 64, 64, 64),
    ROW("mul.f32x2", mul_f32x2, 64, 64, 64),
    ROW("fma.f32x2", fma_f32x2, 64, 64, 64, 64),
    ROW("add.f64", add_f64, 64, 64, 64),
    ROW("sub.f64", sub_f64, 64, 64, 64),
    ROW("mul.f64", mul_f64, 64, 64, 64),
    ROW("div.f64", div_f64, 64, 64, 64),
    ROW("fma.f64", fma_f64, 64, 64, 64, 64),
    ROW("min.f64", min_f64, 64, 64, 64),
    ROW("max.f64", max_f64, 64, 64, 64),
    ROW("neg.f64", neg_f64, 64, 64),
    ROW("abs.f64", abs_f64, 64, 64),
    ROW("sqrt.f64", sqrt_f64, 64, 64),
    ROW("rcp.f64", rcp_f64, 64, 64),
    ROW("rsqrt.f64", rsqrt_f64, 64, 64),
    ROW("copysign.f64", copysign_f64, 64, 64, 64),
    LAST_ROW,
};
