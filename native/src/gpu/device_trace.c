/* Traces: timed events around all that a run enqueues, and the host's clock for what the thread does.
 *
 * An event that is waited for when the run begins says what the host's clock was at a moment of the device's;
 * all others are counted from there. They are read when somebody wants the trace, so that a run which does not
 * wait for the device does not wait because it is traced. */
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
    void *base;            /* the event at `base_ns` */
    uint64_t base_ns, start_ns, end_ns;
    recorded *made;        /* until it is read */
    size_t count, room;
    uint32_t *values;
    size_t value_count, value_room;
    bool has_begun;        /* whether the last span is one that waits for its end */
    nova_span_kind host;   /* what the thread has been doing */
    uint32_t host_launch, host_count;
    uint64_t host_since;
    uint64_t lost;
    nova_span *spans;      /* when it is read */
    size_t span_count;
    pthread_mutex_t mutex; /* of who reads */
};

/* --- events ----------------------------------------------------------------------------------- */

static void *take_timed(nova_device *device)
{
    pthread_mutex_lock(&device->mutex);
    void *event = device->timed_count > 0 ? device->timed[--device->timed_count] : NULL;
    pthread_mutex_unlock(&device->mutex);
    if (event != NULL || device->driver->event_create(device->driver, true, &event) == 0)
        return event;
    return NULL;
}

static void give_timed(nova_device *device, void *event)
{
    if (event == NULL)
        return;
    pthread_mutex_lock(&device->mutex);
    bool kept = device->timed_count < NOVA_IDLE_TIMED;
    if (kept)
        device->timed[device->timed_count++] = event;
    pthread_mutex_unlock(&device->mutex);
    if (!kept)
        device->driver->event_destroy(device->driver, event);
}

/* An event that the stream has been told to note; NULL when it could not be. */
static void *record(nova_device *device, void *stream)
{
    void *event = take_timed(device);
    if (event == NULL || device->driver->event_record(device->driver, event, stream) == 0)
        return event;
    give_timed(device, event);
    return NULL;
}

/* Notes a moment of both clocks, on a stream that has nothing else to do. */
static nova_status find_base(nova_device_trace *trace, nova_error *error)
{
    nova_device *device = trace->device;
    nova_driver *driver = device->driver;
    nova_lane *lane;
    nova_status status = nova_lane_take(device, &lane, error);
    if (status != NOVA_OK)
        return status;
    trace->base = take_timed(device);
    int result = 0;
    /* The first time is to have everything awake. */
    for (int i = 0; trace->base != NULL && result == 0 && i < 2; i++) {
        uint64_t before = nova_clock_ns();
        result = driver->event_record(driver, trace->base, lane->stream);
        if (result == 0)
            result = driver->event_synchronize(driver, trace->base);
        trace->base_ns = before + (nova_clock_ns() - before) / 2;
    }
    nova_lane_give(device, lane);
    if (trace->base == NULL)
        return nova_fail(error, NOVA_DEVICE_CALL, "", "the device has no event for a trace");
    return nova_device_check(device, result, "the clock of the device cannot be read", error);
}

/* --- records ---------------------------------------------------------------------------------- */

static recorded *add(nova_device_trace *trace, recorded made)
{
    if (trace->count == trace->room) {
        size_t room = trace->room * 2 + 32;
        recorded *more = realloc(trace->made, room * sizeof *more);
        if (more == NULL) {
            trace->lost++;
            return NULL;
        }
        trace->made = more;
        trace->room = room;
    }
    trace->made[trace->count] = made;
    return &trace->made[trace->count++];
}

void nova_trace_begin_span(nova_device_trace *trace, nova_span_kind kind, uint32_t launch,
                           uint64_t bytes, void *stream)
{
    recorded made = {.span = {.kind = kind, .launch = launch, .bytes = bytes}};
    made.span.first = (uint32_t)trace->value_count;
    trace->has_begun = add(trace, made) != NULL;
    if (trace->has_begun) /* the event last: what takes time is to be before it */
        trace->made[trace->count - 1].from = record(trace->device, stream);
}

void nova_trace_end_span(nova_device_trace *trace, void *stream)
{
    if (trace->has_begun)
        trace->made[trace->count - 1].to = record(trace->device, stream);
    trace->has_begun = false;
}

void nova_trace_add_value(nova_device_trace *trace, size_t slot)
{
    if (!trace->has_begun)
        return;
    if (trace->value_count == trace->value_room) {
        size_t room = trace->value_room * 2 + 16;
        uint32_t *more = realloc(trace->values, room * sizeof *more);
        if (more == NULL)
            return; /* the copy is there, with fewer names */
        trace->values = more;
        trace->value_room = room;
    }
    trace->values[trace->value_count++] = (uint32_t)slot;
    trace->made[trace->count - 1].span.count++;
}

/* Adds what the thread did until now. */
static void end_host(nova_device_trace *trace, uint64_t now)
{
    recorded made = {.span = {.kind = trace->host,
                              .launch = trace->host_launch,
                              .count = trace->host_count,
                              .start_ns = trace->host_since,
                              .end_ns = now}};
    if (now > trace->host_since || trace->host == NOVA_SPAN_HOST)
        (void)add(trace, made);
}

void nova_trace_set_host(nova_device_trace *trace, nova_span_kind kind, uint32_t launch,
                         uint32_t count)
{
    uint64_t now = nova_clock_ns();
    end_host(trace, now);
    trace->host = kind;
    trace->host_launch = launch;
    trace->host_count = count;
    trace->host_since = now;
}

void nova_trace_stop_run(nova_device_trace *trace)
{
    trace->end_ns = nova_clock_ns();
    end_host(trace, trace->end_ns);
}

/* --- making and reading ------------------------------------------------------------------------ */

nova_status nova_device_trace_create(nova_device *device, nova_device_trace **trace,
                                     nova_error *error)
{
    if (device == NULL || trace == NULL)
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "", "a pointer is missing");
    nova_device_trace *made = calloc(1, sizeof *made);
    if (made == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for a trace");
    if (pthread_mutex_init(&made->mutex, NULL) != 0) {
        free(made);
        return nova_fail(error, NOVA_SYSTEM_ERROR, "", "no mutex");
    }
    made->device = device;
    made->host = NOVA_SPAN_ENQUEUE;
    made->host_launch = NOVA_NO_LAUNCH;
    nova_status status = nova_device_enter(device, error);
    if (status == NOVA_OK) {
        status = find_base(made, error);
        nova_device_leave(device);
    }
    if (status != NOVA_OK) {
        nova_device_trace_destroy(made);
        return status;
    }
    made->start_ns = made->end_ns = made->host_since = nova_clock_ns();
    *trace = made;
    return NOVA_OK;
}

/* When an event was passed, by the host's clock; false when the device does not say. */
static bool read_event(const nova_device_trace *trace, void *event, uint64_t *ns)
{
    nova_driver *driver = trace->device->driver;
    float milliseconds;
    if (event == NULL || driver->event_synchronize(driver, event) != 0 ||
        driver->event_elapsed(driver, trace->base, event, &milliseconds) != 0)
        return false;
    *ns = trace->base_ns + (uint64_t)(int64_t)((double)milliseconds * 1e6);
    return true;
}

/* Brings a span of the device to the host's clock. The two were compared to within some microseconds, and
 * nothing happens before it was asked for. */
static bool read_span(const nova_device_trace *trace, recorded *made)
{
    nova_span *span = &made->span;
    if (span->kind >= NOVA_SPAN_ENQUEUE)
        return true;
    if (!read_event(trace, made->from, &span->start_ns) ||
        !read_event(trace, made->to, &span->end_ns))
        return false;
    if (span->start_ns < trace->start_ns)
        span->start_ns = trace->start_ns;
    if (span->end_ns < span->start_ns)
        span->end_ns = span->start_ns;
    return true;
}

/* Reads all spans, and gives the events back. */
static void settle(nova_device_trace *trace)
{
    nova_device *device = trace->device;
    nova_error ignored;
    bool is_inside = nova_device_enter(device, &ignored) == NOVA_OK;
    trace->spans = malloc((trace->count + 1) * sizeof *trace->spans);
    for (size_t i = 0; i < trace->count; i++) {
        recorded *made = &trace->made[i];
        if (is_inside && trace->spans != NULL && read_span(trace, made)) {
            trace->spans[trace->span_count++] = made->span;
            if (made->span.end_ns > trace->end_ns)
                trace->end_ns = made->span.end_ns;
        } else {
            trace->lost++;
        }
        give_timed(device, made->from);
        give_timed(device, made->to);
    }
    give_timed(device, trace->base);
    trace->base = NULL;
    trace->count = 0;
    free(trace->made);
    trace->made = NULL;
    if (is_inside)
        nova_device_leave(device);
}

void nova_device_trace_read(nova_device_trace *trace, nova_device_timeline *timeline)
{
    pthread_mutex_lock(&trace->mutex);
    if (trace->base != NULL)
        settle(trace);
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
        settle(trace);
    pthread_mutex_destroy(&trace->mutex);
    free(trace->made);
    free(trace->spans);
    free(trace->values);
    free(trace);
}
