/* The task graph of a program, created from its tables at first use. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "exec/program.h"

/* Throughput of one core of a common server, as in nova/codegen/common/cost_model.py: scalar
 * operations by core type, and bytes. */
static const double PROGRAM_GRAPH_OPERATIONS_PER_NS[] = {64.0, 2.0, 16.0};
static const double PROGRAM_GRAPH_BYTES_PER_NS = 8.0;

double nova_kernel_cost(const nova_kernel_record *kernel, double part)
{
    double compute =
        (double)kernel->flops / PROGRAM_GRAPH_OPERATIONS_PER_NS[kernel->core & NOVA_CORE_MASK];
    double memory = (double)kernel->bytes / PROGRAM_GRAPH_BYTES_PER_NS;
    double cost = part * (compute > memory ? compute : memory);
    return cost < 1e15 ? cost : 1e15; /* eleven days */
}

void nova_prepared_free(nova_prepared *prepared)
{
    if (prepared == NULL)
        return;
    nova_graph_destroy(prepared->graph);
    free(prepared->tasks);
    free(prepared->successors);
    free(prepared);
}

/* One task a launch, in a chain; one empty task if there are no launches. */
static bool program_graph_chain_launches(const nova_tables *tables, nova_prepared *prepared,
                                         uint32_t *count)
{
    uint32_t launches = tables->header->launch_count;
    *count = launches > 0 ? launches : 1;
    prepared->tasks = calloc(*count, sizeof *prepared->tasks);
    prepared->successors = calloc(*count, sizeof *prepared->successors);
    if (prepared->tasks == NULL || prepared->successors == NULL)
        return false;
    for (uint32_t i = 0; i < *count; i++) {
        prepared->tasks[i] = (nova_task){
            .launch = i,
            .waits = i > 0,
            .end = launches > 0 ? tables->kernels[tables->launches[i].kernel].grid : 0,
            .first_successor = i,
            .successor_count = i + 1 < *count,
        };
        prepared->successors[i] = i + 1;
    }
    return true;
}

static nova_status program_graph_make(const nova_tables *tables, nova_prepared *prepared)
{
    nova_graph_tables parts = {
        .tasks = tables->tasks,
        .successors = tables->successors,
        .task_count = tables->header->task_count,
        .successor_count = tables->header->successor_count,
    };
    if (parts.task_count == 0) {
        if (!program_graph_chain_launches(tables, prepared, &parts.task_count))
            return NOVA_OUT_OF_MEMORY;
        parts.tasks = prepared->tasks;
        parts.successors = prepared->successors;
        parts.successor_count = parts.task_count - 1;
    }
    uint64_t *cost = calloc(parts.task_count, sizeof *cost + 1);
    if (cost == NULL)
        return NOVA_OUT_OF_MEMORY;
    uint8_t *core = (uint8_t *)(cost + parts.task_count);
    for (uint32_t i = 0; i < parts.task_count; i++) {
        const nova_task *task = &parts.tasks[i];
        core[i] = NOVA_VECTOR;
        if (task->begin == task->end)
            continue; /* a join: runs on any thread */
        const nova_kernel_record *kernel = &tables->kernels[tables->launches[task->launch].kernel];
        core[i] = (uint8_t)(kernel->core & NOVA_CORE_MASK);
        cost[i] = (uint64_t)nova_kernel_cost(kernel, (double)(task->end - task->begin) /
                                                         (double)kernel->grid);
    }
    parts.core = core;
    parts.cost = cost;
    nova_status status = nova_graph_create(&parts, 0, &prepared->graph); /* copies both */
    free(cost);
    if (status != NOVA_OK)
        return status;
    nova_graph_facts facts = nova_graph_get_facts(prepared->graph);
    prepared->planned = nova_plan_workers(&facts, NOVA_COST_PER_WORKER, NOVA_MAX_WORKERS);
    return NOVA_OK;
}

nova_status nova_program_prepare(nova_program *program, const nova_prepared **prepared)
{
    nova_prepared *current = atomic_load_explicit(&program->prepared, memory_order_acquire);
    if (current == NULL) {
        nova_prepared *created = calloc(1, sizeof *created);
        nova_status status =
            created != NULL ? program_graph_make(&program->tables, created) : NOVA_OUT_OF_MEMORY;
        if (status != NOVA_OK) {
            nova_prepared_free(created);
            return status;
        }
        /* Several threads may create it concurrently; the first to store its own wins. */
        if (atomic_compare_exchange_strong_explicit(&program->prepared, &current, created,
                                                    memory_order_acq_rel, memory_order_acquire))
            current = created;
        else
            nova_prepared_free(created);
    }
    *prepared = current;
    return NOVA_OK;
}

nova_status nova_program_graph(nova_program *program, const nova_graph **graph)
{
    if (program == NULL || graph == NULL)
        return NOVA_INVALID_ARGUMENT;
    const nova_prepared *prepared;
    nova_status status = nova_program_prepare(program, &prepared);
    if (status == NOVA_OK)
        *graph = prepared->graph;
    return status;
}

void nova_program_describe(const nova_program *program, uint32_t number, char *text, size_t size)
{
    const nova_tables *tables = &program->tables;
    uint32_t count = tables->header->task_count, launches = tables->header->launch_count;
    uint32_t launch = count == 0       ? number
                      : number < count ? tables->tasks[number].launch
                                       : launches;
    if (launch >= launches) {
        (void)snprintf(text, size, "task %u", number);
        return;
    }
    const nova_kernel_record *kernel = &tables->kernels[tables->launches[launch].kernel];
    int64_t begin = count > 0 ? tables->tasks[number].begin : 0;
    int64_t end = count > 0 ? tables->tasks[number].end : kernel->grid;
    const char *location = tables->strings + kernel->location;
    (void)snprintf(text, size, "kernel %s, tiles %" PRId64 " to %" PRId64 " of %" PRId64 "%s%s",
                   tables->strings + kernel->name, begin, end, kernel->grid,
                   *location != '\0' ? ", " : "", location);
}
