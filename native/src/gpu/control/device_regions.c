/* The regions of a program with loops and branches on a device, found at load time. */
#include <stdlib.h>

#include "gpu/control/device_control.h"

/* Launches of an unrolled loop: their graph takes memory of the device, and time to create. The
 * rows of a persistent kernel should fit into shared memory, and its iterations cost little. */
enum { MOST_UNROLLED = 2048, MOST_UNROLLED_ROWS = 48 };

/* --- unrolling -------------------------------------------------------------------------------- */

static uint64_t regions_count_nodes(const nova_device_program *program, const nova_tables *tables,
                                    const nova_control_record *control);

/* Whether so many iterations of so many nodes are unrolled. */
static bool regions_is_short(const nova_device_program *program, uint64_t nodes, int64_t length)
{
    bool has_rows = nova_persistent_has_kernel(&program->tables);
    uint64_t most = has_rows ? MOST_UNROLLED_ROWS : MOST_UNROLLED;
    return length == 0 || nodes <= most / (uint64_t)length;
}

/* The nodes of the flow of all launches of a block. */
static uint64_t regions_count_block(const nova_device_program *program, const nova_tables *tables)
{
    uint64_t nodes = 0;
    for (uint32_t i = 0; i < tables->header->launch_count; i++) {
        uint32_t kernel = tables->launches[i].kernel;
        nodes += (tables->kernels[kernel].core & NOVA_CONTROL) == 0
                     ? 1
                     : regions_count_nodes(program, tables, nova_tables_control(tables, kernel));
    }
    return nodes;
}

static uint64_t regions_count_nodes(const nova_device_program *program, const nova_tables *tables,
                                    const nova_control_record *control)
{
    enum { DECISION = 3 }; /* kernels around the node of a loop or branch, and itself */
    const uint32_t *numbers = tables->container.regions + control->first_region;
    uint64_t nodes = 0;
    for (uint32_t i = 0; i < control->region_count; i++)
        nodes += regions_count_block(program, &program->regions[numbers[i]].tables);
    if (control->construct != NOVA_LOOP_FOR || !regions_is_short(program, nodes, control->length))
        return nodes + DECISION;
    return nodes * (uint64_t)control->length;
}

bool nova_control_is_unrolled(const nova_device_program *program, const nova_tables *tables,
                              const nova_control_record *control)
{
    const uint32_t *numbers = tables->container.regions + control->first_region;
    return program->loops == NOVA_LOOPS_AUTO && control->construct == NOVA_LOOP_FOR &&
           regions_is_short(program,
                            regions_count_block(program, &program->regions[numbers[0]].tables),
                            control->length);
}

/* --- positions -------------------------------------------------------------------------------- */

/* Whether the region of a loop uses its position. */
static bool regions_use_position(const nova_tables *region)
{
    for (uint32_t i = 0; i < region->header->buffer_count; i++)
        if (region->buffers[i].kind == NOVA_ARGUMENT && region->buffers[i].value == 0)
            return true;
    return false;
}

/* The length of the longest loop that reads its position from the table of positions. */
static int64_t regions_count_positions(const nova_device_program *program)
{
    const nova_container *container = &program->tables.container;
    int64_t most = 0;
    for (uint32_t i = 0; i < container->header->control_count; i++) {
        const nova_control_record *control = &container->controls[i];
        if (control->construct != NOVA_LOOP_FOR)
            continue;
        uint32_t number = container->regions[control->first_region];
        bool has_flow = program->loops != NOVA_LOOPS_HOST &&
                        !nova_control_is_unrolled(program, &program->tables, control);
        if (!has_flow && control->length > most &&
            regions_use_position(&program->regions[number].tables))
            most = control->length;
    }
    return most;
}

/* The numbers from 0 on, which loops with addresses of their own for each iteration point to. */
static nova_status regions_upload_positions(nova_device_program *program, nova_error *error)
{
    nova_device *device = program->device;
    int64_t count = regions_count_positions(program);
    if (count == 0)
        return NOVA_OK;
    uint64_t size = (uint64_t)count * sizeof(int64_t);
    int64_t *numbers = malloc(size);
    if (numbers == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the program");
    for (int64_t i = 0; i < count; i++)
        numbers[i] = i;
    nova_double_buffer *buffer;
    nova_status status =
        nova_device_take_inside(device, size, device->stream, &program->positions, error);
    if (status == NOVA_OK)
        status = nova_double_buffer_take(device, &buffer, error);
    if (status == NOVA_OK) {
        status = nova_double_buffer_upload(device, buffer, program->positions->address, numbers,
                                           size, device->stream, error);
        nova_double_buffer_give(device, buffer);
    }
    free(numbers);
    if (status == NOVA_OK)
        status = nova_device_check(
            device, device->driver->stream_synchronize(device->driver, device->stream),
            "the positions of loops cannot be copied to the device", error);
    return status;
}

/* --- regions ---------------------------------------------------------------------------------- */

static uint64_t regions_most_carries(const nova_device_program *program)
{
    const nova_container *container = &program->tables.container;
    uint64_t most = 0;
    for (uint32_t i = 0; i < container->header->control_count; i++)
        if (container->controls[i].carries > most)
            most = container->controls[i].carries;
    return most;
}

static nova_status regions_load(nova_device_program *program, uint32_t number, nova_error *error)
{
    nova_device_region *region = &program->regions[number];
    nova_tables_region(&program->tables, number, &region->tables);
    uint64_t count = region->tables.header->kernel_count + UINT64_C(1);
    uint64_t outputs = regions_most_carries(program);
    region->functions = calloc(count, sizeof *region->functions);
    region->first_maps = calloc(count, sizeof *region->first_maps);
    region->has_output = calloc(outputs + 1, 1);
    if (region->functions == NULL || region->first_maps == NULL || region->has_output == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the program");
    nova_tables_mark_outputs(&region->tables, region->has_output, outputs);
    return nova_device_find_kernels(program, region, error);
}

nova_status nova_control_prepare(nova_device_program *program, const nova_device_source *source,
                                 nova_error *error)
{
    nova_driver *driver = program->device->driver;
    uint32_t count = nova_tables_region_count(&program->tables);
    if (count == 0)
        return NOVA_OK;
    program->loops = driver->flow_is_supported(driver) ? source->loops : NOVA_LOOPS_HOST;
    if (nova_persistent_has_kernel(&program->tables) && program->loops == NOVA_LOOPS_HOST)
        program->loops = source->loops == NOVA_LOOPS_HOST ? NOVA_LOOPS_NODES : source->loops;
    program->has_dependent_flows =
        source->overlap == NOVA_OVERLAP_AUTO || source->overlap == NOVA_OVERLAP_DEPENDENT;
    program->regions = calloc(count, sizeof *program->regions);
    if (program->regions == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the program");
    nova_status status = NOVA_OK;
    for (uint32_t i = 0; status == NOVA_OK && i < count; i++)
        status = regions_load(program, i, error);
    return status == NOVA_OK ? regions_upload_positions(program, error) : status;
}

void nova_control_free(nova_device_program *program)
{
    uint32_t count = nova_tables_region_count(&program->tables);
    for (uint32_t i = 0; program->regions != NULL && i < count; i++) {
        free(program->regions[i].functions);
        free(program->regions[i].first_maps);
        free(program->regions[i].has_output);
    }
    free(program->regions);
    nova_device_give(program->device, program->positions);
}
