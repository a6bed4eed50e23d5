/* A launch: block after block, in each the warps in turns from barrier to barrier. */
#include <stdlib.h>
#include <string.h>

#include "state.h"

int sim_report(sim_block *block, sim_fault_kind kind, const sim_instruction *at, uint32_t thread)
{
    const uint32_t *size = block->launch->block;
    block->fault->kind = kind;
    block->fault->line = at->line;
    memcpy(block->fault->block, block->index, sizeof block->index);
    block->fault->thread[0] = thread % size[0];
    block->fault->thread[1] = thread / size[0] % size[1];
    block->fault->thread[2] = thread / size[0] / size[1];
    return 1;
}

static void set_specials(const sim_block *block, sim_warp *warp)
{
    const uint32_t *size = block->launch->block, *grid = block->launch->grid;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        uint32_t thread = warp->number * LANES + lane;
        uint32_t values[S_COUNT] = {
            [S_TID_X] = thread % size[0], [S_TID_Y] = thread / size[0] % size[1], [S_TID_Z] = thread / size[0] / size[1],
            [S_NTID_X] = size[0], [S_NTID_Y] = size[1], [S_NTID_Z] = size[2],
            [S_CTAID_X] = block->index[0], [S_CTAID_Y] = block->index[1], [S_CTAID_Z] = block->index[2],
            [S_NCTAID_X] = grid[0], [S_NCTAID_Y] = grid[1], [S_NCTAID_Z] = grid[2],
            [S_LANEID] = lane, [S_WARPID] = warp->number, [S_NWARPID] = block->warp_count,
            [S_LANEMASK_LT] = ((uint32_t)1 << lane) - 1,
        };
        for (uint32_t s = 0; s < S_COUNT; s++)
            warp->registers[s * LANES + lane] = values[s];
    }
}

static void start_block(sim_block *block)
{
    block->epoch = 1;
    for (uint32_t w = 0; w < block->warp_count; w++) {
        sim_warp *warp = block->warps + w;
        uint32_t count = block->threads - w * LANES;
        memset(warp->registers, 0, (size_t)block->kernel->register_words * LANES * 4);
        memset(warp->pc, 0, sizeof warp->pc);
        memset(warp->groups, 0, sizeof warp->groups);
        warp->live = count >= LANES ? ~0u : ((uint32_t)1 << count) - 1;
        warp->parked = warp->deferred = warp->copy_count = 0;
        warp->number = w, warp->epoch = 1, warp->steps = 0;
        set_specials(block, warp);
    }
    if (block->shared_bytes) {
        memset(block->shared, 0xa5, block->shared_bytes);
        memset(block->shadow, 0, block->shared_bytes * sizeof *block->shadow);
    }
    if (block->kernel->local_bytes)
        memset(block->local, 0xa5, (size_t)block->warp_count * LANES * block->kernel->local_bytes);
}

static int run_block(sim_block *block)
{
    start_block(block);
    for (;;) {
        uint32_t live = 0, waiting = 0;
        for (uint32_t w = 0; w < block->warp_count; w++) {
            if (sim_run_warp(block, block->warps + w))
                return 1;
            live |= block->warps[w].live;
            waiting |= block->warps[w].parked;
        }
        if (live == 0)
            return 0;
        (void)waiting; /* every live lane is parked here: sim_run_warp returns for no other reason */
        for (uint32_t w = 0; w < block->warp_count; w++) {
            block->warps[w].parked = 0;
            block->warps[w].epoch++;
        }
        block->epoch++;
    }
}

static void free_block(sim_block *block)
{
    for (uint32_t w = 0; block->warps != NULL && w < block->warp_count; w++) {
        free(block->warps[w].registers);
        free(block->warps[w].copies);
    }
    free(block->warps);
    free(block->shared);
    free(block->shadow);
    free(block->local);
    free((void *)(uintptr_t)block->constants);
}

static int prepare_block(sim_block *block)
{
    const sim_kernel *kernel = block->kernel;
    sim_plane *planes = malloc((kernel->constant_count + 1) * sizeof *planes);
    block->constants = planes;
    block->warps = calloc(block->warp_count, sizeof *block->warps);
    block->shared = malloc(block->shared_bytes + 16);
    block->shadow = calloc(block->shared_bytes + 16, sizeof *block->shadow);
    block->local = malloc((size_t)block->warp_count * LANES * kernel->local_bytes + 16);
    if (!planes || !block->warps || !block->shared || !block->shadow || !block->local)
        return 1;
    for (uint32_t c = 0; c < kernel->constant_count; c++)
        for (int i = 0; i < LANES; i++) {
            planes[c].narrow[i] = (uint32_t)kernel->constants[c];
            planes[c].wide[i] = kernel->constants[c];
        }
    for (uint32_t w = 0; w < block->warp_count; w++) {
        size_t bytes = (size_t)kernel->register_words * LANES * 4;
        block->warps[w].registers = aligned_alloc(64, (bytes + 63) / 64 * 64);
        if (block->warps[w].registers == NULL)
            return 1;
    }
    return 0;
}

int nova_sim_run(const sim_kernel *kernel, const sim_launch *launch, sim_fault *fault)
{
    memset(fault, 0, sizeof *fault);
    sim_block block = {.kernel = kernel, .launch = launch, .fault = fault};
    block.threads = launch->block[0] * launch->block[1] * launch->block[2];
    block.warp_count = (block.threads + LANES - 1) / LANES;
    block.shared_bytes = kernel->shared_bytes + launch->dynamic_shared;
    int failed = prepare_block(&block);
    if (failed)
        fault->kind = FAULT_MEMORY;
    for (uint32_t z = 0; !failed && z < launch->grid[2]; z++)
        for (uint32_t y = 0; !failed && y < launch->grid[1]; y++)
            for (uint32_t x = 0; !failed && x < launch->grid[0]; x++) {
                block.index[0] = x, block.index[1] = y, block.index[2] = z;
                failed = run_block(&block);
            }
    free_block(&block);
    return failed;
}
