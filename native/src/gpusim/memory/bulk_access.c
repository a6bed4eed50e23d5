#include "gpusim/memory/bulk_access.h"

sim_actor sim_make_actor(sim_block *block, sim_warp *warp, const sim_instruction *at,
                         uint32_t thread, uint32_t agent)
{
    sim_actor actor = {.block = block, .at = at, .warp_count = 1, .thread = thread, .agent = agent};
    actor.warps[0] = warp;
    actor.clock = ++block->agent_clocks[agent];
    return actor;
}

static sim_stamp bulk_stamp(const sim_actor *actor, int strong)
{
    uint32_t thread = BLOCK_THREADS + actor->agent - AGENT_STORES;
    return (sim_stamp)actor->block->serial << BLOCK_AT | (sim_stamp)actor->clock << CLOCK_AT |
           (sim_stamp)thread << THREAD_AT | (strong ? STAMP_STRONG : 0);
}

static int bulk_is_ordered(const sim_actor *actor, sim_space space, sim_stamp stamp)
{
    for (uint32_t w = 0; w < actor->warp_count; w++) {
        const sim_warp *warp = actor->warps[w];
        uint32_t thread = warp->number * LANES + actor->thread % LANES;
        if (is_ordered(actor->block, warp, thread, space, stamp))
            return 1;
    }
    return 0;
}

/* Whether a generic write is followed by a proxy fence: of its thread, or of a thread between it
 * and this access. */
static int bulk_is_fenced(const sim_actor *actor, sim_space space, const sim_shadow *word)
{
    uint32_t thread = thread_in(word->write);
    const sim_block *author = stamp_block(actor->block, word->write);
    if (author == NULL || thread >= BLOCK_THREADS)
        return 1;
    const uint32_t *fenced = space == SPACE_SHARED ? author->fenced : author->fenced_global;
    if (fenced[thread] > word->fences)
        return 1;
    uint32_t entry = author->rank * CLOCK_ROW + CLOCK_FENCED + thread / LANES;
    for (uint32_t w = 0; w < actor->warp_count; w++)
        if (actor->warps[w]->vector_clock[entry] >= clock_in(word->write))
            return 1;
    return 0;
}

static int bulk_report_race(sim_actor *actor, sim_space space, uint64_t address, uint32_t bytes,
                            sim_access access, const sim_shadow *word, sim_stamp with)
{
    return sim_report_race(actor->block, actor->at, actor->thread, space, address, bytes, access,
                           word, with);
}

static int bulk_report_proxy(sim_actor *actor, sim_space space, uint64_t address, uint32_t bytes,
                             const sim_shadow *word)
{
    sim_block *block = actor->block;
    const sim_block *author = stamp_block(block, word->write);
    block->fault->has_other = block->fault->other_writes = 1;
    memcpy(block->fault->other_block, author->index, sizeof author->index);
    sim_name_thread(block, thread_in(word->write), block->fault->other);
    return sim_bad_access(block, FAULT_PROXY, actor->at, actor->thread, space, address, bytes,
                          ACCESS_READ);
}

static inline void bulk_note_read(sim_shadow *word, sim_stamp mine)
{
    if (author_of(word->read) != author_of(mine) || block_in(word->read) != block_in(mine))
        word->other = word->read;
    word->read = mine;
    memset(word->lanes, SEVERAL_LANES, sizeof word->lanes);
}

/* The bytes of the next word of an access, as bits of a stamp. */
static inline sim_stamp bulk_word_bytes(uint64_t address, uint32_t offset, uint32_t bytes)
{
    uint32_t skipped = (uint32_t)(address + offset) & 3;
    uint32_t count = bytes - offset < 4 - skipped ? bytes - offset : 4 - skipped;
    return (((sim_stamp)1 << count) - 1) << skipped;
}

static int bulk_read_words(sim_actor *actor, sim_space space, sim_shadow *word, uint64_t address,
                           uint32_t bytes)
{
    sim_stamp author = bulk_stamp(actor, 0);
    for (uint32_t offset = 0; offset < bytes; word++) {
        sim_stamp mine = author | bulk_word_bytes(address, offset, bytes);
        offset += 4 - ((uint32_t)(address + offset) & 3);
        if ((word->write & mine & STAMP_BYTES) != 0 &&
            (word->write != actor->ordered_write || word->fences != actor->ordered_fences)) {
            if (!bulk_is_ordered(actor, space, word->write))
                return bulk_report_race(actor, space, address, bytes, ACCESS_READ, word,
                                        word->write);
            if (!bulk_is_fenced(actor, space, word))
                return bulk_report_proxy(actor, space, address, bytes, word);
            actor->ordered_write = word->write, actor->ordered_fences = word->fences;
        }
        bulk_note_read(word, mine);
    }
    return 0;
}

/* Whether an earlier access to these bytes is ordered; `ordered` is the last stamp that was. */
static int bulk_check_stamp(const sim_actor *actor, sim_space space, sim_stamp stamp,
                            sim_stamp mine, sim_stamp *ordered)
{
    if ((stamp & mine & STAMP_BYTES) == 0 || stamp == *ordered || (stamp & mine & STAMP_STRONG) ||
        bulk_is_ordered(actor, space, stamp)) {
        *ordered = (stamp & mine & STAMP_BYTES) != 0 ? stamp : *ordered;
        return 1;
    }
    return 0;
}

static int bulk_write_words(sim_actor *actor, sim_space space, sim_shadow *word, uint64_t address,
                            uint32_t bytes, sim_access access)
{
    sim_stamp author = bulk_stamp(actor, access == ACCESS_ATOMIC);
    for (uint32_t offset = 0; offset < bytes; word++) {
        sim_stamp mine = author | bulk_word_bytes(address, offset, bytes), with = 0;
        offset += 4 - ((uint32_t)(address + offset) & 3);
        if (!bulk_check_stamp(actor, space, word->write, mine, &actor->ordered_write))
            with = word->write;
        else if (!bulk_check_stamp(actor, space, word->read, mine, &actor->ordered_read))
            with = word->read;
        else if (!bulk_check_stamp(actor, space, word->other, mine, &actor->ordered_other))
            with = word->other;
        if (with != 0)
            return bulk_report_race(actor, space, address, bytes, access, word, with);
        word->write = mine;
    }
    return 0;
}

static const uint8_t *bulk_find_state(const uint8_t *state, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        if (state[i] != STATE_WRITTEN)
            return state + i;
    return NULL;
}

static int bulk_check_bounds(sim_actor *actor, const sim_block *target, uint64_t address,
                             uint32_t bytes, sim_access access)
{
    if (address < target->shared_bytes && target->shared_bytes - address >= bytes)
        return 0;
    return sim_bad_access(actor->block, FAULT_BOUNDS, actor->at, actor->thread, SPACE_SHARED,
                          address, bytes, access);
}

int sim_bulk_read_shared(sim_actor *actor, sim_block *target, uint64_t address, uint32_t bytes)
{
    if (bulk_check_bounds(actor, target, address, bytes, ACCESS_READ))
        return 1;
    const uint8_t *state = bulk_find_state(target->shared_state + address, bytes);
    if (state != NULL) {
        if (*state & STATE_PENDING)
            sim_bulk_name_copier(target, (uint64_t)(state - target->shared_state), 1);
        return sim_bad_access(actor->block,
                              *state & STATE_PENDING    ? FAULT_PENDING_COPY
                              : *state & STATE_MBARRIER ? FAULT_MBARRIER
                                                        : FAULT_UNINITIALIZED,
                              actor->at, actor->thread, SPACE_SHARED, address, bytes, ACCESS_READ);
    }
    return actor->block->launch->check_races &&
           bulk_read_words(actor, SPACE_SHARED, target->shared_shadow + address / 4, address,
                           bytes);
}

int sim_bulk_write_shared(sim_actor *actor, sim_block *target, uint64_t address, uint32_t bytes)
{
    if (bulk_check_bounds(actor, target, address, bytes, ACCESS_WRITE))
        return 1;
    for (uint32_t i = 0; i < bytes; i++) {
        uint8_t state = target->shared_state[address + i];
        if (!(state & (STATE_PENDING | STATE_MBARRIER)))
            continue;
        if (state & STATE_PENDING)
            sim_bulk_name_copier(target, address + i, 1);
        return sim_bad_access(actor->block,
                              state & STATE_PENDING ? FAULT_PENDING_COPY : FAULT_MBARRIER,
                              actor->at, actor->thread, SPACE_SHARED, address + i, 1, ACCESS_WRITE);
    }
    return actor->block->launch->check_races &&
           bulk_write_words(actor, SPACE_SHARED, target->shared_shadow + address / 4, address,
                            bytes, ACCESS_WRITE);
}

uint8_t *sim_bulk_reach_global(sim_actor *actor, uint64_t address, uint32_t bytes,
                               sim_access access)
{
    sim_block *block = actor->block;
    const sim_range *range = sim_find_range(block, address, bytes);
    sim_fault_kind fault_type = FAULT_NONE;
    uint8_t *state =
        range != NULL && range->state != NULL ? range->state + (address - range->start) : NULL;
    if (range == NULL)
        fault_type = FAULT_BOUNDS;
    else if (range->unfinished && actor->warp_count > 0 && !actor->warps[0]->has_waited)
        fault_type = FAULT_EARLY;
    else if (range->read_only && access != ACCESS_READ)
        fault_type = FAULT_READ_ONLY;
    else if (state != NULL && access != ACCESS_WRITE && bulk_find_state(state, bytes) != NULL)
        fault_type = FAULT_UNINITIALIZED;
    if (fault_type != FAULT_NONE) {
        sim_bad_access(block, fault_type, actor->at, actor->thread, SPACE_GLOBAL, address, bytes,
                       access);
        return NULL;
    }
    sim_note_access(range, access);
    if (state != NULL && access == ACCESS_WRITE)
        memset(state, STATE_WRITTEN, bytes);
    if (block->global_shadow != NULL && !range->read_only) {
        sim_shadow *word = block->global_shadow + address / 4 - range->start / 4 +
                           block->range_words[range - block->launch->ranges];
        if (access == ACCESS_READ
                ? bulk_read_words(actor, SPACE_GLOBAL, word, address, bytes)
                : bulk_write_words(actor, SPACE_GLOBAL, word, address, bytes, access))
            return NULL;
    }
    return (uint8_t *)(uintptr_t)(address + range->moved);
}
