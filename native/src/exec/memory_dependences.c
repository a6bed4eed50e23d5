#include "exec/memory_dependences.h"

#include <stdlib.h>
#include <string.h>

/* Words of all sets: no program that Nova writes has as many; one that has runs in order. */
#define MEMORY_MOST_WORDS (UINT32_C(1) << 25)

enum { MEMORY_CROWDED = 64, MEMORY_EMPTY = 0 };

nova_status nova_memory_create(nova_memory_dependences *memory)
{
    *memory = (nova_memory_dependences){.capacity = 256, .run_capacity = 4096};
    memory->intervals = malloc(memory->capacity * sizeof *memory->intervals);
    memory->runs = malloc(memory->run_capacity * sizeof *memory->runs);
    if (memory->intervals == NULL || memory->runs == NULL) {
        nova_memory_free(memory);
        return NOVA_OUT_OF_MEMORY;
    }
    nova_memory_clear(memory);
    return NOVA_OK;
}

void nova_memory_free(nova_memory_dependences *memory)
{
    free(memory->intervals);
    free(memory->runs);
    free(memory->bits);
    *memory = (nova_memory_dependences){0};
}

void nova_memory_clear(nova_memory_dependences *memory)
{
    memory->runs[MEMORY_EMPTY] = 0;
    memory->run_words = 1;
    memory->intervals[0] = (nova_memory_interval){.start = 0};
    memory->count = 1;
    memory->crowded = MEMORY_CROWDED;
}

/* --- intervals -------------------------------------------------------------------------------- */

/* The first interval that starts at or after byte `at`. */
static uint32_t memory_find(const nova_memory_dependences *memory, uint64_t at)
{
    uint32_t low = 0, high = memory->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (memory->intervals[middle].start < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Splits the interval around byte `at`, unless one starts there. */
static nova_status memory_cut(nova_memory_dependences *memory, uint64_t at)
{
    uint32_t i = memory_find(memory, at);
    if (i < memory->count && memory->intervals[i].start == at)
        return NOVA_OK;
    if (memory->count == memory->capacity) {
        size_t capacity = 2 * (size_t)memory->capacity;
        if (capacity > MEMORY_MOST_WORDS)
            return NOVA_OUT_OF_RANGE;
        void *grown = realloc(memory->intervals, capacity * sizeof *memory->intervals);
        if (grown == NULL)
            return NOVA_OUT_OF_MEMORY;
        memory->intervals = grown;
        memory->capacity = (uint32_t)capacity;
    }
    memmove(memory->intervals + i + 1, memory->intervals + i,
            (memory->count - i) * sizeof *memory->intervals);
    memory->intervals[i] = memory->intervals[i - 1]; /* the first one starts at 0: i > 0 */
    memory->intervals[i].start = at;
    memory->count++;
    return NOVA_OK;
}

static bool memory_same_set(const nova_memory_dependences *memory, uint32_t a, uint32_t b)
{
    size_t words = 1 + 2 * (size_t)memory->runs[a];
    return a == b || memcmp(memory->runs + a, memory->runs + b, words * sizeof *memory->runs) == 0;
}

/* Merges neighbouring intervals with the same readers and writers. */
static void memory_merge(nova_memory_dependences *memory)
{
    uint32_t kept = 1;
    for (uint32_t i = 1; i < memory->count; i++) {
        const nova_memory_interval *last = &memory->intervals[kept - 1];
        const nova_memory_interval *next = &memory->intervals[i];
        if (!memory_same_set(memory, last->writers, next->writers) ||
            !memory_same_set(memory, last->readers, next->readers))
            memory->intervals[kept++] = *next;
    }
    memory->count = kept;
    memory->crowded = 2 * kept + MEMORY_CROWDED;
}

/* --- sets ------------------------------------------------------------------------------------- */

static void memory_add_set(const nova_memory_dependences *memory, uint32_t set, uint64_t *bits)
{
    const uint32_t *runs = memory->runs + set;
    for (uint32_t i = 0; i < runs[0]; i++) {
        uint32_t begin = runs[1 + 2 * i], end = runs[2 + 2 * i];
        for (uint32_t task = begin; task < end;) {
            uint32_t shift = task % 64, room = 64 - shift, count = end - task;
            count = count < room ? count : room;
            uint64_t ones = count == 64 ? ~UINT64_C(0) : (UINT64_C(1) << count) - 1;
            bits[task / 64] |= ones << shift;
            task += count;
        }
    }
}

static nova_status memory_reserve(nova_memory_dependences *memory, size_t words)
{
    size_t needed = memory->run_words + words;
    if (needed > MEMORY_MOST_WORDS)
        return NOVA_OUT_OF_RANGE;
    if (needed <= memory->run_capacity)
        return NOVA_OK;
    size_t capacity = 2 * (needed > memory->run_capacity ? needed : memory->run_capacity);
    uint32_t *grown = realloc(memory->runs, capacity * sizeof *grown);
    if (grown == NULL)
        return NOVA_OUT_OF_MEMORY;
    memory->runs = grown;
    memory->run_capacity = (uint32_t)capacity;
    return NOVA_OK;
}

/* A new set: `old` and the tasks from `first_task` whose bits are set but not in `excluded`. */
static nova_status memory_make_set(nova_memory_dependences *memory, uint32_t old,
                                   const uint64_t *bits, const uint64_t *excluded,
                                   uint32_t first_task, uint32_t task_count, uint32_t *set)
{
    nova_status status = memory_reserve(memory, 2 + 2 * ((size_t)memory->runs[old] + task_count));
    if (status != NOVA_OK)
        return status;
    uint32_t *made = memory->runs + memory->run_words;
    memcpy(made, memory->runs + old, (1 + 2 * (size_t)memory->runs[old]) * sizeof *made);
    for (uint32_t i = 0; i < task_count; i++) {
        uint64_t word = bits[i / 64] & (excluded != NULL ? ~excluded[i / 64] : ~UINT64_C(0));
        if (word >> (i % 64) == 0) {
            i |= 63; /* no more in this word */
            continue;
        }
        if ((word >> (i % 64) & 1) == 0)
            continue;
        uint32_t task = first_task + i;
        if (made[0] > 0 && made[2 * made[0]] == task) {
            made[2 * made[0]]++;
        } else {
            made[0]++;
            made[2 * made[0] - 1] = task;
            made[2 * made[0]] = task + 1;
        }
    }
    if (made[0] == 0) {
        *set = MEMORY_EMPTY;
        return NOVA_OK;
    }
    *set = memory->run_words;
    memory->run_words += 1 + 2 * made[0];
    return NOVA_OK;
}

nova_status nova_memory_before(nova_memory_dependences *memory, uint64_t low, uint64_t high,
                               bool writing, uint64_t *set)
{
    nova_status status = memory_cut(memory, low);
    if (status == NOVA_OK)
        status = memory_cut(memory, high);
    if (status != NOVA_OK)
        return status;
    uint32_t writers = MEMORY_EMPTY, readers = MEMORY_EMPTY; /* neighbours often share a set */
    for (uint32_t i = memory_find(memory, low); memory->intervals[i].start < high; i++) {
        const nova_memory_interval *interval = &memory->intervals[i];
        if (interval->writers != writers)
            memory_add_set(memory, writers = interval->writers, set);
        if (writing && interval->readers != readers)
            memory_add_set(memory, readers = interval->readers, set);
    }
    return NOVA_OK;
}

/* --- recording -------------------------------------------------------------------------------- */

/* The bits of an interval: readers, then writers, `words` of each. */
static nova_status memory_slot(nova_memory_dependences *memory, nova_memory_interval *interval,
                               size_t words, uint64_t **bits)
{
    if (interval->slot == 0) {
        size_t needed = ((size_t)memory->slot_count + 1) * 2 * words;
        if (needed > memory->slot_capacity) {
            size_t capacity = 2 * needed + 256;
            uint64_t *grown = capacity < MEMORY_MOST_WORDS
                                  ? realloc(memory->bits, capacity * sizeof *grown)
                                  : NULL;
            if (grown == NULL)
                return capacity < MEMORY_MOST_WORDS ? NOVA_OUT_OF_MEMORY : NOVA_OUT_OF_RANGE;
            memory->bits = grown;
            memory->slot_capacity = (uint32_t)capacity;
        }
        memset(memory->bits + memory->slot_count * 2 * words, 0, 2 * words * sizeof *memory->bits);
        interval->slot = ++memory->slot_count;
    }
    *bits = memory->bits + (interval->slot - 1) * 2 * words;
    return NOVA_OK;
}

static nova_status memory_mark(nova_memory_dependences *memory, const nova_memory_access *access,
                               size_t words)
{
    uint32_t first = memory_find(memory, access->low);
    for (uint32_t i = first; i < memory->count && memory->intervals[i].start < access->high; i++) {
        uint64_t *bits;
        nova_status status = memory_slot(memory, &memory->intervals[i], words, &bits);
        if (status != NOVA_OK)
            return status;
        bits += access->writes ? words : 0;
        for (uint32_t k = 0; k < access->count; k++)
            bits[access->tasks[k] / 64] |= UINT64_C(1) << access->tasks[k] % 64;
    }
    return NOVA_OK;
}

static bool memory_any(const uint64_t *bits, size_t words)
{
    for (size_t i = 0; i < words; i++)
        if (bits[i] != 0)
            return true;
    return false;
}

static nova_status memory_apply(nova_memory_dependences *memory, uint32_t first_task,
                                uint32_t task_count, size_t words)
{
    for (uint32_t i = 0; i < memory->count; i++) {
        nova_memory_interval *interval = &memory->intervals[i];
        if (interval->slot == 0)
            continue;
        const uint64_t *reads = memory->bits + (interval->slot - 1) * 2 * words;
        const uint64_t *writes = reads + words;
        bool is_written = memory_any(writes, words);
        interval->slot = 0;
        nova_status status = NOVA_OK;
        if (is_written)
            status = memory_make_set(memory, MEMORY_EMPTY, writes, NULL, first_task, task_count,
                                     &interval->writers);
        if (status == NOVA_OK)
            status = memory_make_set(memory, is_written ? MEMORY_EMPTY : interval->readers, reads,
                                     is_written ? writes : NULL, first_task, task_count,
                                     &interval->readers);
        if (status != NOVA_OK)
            return status;
    }
    return NOVA_OK;
}

nova_status nova_memory_record(nova_memory_dependences *memory, const nova_memory_access *accesses,
                               uint32_t access_count, uint32_t first_task, uint32_t task_count)
{
    size_t words = ((size_t)task_count + 63) / 64;
    nova_status status = NOVA_OK;
    for (uint32_t i = 0; status == NOVA_OK && i < access_count; i++) {
        status = memory_cut(memory, accesses[i].low);
        if (status == NOVA_OK)
            status = memory_cut(memory, accesses[i].high);
    }
    memory->slot_count = 0;
    for (uint32_t i = 0; status == NOVA_OK && i < access_count; i++)
        status = memory_mark(memory, &accesses[i], words);
    if (status == NOVA_OK)
        status = memory_apply(memory, first_task, task_count, words);
    if (status == NOVA_OK && memory->count > memory->crowded)
        memory_merge(memory);
    return status;
}
