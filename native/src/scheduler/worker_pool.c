#include "scheduler/worker_pool.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "scheduler/cpu_affinity.h"
#include "base/futex.h"

/* 150 to 500 us on current CPUs: longer than the pause of a program between two runs, such as
 * loading a batch, and than a kernel on the critical path; a wake-up takes 50 us and more. */
enum { DEFAULT_SPIN = 10000 };

/* Attempts to take the spinlock before the mutex. */
#ifndef NOVA_LOCK_SPIN
#define NOVA_LOCK_SPIN 1000
#endif

static _Atomic(nova_workers *) pool_process;
/* Non-NULL in threads that are counted as active. A key, as files have no thread-local storage. */
static pthread_key_t pool_active_key;
static pthread_once_t pool_active_key_once = PTHREAD_ONCE_INIT;
static _Atomic int pool_active_key_error;

static void pool_make_active_key(void)
{
    atomic_store(&pool_active_key_error, pthread_key_create(&pool_active_key, NULL));
}

/* --- the pool --------------------------------------------------------------------------------- */

unsigned nova_workers_available(void)
{
    unsigned count = nova_cpus_allowed();
    if (count == 0) {
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        count = online < 1 ? 1 : (unsigned)online;
    }
    return count > NOVA_MAX_WORKERS ? NOVA_MAX_WORKERS : count;
}

/* The nodes of the machine, or simulated ones; NULL: out of memory. */
static const nova_topology *pool_make_topology(const nova_workers_options *options,
                                               const nova_topology *replaced, nova_status *status)
{
    nova_topology *topology = malloc(sizeof *topology);
    *status = topology == NULL ? NOVA_OUT_OF_MEMORY : NOVA_OK;
    if (topology == NULL)
        return NULL;
    if (options == NULL || options->node_sizes == NULL)
        nova_topology_read(topology, NOVA_NODES_FOLDER);
    else
        *status = nova_topology_simulate(topology, options->node_sizes, options->node_count);
    topology->replaced = replaced;
    if (*status == NOVA_OK)
        return topology;
    free(topology);
    return NULL;
}

static nova_workers *pool_make(const nova_workers *parents, pid_t pid)
{
    nova_workers *created = aligned_alloc(64, (sizeof *created + 63) & ~(size_t)63);
    if (created == NULL)
        return NULL;
    memset(created, 0, sizeof *created);
    nova_status status;
    const nova_topology *topology =
        parents != NULL ? atomic_load(&parents->topology) : pool_make_topology(NULL, NULL, &status);
    if (topology == NULL || pthread_mutex_init(&created->lock, NULL) != 0) {
        free(created);
        return NULL;
    }
    atomic_store(&created->topology, topology);
    created->pid = pid;
    created->eventcount.lock = &created->lock;
    unsigned available = nova_workers_available();
    atomic_store(&created->limit, parents != NULL ? atomic_load(&parents->limit) : available);
    atomic_store(&created->spin, parents != NULL ? atomic_load(&parents->spin)
                                 : available > 1 ? DEFAULT_SPIN
                                                 : 1);
    created->pin = parents != NULL && parents->pin;
    return created;
}

nova_workers *nova_workers_get(void)
{
    pid_t pid = getpid();
    nova_workers *pool = atomic_load_explicit(&pool_process, memory_order_acquire);
    if (pool != NULL && pool->pid == pid)
        return pool;
    if (pthread_once(&pool_active_key_once, pool_make_active_key) != 0 ||
        atomic_load(&pool_active_key_error) != 0)
        return NULL;
    /* The parent's pool is left alone: its lock may be held by a thread that is not here. */
    nova_workers *created = pool_make(pool, pid);
    if (created == NULL)
        return NULL;
    bool inherits = pool != NULL;
    if (atomic_compare_exchange_strong(&pool_process, &pool, created))
        return created;
    pthread_mutex_destroy(&created->lock);
    if (!inherits)
        free((void *)(uintptr_t)atomic_load(&created->topology));
    free(created);
    return pool;
}

nova_status nova_workers_configure(const nova_workers_options *options)
{
    if (options == NULL)
        return NOVA_INVALID_ARGUMENT;
    if (options->count > NOVA_MAX_WORKERS)
        return NOVA_OUT_OF_RANGE;
    nova_workers *pool = nova_workers_get();
    if (pool == NULL)
        return NOVA_OUT_OF_MEMORY;
    const nova_topology *before = atomic_load(&pool->topology);
    if (options->node_sizes != NULL || before->simulated) {
        nova_status status;
        const nova_topology *topology = pool_make_topology(options, before, &status);
        if (topology == NULL)
            return status;
        atomic_store(&pool->topology, topology);
    }
    unsigned available = nova_workers_available();
    uint32_t spin = options->spin > 0 ? options->spin : available > 1 ? DEFAULT_SPIN : 1;
    pthread_mutex_lock(&pool->lock);
    pool->pin = options->pin;
    pthread_mutex_unlock(&pool->lock);
    atomic_store(&pool->spin, spin);
    atomic_store(&pool->limit, options->count > 0 ? options->count : available);
    /* Runs in flight may use the new threads. */
    if (atomic_load(&pool->run_count) > 0) {
        nova_workers_ensure(pool, atomic_load(&pool->limit));
        nova_eventcount_notify(&pool->eventcount, atomic_load(&pool->limit));
    }
    return NOVA_OK;
}

unsigned nova_workers_count(void)
{
    nova_workers *pool = nova_workers_get();
    return pool != NULL ? atomic_load(&pool->limit) : nova_workers_available();
}

/* --- active threads --------------------------------------------------------------------------- */

static bool pool_try_activate(nova_workers *pool)
{
    uint32_t active = atomic_load_explicit(&pool->active, memory_order_seq_cst);
    while (active < atomic_load_explicit(&pool->limit, memory_order_relaxed))
        if (atomic_compare_exchange_weak_explicit(&pool->active, &active, active + 1,
                                                  memory_order_seq_cst, memory_order_seq_cst))
            return true;
    return false;
}

void nova_workers_pause(nova_workers *pool)
{
    atomic_fetch_sub_explicit(&pool->active, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&pool->starved, memory_order_seq_cst) != 0) {
        atomic_store_explicit(&pool->starved, 0, memory_order_seq_cst);
        nova_eventcount_notify(&pool->eventcount, 1);
    }
}

void nova_workers_resume(nova_workers *pool)
{
    atomic_fetch_add_explicit(&pool->active, 1, memory_order_seq_cst);
}

void nova_workers_mark(nova_workers *pool)
{
    /* Without memory for it, the thread counts twice when a task of it starts a run. */
    (void)pthread_setspecific(pool_active_key, pool);
}

void nova_workers_enter(nova_workers *pool, bool *counted)
{
    *counted = pthread_getspecific(pool_active_key) == NULL;
    if (!*counted)
        return;
    nova_workers_mark(pool);
    nova_workers_resume(pool);
}

void nova_workers_exit(nova_workers *pool, bool counted)
{
    if (!counted)
        return;
    (void)pthread_setspecific(pool_active_key, NULL);
    nova_workers_pause(pool);
}

/* --- the list of runs ------------------------------------------------------------------------- */

/* All threads enter a run at the same moment, and each holds the lock for less time than the
 * system takes to put a thread to sleep and to wake it: they spin for it. A thread that
 * spins for too long only takes the mutex; false then. */
static bool pool_lock_after_spinning(nova_workers *pool)
{
    bool holds_spinlock = false;
    for (int i = 0; i < NOVA_LOCK_SPIN && !holds_spinlock; i++) {
        uint32_t is_free = 0;
        holds_spinlock =
            atomic_load_explicit(&pool->spinlock, memory_order_relaxed) == 0 &&
            atomic_compare_exchange_strong_explicit(&pool->spinlock, &is_free, 1,
                                                    memory_order_acquire, memory_order_relaxed);
        if (!holds_spinlock)
            nova_relax();
    }
    pthread_mutex_lock(&pool->lock);
    return holds_spinlock;
}

static void pool_unlock(nova_workers *pool, bool holds_spinlock)
{
    pthread_mutex_unlock(&pool->lock);
    if (holds_spinlock)
        atomic_store_explicit(&pool->spinlock, 0, memory_order_release);
}

void nova_workers_publish(nova_workers *pool, nova_instance *run)
{
    bool holds_spinlock = pool_lock_after_spinning(pool);
    run->next = pool->runs;
    run->link = &pool->runs;
    if (run->next != NULL)
        run->next->link = &run->next;
    pool->runs = run;
    atomic_fetch_add_explicit(&pool->run_count, 1, memory_order_seq_cst);
    pool_unlock(pool, holds_spinlock);
}

void nova_workers_withdraw(nova_workers *pool, nova_instance *run)
{
    bool holds_spinlock = pool_lock_after_spinning(pool);
    *run->link = run->next;
    if (run->next != NULL)
        run->next->link = run->link;
    bool last = atomic_fetch_sub_explicit(&pool->run_count, 1, memory_order_seq_cst) == 1;
    if (last)
        atomic_fetch_add_explicit(&pool->emptied, 1, memory_order_seq_cst);
    bool has_waiters = pool->drain_waiters > 0;
    pool_unlock(pool, holds_spinlock);
    if (last && has_waiters)
        nova_futex_wake(&pool->emptied, INT_MAX);
}

/* Whether a thread of the pool has something to do in a run; `lock` is held. */
static bool pool_wants_thread(nova_instance *run)
{
    uint32_t inside = nova_latch_count(&run->latch);
    if (nova_latch_is_closed(&run->latch) || inside >= run->workers)
        return false;
    if (run->workers == 1)
        return true; /* its tasks are not queued */
    if (inside == 0 && atomic_load_explicit(&run->stop, memory_order_seq_cst) != 0)
        return true; /* one thread has to end it */
    uint32_t host_held = atomic_load_explicit(&run->slots[0].held, memory_order_seq_cst);
    return nova_instance_tasks(run, host_held, 1) > 0;
}

/* The run that wants a thread and has the fewest. `lock` is held. */
static nova_instance *pool_choose_run(nova_workers *pool)
{
    nova_instance *best = NULL;
    for (nova_instance *run = pool->runs; run != NULL; run = run->next)
        if (pool_wants_thread(run) &&
            (best == NULL || nova_latch_count(&run->latch) < nova_latch_count(&best->latch)))
            best = run;
    return best;
}

/* Whether there is work for one more thread than the one that takes slot `index` of a run. `lock`
 * is held. */
static bool pool_wants_another(nova_workers *pool, nova_instance *entered, uint32_t index)
{
    if (nova_instance_tasks(entered, index, 2) > 1)
        return true;
    for (nova_instance *run = pool->runs; run != NULL; run = run->next)
        if (run != entered && pool_wants_thread(run))
            return true;
    return false;
}

/* Counts a thread of the pool as active, or records that it is starved of a core. */
static bool pool_activate(nova_workers *pool)
{
    if (pool_try_activate(pool))
        return true;
    /* Announce first, then try again: a thread that frees a core concurrently either sees this one,
     * or is seen. */
    atomic_store_explicit(&pool->starved, 1, memory_order_seq_cst);
    return pool_try_activate(pool);
}

nova_instance *nova_workers_enter_run(nova_workers *pool, uint32_t preferred, bool spinning,
                                      uint32_t *index)
{
    if (atomic_load_explicit(&pool->run_count, memory_order_seq_cst) == 0)
        return NULL;
    nova_instance *run;
    bool more = false;
    bool holds_spinlock = pool_lock_after_spinning(pool);
    for (;;) {
        run = pool_choose_run(pool);
        if (run == NULL)
            break;
        if (!pool_activate(pool)) {
            run = NULL;
            break;
        }
        if (nova_latch_enter(&run->latch, run->workers)) {
            *index = nova_instance_take_slot(run, preferred);
            if (spinning)
                nova_eventcount_stop_spinning(&pool->eventcount);
            more = pool_wants_another(pool, run, *index);
            break;
        }
        /* Another waiter was faster. `starved` stays set in that case, for the next thread that
         * pauses. */
        atomic_fetch_sub_explicit(&pool->active, 1, memory_order_seq_cst);
    }
    pool_unlock(pool, holds_spinlock);
    /* A publisher of other work may have counted on this thread while it was spinning. Then its
     * work was there before this thread stopped to be counted, and was found above: pass one on. */
    if (run != NULL && more)
        nova_eventcount_notify(&pool->eventcount, 1);
    return run;
}
