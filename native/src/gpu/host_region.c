/* Host regions: consecutive host kernels of a hybrid program, as CPU programs. Their tables are a
 * slice of those of the file, with buffers in the host shadow; so are their tasks, in files that
 * have tasks instead of tilings. */
#include "gpu/device_state.h"

#include <stdlib.h>

static void *region_array(size_t count, size_t size)
{
    return calloc(count + 1, size); /* never NULL for an empty one */
}

static bool region_make_arrays(nova_host_region *region)
{
    const nova_tables_header *header = &region->header;
    region->buffers = region_array(header->buffer_count, sizeof *region->buffers);
    region->kernels = region_array(header->kernel_count, sizeof *region->kernels);
    region->launches = region_array(header->launch_count, sizeof *region->launches);
    region->operands = region_array(header->operand_count, sizeof *region->operands);
    region->tilings = region_array(header->kernel_count, sizeof *region->tilings);
    region->tasks = region_array(header->task_count, sizeof *region->tasks);
    region->successors = region_array(header->successor_count, sizeof *region->successors);
    region->constants = region_array(header->operand_count, sizeof *region->constants);
    return region->buffers && region->kernels && region->launches && region->operands &&
           region->tilings && region->tasks && region->successors && region->constants;
}

/* A launch with its own kernel and buffers. */
static void region_fill_launch(const nova_device_program *program, nova_host_region *region,
                               uint32_t index, const nova_launch_record *launch,
                               uint32_t first_operand)
{
    region->kernels[index] = program->tables.kernels[launch->kernel];
    if (program->tables.tilings != NULL)
        region->tilings[index] = program->tables.tilings[launch->kernel];
    region->launches[index] = (nova_launch_record){.kernel = index,
                                                   .first_operand = first_operand,
                                                   .operand_count = launch->operand_count,
                                                   .reads = launch->reads};
    for (uint32_t k = 0; k < launch->operand_count; k++) {
        const nova_buffer *buffer = nova_operand(program, launch, k);
        uint32_t local = first_operand + k;
        region->operands[local] = local;
        if (buffer->kind == NOVA_CONSTANT) {
            region->constants[local] = nova_host_shadow_constant(program, buffer);
            region->buffers[local] =
                (nova_buffer){.kind = NOVA_ARGUMENT, .value = local, .nbytes = buffer->nbytes};
        } else {
            region->buffers[local] =
                (nova_buffer){.kind = NOVA_WORKSPACE,
                              .value = nova_host_shadow_offset(program, buffer),
                              .nbytes = buffer->nbytes};
        }
    }
}

/* Tasks [first, first + count) of the program; predecessors outside of the region have finished. */
static void region_fill_tasks(const nova_device_program *program, nova_host_region *region,
                              uint32_t first, uint32_t first_launch)
{
    const nova_tables *tables = &program->tables;
    uint32_t count = region->header.task_count, edges = 0;
    for (uint32_t i = 0; i < count; i++) {
        const nova_task *task = &tables->tasks[first + i];
        nova_task *local = &region->tasks[i];
        local->launch = task->launch - first_launch;
        local->begin = task->begin;
        local->end = task->end;
        local->first_successor = edges;
        for (uint32_t k = 0; k < task->successor_count; k++) {
            uint32_t next = tables->successors[task->first_successor + k] - first;
            if (next >= count) /* also one before `first` */
                continue;
            region->successors[edges++] = next;
            region->tasks[next].waits++;
        }
        local->successor_count = edges - local->first_successor;
    }
    region->header.successor_count = edges;
}

nova_status nova_host_region_create(const nova_device_program *program,
                                    const nova_device_step *step, const nova_image *image,
                                    nova_host_region *region, nova_error *error)
{
    const nova_tables *tables = &program->tables;
    uint32_t first = program->launches[step->first];
    uint32_t end = program->launches[step->first + step->count - 1] + 1;
    uint32_t first_task = 0, last_task = tables->header->task_count;
    while (first_task < last_task && tables->tasks[first_task].launch < first)
        first_task++;
    while (last_task > first_task && tables->tasks[last_task - 1].launch >= end)
        last_task--;
    uint32_t operands = 0, successors = 0;
    for (uint32_t i = first; i < end; i++)
        operands += tables->launches[i].operand_count;
    for (uint32_t i = first_task; i < last_task; i++)
        successors += tables->tasks[i].successor_count;
    region->header = (nova_tables_header){
        .workspace_size = program->hybrid.layout,
        .buffer_count = operands,
        .kernel_count = end - first,
        .launch_count = end - first,
        .operand_count = operands,
        .task_count = last_task - first_task,
        .successor_count = successors, /* at most: those inside */
        .scratch_size = tables->header->scratch_size,
    };
    if (!region_make_arrays(region))
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the program");
    for (uint32_t i = first, operand = 0; i < end; i++) {
        region_fill_launch(program, region, i - first, &tables->launches[i], operand);
        operand += tables->launches[i].operand_count;
    }
    region_fill_tasks(program, region, first_task, first);
    const nova_tables local = {.header = &region->header,
                               .buffers = region->buffers,
                               .kernels = region->kernels,
                               .launches = region->launches,
                               .operands = region->operands,
                               .tasks = region->tasks,
                               .successors = region->successors,
                               .tilings = tables->tilings != NULL ? region->tilings : NULL,
                               .tiling_words = tables->tiling_words,
                               .tiling_word_count = tables->tiling_word_count,
                               .strings = tables->strings};
    return nova_program_create(&local, image, 0, &region->program, error);
}

void nova_host_region_free(nova_host_region *region)
{
    nova_program_destroy(region->program);
    free(region->buffers);
    free(region->kernels);
    free(region->launches);
    free(region->operands);
    free(region->tilings);
    free(region->tasks);
    free(region->successors);
    free(region->constants);
}
