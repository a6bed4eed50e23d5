/* Bulk copies (the Tensor Memory Accelerator): cp.async.bulk, cp.async.bulk.tensor, cp.reduce.
 *
 * Accesses are checked when a copy is issued, by what its thread has seen. Its bytes move when the
 * schedule of the launch says so: a late load when a lane is blocked on its mbarrier and no warp
 * can run, a late store when its group is waited for. */
#include <stdlib.h>

#include "gpusim/async/bulk_copy.h"

/* --- stages of a copy ------------------------------------------------------------------------- */

static int bulk_complete_load(sim_bulk *copy)
{
    sim_block *blocks = copy->block->cluster->blocks;
    copy->stage = STAGE_WRITTEN;
    sim_bulk_move_in(copy);
    for (uint32_t rank = 0; rank < copy->block->cluster->size; rank++) {
        if (!(copy->targets >> rank & 1))
            continue;
        sim_block *target = blocks + rank;
        memset(target->shared_state + copy->shared, STATE_WRITTEN, copy->region);
        sim_mbarrier *m = sim_mbarrier_at(target, copy->mbarrier);
        if (m == NULL)
            return sim_report_detail(copy->block, FAULT_MBARRIER, copy->at, copy->thread,
                                     "the mbarrier at 0x%x was invalidated before the copy ended",
                                     copy->mbarrier);
        if (sim_mbarrier_complete(copy->block, copy->at, copy->thread, target, m, copy->bytes,
                                  copy->phases[rank], copy->agent, copy->clock))
            return 1;
    }
    return 0;
}

static void bulk_read_store(sim_bulk *copy)
{
    if (copy->stage != STAGE_ISSUED)
        return;
    sim_bulk_take(copy);
    copy->stage = STAGE_READ;
}

static void bulk_write_store(sim_bulk *copy)
{
    bulk_read_store(copy);
    if (copy->stage != STAGE_READ)
        return;
    sim_bulk_move_out(copy);
    copy->stage = STAGE_WRITTEN;
}

static void bulk_remove(sim_cluster *cluster, uint32_t number)
{
    free(cluster->copies[number].data);
    cluster->copy_count--;
    memmove(cluster->copies + number, cluster->copies + number + 1,
            (cluster->copy_count - number) * sizeof *cluster->copies);
}

/* --- issue ------------------------------------------------------------------------------------ */

static int bulk_fail(sim_bulk *copy, const char *wrong)
{
    return sim_report_detail(copy->block, FAULT_TENSOR_MAP, copy->at, copy->thread, "%s", wrong);
}

static int bulk_read_map(sim_bulk *copy, sim_warp *warp, int lane, uint32_t first)
{
    sim_block *block = copy->block;
    uint64_t address = sim_address(block, warp, operand(block, copy->at, first), lane);
    uint8_t bytes[TENSOR_MAP_BYTES];
    if (address % TENSOR_MAP_ALIGNMENT != 0)
        return bulk_fail(copy, "the address of the tensor map is not a multiple of 64 bytes");
    for (uint32_t i = 0; i < TENSOR_MAP_BYTES; i += 8) {
        const uint8_t *from = sim_reach(block, warp, copy->at, lane, SPACE_GENERIC, address + i, 8,
                                        ACCESS_READ, NULL);
        if (from == NULL)
            return 1;
        memcpy(bytes + i, from, 8);
    }
    const char *wrong = sim_read_tensor_map(bytes, &copy->map);
    if (wrong == NULL && copy->map.rank != copy->at->count)
        wrong = "the tensor map has another number of dimensions";
    if (wrong != NULL)
        return bulk_fail(copy, wrong);
    for (uint32_t i = 0; i < copy->map.rank; i++)
        copy->coordinates[i] =
            (int32_t)lane_value(block, warp, operand(block, copy->at, first + 1 + i), lane);
    for (uint32_t i = 0; i < copy->map.rank; i++)
        if (copy->coordinates[i] < 0 && !bulk_is_load(copy))
            return bulk_fail(copy, "a coordinate of a store is negative, which is an illegal "
                                   "instruction");
    if ((int64_t)copy->coordinates[0] * (int64_t)copy->map.strides[0] % 16 != 0)
        return bulk_fail(copy,
                         "the innermost coordinate is not a multiple of 16 bytes, which is an "
                         "illegal instruction");
    if (sim_tile_bytes(&copy->map) > block->shared_bytes)
        return bulk_fail(copy, "the box is larger than the shared memory of the block");
    copy->bytes = (uint32_t)sim_tile_bytes(&copy->map);
    return 0;
}

static int bulk_check_alignment(sim_bulk *copy)
{
    copy->region = copy->bytes;
    if (copy->at->flags & COPY_TENSOR && copy->map.swizzle != 0)
        copy->region = (sim_tile_rows(&copy->map) * sim_tile_pitch(&copy->map) + 127) / 128 * 128;
    uint32_t shared = copy->at->flags & COPY_TENSOR ? 128 : 16;
    int writes = bulk_is_load(copy);
    if (copy->shared % shared != 0)
        return sim_bad_access(copy->block, FAULT_ALIGNMENT, copy->at, copy->thread, SPACE_SHARED,
                              copy->shared, shared, writes ? ACCESS_WRITE : ACCESS_READ);
    if (copy->at->flags & COPY_TENSOR)
        return 0;
    if (copy->bytes % 16 != 0 || copy->bytes == 0 || copy->bytes > 1 << 20)
        return bulk_fail(copy, "the bytes of a bulk copy are a positive multiple of 16");
    if (copy->global % 16 != 0)
        return sim_bad_access(copy->block, FAULT_ALIGNMENT, copy->at, copy->thread,
                              copy->at->detail == BULK_SEND ? SPACE_SHARED : SPACE_GLOBAL,
                              copy->global, 16, writes ? ACCESS_READ : ACCESS_WRITE);
    return 0;
}

/* Checks and notes the accesses to global memory. */
static int bulk_check_global(sim_bulk *copy, sim_actor *actor)
{
    sim_access access = copy->at->detail == BULK_LOAD    ? ACCESS_READ
                        : copy->at->detail == BULK_STORE ? ACCESS_WRITE
                                                         : ACCESS_ATOMIC;
    if (!(copy->at->flags & COPY_TENSOR))
        return sim_bulk_reach_global(actor, copy->global, copy->bytes, access) == NULL;
    const sim_tiling *map = &copy->map;
    uint32_t element = (uint32_t)map->strides[0];
    for (uint32_t i = 0; i < sim_tile_rows(map); i++) {
        sim_tile_row tile = sim_tile_row_at(map, copy->coordinates, i);
        uint32_t count = tile.end - tile.first;
        if (count != 0 &&
            sim_bulk_reach_global(actor, tile.address, count * element, access) == NULL)
            return 1;
    }
    return 0;
}

/* The chunks of shared memory that a store reads: those with elements inside of the tensor. */
static int bulk_check_source(sim_bulk *copy, sim_actor *actor)
{
    if (!(copy->at->flags & COPY_TENSOR))
        return sim_bulk_read_shared(actor, copy->block, copy->shared, copy->bytes);
    const sim_tiling *map = &copy->map;
    uint32_t element = (uint32_t)map->strides[0], pitch = sim_tile_pitch(map);
    for (uint32_t i = 0; i < sim_tile_rows(map); i++) {
        sim_tile_row tile = sim_tile_row_at(map, copy->coordinates, i);
        for (uint32_t at = tile.first * element / 16 * 16; at < tile.end * element; at += 16) {
            uint32_t valid = tile.end * element - at;
            uint64_t chunk = sim_swizzle(copy->shared + (uint64_t)i * pitch + at, map->swizzle);
            if (sim_bulk_read_shared(actor, copy->block, chunk, valid < 16 ? valid : 16))
                return 1;
        }
    }
    if (copy->block->shared_bytes < copy->region ||
        copy->shared > copy->block->shared_bytes - copy->region)
        return sim_bad_access(copy->block, FAULT_BOUNDS, copy->at, copy->thread, SPACE_SHARED,
                              copy->shared, copy->bytes, ACCESS_READ);
    return 0;
}

static int bulk_issue_store(sim_bulk *copy, sim_warp *warp, int lane)
{
    copy->agent = AGENT_STORES + warp->number;
    copy->group = warp->bulk_groups[lane];
    sim_actor actor = sim_make_actor(copy->block, warp, copy->at, copy->thread, copy->agent);
    copy->clock = actor.clock;
    copy->data = malloc(copy->bytes + 1);
    if (copy->data == NULL)
        return sim_report(copy->block, FAULT_MEMORY, copy->at, copy->thread);
    return bulk_check_source(copy, &actor) || bulk_check_global(copy, &actor);
}

/* The ranks that a load writes to: `shared` may be an address of another block. */
static int bulk_find_targets(sim_bulk *copy, sim_warp *warp, int lane, uint64_t shared,
                             uint64_t mbarrier)
{
    sim_block *block = copy->block;
    const sim_block *target = sim_find_rank(block, &shared);
    if (target == NULL || sim_find_rank(block, &mbarrier) != target)
        return bulk_fail(copy, "the mbarrier is not in the shared memory that the copy writes to");
    copy->shared = (uint32_t)shared, copy->mbarrier = (uint32_t)mbarrier;
    copy->targets = (uint32_t)1 << target->rank;
    if (copy->at->flags & COPY_MULTICAST)
        copy->targets =
            (uint32_t)lane_value(block, warp, operand(block, copy->at, 2), lane) & 0xffff;
    if (copy->targets == 0 || copy->targets >> block->cluster->size != 0)
        return sim_report_detail(block, FAULT_CLUSTER, copy->at, copy->thread,
                                 "multicast to the ranks 0x%x of a cluster of %u blocks",
                                 copy->targets, block->cluster->size);
    return 0;
}

static int bulk_issue_load(sim_bulk *copy, sim_warp *warp, int lane)
{
    sim_block *block = copy->block;
    copy->agent = AGENT_LOADS + copy->mbarrier / 8 % LOAD_AGENTS;
    sim_actor actor = sim_make_actor(block, warp, copy->at, copy->thread, copy->agent);
    copy->clock = actor.clock;
    if (copy->at->detail == BULK_SEND
            ? sim_bulk_read_shared(&actor, block, copy->global, copy->bytes)
            : bulk_check_global(copy, &actor))
        return 1;
    for (uint32_t rank = 0; rank < block->cluster->size; rank++) {
        if (!(copy->targets >> rank & 1))
            continue;
        sim_block *target = block->cluster->blocks + rank;
        uint64_t address = (uint64_t)(rank + 1) << CLUSTER_SHIFT;
        if (target != block &&
            sim_reach_rank(block, warp, copy->at, copy->thread, &address) == NULL)
            return 1;
        const sim_mbarrier *m =
            sim_mbarrier_signalled(block, warp, copy->at, lane, target, copy->mbarrier);
        if (m == NULL || sim_bulk_write_shared(&actor, target, copy->shared, copy->region))
            return 1;
        copy->phases[rank] = m->phase;
        memset(target->shared_state + copy->shared, STATE_PENDING, copy->region);
    }
    return 0;
}

static uint64_t bulk_shared_address(const sim_block *block, const sim_warp *warp,
                                    const sim_operand *o, int lane)
{
    uint64_t address = sim_address(block, warp, o, lane);
    return address >= SHARED_WINDOW && address < LOCAL_WINDOW ? address - SHARED_WINDOW : address;
}

static int bulk_read_operands(sim_bulk *copy, sim_warp *warp, int lane)
{
    sim_block *block = copy->block;
    const sim_instruction *at = copy->at;
    uint64_t shared = bulk_shared_address(block, warp, operand(block, at, 0), lane);
    uint32_t next = 1;
    if (bulk_is_load(copy)) {
        uint64_t mbarrier = bulk_shared_address(block, warp, operand(block, at, 1), lane);
        if (bulk_find_targets(copy, warp, lane, shared, mbarrier))
            return 1;
        next = at->flags & COPY_MULTICAST ? 3 : 2;
    } else {
        if (shared >> CLUSTER_SHIFT != 0)
            return bulk_fail(copy, "the source is not in the shared memory of this block");
        copy->shared = (uint32_t)shared;
    }
    if (at->flags & COPY_TENSOR)
        return bulk_read_map(copy, warp, lane, next) || bulk_check_alignment(copy);
    const sim_operand *other = operand(block, at, next);
    copy->global = at->detail == BULK_SEND ? bulk_shared_address(block, warp, other, lane)
                                           : sim_address(block, warp, other, lane);
    copy->bytes = (uint32_t)lane_value(block, warp, operand(block, at, next + 1), lane);
    return bulk_check_alignment(copy);
}

/* Whether the schedule lets an operation happen at once. */
int sim_is_early(sim_cluster *cluster)
{
    uint32_t schedule = cluster->blocks->launch->schedule;
    if (schedule < 2)
        return schedule != 0;
    cluster->random =
        cluster->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return cluster->random >> 63 != 0;
}

static int bulk_start_lane(sim_block *block, sim_warp *warp, const sim_instruction *at, int lane)
{
    sim_cluster *cluster = block->cluster;
    if (cluster->copy_count == cluster->copy_capacity) {
        uint32_t capacity = cluster->copy_capacity ? 2 * cluster->copy_capacity : 16;
        sim_bulk *larger = realloc(cluster->copies, capacity * sizeof *larger);
        if (larger == NULL)
            return sim_report(block, FAULT_MEMORY, at, thread_of(warp, lane));
        cluster->copies = larger, cluster->copy_capacity = capacity;
    }
    sim_bulk *copy = cluster->copies + cluster->copy_count;
    *copy = (sim_bulk){.at = at, .block = block, .thread = thread_of(warp, lane)};
    cluster->copy_count++;
    if (bulk_read_operands(copy, warp, lane))
        return 1;
    if (bulk_is_load(copy)) {
        if (bulk_issue_load(copy, warp, lane))
            return 1;
        if (!sim_is_early(cluster))
            return 0;
        int failed = bulk_complete_load(copy);
        bulk_remove(cluster, cluster->copy_count - 1);
        return failed;
    }
    if (bulk_issue_store(copy, warp, lane))
        return 1;
    if (sim_is_early(cluster))
        bulk_write_store(copy);
    return 0;
}

int sim_bulk_start(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    for (int lane = 0; lane < LANES; lane++)
        if (mask >> lane & 1 && bulk_start_lane(block, warp, at, lane))
            return 1;
    return 0;
}

/* --- completion ------------------------------------------------------------------------------- */

void sim_bulk_commit(sim_warp *warp, uint32_t mask)
{
    for (int lane = 0; lane < LANES; lane++)
        warp->bulk_groups[lane] += mask >> lane & 1;
}

/* flags: 1 waits until the sources are read. */
int sim_bulk_wait(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    sim_cluster *cluster = block->cluster;
    uint32_t *seen = warp->vector_clock + block->rank * CLOCK_ROW + AGENT_STORES + warp->number;
    for (uint32_t i = 0; i < cluster->copy_count; i++) {
        sim_bulk *copy = cluster->copies + i;
        uint32_t lane = copy->thread % LANES;
        if (bulk_is_load(copy) || copy->block != block || copy->thread / LANES != warp->number ||
            !(mask >> lane & 1) || (uint64_t)copy->group + at->target >= warp->bulk_groups[lane])
            continue;
        *seen = *seen > copy->clock ? *seen : copy->clock;
        if (at->flags & 1) {
            bulk_read_store(copy);
        } else {
            bulk_write_store(copy);
            bulk_remove(cluster, i--);
        }
    }
    return 0;
}

static int bulk_is_awaited(const sim_cluster *cluster, const sim_bulk *copy)
{
    for (uint32_t b = 0; b < cluster->size; b++)
        for (uint32_t w = 0; w < cluster->blocks[b].warp_count; w++) {
            const sim_warp *warp = cluster->blocks[b].warps + w;
            for (uint32_t lanes = warp->live & warp->blocked; lanes != 0; lanes &= lanes - 1) {
                const sim_wait *wait = warp->wait + lowest(lanes);
                if (wait->reason == WAIT_MBARRIER && copy->targets >> wait->rank & 1 &&
                    cluster->blocks[wait->rank].mbarriers[wait->number].address == copy->mbarrier)
                    return 1;
            }
        }
    return 0;
}

int sim_bulk_advance(sim_cluster *cluster, int *failed)
{
    uint32_t chosen = UINT32_MAX;
    for (uint32_t i = cluster->copy_count; i-- > 0;) {
        const sim_bulk *copy = cluster->copies + i;
        if (copy->stage == STAGE_WRITTEN)
            continue;
        int awaited = bulk_is_load(copy) && bulk_is_awaited(cluster, copy);
        if (awaited || chosen == UINT32_MAX || !bulk_is_awaited(cluster, cluster->copies + chosen))
            chosen = i;
    }
    if (chosen == UINT32_MAX)
        return 0;
    sim_bulk *copy = cluster->copies + chosen;
    if (bulk_is_load(copy)) {
        *failed = bulk_complete_load(copy);
        bulk_remove(cluster, chosen);
    } else {
        bulk_write_store(copy);
    }
    return 1;
}

void sim_bulk_name_copier(sim_block *target, uint64_t address, uint32_t bytes)
{
    sim_fault *fault = target->fault;
    const sim_block *author = NULL;
    uint32_t thread = 0;
    for (uint32_t w = 0; w < target->warp_count; w++)
        for (uint32_t i = 0; i < target->warps[w].copy_count; i++) {
            const sim_copy *copy = target->warps[w].copies + i;
            if (author == NULL && copy->at < address + bytes && address < copy->at + copy->bytes)
                author = target, thread = w * LANES + copy->lane;
        }
    const sim_cluster *cluster = target->cluster;
    for (uint32_t i = 0; i < cluster->copy_count; i++) {
        const sim_bulk *copy = cluster->copies + i;
        if (author == NULL && copy->targets >> target->rank & 1 && copy->shared < address + bytes &&
            address < (uint64_t)copy->shared + copy->bytes)
            author = copy->block, thread = copy->thread;
    }
    if (author == NULL)
        return;
    fault->has_other = fault->other_writes = 1;
    memcpy(fault->other_block, author->index, sizeof author->index);
    sim_name_thread(target, thread, fault->other);
}

/* A block ends: copies must not use its shared memory any more. */
int sim_bulk_check_exit(sim_block *block)
{
    const sim_cluster *cluster = block->cluster;
    for (uint32_t i = 0; i < cluster->copy_count; i++) {
        const sim_bulk *copy = cluster->copies + i;
        int writes = bulk_is_load(copy) && copy->targets >> block->rank & 1;
        int reads = !bulk_is_load(copy) && copy->block == block && copy->stage == STAGE_ISSUED;
        if (writes || reads)
            return sim_report_detail(
                copy->block, FAULT_PENDING_COPY, copy->at, copy->thread,
                "the block ends while this copy may still %s its shared memory",
                writes ? "write" : "read");
    }
    return 0;
}

int sim_bulk_finish(sim_cluster *cluster)
{
    while (cluster->copy_count > 0) {
        if (!bulk_is_load(cluster->copies))
            bulk_write_store(cluster->copies);
        bulk_remove(cluster, 0);
    }
    return 0;
}

void sim_bulk_free(sim_cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->copy_count; i++)
        free(cluster->copies[i].data);
    free(cluster->copies);
    cluster->copies = NULL, cluster->copy_count = 0;
}
