/* Races: two accesses of different threads to the same byte, one of them a write, that nothing orders.
 *
 * A warp has a clock that moves on at each barrier, and knows how far the clocks of the others had come when it last met
 * them. Each word of shared and of global memory remembers its last write and its last two readers, so a race is found
 * with any of those three. Two blocks are ordered only if the first has released and the second acquired (a fence, or an
 * access that says so); which of its accesses came before is not looked at. A store that changes nothing does not race
 * with the store before it. */
#include "state.h"

/* A stamp from its top: block 26 bits, clock 22, thread 10, several threads of the warp, strong, bytes of the word 4. */
enum { BYTES_BITS = 4, STRONG_AT = 4, SEVERAL_AT = 5, THREAD_AT = 6, CLOCK_AT = 16, BLOCK_AT = 38 };
#define STRONG ((sim_stamp)1 << STRONG_AT)
#define SEVERAL ((sim_stamp)1 << SEVERAL_AT)
#define BYTES (((sim_stamp)1 << BYTES_BITS) - 1)

static inline uint32_t block_in(sim_stamp stamp) { return (uint32_t)(stamp >> BLOCK_AT); }
static inline uint32_t clock_in(sim_stamp stamp) { return (uint32_t)(stamp >> CLOCK_AT) & ((1u << 22) - 1); }
static inline uint32_t thread_in(sim_stamp stamp) { return (uint32_t)(stamp >> THREAD_AT) & 1023; }

static int is_ordered(const sim_block *block, const sim_warp *warp, uint32_t thread, sim_space space, sim_stamp stamp)
{
    if (stamp == 0)
        return 1;
    if (block_in(stamp) != block->serial)
        return space != SPACE_GLOBAL || (block->acquired && block->released[block_in(stamp)]);
    uint32_t other = thread_in(stamp);
    if (other / LANES == warp->number)
        return clock_in(stamp) < warp->clock || (other == thread && !(stamp & SEVERAL));
    return warp->known[other / LANES] >= clock_in(stamp);
}

static inline int conflicts(const sim_block *block, const sim_warp *warp, uint32_t thread, sim_space space,
                            sim_stamp stamp, sim_stamp mine)
{
    return (stamp & mine & BYTES) != 0 && !(stamp & mine & STRONG) && !is_ordered(block, warp, thread, space, stamp);
}

/* Whether two stamps are of one warp at one moment. */
static inline int are_together(sim_stamp a, sim_stamp b)
{
    return a >> CLOCK_AT == b >> CLOCK_AT && thread_in(a) / LANES == thread_in(b) / LANES;
}

static void note_lanes(sim_shadow *word, sim_stamp mine)
{
    sim_stamp before = are_together(word->read, mine) ? word->read & BYTES : 0;
    uint8_t lane = (uint8_t)(thread_in(mine) % LANES);
    for (int byte = 0; byte < 4; byte++)
        if (mine >> byte & 1)
            word->lanes[byte] = before >> byte & 1 && word->lanes[byte] != lane ? SEVERAL_LANES : lane;
}

/* Whether the reads that `read` stands for, of one warp at one moment, were of no other thread where `mine` writes: threads
 * may share a word without sharing a byte. */
static int read_alone(const sim_shadow *word, sim_stamp mine)
{
    if (!are_together(word->read, mine))
        return 0;
    for (int byte = 0; byte < 4; byte++)
        if ((word->read & mine) >> byte & 1 && word->lanes[byte] != thread_in(mine) % LANES)
            return 0;
    return 1;
}

static void note_read(sim_shadow *word, sim_stamp mine)
{
    note_lanes(word, mine);
    if (!are_together(word->read, mine)) {
        word->other = word->read;
        word->read = mine;
        return;
    }
    sim_stamp several = word->read & SEVERAL;
    if (thread_in(word->read) != thread_in(mine))
        several = SEVERAL;
    word->read = (mine & (word->read | ~STRONG)) | (word->read & BYTES) | several;
}

static int report_race(sim_block *block, const sim_instruction *at, uint32_t thread, sim_space space, uint64_t address,
                       uint32_t bytes, sim_access access, sim_stamp with, int wrote)
{
    sim_fault *fault = block->fault;
    const uint32_t *grid = block->launch->grid;
    uint32_t serial = block_in(with) - 1;
    fault->has_other = 1;
    fault->other_writes = (uint8_t)wrote;
    fault->other_block[0] = serial % grid[0];
    fault->other_block[1] = serial / grid[0] % grid[1];
    fault->other_block[2] = serial / grid[0] / grid[1];
    sim_name_thread(block, thread_in(with), fault->other);
    return sim_bad_access(block, FAULT_RACE, at, thread, space, address, bytes, access);
}

/* `word` is the shadow of the first word that the access touches; `old` what is there now. */
int sim_check_order(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t thread, sim_space space,
                    sim_shadow *word, uint64_t address, uint32_t bytes, sim_access access, const uint8_t *old,
                    const uint8_t *value)
{
    sim_stamp who = (sim_stamp)block->serial << BLOCK_AT | (sim_stamp)warp->clock << CLOCK_AT |
                    (sim_stamp)thread << THREAD_AT;
    if (access == ACCESS_ATOMIC || at->flags & ACCESS_STRONG)
        who |= STRONG;
    uint32_t skipped = (uint32_t)address & 3;
    for (uint32_t done = 0; done < bytes; word++, skipped = 0) {
        uint32_t here = bytes - done < 4 - skipped ? bytes - done : 4 - skipped;
        sim_stamp mine = who | (((sim_stamp)1 << here) - 1) << skipped;
        done += here;
        if (conflicts(block, warp, thread, space, word->write, mine)) {
            int same = value != NULL && memcmp(old, value, bytes) == 0;
            if (!same)
                return report_race(block, at, thread, space, address, bytes, access, word->write, 1);
        }
        if (access == ACCESS_READ) {
            note_read(word, mine);
            continue;
        }
        if (conflicts(block, warp, thread, space, word->read, mine) && !read_alone(word, mine))
            return report_race(block, at, thread, space, address, bytes, access, word->read, 0);
        if (conflicts(block, warp, thread, space, word->other, mine))
            return report_race(block, at, thread, space, address, bytes, access, word->other, 0);
        /* A thread's plain write stays one, also when it goes on with an atomic one. */
        if (word->write >> SEVERAL_AT == mine >> SEVERAL_AT)
            mine = (mine & (word->write | ~STRONG)) | (word->write & BYTES);
        word->write = mine;
    }
    return 0;
}

void sim_fence(sim_block *block, uint32_t flags)
{
    if (flags & ACCESS_RELEASE)
        block->released[block->serial] = 1;
    if (flags & ACCESS_ACQUIRE)
        block->acquired = 1;
}
