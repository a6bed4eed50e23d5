/* Barriers of a block: warps arrive, and resume together. Accesses before the barrier are visible
 * to all of them after it. */
#include "gpusim/state.h"

/* Operands of the instruction: number [, threads]. */
int sim_arrive(sim_block *block, sim_warp *warp, const sim_instruction *at, int lane, int waits)
{
    uint64_t number = lane_value(block, warp, operand(block, at, 0), lane), threads = 0;
    if (at->operands > 1)
        threads = lane_value(block, warp, operand(block, at, 1), lane);
    sim_barrier *barrier = block->barriers + (number < BARRIERS ? number : 0);
    int begun = barrier->waiting || barrier->resumed;
    if (number >= BARRIERS || threads % LANES != 0 || threads > block->warp_count * LANES ||
        (begun && barrier->threads != threads))
        return sim_report(block, FAULT_BARRIER, at, thread_of(warp, lane));
    barrier->threads = (uint32_t)threads;
    sim_publish(block, warp, barrier->vector_clock);
    if (waits) {
        barrier->waiting |= (uint32_t)1 << warp->number;
        warp->waits = (uint32_t)number + 1;
    } else {
        barrier->resumed++;
        warp->clock++;
    }
    return 0;
}

/* All live lanes are parked: at the same instruction if it is aligned, else at the same barrier. */
int sim_park_warp(sim_block *block, sim_warp *warp)
{
    const sim_instruction *code = block->kernel->code;
    int first = lowest(warp->live);
    const sim_instruction *at = code + warp->at_barrier[first];
    uint64_t number = lane_value(block, warp, operand(block, at, 0), first);
    for (int lane = first; lane < LANES; lane++) {
        if (!(warp->live >> lane & 1))
            continue;
        const sim_instruction *other = code + warp->at_barrier[lane];
        int aligned = (at->flags | other->flags) & BARRIER_ALIGNED;
        if ((aligned && other != at) ||
            lane_value(block, warp, operand(block, other, 0), lane) != number)
            return sim_report(block, FAULT_DIVERGED, other, thread_of(warp, lane));
    }
    return sim_arrive(block, warp, at, first, 1);
}

/* Lanes exit while other lanes of the warp wait at a barrier for the full warp: the exited lanes
 * have bypassed it. Lanes that exited before the first one arrived are not waited for, as with a
 * `ret` before the barrier. */
int sim_check_exit(sim_block *block, const sim_warp *warp, uint32_t ending)
{
    for (int lane = 0; lane < LANES; lane++) {
        const sim_instruction *at = block->kernel->code + warp->at_barrier[lane];
        if (!(warp->parked >> lane & 1) || !(at->flags & BARRIER_ALIGNED))
            continue;
        block->fault->has_other = 1;
        memcpy(block->fault->other_block, block->index, sizeof block->index);
        sim_name_thread(block, thread_of(warp, lowest(ending)), block->fault->other);
        return sim_report(block, FAULT_DIVERGED, at, thread_of(warp, lane));
    }
    return 0;
}

static int barrier_is_complete(const sim_block *block, const sim_barrier *barrier)
{
    uint32_t warps = (uint32_t)__builtin_popcount(barrier->waiting) + barrier->resumed;
    if (barrier->threads)
        return warps * LANES >= barrier->threads;
    for (uint32_t w = 0; w < block->warp_count; w++) /* those that have ended are not waited for */
        if (block->warps[w].live && !(barrier->waiting >> w & 1))
            return 0;
    return barrier->waiting != 0;
}

/* Gives the number of warps that go on. */
int sim_release(sim_block *block)
{
    int released = 0;
    for (int number = 0; number < BARRIERS; number++) {
        sim_barrier *barrier = block->barriers + number;
        if (!(barrier->waiting || barrier->resumed) || !barrier_is_complete(block, barrier))
            continue;
        for (uint32_t w = 0; !barrier->threads && w < block->warp_count; w++)
            if (!block->warps[w].live)
                sim_publish(block, block->warps + w, barrier->vector_clock);
        for (uint32_t w = 0; w < block->warp_count; w++) {
            sim_warp *warp = block->warps + w;
            if (!(barrier->waiting >> w & 1))
                continue;
            sim_learn(block, warp->vector_clock, barrier->vector_clock);
            warp->clock++, warp->waits = 0, warp->parked = 0;
            released++;
        }
        barrier->waiting = barrier->resumed = barrier->threads = 0;
        memset(barrier->vector_clock, 0,
               block->cluster->clock_words * sizeof *barrier->vector_clock);
    }
    return released;
}
