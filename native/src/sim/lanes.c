#include "lanes.h"

#include "numbers.h"

#define ALL for (int i = 0; i < LANES; i++)

/* One function a row: N name, O/A/B/C C types of the words, then an expression over a, b, c. */
#define LANE1(N, O, A, E)                                                                                              \
    static void N(void *out_, const void *a_, const void *b_, const void *c_)                                          \
    {                                                                                                                  \
        (void)b_, (void)c_;                                                                                            \
        ALL { A a = ((const A *)a_)[i]; ((O *)out_)[i] = (O)(E); }                                                     \
    }
#define LANE2(N, O, A, B, E)                                                                                           \
    static void N(void *out_, const void *a_, const void *b_, const void *c_)                                          \
    {                                                                                                                  \
        (void)c_;                                                                                                      \
        ALL { A a = ((const A *)a_)[i]; B b = ((const B *)b_)[i]; ((O *)out_)[i] = (O)(E); }                           \
    }
#define LANE3(N, O, A, B, C, E)                                                                                        \
    static void N(void *out_, const void *a_, const void *b_, const void *c_)                                          \
    {                                                                                                                  \
        ALL {                                                                                                          \
            A a = ((const A *)a_)[i]; B b = ((const B *)b_)[i]; C c = ((const C *)c_)[i];                              \
            ((O *)out_)[i] = (O)(E);                                                                                   \
        }                                                                                                              \
    }

typedef uint32_t u32;
typedef int32_t s32;
typedef uint64_t u64;
typedef int64_t s64;

/* --- integers: registers of 16 bits are words whose upper half is zero ------------------------------ */

#define S16(x) ((s32)(int16_t)(x))
#define LOW(x) ((x) & 0xffffu)

LANE2(add_32, u32, u32, u32, a + b)
LANE2(add_64, u64, u64, u64, a + b)
LANE2(add_16, u32, u32, u32, LOW(a + b))
LANE2(sub_32, u32, u32, u32, a - b)
LANE2(sub_64, u64, u64, u64, a - b)
LANE2(sub_16, u32, u32, u32, LOW(a - b))
LANE2(mul_lo_32, u32, u32, u32, a * b)
LANE2(mul_lo_64, u64, u64, u64, a * b)
LANE2(mul_lo_16, u32, u32, u32, LOW(a * b))
LANE2(mul_hi_u32, u32, u32, u32, (u64)a * b >> 32)
LANE2(mul_hi_s32, u32, s32, s32, (s64)a * b >> 32)
LANE2(mul_hi_u64, u64, u64, u64, (unsigned __int128)a * b >> 64)
LANE2(mul_hi_s64, u64, s64, s64, (__int128)a * b >> 64)
LANE2(mul_hi_u16, u32, u32, u32, a * b >> 16)
LANE2(mul_wide_u16, u32, u32, u32, a * b)
LANE2(mul_wide_s16, u32, u32, u32, S16(a) * S16(b))
LANE2(mul_wide_u32, u64, u32, u32, (u64)a * b)
LANE2(mul_wide_s32, u64, s32, s32, (s64)a * b)
LANE3(mad_lo_32, u32, u32, u32, u32, a * b + c)
LANE3(mad_lo_64, u64, u64, u64, u64, a * b + c)
LANE3(mad_lo_16, u32, u32, u32, u32, LOW(a * b + c))
LANE3(mad_wide_u32, u64, u32, u32, u64, (u64)a * b + c)
LANE3(mad_wide_s32, u64, s32, s32, u64, (u64)((s64)a * b) + c)
LANE3(mad_wide_u16, u32, u32, u32, u32, a * b + c)
LANE3(mad_wide_s16, u32, u32, u32, u32, (u32)(S16(a) * S16(b)) + c)
LANE3(mad_hi_u32, u32, u32, u32, u32, ((u64)a * b >> 32) + c)
LANE3(mad_hi_s32, u32, s32, s32, u32, (u32)((s64)a * b >> 32) + c)
/* Division by zero gives all ones on the device; the most negative number by -1 stays what it is. */
LANE2(div_u32, u32, u32, u32, b ? a / b : ~0u)
LANE2(div_s32, u32, s32, s32, b == 0 ? -1 : b == -1 ? (s32)(0u - (u32)a) : a / b)
LANE2(div_u64, u64, u64, u64, b ? a / b : ~(u64)0)
LANE2(div_s64, u64, s64, s64, b == 0 ? -1 : b == -1 ? (s64)(0u - (u64)a) : a / b)
LANE2(div_u16, u32, u32, u32, b ? a / b : 0xffffu)
LANE2(div_s16, u32, u32, u32, S16(b) ? LOW((u32)(S16(a) / S16(b))) : 0xffffu)
LANE2(rem_u32, u32, u32, u32, b ? a % b : a)
LANE2(rem_s32, u32, s32, s32, b == 0 ? a : b == -1 ? 0 : a % b)
LANE2(rem_u64, u64, u64, u64, b ? a % b : a)
LANE2(rem_s64, u64, s64, s64, b == 0 ? a : b == -1 ? 0 : a % b)
LANE2(rem_u16, u32, u32, u32, b ? a % b : a)
LANE2(rem_s16, u32, u32, u32, S16(b) ? LOW((u32)(S16(a) % S16(b))) : a)
LANE2(min_u32, u32, u32, u32, a < b ? a : b)
LANE2(min_s32, u32, s32, s32, a < b ? a : b)
LANE2(max_u32, u32, u32, u32, a > b ? a : b)
LANE2(max_s32, u32, s32, s32, a > b ? a : b)
LANE2(min_u64, u64, u64, u64, a < b ? a : b)
LANE2(min_s64, u64, s64, s64, a < b ? a : b)
LANE2(max_u64, u64, u64, u64, a > b ? a : b)
LANE2(max_s64, u64, s64, s64, a > b ? a : b)
LANE2(min_s16, u32, u32, u32, S16(a) < S16(b) ? a : b)
LANE2(max_s16, u32, u32, u32, S16(a) > S16(b) ? a : b)
LANE1(neg_32, u32, u32, 0u - a)
LANE1(neg_64, u64, u64, (u64)0 - a)
LANE1(neg_16, u32, u32, LOW(0u - a))
LANE1(abs_s32, u32, s32, a < 0 ? 0u - (u32)a : (u32)a)
LANE1(abs_s64, u64, s64, a < 0 ? (u64)0 - (u64)a : (u64)a)
LANE1(abs_s16, u32, u32, LOW((u32)(S16(a) < 0 ? -S16(a) : S16(a))))
LANE2(and_32, u32, u32, u32, a & b)
LANE2(or_32, u32, u32, u32, a | b)
LANE2(xor_32, u32, u32, u32, a ^ b)
LANE2(and_64, u64, u64, u64, a & b)
LANE2(or_64, u64, u64, u64, a | b)
LANE2(xor_64, u64, u64, u64, a ^ b)
LANE1(not_32, u32, u32, ~a)
LANE1(not_64, u64, u64, ~a)
LANE1(not_16, u32, u32, LOW(~a))
LANE2(shl_32, u32, u32, u32, b > 31 ? 0 : a << b)
LANE2(shl_64, u64, u64, u32, b > 63 ? 0 : a << b)
LANE2(shl_16, u32, u32, u32, b > 15 ? 0 : LOW(a << b))
LANE2(shr_u32, u32, u32, u32, b > 31 ? 0 : a >> b)
LANE2(shr_s32, u32, s32, u32, a >> (b > 31 ? 31 : b))
LANE2(shr_u64, u64, u64, u32, b > 63 ? 0 : a >> b)
LANE2(shr_s64, u64, s64, u32, a >> (b > 63 ? 63 : b))
LANE2(shr_u16, u32, u32, u32, b > 15 ? 0 : a >> b)
LANE2(shr_s16, u32, u32, u32, LOW((u32)(S16(a) >> (b > 15 ? 15 : b))))
LANE3(shf_l_wrap, u32, u32, u32, u32, (c & 31) ? b << (c & 31) | a >> (32 - (c & 31)) : b)
LANE3(shf_r_wrap, u32, u32, u32, u32, (c & 31) ? a >> (c & 31) | b << (32 - (c & 31)) : a)
LANE3(shf_l_clamp, u32, u32, u32, u32, c >= 32 ? a : c ? b << c | a >> (32 - c) : b)
LANE3(shf_r_clamp, u32, u32, u32, u32, c >= 32 ? b : c ? a >> c | b << (32 - c) : a)
LANE1(popc_32, u32, u32, __builtin_popcount(a))
LANE1(popc_64, u32, u64, __builtin_popcountll(a))
LANE1(clz_32, u32, u32, a ? __builtin_clz(a) : 32)
LANE1(clz_64, u32, u64, a ? __builtin_clzll(a) : 64)

static u32 reverse(u32 a)
{
    u32 out = 0;
    for (int i = 0; i < 32; i++)
        out |= (a >> i & 1) << (31 - i);
    return out;
}
LANE1(brev_32, u32, u32, reverse(a))
LANE1(brev_64, u64, u64, (u64)reverse((u32)a) << 32 | reverse((u32)(a >> 32)))

static u32 extract(u32 a, u32 from, u32 count, int is_signed)
{
    from &= 255, count &= 255;
    u32 out = from > 31 || count == 0 ? 0 : a >> from;
    u32 kept = count < 32 ? count : 32;
    if (kept < 32)
        out &= ((u32)1 << kept) - 1;
    u32 top = from + count - 1 < 31 ? from + count - 1 : 31;
    if (is_signed && count && (a >> top & 1) && kept < 32)
        out |= ~(((u32)1 << (top >= from ? top - from + 1 : 0)) - 1);
    return out;
}
LANE3(bfe_u32, u32, u32, u32, u32, extract(a, b, c, 0))
LANE3(bfe_s32, u32, u32, u32, u32, extract(a, b, c, 1))

static u32 bfind(u32 a) { return a ? 31 - (u32)__builtin_clz(a) : ~0u; }
LANE1(bfind_u32, u32, u32, bfind(a))
LANE1(bfind_s32, u32, s32, bfind(a < 0 ? ~(u32)a : (u32)a))

static u32 permute(u32 a, u32 b, u32 selector)
{
    u64 bytes = (u64)b << 32 | a;
    u32 out = 0;
    for (int i = 0; i < 4; i++) {
        u32 pick = selector >> (4 * i) & 15, byte = (u32)(bytes >> (8 * (pick & 7))) & 255;
        if (pick & 8)
            byte = byte & 128 ? 255 : 0;
        out |= byte << (8 * i);
    }
    return out;
}
LANE3(prmt_32, u32, u32, u32, u32, permute(a, b, c))
LANE3(sad_u32, u32, u32, u32, u32, c + (a > b ? a - b : b - a))
LANE3(dp4a_s32, u32, u32, u32, u32,
      c + (u32)((int8_t)a * (int8_t)b + (int8_t)(a >> 8) * (int8_t)(b >> 8) + (int8_t)(a >> 16) * (int8_t)(b >> 16) +
                (int8_t)(a >> 24) * (int8_t)(b >> 24)))

/* --- f32 ------------------------------------------------------------------------------------------- */

#define F(x) f32_of(x)
#define R(x) bits_of(x)
static const u32 NAN32 = 0x7fffffffu;

/* Minima and maxima: the number where one is not a number; -0 is below +0. */
static u32 least(u32 a, u32 b)
{
    float x = F(a), y = F(b);
    if (x != x)
        return y != y ? NAN32 : b;
    return y != y ? a : x == y ? a | b : x < y ? a : b;
}
static u32 greatest(u32 a, u32 b)
{
    float x = F(a), y = F(b);
    if (x != x)
        return y != y ? NAN32 : b;
    return y != y ? a : x == y ? a & b : x > y ? a : b;
}
static int either_nan(u32 a, u32 b) { return F(a) != F(a) || F(b) != F(b); }
static u32 saturate(float x) { return x > 0 ? x < 1 ? R(x) : 0x3f800000u : 0; }

LANE2(add_f32, u32, u32, u32, R(F(a) + F(b)))
LANE2(sub_f32, u32, u32, u32, R(F(a) - F(b)))
LANE2(mul_f32, u32, u32, u32, R(F(a) * F(b)))
LANE2(add_sat_f32, u32, u32, u32, saturate(F(a) + F(b)))
LANE2(div_f32, u32, u32, u32, R(F(a) / F(b)))
LANE3(fma_f32, u32, u32, u32, u32, R(fmaf(F(a), F(b), F(c))))
LANE2(min_f32, u32, u32, u32, least(a, b))
LANE2(max_f32, u32, u32, u32, greatest(a, b))
LANE2(min_nan_f32, u32, u32, u32, either_nan(a, b) ? NAN32 : least(a, b))
LANE2(max_nan_f32, u32, u32, u32, either_nan(a, b) ? NAN32 : greatest(a, b))
LANE1(neg_f32, u32, u32, a ^ 0x80000000u)
LANE1(abs_f32, u32, u32, a & 0x7fffffffu)
LANE1(sqrt_f32, u32, u32, R(sqrtf(F(a))))
LANE1(rsqrt_f32, u32, u32, R((float)(1.0 / sqrt(F(a)))))
LANE1(rcp_f32, u32, u32, R(1.0f / F(a)))
LANE1(ex2_f32, u32, u32, R(exp2f(F(a))))
LANE1(lg2_f32, u32, u32, R(log2f(F(a))))
LANE1(sin_f32, u32, u32, R(sinf(F(a))))
LANE1(cos_f32, u32, u32, R(cosf(F(a))))
LANE1(tanh_f32, u32, u32, R(tanhf(F(a))))
LANE2(copysign_f32, u32, u32, u32, (a & 0x80000000u) | (b & 0x7fffffffu))

/* --- f64 ------------------------------------------------------------------------------------------- */

#define D(x) f64_of(x)
#define RD(x) bits_of_f64(x)
static u64 least_f64(u64 a, u64 b)
{
    double x = D(a), y = D(b);
    return x != x ? b : y != y ? a : x == y ? a | b : x < y ? a : b;
}
static u64 greatest_f64(u64 a, u64 b)
{
    double x = D(a), y = D(b);
    return x != x ? b : y != y ? a : x == y ? a & b : x > y ? a : b;
}
LANE2(add_f64, u64, u64, u64, RD(D(a) + D(b)))
LANE2(sub_f64, u64, u64, u64, RD(D(a) - D(b)))
LANE2(mul_f64, u64, u64, u64, RD(D(a) * D(b)))
LANE2(div_f64, u64, u64, u64, RD(D(a) / D(b)))
LANE3(fma_f64, u64, u64, u64, u64, RD(fma(D(a), D(b), D(c))))
LANE2(min_f64, u64, u64, u64, least_f64(a, b))
LANE2(max_f64, u64, u64, u64, greatest_f64(a, b))
LANE1(neg_f64, u64, u64, a ^ (u64)1 << 63)
LANE1(abs_f64, u64, u64, a & ~((u64)1 << 63))
LANE1(sqrt_f64, u64, u64, RD(sqrt(D(a))))
LANE1(rcp_f64, u64, u64, RD(1.0 / D(a)))
LANE1(rsqrt_f64, u64, u64, RD(1.0 / sqrt(D(a))))
LANE2(copysign_f64, u64, u64, u64, (a & (u64)1 << 63) | (b & ~((u64)1 << 63)))

/* --- halves, alone and in pairs: computed in f64 and rounded once ------------------------------------ */

#define H(x) ((double)f16_value(LOW(x)))
#define B(x) ((double)bf16_value(LOW(x)))
#define HALF_ROWS(N, V, f)                                                                                             \
    LANE2(add_##N, u32, u32, u32, f(V(a) + V(b)))                                                                      \
    LANE2(sub_##N, u32, u32, u32, f(V(a) - V(b)))                                                                      \
    LANE2(mul_##N, u32, u32, u32, f(V(a) * V(b)))                                                                      \
    LANE3(fma_##N, u32, u32, u32, u32, f(fma(V(a), V(b), V(c))))                                                       \
    LANE2(add_##N##x2, u32, u32, u32, f(V(a) + V(b)) | f(V(a >> 16) + V(b >> 16)) << 16)                               \
    LANE2(sub_##N##x2, u32, u32, u32, f(V(a) - V(b)) | f(V(a >> 16) - V(b >> 16)) << 16)                               \
    LANE2(mul_##N##x2, u32, u32, u32, f(V(a) * V(b)) | f(V(a >> 16) * V(b >> 16)) << 16)                               \
    LANE3(fma_##N##x2, u32, u32, u32, u32,                                                                             \
          f(fma(V(a), V(b), V(c))) | f(fma(V(a >> 16), V(b >> 16), V(c >> 16))) << 16)                                 \
    LANE2(min_##N, u32, u32, u32, f(fmin(V(a), V(b))))                                                                 \
    LANE2(max_##N, u32, u32, u32, f(fmax(V(a), V(b))))
HALF_ROWS(f16, H, f16_bits)
HALF_ROWS(bf16, B, bf16_bits)
LANE1(neg_half, u32, u32, a ^ 0x8000u)
LANE1(abs_half, u32, u32, a & 0x7fffu)
LANE1(neg_half2, u32, u32, a ^ 0x80008000u)
LANE1(abs_half2, u32, u32, a & 0x7fff7fffu)
/* Two f32 to a pair of halves: the first operand goes to the upper half. */
LANE2(cvt_f16x2, u32, u32, u32, f16_bits(F(b)) | f16_bits(F(a)) << 16)
LANE2(cvt_bf16x2, u32, u32, u32, bf16_bits(F(b)) | bf16_bits(F(a)) << 16)

/* --- the table -------------------------------------------------------------------------------------- */

#define ROW(name, f, ...) {name, f, __VA_ARGS__}
const lane_row NOVA_SIM_LANES[] = {
    ROW("add.s32", add_32, 32, {32, 32}), ROW("add.u32", add_32, 32, {32, 32}), ROW("add.s64", add_64, 64, {64, 64}),
    ROW("add.u64", add_64, 64, {64, 64}), ROW("add.s16", add_16, 32, {32, 32}), ROW("add.u16", add_16, 32, {32, 32}),
    ROW("sub.s32", sub_32, 32, {32, 32}), ROW("sub.u32", sub_32, 32, {32, 32}), ROW("sub.s64", sub_64, 64, {64, 64}),
    ROW("sub.u64", sub_64, 64, {64, 64}), ROW("sub.s16", sub_16, 32, {32, 32}), ROW("sub.u16", sub_16, 32, {32, 32}),
    ROW("mul.lo.s32", mul_lo_32, 32, {32, 32}), ROW("mul.lo.u32", mul_lo_32, 32, {32, 32}),
    ROW("mul.lo.s64", mul_lo_64, 64, {64, 64}), ROW("mul.lo.u64", mul_lo_64, 64, {64, 64}),
    ROW("mul.lo.s16", mul_lo_16, 32, {32, 32}), ROW("mul.lo.u16", mul_lo_16, 32, {32, 32}),
    ROW("mul.hi.u32", mul_hi_u32, 32, {32, 32}), ROW("mul.hi.s32", mul_hi_s32, 32, {32, 32}),
    ROW("mul.hi.u64", mul_hi_u64, 64, {64, 64}), ROW("mul.hi.s64", mul_hi_s64, 64, {64, 64}),
    ROW("mul.hi.u16", mul_hi_u16, 32, {32, 32}), ROW("mul.wide.u16", mul_wide_u16, 32, {32, 32}),
    ROW("mul.wide.s16", mul_wide_s16, 32, {32, 32}), ROW("mul.wide.u32", mul_wide_u32, 64, {32, 32}),
    ROW("mul.wide.s32", mul_wide_s32, 64, {32, 32}), ROW("mad.lo.s32", mad_lo_32, 32, {32, 32, 32}),
    ROW("mad.lo.u32", mad_lo_32, 32, {32, 32, 32}), ROW("mad.lo.s64", mad_lo_64, 64, {64, 64, 64}),
    ROW("mad.lo.u64", mad_lo_64, 64, {64, 64, 64}), ROW("mad.lo.s16", mad_lo_16, 32, {32, 32, 32}),
    ROW("mad.lo.u16", mad_lo_16, 32, {32, 32, 32}), ROW("mad.wide.u32", mad_wide_u32, 64, {32, 32, 64}),
    ROW("mad.wide.s32", mad_wide_s32, 64, {32, 32, 64}), ROW("mad.wide.u16", mad_wide_u16, 32, {32, 32, 32}),
    ROW("mad.wide.s16", mad_wide_s16, 32, {32, 32, 32}), ROW("mad.hi.u32", mad_hi_u32, 32, {32, 32, 32}),
    ROW("mad.hi.s32", mad_hi_s32, 32, {32, 32, 32}), ROW("div.u32", div_u32, 32, {32, 32}),
    ROW("div.s32", div_s32, 32, {32, 32}), ROW("div.u64", div_u64, 64, {64, 64}), ROW("div.s64", div_s64, 64, {64, 64}),
    ROW("div.u16", div_u16, 32, {32, 32}), ROW("div.s16", div_s16, 32, {32, 32}), ROW("rem.u32", rem_u32, 32, {32, 32}),
    ROW("rem.s32", rem_s32, 32, {32, 32}), ROW("rem.u64", rem_u64, 64, {64, 64}), ROW("rem.s64", rem_s64, 64, {64, 64}),
    ROW("rem.u16", rem_u16, 32, {32, 32}), ROW("rem.s16", rem_s16, 32, {32, 32}), ROW("min.u32", min_u32, 32, {32, 32}),
    ROW("min.s32", min_s32, 32, {32, 32}), ROW("max.u32", max_u32, 32, {32, 32}), ROW("max.s32", max_s32, 32, {32, 32}),
    ROW("min.u64", min_u64, 64, {64, 64}), ROW("min.s64", min_s64, 64, {64, 64}), ROW("max.u64", max_u64, 64, {64, 64}),
    ROW("max.s64", max_s64, 64, {64, 64}), ROW("min.u16", min_u32, 32, {32, 32}), ROW("max.u16", max_u32, 32, {32, 32}),
    ROW("min.s16", min_s16, 32, {32, 32}), ROW("max.s16", max_s16, 32, {32, 32}), ROW("neg.s32", neg_32, 32, {32}),
    ROW("neg.s64", neg_64, 64, {64}), ROW("neg.s16", neg_16, 32, {32}), ROW("abs.s32", abs_s32, 32, {32}),
    ROW("abs.s64", abs_s64, 64, {64}), ROW("abs.s16", abs_s16, 32, {32}), ROW("and.b32", and_32, 32, {32, 32}),
    ROW("or.b32", or_32, 32, {32, 32}), ROW("xor.b32", xor_32, 32, {32, 32}), ROW("and.b16", and_32, 32, {32, 32}),
    ROW("or.b16", or_32, 32, {32, 32}), ROW("xor.b16", xor_32, 32, {32, 32}), ROW("and.b64", and_64, 64, {64, 64}),
    ROW("or.b64", or_64, 64, {64, 64}), ROW("xor.b64", xor_64, 64, {64, 64}), ROW("not.b32", not_32, 32, {32}),
    ROW("not.b64", not_64, 64, {64}), ROW("not.b16", not_16, 32, {32}), ROW("shl.b32", shl_32, 32, {32, 32}),
    ROW("shl.b64", shl_64, 64, {64, 32}), ROW("shl.b16", shl_16, 32, {32, 32}), ROW("shr.u32", shr_u32, 32, {32, 32}),
    ROW("shr.b32", shr_u32, 32, {32, 32}), ROW("shr.s32", shr_s32, 32, {32, 32}), ROW("shr.u64", shr_u64, 64, {64, 32}),
    ROW("shr.b64", shr_u64, 64, {64, 32}), ROW("shr.s64", shr_s64, 64, {64, 32}), ROW("shr.u16", shr_u16, 32, {32, 32}),
    ROW("shr.b16", shr_u16, 32, {32, 32}), ROW("shr.s16", shr_s16, 32, {32, 32}),
    ROW("shf.l.wrap.b32", shf_l_wrap, 32, {32, 32, 32}), ROW("shf.r.wrap.b32", shf_r_wrap, 32, {32, 32, 32}),
    ROW("shf.l.clamp.b32", shf_l_clamp, 32, {32, 32, 32}), ROW("shf.r.clamp.b32", shf_r_clamp, 32, {32, 32, 32}),
    ROW("popc.b32", popc_32, 32, {32}), ROW("popc.b64", popc_64, 32, {64}), ROW("clz.b32", clz_32, 32, {32}),
    ROW("clz.b64", clz_64, 32, {64}), ROW("brev.b32", brev_32, 32, {32}), ROW("brev.b64", brev_64, 64, {64}),
    ROW("bfe.u32", bfe_u32, 32, {32, 32, 32}), ROW("bfe.s32", bfe_s32, 32, {32, 32, 32}),
    ROW("bfind.u32", bfind_u32, 32, {32}), ROW("bfind.s32", bfind_s32, 32, {32}),
    ROW("prmt.b32", prmt_32, 32, {32, 32, 32}), ROW("sad.u32", sad_u32, 32, {32, 32, 32}),
    ROW("dp4a.s32.s32", dp4a_s32, 32, {32, 32, 32}),
    ROW("add.f32", add_f32, 32, {32, 32}), ROW("sub.f32", sub_f32, 32, {32, 32}), ROW("mul.f32", mul_f32, 32, {32, 32}),
    ROW("add.sat.f32", add_sat_f32, 32, {32, 32}), ROW("div.f32", div_f32, 32, {32, 32}),
    ROW("fma.f32", fma_f32, 32, {32, 32, 32}), ROW("min.f32", min_f32, 32, {32, 32}), ROW("max.f32", max_f32, 32, {32, 32}),
    ROW("min.NaN.f32", min_nan_f32, 32, {32, 32}), ROW("max.NaN.f32", max_nan_f32, 32, {32, 32}),
    ROW("neg.f32", neg_f32, 32, {32}), ROW("abs.f32", abs_f32, 32, {32}), ROW("sqrt.f32", sqrt_f32, 32, {32}),
    ROW("rsqrt.f32", rsqrt_f32, 32, {32}), ROW("rcp.f32", rcp_f32, 32, {32}), ROW("ex2.f32", ex2_f32, 32, {32}),
    ROW("lg2.f32", lg2_f32, 32, {32}), ROW("sin.f32", sin_f32, 32, {32}), ROW("cos.f32", cos_f32, 32, {32}),
    ROW("tanh.f32", tanh_f32, 32, {32}), ROW("copysign.f32", copysign_f32, 32, {32, 32}),
    ROW("add.f64", add_f64, 64, {64, 64}), ROW("sub.f64", sub_f64, 64, {64, 64}), ROW("mul.f64", mul_f64, 64, {64, 64}),
    ROW("div.f64", div_f64, 64, {64, 64}), ROW("fma.f64", fma_f64, 64, {64, 64, 64}), ROW("min.f64", min_f64, 64, {64, 64}),
    ROW("max.f64", max_f64, 64, {64, 64}), ROW("neg.f64", neg_f64, 64, {64}), ROW("abs.f64", abs_f64, 64, {64}),
    ROW("sqrt.f64", sqrt_f64, 64, {64}), ROW("rcp.f64", rcp_f64, 64, {64}), ROW("rsqrt.f64", rsqrt_f64, 64, {64}),
    ROW("copysign.f64", copysign_f64, 64, {64, 64}),
#define HALF_TABLE(N)                                                                                                  \
    ROW("add." #N, add_##N, 32, {32, 32}), ROW("sub." #N, sub_##N, 32, {32, 32}), ROW("mul." #N, mul_##N, 32, {32, 32}), \
    ROW("fma." #N, fma_##N, 32, {32, 32, 32}), ROW("add." #N "x2", add_##N##x2, 32, {32, 32}),                         \
    ROW("sub." #N "x2", sub_##N##x2, 32, {32, 32}), ROW("mul." #N "x2", mul_##N##x2, 32, {32, 32}),                    \
    ROW("fma." #N "x2", fma_##N##x2, 32, {32, 32, 32}), ROW("min." #N, min_##N, 32, {32, 32}),                         \
    ROW("max." #N, max_##N, 32, {32, 32}), ROW("neg." #N, neg_half, 32, {32}), ROW("abs." #N, abs_half, 32, {32}),     \
    ROW("neg." #N "x2", neg_half2, 32, {32}), ROW("abs." #N "x2", abs_half2, 32, {32})
    HALF_TABLE(f16), HALF_TABLE(bf16),
    ROW("cvt.f16x2.f32", cvt_f16x2, 32, {32, 32}), ROW("cvt.bf16x2.f32", cvt_bf16x2, 32, {32, 32}),
};
const uint32_t NOVA_SIM_LANE_COUNT = sizeof NOVA_SIM_LANES / sizeof *NOVA_SIM_LANES;

const char *nova_sim_lane_name(uint32_t detail)
{
    return detail < NOVA_SIM_LANE_COUNT ? NOVA_SIM_LANES[detail].name : NULL;
}
