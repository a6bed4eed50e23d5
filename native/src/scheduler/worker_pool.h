/* The threads of the process and the list of runs they look at. Used by run.c and submit.c. */
#ifndef NOVA_SCHEDULER_WORKER_POOL_H
#define NOVA_SCHEDULER_WORKER_POOL_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "scheduler/instance.h"
#include "scheduler/eventcount.h"

typedef struct nova_worker {
    nova_sleeper sleeper;
    struct nova_workers *pool;
    pthread_t thread;
    unsigned index;
    bool pinned;
} nova_worker;

/* Made at first use and never freed, so that nobody can hold a stale pointer. */
typedef struct nova_workers {
    /* Threads at work in runs: callers enter always, threads of the pool only below `limit`. So the
     * pool never adds threads to cores that callers keep busy. */
    _Alignas(64) _Atomic uint32_t active;
    _Atomic uint32_t limit;
    _Atomic uint32_t starved; /* a thread found work but no core: call one when a core is free */
    _Atomic uint32_t spin;
    _Atomic uint32_t run_count;
    _Atomic uint32_t thread_count;
    _Atomic uint32_t stopping;
    nova_eventcount eventcount;
    pthread_mutex_t lock;     /* guards the list of runs, the threads and the lot's list */
    _Atomic uint32_t emptied; /* counts how often the last run left the list; slept on */
    nova_instance *runs;
    uint32_t drain_waiters; /* threads that wait until there are no runs */
    pid_t pid;
    bool pin;
    nova_worker threads[NOVA_MAX_WORKERS];
} nova_workers;

/* The pool of this process, made when there is none (or only the parent's); NULL: out of memory.
 * Thread-safe. */
nova_workers *nova_workers_get(void);

/* Counts the calling thread as active unless it already is, in a task; *counted says which. */
void nova_workers_enter(nova_workers *pool, bool *counted);
void nova_workers_exit(nova_workers *pool, bool counted);

/* Marks the calling thread as one that is counted, for good: a thread of the pool. */
void nova_workers_mark(nova_workers *pool);

/* A thread that is active goes to sleep, and wakes up. */
void nova_workers_pause(nova_workers *pool);
void nova_workers_resume(nova_workers *pool);

/* Whether more threads are active than may be: those of the pool leave between tasks. */
static inline bool nova_workers_crowded(nova_workers *pool)
{
    return atomic_load_explicit(&pool->active, memory_order_relaxed) >
           atomic_load_explicit(&pool->limit, memory_order_relaxed);
}

/* Enters a run and takes a place in it, counted as active; NULL when none has work, or no core is
 * free. By a thread of the pool. */
nova_instance *nova_workers_enter_run(nova_workers *pool, uint32_t *index);

/* Makes threads until there are `count`; false when there is none at all. Thread-safe. */
bool nova_workers_ensure(nova_workers *pool, uint32_t count);

/* Puts a run into the list that the pool's threads look at, before its gate opens; takes it out
 * after the gate was closed. Thread-safe. */
void nova_workers_publish(nova_workers *pool, nova_instance *run);
void nova_workers_withdraw(nova_workers *pool, nova_instance *run);

#endif
