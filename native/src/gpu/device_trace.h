/* What a run tells its trace, if it has one; nobody but the files of the device runtime includes
 * this. */
#ifndef NOVA_GPU_DEVICE_TRACE_H
#define NOVA_GPU_DEVICE_TRACE_H

#include "gpu/device_state.h"

/* All of these never fail: a span that there is no event or memory for is counted as lost. They are
 * called by the thread that runs, in its device's context. */
void nova_trace_begin_span(nova_device_trace *trace, nova_span_kind kind, uint32_t launch,
                           uint64_t bytes, void *stream);
void nova_trace_end_span(nova_device_trace *trace, void *stream);
void nova_trace_add_value(nova_device_trace *trace, size_t slot);
void nova_trace_set_host(nova_device_trace *trace, nova_span_kind kind, uint32_t launch,
                         uint32_t count);
void nova_trace_stop_run(nova_device_trace *trace);

/* Around what is enqueued on a stream: the begin and the end of a kernel or copy. */
static inline void nova_trace_begin(nova_device_trace *trace, nova_span_kind kind, uint32_t launch,
                                    uint64_t bytes, void *stream)
{
    if (trace != NULL)
        nova_trace_begin_span(trace, kind, launch, bytes, stream);
}

static inline void nova_trace_end(nova_device_trace *trace, void *stream)
{
    if (trace != NULL)
        nova_trace_end_span(trace, stream);
}

/* Adds an argument, or behind those an output, to what the copy that was begun last moves. */
static inline void nova_trace_value(nova_device_trace *trace, size_t slot)
{
    if (trace != NULL)
        nova_trace_add_value(trace, slot);
}

/* Says what the calling thread does from now on. */
static inline void nova_trace_host(nova_device_trace *trace, nova_span_kind kind)
{
    if (trace != NULL)
        nova_trace_set_host(trace, kind, NOVA_NO_LAUNCH, 0);
}

/* That is the launches [first, end) of the tables, all of the host. */
static inline void nova_trace_host_region(nova_device_trace *trace, uint32_t first, uint32_t end)
{
    if (trace != NULL)
        nova_trace_set_host(trace, NOVA_SPAN_HOST, first, end - first);
}

/* The calling thread is done with the run; the device may not be. */
static inline void nova_trace_stop(nova_device_trace *trace)
{
    if (trace != NULL)
        nova_trace_stop_run(trace);
}

#endif
