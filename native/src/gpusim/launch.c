/* A launch: clusters in sequence, the warps of a cluster round-robin from wait to wait. The blocks
 * of a cooperative launch run as those of a cluster do. */
#define _POSIX_C_SOURCE 200809L /* nanosleep */
#include <stdlib.h>
#include <time.h>

#include "gpusim/memory/shadow_memory.h"

/* Rounds in which all warps only poll mbarriers, until that counts as a deadlock; and those of a
 * cooperative launch, in which nothing else can change what they poll. */
enum { MOST_IDLE_ROUNDS = 1 << 16, MOST_RESIDENT_ROUNDS = 1 << 10 };

/* What the warps of a cluster did in a round; `spinning`: what they polled. */
typedef struct {
    uint32_t live, advanced, polled, spinning;
} sim_round;

/* Runs every `stride`th warp of a block, if it can run; counts those that did more than poll. */
static int launch_run_warps(sim_block *block, uint32_t stride, sim_round *round)
{
    uint32_t ran = 0;
    for (uint32_t w = 0; w < block->warp_count; w += stride) {
        sim_warp *warp = block->warps + w;
        if (warp->live && !warp->waits && sim_wake(block, warp)) {
            ran = 1;
            if (sim_run_warp(block, warp) ||
                (warp->live && warp->parked == warp->live && sim_park_warp(block, warp)))
                return 1;
            if (warp->polls >= POLLS_MEMORY)
                round->spinning |= warp->polls;
            *(warp->polls ? &round->polled : &round->advanced) += 1;
        }
    }
    int is_live = sim_is_live(block);
    round->live |= (uint32_t)is_live;
    return ran && !is_live && sim_bulk_check_exit(block);
}

static void launch_start_cluster(sim_cluster *cluster)
{
    size_t bytes = cluster->clock_words * sizeof *cluster->arriving;
    cluster->phase = 0;
    memset(cluster->arriving, 0, bytes);
    memset(cluster->completed, 0, bytes);
    for (uint32_t b = 0; b < cluster->size; b++)
        sim_start_block(cluster->blocks + b);
}

/* The block that is number `number` of a round of a cooperative launch: in order, in reverse, or
 * pseudo-randomly, where some blocks do not run at all. NULL: none. */
static sim_block *launch_choose_block(sim_cluster *cluster, uint32_t number)
{
    const sim_launch *launch = cluster->blocks->launch;
    if (!launch->is_cooperative || launch->schedule == 0)
        return cluster->blocks + number;
    if (launch->schedule == 1)
        return cluster->blocks + (cluster->size - 1 - number);
    /* Marsaglia's xorshift64 */
    cluster->random ^= cluster->random << 13;
    cluster->random ^= cluster->random >> 7;
    cluster->random ^= cluster->random << 17;
    return cluster->random >> 40 & 1 ? cluster->blocks + (cluster->random >> 41) % cluster->size
                                     : NULL;
}

/* The blocks wait for the host, which cannot be called a deadlock. Polls count as no steps. */
static void launch_await_host(sim_cluster *cluster)
{
    const struct timespec moment = {.tv_nsec = 20000};
    (void)nanosleep(&moment, NULL);
    for (uint32_t b = 0; b < cluster->size; b++)
        for (uint32_t w = 0; w < cluster->blocks[b].warp_count; w++)
            cluster->blocks[b].warps[w].steps = 0;
}

static int launch_run_blocks(sim_cluster *cluster, uint32_t stride, sim_round *round)
{
    for (uint32_t b = 0; b < cluster->size; b++) {
        sim_block *block = launch_choose_block(cluster, b);
        if (block != NULL && launch_run_warps(block, stride, round))
            return 1;
    }
    return 0;
}

static int launch_run_cluster(sim_cluster *cluster)
{
    const sim_launch *launch = cluster->blocks->launch;
    int is_cooperative = launch->is_cooperative;
    launch_start_cluster(cluster);
    for (uint32_t idle = 0;;) {
        /* A random round may leave out all blocks that can run: it proves no deadlock. */
        sim_round round = {.polled = is_cooperative && launch->schedule > 1};
        uint32_t released = 0;
        int failed = 0;
        /* With early copies the first warp of each warpgroup runs ahead, and the others in a round
         * in which it cannot. What it does for them, such as the release of a slot, may be early.
         */
        if (launch->schedule == 1 && launch_run_blocks(cluster, 4, &round))
            return 1;
        if (!round.advanced && launch_run_blocks(cluster, 1, &round))
            return 1;
        for (uint32_t b = 0; is_cooperative && b < cluster->size; b++)
            round.live |= (uint32_t)sim_is_live(cluster->blocks + b);
        if (round.live == 0)
            return sim_bulk_finish(cluster);
        for (uint32_t b = 0; b < cluster->size; b++)
            released += (uint32_t)sim_release(cluster->blocks + b);
        released += (uint32_t)sim_cluster_release(cluster);
        if (round.advanced || released) {
            idle = 0;
            continue;
        }
        if (sim_bulk_advance(cluster, &failed)) {
            if (failed)
                return 1;
        } else if (is_cooperative && round.spinning == (POLLS_MEMORY | POLLS_HOST)) {
            idle = 0;
            launch_await_host(cluster);
        } else if (!round.polled ||
                   (is_cooperative ? ++idle == MOST_RESIDENT_ROUNDS
                                   : !round.spinning && ++idle == MOST_IDLE_ROUNDS)) {
            return sim_report_deadlock(cluster);
        }
    }
}

/* --- resources of a launch -------------------------------------------------------------------- */

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
    for (uint32_t i = 0; i < kernel->length; i++) {
        uint16_t op = kernel->code[i].op;
        if (op == OP_LANES)
            functions[i] = sim_lane_function(kernel->code[i].detail);
        block->uses_wgmma |= op == OP_WGMMA;
        block->uses_async |= op == OP_WGMMA || op == OP_BULK_COPY;
    }
    return 0;
}

/* The block of the launch with what all blocks share; the others are copies of it. */
static int launch_prepare_cluster(sim_cluster *cluster, const sim_block *common)
{
    cluster->blocks = calloc(cluster->size, sizeof *cluster->blocks);
    cluster->arriving = malloc(cluster->clock_words * sizeof *cluster->arriving);
    cluster->completed = malloc(cluster->clock_words * sizeof *cluster->completed);
    if (!cluster->blocks || !cluster->arriving || !cluster->completed)
        return 1;
    int failed = 0;
    for (uint32_t rank = 0; rank < cluster->size; rank++) {
        cluster->blocks[rank] = *common;
        cluster->blocks[rank].rank = rank;
        failed = failed || sim_prepare_block(cluster->blocks + rank);
    }
    return failed;
}

static void launch_free(sim_cluster *cluster, sim_block *common)
{
    for (uint32_t rank = 0; cluster->blocks != NULL && rank < cluster->size; rank++)
        sim_free_block(cluster->blocks + rank);
    sim_bulk_free(cluster);
    sim_free_syncs(cluster);
    free(cluster->blocks);
    free(cluster->arriving);
    free(cluster->completed);
    free(common->range_words);
    free(common->released);
    free((void *)(uintptr_t)common->constants);
    free((void *)(uintptr_t)common->functions);
}

/* The index of each block of the cluster at a place of the grid; numbers go by the grid. */
static void launch_place_cluster(sim_cluster *cluster, const uint32_t *corner)
{
    const uint32_t *grid = cluster->blocks->launch->grid, *size = cluster->extent;
    for (uint32_t rank = 0; rank < cluster->size; rank++) {
        sim_block *block = cluster->blocks + rank;
        block->index[0] = corner[0] + rank % size[0];
        block->index[1] = corner[1] + rank / size[0] % size[1];
        block->index[2] = corner[2] + rank / size[0] / size[1];
        block->serial = block->first_serial + 1 + block->index[0] +
                        grid[0] * (block->index[1] + grid[1] * block->index[2]);
    }
}

static int launch_run_clusters(sim_cluster *cluster, uint64_t *steps)
{
    const uint32_t *grid = cluster->blocks->launch->grid, *size = cluster->extent;
    uint32_t corner[3];
    for (corner[2] = 0; corner[2] < grid[2]; corner[2] += size[2])
        for (corner[1] = 0; corner[1] < grid[1]; corner[1] += size[1])
            for (corner[0] = 0; corner[0] < grid[0]; corner[0] += size[0]) {
                launch_place_cluster(cluster, corner);
                int failed = launch_run_cluster(cluster);
                for (uint32_t b = 0; b < cluster->size; b++)
                    for (uint32_t w = 0; w < cluster->blocks[b].warp_count; w++)
                        *steps += cluster->blocks[b].warps[w].steps;
                if (failed)
                    return 1;
            }
    return 0;
}

int nova_sim_run(const sim_kernel *kernel, const sim_launch *launch, sim_fault *fault)
{
    memset(fault, 0, sizeof *fault);
    const uint32_t *size = launch->is_cooperative ? launch->grid : launch->cluster;
    sim_cluster cluster = {.size = size[0] * size[1] * size[2],
                           .extent = {size[0], size[1], size[2]},
                           .random = launch->schedule};
    cluster.clock_words = cluster.size * CLOCK_ROW;
    sim_block common = {.kernel = kernel, .launch = launch, .fault = fault, .cluster = &cluster};
    common.threads = launch->block[0] * launch->block[1] * launch->block[2];
    common.warp_count = (common.threads + LANES - 1) / LANES;
    common.shared_bytes = kernel->shared_bytes + launch->dynamic_shared;
    uint64_t steps = 0, blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    common.released = calloc(blocks + 1, 1);
    int failed = common.released == NULL || launch_prepare_code(&common);
    shadow_map *map = NULL;
    if (!failed && launch->check_races) {
        uint64_t words = launch_lay_out_shadow(&common);
        map = words ? sim_take_shadow(words, blocks) : NULL;
        failed = map == NULL;
    }
    if (map != NULL)
        common.global_shadow = map->words, common.first_serial = map->used;
    failed = failed || launch_prepare_cluster(&cluster, &common);
    if (failed)
        fault->kind = FAULT_MEMORY;
    failed = failed || launch_run_clusters(&cluster, &steps);
    sim_give_shadow(map, blocks);
    launch_free(&cluster, &common);
    if (launch->steps != NULL)
        *launch->steps = steps;
    return failed;
}
