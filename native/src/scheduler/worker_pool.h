/* The threads of the process and the list of runs they serve. Used by run.c and submit.c. */
#ifndef NOVA_SCHEDULER_WORKER_POOL_H
#define NOVA_SCHEDULER_WORKER_POOL_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "scheduler/instance.h"
#include "scheduler/eventcount.h"
#include "scheduler/numa.h"

typedef struct nova_worker {
    nova_sleeper sleeper;
    struct nova_workers *pool;
    pthread_t thread;
    unsigned index;
    bool pinned;
} nova_worker;

/* Created at first use and never freed, so that no pointer to it is stale. */
typedef struct nova_workers {
    /* Threads at work in runs: callers enter always, threads of the pool only below `limit`. So the
     * pool never adds threads to cores that callers keep busy. */
    _Alignas(64) _Atomic uint32_t active;
    _Atomic uint32_t limit;
    _Atomic uint32_t starved; /* a thread has work but no core: notify one when a core is free */
    _Atomic uint32_t spin;
    _Atomic uint32_t run_count;
    _Atomic uint32_t thread_count;
    _Atomic uint32_t stopping;
    _Atomic uint32_t spinlock; /* a thread is about to take the lock, or has it */
    nova_eventcount eventcount;
    /* guards the list of runs, the threads and the list of the eventcount */
    pthread_mutex_t lock;
    _Atomic uint32_t emptied; /* counts how often the last run left the list; slept on */
    nova_instance *runs;
    uint32_t drain_waiters;                  /* threads that wait until there are no runs */
    _Atomic(const nova_topology *) topology; /* never freed */
    pid_t pid;
    bool pin;
    nova_worker threads[NOVA_MAX_WORKERS];
} nova_workers;

/* The pool of this process, created if there is none (or only that of the parent process); NULL:
 * out of memory. Thread-safe. */
nova_workers *nova_workers_get(void);

/* Counts the calling thread as active unless it already is, in a task; *counted tells which. */
void nova_workers_enter(nova_workers *pool, bool *counted);
void nova_workers_exit(nova_workers *pool, bool counted);

/* Marks the calling thread as one that is counted, for good: a thread of the pool. */
void nova_workers_mark(nova_workers *pool);

/* An active thread goes to sleep, and wakes up. */
void nova_workers_pause(nova_workers *pool);
void nova_workers_resume(nova_workers *pool);

/* Whether more threads are active than may be: those of the pool leave between tasks. */
static inline bool nova_workers_crowded(nova_workers *pool)
{
    return atomic_load_explicit(&pool->active, memory_order_relaxed) >
           atomic_load_explicit(&pool->limit, memory_order_relaxed);
}

/* Enters a run and acquires a slot in it, counted as active; NULL if no run has work, or no core is
 * free. By a thread of the pool, which prefers the same slot in every run: the roots of that slot
 * are the same tiles, whose data may still be in the caches of its core. A thread that is counted
 * as spinning is not counted any more once it has entered. */
nova_instance *nova_workers_enter_run(nova_workers *pool, uint32_t preferred, bool spinning,
                                      uint32_t *index);

/* Makes threads until there are `count`; false when there is none at all. Thread-safe. */
bool nova_workers_ensure(nova_workers *pool, uint32_t count);

/* Adds a run to the list that the pool serves, before its latch opens; removes it after the latch
 * was closed. Thread-safe. */
void nova_workers_publish(nova_workers *pool, nova_instance *run);
void nova_workers_withdraw(nova_workers *pool, nova_instance *run);

#endif
