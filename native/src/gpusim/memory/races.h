/* Race detection with vector clocks (as in FastTrack): a race is two unordered accesses of
 * different threads to the same byte, one of them a write.
 *
 * A warp has a clock that advances at each barrier, and a vector clock of the other warps as of its
 * last synchronization with them; asynchronous operations are accesses of agents with clocks of
 * their own. Each word of shared and of global memory has a stamp of its last
 * write and its last two readers, so a race with any of those three is found. Two blocks of
 * different clusters are ordered only if the first has released and the second acquired (a fence,
 * or an access with that semantics); which accesses precede the release is not tracked. In a
 * cooperative launch it is: what an acquire makes visible are the vector clocks that releases at
 * the same address have published, or fences anywhere. A store that does not change the value does
 * not race with the previous store. */
#ifndef NOVA_GPUSIM_MEMORY_RACES_H
#define NOVA_GPUSIM_MEMORY_RACES_H

#include "gpusim/state.h"

/* A stamp from its top: block 25 bits, clock 22, thread 11, several threads of the warp, strong,
 * bytes of the word 4. Threads from BLOCK_THREADS on are asynchronous agents. */
enum {
    BYTES_BITS = 4,
    STRONG_AT = 4,
    SEVERAL_AT = 5,
    THREAD_AT = 6,
    WARP_AT = 11,
    CLOCK_AT = 17,
    BLOCK_AT = 39
};
#define STAMP_STRONG ((sim_stamp)1 << STRONG_AT)
#define STAMP_SEVERAL ((sim_stamp)1 << SEVERAL_AT)
#define STAMP_BYTES (((sim_stamp)1 << BYTES_BITS) - 1)

static inline uint32_t block_in(sim_stamp stamp)
{
    return (uint32_t)(stamp >> BLOCK_AT);
}
static inline uint32_t clock_in(sim_stamp stamp)
{
    return (uint32_t)(stamp >> CLOCK_AT) & (MOST_MOMENTS - 1);
}
static inline uint32_t thread_in(sim_stamp stamp)
{
    return (uint32_t)(stamp >> THREAD_AT) & (2 * BLOCK_THREADS - 1);
}

/* Where a vector clock has the author of a stamp, in the row of its block. */
static inline uint32_t author_of(sim_stamp stamp)
{
    uint32_t thread = thread_in(stamp);
    return thread < BLOCK_THREADS ? thread / LANES : thread - BLOCK_THREADS + AGENT_STORES;
}

/* The block of the cluster that has made a stamp; NULL: another one. */
static inline sim_block *stamp_block(const sim_block *block, sim_stamp stamp)
{
    uint32_t serial = block_in(stamp);
    if (serial == block->serial)
        return block->cluster->blocks + block->rank;
    for (uint32_t i = 0; i < block->cluster->size; i++)
        if (block->cluster->blocks[i].serial == serial)
            return block->cluster->blocks + i;
    return NULL;
}

/* The stamp of an access that touches no byte yet. */
static inline sim_stamp make_stamp(const sim_block *block, const sim_warp *warp, uint32_t thread,
                                   int strong)
{
    return (sim_stamp)block->serial << BLOCK_AT | (sim_stamp)warp->clock << CLOCK_AT |
           (sim_stamp)thread << THREAD_AT | (strong ? STAMP_STRONG : 0);
}

/* Whether the access of a stamp happened before an access of a thread. */
static inline int is_ordered(const sim_block *block, const sim_warp *warp, uint32_t thread,
                             sim_space space, sim_stamp stamp)
{
    uint32_t rank = block->rank;
    if (block_in(stamp) != block->serial) {
        const sim_block *author = stamp_block(block, stamp);
        if (author == NULL)
            return space != SPACE_GLOBAL ||
                   block_in(stamp) <= block->first_serial || /* of an earlier launch */
                   (block->acquired && block->released[block_in(stamp) - block->first_serial]);
        rank = author->rank;
    }
    uint32_t other = thread_in(stamp), author = author_of(stamp);
    if (rank == block->rank && author == warp->number)
        return clock_in(stamp) < warp->clock || (other == thread && !(stamp & STAMP_SEVERAL));
    return warp->vector_clock[rank * CLOCK_ROW + author] >= clock_in(stamp) ||
           (space == SPACE_GLOBAL && block->acquired && !block->launch->is_cooperative &&
            block->released[block_in(stamp) - block->first_serial]);
}

static inline int conflicts(const sim_block *block, const sim_warp *warp, uint32_t thread,
                            sim_space space, sim_stamp stamp, sim_stamp mine)
{
    return (stamp & mine & STAMP_BYTES) != 0 && !(stamp & mine & STAMP_STRONG) &&
           !is_ordered(block, warp, thread, space, stamp);
}

static inline void note_lanes(sim_shadow *word, sim_stamp mine)
{
    sim_stamp before = word->read >> WARP_AT == mine >> WARP_AT ? word->read & STAMP_BYTES : 0;
    uint8_t lane = (uint8_t)(thread_in(mine) % LANES);
    for (int byte = 0; byte < 4; byte++)
        if (mine >> byte & 1)
            word->lanes[byte] =
                before >> byte & 1 && word->lanes[byte] != lane ? SEVERAL_LANES : lane;
}

/* Whether the reads of `read`, of one warp at one time, include no other thread on the bytes that
 * `mine` writes: threads may share a word without sharing a byte. */
static inline int read_alone(const sim_shadow *word, sim_stamp mine)
{
    if (word->read >> WARP_AT != mine >> WARP_AT)
        return 0;
    for (int byte = 0; byte < 4; byte++)
        if ((word->read & mine) >> byte & 1 && word->lanes[byte] != thread_in(mine) % LANES)
            return 0;
    return 1;
}

static inline void note_read(sim_shadow *word, sim_stamp mine)
{
    if ((mine & STAMP_BYTES) != STAMP_BYTES)
        note_lanes(word, mine);
    else if (word->read >> WARP_AT == mine >> WARP_AT && thread_in(word->read) != thread_in(mine))
        memset(word->lanes, SEVERAL_LANES, sizeof word->lanes);
    else
        memset(word->lanes, (int)(thread_in(mine) % LANES), sizeof word->lanes);
    if (word->read >> WARP_AT != mine >> WARP_AT) { /* of another warp, or of another moment */
        word->other = word->read;
        word->read = mine;
        return;
    }
    sim_stamp several = word->read & STAMP_SEVERAL;
    if (thread_in(word->read) != thread_in(mine))
        several = STAMP_SEVERAL;
    word->read = (mine & (word->read | ~STAMP_STRONG)) | (word->read & STAMP_BYTES) | several;
}

static inline void note_write(sim_shadow *word, sim_stamp mine)
{
    /* A plain write of a thread stays plain, also when an atomic write follows. */
    if (word->write >> SEVERAL_AT == mine >> SEVERAL_AT)
        mine = (mine & (word->write | ~STAMP_STRONG)) | (word->write & STAMP_BYTES);
    word->write = mine;
}

/* `word` is the shadow of the first word of the access; `old` the current bytes, `value` the new
 * ones. Returns the word that has a race, and the racing stamp in `with`; NULL: none. */
static inline sim_shadow *find_race(const sim_block *block, const sim_warp *warp, uint32_t thread,
                                    sim_space space, sim_shadow *word, uint64_t address,
                                    uint32_t bytes, sim_access access, int strong,
                                    const uint8_t *old, const uint8_t *value, sim_stamp *with)
{
    sim_stamp who = make_stamp(block, warp, thread, strong);
    uint32_t skipped = (uint32_t)address & 3;
    for (uint32_t offset = 0; offset < bytes; word++, skipped = 0) {
        uint32_t here = bytes - offset < 4 - skipped ? bytes - offset : 4 - skipped;
        sim_stamp mine = who | (((sim_stamp)1 << here) - 1) << skipped;
        offset += here;
        if (word->write != 0 && conflicts(block, warp, thread, space, word->write, mine) &&
            !(value != NULL && memcmp(old, value, bytes) == 0)) {
            *with = word->write;
            return word;
        }
        if (access == ACCESS_READ) {
            note_read(word, mine);
            continue;
        }
        if (word->read != 0 && ((conflicts(block, warp, thread, space, *with = word->read, mine) &&
                                 !read_alone(word, mine)) ||
                                conflicts(block, warp, thread, space, *with = word->other, mine)))
            return word;
        note_write(word, mine);
        word->fences = block->fences;
    }
    return NULL;
}

/* Describes a race; returns 1. */
int sim_report_race(sim_block *block, const sim_instruction *at, uint32_t thread, sim_space space,
                    uint64_t address, uint32_t bytes, sim_access access, const sim_shadow *word,
                    sim_stamp with);

#endif
