/* Islands: kernels of the host that follow each other in a program of a device, as programs of the CPU. Their tables
 * are cut out of those of the file, with buffers that are places in the mirror. */
#include "gpu/device_state.h"

#include <stdlib.h>

static void *array(size_t count, size_t size)
{
    return calloc(count + 1, size); /* never NULL for an empty one */
}

static bool make_arrays(nova_island *island)
{
    const nova_tables_header *header = &island->header;
    island->buffers = array(header->buffer_count, sizeof *island->buffers);
    island->kernels = array(header->kernel_count, sizeof *island->kernels);
    island->launches = array(header->launch_count, sizeof *island->launches);
    island->operands = array(header->operand_count, sizeof *island->operands);
    island->tasks = array(header->task_count, sizeof *island->tasks);
    island->successors = array(header->successor_count, sizeof *island->successors);
    island->constants = array(header->operand_count, sizeof *island->constants);
    return island->buffers && island->kernels && island->launches && island->operands &&
           island->tasks && island->successors && island->constants;
}

/* A launch with a kernel and buffers of its own. */
static void fill_launch(const nova_device_program *program, nova_island *island, uint32_t index,
                        const nova_launch_record *launch, uint32_t first_operand)
{
    island->kernels[index] = program->tables.kernels[launch->kernel];
    island->launches[index] = (nova_launch_record){.kernel = index,
                                                   .first_operand = first_operand,
                                                   .operand_count = launch->operand_count,
                                                   .reads = launch->reads};
    for (uint32_t k = 0; k < launch->operand_count; k++) {
        const nova_buffer *buffer = nova_operand(program, launch, k);
        uint32_t own = first_operand + k;
        island->operands[own] = own;
        if (buffer->kind == NOVA_CONSTANT) {
            island->constants[own] = nova_mirror_constant(program, buffer);
            island->buffers[own] =
                (nova_buffer){.kind = NOVA_ARGUMENT, .value = own, .nbytes = buffer->nbytes};
        } else {
            island->buffers[own] = (nova_buffer){.kind = NOVA_WORKSPACE,
                                                 .value = nova_mirror_offset(program, buffer),
                                                 .nbytes = buffer->nbytes};
        }
    }
}

/* Tasks [first, first + count) of the program; whatever they wait for outside of the island has ended before. */
static void fill_tasks(const nova_device_program *program, nova_island *island, uint32_t first,
                       uint32_t first_launch)
{
    const nova_tables *tables = &program->tables;
    uint32_t count = island->header.task_count, edges = 0;
    for (uint32_t i = 0; i < count; i++) {
        const nova_task *task = &tables->tasks[first + i];
        nova_task *own = &island->tasks[i];
        own->launch = task->launch - first_launch;
        own->begin = task->begin;
        own->end = task->end;
        own->first_successor = edges;
        for (uint32_t k = 0; k < task->successor_count; k++) {
            uint32_t next = tables->successors[task->first_successor + k] - first;
            if (next >= count) /* also one before `first` */
                continue;
            island->successors[edges++] = next;
            island->tasks[next].waits++;
        }
        own->successor_count = edges - own->first_successor;
    }
    island->header.successor_count = edges;
}

nova_status nova_island_create(const nova_device_program *program, const nova_device_step *step,
                               const nova_image *image, nova_island *island, nova_error *error)
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
    island->header = (nova_tables_header){
        .workspace_size = program->mixture.layout,
        .buffer_count = operands,
        .kernel_count = end - first,
        .launch_count = end - first,
        .operand_count = operands,
        .task_count = last_task - first_task,
        .successor_count = successors, /* at most: those inside */
        .scratch_size = tables->header->scratch_size,
    };
    if (!make_arrays(island))
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the program");
    for (uint32_t i = first, operand = 0; i < end; i++) {
        fill_launch(program, island, i - first, &tables->launches[i], operand);
        operand += tables->launches[i].operand_count;
    }
    fill_tasks(program, island, first_task, first);
    const nova_tables own = {.header = &island->header,
                             .buffers = island->buffers,
                             .kernels = island->kernels,
                             .launches = island->launches,
                             .operands = island->operands,
                             .tasks = island->tasks,
                             .successors = island->successors,
                             .strings = tables->strings};
    return nova_program_create(&own, image, 0, &island->program, error);
}

void nova_island_free(nova_island *island)
{
    nova_program_destroy(island->program);
    free(island->buffers);
    free(island->kernels);
    free(island->launches);
    free(island->operands);
    free(island->tasks);
    free(island->successors);
    free(island->constants);
}
