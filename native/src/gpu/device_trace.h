/* Recording of a run into its trace, if it has one; included by the files of this folder only. */
#ifndef NOVA_GPU_DEVICE_TRACE_H
#define NOVA_GPU_DEVICE_TRACE_H

#include "gpu/device_state.h"

/* These functions never fail: a span without an event or memory is counted as lost. They are called
 * by the running thread, in the context of its device. */
void nova_trace_begin_span(nova_device_trace *trace, nova_span_kind span_type, uint32_t launch,
                           uint64_t bytes, void *stream);
void nova_trace_end_span(nova_device_trace *trace, void *stream);
void nova_trace_add_value(nova_device_trace *trace, size_t slot);
void nova_trace_set_host(nova_device_trace *trace, nova_span_kind span_type, uint32_t launch,
                         uint32_t count);
void nova_trace_add_task(nova_device_trace *trace, const nova_span *span);
void nova_trace_stop_run(nova_device_trace *trace);

/* Begin and end of a kernel or copy that is enqueued on a stream. */
static inline void nova_trace_begin(nova_device_trace *trace, nova_span_kind span_type,
                                    uint32_t launch, uint64_t bytes, void *stream)
{
    if (trace != NULL)
        nova_trace_begin_span(trace, span_type, launch, bytes, stream);
}

static inline void nova_trace_end(nova_device_trace *trace, void *stream)
{
    if (trace != NULL)
        nova_trace_end_span(trace, stream);
}

/* Adds an argument, or an output (numbered after the arguments), to the values of the last copy. */
static inline void nova_trace_value(nova_device_trace *trace, size_t slot)
{
    if (trace != NULL)
        nova_trace_add_value(trace, slot);
}

/* Sets the activity of the calling thread from now on. */
static inline void nova_trace_host(nova_device_trace *trace, nova_span_kind span_type)
{
    if (trace != NULL)
        nova_trace_set_host(trace, span_type, NOVA_NO_LAUNCH, 0);
}

/* That is the launches [first, end) of the tables, all of the host. */
static inline void nova_trace_host_region(nova_device_trace *trace, uint32_t first, uint32_t end)
{
    if (trace != NULL)
        nova_trace_set_host(trace, NOVA_SPAN_HOST, first, end - first);
}

/* The calling thread has finished the run; the device may still execute it. */
static inline void nova_trace_stop(nova_device_trace *trace)
{
    if (trace != NULL)
        nova_trace_stop_run(trace);
}

#endif
