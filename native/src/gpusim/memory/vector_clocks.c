/* Vector clocks: what warps learn of each other when they synchronize. */
#include <stdlib.h>

#include "gpusim/state.h"

void sim_learn(const sim_block *block, uint32_t *clock, const uint32_t *from)
{
    uint32_t words = block->cluster->clock_words;
    for (uint32_t i = 0; i < words; i++)
        clock[i] = clock[i] > from[i] ? clock[i] : from[i];
}

void sim_publish(const sim_block *block, const sim_warp *warp, uint32_t *clock)
{
    sim_learn(block, clock, warp->vector_clock);
    uint32_t *entry = clock + block->rank * CLOCK_ROW + warp->number;
    *entry = *entry > warp->clock ? *entry : warp->clock;
}

/* --- release and acquire in a cooperative launch ---------------------------------------------- */

static uint32_t clocks_hash(uint64_t address, uint32_t capacity)
{
    return (uint32_t)(address * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (capacity - 1);
}

static sim_sync *clocks_find(const sim_cluster *cluster, uint64_t address)
{
    uint32_t at = clocks_hash(address, cluster->sync_capacity);
    while (cluster->syncs[at].vector_clock != NULL && cluster->syncs[at].address != address)
        at = (at + 1) & (cluster->sync_capacity - 1);
    return cluster->syncs + at;
}

static int clocks_grow(sim_cluster *cluster)
{
    sim_cluster larger = *cluster;
    larger.sync_capacity = cluster->sync_capacity == 0 ? 64 : 2 * cluster->sync_capacity;
    larger.syncs = calloc(larger.sync_capacity, sizeof *larger.syncs);
    if (larger.syncs == NULL)
        return 1;
    for (uint32_t i = 0; i < cluster->sync_capacity; i++)
        if (cluster->syncs[i].vector_clock != NULL)
            *clocks_find(&larger, cluster->syncs[i].address) = cluster->syncs[i];
    free(cluster->syncs);
    *cluster = larger;
    return 0;
}

/* The published clock of an address; NULL without memory. */
static uint32_t *clocks_of(sim_cluster *cluster, uint64_t address)
{
    if (2 * cluster->sync_count >= cluster->sync_capacity && clocks_grow(cluster))
        return NULL;
    sim_sync *sync = clocks_find(cluster, address);
    if (sync->vector_clock == NULL) {
        sync->address = address;
        sync->vector_clock = calloc(cluster->clock_words, sizeof *sync->vector_clock);
        cluster->sync_count += sync->vector_clock != NULL;
    }
    return sync->vector_clock;
}

int sim_synchronize(const sim_block *block, sim_warp *warp, uint64_t address, uint32_t flags)
{
    if (!block->launch->is_cooperative || !(flags & (ACCESS_ACQUIRE | ACCESS_RELEASE)))
        return 0;
    /* The host may have seen any release of system scope before it wrote what is acquired. */
    uint32_t *published = clocks_of(block->cluster, flags & ACCESS_HOST ? 0 : address);
    if (published == NULL) {
        block->fault->kind = FAULT_MEMORY;
        return 1;
    }
    if (flags & ACCESS_ACQUIRE)
        sim_learn(block, warp->vector_clock, published);
    if (flags & ACCESS_RELEASE) {
        sim_publish(block, warp, published);
        warp->clock++;
    }
    return 0;
}

void sim_free_syncs(sim_cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->sync_capacity; i++)
        free(cluster->syncs[i].vector_clock);
    free(cluster->syncs);
}
