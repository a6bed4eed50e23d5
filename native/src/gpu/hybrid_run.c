/* Hybrid programs: host kernels between device kernels.
 *
 * A run executes the steps in order. Device steps and copy steps are only enqueued, each copy step
 * with an event after it. A host step waits for the copies that it needs, then its tasks run on the
 * thread pool, concurrently with earlier work of the device. */
#include <string.h>

#include "gpu/device_run.h"

/* Waits until the previous run no longer uses the host shadow. */
static nova_status hybrid_acquire_host_shadow(nova_device_run *r)
{
    nova_driver *driver = r->device->driver;
    if (!r->execution->host_shadow_is_busy)
        return NOVA_OK;
    r->execution->host_shadow_is_busy = false;
    nova_trace_host(r->trace, NOVA_SPAN_WAIT);
    int result = driver->event_synchronize(driver, r->execution->host_shadow_released);
    nova_trace_host(r->trace, NOVA_SPAN_ENQUEUE);
    return nova_run_check(r, result, "the previous run cannot be waited for");
}

/* The caller's array that a copy would read back from the device; NULL if the value is on the
 * device only, or differs. */
static const void *hybrid_array_in_memory(const nova_device_run *r, const nova_device_step *step,
                                          uint32_t index)
{
    if (!r->program->hybrid.is_original[step->first + index])
        return NULL;
    const nova_buffer *buffer =
        nova_operand(r->program, nova_step_launch(r->program, step, index), 0);
    const nova_device_value *value = &r->arguments[buffer->value];
    return value->address == 0 ? value->host : NULL;
}

static char *hybrid_shadow_offset(const nova_device_run *r, const nova_buffer *buffer)
{
    return r->execution->host_shadow + nova_host_shadow_offset(r->program, buffer);
}

/* Copies arrays of the caller into the host shadow that a host region needs, in place of earlier
 * copy steps: by now the device has its work. */
static nova_status hybrid_refresh_arrays(nova_device_run *r, const nova_device_step *region)
{
    nova_status status = NOVA_OK;
    const nova_device_step *step = r->program->steps + r->refreshed_copy_steps;
    for (; status == NOVA_OK && step < region; step++)
        for (uint32_t i = 0; step->type == NOVA_COPY_STEP && i < step->count; i++) {
            const nova_launch_record *launch = nova_step_launch(r->program, step, i);
            const nova_buffer *buffer = nova_operand(r->program, launch, 0);
            const void *array = hybrid_array_in_memory(r, step, i);
            if (array == NULL)
                continue;
            status = hybrid_acquire_host_shadow(r);
            if (status != NOVA_OK)
                break;
            memcpy(hybrid_shadow_offset(r, buffer), array, buffer->nbytes);
        }
    r->refreshed_copy_steps = (uint32_t)(region - r->program->steps);
    return status;
}

static nova_status hybrid_copy(nova_device_run *r, const nova_launch_record *launch)
{
    nova_driver *driver = r->device->driver;
    const nova_buffer *buffer = nova_operand(r->program, launch, 0);
    char *here = hybrid_shadow_offset(r, buffer);
    uint64_t there = nova_run_address(r, buffer);
    bool is_out = nova_launch_core(r->program, launch) == NOVA_TO_HOST;
    nova_trace_begin(r->trace, is_out ? NOVA_SPAN_COPY_OUT : NOVA_SPAN_COPY_IN,
                     (uint32_t)(launch - r->program->tables.launches), buffer->nbytes, r->stream);
    int result = is_out ? driver->copy_out(driver, here, there, buffer->nbytes, r->stream)
                        : driver->copy_in(driver, there, here, buffer->nbytes, r->stream);
    nova_trace_end(r->trace, r->stream);
    return nova_run_check(r, result, "a value cannot be copied between device and host");
}

nova_status nova_run_copies(nova_device_run *r, const nova_device_step *step)
{
    nova_driver *driver = r->device->driver;
    bool is_enqueued = false;
    nova_status status = NOVA_OK;
    for (uint32_t i = 0; status == NOVA_OK && i < step->count; i++) {
        if (hybrid_array_in_memory(r, step, i) != NULL)
            continue;
        status = hybrid_copy(r, nova_step_launch(r->program, step, i));
        is_enqueued = true;
    }
    if (status != NOVA_OK)
        return status;
    if (!is_enqueued && r->completed_copy_steps == step->number) {
        r->completed_copy_steps++; /* no wait is needed */
        return NOVA_OK;
    }
    return nova_run_check(
        r, driver->event_record(driver, r->execution->copies[step->number], r->stream),
        "copies between device and host cannot be waited for");
}

nova_status nova_run_host_region(nova_device_run *r, const nova_device_step *step)
{
    nova_driver *driver = r->device->driver;
    const nova_host_region *region = &r->program->hybrid.host_regions[step->number];
    const nova_program_options *host = &r->options->host;
    nova_status status = host->poll != NULL ? host->poll(host->owner) : NOVA_OK;
    if (status != NOVA_OK)
        return nova_fail(r->error, status, "", "%s", nova_status_text(status));
    if (region->waits != NOVA_NO_STEP && region->waits >= r->completed_copy_steps) {
        nova_trace_host(r->trace, NOVA_SPAN_WAIT);
        int result = driver->event_synchronize(driver, r->execution->copies[region->waits]);
        status = nova_run_check(r, result, "the device cannot be waited for");
        r->completed_copy_steps = region->waits + 1;
        /* the stream of this run is ordered after that of the previous run */
        r->execution->host_shadow_is_busy = false;
    } else {
        status = hybrid_acquire_host_shadow(r);
    }
    if (status == NOVA_OK)
        status = hybrid_refresh_arrays(r, step);
    if (status != NOVA_OK)
        return status;
    nova_trace_host_region(r->trace, r->program->launches[step->first],
                           r->program->launches[step->first + step->count - 1] + 1);
    status = nova_program_run_by(region->program, region->constants, NULL,
                                 r->execution->host_shadow, host, r->error);
    nova_trace_host(r->trace, NOVA_SPAN_ENQUEUE);
    return status;
}

nova_status nova_run_leave_host_shadow(nova_device_run *r, nova_error *error)
{
    nova_device_execution *execution = r->execution;
    nova_driver *driver = r->device->driver;
    if (execution->host_shadow == NULL)
        return NOVA_OK;
    int result = driver->event_record(driver, execution->host_shadow_released, r->stream);
    execution->host_shadow_is_busy = result == 0;
    return nova_device_check(r->device, result,
                             "copies between device and host cannot be waited for", error);
}
