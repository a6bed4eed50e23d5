/* The tasks of a program for a number of threads, derived from the tilings of its kernels.
 *
 * A tiling (nova/tables.h) has the tile grid of a kernel and the bytes that each tile reads and
 * writes. A plan cuts the tiles of every launch into ranges that are worth a task each on this many
 * threads, and orders tasks of different launches that touch the same bytes, one of them writing,
 * as the launches are. Tasks of one launch are never ordered. Which tiles a task has never changes
 * what a tile computes, so all plans give the same bits. */
#ifndef NOVA_TASK_PLAN_H
#define NOVA_TASK_PLAN_H

#include <stdint.h>

#include "nova/status.h"
#include "nova/tables.h"

/* Below this many nanoseconds, waking a second core takes longer than the time it saves. */
#define NOVA_WORTH_SHARING UINT64_C(40000)

typedef struct nova_task_plan {
    nova_task *tasks; /* in topological order, as in a file: launch by launch */
    uint32_t *successors;
    uint32_t task_count; /* 0: the launches run in order */
    uint32_t successor_count;
} nova_task_plan;

/* Makes the tasks of checked tables that have tilings, for `workers` threads; a program with less
 * than `worth_ns` nanoseconds of estimated work, or where nothing could run concurrently, gets
 * none. Launches of kernels without code (copies, loops, those of a device) are ordered with all
 * others. The same arguments give the same plan on every machine. The caller frees *plan.
 * Thread-safe. */
nova_status nova_task_plan_create(const nova_tables *tables, unsigned workers, uint64_t worth_ns,
                                  nova_task_plan *plan);

/* The tasks of the kernels of a device: every launch is cut into at most `most` tasks of whole
 * blocks, and with `most` 1 the successors of a task are the launches that depend on it, without
 * those that do so through others. A launch whose kernel has no tiling is one task that reads its
 * first `reads` operands and writes the others. Launches of anything else are ordered with all
 * others. A block with loops written by hand gets no tasks: its launches run in order. The caller
 * frees *plan. Thread-safe. */
nova_status nova_task_plan_create_device(const nova_tables *tables, uint32_t most,
                                         nova_task_plan *plan);

void nova_task_plan_free(nova_task_plan *plan);

#endif
