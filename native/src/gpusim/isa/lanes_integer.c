/* Integers of 16, 32 and 64 bits. */
#include "gpusim/isa/lanes.h"

#define S16(x) ((s32)(int16_t)(x))
#define LOW(x) ((u32)(x) & 0xffffu)

/* clang-format off */
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
LANE2(mul_hi_s16, u32, u32, u32, LOW(S16(a) * S16(b) >> 16))
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
LANE3(mad_hi_u32, u32, u32, u32, u32, (u32)((u64)a * b >> 32) + c)
LANE3(mad_hi_s32, u32, s32, s32, u32, (u32)((s64)a * b >> 32) + c)
LANE3(mad_hi_u64, u64, u64, u64, u64, (u64)((unsigned __int128)a * b >> 64) + c)
LANE3(mad_hi_s64, u64, s64, s64, u64, (u64)((__int128)a * b >> 64) + c)
/* Division by zero is all ones on the device; INT_MIN / -1 is INT_MIN. */
LANE2(div_u32, u32, u32, u32, b ? a / b : ~0u)
LANE2(div_s32, u32, s32, s32, b == 0 ? -1 : b == -1 ? (s32)(0u - (u32)a) : a / b)
LANE2(div_u64, u64, u64, u64, b ? a / b : ~(u64)0)
LANE2(div_s64, u64, s64, s64, b == 0 ? -1 : b == -1 ? (s64)(0u - (u64)a) : a / b)
LANE2(div_u16, u32, u32, u32, b ? a / b : 0xffffu)
LANE2(div_s16, u32, u32, u32, S16(b) ? LOW(S16(a) / S16(b)) : 0xffffu)
LANE2(rem_u32, u32, u32, u32, b ? a % b : a)
LANE2(rem_s32, u32, s32, s32, b == 0 ? a : b == -1 ? 0 : a % b)
LANE2(rem_u64, u64, u64, u64, b ? a % b : a)
LANE2(rem_s64, u64, s64, s64, b == 0 ? a : b == -1 ? 0 : a % b)
LANE2(rem_u16, u32, u32, u32, b ? a % b : a)
LANE2(rem_s16, u32, u32, u32, S16(b) ? LOW(S16(a) % S16(b)) : a)
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
LANE1(abs_s16, u32, u32, LOW(S16(a) < 0 ? -S16(a) : S16(a)))
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
LANE2(shr_s16, u32, u32, u32, LOW(S16(a) >> (b > 15 ? 15 : b)))
LANE3(shf_l_wrap, u32, u32, u32, u32, ((u64)b << 32 | a) << (c & 31) >> 32)
LANE3(shf_r_wrap, u32, u32, u32, u32, ((u64)b << 32 | a) >> (c & 31))
LANE3(shf_l_clamp, u32, u32, u32, u32, c > 31 ? a : ((u64)b << 32 | a) << c >> 32)
LANE3(shf_r_clamp, u32, u32, u32, u32, c > 31 ? b : ((u64)b << 32 | a) >> c)
LANE1(popc_32, u32, u32, __builtin_popcount(a))
LANE1(popc_64, u32, u64, __builtin_popcountll(a))
LANE1(clz_32, u32, u32, a ? __builtin_clz(a) : 32)
LANE1(clz_64, u32, u64, a ? __builtin_clzll(a) : 64)
/* clang-format on */

/* Two numbers of 16 bits in a word. */
#define BOTH(f) (LOW(f(LOW(a), LOW(b))) | LOW(f(a >> 16, b >> 16)) << 16)
#define SUM(x, y) ((x) + (y))
#define LEAST_U(x, y) ((x) < (y) ? (x) : (y))
#define MOST_U(x, y) ((x) > (y) ? (x) : (y))
#define LEAST_S(x, y) (S16(x) < S16(y) ? (x) : (y))
#define MOST_S(x, y) (S16(x) > S16(y) ? (x) : (y))
LANE2(add_16x2, u32, u32, u32, BOTH(SUM))
LANE2(min_u16x2, u32, u32, u32, BOTH(LEAST_U))
LANE2(max_u16x2, u32, u32, u32, BOTH(MOST_U))
LANE2(min_s16x2, u32, u32, u32, BOTH(LEAST_S))
LANE2(max_s16x2, u32, u32, u32, BOTH(MOST_S))

static u64 integer_reverse(u64 a, int bits)
{
    u64 out = 0;
    for (int i = 0; i < bits; i++)
        out |= (a >> i & 1) << (bits - 1 - i);
    return out;
}
LANE1(brev_32, u32, u32, integer_reverse(a, 32))
LANE1(brev_64, u64, u64, integer_reverse(a, 64))

/* `count` bits of a, from bit `from`: bits past the end are the sign, or zero. */
static u64 integer_extract(u64 a, u32 from, u32 count, u32 bits, int is_signed)
{
    from &= 255, count &= 255;
    u32 last = from + count - 1 < bits - 1 ? from + count - 1 : bits - 1;
    u64 sign = is_signed && count ? a >> last & 1 : 0, out = 0;
    for (u32 i = 0; i < bits; i++)
        out |= (i < count && from + i < bits ? a >> (from + i) & 1 : sign) << i;
    return out;
}
LANE3(bfe_u32, u32, u32, u32, u32, integer_extract(a, b, c, 32, 0))
LANE3(bfe_s32, u32, u32, u32, u32, integer_extract(a, b, c, 32, 1))
LANE3(bfe_u64, u64, u64, u32, u32, integer_extract(a, b, c, 64, 0))
LANE3(bfe_s64, u64, u64, u32, u32, integer_extract(a, b, c, 64, 1))

static u64 integer_insert(u64 a, u64 into, u32 from, u32 count, u32 bits)
{
    from &= 255, count &= 255;
    for (u32 i = 0; i < count && from + i < bits; i++)
        into = (into & ~((u64)1 << (from + i))) | (a >> i & 1) << (from + i);
    return into;
}
LANE4(bfi_32, u32, u32, u32, u32, u32, integer_insert(a, b, c, d, 32))
LANE4(bfi_64, u64, u64, u64, u32, u32, integer_insert(a, b, c, d, 64))

static u32 bfind(u64 a)
{
    return a ? 63 - (u32)__builtin_clzll(a) : ~0u;
}
static u32 integer_shift_of(u32 position, u32 top)
{
    return position == ~0u ? position : top - position;
}
LANE1(bfind_u32, u32, u32, bfind(a))
LANE1(bfind_s32, u32, s32, bfind(a < 0 ? ~(u32)a : (u32)a))
LANE1(bfind_u64, u32, u64, bfind(a))
LANE1(bfind_s64, u32, s64, bfind(a < 0 ? ~(u64)a : (u64)a))
LANE1(bfind_shift_u32, u32, u32, integer_shift_of(bfind(a), 31))
LANE1(bfind_shift_s32, u32, s32, integer_shift_of(bfind(a < 0 ? ~(u32)a : (u32)a), 31))

static u32 integer_permute(u32 a, u32 b, u32 selector)
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
LANE3(prmt_32, u32, u32, u32, u32, integer_permute(a, b, c))

/* Bit i of the table is the result for the bits (a, b, c) = i. */
static u32 integer_look_up(u32 a, u32 b, u32 c, u32 table)
{
    u32 out = 0;
    for (u32 i = 0; i < 8; i++)
        if (table >> i & 1)
            out |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    return out;
}
LANE4(lop3_32, u32, u32, u32, u32, u32, integer_look_up(a, b, c, d))
LANE3(sad_u32, u32, u32, u32, u32, c + (a > b ? a - b : b - a))
LANE3(sad_s32, u32, s32, s32, u32, c + (a > b ? (u32)a - (u32)b : (u32)b - (u32)a))

#define DOT4(A, B)                                                                                 \
    (c + (u32)((A)a * (B)b + (A)(a >> 8) * (B)(b >> 8) + (A)(a >> 16) * (B)(b >> 16) +             \
               (A)(a >> 24) * (B)(b >> 24)))
LANE3(dp4a_ss, u32, u32, u32, u32, DOT4(int8_t, int8_t))
LANE3(dp4a_su, u32, u32, u32, u32, DOT4(int8_t, uint8_t))
LANE3(dp4a_us, u32, u32, u32, u32, DOT4(uint8_t, int8_t))
LANE3(dp4a_uu, u32, u32, u32, u32, DOT4(uint8_t, uint8_t))

/* Both signs, where they do not matter. */
#define EITHER2(name, f, out, a, b)                                                                \
    ROW(name ".s" #a, f##_##a, out, a, b), ROW(name ".u" #a, f##_##a, out, a, b)
#define EITHER3(name, f, out, a, b, c)                                                             \
    ROW(name ".s" #a, f##_##a, out, a, b, c), ROW(name ".u" #a, f##_##a, out, a, b, c)
#define BITS2(name, f)                                                                             \
    ROW(name ".b16", f##_32, 16, 16, 16), ROW(name ".b32", f##_32, 32, 32, 32),                    \
        ROW(name ".b64", f##_64, 64, 64, 64)
#define SIGNS(name, f, bits)                                                                       \
    ROW(name ".s" #bits, f##_s##bits, bits, bits, bits),                                           \
        ROW(name ".u" #bits, f##_u##bits, bits, bits, bits)

const lane_row NOVA_SIM_INTEGERS[] = {
    EITHER2("add", add, 16, 16, 16),
    EITHER2("add", add, 32, 32, 32),
    EITHER2("add", add, 64, 64, 64),
    EITHER2("sub", sub, 16, 16, 16),
    EITHER2("sub", sub, 32, 32, 32),
    EITHER2("sub", sub, 64, 64, 64),
    EITHER2("mul.lo", mul_lo, 16, 16, 16),
    EITHER2("mul.lo", mul_lo, 32, 32, 32),
    EITHER2("mul.lo", mul_lo, 64, 64, 64),
    SIGNS("mul.hi", mul_hi, 16),
    SIGNS("mul.hi", mul_hi, 32),
    SIGNS("mul.hi", mul_hi, 64),
    ROW("mul.wide.u16", mul_wide_u16, 32, 16, 16),
    ROW("mul.wide.s16", mul_wide_s16, 32, 16, 16),
    ROW("mul.wide.u32", mul_wide_u32, 64, 32, 32),
    ROW("mul.wide.s32", mul_wide_s32, 64, 32, 32),
    EITHER3("mad.lo", mad_lo, 16, 16, 16, 16),
    EITHER3("mad.lo", mad_lo, 32, 32, 32, 32),
    EITHER3("mad.lo", mad_lo, 64, 64, 64, 64),
    ROW("mad.wide.u32", mad_wide_u32, 64, 32, 32, 64),
    ROW("mad.wide.s32", mad_wide_s32, 64, 32, 32, 64),
    ROW("mad.wide.u16", mad_wide_u16, 32, 16, 16, 32),
    ROW("mad.wide.s16", mad_wide_s16, 32, 16, 16, 32),
    ROW("mad.hi.u32", mad_hi_u32, 32, 32, 32, 32),
    ROW("mad.hi.s32", mad_hi_s32, 32, 32, 32, 32),
    ROW("mad.hi.u64", mad_hi_u64, 64, 64, 64, 64),
    ROW("mad.hi.s64", mad_hi_s64, 64, 64, 64, 64),
    SIGNS("div", div, 16),
    SIGNS("div", div, 32),
    SIGNS("div", div, 64),
    SIGNS("rem", rem, 16),
    SIGNS("rem", rem, 32),
    SIGNS("rem", rem, 64),
    ROW("min.u16", min_u32, 16, 16, 16),
    ROW("max.u16", max_u32, 16, 16, 16),
    ROW("min.s16", min_s16, 16, 16, 16),
    ROW("max.s16", max_s16, 16, 16, 16),
    SIGNS("min", min, 32),
    SIGNS("max", max, 32),
    SIGNS("min", min, 64),
    SIGNS("max", max, 64),
    ROW("add.s16x2", add_16x2, 32, 32, 32),
    ROW("add.u16x2", add_16x2, 32, 32, 32),
    ROW("min.s16x2", min_s16x2, 32, 32, 32),
    ROW("min.u16x2", min_u16x2, 32, 32, 32),
    ROW("max.s16x2", max_s16x2, 32, 32, 32),
    ROW("max.u16x2", max_u16x2, 32, 32, 32),
    ROW("neg.s16", neg_16, 16, 16),
    ROW("neg.s32", neg_32, 32, 32),
    ROW("neg.s64", neg_64, 64, 64),
    ROW("abs.s16", abs_s16, 16, 16),
    ROW("abs.s32", abs_s32, 32, 32),
    ROW("abs.s64", abs_s64, 64, 64),
    BITS2("and", and),
    BITS2("or", or),
    BITS2("xor", xor),
    ROW("not.b16", not_16, 16, 16),
    ROW("not.b32", not_32, 32, 32),
    ROW("not.b64", not_64, 64, 64),
    ROW("shl.b16", shl_16, 16, 16, 32),
    ROW("shl.b32", shl_32, 32, 32, 32),
    ROW("shl.b64", shl_64, 64, 64, 32),
    ROW("shr.b16", shr_u16, 16, 16, 32),
    ROW("shr.u16", shr_u16, 16, 16, 32),
    ROW("shr.s16", shr_s16, 16, 16, 32),
    ROW("shr.b32", shr_u32, 32, 32, 32),
    ROW("shr.u32", shr_u32, 32, 32, 32),
    ROW("shr.s32", shr_s32, 32, 32, 32),
    ROW("shr.b64", shr_u64, 64, 64, 32),
    ROW("shr.u64", shr_u64, 64, 64, 32),
    ROW("shr.s64", shr_s64, 64, 64, 32),
    ROW("shf.l.wrap.b32", shf_l_wrap, 32, 32, 32, 32),
    ROW("shf.r.wrap.b32", shf_r_wrap, 32, 32, 32, 32),
    ROW("shf.l.clamp.b32", shf_l_clamp, 32, 32, 32, 32),
    ROW("shf.r.clamp.b32", shf_r_clamp, 32, 32, 32, 32),
    ROW("popc.b32", popc_32, 32, 32),
    ROW("popc.b64", popc_64, 32, 64),
    ROW("clz.b32", clz_32, 32, 32),
    ROW("clz.b64", clz_64, 32, 64),
    ROW("brev.b32", brev_32, 32, 32),
    ROW("brev.b64", brev_64, 64, 64),
    ROW("bfe.u32", bfe_u32, 32, 32, 32, 32),
    ROW("bfe.s32", bfe_s32, 32, 32, 32, 32),
    ROW("bfe.u64", bfe_u64, 64, 64, 32, 32),
    ROW("bfe.s64", bfe_s64, 64, 64, 32, 32),
    ROW("bfi.b32", bfi_32, 32, 32, 32, 32, 32),
    ROW("bfi.b64", bfi_64, 64, 64, 64, 32, 32),
    ROW("bfind.u32", bfind_u32, 32, 32),
    ROW("bfind.s32", bfind_s32, 32, 32),
    ROW("bfind.u64", bfind_u64, 32, 64),
    ROW("bfind.s64", bfind_s64, 32, 64),
    ROW("bfind.shiftamt.u32", bfind_shift_u32, 32, 32),
    ROW("bfind.shiftamt.s32", bfind_shift_s32, 32, 32),
    ROW("prmt.b32", prmt_32, 32, 32, 32, 32),
    ROW("lop3.b32", lop3_32, 32, 32, 32, 32, 32),
    ROW("sad.u32", sad_u32, 32, 32, 32, 32),
    ROW("sad.s32", sad_s32, 32, 32, 32, 32),
    ROW("dp4a.s32.s32", dp4a_ss, 32, 32, 32, 32),
    ROW("dp4a.s32.u32", dp4a_su, 32, 32, 32, 32),
    ROW("dp4a.u32.s32", dp4a_us, 32, 32, 32, 32),
    ROW("dp4a.u32.u32", dp4a_uu, 32, 32, 32, 32),
    LAST_ROW,
};
