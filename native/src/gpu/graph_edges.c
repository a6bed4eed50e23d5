/* The edges of the graphs of a program: which launches of a step wait for which others.
 *
 * Launches are ordered as the program says, one after the other, except where two that do not
 * depend on each other gain by running concurrently: both leave multiprocessors free, and both take
 * longer than the fork and join of a graph cost. A launch whose results the next ones do not need,
 * such as the update of a weight, runs with them. The dependences are those of the task table
 * (nova/task_plan.h, one task a launch). A simulated device gets all branches: it runs them in
 * another order than the program, which shows dependences that are missing. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/device_state.h"
#include "nova/task_plan.h"

/* A step with more launches is a chain: sets of ancestors take memory by the square. */
enum { EDGES_MOST_LAUNCHES = 4096 };

/* Microseconds from which a kernel is worth a branch: fork and join cost 1.3 on an H200. */
static const double EDGES_WORTH_US = 4;

/* A launch is concurrent with those after it if it is not needed for so many of them. It has at
 * most so much shared memory and time: its blocks must not keep the others away for long. */
enum { EDGES_CONCURRENT_LAUNCHES = 6, EDGES_CONCURRENT_SHARED = 112 << 10 };
static const double EDGES_MOST_CONCURRENT_US = 20;

/* A launch after a longer one is not dependent, unless the knob asks for it: its blocks would wait
 * on multiprocessors that the longer one uses, which costs more than the start of a launch. */
static const double EDGES_MOST_DEPENDENT_US = 15;

/* Rates by which the time of a kernel is estimated: those of an H200 that kernels reach. */
static const double EDGES_MATRIX_FLOPS_PER_US = 4e8, EDGES_VECTOR_FLOPS_PER_US = 2e7;
static const double EDGES_BYTES_PER_US = 3.5e6;

typedef struct {
    const nova_device_program *program;
    const nova_device_step *step;
    bool with_branches, with_dependent;
    double most_dependent_us; /* of the launch before a dependent one */
    size_t words;
    uint64_t *ancestors; /* of each launch of the step: a set of those before it */
    uint64_t *needed;    /* of each launch: those that it depends on directly */
    bool *is_concurrent; /* whether each launch runs with those after it */
    uint32_t *out_count; /* edges from each launch to launches of the chain */
} edges_state;

static uint64_t *edges_row(const edges_state *state, uint64_t *sets, uint32_t index)
{
    return sets + index * state->words;
}

static bool edges_has(const uint64_t *set, uint32_t index)
{
    return (set[index / 64] >> index % 64 & 1) != 0;
}

static void edges_insert(uint64_t *set, uint32_t index)
{
    set[index / 64] |= UINT64_C(1) << index % 64;
}

/* --- estimates -------------------------------------------------------------------------------- */

static uint64_t edges_blocks(const edges_state *state, uint32_t index)
{
    const nova_launch_record *launch = nova_step_launch(state->program, state->step, index);
    const uint32_t *grid = state->program->tables.devices[launch->kernel].grid;
    return (uint64_t)grid[0] * grid[1] * grid[2];
}

static double edges_estimate_us(const edges_state *state, uint32_t index)
{
    const nova_launch_record *launch = nova_step_launch(state->program, state->step, index);
    const nova_kernel_record *kernel = &state->program->tables.kernels[launch->kernel];
    double share = (double)edges_blocks(state, index) /
                   (double)(state->program->device->info.multiprocessors + 1);
    double rate = (kernel->core & NOVA_MATRIX_CORES) != 0 ? EDGES_MATRIX_FLOPS_PER_US
                                                          : EDGES_VECTOR_FLOPS_PER_US;
    double compute = (double)kernel->flops / (rate * (share < 1 ? share : 1));
    double memory = (double)kernel->bytes / EDGES_BYTES_PER_US;
    return compute > memory ? compute : memory;
}

/* Whether a launch should run concurrently with those before it that it does not depend on. */
static bool edges_is_worth(const edges_state *state, uint32_t index, const uint64_t *before)
{
    if (state->program->device->driver->checks_ranges)
        return true;
    if (edges_estimate_us(state, index) < EDGES_WORTH_US)
        return false;
    uint64_t most = 0;
    double other = 0;
    for (uint32_t i = 0; i < index; i++) {
        if (edges_has(before, i))
            continue;
        uint64_t blocks = edges_blocks(state, i);
        most = blocks > most ? blocks : most;
        other += edges_estimate_us(state, i);
    }
    uint64_t processors = (uint64_t)state->program->device->info.multiprocessors;
    return other >= EDGES_WORTH_US && most + edges_blocks(state, index) <= processors;
}

/* Whether a launch runs concurrently with those after it: none of the next ones needs it, and
 * blocks of both fit on a multiprocessor. */
static bool edges_is_concurrent(const edges_state *state, uint32_t index)
{
    const nova_device_program *program = state->program;
    uint32_t end = index + EDGES_CONCURRENT_LAUNCHES;
    if (end > state->step->count || edges_estimate_us(state, index) > EDGES_MOST_CONCURRENT_US)
        return false;
    for (uint32_t i = index; i < end; i++) {
        const nova_launch_record *launch = nova_step_launch(program, state->step, i);
        if (program->tables.devices[launch->kernel].shared > EDGES_CONCURRENT_SHARED)
            return false;
        if (i > index && edges_has(edges_row(state, state->needed, i), index))
            return false;
    }
    return true;
}

/* --- edges ------------------------------------------------------------------------------------ */

/* Appends the edges to a launch from the launches of `set`, without those that others imply. */
static void edges_append(edges_state *state, uint32_t index, const uint64_t *set,
                         nova_graph_edges *edges)
{
    uint64_t *reached = edges_row(state, state->ancestors, index);
    for (uint32_t i = index; i-- > 0;) {
        if (!edges_has(set, i) || edges_has(reached, i))
            continue;
        edges->items[edges->count++] = (nova_graph_edge){.before = i, .after = index};
        state->out_count[i] += !state->is_concurrent[index];
        const uint64_t *above = edges_row(state, state->ancestors, i);
        for (size_t word = 0; word < state->words; word++)
            reached[word] |= above[word];
        edges_insert(reached, i);
    }
}

/* The launches that are ancestors through the direct dependences of a launch. */
static void edges_find_before(const edges_state *state, const uint64_t *needed, uint32_t index,
                              uint64_t *before)
{
    memcpy(before, needed, state->words * sizeof *before);
    for (uint32_t i = 0; i < index; i++) {
        const uint64_t *above = edges_row(state, state->ancestors, i);
        for (size_t word = 0; edges_has(needed, i) && word < state->words; word++)
            before[word] |= above[word];
    }
}

/* Whether an edge may be a dependent launch: the kernel waits by itself, and the two launches are
 * part of a chain. A launch that runs concurrently with the chain starts after a full edge, and
 * leaves those of the chain as they are: every kernel waits for the end of all launches before it,
 * so that the end of a launch of the chain is the end of its ancestors too. */
static void edges_mark_dependent(const edges_state *state, nova_graph_edges *edges, uint32_t first)
{
    const nova_tables *tables = &state->program->tables;
    for (uint32_t i = first; i < edges->count; i++) {
        nova_graph_edge *edge = &edges->items[i];
        const nova_launch_record *launch =
            nova_step_launch(state->program, state->step, edge->after);
        bool is_only = (i == first || edge[-1].after != edge->after) &&
                       (i + 1 == edges->count || edge[1].after != edge->after) &&
                       !state->is_concurrent[edge->after] && state->out_count[edge->before] == 1;
        edge->is_dependent = state->with_dependent && is_only &&
                             edges_estimate_us(state, edge->before) <= state->most_dependent_us &&
                             (tables->kernels[launch->kernel].core & NOVA_DEPENDENT) != 0;
        edges->dependent_count += edge->is_dependent;
        if (edge->is_dependent)
            edges->least_shared[launch->kernel] = 1; /* `edges_spread_blocks` computes it */
    }
}

static nova_status edges_add_step(edges_state *state, nova_graph_edges *edges)
{
    uint32_t count = state->step->count, first = edges->count, last = 0;
    uint64_t *before = calloc(state->words + 1, sizeof *before);
    if (before == NULL)
        return NOVA_OUT_OF_MEMORY;
    for (uint32_t i = 1; i < count; i++) {
        uint64_t *needed = edges_row(state, state->needed, i);
        if (state->with_branches)
            edges_find_before(state, needed, i, before);
        bool is_concurrent = state->with_branches && edges_is_concurrent(state, i);
        state->is_concurrent[i] = is_concurrent;
        if (!state->with_branches ||
            (!edges_has(before, last) && !is_concurrent && !edges_is_worth(state, i, before)))
            edges_insert(needed, last);
        edges_append(state, i, needed, edges);
        edges->branch_count +=
            is_concurrent || !edges_has(edges_row(state, state->ancestors, i), last);
        if (!is_concurrent)
            last = i; /* the launches after it follow this one */
    }
    edges_mark_dependent(state, edges, first);
    free(before);
    return NOVA_OK;
}

/* The direct dependences between the launches of a step. */
static void edges_read_plan(edges_state *state, const nova_task_plan *plan)
{
    const nova_device_program *program = state->program;
    uint32_t end = state->step->first + state->step->count;
    for (uint32_t i = state->step->first; i < end; i++) /* `launches` is in ascending order */
        for (uint32_t task = 0; task < plan->task_count; task++) {
            const nova_task *before = &plan->tasks[task];
            if (before->launch != program->launches[i])
                continue;
            for (uint32_t k = 0; k < before->successor_count; k++) {
                uint32_t launch = plan->tasks[plan->successors[before->first_successor + k]].launch;
                for (uint32_t after = i + 1; after < end; after++)
                    if (program->launches[after] == launch)
                        edges_insert(edges_row(state, state->needed, after - state->step->first),
                                     i - state->step->first);
            }
        }
}

static nova_status edges_make(const nova_device_program *program, const nova_device_step *step,
                              const nova_task_plan *plan, nova_device_overlap overlap,
                              nova_graph_edges *edges)
{
    edges_state state = {.program = program, .step = step};
    bool is_long = step->count > EDGES_MOST_LAUNCHES;
    state.with_branches = plan->task_count > 0 && !is_long &&
                          (overlap == NOVA_OVERLAP_AUTO || overlap == NOVA_OVERLAP_BRANCHES);
    state.with_dependent = overlap == NOVA_OVERLAP_AUTO || overlap == NOVA_OVERLAP_DEPENDENT;
    state.most_dependent_us = overlap == NOVA_OVERLAP_AUTO ? EDGES_MOST_DEPENDENT_US : INFINITY;
    if (is_long) {
        for (uint32_t i = 1; i < step->count; i++)
            edges->items[edges->count++] = (nova_graph_edge){.before = i - 1, .after = i};
        return NOVA_OK;
    }
    state.words = step->count / 64 + 1;
    state.ancestors = calloc(step->count * state.words, sizeof *state.ancestors);
    state.needed = calloc(step->count * state.words, sizeof *state.needed);
    state.is_concurrent = calloc(step->count, sizeof *state.is_concurrent);
    state.out_count = calloc(step->count, sizeof *state.out_count);
    nova_status status = state.ancestors != NULL && state.needed != NULL &&
                                 state.is_concurrent != NULL && state.out_count != NULL
                             ? NOVA_OK
                             : NOVA_OUT_OF_MEMORY;
    if (status == NOVA_OK && state.with_branches)
        edges_read_plan(&state, plan);
    if (status == NOVA_OK)
        status = edges_add_step(&state, edges);
    free(state.ancestors);
    free(state.needed);
    free(state.is_concurrent);
    free(state.out_count);
    return status;
}

/* Whether an output that is the memory of a donated argument is a buffer of its own in the tables:
 * the plan does not know that they are the same. */
bool nova_graph_has_aliases(const nova_device_program *program)
{
    for (uint32_t i = 0; i < program->tables.header->buffer_count; i++) {
        const nova_buffer *buffer = &program->tables.buffers[i];
        bool is_part = buffer->kind == NOVA_OUTPUT_PART;
        if ((is_part || buffer->kind == NOVA_OUTPUT) &&
            program->alias[is_part ? buffer->output : buffer->value] >= 0)
            return true;
    }
    return false;
}

/* Blocks of a dependent launch start on the multiprocessors that the launch before it leaves free,
 * as many as fit, and not one on each: a launch of few blocks would have them on a few. So a block
 * of a kernel with dependent launches gets shared memory that no more of them fit than there are
 * when they are spread evenly. */
static nova_status edges_spread_blocks(const nova_device_program *program, nova_graph_edges *edges,
                                       nova_error *error)
{
    enum { SHARED_KIB = 228, MOST_EACH = 4 }; /* of a multiprocessor since Hopper */
    nova_driver *driver = program->device->driver;
    const nova_tables *tables = &program->tables;
    uint64_t processors = (uint64_t)program->device->info.multiprocessors;
    bool has_dependent = edges->dependent_count > 0 && !driver->checks_ranges;
    for (uint32_t i = 0; has_dependent && i < tables->header->kernel_count; i++) {
        const nova_device_launch *shape = &tables->devices[i];
        bool is_spread = edges->least_shared[i] != 0;
        edges->least_shared[i] = 0;
        uint64_t blocks = (uint64_t)shape->grid[0] * shape->grid[1] * shape->grid[2];
        uint64_t each = processors > 0 ? (blocks + processors - 1) / processors : 0;
        uint32_t least = (uint32_t)(SHARED_KIB / (each + 1)) << 10;
        if (!is_spread || each == 0 || each > MOST_EACH || shape->shared >= least)
            continue;
        int result = driver->function_allow_shared(driver, program->functions[i], least);
        nova_status status = nova_device_check(program->device, result,
                                               "a kernel gets no more shared memory", error);
        if (status != NOVA_OK)
            return status;
        edges->least_shared[i] = least;
    }
    return NOVA_OK;
}

/* At most all pairs of a step with branches, else a chain. */
static uint64_t edges_capacity(const nova_device_program *program, const nova_task_plan *plan)
{
    return (uint64_t)program->launch_count + plan->successor_count + 1;
}

nova_status nova_graph_edges_prepare(nova_device_program *program, nova_device_overlap overlap,
                                     nova_error *error)
{
    nova_graph_edges *edges = &program->edges;
    nova_task_plan plan = {0};
    nova_status status = NOVA_OK;
    if (program->has_graphs && !nova_graph_has_aliases(program) &&
        (overlap == NOVA_OVERLAP_AUTO || overlap == NOVA_OVERLAP_BRANCHES))
        status = nova_task_plan_create_device(&program->tables, 1, &plan);
    edges->starts = calloc((size_t)program->device_count + 1, sizeof *edges->starts);
    edges->items = calloc(edges_capacity(program, &plan), sizeof *edges->items);
    edges->least_shared =
        calloc((size_t)program->tables.header->kernel_count + 1, sizeof *edges->least_shared);
    if (edges->starts == NULL || edges->items == NULL || edges->least_shared == NULL)
        status = NOVA_OUT_OF_MEMORY;
    for (uint32_t i = 0; status == NOVA_OK && i < program->step_count; i++) {
        const nova_device_step *step = &program->steps[i];
        if (step->type != NOVA_DEVICE_STEP)
            continue;
        status = edges_make(program, step, &plan, overlap, edges);
        edges->starts[step->number + 1] = edges->count;
    }
    nova_task_plan_free(&plan);
    return status == NOVA_OK ? edges_spread_blocks(program, edges, error)
                             : nova_fail(error, status, "", "no memory for the graph of launches");
}

void nova_graph_edges_free(nova_graph_edges *edges)
{
    free(edges->items);
    free(edges->starts);
    free(edges->least_shared);
}
