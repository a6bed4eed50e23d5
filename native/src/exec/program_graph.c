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
    while (prepared != NULL) {
        nova_prepared *next = prepared->next;
        nova_graph_destroy(prepared->graph);
        if (!prepared->is_fixed)
            nova_task_plan_free(&prepared->tasks);
        free(prepared);
        prepared = next;
    }
}

/* One task a launch, in a chain; one empty task if there are no launches. */
static nova_status program_graph_chain_launches(const nova_tables *tables, nova_task_plan *plan)
{
    uint32_t launches = tables->header->launch_count, count = launches > 0 ? launches : 1;
    plan->tasks = calloc(count, sizeof *plan->tasks);
    plan->successors = calloc(count, sizeof *plan->successors);
    if (plan->tasks == NULL || plan->successors == NULL)
        return NOVA_OUT_OF_MEMORY;
    plan->task_count = count;
    plan->successor_count = count - 1;
    for (uint32_t i = 0; i < count; i++) {
        plan->tasks[i] = (nova_task){
            .launch = i,
            .waits = i > 0,
            .end = launches > 0 ? tables->kernels[tables->launches[i].kernel].grid : 0,
            .first_successor = i,
            .successor_count = i + 1 < count,
        };
        plan->successors[i] = i + 1;
    }
    return NOVA_OK;
}

static nova_status program_graph_make(const nova_tables *tables, nova_prepared *prepared)
{
    nova_task_plan *plan = &prepared->tasks;
    nova_status status = NOVA_OK;
    prepared->is_fixed = tables->header->task_count > 0;
    if (prepared->is_fixed)
        *plan = (nova_task_plan){
            .tasks = (nova_task *)(uintptr_t)tables->tasks, /* never written to */
            .successors = (uint32_t *)(uintptr_t)tables->successors,
            .task_count = tables->header->task_count,
            .successor_count = tables->header->successor_count,
        };
    else if (prepared->workers > 0)
        status = nova_task_plan_create(tables, prepared->workers, NOVA_WORTH_SHARING, plan);
    if (status == NOVA_OK && plan->task_count == 0)
        status = program_graph_chain_launches(tables, plan);
    if (status != NOVA_OK)
        return status;
    nova_graph_tables parts = {
        .tasks = plan->tasks,
        .successors = plan->successors,
        .task_count = plan->task_count,
        .successor_count = plan->successor_count,
    };
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
    status = nova_graph_create(&parts, 0, &prepared->graph); /* copies both */
    free(cost);
    if (status != NOVA_OK)
        return status;
    nova_graph_facts facts = nova_graph_get_facts(prepared->graph);
    prepared->planned = nova_plan_workers(&facts, NOVA_COST_PER_WORKER, NOVA_MAX_WORKERS);
    return NOVA_OK;
}

static nova_prepared *program_graph_find(nova_prepared *prepared, unsigned workers)
{
    while (prepared != NULL && prepared->workers != workers)
        prepared = prepared->next;
    return prepared;
}

nova_status nova_program_prepare(nova_program *program, unsigned workers,
                                 const nova_prepared **prepared)
{
    bool is_fixed = program->tables.header->task_count > 0 || program->tables.tilings == NULL;
    if (is_fixed)
        workers = 0;
    else if (workers == 0)
        workers = nova_workers_count();
    nova_prepared *head = atomic_load_explicit(&program->prepared, memory_order_acquire);
    nova_prepared *current = program_graph_find(head, workers);
    if (current == NULL) {
        nova_prepared *created = calloc(1, sizeof *created);
        if (created == NULL)
            return NOVA_OUT_OF_MEMORY;
        created->workers = workers;
        nova_status status = program_graph_make(&program->tables, created);
        if (status != NOVA_OK) {
            nova_prepared_free(created);
            return status;
        }
        /* Several threads may create it concurrently; the first to store its own wins. */
        do {
            created->next = head;
            current = program_graph_find(head, workers);
        } while (current == NULL && !atomic_compare_exchange_weak_explicit(
                                        &program->prepared, &head, created, memory_order_acq_rel,
                                        memory_order_acquire));
        if (current == NULL) {
            current = created;
        } else {
            created->next = NULL;
            nova_prepared_free(created);
        }
    }
    *prepared = current;
    return NOVA_OK;
}

nova_status nova_program_graph(nova_program *program, const nova_graph **graph)
{
    return nova_program_graph_for(program, 0, graph);
}

nova_status nova_program_graph_for(nova_program *program, unsigned workers,
                                   const nova_graph **graph)
{
    if (program == NULL || graph == NULL)
        return NOVA_INVALID_ARGUMENT;
    const nova_prepared *prepared;
    nova_status status = nova_program_prepare(program, workers, &prepared);
    if (status == NOVA_OK)
        *graph = prepared->graph;
    return status;
}

void nova_prepared_describe(const nova_program *program, const nova_prepared *prepared,
                            uint32_t number, char *text, size_t size)
{
    const nova_tables *tables = &program->tables;
    if (number >= prepared->tasks.task_count || tables->header->launch_count == 0) {
        (void)snprintf(text, size, "task %u", number);
        return;
    }
    const nova_task *task = &prepared->tasks.tasks[number];
    const nova_kernel_record *kernel = &tables->kernels[tables->launches[task->launch].kernel];
    const char *location = tables->strings + kernel->location;
    (void)snprintf(text, size, "kernel %s, tiles %" PRId64 " to %" PRId64 " of %" PRId64 "%s%s",
                   tables->strings + kernel->name, task->begin, task->end, kernel->grid,
                   *location != '\0' ? ", " : "", location);
}

void nova_program_describe(nova_program *program, uint32_t number, char *text, size_t size)
{
    const nova_prepared *prepared;
    if (nova_program_prepare(program, 0, &prepared) == NOVA_OK)
        nova_prepared_describe(program, prepared, number, text, size);
    else
        (void)snprintf(text, size, "task %u", number);
}
