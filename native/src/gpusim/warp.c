/* A warp, until it waits: the lanes at the lowest program counter run first, so that diverged lanes
 * reconverge. */
#include "gpusim/state.h"

enum { PRED_AND, PRED_OR, PRED_XOR, PRED_NOT, PRED_MOVE };

static void warp_run_move(const sim_block *block, sim_warp *warp, const sim_instruction *at,
                          uint32_t mask)
{
    const sim_operand *to = operand(block, at, 0), *from = operand(block, at, 1);
    if (to->width == 64)
        put_wide(warp, to, wide(block, warp, from), mask);
    else
        put_narrow(warp, to, narrow(block, warp, from), mask);
}

/* mov with a vector on one side: the first element is the lowest part. flags: bits of an
 * element. */
static void warp_run_pack(const sim_block *block, sim_warp *warp, const sim_instruction *at,
                          uint32_t mask)
{
    uint32_t bits = at->flags, low_bits = bits == 32 ? ~0u : (1u << bits) - 1;
    for (int lane = 0; lane < LANES; lane++) {
        if (!(mask >> lane & 1))
            continue;
        if (at->op == OP_PACK) {
            uint64_t value = 0;
            for (uint32_t i = 0; i < at->count; i++)
                value |= (lane_value(block, warp, operand(block, at, 1 + i), lane) & low_bits)
                         << (bits * i);
            put_lane(warp, operand(block, at, 0), lane, value);
        } else {
            uint64_t value = lane_value(block, warp, operand(block, at, at->count), lane);
            for (uint32_t i = 0; i < at->count; i++)
                put_lane(warp, operand(block, at, i), lane, value >> (bits * i) & low_bits);
        }
    }
}

static void warp_run_select(const sim_block *block, sim_warp *warp, const sim_instruction *at,
                            uint32_t mask)
{
    const sim_operand *to = operand(block, at, 0), *a = operand(block, at, 1),
                      *b = operand(block, at, 2);
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

static void warp_run_predicate(const sim_block *block, sim_warp *warp, const sim_instruction *at,
                               uint32_t mask)
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
static void warp_run_address(const sim_block *block, sim_warp *warp, const sim_instruction *at,
                             uint32_t mask)
{
    uint64_t window = at->space == SPACE_SHARED  ? SHARED_WINDOW
                      : at->space == SPACE_LOCAL ? LOCAL_WINDOW
                      : at->space == SPACE_PARAM ? PARAM_WINDOW
                                                 : 0;
    for (int lane = 0; lane < LANES; lane++)
        if (mask >> lane & 1) {
            uint64_t value = lane_value(block, warp, operand(block, at, 1), lane);
            put_lane(warp, operand(block, at, 0), lane,
                     at->flags & 1 ? value - window : value + window);
        }
}

static void warp_run_active(const sim_block *block, sim_warp *warp, const sim_instruction *at,
                            uint32_t mask)
{
    for (int lane = 0; lane < LANES; lane++)
        if (mask >> lane & 1)
            put_lane(warp, operand(block, at, 0), lane, mask);
}

/* The simulated clock: the instructions of all warps that have run so far. What happens after a
 * signal of another block has a later time than the signal. */
static void warp_run_clock(const sim_block *block, sim_warp *warp, const sim_instruction *at,
                           uint32_t mask)
{
    const sim_cluster *cluster = block->cluster;
    uint64_t steps = 0;
    for (uint32_t b = 0; b < cluster->size; b++)
        for (uint32_t w = 0; w < cluster->blocks[b].warp_count; w++)
            steps += cluster->blocks[b].warps[w].steps;
    for (int lane = 0; lane < LANES; lane++)
        if (mask >> lane & 1)
            put_lane(warp, operand(block, at, 0), lane, steps);
}

static int warp_run_wgmma(sim_block *block, sim_warp *warp, const sim_instruction *at,
                          uint32_t mask)
{
    if (mask != ~0u)
        return sim_report(block, FAULT_DIVERGED, at, thread_of(warp, lowest(mask)));
    if (at->op == OP_WGMMA_WAIT)
        return sim_wgmma_wait(block, warp, at);
    if (at->op == OP_WGMMA_COMMIT)
        warp->wgmma_groups++;
    else
        warp->wgmma_fences++;
    return 0;
}

/* Instructions that may block lanes, in `waiting`; those execute them again later. */
static int warp_run_waiting(sim_block *block, sim_warp *warp, const sim_instruction *at,
                            uint32_t mask, uint32_t *waiting)
{
    switch (at->op) {
    case OP_MBARRIER_WAIT:
        return sim_mbarrier_wait(block, warp, at, mask, waiting);
    case OP_CLUSTER_WAIT:
        return sim_cluster_wait(block, warp, at, mask, waiting);
    case OP_SET_REGISTERS:
        return sim_set_registers(block, warp, at, mask, waiting);
    default:
        return sim_wgmma_issue(block, warp, at, mask, waiting);
    }
}

static inline int warp_may_wait(uint16_t op)
{
    return op == OP_MBARRIER_WAIT || op == OP_CLUSTER_WAIT || op == OP_SET_REGISTERS ||
           op == OP_WGMMA;
}

/* Everything that neither jumps nor waits. */
static int warp_run_plain(sim_block *block, sim_warp *warp, const sim_instruction *at,
                          uint32_t mask)
{
    switch (at->op) {
    case OP_LANES:
        sim_run_lanes(block, warp, at, mask);
        return 0;
    case OP_MOVE:
        warp_run_move(block, warp, at, mask);
        return 0;
    case OP_PACK:
    case OP_UNPACK:
        warp_run_pack(block, warp, at, mask);
        return 0;
    case OP_CONVERT:
        sim_convert(block, warp, at, mask);
        return 0;
    case OP_CONVERT_PAIR:
        sim_convert_pair(block, warp, at, mask);
        return 0;
    case OP_COMPARE:
        sim_compare(block, warp, at, mask);
        return 0;
    case OP_SELECT:
        warp_run_select(block, warp, at, mask);
        return 0;
    case OP_PREDICATE:
        warp_run_predicate(block, warp, at, mask);
        return 0;
    case OP_LOAD:
        return sim_load(block, warp, at, mask);
    case OP_STORE:
        return sim_store(block, warp, at, mask);
    case OP_ATOMIC:
        return sim_atomic(block, warp, at, mask);
    case OP_ADDRESS:
        warp_run_address(block, warp, at, mask);
        return 0;
    case OP_FENCE:
        sim_fence(block, at->flags);
        return sim_synchronize(block, warp, 0, at->flags);
    case OP_LAUNCH_WAIT:
        warp->has_waited = 1;
        return 0;
    case OP_ACTIVE:
        warp_run_active(block, warp, at, mask);
        return 0;
    case OP_CLOCK:
        warp_run_clock(block, warp, at, mask);
        return 0;
    case OP_COPY:
        return sim_copy_start(block, warp, at, mask);
    case OP_COPY_COMMIT:
        sim_copy_commit(warp, mask);
        return 0;
    case OP_COPY_WAIT:
        return sim_copy_wait(block, warp, at, mask);
    case OP_PROXY_FENCE:
        sim_proxy_fence(block, warp, at, mask);
        return 0;
    case OP_MAP_ADDRESS:
    case OP_CLUSTER_RANK:
        return sim_map_address(block, warp, at, mask);
    case OP_CLUSTER_ARRIVE:
        return sim_cluster_arrive(block, warp, at, mask);
    case OP_MBARRIER:
        return sim_mbarrier_run(block, warp, at, mask);
    case OP_BULK_COPY:
        return sim_bulk_start(block, warp, at, mask);
    case OP_BULK_COMMIT:
        sim_bulk_commit(warp, mask);
        return 0;
    case OP_BULK_WAIT:
        return sim_bulk_wait(block, warp, at, mask);
    case OP_WGMMA_FENCE:
    case OP_WGMMA_COMMIT:
    case OP_WGMMA_WAIT:
        return warp_run_wgmma(block, warp, at, mask);
    case OP_TRAP:
        return sim_report(block, FAULT_TRAP, at, thread_of(warp, lowest(mask)));
    default:
        return sim_report(block, FAULT_OPERATION, at, thread_of(warp, lowest(mask)));
    }
}

static inline int warp_is_exchange(uint16_t op)
{
    return op == OP_SHUFFLE || op == OP_VOTE || op == OP_REDUCE || op == OP_MATCH ||
           op == OP_ELECT || op == OP_LOAD_MATRIX || op == OP_STORE_MATRIX || op == OP_MULTIPLY ||
           op == OP_WARP_BARRIER;
}

/* The lanes that an exchange is for: those of the matrix instructions are all. */
static uint32_t warp_members_of(const sim_block *block, const sim_warp *warp,
                                const sim_instruction *at, uint32_t mask)
{
    if (at->op == OP_LOAD_MATRIX || at->op == OP_STORE_MATRIX || at->op == OP_MULTIPLY)
        return ~0u;
    return narrow(block, warp, operand(block, at, at->operands - 1))[lowest(mask)];
}

static void warp_select_path(sim_warp *warp, uint32_t mask, uint32_t pc)
{
    for (int i = 0; i < LANES; i++)
        if (mask >> i & 1)
            warp->pc[i] = pc;
}

/* The lanes to run next and how far: up to the program counter of waiting lanes. 0: none can
 * run. */
static uint32_t warp_choose_lanes(const sim_warp *warp, uint32_t *pc, uint32_t *limit)
{
    uint32_t ready = warp->live & ~warp->parked & ~warp->blocked;
    uint32_t first = ready & ~warp->deferred, mask = 0;
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
    /* The lanes after it wait for an exchange; lanes that reach it must stop too. */
    if (mask != ready && *limit == UINT32_MAX)
        *limit = UINT32_MAX - 1;
    return mask;
}

/* Lanes at a barrier: all live lanes must arrive. Returns 1 after a fault. */
static int warp_reach_barrier(sim_block *block, sim_warp *warp, const sim_instruction *at,
                              uint32_t active)
{
    if (!(at->flags & BARRIER_ARRIVE)) {
        warp->parked |= active;
        for (int i = 0; i < LANES; i++)
            if (active >> i & 1)
                warp->at_barrier[i] = (uint32_t)(at - block->kernel->code);
        return 0;
    }
    if (active != warp->live)
        return sim_report(block, FAULT_DIVERGED, at, thread_of(warp, lowest(active)));
    return sim_arrive(block, warp, at, lowest(active), 0);
}

/* Strong loads after which a warp lets others run: it may spin on a flag of theirs. */
enum { MOST_STRONG_LOADS = 64 };

static inline void warp_note_poll(sim_warp *warp, const sim_instruction *at)
{
    if (at->op == OP_LOAD && at->flags & ACCESS_STRONG &&
        ++warp->strong_loads % MOST_STRONG_LOADS == 0)
        warp->polls = at->flags & ACCESS_HOST ? POLLS_HOST : POLLS_MEMORY;
}

int sim_run_warp(sim_block *block, sim_warp *warp)
{
    const sim_kernel *kernel = block->kernel;
    uint32_t pc, limit, mask;
    warp->polls = 0;
    while (!warp->polls && (mask = warp_choose_lanes(warp, &pc, &limit)) != 0) {
        for (;;) {
            const sim_instruction *at = kernel->code + pc;
            uint32_t active = mask;
            if (at->guard >= 0) {
                uint32_t guard = warp->registers[(size_t)at->guard * LANES];
                active &= at->unless ? ~guard : guard;
            }
            if (++warp->steps > block->launch->most_steps || warp->clock >= MOST_MOMENTS)
                return sim_report(block, FAULT_STEPS, at, thread_of(warp, lowest(mask)));
            uint32_t next = pc + 1;
            int again = 0; /* whether the lanes have to be chosen anew */
            if (active != 0 && block->uses_wgmma && sim_wgmma_touch(block, warp, at, active))
                return 1;
            if (active == 0) {
            } else if (at->op == OP_BRANCH) {
                if (active == mask)
                    next = at->target;
                else
                    warp_select_path(warp, active, at->target), mask &= ~active, again = 1;
            } else if (at->op == OP_EXIT) {
                if (warp->parked && sim_check_exit(block, warp, active))
                    return 1;
                /* Exchanges do not wait for those that have ended. */
                warp->live &= ~active, warp->deferred = 0, mask &= ~active, again = 1;
            } else if (at->op == OP_BARRIER) {
                if (warp_reach_barrier(block, warp, at, active))
                    return 1;
                again = 1;
            } else if (warp_is_exchange(at->op)) {
                uint32_t members = warp_members_of(block, warp, at, active);
                if (members & warp->live & ~active) {
                    warp->deferred |= active;
                    warp_select_path(warp, active, pc);
                    warp_select_path(warp, mask & ~active, next);
                    break;
                }
                warp->deferred &= ~active;
                if (sim_exchange(block, warp, at, active, members))
                    return 1;
            } else if (warp_may_wait(at->op)) {
                uint32_t waiting = 0;
                if (warp_run_waiting(block, warp, at, active, &waiting))
                    return 1;
                if (waiting != 0) {
                    warp->blocked |= waiting;
                    warp_select_path(warp, waiting, pc);
                    mask &= ~waiting, again = 1;
                }
                again |= warp->polls != 0;
                warp->polled_at = pc;
            } else if (warp_run_plain(block, warp, at, active)) {
                return 1;
            } else {
                warp_note_poll(warp, at);
                again = warp->polls != 0;
                if (again)
                    warp->polled_at = pc;
            }
            if (again || (limit != UINT32_MAX && (next >= limit || next < pc))) {
                warp_select_path(warp, mask, next);
                break;
            }
            pc = next;
        }
    }
    uint32_t stuck = warp->live & ~warp->parked;
    if (stuck != 0 && !warp->blocked && !warp->polls)
        return sim_report(block, FAULT_DIVERGED, kernel->code + warp->pc[lowest(stuck)],
                          thread_of(warp, lowest(stuck)));
    return 0;
}
