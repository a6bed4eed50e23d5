/* setp: comparisons of all lanes to predicates. */
#include "gpusim/state.h"

enum { C_EQ, C_NE, C_LT, C_LE, C_GT, C_GE, C_NUM, C_NAN };

/* Lanes as masks: where a < b, where a == b, and where one of them is not a number. */
typedef struct {
    uint32_t less, equal, unordered;
} outcome;

#define COMPARE_LANES(T, READ_A, READ_B)                                                           \
    for (int i = 0; i < LANES; i++) {                                                              \
        T x = (READ_A), y = (READ_B);                                                              \
        out.less |= (uint32_t)(x < y) << i;                                                        \
        out.equal |= (uint32_t)(x == y) << i;                                                      \
        out.unordered |= (uint32_t)(x != x || y != y) << i;                                        \
    }

static inline uint32_t compare_flushed(uint32_t bits, uint32_t flags)
{
    return !(flags & COMPARE_FLUSH) || bits & 0x7f800000u ? bits : bits & 0x80000000u;
}

static outcome compare_lanes(sim_type type, uint32_t flags, const void *a, const void *b)
{
    const uint32_t *n = a, *m = b;
    const uint64_t *wn = a, *wm = b;
    outcome out = {0, 0, 0};
    switch (type) {
    case T_S16:
        COMPARE_LANES(int16_t, (int16_t)n[i], (int16_t)m[i]) break;
    case T_B16:
    case T_U16:
        COMPARE_LANES(uint16_t, (uint16_t)n[i], (uint16_t)m[i]) break;
    case T_S32:
        COMPARE_LANES(int32_t, (int32_t)n[i], (int32_t)m[i]) break;
    case T_S64:
        COMPARE_LANES(int64_t, (int64_t)wn[i], (int64_t)wm[i]) break;
    case T_B64:
    case T_U64:
        COMPARE_LANES(uint64_t, wn[i], wm[i]) break;
    case T_F16:
        COMPARE_LANES(float, f16_value(n[i] & 0xffff), f16_value(m[i] & 0xffff)) break;
    case T_BF16:
        COMPARE_LANES(float, bf16_value(n[i] & 0xffff), bf16_value(m[i] & 0xffff)) break;
    case T_F32:
        COMPARE_LANES(float, f32_of(compare_flushed(n[i], flags)),
                      f32_of(compare_flushed(m[i], flags)))
        break;
    case T_F64:
        COMPARE_LANES(double, f64_of(wn[i]), f64_of(wm[i])) break;
    default:
        COMPARE_LANES(uint32_t, n[i], m[i]) break;
    }
    return out;
}

static uint32_t compare_holds(uint32_t flags, outcome o)
{
    uint32_t ordered = ~o.unordered, missing = flags & COMPARE_UNORDERED ? o.unordered : 0;
    switch (flags & COMPARE_WHICH) {
    case C_EQ:
        return (o.equal & ordered) | missing;
    case C_NE:
        return (~o.equal & ordered) | missing;
    case C_LT:
        return (o.less & ordered) | missing;
    case C_LE:
        return ((o.less | o.equal) & ordered) | missing;
    case C_GT:
        return (~(o.less | o.equal) & ordered) | missing;
    case C_GE:
        return (~o.less & ordered) | missing;
    case C_NUM:
        return ordered;
    default:
        return o.unordered;
    }
}

static uint32_t compare_combined(uint32_t flags, uint32_t a, uint32_t b)
{
    return flags & COMPARE_AND   ? a & b
           : flags & COMPARE_OR  ? a | b
           : flags & COMPARE_XOR ? a ^ b
                                 : a;
}

/* Pairs of halves: p is that of the lower ones, q that of the upper ones. */
static void compare_pairs(const sim_block *block, sim_warp *warp, const sim_instruction *at,
                          uint32_t mask, uint32_t c)
{
    sim_type type = at->type == T_F16X2 ? T_F16 : T_BF16;
    const uint32_t *a = narrow(block, warp, operand(block, at, 2)),
                   *b = narrow(block, warp, operand(block, at, 3));
    for (uint32_t part = 0; part < 2; part++) {
        uint32_t x[LANES], y[LANES];
        for (int i = 0; i < LANES; i++)
            x[i] = a[i] >> 16 * part, y[i] = b[i] >> 16 * part;
        uint32_t result = compare_holds(at->flags, compare_lanes(type, at->flags, x, y));
        put_predicate(warp, operand(block, at, part), compare_combined(at->flags, result, c), mask);
    }
}

/* Operands: p [, q], a, b [, c]: p = (a ? b) op c and q = !(a ? b) op c. */
void sim_compare(const sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    const sim_operand *a = operand(block, at, at->results),
                      *b = operand(block, at, at->results + 1u);
    uint32_t c = 0;
    if (at->operands > at->results + 2u)
        c = predicate(block, warp, operand(block, at, at->results + 2u));
    if (at->type == T_F16X2 || at->type == T_BF16X2) {
        compare_pairs(block, warp, at, mask, c);
        return;
    }
    int is_wide = bytes_of(at->type) == 8;
    const void *x =
        is_wide ? (const void *)wide(block, warp, a) : (const void *)narrow(block, warp, a);
    const void *y =
        is_wide ? (const void *)wide(block, warp, b) : (const void *)narrow(block, warp, b);
    uint32_t result = compare_holds(at->flags, compare_lanes(at->type, at->flags, x, y));
    put_predicate(warp, operand(block, at, 0), compare_combined(at->flags, result, c), mask);
    if (at->results > 1)
        put_predicate(warp, operand(block, at, 1), compare_combined(at->flags, ~result, c), mask);
}
