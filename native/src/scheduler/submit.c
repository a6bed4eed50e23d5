/* Starting, waiting for, cancelling and ending a run. */
#include <limits.h>
#include <unistd.h>

#include "scheduler/instance.h"
#include "scheduler/worker_pool.h"

/* Values of nova_ending.ended. */
enum { GOING = 0, AWAITED = 1, ENDED = 2 };

static const nova_run_options submit_default_options = {.policy = NOVA_LOCALITY};

static bool submit_in_flight(uint32_t state)
{
    return state != NOVA_STATE_IDLE && state != NOVA_STATE_FINISHED;
}

/* A run of the parent process, in a child of fork(): its threads do not exist here. */
static bool submit_is_inherited(nova_instance *run)
{
    int pid = atomic_load_explicit(&run->pid, memory_order_relaxed);
    return pid != 0 && pid != getpid();
}

/* --- starting --------------------------------------------------------------------------------- */

/* Takes the instance for a run; NOVA_BUSY when it has one. */
static nova_status submit_acquire(nova_instance *run)
{
    uint32_t state = atomic_load_explicit(&run->state, memory_order_acquire);
    if (submit_in_flight(state) && !submit_is_inherited(run))
        return NOVA_BUSY;
    if (!atomic_compare_exchange_strong_explicit(&run->state, &state, NOVA_STATE_STARTING,
                                                 memory_order_acq_rel, memory_order_relaxed))
        return NOVA_BUSY;
    return NOVA_OK;
}

/* Initializes the run; NOVA_OK leaves it acquired, with the latch closed. */
static nova_status submit_start(nova_instance *run, nova_execute execute, void *context,
                                const nova_run_options *options, nova_done done,
                                nova_ending *ending)
{
    bool submitted = ending == NULL;
    if (run == NULL || execute == NULL)
        return NOVA_INVALID_ARGUMENT;
    if (options == NULL)
        options = &submit_default_options;
    if ((unsigned)options->policy > NOVA_CRITICAL_PATH ||
        (options->trace && run->trace_capacity == 0))
        return NOVA_INVALID_ARGUMENT;
    unsigned workers = options->workers > 0 ? options->workers : run->planned;
    if (workers > run->slot_count)
        workers = run->slot_count;
    nova_workers *pool = NULL;
    if (workers > 1 || submitted) {
        pool = nova_workers_get();
        if (pool == NULL)
            return NOVA_OUT_OF_MEMORY;
        unsigned limit = atomic_load_explicit(&pool->limit, memory_order_relaxed);
        if (workers > limit)
            workers = limit;
        uint32_t threads = submitted ? workers : workers - 1;
        if (!nova_workers_ensure(pool, threads) && submitted)
            return NOVA_SYSTEM_ERROR;
    }
    nova_status status = submit_acquire(run);
    if (status != NOVA_OK)
        return status;
    run->execute = execute;
    run->context = context;
    run->done = done;
    run->policy = options->policy;
    run->successors =
        options->policy == NOVA_CRITICAL_PATH ? run->graph->by_priority : run->graph->successors;
    run->pool = pool;
    run->workers = workers;
    run->trace = options->trace;
    run->ending = ending;
    run->poll = submitted ? NULL : options->poll;
    run->next_poll_ns = run->poll != NULL ? nova_clock_ns() + NOVA_POLL_NS : 0;
    atomic_store_explicit(&run->pid, pool != NULL ? (int)pool->pid : 0, memory_order_relaxed);
    run->deadline_ns = 0;
    if (options->timeout_ns > 0 &&
        __builtin_add_overflow(nova_clock_ns(), options->timeout_ns, &run->deadline_ns))
        run->deadline_ns = 0;
    atomic_store_explicit(&run->latch.word, NOVA_LATCH_CLOSED, memory_order_relaxed);
    nova_instance_reset(run);
    atomic_store_explicit(&run->stop, 0, memory_order_relaxed);
    atomic_store_explicit(&run->state, NOVA_STATE_RUNNING, memory_order_seq_cst);
    return NOVA_OK;
}

/* --- ending ----------------------------------------------------------------------------------- */

void nova_instance_end(nova_instance *run)
{
    nova_ending *ending = run->ending;
    nova_instance_conclude(run);
    if (run->pool != NULL && (ending == NULL || run->workers > 1))
        nova_workers_withdraw(run->pool, run);
    if (run->done != NULL)
        run->done(run->context, run->result.status);
    if (ending != NULL)
        ending->result = run->result;
    /* From here on the instance may be reused or freed by others. */
    _Atomic uint32_t *state = &run->state;
    if (atomic_exchange_explicit(state, NOVA_STATE_FINISHED, memory_order_seq_cst) ==
        NOVA_STATE_AWAITED)
        nova_futex_wake(state, INT_MAX);
    if (ending != NULL) {
        /* And from the exchange on, the caller's stack. */
        if (atomic_exchange_explicit(&ending->ended, ENDED, memory_order_seq_cst) == AWAITED)
            nova_futex_wake(&ending->ended, 1);
    }
}

/* Waits until another thread has ended the run of this caller, the only thread that sleeps here. */
static void submit_await_end(nova_workers *pool, nova_ending *ending)
{
    uint32_t spin = atomic_load_explicit(&pool->spin, memory_order_relaxed), going = GOING;
    while (spin-- > 0 && atomic_load_explicit(&ending->ended, memory_order_seq_cst) == GOING)
        nova_relax();
    if (!atomic_compare_exchange_strong_explicit(&ending->ended, &going, AWAITED,
                                                 memory_order_seq_cst, memory_order_seq_cst))
        return;
    while (atomic_load_explicit(&ending->ended, memory_order_seq_cst) != ENDED)
        nova_futex_wait(&ending->ended, AWAITED, UINT64_MAX);
}

/* Sleeps until the run has ended; false when the deadline passed first. */
static bool submit_await_finished(nova_instance *run, uint64_t deadline_ns)
{
    for (;;) {
        uint32_t state = atomic_load_explicit(&run->state, memory_order_seq_cst);
        if (!submit_in_flight(state))
            return true;
        if (deadline_ns != UINT64_MAX && nova_clock_ns() >= deadline_ns)
            return false;
        if (state == NOVA_STATE_AWAITED ||
            (state == NOVA_STATE_RUNNING &&
             atomic_compare_exchange_strong_explicit(&run->state, &state, NOVA_STATE_AWAITED,
                                                     memory_order_seq_cst, memory_order_relaxed)))
            nova_futex_wait(&run->state, NOVA_STATE_AWAITED, deadline_ns);
    }
}

/* --- the API ---------------------------------------------------------------------------------- */

/* Lets threads into a run that was published, and calls as many as find a root there. */
static void submit_open_latch(nova_instance *run, uint32_t inside)
{
    nova_workers *pool = run->pool;
    uint32_t useful = run->graph->facts.root_count;
    if (useful > run->workers)
        useful = run->workers;
    /* A submitted run may be over, and freed, once the latch is open. */
    atomic_store_explicit(&run->latch.word, inside, memory_order_seq_cst);
    if (useful > inside)
        nova_eventcount_notify(&pool->eventcount, useful - inside);
}

nova_status nova_instance_run(nova_instance *instance, nova_execute execute, void *context,
                              const nova_run_options *options, nova_run_result *result)
{
    nova_ending ending;
    atomic_init(&ending.ended, GOING);
    nova_status status = submit_start(instance, execute, context, options, NULL, &ending);
    if (status != NOVA_OK)
        return status;
    if (instance->workers == 1) {
        nova_run_in_order(instance);
        nova_instance_end(instance);
    } else {
        nova_workers *pool = instance->pool;
        bool counted;
        nova_workers_enter(pool, &counted);
        atomic_store_explicit(&instance->slots[0].held, 1, memory_order_relaxed);
        nova_workers_publish(pool, instance);
        submit_open_latch(instance, 1);
        if (nova_serve(instance, 0, true, UINT64_MAX))
            nova_instance_end(instance);
        else
            submit_await_end(pool, &ending);
        nova_workers_exit(pool, counted);
    }
    if (result != NULL)
        *result = ending.result;
    return ending.result.status;
}

nova_status nova_instance_submit(nova_instance *instance, nova_execute execute, void *context,
                                 const nova_run_options *options, nova_done done)
{
    nova_status status = submit_start(instance, execute, context, options, done, NULL);
    if (status != NOVA_OK)
        return status;
    nova_workers_publish(instance->pool, instance);
    submit_open_latch(instance, 0);
    return NOVA_OK;
}

/* Works in a run that another thread started, if a slot is free. */
static void submit_help(nova_instance *run, uint64_t deadline_ns)
{
    if (nova_latch_is_closed(&run->latch) || !nova_latch_enter(&run->latch, run->workers))
        return;
    nova_workers *pool = run->pool;
    bool counted;
    nova_workers_enter(pool, &counted);
    uint32_t index = nova_instance_take_slot(run, 0);
    if (nova_serve(run, index, index == 0, deadline_ns))
        nova_instance_end(run);
    else
        /* a thread that cancelled it may rely on this thread */
        nova_eventcount_notify(&pool->eventcount, 1);
    nova_workers_exit(pool, counted);
}

nova_status nova_instance_wait(nova_instance *instance, uint64_t timeout_ns,
                               nova_run_result *result)
{
    if (instance == NULL)
        return NOVA_INVALID_ARGUMENT;
    uint32_t state = atomic_load_explicit(&instance->state, memory_order_acquire);
    if (submit_in_flight(state)) {
        if (submit_is_inherited(instance)) {
            if (result != NULL)
                *result = (nova_run_result){.status = NOVA_CANCELLED, .task = NOVA_NO_TASK};
            return NOVA_CANCELLED;
        }
        if (timeout_ns == 0)
            return NOVA_NOT_FINISHED;
        uint64_t deadline_ns = UINT64_MAX;
        if (timeout_ns != UINT64_MAX &&
            __builtin_add_overflow(nova_clock_ns(), timeout_ns, &deadline_ns))
            deadline_ns = UINT64_MAX;
        submit_help(instance, deadline_ns);
        if (!submit_await_finished(instance, deadline_ns))
            return NOVA_NOT_FINISHED;
    }
    if (result != NULL)
        *result = instance->result;
    return instance->result.status;
}

void nova_instance_cancel(nova_instance *instance)
{
    uint32_t state = atomic_load_explicit(&instance->state, memory_order_seq_cst);
    if (state != NOVA_STATE_RUNNING && state != NOVA_STATE_AWAITED)
        return;
    nova_instance_stop(instance, NOVA_CANCELLED, NOVA_NO_TASK);
    if (nova_futex_event_signal(&instance->caller_event) || nova_latch_count(&instance->latch) > 0)
        return;
    /* Nobody is in a submitted run: one has to enter to end it. */
    nova_workers *pool = nova_workers_get();
    if (pool != NULL)
        nova_eventcount_notify(&pool->eventcount, 1);
}
