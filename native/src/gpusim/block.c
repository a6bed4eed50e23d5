/* A block of a cluster: its resources for a launch, and its state when it begins. */
#include <stdlib.h>

#include "gpusim/state.h"

void sim_name_thread(const sim_block *block, uint32_t thread, uint32_t *out)
{
    const uint32_t *size = block->launch->block;
    out[0] = thread % size[0];
    out[1] = thread / size[0] % size[1];
    out[2] = thread / size[0] / size[1];
}

/* Two adjacent blocks share a multiprocessor; the numbers of these have gaps. */
static uint32_t block_processor(uint32_t block)
{
    uint32_t number = block / 2;
    return number < 2 ? number : number + 3;
}

int sim_report(sim_block *block, sim_fault_kind fault_type, const sim_instruction *at,
               uint32_t thread)
{
    block->fault->kind = fault_type;
    block->fault->line = at->line;
    memcpy(block->fault->block, block->index, sizeof block->index);
    sim_name_thread(block, thread, block->fault->thread);
    return 1;
}

static void block_set_specials(const sim_block *block, sim_warp *warp)
{
    const uint32_t *size = block->launch->block, *grid = block->launch->grid,
                   *cluster = block->launch->cluster, *index = block->index;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        uint32_t thread[3], lane_bit = (uint32_t)1 << lane;
        sim_name_thread(block, warp->number * LANES + lane, thread);
        uint32_t values[S_COUNT] = {
            [S_TID_X] = thread[0],
            [S_TID_Y] = thread[1],
            [S_TID_Z] = thread[2],
            [S_NTID_X] = size[0],
            [S_NTID_Y] = size[1],
            [S_NTID_Z] = size[2],
            [S_CTAID_X] = index[0],
            [S_CTAID_Y] = index[1],
            [S_CTAID_Z] = index[2],
            [S_NCTAID_X] = grid[0],
            [S_NCTAID_Y] = grid[1],
            [S_NCTAID_Z] = grid[2],
            [S_LANEID] = lane,
            [S_WARPID] = warp->number,
            [S_NWARPID] = block->warp_count,
            [S_LANEMASK_EQ] = lane_bit,
            [S_LANEMASK_LT] = lane_bit - 1,
            [S_LANEMASK_LE] = lane_bit | (lane_bit - 1),
            [S_LANEMASK_GT] = ~(lane_bit | (lane_bit - 1)),
            [S_LANEMASK_GE] = ~(lane_bit - 1),
            [S_CLUSTERID_X] = index[0] / cluster[0],
            [S_CLUSTERID_Y] = index[1] / cluster[1],
            [S_CLUSTERID_Z] = index[2] / cluster[2],
            [S_NCLUSTERID_X] = grid[0] / cluster[0],
            [S_NCLUSTERID_Y] = grid[1] / cluster[1],
            [S_NCLUSTERID_Z] = grid[2] / cluster[2],
            [S_CLUSTER_CTAID_X] = index[0] % cluster[0],
            [S_CLUSTER_CTAID_Y] = index[1] % cluster[1],
            [S_CLUSTER_CTAID_Z] = index[2] % cluster[2],
            [S_CLUSTER_NCTAID_X] = cluster[0],
            [S_CLUSTER_NCTAID_Y] = cluster[1],
            [S_CLUSTER_NCTAID_Z] = cluster[2],
            [S_CLUSTER_CTARANK] = block->rank,
            [S_CLUSTER_NCTARANK] = block->cluster->size,
            [S_DYNAMIC_SMEM] = block->launch->dynamic_shared,
            [S_TOTAL_SMEM] = block->shared_bytes,
            [S_SMID] = block_processor(index[0] + grid[0] * (index[1] + grid[1] * index[2])),
        };
        for (uint32_t s = 0; s < S_COUNT; s++)
            warp->registers[s * LANES + lane] = values[s];
    }
}

/* Registers and memory get a pattern that no program should depend on. */
void sim_start_block(sim_block *block)
{
    size_t clock_bytes = block->cluster->clock_words * sizeof(uint32_t);
    block->acquired = 0;
    block->mbarrier_count = 0;
    block->free_registers = 0;
    block->fences = 0;
    memset(block->agent_clocks, 0, sizeof block->agent_clocks);
    memset(block->fenced, 0, 2 * BLOCK_THREADS * sizeof *block->fenced);
    for (int i = 0; i < BARRIERS; i++) {
        sim_barrier *barrier = block->barriers + i;
        barrier->waiting = barrier->resumed = barrier->threads = 0;
        memset(barrier->vector_clock, 0, clock_bytes);
    }
    for (uint32_t i = 0; i < MOST_WARPS / 4; i++) {
        sim_warpgroup *group = block->warpgroups + i;
        *group = (sim_warpgroup){.pending = group->pending, .capacity = group->capacity};
    }
    for (uint32_t w = 0; w < block->warp_count; w++) {
        sim_warp *warp = block->warps + w;
        sim_warp fresh = {.registers = warp->registers,
                          .copies = warp->copies,
                          .copy_capacity = warp->copy_capacity,
                          .vector_clock = warp->vector_clock,
                          .pending_words = warp->pending_words,
                          .touched_words = warp->touched_words,
                          .thread_registers = block->kernel->thread_registers};
        uint32_t count = block->threads - w * LANES, words = block->kernel->register_words;
        fresh.live = count >= LANES ? ~0u : ((uint32_t)1 << count) - 1;
        fresh.number = w, fresh.clock = 1;
        *warp = fresh;
        memset(warp->registers, 0, (size_t)words * LANES * 4);
        memset(warp->vector_clock, 0, clock_bytes);
        if (block->uses_wgmma) {
            memset(warp->pending_words, 0, words * sizeof *warp->pending_words);
            memset(warp->touched_words, 0, words * sizeof *warp->touched_words);
        }
        block_set_specials(block, warp);
    }
    memset(block->shared, 0xa5, block->shared_bytes);
    memset(block->shared_state, 0, block->shared_bytes);
    memset(block->local, 0xa5, (size_t)block->warp_count * LANES * block->kernel->local_bytes);
}

/* --- resources -------------------------------------------------------------------------------- */

void sim_free_block(sim_block *block)
{
    for (uint32_t w = 0; block->warps != NULL && w < block->warp_count; w++) {
        free(block->warps[w].registers);
        free(block->warps[w].copies);
        free(block->warps[w].vector_clock);
        free(block->warps[w].pending_words);
        free(block->warps[w].touched_words);
    }
    for (uint32_t i = 0; i < block->mbarrier_capacity; i++)
        free(block->mbarriers[i].arriving);
    for (uint32_t i = 0; i < MOST_WARPS / 4; i++)
        free(block->warpgroups[i].pending);
    for (int i = 0; i < BARRIERS; i++)
        free(block->barriers[i].vector_clock);
    free(block->mbarriers);
    free(block->fenced);
    free(block->warps);
    free(block->shared);
    free(block->shared_state);
    free(block->shared_shadow);
    free(block->local);
}

static int block_prepare_warp(const sim_block *block, sim_warp *warp)
{
    uint32_t words = block->kernel->register_words;
    warp->registers = aligned_alloc(64, ((size_t)words * LANES * 4 + 63) / 64 * 64);
    warp->vector_clock = malloc(block->cluster->clock_words * sizeof *warp->vector_clock);
    if (block->uses_wgmma) {
        warp->pending_words = malloc((words + 1) * sizeof *warp->pending_words);
        warp->touched_words = malloc((words + 1) * sizeof *warp->touched_words);
    }
    return warp->registers == NULL || warp->vector_clock == NULL ||
           (block->uses_wgmma && (warp->pending_words == NULL || warp->touched_words == NULL));
}

int sim_prepare_block(sim_block *block)
{
    block->warps = calloc(block->warp_count, sizeof *block->warps);
    block->shared = malloc(block->shared_bytes + 16);
    block->shared_state = malloc(block->shared_bytes + 16);
    block->shared_shadow = calloc(block->shared_bytes / 4 + 2, sizeof *block->shared_shadow);
    block->local = malloc((size_t)block->warp_count * LANES * block->kernel->local_bytes + 16);
    block->fenced = malloc(2 * BLOCK_THREADS * sizeof *block->fenced);
    if (!block->warps || !block->shared || !block->shared_state || !block->shared_shadow ||
        !block->local || !block->fenced)
        return 1;
    block->fenced_global = block->fenced + BLOCK_THREADS;
    for (int i = 0; i < BARRIERS; i++) {
        block->barriers[i].vector_clock = malloc(block->cluster->clock_words * sizeof(uint32_t));
        if (block->barriers[i].vector_clock == NULL)
            return 1;
    }
    for (uint32_t w = 0; w < block->warp_count; w++)
        if (block_prepare_warp(block, block->warps + w))
            return 1;
    return 0;
}
