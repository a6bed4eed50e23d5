#include "scheduler/graph.h"

#include <stdlib.h>
#include <string.h>

/* Lists up to this length are sorted by insertion, longer ones by qsort. */
enum { INSERTION_MOST = 16 };

typedef struct ranked {
    uint64_t priority;
    uint32_t task;
} ranked;

/* Start (+1) or end (-1) of a task in the schedule with a core for each. */
typedef struct event {
    uint64_t time;
    int64_t change;
} event;

/* --- checking --------------------------------------------------------------------------------- */

static nova_status graph_check_tables(const nova_graph_tables *tables)
{
    if (tables == NULL || tables->task_count == 0 || tables->tasks == NULL ||
        (tables->successors == NULL && tables->successor_count > 0))
        return NOVA_INVALID_ARGUMENT;
    if (tables->task_count >= NOVA_NO_TASK)
        return NOVA_OUT_OF_RANGE;
    uint32_t used = 0; /* no successor belongs to two tasks: each list is sorted by itself */
    for (uint32_t i = 0; i < tables->task_count; i++) {
        const nova_task *task = &tables->tasks[i];
        if (task->first_successor > tables->successor_count ||
            task->successor_count > tables->successor_count - task->first_successor)
            return NOVA_OUT_OF_RANGE;
        if (task->successor_count > 0) {
            if (task->first_successor < used)
                return NOVA_INVALID_ARGUMENT;
            used = task->first_successor + task->successor_count;
        }
        for (uint32_t k = 0; k < task->successor_count; k++) {
            uint32_t successor = tables->successors[task->first_successor + k];
            if (successor >= tables->task_count)
                return NOVA_OUT_OF_RANGE;
            if (successor <= i)
                return NOVA_INVALID_ARGUMENT;
        }
        if (tables->core != NULL && tables->core[i] > NOVA_HOST)
            return NOVA_OUT_OF_RANGE;
    }
    return NOVA_OK;
}

/* Compares `waits` with the number of tasks that name a task, counted in `named` (zero on
 * entry). */
static nova_status graph_check_waits(const nova_graph_tables *tables, uint32_t flags,
                                     uint32_t *named)
{
    for (uint32_t i = 0; i < tables->task_count; i++) {
        const nova_task *task = &tables->tasks[i];
        for (uint32_t k = 0; k < task->successor_count; k++)
            named[tables->successors[task->first_successor + k]]++;
    }
    for (uint32_t i = 0; i < tables->task_count; i++) {
        uint32_t waits = tables->tasks[i].waits;
        if (waits < named[i] || (waits > named[i] && !(flags & NOVA_GRAPH_MAY_STALL)))
            return NOVA_INVALID_ARGUMENT;
    }
    return NOVA_OK;
}

/* --- preparing -------------------------------------------------------------------------------- */

static int graph_compare_ranked(const void *left, const void *right)
{
    const ranked *a = left, *b = right;
    if (a->priority != b->priority)
        return a->priority > b->priority ? -1 : 1;
    return a->task < b->task ? -1 : a->task > b->task;
}

static int graph_compare_events(const void *left, const void *right)
{
    const event *a = left, *b = right;
    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    return a->change < b->change ? -1 : a->change > b->change; /* ends before starts */
}

/* Priorities, and the roots and each task's successors in the order of theirs. */
static nova_status graph_rank(nova_graph *graph, uint32_t successor_count, uint64_t *priority,
                              uint32_t *by_priority, uint32_t *ranked_roots)
{
    ranked *list = malloc(((size_t)graph->facts.root_count + successor_count) * sizeof *list + 1);
    if (list == NULL)
        return NOVA_OUT_OF_MEMORY;
    for (uint32_t i = graph->facts.task_count; i-- > 0;) {
        const nova_task *task = &graph->tasks[i];
        uint32_t count = task->successor_count, first = task->first_successor;
        for (uint32_t k = 0; k < count; k++) {
            uint32_t successor = graph->successors[first + k];
            list[k] = (ranked){priority[successor], successor};
        }
        if (count > INSERTION_MOST) {
            qsort(list, count, sizeof *list, graph_compare_ranked);
        } else {
            for (uint32_t k = 1; k < count; k++)
                for (uint32_t m = k; m > 0 && graph_compare_ranked(&list[m], &list[m - 1]) < 0;
                     m--) {
                    ranked swapped = list[m];
                    list[m] = list[m - 1];
                    list[m - 1] = swapped;
                }
        }
        for (uint32_t k = 0; k < count; k++)
            by_priority[first + k] = list[k].task;
        uint64_t longest = count > 0 ? list[0].priority : 0;
        if (__builtin_add_overflow(longest, graph->cost[i], &priority[i])) {
            free(list);
            return NOVA_OVERFLOW;
        }
        if (priority[i] > graph->facts.critical_cost)
            graph->facts.critical_cost = priority[i];
    }
    for (uint32_t i = 0; i < graph->facts.root_count; i++)
        list[i] = (ranked){priority[graph->roots[i]], graph->roots[i]};
    qsort(list, graph->facts.root_count, sizeof *list, graph_compare_ranked);
    for (uint32_t i = 0; i < graph->facts.root_count; i++)
        ranked_roots[i] = list[i].task;
    free(list);
    return NOVA_OK;
}

/* The most tasks that run at the same time when each starts as early as it can. Tasks of cost 0
 * count as 1, or they would never overlap. */
static nova_status graph_measure_width(nova_graph *graph)
{
    uint32_t count = graph->facts.task_count;
    uint64_t *start = calloc(count, sizeof *start);
    event *events = malloc(2 * (size_t)count * sizeof *events);
    if (start == NULL || events == NULL) {
        free(start);
        free(events);
        return NOVA_OUT_OF_MEMORY;
    }
    for (uint32_t i = 0; i < count; i++) {
        const nova_task *task = &graph->tasks[i];
        uint64_t cost = graph->cost[i] > 0 ? graph->cost[i] : 1, end;
        if (__builtin_add_overflow(start[i], cost, &end))
            end = UINT64_MAX;
        events[2 * (size_t)i] = (event){start[i], 1};
        events[2 * (size_t)i + 1] = (event){end, -1};
        for (uint32_t k = 0; k < task->successor_count; k++) {
            uint64_t *later = &start[graph->successors[task->first_successor + k]];
            if (*later < end)
                *later = end;
        }
    }
    qsort(events, 2 * (size_t)count, sizeof *events, graph_compare_events);
    int64_t running = 0, most = 1;
    for (size_t i = 0; i < 2 * (size_t)count; i++) {
        running += events[i].change;
        if (running > most)
            most = running;
    }
    graph->facts.width = (uint32_t)most;
    free(start);
    free(events);
    return NOVA_OK;
}

static nova_status graph_add_up(nova_graph *graph)
{
    for (uint32_t i = 0; i < graph->facts.task_count; i++) {
        graph->core_type_count[graph->core[i]]++;
        if (__builtin_add_overflow(graph->facts.total_cost, graph->cost[i],
                                   &graph->facts.total_cost))
            return NOVA_OVERFLOW;
    }
    graph->facts.host_count = graph->core_type_count[NOVA_HOST];
    return NOVA_OK;
}

static nova_status graph_prepare(const nova_graph_tables *tables, uint32_t flags,
                                 nova_graph **graph)
{
    size_t count = tables->task_count, edges = tables->successor_count;
    nova_graph *created =
        calloc(1, sizeof *created + count * (2 * sizeof(uint64_t) + 2 * sizeof(uint32_t) + 1) +
                      edges * sizeof(uint32_t));
    if (created == NULL)
        return NOVA_OUT_OF_MEMORY;
    uint64_t *priority = (uint64_t *)(created + 1), *cost = priority + count;
    uint32_t *roots = (uint32_t *)(cost + count), *ranked_roots = roots + count;
    uint32_t *by_priority = ranked_roots + count;
    uint8_t *core = (uint8_t *)(by_priority + edges);
    *created = (nova_graph){
        .facts = {.task_count = tables->task_count},
        .tasks = tables->tasks,
        .successors = tables->successors,
        .by_priority = by_priority,
        .roots = roots,
        .ranked_roots = ranked_roots,
        .core = core,
        .cost = cost,
        .priority = priority,
    };
    for (size_t i = 0; i < count; i++) {
        core[i] = tables->core != NULL ? tables->core[i] : NOVA_VECTOR;
        cost[i] = tables->cost != NULL ? tables->cost[i] : 1;
    }
    /* counts where the roots will be */
    nova_status status = graph_check_waits(tables, flags, roots);
    for (uint32_t i = 0; i < tables->task_count; i++)
        if (tables->tasks[i].waits == 0)
            roots[created->facts.root_count++] = i;
    if (status == NOVA_OK)
        status = graph_add_up(created);
    if (status == NOVA_OK)
        status = graph_rank(created, tables->successor_count, priority, by_priority, ranked_roots);
    if (status == NOVA_OK)
        status = graph_measure_width(created);
    if (status == NOVA_OK)
        *graph = created;
    else
        free(created);
    return status;
}

nova_status nova_graph_create(const nova_graph_tables *tables, uint32_t flags, nova_graph **graph)
{
    if (graph == NULL || (flags & ~(uint32_t)NOVA_GRAPH_MAY_STALL))
        return NOVA_INVALID_ARGUMENT;
    nova_status status = graph_check_tables(tables);
    return status == NOVA_OK ? graph_prepare(tables, flags, graph) : status;
}

nova_status nova_graph_from_tables(const nova_tables *tables, const nova_speeds *speeds,
                                   nova_graph **graph)
{
    if (tables == NULL || speeds == NULL || !(speeds->flops_per_ns > 0) ||
        !(speeds->bytes_per_ns > 0))
        return NOVA_INVALID_ARGUMENT;
    uint32_t count = tables->header->task_count;
    uint64_t *cost = malloc(count * (sizeof *cost + 1) + 1);
    if (cost == NULL)
        return NOVA_OUT_OF_MEMORY;
    uint8_t *core = (uint8_t *)(cost + count);
    for (uint32_t i = 0; i < count; i++) {
        const nova_task *task = &tables->tasks[i];
        const nova_kernel_record *kernel = &tables->kernels[tables->launches[task->launch].kernel];
        double tiles = (double)(task->end - task->begin);
        double part = kernel->grid > 0 ? tiles / (double)kernel->grid : 0;
        double compute = part * (double)kernel->flops / speeds->flops_per_ns;
        double memory = part * (double)kernel->bytes / speeds->bytes_per_ns;
        double longer = compute > memory ? compute : memory;
        cost[i] = longer < 1e15 ? (uint64_t)longer : (uint64_t)1e15; /* eleven days */
        core[i] = (uint8_t)kernel->core;
    }
    const nova_graph_tables copy = {
        .tasks = tables->tasks,
        .successors = tables->successors,
        .core = core,
        .cost = cost,
        .task_count = count,
        .successor_count = tables->header->successor_count,
    };
    nova_status status = nova_graph_create(&copy, 0, graph); /* copies core and cost */
    free(cost);
    return status;
}

void nova_graph_destroy(nova_graph *graph)
{
    free(graph);
}

nova_graph_facts nova_graph_get_facts(const nova_graph *graph)
{
    return graph->facts;
}

const uint64_t *nova_graph_priorities(const nova_graph *graph)
{
    return graph->priority;
}
