/* Accesses of asynchronous operations (bulk copies, wgmma): checked as those of threads are, for
 * bounds, uninitialized bytes, races, and missing fences between the proxies. */
#ifndef NOVA_GPUSIM_MEMORY_BULK_ACCESS_H
#define NOVA_GPUSIM_MEMORY_BULK_ACCESS_H

#include "gpusim/memory/races.h"

/* Who accesses: an agent of a block, at a clock of that agent. What its warps have seen happened
 * before. */
typedef struct {
    sim_block *block;
    const sim_instruction *at;
    sim_warp *warps[4];
    uint32_t warp_count;
    uint32_t thread; /* for reports */
    uint32_t agent, clock;
    /* stamps that are ordered, so that they need not be checked again */
    sim_stamp ordered_write, ordered_read, ordered_other;
    uint32_t ordered_fences;
} sim_actor;

/* The next operation of an agent. */
sim_actor sim_make_actor(sim_block *block, sim_warp *warp, const sim_instruction *at,
                         uint32_t thread, uint32_t agent);

/* Bytes of the shared memory of a block of the cluster; 1 after a fault. */
int sim_bulk_read_shared(sim_actor *actor, sim_block *target, uint64_t address, uint32_t bytes);
int sim_bulk_write_shared(sim_actor *actor, sim_block *target, uint64_t address, uint32_t bytes);

/* The host address of bytes of global memory, NULL after a fault. Writes of a reduction do not race
 * with each other. */
uint8_t *sim_bulk_reach_global(sim_actor *actor, uint64_t address, uint32_t bytes,
                               sim_access access);

#endif
