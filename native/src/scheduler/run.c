/* The loop of a worker inside a run: pop or steal a task, run it, release its dependents. */
#include "scheduler/instance.h"
#include "scheduler/worker_pool.h"
#include "scheduler/trace.h"

/* A thread that starts to search for tasks, in nova_instance.busy. */
#define ONE_MORE_BUSY ((UINT64_C(1) << 32) + 1)

/* How a worker slot is left. */
typedef enum outcome { STAY, LEAVE, OVER } outcome;

/* --- taking ----------------------------------------------------------------------------------- */

int64_t nova_instance_tasks(nova_instance *run, uint32_t index, int64_t most)
{
    int64_t ready_count = 0;
    if (index == 0 && run->graph->facts.host_count > 0 && nova_host_queue_has_task(&run->host))
        ready_count++;
    for (unsigned i = 0; i < run->workers && ready_count < most; i++)
        for (int core_type = 0; core_type < 2; core_type++)
            ready_count += nova_deque_count(&run->slots[i].deques[core_type]);
    return ready_count;
}

static bool run_try_slot(nova_instance *run, uint32_t index)
{
    uint32_t is_free = 0;
    return atomic_compare_exchange_strong_explicit(&run->slots[index].held, &is_free, 1,
                                                   memory_order_seq_cst, memory_order_relaxed);
}

uint32_t nova_instance_take_slot(nova_instance *run, uint32_t preferred)
{
    if (run_try_slot(run, 0))
        return 0;
    for (uint32_t i = preferred % run->workers;; i = (i + 1) % run->workers)
        if (run_try_slot(run, i))
            return i;
}

static uint32_t run_pop_slot(nova_instance *run, nova_worker_slot *slot)
{
    uint32_t task = NOVA_NO_TASK;
    /* Nobody else can run these. */
    if (slot->index == 0 && run->graph->facts.host_count > 0)
        task = nova_host_queue_pop(&run->host);
    for (int core_type = 0; core_type < 2 && task == NOVA_NO_TASK; core_type++) {
        nova_deque *deque = &slot->deques[core_type];
        task = run->policy == NOVA_FIFO ? nova_deque_steal(deque) : nova_deque_pop(deque);
    }
    return task;
}

/* Steals from one of `count` slots, from slot `begin` on and around; the first is random. */
static uint32_t run_steal_among(nova_instance *run, nova_worker_slot *slot, uint32_t begin,
                                uint32_t count)
{
    uint32_t first = (uint32_t)(((uint64_t)slot->random * count) >> 32);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t victim = begin + (first + i < count ? first + i : first + i - count);
        victim = victim < run->workers ? victim : victim - run->workers;
        if (victim == slot->index)
            continue;
        for (int core_type = 0; core_type < 2; core_type++) {
            uint32_t task = nova_deque_steal(&run->slots[victim].deques[core_type]);
            if (task != NOVA_NO_TASK) {
                slot->origin = (uint16_t)victim;
                slot->stolen++;
                return task;
            }
        }
    }
    return NOVA_NO_TASK;
}

/* Steals from a slot of the same NUMA node, or from others if those have nothing. */
static uint32_t run_steal(nova_instance *run, nova_worker_slot *slot)
{
    slot->random = slot->random * 1664525u + 1013904223u;
    uint32_t neighbours = slot->node_end - slot->node_begin;
    uint32_t task = run_steal_among(run, slot, slot->node_begin, neighbours);
    if (task == NOVA_NO_TASK && neighbours < run->workers)
        task = run_steal_among(run, slot, slot->node_end, run->workers - neighbours);
    return task;
}

/* --- releasing -------------------------------------------------------------------------------- */

/* One predecessor has finished; whether it was the last. */
static inline bool run_arrive(_Atomic uint32_t *remaining)
{
    /* All other predecessors have finished: no race is left, and no atomic update is needed. */
    if (atomic_load_explicit(remaining, memory_order_acquire) == 1) {
        atomic_store_explicit(remaining, 0, memory_order_relaxed);
        return true;
    }
    return atomic_fetch_sub_explicit(remaining, 1, memory_order_acq_rel) == 1;
}

/* Notifies waiting threads of `count` published tasks. The caller sleeps inside: it is notified
 * first. */
static void run_announce(nova_instance *run, uint32_t count)
{
    if (nova_futex_event_signal(&run->caller_event) && --count == 0)
        return;
    uint32_t inside = nova_latch_count(&run->latch);
    if (inside < run->workers) {
        uint32_t missing = run->workers - inside;
        nova_eventcount_notify(&run->pool->eventcount, count < missing ? count : missing);
    }
}

/* Publishes a task that was just released: it never was in a queue before. */
static void run_put_back(nova_instance *run, nova_worker_slot *slot, uint32_t task)
{
    nova_deque *deque = &slot->deques[run->graph->core[task]];
    int64_t end = nova_deque_end(deque);
    nova_deque_write(deque, end, task);
    nova_deque_publish(deque, end + 1);
}

/* Whether the slot begins with the last of the tasks that it releases. Successors are in the order
 * of their tiles, so slots of the lower half run the first tiles of a kernel, those of the upper
 * half the last ones. A thief takes tiles from the other end of its victim's: with two slots that
 * is its own end, whoever has released them. What a core wrote in one kernel it then tends to read
 * and overwrite in the next. */
static inline bool run_is_upper(const nova_instance *run, const nova_worker_slot *slot)
{
    return run->policy == NOVA_LOCALITY && 2 * slot->index >= run->workers;
}

/* Releases the dependents of a finished task. Returns one that became ready, for this thread to run
 * next; the others are published together, with one barrier per queue. */
static uint32_t run_release(nova_instance *run, nova_worker_slot *slot, uint32_t task, uint64_t now)
{
    const nova_graph *graph = run->graph;
    uint32_t count = graph->tasks[task].successor_count;
    if (count == 0)
        return NOVA_NO_TASK;
    const uint32_t *successors = run->successors + graph->tasks[task].first_successor;
    bool fifo = run->policy == NOVA_FIFO;
    bool forward = fifo || run_is_upper(run, slot);
    int64_t begin[2], end[2];
    for (int core_type = 0; core_type < 2; core_type++)
        begin[core_type] = end[core_type] = nova_deque_end(&slot->deques[core_type]);
    uint32_t next = NOVA_NO_TASK, published = 0;
    /* From the last to the first, so that the first runs next and the second is popped after it;
     * forward when the oldest is popped first, and in slots that begin with the last. */
    for (uint32_t i = 0; i < count; i++) {
        uint32_t ready = successors[forward ? i : count - 1 - i];
        if (!run_arrive(&run->remaining[ready]))
            continue;
        if (run->trace)
            run->ready_ns[ready] = now;
        if (graph->core[ready] == NOVA_HOST) {
            nova_host_queue_push(&run->host, ready);
            published++;
            continue;
        }
        uint32_t staged = fifo ? ready : next;
        if (!fifo)
            next = ready;
        if (staged != NOVA_NO_TASK) {
            unsigned core_type = graph->core[staged];
            nova_deque_write(&slot->deques[core_type], end[core_type]++, staged);
            published++;
        }
    }
    if (published == 0)
        return next;
    for (int core_type = 0; core_type < 2; core_type++)
        if (end[core_type] != begin[core_type])
            nova_deque_publish(&slot->deques[core_type], end[core_type]);
    run_announce(run, published);
    return next;
}

/* --- running ---------------------------------------------------------------------------------- */

/* Runs one task; its status. */
static inline nova_status run_execute(nova_instance *run, nova_worker_slot *slot, uint32_t task,
                                      uint64_t *now)
{
    atomic_store_explicit(&slot->current, task, memory_order_relaxed);
    if (!run->trace)
        return run->execute(run->context, task, slot->index);
    uint64_t start = nova_clock_ns();
    nova_status status = run->execute(run->context, task, slot->index);
    *now = nova_clock_ns();
    nova_trace_add(run, slot, task, start, *now);
    slot->origin = NOVA_NOT_STOLEN;
    return status;
}

/* The poll of the thread that owns the run, when it is due. */
static void run_poll(nova_instance *run)
{
    uint64_t now = nova_clock_ns();
    if (now < run->next_poll_ns)
        return;
    nova_status status = run->poll(run->context);
    if (status != NOVA_OK)
        nova_instance_stop(run, status, NOVA_NO_TASK);
    run->next_poll_ns = nova_clock_ns() + NOVA_POLL_NS;
}

static inline bool run_is_late(const nova_instance *run)
{
    return run->deadline_ns != 0 && nova_clock_ns() >= run->deadline_ns;
}

nova_status nova_instance_check(nova_instance *run, unsigned worker)
{
    if (run_is_late(run))
        nova_instance_stop(run, NOVA_TIMEOUT, NOVA_NO_TASK);
    if (worker == 0 && run->poll != NULL)
        run_poll(run);
    return (nova_status)(atomic_load_explicit(&run->stop, memory_order_relaxed) >> 32);
}

/* Runs a task and then, while there is one, a task that it made ready. */
static outcome run_chain(nova_instance *run, nova_worker_slot *slot, uint32_t task, bool caller)
{
    uint64_t now = 0;
    do {
        /* Right before the start, so that none begins after a cancel has returned. */
        if (nova_instance_stopped(run)) {
            slot->interrupted_task = task;
            return OVER;
        }
        nova_status status = run_execute(run, slot, task, &now);
        if (status != NOVA_OK) {
            nova_instance_stop(run, status, task);
            return OVER;
        }
        slot->finished_count++;
        task = run_release(run, slot, task, now);
        if (run_is_late(run))
            nova_instance_stop(run, NOVA_TIMEOUT, NOVA_NO_TASK);
        if (caller && run->poll != NULL)
            run_poll(run);
        if (!caller && nova_workers_crowded(run->pool) && nova_latch_count(&run->latch) > 1) {
            if (task != NOVA_NO_TASK)
                run_put_back(run, slot, task);
            return LEAVE;
        }
    } while (task != NOVA_NO_TASK);
    return STAY;
}

void nova_run_in_order(nova_instance *run)
{
    nova_worker_slot *slot = &run->slots[0];
    uint32_t count = run->graph->facts.task_count, i = 0;
    uint64_t now = 0;
    for (; i < count; i++) {
        if (run_is_late(run))
            nova_instance_stop(run, NOVA_TIMEOUT, NOVA_NO_TASK);
        if (run->poll != NULL)
            run_poll(run);
        if (nova_instance_stopped(run))
            break;
        if (run->trace)
            run->ready_ns[i] = now != 0 ? now : run->ready_ns[i];
        nova_status status = run_execute(run, slot, i, &now);
        if (status != NOVA_OK) {
            nova_instance_stop(run, status, i);
            break;
        }
    }
    atomic_store_explicit(&run->inline_finished, i, memory_order_relaxed);
    atomic_store_explicit(&run->left, count - i, memory_order_release);
}

/* --- idling ----------------------------------------------------------------------------------- */

/* Subtracts the tasks that finished in this slot; whether the run has none left. */
static bool run_report(nova_instance *run, nova_worker_slot *slot)
{
    uint32_t finished = slot->finished_count;
    slot->finished_count = 0;
    if (finished == 0)
        return atomic_load_explicit(&run->left, memory_order_seq_cst) == 0;
    return atomic_fetch_sub_explicit(&run->left, finished, memory_order_seq_cst) == finished;
}

/* A stall: no thread runs or searches for a task, no task is ready, and tasks are left. A thread
 * that starts to search concurrently changes `busy`, and is responsible from then on. */
static bool run_is_stalled(nova_instance *run)
{
    uint64_t before = atomic_load_explicit(&run->busy, memory_order_seq_cst);
    if ((uint32_t)before != 0 || nova_instance_tasks(run, 0, 1) > 0 ||
        atomic_load_explicit(&run->left, memory_order_seq_cst) == 0)
        return false;
    return atomic_load_explicit(&run->busy, memory_order_seq_cst) == before;
}

static bool run_is_over(nova_instance *run)
{
    return nova_instance_stopped(run) || nova_latch_is_closed(&run->latch);
}

/* The caller has no task: it sleeps until there is one or the run is over. */
static outcome run_sleep_inside(nova_instance *run, uint64_t deadline_ns)
{
    nova_futex_event_announce(&run->caller_event);
    if (run_is_over(run) || nova_instance_tasks(run, 0, 1) > 0) {
        nova_futex_event_cancel(&run->caller_event);
        return STAY;
    }
    uint64_t until = deadline_ns;
    if (run->deadline_ns != 0 && run->deadline_ns < until)
        until = run->deadline_ns;
    if (run->poll != NULL && run->next_poll_ns < until)
        until = run->next_poll_ns;
    nova_workers_pause(run->pool);
    nova_futex_event_wait(&run->caller_event, until);
    nova_workers_resume(run->pool);
    if (run_is_late(run))
        nova_instance_stop(run, NOVA_TIMEOUT, NOVA_NO_TASK);
    if (run->poll != NULL)
        run_poll(run);
    return deadline_ns != UINT64_MAX && nova_clock_ns() >= deadline_ns ? LEAVE : STAY;
}

/* There was no task: spins, then sleeps or leaves. `busy` is one less after LEAVE and OVER. */
static outcome run_idle(nova_instance *run, nova_worker_slot *slot, bool caller,
                        uint64_t deadline_ns)
{
    atomic_store_explicit(&slot->current, NOVA_NO_TASK, memory_order_relaxed);
    bool over = run_report(run, slot);
    uint32_t spin = atomic_load_explicit(&run->pool->spin, memory_order_relaxed);
    for (uint32_t i = 0; i < spin && !over; i++) {
        if (nova_instance_tasks(run, slot->index, 1) > 0)
            return STAY;
        over = run_is_over(run);
        nova_relax();
    }
    atomic_fetch_sub_explicit(&run->busy, 1, memory_order_seq_cst);
    if (!over && run_is_stalled(run)) {
        nova_instance_stop(run, NOVA_STALLED, NOVA_NO_TASK);
        over = true;
    }
    if (over || !caller)
        return over ? OVER : LEAVE;
    outcome next = run_sleep_inside(run, deadline_ns);
    if (next == STAY)
        atomic_fetch_add_explicit(&run->busy, ONE_MORE_BUSY, memory_order_seq_cst);
    return next;
}

/* Leaves the slot; the result of nova_serve. The run may be freed when this returns false. */
static bool run_leave(nova_instance *run, nova_worker_slot *slot, outcome how)
{
    nova_workers *pool = run->pool;
    bool work_left = false;
    if (how == OVER) {
        nova_latch_close(&run->latch);
        nova_futex_event_signal(&run->caller_event);
    } else {
        work_left =
            nova_instance_tasks(run, 0, 1) > 0 && !nova_futex_event_signal(&run->caller_event);
    }
    atomic_store_explicit(&slot->held, 0, memory_order_seq_cst);
    bool last = nova_latch_leave(&run->latch);
    if (work_left)
        nova_eventcount_notify(&pool->eventcount, 1);
    return last;
}

bool nova_serve(nova_instance *run, uint32_t index, bool caller, uint64_t deadline_ns)
{
    nova_worker_slot *slot = &run->slots[index];
    if (run->workers == 1) {
        nova_run_in_order(run);
        return run_leave(run, slot, OVER);
    }
    atomic_fetch_add_explicit(&run->busy, ONE_MORE_BUSY, memory_order_seq_cst);
    outcome next = STAY;
    bool is_busy = true;
    while (next == STAY) {
        if (run_is_over(run)) {
            next = OVER;
            break;
        }
        uint32_t task = run_pop_slot(run, slot);
        if (task == NOVA_NO_TASK)
            task = run_steal(run, slot);
        if (task != NOVA_NO_TASK) {
            next = run_chain(run, slot, task, caller);
        } else {
            next = run_idle(run, slot, caller, deadline_ns);
            is_busy = next == STAY;
        }
    }
    if (is_busy) {
        /* Stopped, or crowded out, with tasks that were not reported. */
        if (run_report(run, slot))
            next = OVER;
        atomic_fetch_sub_explicit(&run->busy, 1, memory_order_seq_cst);
        if (next == LEAVE && run_is_stalled(run)) {
            nova_instance_stop(run, NOVA_STALLED, NOVA_NO_TASK);
            next = OVER;
        }
    }
    if (next == LEAVE)
        atomic_store_explicit(&slot->current, NOVA_NO_TASK, memory_order_relaxed);
    return run_leave(run, slot, next);
}
