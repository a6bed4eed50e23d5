/* The copies of a run: small values in one copy through pinned memory of the execution, large ones
 * in chunks on copy streams, and device arrays that are not aligned. */
#include <string.h>

#include "gpu/device_run.h"

/* Nothing to do after most runs. */
nova_status nova_run_free_pinned(nova_device_run *r)
{
    nova_device_execution *execution = r->execution;
    if (!execution->pinned_is_busy)
        return NOVA_OK;
    execution->pinned_is_busy = false;
    nova_trace_host(r->trace, NOVA_SPAN_WAIT);
    int result = r->device->driver->event_synchronize(r->device->driver, execution->copied);
    nova_trace_host(r->trace, NOVA_SPAN_ENQUEUE);
    return nova_run_check(r, result, "the arguments of the previous run cannot be waited for");
}

/* Whether an argument is on the host. */
static bool transfer_is_host_argument(const nova_device_run *r, size_t i)
{
    return r->execution->staging_offsets[i] != NOVA_NOT_STAGED && r->arguments[i].address == 0;
}

/* Starts the copy of one value, of the nova_span_kind. */
static void transfer_begin_copy(nova_device_run *r, nova_span_kind span_type, size_t slot,
                                void *stream)
{
    nova_trace_begin(r->trace, span_type, NOVA_NO_LAUNCH, (uint64_t)r->program->nbytes[slot],
                     stream);
    nova_trace_value(r->trace, slot);
}

/* Small values: gathered in pinned memory, one copy. */
static nova_status transfer_copy_in_small(nova_device_run *r)
{
    nova_device_execution *execution = r->execution;
    nova_driver *driver = r->device->driver;
    nova_status status = nova_run_free_pinned(r);
    if (status != NOVA_OK)
        return status;
    for (size_t i = 0; i < r->program->argument_count; i++)
        if (transfer_is_host_argument(r, i))
            memcpy(execution->pinned + execution->staging_offsets[i], r->arguments[i].host,
                   (size_t)r->program->nbytes[i]);
    nova_trace_begin(r->trace, NOVA_SPAN_COPY_IN, NOVA_NO_LAUNCH, r->inputs_end, r->stream);
    for (size_t i = 0; r->trace != NULL && i < r->program->argument_count; i++)
        if (transfer_is_host_argument(r, i))
            nova_trace_value(r->trace, i);
    int result = driver->copy_in(driver, execution->staging->address, execution->pinned,
                                 r->inputs_end, r->stream);
    nova_trace_end(r->trace, r->stream);
    if (result == 0 && !r->has_host_results) { /* the caller does not wait for the run */
        result = driver->event_record(driver, execution->copied, r->stream);
        execution->pinned_is_busy = result == 0;
    }
    return nova_run_check(r, result, "the arguments cannot be copied to the device");
}

/* Large values: in chunks, on a copy stream, while the CPU fills the next chunk. */
static nova_status transfer_copy_in_large(nova_device_run *r)
{
    nova_device *device = r->device;
    nova_double_buffer *buffer;
    /* The previous run may still read the staging buffer. */
    nova_status status = nova_device_order_inside(device, r->stream, device->in, r->error);
    if (status == NOVA_OK)
        status = nova_double_buffer_take(device, &buffer, r->error);
    if (status != NOVA_OK)
        return status;
    nova_trace_host(r->trace, NOVA_SPAN_STAGE);
    for (size_t i = 0; status == NOVA_OK && i < r->program->argument_count; i++) {
        if (!transfer_is_host_argument(r, i))
            continue;
        transfer_begin_copy(r, NOVA_SPAN_COPY_IN, i, device->in);
        status =
            nova_double_buffer_upload(device, buffer, r->execution->slots[i], r->arguments[i].host,
                                      (uint64_t)r->program->nbytes[i], device->in, r->error);
        nova_trace_end(r->trace, device->in);
    }
    nova_trace_host(r->trace, NOVA_SPAN_ENQUEUE);
    nova_double_buffer_give(device, buffer);
    if (status == NOVA_OK)
        status = nova_device_order_inside(device, device->in, r->stream, r->error);
    return status;
}

/* Device arrays that are not aligned, to the staging buffer or back. */
static nova_status transfer_copy_unaligned(nova_device_run *r, bool back)
{
    nova_driver *driver = r->device->driver;
    int result = 0;
    size_t inputs = r->program->argument_count, outputs = r->program->output_count;
    for (size_t i = 0; result == 0 && i < inputs + outputs; i++) {
        uint64_t theirs = i < inputs ? r->arguments[i].address : r->outputs[i - inputs].address;
        bool is_copied = back ? i >= inputs || r->program->donated[i] : i < inputs;
        if (r->execution->staging_offsets[i] == NOVA_NOT_STAGED || theirs == 0 || !is_copied)
            continue;
        uint64_t address = r->execution->slots[i], size = (uint64_t)r->program->nbytes[i];
        transfer_begin_copy(r, NOVA_SPAN_COPY_WITHIN, i, r->stream);
        result = driver->copy_within(driver, back ? theirs : address, back ? address : theirs, size,
                                     r->stream);
        nova_trace_end(r->trace, r->stream);
    }
    return nova_run_check(r, result, "an array cannot be copied on the device");
}

nova_status nova_run_copy_in(nova_device_run *r)
{
    nova_status status = NOVA_OK;
    if (r->has_host_inputs)
        status =
            r->size <= NOVA_MOST_PINNED ? transfer_copy_in_small(r) : transfer_copy_in_large(r);
    if (status == NOVA_OK && r->inputs_end > 0)
        status = transfer_copy_unaligned(r, false);
    return status;
}

/* The host address of slot `i` after a run; NULL: none. */
static void *transfer_host_result(const nova_device_run *r, size_t i)
{
    size_t inputs = r->program->argument_count;
    const nova_device_value *value = i < inputs ? &r->arguments[i] : &r->outputs[i - inputs];
    bool is_result = i >= inputs || r->program->donated[i];
    return is_result && r->execution->staging_offsets[i] != NOVA_NOT_STAGED && value->address == 0
               ? value->host
               : NULL;
}

static nova_status transfer_copy_out_small(nova_device_run *r)
{
    nova_device_execution *execution = r->execution;
    nova_driver *driver = r->device->driver;
    size_t count = r->program->argument_count + r->program->output_count;
    nova_trace_begin(r->trace, NOVA_SPAN_COPY_OUT, NOVA_NO_LAUNCH, r->size - r->results, r->stream);
    for (size_t i = 0; r->trace != NULL && i < count; i++)
        if (transfer_host_result(r, i) != NULL)
            nova_trace_value(r->trace, i);
    int result =
        driver->copy_out(driver, execution->pinned + r->results,
                         execution->staging->address + r->results, r->size - r->results, r->stream);
    nova_trace_end(r->trace, r->stream);
    nova_trace_host(r->trace, NOVA_SPAN_WAIT);
    if (result == 0)
        result = driver->stream_synchronize(driver, r->stream);
    nova_trace_host(r->trace, NOVA_SPAN_STAGE);
    nova_status status = nova_run_check(r, result, "the results cannot be copied from the device");
    for (size_t i = 0; status == NOVA_OK && i < count; i++) {
        void *host = transfer_host_result(r, i);
        if (host != NULL)
            memcpy(host, execution->pinned + execution->staging_offsets[i],
                   (size_t)r->program->nbytes[i]);
    }
    return status;
}

static nova_status transfer_copy_out_large(nova_device_run *r)
{
    nova_device *device = r->device;
    nova_double_buffer *buffer;
    nova_status status = nova_device_order_inside(device, r->stream, device->out, r->error);
    if (status == NOVA_OK)
        status = nova_double_buffer_take(device, &buffer, r->error);
    if (status != NOVA_OK)
        return status;
    size_t count = r->program->argument_count + r->program->output_count;
    nova_trace_host(r->trace, NOVA_SPAN_STAGE);
    for (size_t i = 0; status == NOVA_OK && i < count; i++) {
        void *host = transfer_host_result(r, i);
        if (host == NULL)
            continue;
        transfer_begin_copy(r, NOVA_SPAN_COPY_OUT, i, device->out);
        status =
            nova_double_buffer_download(device, buffer, host, r->execution->slots[i],
                                        (uint64_t)r->program->nbytes[i], device->out, r->error);
        nova_trace_end(r->trace, device->out);
    }
    nova_double_buffer_give(device, buffer);
    return status;
}

nova_status nova_run_copy_out(nova_device_run *r)
{
    nova_status status = r->size > 0 ? transfer_copy_unaligned(r, true) : NOVA_OK;
    if (status == NOVA_OK && r->has_host_results)
        status =
            r->size <= NOVA_MOST_PINNED ? transfer_copy_out_small(r) : transfer_copy_out_large(r);
    return status;
}
