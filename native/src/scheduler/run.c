/* The work inside of a run: take a task, run it, release its dependents, look for the next one. */
#include "scheduler/instance.h"
#include "scheduler/worker_pool.h"
#include "scheduler/trace.h"

/* A thread that begins to look for tasks, in nova_instance.busy. */
#define ONE_MORE_BUSY ((UINT64_C(1) << 32) + 1)

/* How a place is left. */
typedef enum outcome { STAY, LEAVE, OVER } outcome;

/* --- taking ---------------------------------------------------------------------------------- */

int64_t nova_instance_tasks(nova_instance *run, uint32_t index, int64_t most)
{
    int64_t found = 0;
    if (index == 0 && run->graph->facts.host_count > 0 && nova_host_queue_has_task(&run->host))
        found++;
    for (unsigned i = 0; i < run->workers && found < most; i++)
        for (int kind = 0; kind < 2; kind++)
            found += nova_deque_count(&run->places[i].deques[kind]);
    return found;
}

uint32_t nova_instance_take_place(nova_instance *run)
{
    for (uint32_t i = 0;; i = (i + 1) % run->workers) {
        uint32_t is_free = 0;
        if (atomic_compare_exchange_strong_explicit(&run->places[i].held, &is_free, 1,
                                                    memory_order_seq_cst, memory_order_relaxed))
            return i;
    }
}

static uint32_t take_own(nova_instance *run, nova_place *place)
{
    uint32_t task = NOVA_NO_TASK;
    /* Nobody else can run these. */
    if (place->index == 0 && run->graph->facts.host_count > 0)
        task = nova_host_queue_pop(&run->host);
    for (int kind = 0; kind < 2 && task == NOVA_NO_TASK; kind++) {
        nova_deque *deque = &place->deques[kind];
        task = run->policy == NOVA_FIFO ? nova_deque_steal(deque) : nova_deque_pop(deque);
    }
    return task;
}

static uint32_t steal(nova_instance *run, nova_place *place)
{
    place->random = place->random * 1664525u + 1013904223u;
    uint32_t first = (uint32_t)(((uint64_t)place->random * run->workers) >> 32);
    for (uint32_t i = 0; i < run->workers; i++) {
        uint32_t victim = first + i < run->workers ? first + i : first + i - run->workers;
        if (victim == place->index)
            continue;
        for (int kind = 0; kind < 2; kind++) {
            uint32_t task = nova_deque_steal(&run->places[victim].deques[kind]);
            if (task != NOVA_NO_TASK) {
                place->origin = (uint16_t)victim;
                place->stolen++;
                return task;
            }
        }
    }
    return NOVA_NO_TASK;
}

/* --- releasing ------------------------------------------------------------------------------- */

/* One of the tasks before it is done; whether it was the last. */
static inline bool arrive(_Atomic uint32_t *remaining)
{
    /* All others have arrived: no race is left, and no atomic update is needed. */
    if (atomic_load_explicit(remaining, memory_order_acquire) == 1) {
        atomic_store_explicit(remaining, 0, memory_order_relaxed);
        return true;
    }
    return atomic_fetch_sub_explicit(remaining, 1, memory_order_acq_rel) == 1;
}

/* Tells waiting threads about `count` tasks that were published. The caller sleeps inside: it comes
 * first. */
static void announce(nova_instance *run, uint32_t count)
{
    if (nova_bell_ring(&run->bell) && --count == 0)
        return;
    uint32_t inside = nova_gate_count(&run->gate);
    if (inside < run->workers) {
        uint32_t missing = run->workers - inside;
        nova_lot_call(&run->pool->lot, count < missing ? count : missing);
    }
}

/* Publishes a task that was just released: it never was in a queue before. */
static void put_back(nova_instance *run, nova_place *place, uint32_t task)
{
    nova_deque *deque = &place->deques[run->graph->core[task]];
    int64_t end = nova_deque_end(deque);
    nova_deque_stage(deque, end, task);
    nova_deque_publish(deque, end + 1);
}

/* Releases the dependents of a task that is done. Returns one that became ready, for this thread to
 * run at once; the others are published together, with one barrier a queue. */
static uint32_t release(nova_instance *run, nova_place *place, uint32_t task, uint64_t now)
{
    const nova_graph *graph = run->graph;
    uint32_t count = graph->tasks[task].successor_count;
    if (count == 0)
        return NOVA_NO_TASK;
    const uint32_t *successors = run->successors + graph->tasks[task].first_successor;
    bool fifo = run->policy == NOVA_FIFO;
    int64_t begin[2], end[2];
    for (int kind = 0; kind < 2; kind++)
        begin[kind] = end[kind] = nova_deque_end(&place->deques[kind]);
    uint32_t next = NOVA_NO_TASK, published = 0;
    /* From the last to the first, so that the first is kept and the second is taken next; forward
     * when the oldest is taken first. */
    for (uint32_t i = 0; i < count; i++) {
        uint32_t ready = successors[fifo ? i : count - 1 - i];
        if (!arrive(&run->remaining[ready]))
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
            unsigned kind = graph->core[staged];
            nova_deque_stage(&place->deques[kind], end[kind]++, staged);
            published++;
        }
    }
    if (published == 0)
        return next;
    for (int kind = 0; kind < 2; kind++)
        if (end[kind] != begin[kind])
            nova_deque_publish(&place->deques[kind], end[kind]);
    announce(run, published);
    return next;
}

/* --- running --------------------------------------------------------------------------------- */

/* Runs one task; its status. */
static inline nova_status execute(nova_instance *run, nova_place *place, uint32_t task,
                                  uint64_t *now)
{
    atomic_store_explicit(&place->current, task, memory_order_relaxed);
    if (!run->trace)
        return run->execute(run->context, task, place->index);
    uint64_t start = nova_clock_ns();
    nova_status status = run->execute(run->context, task, place->index);
    *now = nova_clock_ns();
    nova_trace_add(run, place, task, start, *now);
    place->origin = NOVA_NOT_STOLEN;
    return status;
}

/* The poll of the run's own thread, when it is time for one. */
static void poll(nova_instance *run)
{
    uint64_t now = nova_clock_ns();
    if (now < run->next_poll_ns)
        return;
    nova_status status = run->poll(run->context);
    if (status != NOVA_OK)
        nova_instance_stop(run, status, NOVA_NO_TASK);
    run->next_poll_ns = nova_clock_ns() + NOVA_POLL_NS;
}

static inline bool is_late(const nova_instance *run)
{
    return run->deadline_ns != 0 && nova_clock_ns() >= run->deadline_ns;
}

/* Runs a task and then, as long as there is one, a task that it made ready. */
static outcome run_chain(nova_instance *run, nova_place *place, uint32_t task, bool caller)
{
    uint64_t now = 0;
    do {
        /* Right before the start, so that none begins after a cancel has returned. */
        if (nova_instance_stopped(run)) {
            place->kept = task;
            return OVER;
        }
        nova_status status = execute(run, place, task, &now);
        if (status != NOVA_OK) {
            nova_instance_stop(run, status, task);
            return OVER;
        }
        place->done++;
        task = release(run, place, task, now);
        if (is_late(run))
            nova_instance_stop(run, NOVA_TIMEOUT, NOVA_NO_TASK);
        if (caller && run->poll != NULL)
            poll(run);
        if (!caller && nova_workers_crowded(run->pool) && nova_gate_count(&run->gate) > 1) {
            if (task != NOVA_NO_TASK)
                put_back(run, place, task);
            return LEAVE;
        }
    } while (task != NOVA_NO_TASK);
    return STAY;
}

void nova_run_in_order(nova_instance *run)
{
    nova_place *place = &run->places[0];
    uint32_t count = run->graph->facts.task_count, i = 0;
    uint64_t now = 0;
    for (; i < count; i++) {
        if (is_late(run))
            nova_instance_stop(run, NOVA_TIMEOUT, NOVA_NO_TASK);
        if (run->poll != NULL)
            poll(run);
        if (nova_instance_stopped(run))
            break;
        if (run->trace)
            run->ready_ns[i] = now != 0 ? now : run->ready_ns[i];
        nova_status status = execute(run, place, i, &now);
        if (status != NOVA_OK) {
            nova_instance_stop(run, status, i);
            break;
        }
    }
    atomic_store_explicit(&run->inline_done, i, memory_order_relaxed);
    atomic_store_explicit(&run->left, count - i, memory_order_release);
}

/* --- idling ---------------------------------------------------------------------------------- */

/* Reports the tasks that were done here; whether the run has none left. */
static bool report(nova_instance *run, nova_place *place)
{
    uint32_t done = place->done;
    place->done = 0;
    if (done == 0)
        return atomic_load_explicit(&run->left, memory_order_seq_cst) == 0;
    return atomic_fetch_sub_explicit(&run->left, done, memory_order_seq_cst) == done;
}

/* Nobody holds a task or looks for one, there is none to take, and some are left. A thread that
 * begins to look while this one does changes `busy`, and is responsible from then on. */
static bool is_stalled(nova_instance *run)
{
    uint64_t before = atomic_load_explicit(&run->busy, memory_order_seq_cst);
    if ((uint32_t)before != 0 || nova_instance_tasks(run, 0, 1) > 0 ||
        atomic_load_explicit(&run->left, memory_order_seq_cst) == 0)
        return false;
    return atomic_load_explicit(&run->busy, memory_order_seq_cst) == before;
}

static bool is_over(nova_instance *run)
{
    return nova_instance_stopped(run) || nova_gate_is_closed(&run->gate);
}

/* The caller has nothing to do: it sleeps until there is work or the run is over. */
static outcome sleep_inside(nova_instance *run, uint64_t deadline_ns)
{
    nova_bell_announce(&run->bell);
    if (is_over(run) || nova_instance_tasks(run, 0, 1) > 0) {
        nova_bell_cancel(&run->bell);
        return STAY;
    }
    uint64_t until = deadline_ns;
    if (run->deadline_ns != 0 && run->deadline_ns < until)
        until = run->deadline_ns;
    if (run->poll != NULL && run->next_poll_ns < until)
        until = run->next_poll_ns;
    nova_workers_pause(run->pool);
    nova_bell_wait(&run->bell, until);
    nova_workers_resume(run->pool);
    if (is_late(run))
        nova_instance_stop(run, NOVA_TIMEOUT, NOVA_NO_TASK);
    if (run->poll != NULL)
        poll(run);
    return deadline_ns != UINT64_MAX && nova_clock_ns() >= deadline_ns ? LEAVE : STAY;
}

/* There was no task: spins, then sleeps or leaves. `busy` is one less after LEAVE and OVER. */
static outcome idle(nova_instance *run, nova_place *place, bool caller, uint64_t deadline_ns)
{
    atomic_store_explicit(&place->current, NOVA_NO_TASK, memory_order_relaxed);
    bool over = report(run, place);
    uint32_t spin = atomic_load_explicit(&run->pool->spin, memory_order_relaxed);
    for (uint32_t i = 0; i < spin && !over; i++) {
        if (nova_instance_tasks(run, place->index, 1) > 0)
            return STAY;
        over = is_over(run);
        nova_relax();
    }
    atomic_fetch_sub_explicit(&run->busy, 1, memory_order_seq_cst);
    if (!over && is_stalled(run)) {
        nova_instance_stop(run, NOVA_STALLED, NOVA_NO_TASK);
        over = true;
    }
    if (over || !caller)
        return over ? OVER : LEAVE;
    outcome next = sleep_inside(run, deadline_ns);
    if (next == STAY)
        atomic_fetch_add_explicit(&run->busy, ONE_MORE_BUSY, memory_order_seq_cst);
    return next;
}

/* Leaves the place; nova_serve's result. The run may be gone when this returns false. */
static bool leave(nova_instance *run, nova_place *place, outcome how)
{
    nova_workers *pool = run->pool;
    bool work_left = false;
    if (how == OVER) {
        nova_gate_close(&run->gate);
        nova_bell_ring(&run->bell);
    } else {
        work_left = nova_instance_tasks(run, 0, 1) > 0 && !nova_bell_ring(&run->bell);
    }
    atomic_store_explicit(&place->held, 0, memory_order_seq_cst);
    bool last = nova_gate_leave(&run->gate);
    if (work_left)
        nova_lot_call(&pool->lot, 1);
    return last;
}

bool nova_serve(nova_instance *run, uint32_t index, bool caller, uint64_t deadline_ns)
{
    nova_place *place = &run->places[index];
    if (run->workers == 1) {
        nova_run_in_order(run);
        return leave(run, place, OVER);
    }
    atomic_fetch_add_explicit(&run->busy, ONE_MORE_BUSY, memory_order_seq_cst);
    outcome next = STAY;
    bool is_busy = true;
    while (next == STAY) {
        if (is_over(run)) {
            next = OVER;
            break;
        }
        uint32_t task = take_own(run, place);
        if (task == NOVA_NO_TASK)
            task = steal(run, place);
        if (task != NOVA_NO_TASK) {
            next = run_chain(run, place, task, caller);
        } else {
            next = idle(run, place, caller, deadline_ns);
            is_busy = next == STAY;
        }
    }
    if (is_busy) {
        /* Stopped, or crowded out, with tasks that were not reported. */
        if (report(run, place))
            next = OVER;
        atomic_fetch_sub_explicit(&run->busy, 1, memory_order_seq_cst);
        if (next == LEAVE && is_stalled(run)) {
            nova_instance_stop(run, NOVA_STALLED, NOVA_NO_TASK);
            next = OVER;
        }
    }
    if (next == LEAVE)
        atomic_store_explicit(&place->current, NOVA_NO_TASK, memory_order_relaxed);
    return leave(run, place, next);
}
