/* Vector clocks: what warps learn of each other when they synchronize. */
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
