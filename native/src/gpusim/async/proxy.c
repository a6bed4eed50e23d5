/* fence.proxy.async: generic accesses before it are ordered with accesses of the async proxy (bulk
 * copies, wgmma) after it. Each thread orders its own accesses, and those that it has synchronized
 * with. */
#include "gpusim/state.h"

static void proxy_fence_mbarriers(sim_block *block, uint32_t thread)
{
    for (uint32_t i = 0; i < block->mbarrier_count; i++)
        if (block->mbarriers[i].creator == thread)
            block->mbarriers[i].is_fenced = 1;
}

void sim_proxy_fence(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    if (!block->uses_async)
        return;
    block->fences++;
    for (int lane = 0; lane < LANES; lane++) {
        if (!(mask >> lane & 1))
            continue;
        uint32_t thread = thread_of(warp, lane);
        proxy_fence_mbarriers(block, thread);
        if (at->flags & PROXY_SHARED)
            block->fenced[thread] = block->fences;
        if (at->flags & PROXY_GLOBAL)
            block->fenced_global[thread] = block->fences;
    }
    if (!(at->flags & (PROXY_SHARED | PROXY_GLOBAL)))
        return;
    uint32_t *clock = warp->vector_clock, own = block->rank * CLOCK_ROW + CLOCK_FENCED;
    for (uint32_t b = 0; b < block->cluster->size; b++)
        for (uint32_t w = 0; w < MOST_WARPS; w++) {
            uint32_t *fenced = clock + b * CLOCK_ROW + CLOCK_FENCED + w;
            uint32_t visible = clock[b * CLOCK_ROW + w];
            *fenced = *fenced > visible ? *fenced : visible;
        }
    /* Other lanes of the warp, up to its last synchronization. */
    if (clock[own + warp->number] < warp->clock - 1)
        clock[own + warp->number] = warp->clock - 1;
}
