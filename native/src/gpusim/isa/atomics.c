/* atom and red. Lanes go one after the other, lowest first: an order that the device may choose
 * too. */
#include "gpusim/state.h"

enum { A_ADD, A_MIN, A_MAX, A_AND, A_OR, A_XOR, A_EXCH, A_CAS, A_INC, A_DEC };

static uint32_t atomics_add_f16(uint32_t a, uint32_t b)
{
    return f16_bits(odd_sum(f16_value(a & 0xffff), f16_value(b & 0xffff)));
}

static uint32_t atomics_add_bf16(uint32_t a, uint32_t b)
{
    return bf16_bits(odd_sum(bf16_value(a & 0xffff), bf16_value(b & 0xffff)));
}

static uint64_t atomics_add(sim_type type, uint64_t old, uint64_t by)
{
    uint32_t a = (uint32_t)old, b = (uint32_t)by;
    switch (type) {
    case T_F32: {
        float sum = f32_of(a) + f32_of(b);
        return sum != sum ? NAN_F32 : bits_of(sum);
    }
    case T_F64:
        return bits_of_f64(f64_of(old) + f64_of(by));
    case T_F16:
        return atomics_add_f16(a, b);
    case T_BF16:
        return atomics_add_bf16(a, b);
    case T_F16X2:
        return atomics_add_f16(a, b) | atomics_add_f16(a >> 16, b >> 16) << 16;
    case T_BF16X2:
        return atomics_add_bf16(a, b) | atomics_add_bf16(a >> 16, b >> 16) << 16;
    default:
        return old + by;
    }
}

uint64_t sim_atomic_combine(uint32_t operation, sim_type type, uint64_t old, uint64_t by,
                            uint64_t with)
{
    switch (operation) {
    case A_ADD:
        return atomics_add(type, old, by);
    case A_EXCH:
        return by;
    case A_CAS:
        return old == by ? with : old;
    case A_AND:
        return old & by;
    case A_OR:
        return old | by;
    case A_XOR:
        return old ^ by;
    case A_INC:
        return old >= by ? 0 : old + 1;
    case A_DEC:
        return old == 0 || old > by ? by : old - 1;
    default: {
        int less = type == T_S32   ? (int32_t)by < (int32_t)old
                   : type == T_S64 ? (int64_t)by < (int64_t)old
                                   : by < old;
        return (operation == A_MIN) == less ? by : old;
    }
    }
}

/* Operands: [result,] address, value (of `count` parts), [value to put if they are equal]. */
int sim_atomic(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    uint32_t size = bytes_of(at->type), first = at->results + 1u;
    uint64_t value_mask = size == 8 ? ~(uint64_t)0 : ((uint64_t)1 << 8 * size) - 1;
    sim_fence(block, at->flags);
    for (int lane = 0; lane < LANES; lane++) {
        if (!(mask >> lane & 1))
            continue;
        uint64_t address = sim_address(block, warp, operand(block, at, at->results), lane);
        if (sim_synchronize(block, warp, address, at->flags))
            return 1;
        uint8_t *target = sim_reach(block, warp, at, lane, at->space, address, size * at->count,
                                    ACCESS_ATOMIC, NULL);
        if (target == NULL)
            return 1;
        for (uint32_t i = 0; i < at->count; i++, target += size) {
            uint64_t old = 0,
                     by = lane_value(block, warp, operand(block, at, first + i), lane) & value_mask,
                     with = 0;
            if (at->detail == A_CAS)
                with = lane_value(block, warp, operand(block, at, first + 1), lane) & value_mask;
            memcpy(&old, target, size);
            uint64_t value = sim_atomic_combine(at->detail, at->type, old, by, with);
            memcpy(target, &value, size);
            if (at->results)
                put_lane(warp, operand(block, at, i), lane, old);
        }
    }
    return 0;
}
