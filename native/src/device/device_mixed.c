/* Programs with kernels of the host between those of the device.
 *
 * What the kernels of the host use has a second place, in memory of the host, and the tables say when a
 * value is copied from one to the other. The kernels run on the calling thread, in the order of the
 * launches. */
#include "device_run.h"

#include <stdlib.h>
#include <string.h>

#include "nova/program.h"

#define NO_PLACE UINT64_MAX

/* --- places ----------------------------------------------------------------------------------- */

static uint64_t aligned(uint64_t size)
{
    return (size + NOVA_DEVICE_ALIGNMENT - 1) & ~(uint64_t)(NOVA_DEVICE_ALIGNMENT - 1);
}

/* Where an argument or output is counted: an output that is a donated argument is that. */
static size_t slot_of(const nova_device_program *program, const nova_buffer *buffer)
{
    if (buffer->kind == NOVA_ARGUMENT)
        return buffer->value;
    int32_t alias = program->alias[buffer->value];
    return alias >= 0 ? (size_t)alias : program->argument_count + buffer->value;
}

static bool is_on_host(const nova_device_program *program, const nova_launch_record *launch)
{
    return program->tables.kernels[launch->kernel].core != NOVA_DEVICE;
}

static const nova_buffer *operand_of(const nova_device_program *program, uint32_t operand)
{
    return &program->tables.buffers[program->tables.operands[operand]];
}

/* Gives a place to all that kernels of the host and copies are given. */
static nova_status find_places(nova_device_program *program, const nova_device_source *source,
                               nova_error *error)
{
    nova_device_mixture *mixture = &program->mixture;
    const nova_tables *tables = &program->tables;
    uint64_t workspace = 0, first = UINT64_MAX, end = 0;
    for (uint32_t i = 0; i < tables->header->launch_count; i++) {
        const nova_launch_record *launch = &tables->launches[i];
        for (uint32_t k = 0; is_on_host(program, launch) && k < launch->operand_count; k++) {
            const nova_buffer *buffer = operand_of(program, launch->first_operand + k);
            uint64_t last = buffer->value + buffer->nbytes;
            if (buffer->kind == NOVA_WORKSPACE) {
                workspace = last > workspace ? last : workspace;
            } else if (buffer->kind == NOVA_CONSTANT) {
                first = buffer->value < first ? buffer->value : first;
                end = last > end ? last : end;
            } else if (mixture->places[slot_of(program, buffer)] == NO_PLACE) {
                mixture->places[slot_of(program, buffer)] = mixture->size;
                mixture->size = aligned(mixture->size + buffer->nbytes + 1);
            }
        }
    }
    mixture->workspace = mixture->size;
    mixture->scratch = aligned(mixture->workspace + workspace + 1);
    mixture->size = aligned(mixture->scratch + tables->header->scratch_size + 1);
    if (first >= end)
        return NOVA_OK;
    mixture->first_constant = first;
    mixture->constants = aligned_alloc(NOVA_DEVICE_ALIGNMENT, aligned(end - first));
    if (mixture->constants == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the constants");
    memcpy(mixture->constants, (const char *)source->constants + first, end - first);
    return NOVA_OK;
}

nova_status nova_mixture_prepare(nova_device_program *program, const nova_device_source *source,
                                 nova_error *error)
{
    nova_device_mixture *mixture = &program->mixture;
    const nova_tables *tables = &program->tables;
    for (uint32_t i = 0; i < tables->header->kernel_count; i++) {
        const nova_kernel_record *kernel = &tables->kernels[i];
        mixture->is_mixed |= kernel->core != NOVA_DEVICE;
        if (!nova_kernel_is_linked(kernel))
            continue;
        if (source->image == NULL || nova_image_find(source->image, kernel->code, 1, NOVA_EXECUTE,
                                                     &program->functions[i]) != NOVA_OK)
            return nova_fail(error, NOVA_UNSUPPORTED, "tables-code",
                             "kernel %u is pinned to the host, and its code is not there", i);
    }
    if (!mixture->is_mixed)
        return NOVA_OK;
    size_t values = program->argument_count + program->output_count;
    mixture->places = malloc((values + 1) * sizeof *mixture->places);
    if (mixture->places == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the program");
    for (size_t i = 0; i < values; i++)
        mixture->places[i] = NO_PLACE;
    return find_places(program, source, error);
}

void nova_mixture_free(nova_device_mixture *mixture)
{
    free(mixture->places);
    free(mixture->constants);
}

/* --- mirrors ---------------------------------------------------------------------------------- */

static void *host_address(const nova_device_program *program, const char *mirror,
                          const nova_buffer *buffer)
{
    const nova_device_mixture *mixture = &program->mixture;
    char *base = (char *)(uintptr_t)mirror;
    if (buffer->kind == NOVA_CONSTANT)
        return mixture->constants != NULL
                   ? mixture->constants + (buffer->value - mixture->first_constant)
                   : base; /* all are empty */
    if (buffer->kind == NOVA_WORKSPACE)
        return base + mixture->workspace + buffer->value;
    return base + mixture->places[slot_of(program, buffer)];
}

nova_status nova_mirror_create(const nova_device_program *program,
                               nova_device_execution *execution, nova_error *error)
{
    const nova_tables *tables = &program->tables;
    if (!program->mixture.is_mixed)
        return NOVA_OK;
    void *memory;
    nova_status status =
        nova_device_pin(program->device, program->mixture.size, &memory, error);
    if (status != NOVA_OK)
        return status;
    execution->mirror = memory;
    execution->host_pointers =
        calloc(tables->header->operand_count + 1, sizeof *execution->host_pointers);
    if (execution->host_pointers == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for a run");
    for (uint32_t i = 0; i < tables->header->launch_count; i++) {
        const nova_launch_record *launch = &tables->launches[i];
        for (uint32_t k = 0; is_on_host(program, launch) && k < launch->operand_count; k++) {
            uint32_t operand = launch->first_operand + k;
            execution->host_pointers[operand] =
                host_address(program, execution->mirror, operand_of(program, operand));
        }
    }
    return NOVA_OK;
}

void nova_mirror_free(nova_device_program *program, nova_device_execution *execution)
{
    nova_driver *driver = program->device->driver;
    if (execution->mirror != NULL)
        driver->pinned_free(driver, execution->mirror);
    free(execution->host_pointers);
}

/* --- runs ------------------------------------------------------------------------------------- */

static nova_status run_kernel(const nova_device_program *program,
                              const nova_device_execution *execution,
                              const nova_launch_record *launch, nova_error *error)
{
    const nova_kernel_record *kernel = &program->tables.kernels[launch->kernel];
    void *const *pointers = execution->host_pointers + launch->first_operand;
    union {
        void *address;
        nova_kernel plain;
        nova_reporting_kernel reporting;
        nova_scratch_kernel with_scratch;
    } code = {.address = program->functions[launch->kernel]};
    if (kernel->core & NOVA_TAKES_SCRATCH) {
        code.with_scratch(pointers, 0, kernel->grid,
                          execution->mirror + program->mixture.scratch);
    } else if (kernel->core & NOVA_REPORTS) {
        int32_t reported = code.reporting(pointers, 0, kernel->grid);
        if (reported != 0)
            return nova_fail(error, NOVA_TASK_REPORTED, "", "%s reported error %d",
                             program->tables.strings + kernel->name, (int)reported);
    } else {
        code.plain(pointers, 0, kernel->grid);
    }
    return NOVA_OK;
}

/* Copies the buffer of a launch to the other side. */
static nova_status copy(nova_device_run *r, uint32_t number)
{
    nova_device_execution *execution = r->execution;
    nova_driver *driver = r->device->driver;
    const nova_launch_record *launch = &r->program->tables.launches[number];
    uint32_t operand = launch->first_operand;
    uint64_t size = operand_of(r->program, operand)->nbytes;
    uint64_t there = execution->pointers[operand];
    void *here = execution->host_pointers[operand];
    bool is_out = r->program->tables.kernels[launch->kernel].core == NOVA_TO_HOST;
    nova_trace_begin(r->trace, is_out ? NOVA_SPAN_COPY_OUT : NOVA_SPAN_COPY_IN, number, size,
                     r->stream);
    int result = is_out ? driver->copy_out(driver, here, there, size, r->stream)
                        : driver->copy_in(driver, there, here, size, r->stream);
    nova_trace_end(r->trace, r->stream);
    execution->mirror_is_busy = true;
    return nova_run_check(r, result, "a value cannot be copied between device and host");
}

static nova_status launch_kernel(nova_device_run *r, uint32_t index)
{
    nova_driver *driver = r->device->driver;
    nova_trace_begin(r->trace, NOVA_SPAN_KERNEL, r->program->launches[index], 0, r->stream);
    int result = driver->launch(driver, &r->execution->calls[index], r->stream);
    nova_trace_end(r->trace, r->stream);
    return nova_run_check(r, result, "a kernel cannot be launched");
}

nova_status nova_run_mixed(nova_device_run *r)
{
    const nova_device_program *program = r->program;
    nova_device_execution *execution = r->execution;
    nova_driver *driver = r->device->driver;
    nova_status status = NOVA_OK;
    for (uint32_t i = 0; status == NOVA_OK && i < program->launch_count; i++) {
        uint32_t number = program->launches[i];
        const nova_launch_record *launch = &program->tables.launches[number];
        const nova_kernel_record *kernel = &program->tables.kernels[launch->kernel];
        if (kernel->core == NOVA_DEVICE) {
            status = launch_kernel(r, i);
            continue;
        }
        if (!nova_kernel_is_linked(kernel)) {
            status = copy(r, number);
            continue;
        }
        if (execution->mirror_is_busy) { /* also by the run before, which the stream waits for */
            nova_trace_host(r->trace, NOVA_SPAN_WAIT, NOVA_NO_LAUNCH);
            status = nova_run_check(r, driver->stream_synchronize(driver, r->stream),
                                    "the device cannot be waited for");
        }
        execution->mirror_is_busy = false;
        if (status != NOVA_OK)
            return status;
        nova_trace_host(r->trace, NOVA_SPAN_HOST, number);
        status = run_kernel(program, execution, launch, r->error);
        nova_trace_host(r->trace, NOVA_SPAN_ENQUEUE, NOVA_NO_LAUNCH);
    }
    return status;
}
