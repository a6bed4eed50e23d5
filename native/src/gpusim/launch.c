/* A launch: blocks in sequence, the warps of a block round-robin from barrier to barrier. */
#include <stdlib.h>

#include "gpusim/memory/shadow_memory.h"

void sim_name_thread(const sim_block *block, uint32_t thread, uint32_t *out)
{
    const uint32_t *size = block->launch->block;
    out[0] = thread % size[0];
    out[1] = thread / size[0] % size[1];
    out[2] = thread / size[0] / size[1];
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

static void launch_set_specials(const sim_block *block, sim_warp *warp)
{
    const uint32_t *size = block->launch->block, *grid = block->launch->grid;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        uint32_t index[3], lane_bit = (uint32_t)1 << lane;
        sim_name_thread(block, warp->number * LANES + lane, index);
        uint32_t values[S_COUNT] = {
            [S_TID_X] = index[0],
            [S_TID_Y] = index[1],
            [S_TID_Z] = index[2],
            [S_NTID_X] = size[0],
            [S_NTID_Y] = size[1],
            [S_NTID_Z] = size[2],
            [S_CTAID_X] = block->index[0],
            [S_CTAID_Y] = block->index[1],
            [S_CTAID_Z] = block->index[2],
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
        };
        for (uint32_t s = 0; s < S_COUNT; s++)
            warp->registers[s * LANES + lane] = values[s];
    }
}

/* Registers and memory get a pattern that no program should depend on. */
static void launch_start_block(sim_block *block)
{
    block->serial++;
    block->acquired = 0;
    memset(block->barriers, 0, sizeof block->barriers);
    for (uint32_t w = 0; w < block->warp_count; w++) {
        sim_warp *warp = block->warps + w;
        sim_warp fresh = {.registers = warp->registers,
                          .copies = warp->copies,
                          .copy_capacity = warp->copy_capacity};
        uint32_t count = block->threads - w * LANES;
        fresh.live = count >= LANES ? ~0u : ((uint32_t)1 << count) - 1;
        fresh.number = w, fresh.clock = 1;
        *warp = fresh;
        memset(warp->registers, 0, (size_t)block->kernel->register_words * LANES * 4);
        launch_set_specials(block, warp);
    }
    memset(block->shared, 0xa5, block->shared_bytes);
    memset(block->shared_state, 0, block->shared_bytes);
    memset(block->local, 0xa5, (size_t)block->warp_count * LANES * block->kernel->local_bytes);
}

static int launch_report_deadlock(sim_block *block)
{
    uint32_t w = 0;
    while (!block->warps[w].waits)
        w++;
    const sim_warp *warp = block->warps + w;
    int lane = lowest(warp->live);
    return sim_report(block, FAULT_DEADLOCK, block->kernel->code + warp->at_barrier[lane],
                      thread_of(warp, lane));
}

static int launch_run_block(sim_block *block)
{
    launch_start_block(block);
    for (;;) {
        uint32_t live = 0, ran = 0;
        for (uint32_t w = 0; w < block->warp_count; w++) {
            sim_warp *warp = block->warps + w;
            if (warp->live && !warp->waits) {
                ran = 1;
                if (sim_run_warp(block, warp) || (warp->live && sim_park_warp(block, warp)))
                    return 1;
            }
            live |= warp->live;
        }
        if (live == 0)
            return 0;
        if (!sim_release(block) && !ran)
            return launch_report_deadlock(block);
    }
}

/* --- resources of a launch -------------------------------------------------------------------- */

static void launch_free_block(sim_block *block)
{
    for (uint32_t w = 0; block->warps != NULL && w < block->warp_count; w++) {
        free(block->warps[w].registers);
        free(block->warps[w].copies);
    }
    free(block->warps);
    free(block->shared);
    free(block->shared_state);
    free(block->shared_shadow);
    free(block->local);
    free(block->range_words);
    free(block->released);
    free((void *)(uintptr_t)block->constants);
    free((void *)(uintptr_t)block->functions);
}

/* The offset of the shadow of each range; returns the words of all, or 0 without memory. */
static uint64_t launch_lay_out_shadow(sim_block *block)
{
    const sim_launch *launch = block->launch;
    block->range_words = malloc((launch->range_count + 1) * sizeof *block->range_words);
    uint64_t words = 1;
    for (uint32_t i = 0; block->range_words != NULL && i < launch->range_count; i++) {
        block->range_words[i] = words;
        words += launch->ranges[i].size / 4 + 2;
    }
    return block->range_words == NULL ? 0 : words;
}

static int launch_prepare_code(sim_block *block)
{
    const sim_kernel *kernel = block->kernel;
    sim_plane *planes = malloc((kernel->constant_count + 1) * sizeof *planes);
    lane_function *functions = calloc(kernel->length + 1, sizeof *functions);
    block->constants = planes;
    block->functions = functions;
    if (planes == NULL || functions == NULL)
        return 1;
    for (uint32_t c = 0; c < kernel->constant_count; c++)
        for (int i = 0; i < LANES; i++) {
            planes[c].narrow[i] = (uint32_t)kernel->constants[c];
            planes[c].wide[i] = kernel->constants[c];
        }
    for (uint32_t i = 0; i < kernel->length; i++)
        if (kernel->code[i].op == OP_LANES)
            functions[i] = sim_lane_function(kernel->code[i].detail);
    return 0;
}

static int launch_prepare_block(sim_block *block)
{
    const sim_kernel *kernel = block->kernel;
    const sim_launch *launch = block->launch;
    uint64_t blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    block->warps = calloc(block->warp_count, sizeof *block->warps);
    block->shared = malloc(block->shared_bytes + 16);
    block->shared_state = malloc(block->shared_bytes + 16);
    block->shared_shadow = calloc(block->shared_bytes / 4 + 2, sizeof *block->shared_shadow);
    block->local = malloc((size_t)block->warp_count * LANES * kernel->local_bytes + 16);
    block->released = calloc(blocks + 1, 1);
    if (!block->warps || !block->shared || !block->shared_state || !block->shared_shadow ||
        !block->local || !block->released)
        return 1;
    for (uint32_t w = 0; w < block->warp_count; w++) {
        size_t bytes = (size_t)kernel->register_words * LANES * 4;
        block->warps[w].registers = aligned_alloc(64, (bytes + 63) / 64 * 64);
        if (block->warps[w].registers == NULL)
            return 1;
    }
    return launch_prepare_code(block);
}

static int launch_run_blocks(sim_block *block, uint64_t *steps)
{
    const uint32_t *grid = block->launch->grid;
    for (uint32_t z = 0; z < grid[2]; z++)
        for (uint32_t y = 0; y < grid[1]; y++)
            for (uint32_t x = 0; x < grid[0]; x++) {
                block->index[0] = x, block->index[1] = y, block->index[2] = z;
                int failed = launch_run_block(block);
                for (uint32_t w = 0; w < block->warp_count; w++)
                    *steps += block->warps[w].steps;
                if (failed)
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
    uint64_t steps = 0, blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    int failed = launch_prepare_block(&block);
    shadow_map *map = NULL;
    if (!failed && launch->check_races) {
        uint64_t words = launch_lay_out_shadow(&block);
        map = words ? sim_take_shadow(words, blocks) : NULL;
        failed = map == NULL;
    }
    if (failed)
        fault->kind = FAULT_MEMORY;
    if (map != NULL)
        block.global_shadow = map->words, block.first_serial = block.serial = map->used;
    failed = failed || launch_run_blocks(&block, &steps);
    sim_give_shadow(map, blocks);
    launch_free_block(&block);
    if (launch->steps != NULL)
        *launch->steps = steps;
    return failed;
}
