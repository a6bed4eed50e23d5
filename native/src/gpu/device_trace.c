/* Traces: timed events around all work that a run enqueues, and the host clock for the calling
 * thread.
 *
 * An event that is waited for at the start of the run relates the clocks of host and device; all
 * other events are measured from it. They are read on demand, so that tracing does not make an
 * asynchronous run wait for the device. */
#include "gpu/device_trace.h"

#include <stdlib.h>

#include "nova/scheduler.h"

/* Events are NULL for spans of the host, and where there was none. */
typedef struct {
    nova_span span;
    void *from, *to;
} recorded;

struct nova_device_trace {
    nova_device *device;
    void *base; /* the event at `base_ns` */
    uint64_t base_ns, start_ns, end_ns;
    recorded *created; /* until it is read */
    size_t count, capacity;
    uint32_t *values;
    size_t value_count, value_capacity;
    bool has_begun;      /* whether the last span is one that waits for its end */
    nova_span_kind host; /* the current activity of the thread */
    uint32_t host_launch, host_count;
    uint64_t host_since;
    uint64_t lost;
    nova_span *spans; /* when it is read */
    size_t span_count;
    pthread_mutex_t mutex; /* of the readers */
};

/* --- events ----------------------------------------------------------------------------------- */

static void *trace_take_timed(nova_device *device)
{
    pthread_mutex_lock(&device->mutex);
    void *event = device->timed_count > 0 ? device->timed[--device->timed_count] : NULL;
    pthread_mutex_unlock(&device->mutex);
    if (event != NULL || device->driver->event_create(device->driver, true, &event) == 0)
        return event;
    return NULL;
}

static void trace_give_timed(nova_device *device, void *event)
{
    if (event == NULL)
        return;
    pthread_mutex_lock(&device->mutex);
    bool is_cached = device->timed_count < NOVA_IDLE_TIMED;
    if (is_cached)
        device->timed[device->timed_count++] = event;
    pthread_mutex_unlock(&device->mutex);
    if (!is_cached)
        device->driver->event_destroy(device->driver, event);
}

/* An event recorded on the stream; NULL on failure. */
static void *trace_record(nova_device *device, void *stream)
{
    void *event = trace_take_timed(device);
    if (event == NULL || device->driver->event_record(device->driver, event, stream) == 0)
        return event;
    trace_give_timed(device, event);
    return NULL;
}

/* Samples both clocks, on an idle stream. */
static nova_status trace_find_base(nova_device_trace *trace, nova_error *error)
{
    nova_device *device = trace->device;
    nova_driver *driver = device->driver;
    nova_pooled_stream *lane;
    nova_status status = nova_pooled_stream_take(device, &lane, error);
    if (status != NOVA_OK)
        return status;
    trace->base = trace_take_timed(device);
    int result = 0;
    /* The first time is to have everything awake. */
    for (int i = 0; trace->base != NULL && result == 0 && i < 2; i++) {
        uint64_t before = nova_clock_ns();
        result = driver->event_record(driver, trace->base, lane->stream);
        if (result == 0)
            result = driver->event_synchronize(driver, trace->base);
        trace->base_ns = before + (nova_clock_ns() - before) / 2;
    }
    nova_pooled_stream_give(device, lane);
    if (trace->base == NULL)
        return nova_fail(error, NOVA_DEVICE_CALL, "", "the device has no event for a trace");
    return nova_device_check(device, result, "the clock of the device cannot be read", error);
}

/* --- records ---------------------------------------------------------------------------------- */

static recorded *trace_add(nova_device_trace *trace, recorded created)
{
    if (trace->count == trace->capacity) {
        size_t capacity = trace->capacity * 2 + 32;
        recorded *more = realloc(trace->created, capacity * sizeof *more);
        if (more == NULL) {
            trace->lost++;
            return NULL;
        }
        trace->created = more;
        trace->capacity = capacity;
    }
    trace->created[trace->count] = created;
    return &trace->created[trace->count++];
}

void nova_trace_begin_span(nova_device_trace *trace, nova_span_kind span_type, uint32_t launch,
                           uint64_t bytes, void *stream)
{
    recorded created = {.span = {.kind = span_type, .launch = launch, .bytes = bytes}};
    created.span.first = (uint32_t)trace->value_count;
    trace->has_begun = trace_add(trace, created) != NULL;
    if (trace->has_begun) /* the event last: the slow part precedes it */
        trace->created[trace->count - 1].from = trace_record(trace->device, stream);
}

void nova_trace_end_span(nova_device_trace *trace, void *stream)
{
    if (trace->has_begun)
        trace->created[trace->count - 1].to = trace_record(trace->device, stream);
    trace->has_begun = false;
}

void nova_trace_add_value(nova_device_trace *trace, size_t slot)
{
    if (!trace->has_begun)
        return;
    if (trace->value_count == trace->value_capacity) {
        size_t capacity = trace->value_capacity * 2 + 16;
        uint32_t *more = realloc(trace->values, capacity * sizeof *more);
        if (more == NULL)
            return; /* the copy is there, with fewer names */
        trace->values = more;
        trace->value_capacity = capacity;
    }
    trace->values[trace->value_count++] = (uint32_t)slot;
    trace->created[trace->count - 1].span.count++;
}

/* Adds the span of the thread up to now. */
static void trace_end_host(nova_device_trace *trace, uint64_t now)
{
    recorded created = {.span = {.kind = trace->host,
                                 .launch = trace->host_launch,
                                 .count = trace->host_count,
                                 .start_ns = trace->host_since,
                                 .end_ns = now}};
    if (now > trace->host_since || trace->host == NOVA_SPAN_HOST)
        (void)trace_add(trace, created);
}

void nova_trace_set_host(nova_device_trace *trace, nova_span_kind span_type, uint32_t launch,
                         uint32_t count)
{
    uint64_t now = nova_clock_ns();
    trace_end_host(trace, now);
    trace->host = span_type;
    trace->host_launch = launch;
    trace->host_count = count;
    trace->host_since = now;
}

void nova_trace_add_task(nova_device_trace *trace, const nova_span *span)
{
    (void)trace_add(trace, (recorded){.span = *span});
}

void nova_trace_stop_run(nova_device_trace *trace)
{
    trace->end_ns = nova_clock_ns();
    trace_end_host(trace, trace->end_ns);
}

/* --- making and reading ----------------------------------------------------------------------- */

nova_status nova_device_trace_create(nova_device *device, nova_device_trace **trace,
                                     nova_error *error)
{
    if (device == NULL || trace == NULL)
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "", "a pointer is missing");
    nova_device_trace *created = calloc(1, sizeof *created);
    if (created == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for a trace");
    if (pthread_mutex_init(&created->mutex, NULL) != 0) {
        free(created);
        return nova_fail(error, NOVA_SYSTEM_ERROR, "", "no mutex");
    }
    created->device = device;
    created->host = NOVA_SPAN_ENQUEUE;
    created->host_launch = NOVA_NO_LAUNCH;
    nova_status status = nova_device_enter(device, error);
    if (status == NOVA_OK) {
        status = trace_find_base(created, error);
        nova_device_leave(device);
    }
    if (status != NOVA_OK) {
        nova_device_trace_destroy(created);
        return status;
    }
    created->start_ns = created->end_ns = created->host_since = nova_clock_ns();
    *trace = created;
    return NOVA_OK;
}

/* When an event was passed, by the host's clock; false when the device does not say. */
static bool trace_read_event(const nova_device_trace *trace, void *event, uint64_t *ns)
{
    nova_driver *driver = trace->device->driver;
    float milliseconds;
    if (event == NULL || driver->event_synchronize(driver, event) != 0 ||
        driver->event_elapsed(driver, trace->base, event, &milliseconds) != 0)
        return false;
    *ns = trace->base_ns + (uint64_t)(int64_t)((double)milliseconds * 1e6);
    return true;
}

/* Converts a span of the device to the host clock. The clocks agree to within microseconds; a span
 * is clamped so that it does not start before it was enqueued. */
static bool trace_read_span(const nova_device_trace *trace, recorded *created)
{
    nova_span *span = &created->span;
    if (span->kind >= NOVA_SPAN_ENQUEUE)
        return true;
    if (!trace_read_event(trace, created->from, &span->start_ns) ||
        !trace_read_event(trace, created->to, &span->end_ns))
        return false;
    if (span->start_ns < trace->start_ns)
        span->start_ns = trace->start_ns;
    if (span->end_ns < span->start_ns)
        span->end_ns = span->start_ns;
    return true;
}

/* Reads all spans, and releases the events. */
static void trace_settle(nova_device_trace *trace)
{
    nova_device *device = trace->device;
    nova_error ignored;
    bool is_inside = nova_device_enter(device, &ignored) == NOVA_OK;
    trace->spans = malloc((trace->count + 1) * sizeof *trace->spans);
    for (size_t i = 0; i < trace->count; i++) {
        recorded *created = &trace->created[i];
        if (is_inside && trace->spans != NULL && trace_read_span(trace, created)) {
            trace->spans[trace->span_count++] = created->span;
            if (created->span.end_ns > trace->end_ns && created->span.kind != NOVA_SPAN_TASK)
                trace->end_ns = created->span.end_ns;
        } else {
            trace->lost++;
        }
        trace_give_timed(device, created->from);
        trace_give_timed(device, created->to);
    }
    trace_give_timed(device, trace->base);
    trace->base = NULL;
    trace->count = 0;
    free(trace->created);
    trace->created = NULL;
    if (is_inside)
        nova_device_leave(device);
}

void nova_device_trace_read(nova_device_trace *trace, nova_device_timeline *timeline)
{
    pthread_mutex_lock(&trace->mutex);
    if (trace->base != NULL)
        trace_settle(trace);
    *timeline = (nova_device_timeline){
        .start_ns = trace->start_ns,
        .end_ns = trace->end_ns,
        .lost = trace->lost,
        .spans = trace->spans,
        .span_count = trace->span_count,
        .values = trace->values,
        .value_count = trace->value_count,
    };
    pthread_mutex_unlock(&trace->mutex);
}

void nova_device_trace_destroy(nova_device_trace *trace)
{
    if (trace == NULL)
        return;
    if (trace->base != NULL)
        trace_settle(trace);
    pthread_mutex_destroy(&trace->mutex);
    free(trace->created);
    free(trace->spans);
    free(trace->values);
    free(trace);
}
