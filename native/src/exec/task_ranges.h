/* The tiles of a kernel as tasks: where each task begins, and the bytes that it touches. */
#ifndef NOVA_EXEC_TASK_RANGES_H
#define NOVA_EXEC_TASK_RANGES_H

#include <stdbool.h>
#include <stdint.h>

#include "nova/status.h"
#include "nova/tables.h"

/* Most tasks of a kernel: they balance the cores of a large machine; more only cost time. */
enum { NOVA_MOST_KERNEL_TASKS = 512 };

/* Bytes [low, high) of an operand, and the tasks that touch just those: `count` of `tasks`, from
 * `first`. */
typedef struct {
    int64_t low, high;
    uint32_t first, count;
} nova_task_span;

/* One operand of a kernel, read or written. */
typedef struct {
    uint32_t operand;
    bool writes;
    uint32_t span_count;
    nova_task_span *spans; /* each task is in one */
    uint32_t *tasks;       /* ascending within a span */
} nova_task_access;

typedef struct {
    uint32_t task_count;
    int64_t *cuts; /* task i has tiles [cuts[i], cuts[i + 1]) */
    uint32_t access_count;
    nova_task_access *accesses;
} nova_task_ranges;

/* Cuts the tiles of `kernel` into tasks for `workers` threads. `cost` is its estimated time, and a
 * task has at most about `longest` of it. */
nova_status nova_task_ranges_create(const nova_tables *tables, uint32_t kernel, double cost,
                                    double longest, unsigned workers, nova_task_ranges *ranges);

/* All zero is fine. */
void nova_task_ranges_free(nova_task_ranges *ranges);

#endif
