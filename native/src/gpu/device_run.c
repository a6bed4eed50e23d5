/* A run: values on the host are copied to the device, the launches are enqueued, results are copied
 * back. */
#include <string.h>

#include "gpu/device_run.h"

/* Kernels may use accesses of so many bytes on everything. */
enum { ACCESS = 16 };

/* --- staging ---------------------------------------------------------------------------------- */

static void run_stage_value(nova_device_run *r, size_t slot)
{
    r->execution->staging_offsets[slot] = r->size;
    uint64_t size = (uint64_t)r->program->nbytes[slot];
    r->size += (size + NOVA_DEVICE_ALIGNMENT - 1) & ~(uint64_t)(NOVA_DEVICE_ALIGNMENT - 1);
}

/* Whether kernels cannot use a value where it is. */
static bool run_needs_staging(const nova_device_value *value, int64_t nbytes)
{
    return nbytes > 0 && (value->address == 0 || value->address % ACCESS != 0);
}

/* Assigns offsets in the staging buffer: first the values that are only copied in, then those
 * copied in and out, then those only copied out, so that each direction is one contiguous copy. */
static nova_status run_find_offsets(nova_device_run *r)
{
    const nova_device_program *program = r->program;
    uint64_t *offsets = r->execution->staging_offsets;
    size_t inputs = program->argument_count;
    for (size_t i = 0; i < inputs + program->output_count; i++)
        offsets[i] = NOVA_NOT_STAGED;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < inputs; i++) {
            const nova_device_value *value = &r->arguments[i];
            if (program->donated[i] != (pass == 1) || !run_needs_staging(value, program->nbytes[i]))
                continue;
            if (value->address == 0 && value->host == NULL)
                return nova_fail(r->error, NOVA_INVALID_ARGUMENT, "", "argument %zu is NULL", i);
            run_stage_value(r, i);
            r->has_host_inputs |= value->address == 0;
            r->has_host_results |= value->address == 0 && program->donated[i];
        }
        if (pass == 0)
            r->results = r->size;
    }
    r->inputs_end = r->size;
    for (size_t i = 0; i < program->output_count; i++) {
        const nova_device_value *value = &r->outputs[i];
        if (program->alias[i] >= 0 || !run_needs_staging(value, program->nbytes[inputs + i]))
            continue;
        if (value->address == 0 && value->host == NULL)
            return nova_fail(r->error, NOVA_INVALID_ARGUMENT, "", "output %zu is NULL", i);
        run_stage_value(r, inputs + i);
        r->has_host_results |= value->address == 0;
    }
    return NOVA_OK;
}

/* Grows the staging buffer, and pinned memory of the same size unless that is too large. */
static nova_status run_prepare_staging(nova_device_run *r)
{
    nova_device_execution *execution = r->execution;
    nova_driver *driver = r->device->driver;
    if (r->size == 0)
        return NOVA_OK;
    if (execution->staging == NULL || execution->staging->size < r->size) {
        nova_device_give(r->device, execution->staging);
        execution->staging = NULL;
        nova_status status =
            nova_device_take_inside(r->device, r->size, r->stream, &execution->staging, r->error);
        if (status != NOVA_OK)
            return status;
    }
    execution->staging->stream = r->stream;
    if (r->size > NOVA_MOST_PINNED || execution->pinned_size >= r->size)
        return NOVA_OK;
    nova_status status = nova_run_free_pinned(r);
    if (status != NOVA_OK)
        return status;
    if (execution->pinned != NULL)
        driver->pinned_free(driver, execution->pinned);
    execution->pinned = NULL;
    execution->pinned_size = 0;
    void *memory;
    status = nova_device_pin(r->device, execution->staging->size, &memory, r->error);
    if (status != NOVA_OK)
        return status;
    execution->pinned = memory;
    execution->pinned_size = execution->staging->size;
    /* Results are copied out as one range, including the padding between them, which must be
     * initialized: the simulated device checks reads of uninitialized bytes, and does not see
     * the writes of the host. */
    if (driver->checks_ranges)
        return NOVA_OK;
    memset(memory, 0, execution->pinned_size);
    /* The caller does not wait: later writes are copied again after this. */
    int result = driver->copy_in(driver, execution->staging->address, memory,
                                 execution->pinned_size, r->stream);
    return nova_run_check(r, result, "memory cannot be cleared");
}

static uint64_t run_address_of(const nova_device_run *r, const nova_device_value *value,
                               size_t slot)
{
    uint64_t staging = r->execution->staging_offsets[slot];
    if (staging != NOVA_NOT_STAGED)
        return r->execution->staging->address + staging;
    return r->program->nbytes[slot] > 0 ? value->address : r->device->empty_block->address;
}

/* The slots that the pointers of a run are computed from. */
static void run_fill_slots(nova_device_run *r)
{
    const nova_device_program *program = r->program;
    uint64_t *slots = r->execution->slots;
    for (size_t i = 0; i < program->argument_count; i++)
        slots[i] = run_address_of(r, &r->arguments[i], i);
    for (size_t i = 0; i < program->output_count; i++) {
        size_t slot = program->argument_count + i;
        slots[slot] = program->alias[i] >= 0 ? slots[program->alias[i]]
                                             : run_address_of(r, &r->outputs[i], slot);
    }
    slots[program->argument_count + program->output_count] =
        r->execution->workspace != NULL ? r->execution->workspace->address : 0;
}

/* --- the run ---------------------------------------------------------------------------------- */

/* The contents that the previous run left are undefined for this one: the simulator reports reads
 * of them. */
static nova_status run_forget(nova_device_run *r)
{
    nova_driver *driver = r->device->driver;
    const nova_device_block *workspace = r->execution->workspace, *staging = r->execution->staging;
    int result = 0;
    if (driver->memory_forget == NULL)
        return NOVA_OK;
    if (workspace != NULL)
        result = driver->memory_forget(driver, workspace->address, workspace->size, r->stream);
    if (result == 0 && r->size > 0)
        result = driver->memory_forget(driver, staging->address, r->size, r->stream);
    return nova_run_check(r, result, "the workspace cannot be prepared");
}

static nova_status run_once(nova_device_run *r)
{
    nova_device_execution *execution = r->execution;
    /* The workspace and the staging buffer belong to the previous run until that has ended. */
    nova_status status = nova_device_order_inside(r->device, execution->last, r->stream, r->error);
    execution->last = r->stream;
    if (execution->workspace != NULL)
        execution->workspace->stream = r->stream;
    if (status == NOVA_OK)
        status = run_find_offsets(r);
    if (status == NOVA_OK)
        status = run_prepare_staging(r);
    if (status != NOVA_OK)
        return status;
    run_fill_slots(r);
    status = run_forget(r);
    if (status == NOVA_OK)
        status = nova_run_copy_in(r);
    if (status == NOVA_OK)
        status = nova_run_launch(r);
    if (status == NOVA_OK)
        status = nova_run_copy_out(r);
    execution->runs++;
    return status;
}

/* Waits until the run has ended, for a caller that asked for it, or releases the resources of the
 * run. */
static nova_status run_await(nova_device_run *r, nova_error *error)
{
    void *event;
    nova_status status = nova_device_mark_inside(r->device, r->stream, &event, error);
    nova_trace_host(r->trace, NOVA_SPAN_WAIT);
    if (status == NOVA_OK)
        status = nova_device_await_inside(r->device, event, error);
    return status;
}

nova_status nova_device_program_run(nova_device_program *program,
                                    const nova_device_value *arguments,
                                    const nova_device_value *outputs,
                                    const nova_device_run_options *options, nova_error *error)
{
    if (program == NULL || options == NULL || (arguments == NULL && program->argument_count > 0) ||
        (outputs == NULL && program->output_count > 0))
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "", "a pointer is missing");
    nova_device_run r = {.program = program,
                         .device = program->device,
                         .arguments = arguments,
                         .outputs = outputs,
                         .options = options,
                         .trace = options->trace,
                         .error = error,
                         .counts = {.runs = 1}};
    nova_status status = nova_device_enter_idle(r.device, error);
    if (status != NOVA_OK)
        return status;
    status = nova_device_execution_take(program, &r.execution, error);
    if (status == NOVA_OK) {
        void *stream = r.execution->pooled_stream->stream;
        r.stream = options->stream == NOVA_OWN_STREAM ? stream : options->stream;
        status = run_once(&r);
        nova_error ignored;
        if (status == NOVA_OK && options->waits)
            status = run_await(&r, error);
        else if (status != NOVA_OK && nova_device_program_is_mixed(program))
            /* kernels before a host region that failed use the arrays of the caller */
            (void)run_await(&r, &ignored);
        nova_device_execution_give(program, r.execution, &r.counts);
    }
    nova_trace_stop(r.trace);
    nova_device_leave(r.device);
    return status;
}
