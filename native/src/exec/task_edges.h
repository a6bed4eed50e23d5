/* Tasks and the edges between them, while a plan is made: task_plan.c says which tasks each task of
 * a launch needs, and this keeps the edges that are necessary. */
#ifndef NOVA_EXEC_TASK_EDGES_H
#define NOVA_EXEC_TASK_EDGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nova/scheduler.h"
#include "nova/status.h"
#include "nova/tables.h"

/* Most tasks of a plan, joins included. */
enum { NOVA_MOST_TASKS = 32768 };

typedef struct {
    uint32_t *items;
    size_t count, capacity;
} nova_task_list;

/* All zero: no tasks. */
typedef struct {
    nova_task *tasks; /* without successors yet */
    uint64_t **above; /* per task: bits of all predecessors (transitive), and of itself */
    uint32_t count, capacity;
    nova_task_list waits; /* of all tasks, one after the other: `waits` of each */
    nova_task_list joins; /* per task without tiles: its number, and where its waits begin */
} nova_task_edges;

/* The tasks of a launch that wait for the same: [first, last) of a list; scratch of a caller. */
typedef struct {
    size_t first, last;
    uint32_t followers, join;
} nova_task_group;

/* Words of a set of tasks that may have task `last`. */
static inline size_t nova_task_words(uint32_t last)
{
    return (size_t)last / 64 + 1;
}

/* Adds the joins and tasks of a launch: task i has tiles [cuts[i], cuts[i + 1]) and waits for the
 * tasks of its row of `needed`, `words` words of bits each. Two more rows, `groups` and `group_of`
 * (one a task) are scratch. NOVA_OUT_OF_RANGE: too many tasks. */
nova_status nova_task_edges_add(nova_task_edges *edges, uint32_t launch, const int64_t *cuts,
                                uint32_t count, uint64_t *needed, uint64_t *scratch, size_t words,
                                nova_task_group *groups, uint32_t *group_of);

/* Adds one task that waits for all tasks so far. */
nova_status nova_task_edges_add_after_all(nova_task_edges *edges, uint32_t launch, int64_t tiles);

/* Whether any two tasks may run concurrently. */
bool nova_task_edges_are_wide(const nova_task_edges *edges);

void nova_task_edges_free(nova_task_edges *edges);

#endif
