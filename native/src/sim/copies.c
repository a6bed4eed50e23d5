/* cp.async: the bytes are read when the copy starts and written when the thread has waited for its group.
 * Until then nobody may touch the place they go to. */
#include <stdlib.h>
#include <string.h>

#include "state.h"

int sim_copy_start(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    for (int lane = 0; lane < LANES; lane++) {
        if (!(mask >> lane & 1))
            continue;
        if (warp->copy_count == warp->copy_room) {
            uint32_t room = warp->copy_room ? warp->copy_room * 2 : 64;
            sim_copy *larger = realloc(warp->copies, room * sizeof *larger);
            if (larger == NULL)
                return sim_report(block, FAULT_MEMORY, at, warp->number * LANES + (uint32_t)lane);
            warp->copies = larger, warp->copy_room = room;
        }
        uint64_t to = sim_address(block, warp, operand(block, at, 0), lane);
        uint64_t from = sim_address(block, warp, operand(block, at, 1), lane);
        uint32_t bytes = at->count, given = bytes;
        if (at->operands > 3)
            given = (uint32_t)lane_value(block, warp, operand(block, at, 3), lane);
        given = given < bytes ? given : bytes;
        if (to >> 56 == 1)
            to &= SHARED_WINDOW - 1;
        uint8_t *place = sim_reach(block, warp, at, lane, SPACE_SHARED, to, bytes, 1);
        if (place == NULL)
            return 1;
        sim_copy *copy = warp->copies + warp->copy_count++;
        memset(copy, 0, sizeof *copy);
        copy->lane = (uint8_t)lane, copy->bytes = (uint8_t)bytes, copy->at = (uint32_t)to;
        copy->group = warp->groups[lane];
        if (given > 0) {
            const uint8_t *source = NULL;
            if (from % bytes != 0)
                source = sim_reach(block, warp, at, lane, SPACE_GLOBAL, from, bytes, 0);
            else
                source = sim_reach(block, warp, at, lane, SPACE_GLOBAL, from, 1, 0);
            if (source == NULL || sim_reach(block, warp, at, lane, SPACE_GLOBAL, from + given - 1, 1, 0) == NULL)
                return 1;
            memcpy(copy->data, source, given);
        }
        for (uint32_t i = 0; i < bytes; i++)
            block->shadow[to + i].pending = (uint16_t)(warp->number * LANES + (uint32_t)lane + 1);
    }
    return 0;
}

void sim_copy_commit(sim_warp *warp, uint32_t mask)
{
    for (int lane = 0; lane < LANES; lane++)
        warp->groups[lane] += mask >> lane & 1;
}

/* flags: groups that may still be on their way; UINT32_MAX waits for all copies, committed or not. */
int sim_copy_wait(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < warp->copy_count; i++) {
        sim_copy copy = warp->copies[i];
        int waits = mask >> copy.lane & 1;
        int ended = at->flags == UINT32_MAX || copy.group + at->flags < warp->groups[copy.lane];
        if (!waits || !ended) {
            warp->copies[kept++] = copy;
            continue;
        }
        for (uint32_t b = 0; b < copy.bytes; b++)
            block->shadow[copy.at + b].pending = 0;
        uint8_t *place = sim_reach(block, warp, at, copy.lane, SPACE_SHARED, copy.at, copy.bytes, 1);
        if (place == NULL)
            return 1;
        memcpy(place, copy.data, copy.bytes);
    }
    warp->copy_count = kept;
    return 0;
}
