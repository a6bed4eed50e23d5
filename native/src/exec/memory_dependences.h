/* Last writers and readers of each byte: the dependences between tasks through shared memory.
 *
 * task_plan.c follows the launches of a program in order and asks, for the bytes that each task
 * touches, which tasks must finish before. */
#ifndef NOVA_EXEC_MEMORY_DEPENDENCES_H
#define NOVA_EXEC_MEMORY_DEPENDENCES_H

#include <stdbool.h>
#include <stdint.h>

#include "nova/status.h"

/* Bytes from `start` to the start of the next interval. Sets are offsets in `runs`. */
typedef struct {
    uint64_t start;
    uint32_t writers, readers;
    uint32_t slot; /* of the tasks being recorded, plus one; 0: they do not touch it */
} nova_memory_interval;

typedef struct {
    nova_memory_interval *intervals;
    uint32_t count, capacity, crowded;
    /* Sets of tasks: the number of runs, then [begin, end) of each. A set never changes. */
    uint32_t *runs;
    uint32_t run_words, run_capacity;
    /* Of the launch that is being recorded: bits of its tasks that read, and that write. */
    uint64_t *bits;
    uint32_t slot_count, slot_capacity;
} nova_memory_dependences;

/* Bytes [low, high) that the tasks of one launch touch: `count` tasks, numbered in the launch. */
typedef struct {
    uint64_t low, high;
    const uint32_t *tasks;
    uint32_t count;
    bool writes;
} nova_memory_access;

nova_status nova_memory_create(nova_memory_dependences *memory);
void nova_memory_free(nova_memory_dependences *memory);

/* Forgets all accesses: the tasks so far have finished before any that follow. */
void nova_memory_clear(nova_memory_dependences *memory);

/* Adds to the bits of `set` the tasks that must finish before bytes [low, high) may be read or
 * written. A reader waits for the last writers. A writer waits for them and for all readers of what
 * they wrote. Then all earlier accesses have finished as well, because those tasks waited for
 * them. */
nova_status nova_memory_before(nova_memory_dependences *memory, uint64_t low, uint64_t high,
                               bool writing, uint64_t *set);

/* Records the accesses of a launch with `task_count` tasks, of which the first is `first_task`.
 * They are unordered among themselves, and ranges may be larger than the access: two tasks may
 * share bytes that only one of them touches. So all tasks that may write a byte are its last
 * writers. */
nova_status nova_memory_record(nova_memory_dependences *memory, const nova_memory_access *accesses,
                               uint32_t access_count, uint32_t first_task, uint32_t task_count);

#endif
