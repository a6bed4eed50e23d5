/* One run of a graph: what instance.c lays out, run.c and submit.c change and worker_pool.c looks
 * at. */
#ifndef NOVA_SCHEDULER_INSTANCE_H
#define NOVA_SCHEDULER_INSTANCE_H

#include <stdatomic.h>
#include <sys/types.h>

#include "scheduler/latch.h"
#include "scheduler/graph.h"
#include "scheduler/work_stealing_deque.h"

struct nova_workers;

/* Values of nova_instance.state; the word that waiters sleep on. */
enum {
    NOVA_STATE_IDLE = 0,
    NOVA_STATE_RUNNING = 1,
    NOVA_STATE_AWAITED = 2, /* running, and somebody sleeps until the end */
    NOVA_STATE_FINISHED = 3,
    NOVA_STATE_STARTING = 4, /* taken by a run that cannot be cancelled yet */
};

/* A place for one thread at a time. Only its holder writes what is not atomic; who holds it is
 * handed over by `held`. */
typedef struct nova_worker_slot {
    nova_deque deques[2]; /* NOVA_MATRIX, NOVA_VECTOR */
    _Alignas(64) _Atomic uint32_t held;
    _Atomic uint32_t current; /* the task that runs, or NOVA_NO_TASK */
    /* the task in hand when the run was stopped, or NOVA_NO_TASK */
    uint32_t interrupted_task;
    uint32_t index;
    uint32_t done; /* tasks that succeeded and are not yet taken off `left` */
    uint32_t stolen;
    uint32_t random; /* picks the first victim of a steal */
    uint64_t traced; /* records written, also those that were overwritten */
    nova_trace_record *ring;
    uint16_t origin; /* of the task in hand: the place it was stolen from, or NOVA_NOT_STOLEN */
} nova_worker_slot;

/* What the caller of a run waits for, on its stack: the instance may be in its next run by then. */
typedef struct nova_ending {
    _Atomic uint32_t ended; /* the word it sleeps on; submit.c has the values */
    nova_run_result result;
} nova_ending;

/* One allocation holds the struct and all arrays. */
struct nova_instance {
    const nova_graph *graph;
    _Atomic uint32_t *remaining; /* a task: how many it still waits for */
    nova_worker_slot *slots;
    uint64_t *ready_ns; /* a task; NULL without trace rings */
    uint32_t *running;  /* a place: the result's list */
    unsigned slot_count;
    unsigned planned; /* threads that the plan would use if there were enough */
    uint32_t trace_capacity;

    /* Set at the start of a run, then only read. */
    nova_execute execute;
    void *context;
    nova_done done;
    const uint32_t *successors; /* in the order of the policy */
    struct nova_workers *pool;
    uint64_t deadline_ns; /* 0: none */
    nova_policy policy;
    unsigned workers; /* places in use */
    bool trace;
    nova_poll poll;        /* NULL: none; called by the thread that has `ending` */
    uint64_t next_poll_ns; /* of that thread only */
    nova_ending *ending;   /* of the thread that called nova_instance_run, or NULL */

    /* Rarely written: read by everybody between two tasks. The status and task that stopped the
     * run, as status << 32 | task; 0 while it goes on. */
    _Alignas(64) _Atomic uint64_t stop;

    /* Tasks that did not succeed yet; places report in batches. */
    _Alignas(64) _Atomic uint32_t left;
    /* Threads that hold or look for a task (low half), and how often one began to (high half). */
    _Atomic uint64_t busy;
    nova_latch latch;
    nova_futex_event caller_event;
    nova_host_queue host;

    _Alignas(64) _Atomic uint32_t state;
    _Atomic int pid; /* the process of the run (a child of fork() has another); 0: it is inline */
    _Atomic uint32_t inline_finished; /* a run in place 0 alone: tasks that were done, in order */
    nova_run_result result;
    struct nova_instance *next, **link; /* in the pool's list of runs; guarded by its lock */
};

static inline uint64_t nova_stop_word(nova_status status, uint32_t task)
{
    return (uint64_t)status << 32 | task;
}

/* Stops the run unless it was stopped already. Thread-safe. */
static inline void nova_instance_stop(nova_instance *run, nova_status status, uint32_t task)
{
    uint64_t none = 0;
    atomic_compare_exchange_strong_explicit(&run->stop, &none, nova_stop_word(status, task),
                                            memory_order_seq_cst, memory_order_relaxed);
}

static inline bool nova_instance_stopped(nova_instance *run)
{
    return atomic_load_explicit(&run->stop, memory_order_relaxed) != 0;
}

/* Tasks that a thread in place `index` could take, counted up to `most`. Any thread. */
int64_t nova_instance_tasks(nova_instance *run, uint32_t index, int64_t most);

/* Puts all counters and queues at the start of a run and deals the roots. The gate stays closed, so
 * nobody else is in. */
void nova_instance_reset(nova_instance *run);

/* Fills run->result at the end of a run. By the last thread. */
void nova_instance_conclude(nova_instance *run);

/* Takes a free place; 0 when it is free. By a thread that is in through the gate: there is one. */
uint32_t nova_instance_take_slot(nova_instance *run);

/* Runs all tasks in their order, which is topological: nothing has to be counted. In place 0,
 * alone. */
void nova_run_in_order(nova_instance *run);

/* Works in place `index` until the run ends or there is nothing to do: a caller sleeps then, others
 * leave. Returns having left the gate; true when the run is over and this thread must end it. */
bool nova_serve(nova_instance *run, uint32_t index, bool caller, uint64_t deadline_ns);

/* Ends a run for which nova_serve was true: result, callback, wake-ups. Others may free it then. */
void nova_instance_end(nova_instance *run);

#endif
