/* The threads of the pool: created when needed, waiting for runs, joined by
 * nova_workers_shutdown. */
#define _POSIX_C_SOURCE 200809L /* pthread_sigmask */

#include <signal.h>

#include "scheduler/cpu_affinity.h"
#include "base/futex.h"
#include "scheduler/worker_pool.h"

/* Sleeps, and migrates away from the CPU of the notifier: the system often wakes a thread there
 * although others are idle, and the two would share one CPU while calls follow each other. */
static void worker_sleep_until_notified(nova_worker *self)
{
    nova_eventcount_sleep(&self->sleeper);
    if (!self->pinned)
        nova_cpus_leave(self->sleeper.notifier_cpu);
}

/* Waits for work: spins, parks, sleeps. NULL: check again. */
static nova_instance *worker_await_run(nova_workers *pool, nova_worker *self, uint32_t *index)
{
    nova_eventcount_start_spinning(&pool->eventcount);
    uint32_t epoch = nova_eventcount_epoch(&pool->eventcount);
    nova_instance *run = nova_workers_enter_run(pool, self->index + 1, true, index);
    uint32_t spin = atomic_load_explicit(&pool->spin, memory_order_relaxed);
    if (atomic_load_explicit(&pool->active, memory_order_relaxed) >=
        atomic_load_explicit(&pool->limit, memory_order_relaxed))
        spin = 0; /* another thread needs this core more */
    for (uint32_t i = 0; run == NULL && i < spin; i++) {
        uint32_t latest_epoch = nova_eventcount_epoch(&pool->eventcount);
        if (latest_epoch != epoch) {
            epoch = latest_epoch;
            run = nova_workers_enter_run(pool, self->index + 1, true, index);
        } else {
            nova_relax();
        }
    }
    if (run != NULL)
        return run;
    nova_eventcount_park(&pool->eventcount, &self->sleeper);
    run = nova_workers_enter_run(pool, self->index + 1, false, index);
    if (run == NULL && atomic_load_explicit(&pool->stopping, memory_order_seq_cst) == 0)
        worker_sleep_until_notified(self);
    else if (!nova_eventcount_unpark(&pool->eventcount, &self->sleeper) && run != NULL)
        /* Called after it entered this run, for other work: pass the call on. */
        nova_eventcount_notify(&pool->eventcount, 1);
    return run;
}

static void *worker_main(void *argument)
{
    nova_worker *self = argument;
    nova_workers *pool = self->pool;
    nova_workers_mark(pool);
    /* Callers are likely on the first CPU. */
    nova_topology_bind(atomic_load(&pool->topology), self->index + 1, atomic_load(&pool->limit),
                       self->pinned);
    for (;;) {
        uint32_t index;
        nova_instance *run = worker_await_run(pool, self, &index);
        if (run != NULL) {
            if (nova_serve(run, index, false, UINT64_MAX))
                nova_instance_end(run);
            nova_workers_pause(pool);
        } else if (atomic_load_explicit(&pool->stopping, memory_order_seq_cst) != 0) {
            return NULL;
        }
    }
}

bool nova_workers_ensure(nova_workers *pool, uint32_t count)
{
    if (count > NOVA_MAX_WORKERS)
        count = NOVA_MAX_WORKERS;
    if (atomic_load_explicit(&pool->thread_count, memory_order_acquire) >= count)
        return true;
    pthread_mutex_lock(&pool->lock);
    /* Signals are delivered to the threads of the application, Ctrl-C among them. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    uint32_t created = atomic_load_explicit(&pool->thread_count, memory_order_relaxed);
    bool stopping = atomic_load_explicit(&pool->stopping, memory_order_relaxed) != 0;
    for (; created < count && !stopping; created++) {
        nova_worker *worker = &pool->threads[created];
        worker->pool = pool;
        worker->index = created;
        worker->pinned = pool->pin;
        if (pthread_create(&worker->thread, NULL, worker_main, worker) != 0)
            break;
        atomic_store_explicit(&pool->thread_count, created + 1, memory_order_release);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_mutex_unlock(&pool->lock);
    return created > 0 || stopping; /* nova_workers_shutdown creates them at its end */
}

void nova_workers_shutdown(void)
{
    nova_workers *pool = nova_workers_get();
    if (pool == NULL)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->drain_waiters++;
    while (pool->runs != NULL) {
        uint32_t before = (uint32_t)atomic_load_explicit(&pool->emptied, memory_order_seq_cst);
        pthread_mutex_unlock(&pool->lock);
        nova_futex_wait(&pool->emptied, before, UINT64_MAX);
        pthread_mutex_lock(&pool->lock);
    }
    pool->drain_waiters--;
    bool other = atomic_load(&pool->stopping) != 0;
    uint32_t count = atomic_load(&pool->thread_count);
    if (!other)
        atomic_store_explicit(&pool->stopping, 1, memory_order_seq_cst);
    pthread_mutex_unlock(&pool->lock);
    if (other)
        return;
    /* Spinning threads see it by themselves, before they park. */
    while (atomic_load_explicit(&pool->eventcount.parked, memory_order_seq_cst) > 0)
        nova_eventcount_notify(&pool->eventcount, NOVA_MAX_WORKERS);
    for (uint32_t i = 0; i < count; i++)
        pthread_join(pool->threads[i].thread, NULL);
    pthread_mutex_lock(&pool->lock);
    atomic_store_explicit(&pool->thread_count, 0, memory_order_release);
    atomic_store_explicit(&pool->stopping, 0, memory_order_seq_cst);
    bool again = pool->runs != NULL; /* submitted in the meantime */
    pthread_mutex_unlock(&pool->lock);
    if (again)
        nova_workers_ensure(pool, atomic_load(&pool->limit));
}
