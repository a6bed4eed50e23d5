/* Lane functions with their modes: rounding, flushing of subnormal numbers, saturation to [0, 1] or
 * to non-negative numbers. */
#include <fenv.h>

#include "gpusim/state.h"

static inline uint32_t arithmetic_flush_f32(uint32_t bits)
{
    return bits & 0x7f800000u ? bits : bits & 0x80000000u;
}
static inline uint32_t arithmetic_flush_half(uint32_t bits, uint32_t exponent)
{
    return bits & exponent ? bits : bits & 0x8000u;
}

static uint32_t arithmetic_flush(sim_type type, uint32_t word)
{
    switch (type) {
    case T_F32:
        return arithmetic_flush_f32(word);
    case T_F16:
        return arithmetic_flush_half(word, 0x7c00u);
    case T_F16X2:
        return arithmetic_flush_half(word & 0xffff, 0x7c00u) |
               arithmetic_flush_half(word >> 16, 0x7c00u) << 16;
    case T_BF16:
        return arithmetic_flush_half(word, 0x7f80u);
    case T_BF16X2:
        return arithmetic_flush_half(word & 0xffff, 0x7f80u) |
               arithmetic_flush_half(word >> 16, 0x7f80u) << 16;
    default:
        return word;
    }
}

static uint32_t arithmetic_clamp_f32(uint32_t bits, uint32_t flags)
{
    float x = f32_of(bits);
    if (flags & ARITHMETIC_RELU)
        return x != x ? NAN_F32 : x > 0 ? bits : 0;
    return !(x > 0) ? 0 : x < 1 ? bits : 0x3f800000u;
}

static uint32_t arithmetic_clamp_half(uint32_t bits, uint32_t flags, float value, uint32_t one_bits)
{
    if (flags & ARITHMETIC_RELU)
        return value != value ? NAN_HALF : value > 0 ? bits : 0;
    return !(value > 0) ? 0 : value < 1 ? bits : one_bits;
}

static uint32_t arithmetic_clamp(sim_type type, uint32_t word, uint32_t flags)
{
    uint32_t low = word & 0xffff, high = word >> 16;
    switch (type) {
    case T_F32:
        return arithmetic_clamp_f32(word, flags);
    case T_F16:
        return arithmetic_clamp_half(low, flags, f16_value(low), 0x3c00u);
    case T_BF16:
        return arithmetic_clamp_half(low, flags, bf16_value(low), 0x3f80u);
    case T_F16X2:
        return arithmetic_clamp_half(low, flags, f16_value(low), 0x3c00u) |
               arithmetic_clamp_half(high, flags, f16_value(high), 0x3c00u) << 16;
    default:
        return arithmetic_clamp_half(low, flags, bf16_value(low), 0x3f80u) |
               arithmetic_clamp_half(high, flags, bf16_value(high), 0x3f80u) << 16;
    }
}

/* Rounding is the mode of this thread while the function runs; the other modes are only for words
 * of 32 bits. */
static void arithmetic_run_with_modes(const sim_instruction *at, lane_function function,
                                      uint32_t inputs, uint64_t *out, const void **in)
{
    static const int modes[4] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    uint32_t flushed[4][LANES], *words = (uint32_t *)out;
    for (uint32_t i = 0; at->flags & ARITHMETIC_FLUSH && i < inputs; i++) {
        for (int lane = 0; lane < LANES; lane++)
            flushed[i][lane] = arithmetic_flush(at->type, ((const uint32_t *)in[i])[lane]);
        in[i] = flushed[i];
    }
    uint32_t rounding = at->flags & ARITHMETIC_ROUNDING;
    if (rounding)
        fesetround(modes[rounding]);
    function(out, in);
    if (rounding)
        fesetround(FE_TONEAREST);
    if (at->flags & ARITHMETIC_FLUSH)
        for (int lane = 0; lane < LANES; lane++)
            words[lane] = arithmetic_flush(at->type, words[lane]);
    if (at->flags & (ARITHMETIC_SATURATE | ARITHMETIC_RELU))
        for (int lane = 0; lane < LANES; lane++)
            words[lane] = arithmetic_clamp(at->type, words[lane], at->flags);
}

/* Operands: result, then those of the function. */
void sim_run_lanes(const sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    lane_function function = block->functions[at - block->kernel->code];
    const sim_operand *to = operand(block, at, 0);
    const void *in[4] = {NULL, NULL, NULL, NULL};
    uint32_t inputs = at->operands - 1;
    for (uint32_t i = 0; i < inputs; i++) {
        const sim_operand *o = operand(block, at, i + 1);
        in[i] = o->width == 64 ? (const void *)wide(block, warp, o)
                               : (const void *)narrow(block, warp, o);
    }
    if (mask == ~0u && at->flags == 0 && to->kind == OPERAND_REGISTER) {
        function(warp->registers + (size_t)to->at * LANES, in);
        return;
    }
    uint64_t out[LANES];
    if (at->flags)
        arithmetic_run_with_modes(at, function, inputs, out, in);
    else
        function(out, in);
    if (to->width == 64)
        put_wide(warp, to, out, mask);
    else
        put_narrow(warp, to, (const uint32_t *)(const void *)out, mask);
}
