/* Shadow of global memory that outlives a launch. */
#ifndef NOVA_GPUSIM_MEMORY_SHADOW_MEMORY_H
#define NOVA_GPUSIM_MEMORY_SHADOW_MEMORY_H

#include "gpusim/state.h"

typedef struct {
    sim_shadow *words;
    uint64_t capacity;
    uint32_t used; /* numbers of blocks that stamps in it may have */
} shadow_map;

/* Words of the smallest map, and of the largest that is cached: 64 MB and 512 MB of memory, if all
 * pages are touched. */
enum {
    LEAST_CAPACITY = (64 << 20) / sizeof(sim_shadow),
    MOST_CACHED = (512 << 20) / sizeof(sim_shadow)
};

/* A map of at least that many words, for blocks numbered from used + 1; NULL: out of memory. The
 * caller owns it and releases it. Thread-safe. */
shadow_map *sim_take_shadow(uint64_t words, uint64_t blocks);
void sim_give_shadow(shadow_map *map, uint64_t blocks);

#endif
