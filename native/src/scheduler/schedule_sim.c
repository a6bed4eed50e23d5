/* One thread plays `cores` cores: list scheduling in virtual time, with real results. */
#include <stdlib.h>

#include "scheduler/graph.h"

typedef struct entry {
    uint64_t key;
    uint32_t value;
} entry;

/* A binary min-heap of (key, value), with capacity for all entries. */
typedef struct heap {
    entry *entries;
    uint32_t count;
} heap;

typedef struct simulation {
    const nova_graph *graph;
    nova_policy policy;
    uint64_t seed, arrivals, now;
    heap ready, host, idle, running; /* keys: order, order, core, end */
    uint32_t *remaining;             /* a task */
    uint32_t *task_on;               /* a core */
    nova_simulated *timeline;
    nova_simulation summary;
} simulation;

/* --- heaps ------------------------------------------------------------------------------------ */

static bool sim_precedes(entry a, entry b)
{
    return a.key != b.key ? a.key < b.key : a.value < b.value;
}

static void sim_heap_add(heap *heap, uint64_t key, uint32_t value)
{
    entry added = {key, value};
    uint32_t at = heap->count++;
    for (; at > 0 && sim_precedes(added, heap->entries[(at - 1) / 2]); at = (at - 1) / 2)
        heap->entries[at] = heap->entries[(at - 1) / 2];
    heap->entries[at] = added;
}

static entry sim_heap_take(heap *heap)
{
    entry first = heap->entries[0], last = heap->entries[--heap->count];
    uint32_t at = 0;
    for (;;) {
        uint64_t child = 2 * (uint64_t)at + 1;
        if (child >= heap->count)
            break;
        if (child + 1 < heap->count && sim_precedes(heap->entries[child + 1], heap->entries[child]))
            child++;
        if (!sim_precedes(heap->entries[child], last))
            break;
        heap->entries[at] = heap->entries[child];
        at = (uint32_t)child;
    }
    heap->entries[at] = last;
    return first;
}

/* --- the schedule ----------------------------------------------------------------------------- */

/* splitmix64: the same on every machine. */
static uint64_t sim_mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static void sim_make_ready(simulation *sim, uint32_t task)
{
    uint64_t arrival = sim->arrivals++, key = arrival;
    if (sim->seed != 0)
        key = sim_mix(sim->seed ^ sim_mix(arrival));
    else if (sim->policy == NOVA_LOCALITY)
        key = ~arrival;
    else if (sim->policy == NOVA_CRITICAL_PATH)
        key = ~sim->graph->priority[task];
    sim_heap_add(sim->graph->core[task] == NOVA_HOST ? &sim->host : &sim->ready, key, task);
}

static nova_status sim_start_task(simulation *sim, uint32_t task, uint32_t core,
                                  nova_execute execute, void *context)
{
    uint64_t end = sim->now + sim->graph->cost[task]; /* at most the total cost, which fits */
    sim->task_on[core] = task;
    sim_heap_add(&sim->running, end, core);
    if (sim->timeline != NULL)
        sim->timeline[sim->summary.executed] = (nova_simulated){task, core, sim->now, end};
    nova_status status = execute != NULL ? execute(context, task, core) : NOVA_OK;
    if (status != NOVA_OK) {
        sim->summary.task = task;
        return status;
    }
    sim->summary.executed++;
    sim->summary.busy += sim->graph->cost[task];
    return NOVA_OK;
}

/* Gives tasks to idle cores until one of them runs out. */
static nova_status sim_start_tasks(simulation *sim, nova_execute execute, void *context)
{
    nova_status status = NOVA_OK;
    while (status == NOVA_OK && sim->idle.count > 0) {
        bool host = sim->host.count > 0 && sim->idle.entries[0].value == 0;
        if (!host && sim->ready.count == 0)
            break;
        uint32_t core = sim_heap_take(&sim->idle).value;
        uint32_t task = sim_heap_take(host ? &sim->host : &sim->ready).value;
        status = sim_start_task(sim, task, core, execute, context);
    }
    return status;
}

/* Advances to the next end of a task, and releases the tasks that depend on those that end. */
static void sim_finish_tasks(simulation *sim)
{
    const nova_graph *graph = sim->graph;
    sim->now = sim->running.entries[0].key;
    while (sim->running.count > 0 && sim->running.entries[0].key == sim->now) {
        uint32_t core = sim_heap_take(&sim->running).value;
        const nova_task *task = &graph->tasks[sim->task_on[core]];
        for (uint32_t i = 0; i < task->successor_count; i++) {
            uint32_t successor = graph->successors[task->first_successor + i];
            if (--sim->remaining[successor] == 0)
                sim_make_ready(sim, successor);
        }
        sim_heap_add(&sim->idle, core, core);
    }
}

static void sim_set_bounds(simulation *sim, unsigned cores)
{
    const nova_graph *graph = sim->graph;
    uint64_t host = 0, bound = graph->facts.total_cost / cores;
    bound += graph->facts.total_cost % cores != 0;
    for (uint32_t i = 0; i < graph->facts.task_count; i++)
        if (graph->core[i] == NOVA_HOST)
            host += graph->cost[i];
    if (bound < host)
        bound = host;
    sim->summary.critical_cost = graph->facts.critical_cost;
    if (bound < graph->facts.critical_cost)
        bound = graph->facts.critical_cost;
    sim->summary.lower_bound = bound;
    sim->summary.task = NOVA_NO_TASK;
}

static nova_status sim_play(simulation *sim, unsigned cores, nova_execute execute, void *context)
{
    const nova_graph *graph = sim->graph;
    for (uint32_t i = 0; i < graph->facts.task_count; i++)
        sim->remaining[i] = graph->tasks[i].waits;
    for (unsigned i = 0; i < cores; i++)
        sim_heap_add(&sim->idle, i, i);
    for (uint32_t i = 0; i < graph->facts.root_count; i++) {
        /* LIFO order would reverse them. */
        bool reverse = sim->policy == NOVA_LOCALITY && sim->seed == 0;
        sim_make_ready(sim, graph->roots[reverse ? graph->facts.root_count - 1 - i : i]);
    }
    nova_status status = sim_start_tasks(sim, execute, context);
    while (status == NOVA_OK && sim->running.count > 0) {
        sim_finish_tasks(sim);
        status = sim_start_tasks(sim, execute, context);
    }
    sim->summary.makespan = sim->now;
    if (status == NOVA_OK && sim->summary.executed < graph->facts.task_count)
        return NOVA_STALLED;
    return status;
}

nova_status nova_simulate(const nova_graph *graph, unsigned cores, nova_policy policy,
                          uint64_t seed, nova_execute execute, void *context,
                          nova_simulated *timeline, nova_simulation *summary)
{
    if (graph == NULL || cores == 0 || (unsigned)policy > NOVA_CRITICAL_PATH)
        return NOVA_INVALID_ARGUMENT;
    size_t tasks = graph->facts.task_count;
    entry *entries = malloc(2 * (tasks + cores) * sizeof *entries);
    uint32_t *counters = malloc((tasks + cores) * sizeof *counters);
    if (entries == NULL || counters == NULL) {
        free(entries);
        free(counters);
        return NOVA_OUT_OF_MEMORY;
    }
    simulation sim = {
        .graph = graph,
        .policy = policy,
        .seed = seed,
        .ready = {entries, 0},
        .host = {entries + tasks, 0},
        .idle = {entries + 2 * tasks, 0},
        .running = {entries + 2 * tasks + cores, 0},
        .remaining = counters,
        .task_on = counters + tasks,
        .timeline = timeline,
    };
    sim_set_bounds(&sim, cores);
    nova_status status = sim_play(&sim, cores, execute, context);
    if (summary != NULL)
        *summary = sim.summary;
    free(entries);
    free(counters);
    return status;
}
