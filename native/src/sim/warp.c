/* A warp, until it has to wait: lanes at the lowest place go first, so those that took different ways meet again. */
#include <string.h>

#include "lanes.h"
#include "state.h"

enum { PRED_AND, PRED_OR, PRED_XOR, PRED_NOT, PRED_MOVE };

static int lowest(uint32_t mask) { return __builtin_ctz(mask); }

static void run_lanes(const sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    const lane_row *row = NOVA_SIM_LANES + at->detail;
    uint64_t out[LANES];
    const void *in[3] = {NULL, NULL, NULL};
    for (uint32_t i = 0; i < 3 && row->in[i] != 0; i++) {
        const sim_operand *o = operand(block, at, i + 1);
        in[i] = row->in[i] == 64 ? (const void *)wide(block, warp, o) : (const void *)narrow(block, warp, o);
    }
    row->function(out, in[0], in[1], in[2]);
    if (row->out == 64)
        put_wide(warp, operand(block, at, 0), out, mask);
    else
        put_narrow(warp, operand(block, at, 0), (const uint32_t *)out, mask);
}

static void run_move(const sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    const sim_operand *to = operand(block, at, 0), *from = operand(block, at, 1);
    if (to->width == 64) {
        if (from->kind == OPERAND_CONSTANT || from->width == 64)
            put_wide(warp, to, wide(block, warp, from), mask);
        else
            for (int lane = 0; lane < LANES; lane++)
                if (mask >> lane & 1)
                    put_lane(warp, to, lane, narrow(block, warp, from)[lane]);
    } else {
        put_narrow(warp, to, narrow(block, warp, from), mask);
    }
}

/* mov with a vector on one side: the first element is the lowest part. */
static void run_pack(const sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    uint32_t bits = (uint32_t)at->flags, kept = bits == 32 ? ~0u : (1u << bits) - 1;
    for (int lane = 0; lane < LANES; lane++) {
        if (!(mask >> lane & 1))
            continue;
        if (at->op == OP_PACK) {
            uint64_t value = 0;
            for (uint32_t i = 0; i < at->count; i++)
                value |= (lane_value(block, warp, operand(block, at, 1 + i), lane) & kept) << (bits * i);
            put_lane(warp, operand(block, at, 0), lane, value);
        } else {
            uint64_t value = lane_value(block, warp, operand(block, at, at->count), lane);
            for (uint32_t i = 0; i < at->count; i++)
                put_lane(warp, operand(block, at, i), lane, value >> (bits * i) & kept);
        }
    }
}

static void run_select(const sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    const sim_operand *to = operand(block, at, 0), *a = operand(block, at, 1), *b = operand(block, at, 2);
    uint32_t first = predicate(block, warp, operand(block, at, 3));
    if (to->width == 64) {
        uint64_t values[LANES];
        const uint64_t *x = wide(block, warp, a), *y = wide(block, warp, b);
        for (int i = 0; i < LANES; i++)
            values[i] = first >> i & 1 ? x[i] : y[i];
        put_wide(warp, to, values, mask);
    } else {
        uint32_t values[LANES];
        const uint32_t *x = narrow(block, warp, a), *y = narrow(block, warp, b);
        for (int i = 0; i < LANES; i++)
            values[i] = first >> i & 1 ? x[i] : y[i];
        put_narrow(warp, to, values, mask);
    }
}

static void run_predicate(const sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    uint32_t a = predicate(block, warp, operand(block, at, 1));
    uint32_t b = at->operands > 2 ? predicate(block, warp, operand(block, at, 2)) : 0;
    uint32_t value = at->detail == PRED_AND   ? a & b
                     : at->detail == PRED_OR  ? a | b
                     : at->detail == PRED_XOR ? a ^ b
                     : at->detail == PRED_NOT ? ~a
                                              : a;
    put_predicate(warp, operand(block, at, 0), value, mask);
}

/* cvta: between generic addresses and those of a space. flags: 1 towards the space. */
static void run_address(const sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    uint64_t window = at->space == SPACE_SHARED ? SHARED_WINDOW : at->space == SPACE_LOCAL ? LOCAL_WINDOW : 0;
    for (int lane = 0; lane < LANES; lane++)
        if (mask >> lane & 1) {
            uint64_t value = lane_value(block, warp, operand(block, at, 1), lane);
            put_lane(warp, operand(block, at, 0), lane, at->flags & 1 ? value - window : value + window);
        }
}

/* Instructions of the whole warp: whether all lanes that take part have arrived; else those here wait for the others. */
static int members_of(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask, uint32_t *members)
{
    *members = ~0u;
    if (at->op == OP_SHUFFLE || at->op == OP_VOTE || at->op == OP_REDUCE || at->op == OP_WARP_BARRIER) {
        const sim_operand *last = operand(block, at, at->operands - 1);
        *members = narrow(block, warp, last)[lowest(mask)];
    }
    return (*members & warp->live & ~mask) == 0;
}

static int is_exchange(uint16_t op)
{
    return op == OP_SHUFFLE || op == OP_VOTE || op == OP_REDUCE || op == OP_LOAD_MATRIX || op == OP_MULTIPLY ||
           op == OP_WARP_BARRIER;
}

static int run_exchange(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask, uint32_t members)
{
    switch (at->op) {
    case OP_SHUFFLE: sim_shuffle(block, warp, at, mask); return 0;
    case OP_VOTE: sim_vote(block, warp, at, mask, members & warp->live); return 0;
    case OP_REDUCE: sim_reduce(block, warp, at, mask, members & warp->live); return 0;
    case OP_WARP_BARRIER: warp->epoch++; return 0;
    case OP_MULTIPLY:
        if (mask != ~0u)
            return sim_report(block, FAULT_DIVERGED, at, warp->number * LANES);
        sim_multiply(block, warp, at);
        return 0;
    default:
        if (mask != ~0u)
            return sim_report(block, FAULT_DIVERGED, at, warp->number * LANES);
        return sim_load_matrix(block, warp, at);
    }
}

/* Everything that neither jumps nor waits. */
static int run_plain(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    switch (at->op) {
    case OP_LANES: run_lanes(block, warp, at, mask); return 0;
    case OP_MOVE: run_move(block, warp, at, mask); return 0;
    case OP_PACK: case OP_UNPACK: run_pack(block, warp, at, mask); return 0;
    case OP_CONVERT: sim_convert(block, warp, at, mask); return 0;
    case OP_COMPARE: sim_compare(block, warp, at, mask); return 0;
    case OP_SELECT: run_select(block, warp, at, mask); return 0;
    case OP_PREDICATE: run_predicate(block, warp, at, mask); return 0;
    case OP_ADDRESS: run_address(block, warp, at, mask); return 0;
    case OP_LOAD: return sim_load(block, warp, at, mask);
    case OP_STORE: return sim_store(block, warp, at, mask);
    case OP_ATOMIC: return sim_atomic(block, warp, at, mask);
    case OP_COPY: return sim_copy_start(block, warp, at, mask);
    case OP_COPY_COMMIT: sim_copy_commit(warp, mask); return 0;
    case OP_COPY_WAIT: return sim_copy_wait(block, warp, at, mask);
    case OP_FENCE: return 0;
    case OP_TRAP: return sim_report(block, FAULT_TRAP, at, warp->number * LANES + (uint32_t)lowest(mask));
    case OP_ACTIVE: {
        uint32_t values[LANES];
        for (int i = 0; i < LANES; i++)
            values[i] = mask;
        put_narrow(warp, operand(block, at, 0), values, mask);
        return 0;
    }
    default: return sim_report(block, FAULT_OPERATION, at, warp->number * LANES);
    }
}

static void place_lanes(sim_warp *warp, uint32_t mask, uint32_t pc)
{
    for (int i = 0; i < LANES; i++)
        if (mask >> i & 1)
            warp->pc[i] = pc;
}

/* The lanes to run next and how far: up to the place where others wait to be joined. 0: none can run. */
static uint32_t choose_lanes(const sim_warp *warp, uint32_t *pc, uint32_t *limit)
{
    uint32_t ready = warp->live & ~warp->parked, first = ready & ~warp->deferred, mask = 0;
    if (first == 0)
        return 0;
    *pc = *limit = UINT32_MAX;
    for (int i = 0; i < LANES; i++)
        if (first >> i & 1 && warp->pc[i] < *pc)
            *pc = warp->pc[i];
    for (int i = 0; i < LANES; i++)
        if (ready >> i & 1) {
            if (warp->pc[i] == *pc)
                mask |= (uint32_t)1 << i;
            else if (warp->pc[i] > *pc && warp->pc[i] < *limit)
                *limit = warp->pc[i];
        }
    return mask;
}

int sim_run_warp(sim_block *block, sim_warp *warp)
{
    const sim_kernel *kernel = block->kernel;
    uint32_t pc, limit, mask;
    while ((mask = choose_lanes(warp, &pc, &limit)) != 0) {
        for (;;) {
            const sim_instruction *at = kernel->code + pc;
            uint32_t active = mask;
            if (at->guard >= 0) {
                uint32_t guard = warp->registers[(size_t)at->guard * LANES];
                active &= at->unless ? ~guard : guard;
            }
            if (++warp->steps > block->launch->most_steps)
                return sim_report(block, FAULT_STEPS, at, warp->number * LANES + (uint32_t)lowest(mask));
            uint32_t next = pc + 1;
            int again = 0; /* whether the lanes have to be chosen anew */
            if (active == 0) {
            } else if (at->op == OP_BRANCH) {
                if (active == mask)
                    next = at->target;
                else
                    place_lanes(warp, active, at->target), mask &= ~active, again = 1;
            } else if (at->op == OP_EXIT) {
                warp->live &= ~active, mask &= ~active, again = 1;
            } else if (at->op == OP_BARRIER) {
                warp->parked |= active, again = 1;
            } else if (is_exchange(at->op)) {
                uint32_t members;
                if (!members_of(block, warp, at, active, &members)) {
                    warp->deferred |= active;
                    place_lanes(warp, mask, pc);
                    break;
                }
                warp->deferred &= ~active;
                if (run_exchange(block, warp, at, active, members))
                    return 1;
            } else if (run_plain(block, warp, at, active)) {
                return 1;
            }
            if (again || next >= limit || next < pc) {
                place_lanes(warp, mask, next);
                break;
            }
            pc = next;
        }
    }
    uint32_t stuck = warp->live & ~warp->parked;
    if (stuck != 0)
        return sim_report(block, FAULT_DIVERGED, kernel->code + warp->pc[lowest(stuck)],
                          warp->number * LANES + (uint32_t)lowest(stuck));
    return 0;
}
