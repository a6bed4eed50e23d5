/* cp.async: the bytes are read when the copy starts and written when the thread has waited for its
 * group. Until then any access to the target is a fault. */
#include <stdlib.h>

#include "gpusim/state.h"

static sim_copy *async_add_copy(sim_warp *warp)
{
    if (warp->copy_count == warp->copy_capacity) {
        uint32_t capacity = warp->copy_capacity ? warp->copy_capacity * 2 : 64;
        sim_copy *larger = realloc(warp->copies, capacity * sizeof *larger);
        if (larger == NULL)
            return NULL;
        warp->copies = larger, warp->copy_capacity = capacity;
    }
    sim_copy *copy = warp->copies + warp->copy_count++;
    memset(copy, 0, sizeof *copy);
    return copy;
}

/* Bytes that are read from global memory, the others are zero: all, `size`, or none if a predicate
 * is set. */
static uint32_t async_copy_size(const sim_block *block, const sim_warp *warp,
                                const sim_instruction *at, int lane)
{
    if (at->operands < 3)
        return at->count;
    const sim_operand *size = operand(block, at, 2);
    if (size->width == 1)
        return predicate(block, warp, size) >> lane & 1 ? 0 : at->count;
    uint32_t source_size = narrow(block, warp, size)[lane];
    return source_size < at->count ? source_size : at->count;
}

/* A partial read may end before the full size. */
static int async_read_source(sim_block *block, sim_warp *warp, const sim_instruction *at, int lane,
                             uint64_t from, uint32_t source_size, uint8_t *data)
{
    if ((from & (at->count - 1u)) != 0)
        return sim_bad_access(block, FAULT_ALIGNMENT, at, thread_of(warp, lane), SPACE_GLOBAL, from,
                              at->count, ACCESS_READ);
    if (source_size == at->count) {
        const uint8_t *source =
            sim_reach(block, warp, at, lane, SPACE_GLOBAL, from, source_size, ACCESS_READ, NULL);
        return source == NULL || (memcpy(data, source, source_size), 0);
    }
    for (uint32_t i = 0; i < source_size; i++) {
        const uint8_t *source =
            sim_reach(block, warp, at, lane, SPACE_GLOBAL, from + i, 1, ACCESS_READ, NULL);
        if (source == NULL)
            return 1;
        data[i] = *source;
    }
    return 0;
}

/* Operands: target, source [, size of the source, or a predicate that ignores it]. */
int sim_copy_start(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    for (int lane = 0; lane < LANES; lane++) {
        if (!(mask >> lane & 1))
            continue;
        uint64_t to = sim_address(block, warp, operand(block, at, 0), lane);
        uint64_t from = sim_address(block, warp, operand(block, at, 1), lane);
        uint32_t source_size = async_copy_size(block, warp, at, lane);
        sim_copy *copy = async_add_copy(warp);
        if (copy == NULL)
            return sim_report(block, FAULT_MEMORY, at, thread_of(warp, lane));
        copy->lane = (uint8_t)lane, copy->group = warp->groups[lane], copy->at = (uint32_t)to;
        if (sim_reach(block, warp, at, lane, SPACE_SHARED, to, at->count, ACCESS_WRITE, NULL) ==
                NULL ||
            async_read_source(block, warp, at, lane, from, source_size, copy->data))
            return 1;
        copy->bytes = at->count;
        memset(block->shared_state + to, STATE_PENDING, at->count);
    }
    return 0;
}

void sim_copy_commit(sim_warp *warp, uint32_t mask)
{
    for (int lane = 0; lane < LANES; lane++)
        warp->groups[lane] += mask >> lane & 1;
}

/* `groups` are those that may still be pending; UINT32_MAX waits for all copies, committed or
 * not. */
static int async_finish(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask,
                        uint32_t groups)
{
    uint32_t pending = 0;
    for (uint32_t i = 0; i < warp->copy_count; i++) {
        sim_copy copy = warp->copies[i];
        int waits = mask >> copy.lane & 1;
        int ended = groups == UINT32_MAX || (uint64_t)copy.group + groups < warp->groups[copy.lane];
        if (!waits || !ended) {
            warp->copies[pending++] = copy;
            continue;
        }
        memset(block->shared_state + copy.at, STATE_WRITTEN, copy.bytes);
        uint8_t *target = sim_reach(block, warp, at, copy.lane, SPACE_SHARED, copy.at, copy.bytes,
                                    ACCESS_WRITE, NULL);
        if (target == NULL)
            return 1;
        memcpy(target, copy.data, copy.bytes);
    }
    warp->copy_count = pending;
    return 0;
}

int sim_copy_complete(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    return async_finish(block, warp, at, mask, UINT32_MAX);
}

int sim_copy_wait(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    return async_finish(block, warp, at, mask, at->target);
}
