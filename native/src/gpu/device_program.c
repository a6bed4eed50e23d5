/* Programs of a device: their kernels, and the executions of their runs. */
#include "gpu/control/device_control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Shared memory of a block above this many bytes must be requested. */
enum { USUAL_SHARED = 48 << 10 };

/* --- executions ------------------------------------------------------------------------------- */

static void program_execution_destroy(nova_device_program *program,
                                      nova_device_execution *execution)
{
    nova_driver *driver = program->device->driver;
    for (unsigned i = 0; i < execution->graph_count; i++)
        nova_graph_free(program, &execution->graphs[i]);
    nova_device_give(program->device, execution->workspace);
    nova_device_give(program->device, execution->staging);
    if (execution->copied != NULL)
        driver->event_destroy(driver, execution->copied);
    if (execution->pinned != NULL)
        driver->pinned_free(driver, execution->pinned);
    nova_pooled_stream_give(program->device, execution->pooled_stream);
    nova_host_shadow_free(program, execution);
    nova_persistent_free_state(program->device, execution->persistent);
    free(execution->slots);
    free(execution->pointers);
    free(execution->staging_offsets);
    free(execution->calls);
    free(execution->maps);
    free(execution->map_addresses);
    free(execution->ranges);
    free(execution);
}

static void *program_array(size_t count, size_t size)
{
    return calloc(count + 1, size); /* never NULL for an empty one */
}

static nova_status program_execution_create(nova_device_program *program,
                                            nova_device_execution **execution, nova_error *error)
{
    nova_device *device = program->device;
    nova_driver *driver = device->driver;
    nova_device_execution *created = calloc(1, sizeof *created);
    if (created == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for a run");
    size_t values = program->argument_count + program->output_count;
    uint32_t operands = program->tables.header->operand_count;
    created->slots = program_array(values + 1, sizeof *created->slots);
    created->pointers = program_array(operands, sizeof *created->pointers);
    created->staging_offsets = program_array(values, sizeof *created->staging_offsets);
    created->calls = program_array(program->launch_count, sizeof *created->calls);
    created->ranges = program_array(operands, sizeof *created->ranges);
    created->maps =
        aligned_alloc(_Alignof(nova_encoded_map), (program->map_count + 1) * sizeof *created->maps);
    created->map_addresses = program_array(program->map_count, sizeof *created->map_addresses);
    nova_status status = NOVA_OK;
    if (!created->slots || !created->pointers || !created->staging_offsets || !created->calls ||
        !created->ranges || !created->maps || !created->map_addresses)
        status = nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for a run");
    if (status == NOVA_OK)
        status = nova_pooled_stream_take(device, &created->pooled_stream, error);
    if (status == NOVA_OK)
        status = nova_device_check(device, driver->event_create(driver, false, &created->copied),
                                   "the device has no events", error);
    if (status == NOVA_OK)
        created->last = created->pooled_stream->stream;
    if (status == NOVA_OK && program->tables.header->workspace_size > 0)
        status =
            nova_device_take_inside(device, program->tables.header->workspace_size,
                                    created->pooled_stream->stream, &created->workspace, error);
    if (status == NOVA_OK)
        status = nova_host_shadow_create(program, created, error);
    if (status != NOVA_OK)
        program_execution_destroy(program, created);
    else
        *execution = created;
    return status;
}

nova_status nova_device_execution_take(nova_device_program *program,
                                       nova_device_execution **execution, nova_error *error)
{
    pthread_mutex_lock(&program->mutex);
    nova_device_execution *reusable = program->idle;
    if (reusable != NULL)
        program->idle = reusable->next;
    pthread_mutex_unlock(&program->mutex);
    if (reusable == NULL)
        return program_execution_create(program, execution, error);
    *execution = reusable;
    return NOVA_OK;
}

void nova_device_execution_give(nova_device_program *program, nova_device_execution *execution,
                                const nova_device_counts *counts)
{
    pthread_mutex_lock(&program->mutex);
    execution->next = program->idle;
    program->idle = execution;
    program->counts.runs += counts->runs;
    program->counts.launches += counts->launches;
    program->counts.graphs += counts->graphs;
    program->counts.graph_launches += counts->graph_launches;
    program->counts.graph_updates += counts->graph_updates;
    pthread_mutex_unlock(&program->mutex);
}

bool nova_device_program_is_mixed(const nova_device_program *program)
{
    return program->hybrid.copy_count + program->hybrid.host_region_count > 0 ||
           nova_device_program_is_host_decided(program);
}

bool nova_device_program_is_host_decided(const nova_device_program *program)
{
    return program->control_count > 0 && program->loops == NOVA_LOOPS_HOST;
}

nova_device_counts nova_device_program_counts(nova_device_program *program)
{
    pthread_mutex_lock(&program->mutex);
    nova_device_counts counts = program->counts;
    pthread_mutex_unlock(&program->mutex);
    return counts;
}

nova_graph_shape nova_device_program_graph(const nova_device_program *program)
{
    return (nova_graph_shape){.launches = program->launch_count,
                              .edges = program->edges.count,
                              .dependent = program->edges.dependent_count,
                              .branches = program->edges.branch_count};
}

/* --- kernels -----------------------------------------------------------------------------------
 */

static nova_status program_find_kernel(const nova_device_program *program,
                                       const nova_device_region *region, uint32_t index,
                                       nova_error *error)
{
    nova_driver *driver = program->device->driver;
    const nova_tables *tables = &region->tables;
    const nova_kernel_record *kernel = &tables->kernels[index];
    const char *symbol = tables->strings + kernel->symbol;
    if (!nova_kernel_is_device(kernel))
        return NOVA_OK; /* code of the host, a copy or a loop */
    void **function = &region->functions[index];
    int result = driver->function_find(driver, program->code->module, symbol, function);
    if (result != 0) {
        char action[160];
        (void)snprintf(action, sizeof action, "the device code has no kernel %.100s", symbol);
        return nova_device_check(program->device, result, action, error);
    }
    uint32_t shared = tables->devices[index].shared;
    nova_function_use use = {0};
    if (shared > 0) /* what the code declares counts, too */
        result = driver->function_use(driver, *function, &use);
    if (result == 0 && shared > 0 && (uint64_t)shared + use.shared > USUAL_SHARED)
        result = driver->function_allow_shared(driver, *function, shared);
    if (result == 0)
        return NOVA_OK;
    char action[240];
    (void)snprintf(action, sizeof action,
                   "kernel %.100s needs %u + %u bytes of shared memory, more than the device has",
                   symbol, use.shared, shared);
    return nova_device_check(program->device, result, action, error);
}

nova_status nova_device_find_kernels(const nova_device_program *program,
                                     const nova_device_region *region, nova_error *error)
{
    const nova_tables *tables = &region->tables;
    nova_status status = NOVA_OK;
    for (uint32_t i = 0; status == NOVA_OK && i < tables->header->kernel_count; i++) {
        status = program_find_kernel(program, region, i, error);
        region->first_maps[i + 1] = region->first_maps[i] + tables->devices[i].tensor_map_count;
    }
    return status;
}

nova_device_region nova_device_main_region(const nova_device_program *program)
{
    return (nova_device_region){.tables = program->tables,
                                .functions = program->functions,
                                .first_maps = program->first_maps,
                                .task_numbers = program->task_numbers};
}

static nova_status program_find_kernels(nova_device_program *program, nova_error *error)
{
    const nova_tables *tables = &program->tables;
    const nova_device_region main = nova_device_main_region(program);
    nova_status status = nova_device_find_kernels(program, &main, error);
    for (uint32_t i = 0; status == NOVA_OK && i < tables->header->launch_count; i++) {
        uint32_t kernel = tables->launches[i].kernel;
        const uint32_t *grid = tables->devices[kernel].grid;
        bool does_anything = nova_kernel_is_device(&tables->kernels[kernel])
                                 ? grid[0] != 0 && grid[1] != 0 && grid[2] != 0
                                 : tables->kernels[kernel].grid > 0;
        if (!does_anything)
            continue;
        program->launches[program->launch_count++] = i;
        program->map_count += tables->devices[kernel].tensor_map_count;
    }
    return status;
}

/* --- making and ending ------------------------------------------------------------------------ */

static nova_status program_keep_signature(nova_device_program *program,
                                          const nova_device_source *source, nova_error *error)
{
    size_t arguments = source->argument_count, outputs = source->output_count;
    const nova_tables_header *header = program->tables.header;
    program->nbytes = program_array(arguments + outputs, sizeof *program->nbytes);
    program->alias = program_array(outputs, sizeof *program->alias);
    program->donated = program_array(arguments, sizeof *program->donated);
    program->functions = program_array(header->kernel_count, sizeof *program->functions);
    program->launches = program_array(header->launch_count, sizeof *program->launches);
    program->first_maps = program_array(header->kernel_count, sizeof *program->first_maps);
    if (!program->nbytes || !program->alias || !program->donated || !program->functions ||
        !program->launches || !program->first_maps)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the program");
    program->repeats = source->repeats > 0 ? source->repeats : 1;
    program->stacked_count = source->stacked_count;
    program->has_ring = source->has_ring;
    program->argument_count = arguments;
    program->output_count = outputs;
    for (size_t i = 0; i < arguments; i++) {
        program->nbytes[i] = source->arguments[i].nbytes;
        program->donated[i] = source->arguments[i].donated != 0;
    }
    for (size_t i = 0; i < outputs; i++) {
        program->nbytes[arguments + i] = source->outputs[i].nbytes;
        program->alias[i] = (int32_t)source->outputs[i].alias;
    }
    return NOVA_OK;
}

/* Loads the code and the constants, or shares those of another program. */
static nova_status program_take_code(nova_device_program *program, const nova_device_source *source,
                                     nova_error *error)
{
    if (source->shares == NULL)
        return nova_loaded_code_create(program->device, source, &program->code, error);
    if (source->shares->device != program->device)
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "", "the code is of another device");
    program->code = nova_loaded_code_retain(source->shares->code);
    return NOVA_OK;
}

/* Refuses tables with a size that has no value. */
static nova_status program_check_sizes(const nova_tables *tables, const nova_device_source *source,
                                       nova_error *error)
{
    for (uint32_t i = 0; i < tables->header->buffer_count; i++)
        if (tables->buffers[i].kind == NOVA_SIZES &&
            tables->buffers[i].value / sizeof *source->sizes >= source->size_count)
            return nova_fail(
                error, NOVA_INVALID_ARGUMENT, "", "%zu sizes, and buffer %u is size %llu",
                source->size_count, i,
                (unsigned long long)(tables->buffers[i].value / sizeof *source->sizes));
    return NOVA_OK;
}

/* Copies the values of symbolic sizes, which launches of the program and its regions pass to their
 * kernels. */
static nova_status program_keep_sizes(nova_device_program *program,
                                      const nova_device_source *source, nova_error *error)
{
    nova_status status = program_check_sizes(&program->tables, source, error);
    uint32_t regions = nova_tables_region_count(&program->tables);
    for (uint32_t i = 0; status == NOVA_OK && i < regions; i++) {
        nova_tables region;
        nova_tables_region(&program->tables, i, &region);
        status = program_check_sizes(&region, source, error);
    }
    if (status != NOVA_OK)
        return status;
    program->sizes = program_array(source->size_count, sizeof *program->sizes);
    if (program->sizes == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the program");
    if (source->size_count > 0)
        memcpy(program->sizes, source->sizes, source->size_count * sizeof *program->sizes);
    return NOVA_OK;
}

static nova_status program_build(nova_device_program *program, const nova_device_source *source,
                                 nova_error *error)
{
    nova_status status = program_keep_signature(program, source, error);
    if (status == NOVA_OK)
        status = program_take_code(program, source, error);
    if (status == NOVA_OK)
        status = program_keep_sizes(program, source, error);
    if (status == NOVA_OK)
        status = program_find_kernels(program, error);
    if (status == NOVA_OK)
        status = nova_steps_prepare(program, source, error);
    if (status == NOVA_OK)
        status = nova_graph_edges_prepare(program, source->overlap, error);
    if (status == NOVA_OK)
        status = nova_control_prepare(program, source, error);
    if (status == NOVA_OK)
        status = nova_persistent_prepare(program, error);
    return status;
}

nova_status nova_device_program_create(nova_device *device, const nova_device_source *source,
                                       nova_device_program **program, nova_error *error)
{
    if (device == NULL || source == NULL || program == NULL || source->tables == NULL ||
        (source->code == NULL && source->shares == NULL) ||
        (source->constants == NULL && source->constants_size > 0) ||
        (source->sizes == NULL && source->size_count > 0))
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "", "a pointer is missing");
    if (source->tables->devices == NULL && source->tables->header->kernel_count > 0)
        return nova_fail(error, NOVA_UNSUPPORTED, "tables-code", "the program is for a CPU");
    nova_device_program *created = calloc(1, sizeof *created);
    if (created == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the program");
    created->device = device;
    created->tables = *source->tables;
    if (pthread_mutex_init(&created->mutex, NULL) != 0) {
        free(created);
        return nova_fail(error, NOVA_SYSTEM_ERROR, "", "no mutex");
    }
    nova_status status = nova_device_enter_idle(device, error);
    if (status == NOVA_OK) {
        status = program_build(created, source, error);
        nova_device_leave(device);
    }
    if (status != NOVA_OK) {
        nova_device_program_destroy(created);
        return status;
    }
    *program = created;
    return NOVA_OK;
}

void nova_device_program_destroy(nova_device_program *program)
{
    if (program == NULL)
        return;
    nova_device *device = program->device;
    nova_driver *driver = device->driver;
    /* Also when the device is lost: the driver refuses then, and host memory is freed. */
    (void)driver->enter(driver, device->context);
    while (program->idle != NULL) {
        nova_device_execution *execution = program->idle;
        program->idle = execution->next;
        (void)driver->stream_synchronize(driver, execution->last);
        program_execution_destroy(program, execution);
    }
    nova_persistent_free(program->persistent); /* it has pinned memory */
    nova_loaded_code_release(program->code);
    nova_device_leave(device);
    free(program->sizes);
    pthread_mutex_destroy(&program->mutex);
    nova_steps_free(program);
    nova_graph_edges_free(&program->edges);
    nova_control_free(program);
    free(program->nbytes);
    free(program->alias);
    free(program->donated);
    free(program->functions);
    free(program->launches);
    free(program->first_maps);
    free(program);
}
