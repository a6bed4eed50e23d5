#include "scheduler/instance.h"

#include "scheduler/worker_pool.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- making ----------------------------------------------------------------------------------- */

/* Hands out parts of one allocation; with memory NULL it only adds up. */
typedef struct arena {
    char *memory;
    size_t used;
} arena;

static void *instance_carve(arena *arena, size_t count, size_t size)
{
    void *part = arena->memory != NULL ? arena->memory + arena->used : NULL;
    arena->used += (count * size + 63) & ~(size_t)63;
    return part;
}

/* Places every array; the same calls measure and lay out. */
static void instance_lay_out(nova_instance *run, arena *arena, const nova_graph *graph,
                             unsigned slots, uint32_t trace_capacity)
{
    size_t tasks = graph->facts.task_count;
    _Atomic uint32_t *remaining = instance_carve(arena, tasks, sizeof(uint32_t));
    nova_worker_slot *slot = instance_carve(arena, slots, sizeof *slot);
    uint32_t *running = instance_carve(arena, slots, sizeof *running);
    _Atomic uint32_t *host =
        instance_carve(arena, graph->core_type_count[NOVA_HOST], sizeof(uint32_t));
    uint64_t *ready = instance_carve(arena, trace_capacity > 0 ? tasks : 0, sizeof *ready);
    if (run != NULL) {
        run->remaining = remaining;
        run->slots = slot;
        run->running = running;
        run->host.entries = host;
        run->ready_ns = trace_capacity > 0 ? ready : NULL;
    }
    for (unsigned i = 0; i < slots; i++) {
        _Atomic uint32_t *queues[2];
        for (int core_type = 0; core_type < 2; core_type++)
            queues[core_type] =
                instance_carve(arena, graph->core_type_count[core_type], sizeof(uint32_t));
        nova_trace_record *ring = instance_carve(arena, trace_capacity, sizeof *ring);
        if (run == NULL)
            continue;
        memset(&slot[i], 0, sizeof slot[i]);
        slot[i].index = i;
        slot[i].random = 2654435761u * (i + 1);
        slot[i].ring = ring;
        for (int core_type = 0; core_type < 2; core_type++)
            slot[i].deques[core_type].tasks = queues[core_type];
        atomic_store_explicit(&slot[i].current, NOVA_NO_TASK, memory_order_relaxed);
    }
}

nova_status nova_instance_create(const nova_graph *graph, unsigned workers, uint32_t trace_capacity,
                                 nova_instance **instance)
{
    if (graph == NULL || instance == NULL)
        return NOVA_INVALID_ARGUMENT;
    if (workers == 0)
        workers = nova_workers_count();
    if (workers > NOVA_MAX_WORKERS)
        return NOVA_OUT_OF_RANGE;
    arena arena = {NULL, 0};
    instance_carve(&arena, 1, sizeof **instance);
    instance_lay_out(NULL, &arena, graph, workers, trace_capacity);
    /* Not cleared: pages of queues that no run uses are never touched. */
    arena.memory = aligned_alloc(64, arena.used);
    if (arena.memory == NULL)
        return NOVA_OUT_OF_MEMORY;
    arena.used = 0;
    nova_instance *created = instance_carve(&arena, 1, sizeof *created);
    memset(created, 0, sizeof *created);
    created->graph = graph;
    created->slot_count = workers;
    created->trace_capacity = trace_capacity;
    created->planned = nova_plan_workers(&graph->facts, NOVA_COST_PER_WORKER, NOVA_MAX_WORKERS);
    atomic_store_explicit(&created->latch.word, NOVA_LATCH_CLOSED, memory_order_relaxed);
    created->result = (nova_run_result){.task = NOVA_NO_TASK};
    instance_lay_out(created, &arena, graph, workers, trace_capacity);
    *instance = created;
    return NOVA_OK;
}

void nova_instance_destroy(nova_instance *instance)
{
    if (instance == NULL)
        return;
    (void)nova_instance_wait(instance, UINT64_MAX, NULL);
    free(instance);
}

/* --- the start of a run ----------------------------------------------------------------------- */

/* Pushes every `stride`-th of `count` roots into the deques of a worker slot, so that the first
 * root runs first: the owner pops the newest task, or the oldest under NOVA_FIFO. */
static void instance_distribute(nova_instance *run, nova_worker_slot *slot, const uint32_t *roots,
                                uint32_t count, uint32_t stride)
{
    int64_t bottom[2] = {0, 0};
    for (uint32_t k = 0; k < count; k++) {
        uint32_t task = roots[stride * (run->policy == NOVA_FIFO ? k : count - 1 - k)];
        unsigned core_type = run->graph->core[task];
        if (core_type == NOVA_HOST)
            nova_host_queue_push(&run->host, task);
        else
            nova_deque_write(&slot->deques[core_type], bottom[core_type]++, task);
    }
    for (int core_type = 0; core_type < 2; core_type++)
        nova_deque_publish(&slot->deques[core_type], bottom[core_type]);
}

/* Distributes by priority, round-robin; or in blocks of neighbours of about equal cost, so that a
 * slot gets the same tiles in every run. */
static void instance_distribute_roots(nova_instance *run)
{
    const nova_graph *graph = run->graph;
    uint32_t count = graph->facts.root_count, first = 0;
    if (run->policy == NOVA_CRITICAL_PATH) {
        for (uint32_t i = 0; i < run->workers && i < count; i++)
            instance_distribute(run, &run->slots[i], graph->ranked_roots + i,
                                (count - i + run->workers - 1) / run->workers, run->workers);
        return;
    }
    uint64_t total = 0, assigned = 0;
    for (uint32_t i = 0; i < count; i++)
        total += graph->cost[graph->roots[i]] + 1;
    for (uint32_t i = 0; i < run->workers; i++) {
        uint64_t goal = total / run->workers * (i + 1);
        uint32_t end = first;
        while (end < count && (assigned < goal || i + 1 == run->workers))
            assigned += graph->cost[graph->roots[end++]] + 1;
        instance_distribute(run, &run->slots[i], graph->roots + first, end - first, 1);
        first = end;
    }
}

void nova_instance_reset(nova_instance *run)
{
    const nova_graph *graph = run->graph;
    uint32_t count = graph->facts.task_count;
    for (unsigned i = 0; i < run->slot_count; i++) {
        nova_worker_slot *slot = &run->slots[i];
        atomic_store_explicit(&slot->current, NOVA_NO_TASK, memory_order_relaxed);
        atomic_store_explicit(&slot->held, 0, memory_order_relaxed);
        slot->finished_count = slot->stolen = 0;
        slot->interrupted_task = NOVA_NO_TASK;
        slot->traced = 0;
        slot->origin = NOVA_NOT_STOLEN;
    }
    atomic_store_explicit(&run->left, count, memory_order_relaxed);
    atomic_store_explicit(&run->inline_finished, 0, memory_order_relaxed);
    atomic_store_explicit(&run->busy, 0, memory_order_relaxed);
    atomic_store_explicit(&run->caller_event.asleep, 0, memory_order_relaxed);
    if (run->trace) {
        uint64_t now = nova_clock_ns();
        for (uint32_t i = 0; i < graph->facts.root_count; i++)
            run->ready_ns[graph->roots[i]] = now;
    }
    if (run->workers == 1)
        return; /* the tasks run in order: no counters, no queues */
    for (uint32_t i = 0; i < count; i++)
        atomic_store_explicit(&run->remaining[i], graph->tasks[i].waits, memory_order_relaxed);
    for (uint32_t i = 0; i < graph->facts.host_count; i++)
        atomic_store_explicit(&run->host.entries[i], 0, memory_order_relaxed);
    nova_host_queue_reset(&run->host);
    for (unsigned i = 0; i < run->workers; i++)
        for (int core_type = 0; core_type < 2; core_type++)
            nova_deque_reset(&run->slots[i].deques[core_type]);
    const nova_topology *topology =
        atomic_load_explicit(&run->pool->topology, memory_order_acquire);
    for (unsigned i = 0; i < run->workers; i++)
        nova_topology_span(topology, i, run->workers, &run->slots[i].node_begin,
                           &run->slots[i].node_end);
    instance_distribute_roots(run);
}

/* --- the end of a run, and looking at it ------------------------------------------------------ */

void nova_instance_conclude(nova_instance *run)
{
    uint32_t left = atomic_load_explicit(&run->left, memory_order_acquire);
    uint64_t stop = atomic_load_explicit(&run->stop, memory_order_acquire);
    nova_run_result result = {
        .status = left == 0 ? NOVA_OK : (nova_status)(stop >> 32),
        .task = left == 0 ? NOVA_NO_TASK : (uint32_t)stop,
        .executed = run->graph->facts.task_count - left,
        .workers = run->workers,
        .running = run->running,
    };
    for (unsigned i = 0; i < run->workers; i++) {
        nova_worker_slot *slot = &run->slots[i];
        result.stolen += slot->stolen;
        uint32_t task = atomic_load_explicit(&slot->current, memory_order_relaxed);
        if (left > 0 && task != NOVA_NO_TASK && task != result.task)
            run->running[result.running_count++] = task;
        atomic_store_explicit(&slot->current, NOVA_NO_TASK, memory_order_relaxed);
    }
    run->result = result;
}

uint32_t nova_instance_running(const nova_instance *instance, uint32_t *tasks, uint32_t count)
{
    uint32_t running_count = 0;
    for (unsigned i = 0; i < instance->slot_count; i++) {
        uint32_t task = atomic_load_explicit(&instance->slots[i].current, memory_order_relaxed);
        if (task == NOVA_NO_TASK)
            continue;
        if (running_count < count)
            tasks[running_count] = task;
        running_count++;
    }
    return running_count < count ? running_count : count;
}

static void instance_mark_queued(const nova_instance *run, uint8_t *states)
{
    for (unsigned i = 0; i < run->workers; i++) {
        if (run->slots[i].interrupted_task != NOVA_NO_TASK)
            states[run->slots[i].interrupted_task] = NOVA_TASK_READY;
        for (int core_type = 0; core_type < 2; core_type++) {
            nova_deque *deque = &run->slots[i].deques[core_type];
            int64_t top = atomic_load_explicit(&deque->top, memory_order_relaxed);
            int64_t bottom = atomic_load_explicit(&deque->bottom, memory_order_relaxed);
            for (; top < bottom; top++)
                states[atomic_load_explicit(&deque->tasks[top], memory_order_relaxed)] =
                    NOVA_TASK_READY;
        }
    }
    uint32_t end = atomic_load_explicit(&run->host.reserved, memory_order_relaxed);
    for (uint32_t i = atomic_load_explicit(&run->host.head, memory_order_relaxed); i < end; i++)
        states[atomic_load_explicit(&run->host.entries[i], memory_order_relaxed) - 1] =
            NOVA_TASK_READY;
}

nova_status nova_instance_states(const nova_instance *instance, uint8_t *states)
{
    if (instance == NULL || states == NULL)
        return NOVA_INVALID_ARGUMENT;
    uint32_t state = atomic_load_explicit(&instance->state, memory_order_acquire);
    if (state != NOVA_STATE_IDLE && state != NOVA_STATE_FINISHED)
        return NOVA_BUSY;
    uint32_t count = instance->graph->facts.task_count;
    uint32_t in_order = atomic_load_explicit(&instance->inline_finished, memory_order_relaxed);
    for (uint32_t i = 0; i < count; i++) {
        bool finished = state == NOVA_STATE_FINISHED;
        if (finished && instance->workers == 1)
            finished = i < in_order;
        else if (finished)
            finished = atomic_load_explicit(&instance->remaining[i], memory_order_relaxed) == 0;
        states[i] = finished ? NOVA_TASK_DONE : NOVA_TASK_WAITING;
    }
    if (state == NOVA_STATE_FINISHED && instance->workers > 1)
        instance_mark_queued(instance, states);
    if (instance->result.task != NOVA_NO_TASK)
        states[instance->result.task] = NOVA_TASK_FAILED;
    return NOVA_OK;
}

uint64_t nova_instance_trace(const nova_instance *instance, unsigned worker,
                             nova_trace_record *records, uint32_t count)
{
    if (instance == NULL || worker >= instance->slot_count || instance->trace_capacity == 0)
        return 0;
    const nova_worker_slot *slot = &instance->slots[worker];
    uint64_t recorded =
        slot->traced < instance->trace_capacity ? slot->traced : instance->trace_capacity;
    if (recorded > count)
        recorded = count;
    for (uint64_t i = 0; i < recorded; i++)
        records[i] = slot->ring[(slot->traced - recorded + i) % instance->trace_capacity];
    return slot->traced;
}
