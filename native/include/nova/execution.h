/* Executions: the state of a run other than its workspace, reused from run to run.
 *
 *     nova_execution_take(program, 0, &execution);
 *     nova_execution_bind(execution, arguments, outputs, workspace);
 *     nova_instance_run(execution->instance, nova_execution_task, execution, &options, &result);
 *     nova_execution_give(execution);
 *
 * Or nova_instance_submit, and nova_instance_wait before releasing it. */
#ifndef NOVA_EXECUTION_H
#define NOVA_EXECUTION_H

#include <stdatomic.h>
#include <stdint.h>

#include "nova/error.h"
#include "nova/program.h"
#include "nova/scheduler.h"
#include "nova/status.h"
#include "nova/task_plan.h"

typedef struct nova_execution {
    nova_instance *instance; /* to run, wait for, cancel and inspect */
    nova_program *program;
    const struct nova_prepared *prepared; /* its tasks */
    unsigned tasks_for;    /* threads that its tasks were cut for; 0: they are fixed */
    void *owner;           /* for the holder: polls and callbacks get the execution */
    unsigned places;       /* threads that a run of it can have */
    unsigned worker_limit; /* of its run, and of the regions inside; 0: that of the pool */
    /* the number that a kernel returned in a run that ended with NOVA_TASK_REPORTED */
    _Atomic int32_t reported;
    uint32_t trace_capacity;
    char *scratch; /* a tile-local buffer for each worker slot; NULL if no kernel takes one */
    size_t scratch_stride;
    struct nova_execution *next;
    void *pointers[]; /* one for each operand of the tables */
} nova_execution;

/* Takes an idle execution, or creates one, for the current number of threads; runs then allocate no
 * memory. With a `trace_capacity` its instance has trace rings. The caller holds it exclusively.
 * Thread-safe. */
nova_status nova_execution_take(nova_program *program, uint32_t trace_capacity,
                                nova_execution **execution);

/* The same with the tasks for `workers` threads, however many there are now (0: as above). */
nova_status nova_execution_take_for(nova_program *program, unsigned workers,
                                    uint32_t trace_capacity, nova_execution **execution);

/* Gives it back after its run, and all waits for it, have ended. NULL is fine. Thread-safe. */
void nova_execution_give(nova_execution *execution);

/* Its tasks; owned by the program. By the holder. */
nova_task_plan nova_execution_tasks(const nova_execution *execution);

/* Sets the pointers of the next run, as nova_program_run takes them. By the holder. */
nova_status nova_execution_bind(nova_execution *execution, void *const *arguments,
                                void *const *outputs, void *workspace);

/* A nova_execute: runs a task of the execution that `context` is. */
nova_status nova_execution_task(void *context, uint32_t task, unsigned worker);

/* Number of threads for its next run: the plan, at most `limit` (0: that of the pool) and its
 * worker slots. By the holder. */
unsigned nova_execution_workers(nova_execution *execution, unsigned limit);

/* Fills *error (NULL is fine) with the reason and the task that ended a run. By the holder. */
nova_status nova_execution_explain(const nova_execution *execution, const nova_run_result *result,
                                   nova_error *error);

#endif
