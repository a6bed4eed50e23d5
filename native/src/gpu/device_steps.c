/* Groups the launches of a program into steps, and computes the copies that host regions wait for,
 * at load time. */
#include <stdlib.h>

#include "gpu/device_state.h"

/* --- steps ------------------------------------------------------------------------------------ */

static nova_step_type steps_type(const nova_device_program *program, uint32_t index)
{
    const nova_launch_record *launch = &program->tables.launches[program->launches[index]];
    uint32_t core = nova_launch_core(program, launch);
    if ((program->tables.kernels[launch->kernel].core & NOVA_CONTROL) != 0)
        return NOVA_CONTROL_STEP;
    if (core == NOVA_WHILE)
        return NOVA_LOOP_STEP;
    return core == NOVA_DEVICE  ? NOVA_DEVICE_STEP
           : core > NOVA_DEVICE ? NOVA_COPY_STEP
                                : NOVA_HOST_STEP;
}

/* Whether launch `index` extends the step of the previous launch. A host region is one range of the
 * tables: empty launches may be inside, if they are host launches. */
static bool steps_extends(const nova_device_program *program, uint32_t index)
{
    nova_step_type type = steps_type(program, index);
    if (index == 0 || type >= NOVA_LOOP_STEP || steps_type(program, index - 1) != type)
        return false;
    for (uint32_t i = program->launches[index - 1] + 1;
         type == NOVA_HOST_STEP && i < program->launches[index]; i++)
        if (nova_launch_core(program, &program->tables.launches[i]) >= NOVA_DEVICE)
            return false;
    return true;
}

/* Whether launch `index` is after the body of a loop. */
static bool steps_is_after(const nova_device_program *program, uint32_t index,
                           const nova_device_step *loop)
{
    uint32_t launch = program->launches[loop->first];
    uint32_t kernel = program->tables.launches[launch].kernel;
    return program->launches[index] > launch + (uint64_t)program->tables.kernels[kernel].grid;
}

static nova_status steps_make(nova_device_program *program, nova_error *error)
{
    uint32_t numbers[NOVA_CONTROL_STEP + 1] = {0}, loops[NOVA_MOST_LOOPS], depth = 0;
    program->steps = calloc(program->launch_count + 1, sizeof *program->steps);
    if (program->steps == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the program");
    for (uint32_t i = 0; i < program->launch_count; i++) {
        nova_step_type type = steps_type(program, i);
        bool is_new = !steps_extends(program, i);
        for (; depth > 0 && steps_is_after(program, i, &program->steps[loops[depth - 1]]);
             is_new = true)
            program->steps[loops[--depth]].end = program->step_count;
        if (type == NOVA_LOOP_STEP)
            /* as many as the tables may have inside of each other */
            loops[depth++] = program->step_count;
        if (is_new)
            program->steps[program->step_count++] =
                (nova_device_step){.type = type, .first = i, .number = numbers[type]++};
        program->steps[program->step_count - 1].count++;
    }
    while (depth > 0)
        program->steps[loops[--depth]].end = program->step_count;
    for (uint32_t i = 0; i < program->step_count; i++) {
        nova_device_step *step = &program->steps[i];
        if (step->type != NOVA_DEVICE_STEP)
            continue;
        /* The CPU launches a graph in half of the time that it needs for a kernel: a program that
         * is one launch is a graph, too. A launch between other steps waits for them anyway. */
        step->has_graph = step->count > 1 || program->step_count == 1;
        program->has_graphs |= step->has_graph;
        program->has_single |= !step->has_graph;
    }
    program->device_count = numbers[NOVA_DEVICE_STEP];
    program->control_count = numbers[NOVA_CONTROL_STEP];
    program->hybrid.copy_count = numbers[NOVA_COPY_STEP];
    program->hybrid.host_region_count = numbers[NOVA_HOST_STEP];
    return NOVA_OK;
}

/* --- the copies that host regions wait for --------------------------------------------------- */

/* Whether a copy and a kernel of the host must not be at work at the same time. */
static bool steps_overlaps(const nova_device_program *program, const nova_launch_record *copy,
                           const nova_launch_record *launch)
{
    const nova_buffer *moved = nova_operand(program, copy, 0);
    uint64_t from = nova_host_shadow_offset(program, moved), to = from + moved->nbytes;
    uint32_t first = nova_launch_core(program, copy) == NOVA_TO_HOST ? 0 : launch->reads;
    for (uint32_t k = first; k < launch->operand_count; k++) {
        const nova_buffer *buffer = nova_operand(program, launch, k);
        if (buffer->kind == NOVA_CONSTANT)
            continue;
        uint64_t start = nova_host_shadow_offset(program, buffer);
        if (start < to && from < start + buffer->nbytes)
            return true;
    }
    return false;
}

static bool steps_any_overlap(const nova_device_program *program, const nova_device_step *copies,
                              const nova_device_step *region)
{
    for (uint32_t i = 0; i < copies->count; i++)
        for (uint32_t k = 0; k < region->count; k++)
            if (steps_overlaps(program, nova_step_launch(program, copies, i),
                               nova_step_launch(program, region, k)))
                return true;
    return false;
}

/* The last copy step before a host region that shares a buffer with it: earlier copies have ended
 * by then. */
static uint32_t steps_find_waits(const nova_device_program *program, const nova_device_step *region)
{
    for (const nova_device_step *step = region; step-- > program->steps;)
        if (step->type == NOVA_COPY_STEP && steps_any_overlap(program, step, region))
            return step->number;
    return NOVA_NO_STEP;
}

/* Finds copies to the host of arguments that still have the caller's value: kernels change only
 * donated arguments. */
static nova_status steps_find_originals(nova_device_program *program, nova_error *error)
{
    bool *is_original = calloc(program->launch_count + 1, sizeof *is_original);
    bool *is_changed =
        calloc(program->argument_count + program->output_count + 1, sizeof *is_changed);
    program->hybrid.is_original = is_original;
    if (is_original == NULL || is_changed == NULL) {
        free(is_changed);
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the program");
    }
    for (uint32_t i = 0; i < program->launch_count; i++) {
        const nova_launch_record *launch = &program->tables.launches[program->launches[i]];
        const nova_buffer *first =
            launch->operand_count > 0 ? nova_operand(program, launch, 0) : NULL;
        bool is_copy = nova_launch_core(program, launch) == NOVA_TO_HOST;
        is_original[i] = is_copy && first->kind == NOVA_ARGUMENT && !is_changed[first->value];
        for (uint32_t k = 0; !is_copy && k < launch->operand_count; k++) {
            const nova_buffer *buffer = nova_operand(program, launch, k);
            if (buffer->kind == NOVA_OUTPUT ||
                (buffer->kind == NOVA_ARGUMENT && program->donated[buffer->value]))
                is_changed[nova_host_shadow_slot(program, buffer)] = true;
        }
    }
    free(is_changed);
    return NOVA_OK;
}

nova_status nova_steps_prepare(nova_device_program *program, const nova_device_source *source,
                               nova_error *error)
{
    nova_hybrid_layout *hybrid = &program->hybrid;
    nova_status status = steps_make(program, error);
    if (status != NOVA_OK || hybrid->copy_count + hybrid->host_region_count == 0)
        return status;
    status = nova_host_shadow_lay_out(program, source, error);
    if (status == NOVA_OK)
        status = steps_find_originals(program, error);
    hybrid->host_regions = calloc(hybrid->host_region_count + 1, sizeof *hybrid->host_regions);
    if (status == NOVA_OK && hybrid->host_regions == NULL)
        status = nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the program");
    if (status == NOVA_OK && hybrid->host_region_count > 0 && source->image == NULL)
        status = nova_fail(error, NOVA_UNSUPPORTED, "tables-code",
                           "kernels are pinned to the host, and their code is not there");
    for (uint32_t i = 0; status == NOVA_OK && i < program->step_count; i++) {
        const nova_device_step *step = &program->steps[i];
        if (step->type != NOVA_HOST_STEP)
            continue;
        nova_host_region *region = &hybrid->host_regions[step->number];
        region->waits = steps_find_waits(program, step);
        status = nova_host_region_create(program, step, source->image, region, error);
        if (status != NOVA_OK)
            break;
        uint64_t needed = nova_program_workspace_size(region->program);
        hybrid->size = needed > hybrid->size ? needed : hybrid->size;
    }
    return status;
}

void nova_steps_free(nova_device_program *program)
{
    nova_hybrid_layout *hybrid = &program->hybrid;
    for (uint32_t i = 0; hybrid->host_regions != NULL && i < hybrid->host_region_count; i++)
        nova_host_region_free(&hybrid->host_regions[i]);
    free(hybrid->host_regions);
    free(hybrid->is_original);
    free(hybrid->shadow_offsets);
    free(hybrid->constants);
    free(program->steps);
}
