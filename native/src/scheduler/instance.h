/* One run of a graph: instance.c lays it out, run.c and submit.c change it, worker_pool.c reads
 * it. */
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
    NOVA_STATE_AWAITED = 2, /* running, and a thread sleeps until the end */
    NOVA_STATE_FINISHED = 3,
    NOVA_STATE_STARTING = 4, /* acquired by a run that cannot be cancelled yet */
};

/* A worker slot, held by one thread at a time. Only the holder writes the fields that are not
 * atomic; `held` transfers ownership. */
typedef struct nova_worker_slot {
    nova_deque deques[2]; /* NOVA_MATRIX, NOVA_VECTOR */
    _Alignas(64) _Atomic uint32_t held;
    _Atomic uint32_t current; /* the task that runs, or NOVA_NO_TASK */
    /* the current task when the run was stopped, or NOVA_NO_TASK */
    uint32_t interrupted_task;
    uint32_t index;
    uint32_t finished_count; /* succeeded tasks that are not yet subtracted from `left` */
    uint32_t stolen;
    uint32_t random;               /* picks the first victim of a steal */
    uint32_t node_begin, node_end; /* the slots of its NUMA node */
    uint64_t traced;               /* records written, also those that were overwritten */
    nova_trace_record *ring;
    uint16_t origin; /* of the current task: the slot it was stolen from, or NOVA_NOT_STOLEN */
} nova_worker_slot;

/* The wait of the caller of a run, on its stack: the instance may be in its next run already. */
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
    uint32_t *running;  /* one entry per slot: the list that a result refers to */
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
    unsigned workers; /* slots in use */
    bool trace;
    nova_poll poll;        /* NULL: none; called by the thread that has `ending` */
    uint64_t next_poll_ns; /* of that thread only */
    nova_ending *ending;   /* of the thread that called nova_instance_run, or NULL */

    /* Rarely written, read by every thread between two tasks. The status and task that stopped the
     * run, as status << 32 | task; 0 while it runs. */
    _Alignas(64) _Atomic uint64_t stop;

    /* Tasks that have not succeeded yet; slots subtract in batches. */
    _Alignas(64) _Atomic uint32_t left;
    /* Threads that run or search for a task (low half), and how many searches began (high half). */
    _Atomic uint64_t busy;
    nova_latch latch;
    nova_futex_event caller_event;
    nova_host_queue host;

    _Alignas(64) _Atomic uint32_t state;
    _Atomic int pid; /* the process of the run (a child of fork() has another); 0: it is inline */
    _Atomic uint32_t inline_finished; /* a run in slot 0 alone: finished tasks, in order */
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

/* Tasks that a thread in slot `index` could take, counted up to `most`. Any thread. */
int64_t nova_instance_tasks(nova_instance *run, uint32_t index, int64_t most);

/* Resets all counters and queues for a run and distributes the roots. The latch stays closed, so no
 * other thread is inside. */
void nova_instance_reset(nova_instance *run);

/* Fills run->result at the end of a run. By the last thread. */
void nova_instance_conclude(nova_instance *run);

/* Acquires a free slot: slot 0 if it is free, else the first free one from `preferred` on. The
 * caller has entered the latch, so there is one. */
uint32_t nova_instance_take_slot(nova_instance *run, uint32_t preferred);

/* Runs all tasks in topological order, without counters. In slot 0, alone. */
void nova_run_in_order(nova_instance *run);

/* Works in slot `index` until the run ends or has no task: a caller sleeps then, other threads
 * leave. Leaves the latch; true when the run is over and this thread must end it. */
bool nova_serve(nova_instance *run, uint32_t index, bool caller, uint64_t deadline_ns);

/* Ends a run for which nova_serve was true: result, callback, wake-ups. Others may free it then. */
void nova_instance_end(nova_instance *run);

#endif
