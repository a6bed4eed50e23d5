/* cp.async: the bytes are read when the copy starts and written when the thread has waited for its group.
 * Until then nobody may touch the place they go to. */
#include <stdlib.h>

#include "gpusim/state.h"

static sim_copy *add_copy(sim_warp *warp)
{
    if (warp->copy_count == warp->copy_room) {
        uint32_t room = warp->copy_room ? warp->copy_room * 2 : 64;
        sim_copy *larger = realloc(warp->copies, room * sizeof *larger);
        if (larger == NULL)
            return NULL;
        warp->copies = larger, warp->copy_room = room;
    }
    sim_copy *copy = warp->copies + warp->copy_count++;
    memset(copy, 0, sizeof *copy);
    return copy;
}

/* Bytes that come from global memory, the rest being zero: all, `size`, or none if a predicate says so. */
static uint32_t given_bytes(const sim_block *block, const sim_warp *warp, const sim_instruction *at, int lane)
{
    if (at->operands < 3)
        return at->count;
    const sim_operand *size = operand(block, at, 2);
    if (size->width == 1)
        return predicate(block, warp, size) >> lane & 1 ? 0 : at->count;
    uint32_t given = narrow(block, warp, size)[lane];
    return given < at->count ? given : at->count;
}

/* A source that is used in part may end before the whole would. */
static int read_source(sim_block *block, sim_warp *warp, const sim_instruction *at, int lane, uint64_t from,
                       uint32_t given, uint8_t *data)
{
    if ((from & (at->count - 1u)) != 0)
        return sim_bad_access(block, FAULT_ALIGNMENT, at, thread_of(warp, lane), SPACE_GLOBAL, from, at->count,
                              ACCESS_READ);
    if (given == at->count) {
        const uint8_t *source = sim_reach(block, warp, at, lane, SPACE_GLOBAL, from, given, ACCESS_READ, NULL);
        return source == NULL || (memcpy(data, source, given), 0);
    }
    for (uint32_t i = 0; i < given; i++) {
        const uint8_t *source = sim_reach(block, warp, at, lane, SPACE_GLOBAL, from + i, 1, ACCESS_READ, NULL);
        if (source == NULL)
            return 1;
        data[i] = *source;
    }
    return 0;
}

/* Operands: to, from [, bytes that are given, or a predicate: none are]. */
int sim_copy_start(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    for (int lane = 0; lane < LANES; lane++) {
        if (!(mask >> lane & 1))
            continue;
        uint64_t to = sim_address(block, warp, operand(block, at, 0), lane);
        uint64_t from = sim_address(block, warp, operand(block, at, 1), lane);
        uint32_t given = given_bytes(block, warp, at, lane);
        sim_copy *copy = add_copy(warp);
        if (copy == NULL)
            return sim_report(block, FAULT_MEMORY, at, thread_of(warp, lane));
        copy->lane = (uint8_t)lane, copy->group = warp->groups[lane], copy->at = (uint32_t)to;
        if (sim_reach(block, warp, at, lane, SPACE_SHARED, to, at->count, ACCESS_WRITE, NULL) == NULL ||
            read_source(block, warp, at, lane, from, given, copy->data))
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

/* target: groups that may still be on their way; UINT32_MAX waits for all copies, committed or not. */
int sim_copy_wait(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < warp->copy_count; i++) {
        sim_copy copy = warp->copies[i];
        int waits = mask >> copy.lane & 1;
        int ended = at->target == UINT32_MAX || (uint64_t)copy.group + at->target < warp->groups[copy.lane];
        if (!waits || !ended) {
            warp->copies[kept++] = copy;
            continue;
        }
        memset(block->shared_state + copy.at, STATE_WRITTEN, copy.bytes);
        uint8_t *place =
            sim_reach(block, warp, at, copy.lane, SPACE_SHARED, copy.at, copy.bytes, ACCESS_WRITE, NULL);
        if (place == NULL)
            return 1;
        memcpy(place, copy.data, copy.bytes);
    }
    warp->copy_count = kept;
    return 0;
}
