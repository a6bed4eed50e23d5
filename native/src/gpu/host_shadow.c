/* The host shadow: host memory for all operands of host kernels in a hybrid program. Copy launches
 * of the tables transfer values between the host shadow and the device. */
#include "gpu/device_state.h"

#include <stdlib.h>
#include <string.h>

#define NO_OFFSET UINT64_MAX

static uint64_t shadow_aligned(uint64_t size)
{
    return (size + NOVA_DEVICE_ALIGNMENT - 1) & ~(uint64_t)(NOVA_DEVICE_ALIGNMENT - 1);
}

size_t nova_host_shadow_slot(const nova_device_program *program, const nova_buffer *buffer)
{
    if (buffer->kind == NOVA_ARGUMENT)
        return buffer->value;
    int32_t alias = program->alias[buffer->value];
    return alias >= 0 ? (size_t)alias : program->argument_count + buffer->value;
}

static nova_status shadow_assign_offsets(nova_device_program *program, nova_error *error)
{
    size_t values = program->argument_count + program->output_count;
    program->hybrid.shadow_offsets = malloc((values + 1) * sizeof *program->hybrid.shadow_offsets);
    if (program->hybrid.shadow_offsets == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the program");
    for (size_t i = 0; i < values; i++)
        program->hybrid.shadow_offsets[i] = NO_OFFSET;
    return NOVA_OK;
}

nova_status nova_host_shadow_lay_out(nova_device_program *program, const nova_device_source *source,
                                     nova_error *error)
{
    nova_hybrid_layout *hybrid = &program->hybrid;
    const nova_tables *tables = &program->tables;
    nova_status status = shadow_assign_offsets(program, error);
    if (status != NOVA_OK)
        return status;
    uint64_t workspace = 0, first = UINT64_MAX, end = 0;
    for (uint32_t i = 0; i < tables->header->launch_count; i++) {
        const nova_launch_record *launch = &tables->launches[i];
        if (nova_launch_core(program, launch) == NOVA_DEVICE)
            continue;
        for (uint32_t k = 0; k < launch->operand_count; k++) {
            const nova_buffer *buffer = nova_operand(program, launch, k);
            uint64_t last = buffer->value + buffer->nbytes;
            if (buffer->kind == NOVA_WORKSPACE) {
                workspace = last > workspace ? last : workspace;
            } else if (buffer->kind == NOVA_CONSTANT) {
                first = buffer->value < first ? buffer->value : first;
                end = last > end ? last : end;
            } else if (hybrid->shadow_offsets[nova_host_shadow_slot(program, buffer)] ==
                       NO_OFFSET) {
                hybrid->shadow_offsets[nova_host_shadow_slot(program, buffer)] = hybrid->layout;
                hybrid->layout = shadow_aligned(hybrid->layout + buffer->nbytes + 1);
            }
        }
    }
    hybrid->workspace = hybrid->layout;
    hybrid->layout = hybrid->size = shadow_aligned(hybrid->workspace + workspace + 1);
    if (first >= end)
        return NOVA_OK;
    hybrid->first_constant = first;
    hybrid->constants = aligned_alloc(NOVA_DEVICE_ALIGNMENT, shadow_aligned(end - first));
    if (hybrid->constants == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the constants");
    memcpy(hybrid->constants, (const char *)source->constants + first, end - first);
    return NOVA_OK;
}

uint64_t nova_host_shadow_offset(const nova_device_program *program, const nova_buffer *buffer)
{
    const nova_hybrid_layout *hybrid = &program->hybrid;
    return buffer->kind == NOVA_WORKSPACE
               ? hybrid->workspace + buffer->value
               : hybrid->shadow_offsets[nova_host_shadow_slot(program, buffer)];
}

void *nova_host_shadow_constant(const nova_device_program *program, const nova_buffer *buffer)
{
    static const _Alignas(64) char empty[64]; /* where all of them are empty */
    const nova_hybrid_layout *hybrid = &program->hybrid;
    return hybrid->constants != NULL ? hybrid->constants + (buffer->value - hybrid->first_constant)
                                     : (void *)(uintptr_t)empty;
}

nova_status nova_host_shadow_create(const nova_device_program *program,
                                    nova_device_execution *execution, nova_error *error)
{
    const nova_hybrid_layout *hybrid = &program->hybrid;
    nova_driver *driver = program->device->driver;
    if (hybrid->host_region_count + hybrid->copy_count == 0)
        return NOVA_OK;
    void *memory;
    nova_status status = nova_device_pin(program->device, hybrid->size, &memory, error);
    if (status != NOVA_OK)
        return status;
    execution->host_shadow = memory;
    execution->copies = calloc(hybrid->copy_count + 1, sizeof *execution->copies);
    if (execution->copies == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for a run");
    int result = driver->event_create(driver, false, &execution->host_shadow_released);
    for (uint32_t i = 0; result == 0 && i < hybrid->copy_count; i++)
        result = driver->event_create(driver, false, &execution->copies[i]);
    return nova_device_check(program->device, result, "the device has no events", error);
}

void nova_host_shadow_free(nova_device_program *program, nova_device_execution *execution)
{
    nova_driver *driver = program->device->driver;
    for (uint32_t i = 0; execution->copies != NULL && i < program->hybrid.copy_count; i++)
        if (execution->copies[i] != NULL)
            driver->event_destroy(driver, execution->copies[i]);
    free(execution->copies);
    if (execution->host_shadow_released != NULL)
        driver->event_destroy(driver, execution->host_shadow_released);
    if (execution->host_shadow != NULL)
        driver->pinned_free(driver, execution->host_shadow);
}
