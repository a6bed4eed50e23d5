/* Clusters: barrier.cluster, distributed shared memory, and the register pool of setmaxnreg. */
#include "gpusim/state.h"

/* --- distributed shared memory ---------------------------------------------------------------- */

sim_block *sim_find_rank(sim_block *block, uint64_t *address)
{
    uint64_t rank = *address >> CLUSTER_SHIFT;
    if (rank > block->cluster->size)
        return NULL;
    *address &= ((uint64_t)1 << CLUSTER_SHIFT) - 1;
    return rank == 0 ? block : block->cluster->blocks + (rank - 1);
}

/* Whether a warp has synchronized with a block since that began. */
static int cluster_has_met(const sim_warp *warp, const sim_block *target)
{
    const uint32_t *row = warp->vector_clock + target->rank * CLOCK_ROW;
    for (uint32_t w = 0; w < target->warp_count; w++)
        if (row[w] != 0)
            return 1;
    return 0;
}

sim_block *sim_reach_rank(sim_block *block, const sim_warp *warp, const sim_instruction *at,
                          uint32_t thread, uint64_t *address)
{
    sim_block *target = sim_find_rank(block, address);
    if (target == NULL) {
        sim_report_detail(block, FAULT_CLUSTER, at, thread,
                          "an address of shared memory of a block outside of the cluster");
        return NULL;
    }
    if (target == block)
        return target;
    if (!sim_is_live(target)) {
        sim_report_detail(block, FAULT_CLUSTER, at, thread,
                          "the block of rank %u has ended, and its shared memory with it",
                          target->rank);
        return NULL;
    }
    if (!cluster_has_met(warp, target)) {
        sim_report_detail(block, FAULT_CLUSTER, at, thread,
                          "the block of rank %u may not have begun: barrier.cluster comes first",
                          target->rank);
        return NULL;
    }
    return target;
}

/* mapa: d, address, rank; getctarank: d, address. */
int sim_map_address(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    uint64_t window = at->space == SPACE_GENERIC ? SHARED_WINDOW : 0;
    for (int lane = 0; lane < LANES; lane++) {
        if (!(mask >> lane & 1))
            continue;
        uint64_t address = lane_value(block, warp, operand(block, at, 1), lane);
        if (address < window) {
            sim_bad_access(block, FAULT_BOUNDS, at, thread_of(warp, lane), SPACE_SHARED, address, 1,
                           ACCESS_READ);
            return 1;
        }
        address -= window;
        const sim_block *target = sim_find_rank(block, &address);
        uint64_t rank =
            at->op == OP_MAP_ADDRESS ? lane_value(block, warp, operand(block, at, 2), lane) : 0;
        if (target == NULL || rank >= block->cluster->size)
            return sim_report_detail(block, FAULT_CLUSTER, at, thread_of(warp, lane),
                                     "rank %llu of a cluster of %u blocks",
                                     (unsigned long long)rank, block->cluster->size);
        uint64_t value = at->op == OP_CLUSTER_RANK
                             ? target->rank
                             : window + ((rank + 1) << CLUSTER_SHIFT) + address;
        put_lane(warp, operand(block, at, 0), lane, value);
    }
    return 0;
}

/* --- barrier.cluster -------------------------------------------------------------------------- */

int sim_cluster_arrive(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    if (at->flags & BARRIER_ALIGNED << 8 && mask != warp->live)
        return sim_report(block, FAULT_DIVERGED, at, thread_of(warp, lowest(mask)));
    if (mask & warp->cluster_arrived)
        return sim_report_detail(block, FAULT_CLUSTER, at,
                                 thread_of(warp, lowest(mask & warp->cluster_arrived)),
                                 "barrier.cluster.arrive twice without a wait between the two");
    warp->cluster_arrived |= mask;
    for (int lane = 0; lane < LANES; lane++)
        if (mask >> lane & 1)
            warp->cluster_phase[lane] = block->cluster->phase;
    if (at->flags & ACCESS_RELEASE)
        sim_publish(block, warp, block->cluster->arriving);
    warp->clock++;
    return 0;
}

int sim_cluster_wait(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask,
                     uint32_t *waiting)
{
    if (at->flags & BARRIER_ALIGNED << 8 && mask != warp->live)
        return sim_report(block, FAULT_DIVERGED, at, thread_of(warp, lowest(mask)));
    if (mask & ~warp->cluster_arrived)
        return sim_report_detail(block, FAULT_CLUSTER, at,
                                 thread_of(warp, lowest(mask & ~warp->cluster_arrived)),
                                 "barrier.cluster.wait without an arrive before it");
    for (int lane = 0; lane < LANES; lane++)
        if (mask >> lane & 1 && warp->cluster_phase[lane] == block->cluster->phase) {
            *waiting |= (uint32_t)1 << lane;
            warp->wait[lane] = (sim_wait){.reason = WAIT_CLUSTER,
                                          .phase = block->cluster->phase,
                                          .at = (uint32_t)(at - block->kernel->code)};
        }
    uint32_t passed = mask & ~*waiting;
    if (passed != 0) {
        sim_learn(block, warp->vector_clock, block->cluster->completed);
        warp->cluster_arrived &= ~passed;
        warp->clock++;
    }
    return 0;
}

int sim_cluster_release(sim_cluster *cluster)
{
    uint32_t arrived = 0;
    for (uint32_t b = 0; b < cluster->size; b++)
        for (uint32_t w = 0; w < cluster->blocks[b].warp_count; w++) {
            const sim_warp *warp = cluster->blocks[b].warps + w;
            for (uint32_t lanes = warp->live; lanes != 0; lanes &= lanes - 1) {
                int lane = lowest(lanes);
                int is_here = warp->cluster_arrived >> lane & 1 &&
                              warp->cluster_phase[lane] == cluster->phase;
                if (!is_here)
                    return 0;
                arrived = 1;
            }
        }
    if (!arrived)
        return 0;
    sim_learn(cluster->blocks, cluster->completed, cluster->arriving);
    cluster->phase++;
    return 1;
}

/* --- setmaxnreg ------------------------------------------------------------------------------- */

int sim_set_registers(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask,
                      uint32_t *waiting)
{
    uint32_t thread = thread_of(warp, lowest(mask)), count = at->target;
    if (mask != warp->live)
        return sim_report(block, FAULT_DIVERGED, at, thread);
    if (warp->thread_registers == 0)
        return sim_report_detail(block, FAULT_REGISTERS, at, thread,
                                 "the kernel has no limit of registers (.maxnreg, or .maxntid with "
                                 ".minnctapersm): ptxas ignores it");
    int increases = at->detail != 0;
    if (increases ? count < warp->thread_registers : count > warp->thread_registers)
        return sim_report_detail(block, FAULT_REGISTERS, at, thread,
                                 "setmaxnreg.%s to %u registers: the warp has %u",
                                 increases ? "inc" : "dec", count, warp->thread_registers);
    uint32_t more = increases ? (count - warp->thread_registers) * LANES : 0;
    if (more > block->free_registers) {
        *waiting = mask;
        for (int lane = 0; lane < LANES; lane++)
            warp->wait[lane] = (sim_wait){.reason = WAIT_REGISTERS,
                                          .phase = more,
                                          .at = (uint32_t)(at - block->kernel->code)};
        return 0;
    }
    block->free_registers += (warp->thread_registers - count) * LANES;
    warp->thread_registers = count;
    return 0;
}
