/* The mirror: memory of the host for all that its kernels use in a program of a device. Values change sides by
 * copies, which are launches of the tables. */
#include "gpu/device_state.h"

#include <stdlib.h>
#include <string.h>

#define NO_PLACE UINT64_MAX

static uint64_t aligned(uint64_t size)
{
    return (size + NOVA_DEVICE_ALIGNMENT - 1) & ~(uint64_t)(NOVA_DEVICE_ALIGNMENT - 1);
}

size_t nova_mirror_slot(const nova_device_program *program, const nova_buffer *buffer)
{
    if (buffer->kind == NOVA_ARGUMENT)
        return buffer->value;
    int32_t alias = program->alias[buffer->value];
    return alias >= 0 ? (size_t)alias : program->argument_count + buffer->value;
}

static nova_status make_places(nova_device_program *program, nova_error *error)
{
    size_t values = program->argument_count + program->output_count;
    program->mixture.places = malloc((values + 1) * sizeof *program->mixture.places);
    if (program->mixture.places == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the program");
    for (size_t i = 0; i < values; i++)
        program->mixture.places[i] = NO_PLACE;
    return NOVA_OK;
}

nova_status nova_mirror_lay_out(nova_device_program *program, const nova_device_source *source,
                                nova_error *error)
{
    nova_device_mixture *mixture = &program->mixture;
    const nova_tables *tables = &program->tables;
    nova_status status = make_places(program, error);
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
            } else if (mixture->places[nova_mirror_slot(program, buffer)] == NO_PLACE) {
                mixture->places[nova_mirror_slot(program, buffer)] = mixture->layout;
                mixture->layout = aligned(mixture->layout + buffer->nbytes + 1);
            }
        }
    }
    mixture->workspace = mixture->layout;
    mixture->layout = mixture->size = aligned(mixture->workspace + workspace + 1);
    if (first >= end)
        return NOVA_OK;
    mixture->first_constant = first;
    mixture->constants = aligned_alloc(NOVA_DEVICE_ALIGNMENT, aligned(end - first));
    if (mixture->constants == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the constants");
    memcpy(mixture->constants, (const char *)source->constants + first, end - first);
    return NOVA_OK;
}

uint64_t nova_mirror_offset(const nova_device_program *program, const nova_buffer *buffer)
{
    const nova_device_mixture *mixture = &program->mixture;
    return buffer->kind == NOVA_WORKSPACE ? mixture->workspace + buffer->value
                                          : mixture->places[nova_mirror_slot(program, buffer)];
}

void *nova_mirror_constant(const nova_device_program *program, const nova_buffer *buffer)
{
    static const _Alignas(64) char nothing[64]; /* where all of them are empty */
    const nova_device_mixture *mixture = &program->mixture;
    return mixture->constants != NULL
               ? mixture->constants + (buffer->value - mixture->first_constant)
               : (void *)(uintptr_t)nothing;
}

nova_status nova_mirror_create(const nova_device_program *program,
                               nova_device_execution *execution, nova_error *error)
{
    const nova_device_mixture *mixture = &program->mixture;
    nova_driver *driver = program->device->driver;
    if (mixture->island_count + mixture->copy_count == 0)
        return NOVA_OK;
    void *memory;
    nova_status status = nova_device_pin(program->device, mixture->size, &memory, error);
    if (status != NOVA_OK)
        return status;
    execution->mirror = memory;
    execution->copies = calloc(mixture->copy_count + 1, sizeof *execution->copies);
    if (execution->copies == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for a run");
    int result = driver->event_create(driver, false, &execution->mirror_free);
    for (uint32_t i = 0; result == 0 && i < mixture->copy_count; i++)
        result = driver->event_create(driver, false, &execution->copies[i]);
    return nova_device_check(program->device, result, "the device has no events", error);
}

void nova_mirror_free(nova_device_program *program, nova_device_execution *execution)
{
    nova_driver *driver = program->device->driver;
    for (uint32_t i = 0; execution->copies != NULL && i < program->mixture.copy_count; i++)
        if (execution->copies[i] != NULL)
            driver->event_destroy(driver, execution->copies[i]);
    free(execution->copies);
    if (execution->mirror_free != NULL)
        driver->event_destroy(driver, execution->mirror_free);
    if (execution->mirror != NULL)
        driver->pinned_free(driver, execution->mirror);
}
