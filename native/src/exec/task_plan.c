/* Two tasks of different launches that touch the same bytes, one of them writing, are ordered as
 * the launches are, directly or transitively. Buffers of the workspace share bytes, so this also
 * orders the last reader of a buffer and the writer of the buffer that reuses its memory. */
#include "nova/task_plan.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "exec/memory_dependences.h"
#include "exec/program.h"
#include "exec/task_edges.h"
#include "exec/task_ranges.h"

/* Tasks of a program: a longer one gets longer tasks. */
enum { PLAN_MOST_TASKS = 16384 };

typedef struct {
    const nova_tables *tables;
    nova_task_ranges *ranges; /* one a kernel */
    nova_memory_dependences memory;
    uint64_t *base; /* of each buffer, in one address space of all */
    nova_task_edges edges;
    uint32_t last;  /* task that all later ones wait for; NOVA_NO_TASK: there is none */
    bool on_device; /* whether kernels of the device are cut, and not those of the host */
} plan_state;

/* --- launches --------------------------------------------------------------------------------- */

/* The bytes of the address space that a span of a launch is. */
static nova_memory_access plan_place(const plan_state *plan, const nova_launch_record *launch,
                                     const nova_task_access *access, const nova_task_span *span)
{
    uint64_t base = plan->base[plan->tables->operands[launch->first_operand + access->operand]];
    return (nova_memory_access){.low = base + (uint64_t)span->low,
                                .high = base + (uint64_t)span->high,
                                .tasks = access->tasks + span->first,
                                .count = span->count,
                                .writes = access->writes};
}

static bool plan_is_constant(const plan_state *plan, const nova_launch_record *launch,
                             const nova_task_access *access)
{
    uint32_t buffer = plan->tables->operands[launch->first_operand + access->operand];
    return plan->tables->buffers[buffer].kind == NOVA_CONSTANT;
}

/* The tasks that each task of a launch has to wait for. */
static nova_status plan_find_needed(plan_state *plan, const nova_launch_record *launch,
                                    const nova_task_ranges *ranges, uint64_t *needed,
                                    uint64_t *scratch, size_t words)
{
    for (uint32_t i = 0; i < ranges->access_count; i++) {
        const nova_task_access *access = &ranges->accesses[i];
        if (plan_is_constant(plan, launch, access))
            continue;
        for (uint32_t k = 0; k < access->span_count; k++) {
            nova_memory_access bytes = plan_place(plan, launch, access, &access->spans[k]);
            memset(scratch, 0, words * sizeof *scratch);
            nova_status status =
                nova_memory_before(&plan->memory, bytes.low, bytes.high, bytes.writes, scratch);
            if (status != NOVA_OK)
                return status;
            for (uint32_t task = 0; task < bytes.count; task++)
                for (size_t word = 0; word < words; word++)
                    needed[bytes.tasks[task] * words + word] |= scratch[word];
        }
    }
    for (uint32_t task = 0; plan->last != NOVA_NO_TASK && task < ranges->task_count; task++)
        needed[task * words + plan->last / 64] |= UINT64_C(1) << plan->last % 64;
    return NOVA_OK;
}

static nova_status plan_record(plan_state *plan, const nova_launch_record *launch,
                               const nova_task_ranges *ranges, uint32_t first_task)
{
    size_t count = 0;
    for (uint32_t i = 0; i < ranges->access_count; i++)
        count += ranges->accesses[i].span_count;
    nova_memory_access *accesses = malloc((count + 1) * sizeof *accesses);
    if (accesses == NULL)
        return NOVA_OUT_OF_MEMORY;
    count = 0;
    for (uint32_t i = 0; i < ranges->access_count; i++)
        for (uint32_t k = 0; k < ranges->accesses[i].span_count; k++)
            if (!plan_is_constant(plan, launch, &ranges->accesses[i]))
                accesses[count++] =
                    plan_place(plan, launch, &ranges->accesses[i], &ranges->accesses[i].spans[k]);
    nova_status status = nova_memory_record(&plan->memory, accesses, (uint32_t)count, first_task,
                                            ranges->task_count);
    free(accesses);
    return status;
}

/* A launch of code, cut into tasks. */
static nova_status plan_add_tasks(plan_state *plan, uint32_t number, const nova_task_ranges *ranges)
{
    const nova_launch_record *launch = &plan->tables->launches[number];
    if (ranges->task_count == 0)
        return NOVA_OK;
    size_t words = nova_task_words(plan->edges.count), count = ranges->task_count;
    uint64_t *needed = calloc((count + 2) * words, sizeof *needed);
    nova_task_group *groups = calloc(count, sizeof *groups);
    uint32_t *group_of = calloc(count, sizeof *group_of);
    nova_status status =
        needed != NULL && groups != NULL && group_of != NULL ? NOVA_OK : NOVA_OUT_OF_MEMORY;
    uint64_t *scratch = needed + count * words;
    if (status == NOVA_OK)
        status = plan_find_needed(plan, launch, ranges, needed, scratch, words);
    if (status == NOVA_OK)
        status = nova_task_edges_add(&plan->edges, number, ranges->cuts, ranges->task_count, needed,
                                     scratch, words, groups, group_of);
    free(needed);
    free(groups);
    free(group_of);
    if (status == NOVA_OK)
        status = plan_record(plan, launch, ranges, plan->edges.count - ranges->task_count);
    return status;
}

/* A launch of a kernel of the device without a tiling: one task, and its operands as wholes. */
static nova_status plan_add_whole(plan_state *plan, uint32_t number)
{
    const nova_launch_record *launch = &plan->tables->launches[number];
    const nova_device_launch *shape = &plan->tables->devices[launch->kernel];
    if (shape->grid[0] == 0 || shape->grid[1] == 0 || shape->grid[2] == 0)
        return NOVA_OK;
    uint32_t count = launch->operand_count, first = 0;
    int64_t cuts[2] = {0, plan->tables->kernels[launch->kernel].grid};
    nova_task_access *accesses = calloc((size_t)count + 1, sizeof *accesses);
    nova_task_span *spans = calloc((size_t)count + 1, sizeof *spans);
    nova_status status = accesses != NULL && spans != NULL ? NOVA_OK : NOVA_OUT_OF_MEMORY;
    nova_task_ranges ranges = {.task_count = 1, .cuts = cuts, .accesses = accesses};
    for (uint32_t i = 0; status == NOVA_OK && i < count; i++) {
        const nova_buffer *buffer =
            &plan->tables->buffers[plan->tables->operands[launch->first_operand + i]];
        if (buffer->kind == NOVA_SIZES || buffer->nbytes == 0)
            continue;
        spans[i] = (nova_task_span){.high = (int64_t)buffer->nbytes, .count = 1};
        accesses[ranges.access_count++] = (nova_task_access){.operand = i,
                                                             .writes = i >= launch->reads,
                                                             .span_count = 1,
                                                             .spans = &spans[i],
                                                             .tasks = &first};
    }
    if (status == NOVA_OK)
        status = plan_add_tasks(plan, number, &ranges);
    free(accesses);
    free(spans);
    return status;
}

static bool plan_has_tiling(const plan_state *plan, uint32_t kernel)
{
    return plan->tables->tilings != NULL && plan->tables->tilings[kernel].task_ns > 0;
}

/* A launch of anything else: after all tasks so far, and before all that follow. */
static nova_status plan_add_barrier(plan_state *plan, uint32_t number)
{
    const nova_launch_record *launch = &plan->tables->launches[number];
    int64_t tiles = plan->tables->kernels[launch->kernel].grid;
    nova_status status = nova_task_edges_add_after_all(&plan->edges, number, tiles);
    plan->last = plan->edges.count - 1;
    nova_memory_clear(&plan->memory);
    return status;
}

/* --- the plan --------------------------------------------------------------------------------- */

/* The end of a buffer in its argument or output, which may be known by a part of it only. */
static uint64_t plan_buffer_end(const nova_buffer *buffer)
{
    uint64_t end = buffer->nbytes;
    if (buffer->kind == NOVA_OUTPUT_PART && __builtin_add_overflow(end, buffer->value, &end))
        return UINT64_MAX;
    return end;
}

/* One address space: the workspace, then the arguments and outputs in turn, each as long as the
 * longest. */
static nova_status plan_place_buffers(plan_state *plan)
{
    const nova_tables_header *header = plan->tables->header;
    uint64_t longest = 0;
    for (uint32_t i = 0; i < header->buffer_count; i++)
        if (plan_buffer_end(&plan->tables->buffers[i]) > longest)
            longest = plan_buffer_end(&plan->tables->buffers[i]);
    for (uint32_t i = 0; i < header->buffer_count; i++) {
        const nova_buffer *buffer = &plan->tables->buffers[i];
        if (buffer->kind == NOVA_WORKSPACE || buffer->kind == NOVA_CONSTANT) {
            plan->base[i] = buffer->value;
            continue;
        }
        bool is_part = buffer->kind == NOVA_OUTPUT_PART;
        uint64_t number = is_part ? buffer->output : buffer->value;
        uint64_t end, place = 2 * number + (is_part || buffer->kind == NOVA_OUTPUT);
        if (number > UINT32_MAX || __builtin_mul_overflow(place + 1, longest, &end) ||
            __builtin_add_overflow(end, header->workspace_size, &end))
            return NOVA_OUT_OF_RANGE;
        plan->base[i] = end - longest + (is_part ? buffer->value : 0);
    }
    return NOVA_OK;
}

/* Whether the launches may be cut at all, and their total cost. */
static bool plan_adds_up(const nova_tables *tables, double *total)
{
    *total = 0;
    for (uint32_t i = 0; i < tables->header->launch_count; i++) {
        const nova_kernel_record *kernel = &tables->kernels[tables->launches[i].kernel];
        if ((kernel->core & NOVA_CORE_MASK) == NOVA_WHILE)
            return false;
        *total += nova_kernel_is_linked(kernel) ? nova_kernel_cost(kernel, 1) : 0;
    }
    return tables->header->launch_count <= NOVA_MOST_TASKS;
}

static nova_status plan_cut_kernels(plan_state *plan, double total, unsigned workers)
{
    const nova_tables *tables = plan->tables;
    double least = total / PLAN_MOST_TASKS;
    for (uint32_t i = 0; i < tables->header->kernel_count; i++) {
        const nova_kernel_record *kernel = &tables->kernels[i];
        if (!nova_kernel_is_linked(kernel))
            continue;
        double longest = (double)tables->tilings[i].task_ns;
        nova_status status =
            nova_task_ranges_create(tables, i, nova_kernel_cost(kernel, 1),
                                    longest > least ? longest : least, workers, &plan->ranges[i]);
        if (status != NOVA_OK)
            return status;
    }
    return NOVA_OK;
}

/* Blocks of a device cost the same. */
static nova_status plan_cut_device_kernels(plan_state *plan, uint32_t most)
{
    const nova_tables *tables = plan->tables;
    double total = 0;
    for (uint32_t i = 0; i < tables->header->launch_count; i++)
        total += (double)tables->kernels[tables->launches[i].kernel].grid;
    double least = total / PLAN_MOST_TASKS;
    for (uint32_t i = 0; i < tables->header->kernel_count; i++) {
        double cost = (double)tables->kernels[i].grid, longest = cost / most;
        if (!nova_kernel_is_device(&tables->kernels[i]) || !plan_has_tiling(plan, i))
            continue;
        if (most > 1 && longest < least)
            longest = least;
        nova_status status = nova_task_ranges_create(tables, i, cost, longest > 1 ? longest : 1, 1,
                                                     &plan->ranges[i]);
        if (status != NOVA_OK)
            return status;
    }
    return NOVA_OK;
}

/* Turns the waits of the tasks into successors. */
static nova_status plan_finish(plan_state *plan, nova_task_plan *result)
{
    const nova_task_list *waits = &plan->edges.waits;
    uint32_t *successors = malloc((waits->count + 1) * sizeof *successors);
    if (successors == NULL)
        return NOVA_OUT_OF_MEMORY;
    nova_task *tasks = plan->edges.tasks;
    for (size_t i = 0; i < waits->count; i++)
        tasks[waits->items[i]].successor_count++;
    for (uint32_t i = 0, next = 0; i < plan->edges.count; i++) {
        tasks[i].first_successor = next;
        next += tasks[i].successor_count;
        tasks[i].successor_count = 0;
    }
    const uint32_t *wait = waits->items;
    for (uint32_t i = 0; i < plan->edges.count; i++)
        for (uint32_t k = 0; k < tasks[i].waits; k++) {
            nova_task *before = &tasks[*wait++];
            successors[before->first_successor + before->successor_count++] = i;
        }
    *result = (nova_task_plan){.tasks = tasks,
                               .successors = successors,
                               .task_count = plan->edges.count,
                               .successor_count = (uint32_t)waits->count};
    plan->edges.tasks = NULL;
    return NOVA_OK;
}

static nova_status plan_add_launch(plan_state *plan, uint32_t number)
{
    uint32_t index = plan->tables->launches[number].kernel;
    const nova_kernel_record *kernel = &plan->tables->kernels[index];
    if (plan->on_device && nova_kernel_is_device(kernel) && !plan_has_tiling(plan, index))
        return plan_add_whole(plan, number);
    bool is_cut = plan->on_device ? nova_kernel_is_device(kernel) : nova_kernel_is_linked(kernel);
    return is_cut ? plan_add_tasks(plan, number, &plan->ranges[index])
                  : plan_add_barrier(plan, number);
}

/* `width` is the number of threads, or the most tasks of a launch on a device. */
static nova_status plan_make(plan_state *plan, double total, unsigned width, nova_task_plan *result)
{
    const nova_tables_header *header = plan->tables->header;
    plan->ranges = calloc((size_t)header->kernel_count + 1, sizeof *plan->ranges);
    plan->base = calloc((size_t)header->buffer_count + 1, sizeof *plan->base);
    if (plan->ranges == NULL || plan->base == NULL)
        return NOVA_OUT_OF_MEMORY;
    nova_status status = nova_memory_create(&plan->memory);
    if (status == NOVA_OK)
        status = plan_place_buffers(plan);
    if (status == NOVA_OK)
        status = plan->on_device ? plan_cut_device_kernels(plan, width)
                                 : plan_cut_kernels(plan, total, width);
    for (uint32_t i = 0; status == NOVA_OK && i < header->launch_count; i++)
        status = plan_add_launch(plan, i);
    if (status == NOVA_OK && (plan->on_device || nova_task_edges_are_wide(&plan->edges)))
        status = plan_finish(plan, result);
    return status;
}

static nova_status plan_run(const nova_tables *tables, double total, unsigned width, bool on_device,
                            nova_task_plan *result)
{
    plan_state plan = {.tables = tables, .last = NOVA_NO_TASK, .on_device = on_device};
    nova_status status = plan_make(&plan, total, width, result);
    for (uint32_t i = 0; plan.ranges != NULL && i < tables->header->kernel_count; i++)
        nova_task_ranges_free(&plan.ranges[i]);
    nova_task_edges_free(&plan.edges);
    nova_memory_free(&plan.memory);
    free(plan.ranges);
    free(plan.base);
    return status == NOVA_OUT_OF_RANGE ? NOVA_OK : status; /* too large: its launches in order */
}

nova_status nova_task_plan_create(const nova_tables *tables, unsigned workers, uint64_t worth_ns,
                                  nova_task_plan *result)
{
    if (tables == NULL || result == NULL || tables->tilings == NULL || workers == 0)
        return NOVA_INVALID_ARGUMENT;
    *result = (nova_task_plan){0};
    double total;
    if (!plan_adds_up(tables, &total) || total < (double)worth_ns)
        return NOVA_OK;
    return plan_run(tables, total, workers, false, result);
}

nova_status nova_task_plan_create_device(const nova_tables *tables, uint32_t most,
                                         nova_task_plan *result)
{
    if (tables == NULL || result == NULL || most == 0)
        return NOVA_INVALID_ARGUMENT;
    *result = (nova_task_plan){0};
    double total;
    if (!plan_adds_up(tables, &total) || tables->devices == NULL)
        return NOVA_OK;
    return plan_run(tables, total, most, true, result);
}
void nova_task_plan_free(nova_task_plan *plan)
{
    free(plan->tasks);
    free(plan->successors);
    *plan = (nova_task_plan){0};
}
