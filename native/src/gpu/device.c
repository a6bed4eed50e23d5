/* Opening and closing devices, lost contexts, and the order between streams. */
#include "gpu/device_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- errors ----------------------------------------------------------------------------------- */

static nova_status device_lost(nova_device *device, nova_error *error)
{
    char why[sizeof device->lost_reason];
    pthread_mutex_lock(&device->mutex);
    memcpy(why, device->lost_reason, sizeof why);
    pthread_mutex_unlock(&device->mutex);
    return nova_fail(error, NOVA_DEVICE_FAULT, "", "%s", why);
}

nova_status nova_device_check(nova_device *device, int result, const char *action,
                              nova_error *error)
{
    if (result == 0)
        return NOVA_OK;
    char text[320];
    nova_status status = device->driver->classify(device->driver, result);
    device->driver->explain(device->driver, result, text, sizeof text);
    if (status != NOVA_DEVICE_FAULT)
        return nova_fail(error, status, "", "%s: %s", action, text);
    pthread_mutex_lock(&device->mutex);
    if (device->lost_reason[0] == '\0')
        (void)snprintf(device->lost_reason, sizeof device->lost_reason,
                       "a kernel failed on %.60s: %s", device->info.name, text);
    pthread_mutex_unlock(&device->mutex);
    atomic_store_explicit(&device->is_lost, true, memory_order_release);
    return device_lost(device, error);
}

nova_status nova_device_enter(nova_device *device, nova_error *error)
{
    if (atomic_load_explicit(&device->is_lost, memory_order_acquire))
        return device_lost(device, error);
    return nova_device_check(device, device->driver->enter(device->driver, device->context),
                             "the device cannot be used", error);
}

nova_status nova_device_enter_idle(nova_device *device, nova_error *error)
{
    if (atomic_load_explicit(&device->resident_count, memory_order_acquire) > 0)
        return nova_fail(
            error, NOVA_DEVICE_CALL, "",
            "a resident program has %.60s until it ends: a server, or run_many with "
            "an iterable of batches. Other work would wait for it: close the server first",
            device->info.name);
    return nova_device_enter(device, error);
}

void nova_device_leave(nova_device *device)
{
    device->driver->leave(device->driver);
}

/* --- opening and closing ---------------------------------------------------------------------- */

static nova_status device_start(nova_device *device, nova_error *error)
{
    nova_driver *driver = device->driver;
    nova_status status = nova_device_enter(device, error);
    if (status != NOVA_OK)
        return status;
    int result = driver->stream_create(driver, &device->stream);
    if (result == 0)
        result = driver->stream_create(driver, &device->in);
    if (result == 0)
        result = driver->stream_create(driver, &device->out);
    status = nova_device_check(device, result, "the device has no streams", error);
    if (status == NOVA_OK)
        status = nova_device_take_inside(device, NOVA_DEVICE_ALIGNMENT, device->stream,
                                         &device->empty_block, error);
    nova_device_leave(device);
    return status;
}

nova_status nova_device_open(nova_driver *driver, int ordinal, nova_device **device,
                             nova_error *error)
{
    if (driver == NULL || device == NULL)
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "", "a pointer is missing");
    nova_device *created = calloc(1, sizeof *created);
    if (created == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the device");
    created->driver = driver;
    created->ordinal = ordinal;
    atomic_init(&created->is_lost, false);
    atomic_init(&created->resident_count, 0);
    if (pthread_mutex_init(&created->mutex, NULL) != 0) {
        free(created);
        return nova_fail(error, NOVA_SYSTEM_ERROR, "", "no mutex");
    }
    int count = 0;
    nova_status status =
        nova_device_check(created, driver->count(driver, &count), "no GPU can be asked for", error);
    if (status == NOVA_OK && (ordinal < 0 || ordinal >= count))
        status =
            nova_fail(error, NOVA_WRONG_DEVICE, "", "there is no %s %d: this machine has %d",
                      strcmp(driver->name, "sim") == 0 ? "simulated GPU" : "GPU", ordinal, count);
    if (status == NOVA_OK)
        status = nova_device_check(created, driver->describe(driver, ordinal, &created->info),
                                   "the GPU cannot be queried", error);
    if (status == NOVA_OK)
        status =
            nova_device_check(created, driver->context_open(driver, ordinal, &created->context),
                              "the GPU cannot be opened", error);
    if (status == NOVA_OK)
        status = device_start(created, error);
    if (status != NOVA_OK) {
        nova_device_close(created);
        return status;
    }
    *device = created;
    return NOVA_OK;
}

static void device_stop(nova_device *device)
{
    nova_driver *driver = device->driver;
    nova_device_give(device, device->empty_block);
    nova_device_trim_inside(device);
    while (device->double_buffers != NULL) {
        nova_double_buffer *buffer = device->double_buffers;
        device->double_buffers = buffer->next;
        nova_double_buffer_destroy(device, buffer);
    }
    while (device->event_count > 0)
        driver->event_destroy(driver, device->events[--device->event_count]);
    while (device->timed_count > 0)
        driver->event_destroy(driver, device->timed[--device->timed_count]);
    while (device->idle_streams != NULL) {
        nova_pooled_stream *pooled = device->idle_streams;
        device->idle_streams = pooled->next;
        driver->stream_destroy(driver, pooled->stream);
        free(pooled);
    }
    void *streams[] = {device->stream, device->in, device->out};
    for (int i = 0; i < 3; i++)
        if (streams[i] != NULL)
            driver->stream_destroy(driver, streams[i]);
}

void nova_device_close(nova_device *device)
{
    if (device == NULL)
        return;
    nova_driver *driver = device->driver;
    if (device->context != NULL) {
        /* Also when it is lost: the driver refuses then, and the memory of this process is
         * freed. */
        (void)driver->enter(driver, device->context);
        device_stop(device);
        nova_device_leave(device);
        driver->context_close(driver, device->ordinal, device->context);
    }
    pthread_mutex_destroy(&device->mutex);
    free(device);
}

const nova_device_info *nova_device_describe(const nova_device *device)
{
    return &device->info;
}

int nova_device_ordinal(const nova_device *device)
{
    return device->ordinal;
}

void *nova_device_stream(const nova_device *device)
{
    return device->stream;
}

/* --- streams ---------------------------------------------------------------------------------- */

static void *device_take_event(nova_device *device)
{
    pthread_mutex_lock(&device->mutex);
    void *event = device->event_count > 0 ? device->events[--device->event_count] : NULL;
    pthread_mutex_unlock(&device->mutex);
    return event;
}

static void device_give_event(nova_device *device, void *event)
{
    pthread_mutex_lock(&device->mutex);
    bool is_cached = device->event_count < NOVA_IDLE_EVENTS;
    if (is_cached)
        device->events[device->event_count++] = event;
    pthread_mutex_unlock(&device->mutex);
    if (!is_cached)
        device->driver->event_destroy(device->driver, event);
}

nova_status nova_pooled_stream_take(nova_device *device, nova_pooled_stream **pooled,
                                    nova_error *error)
{
    pthread_mutex_lock(&device->mutex);
    nova_pooled_stream *reusable = device->idle_streams;
    if (reusable != NULL)
        device->idle_streams = reusable->next;
    pthread_mutex_unlock(&device->mutex);
    if (reusable == NULL) {
        reusable = calloc(1, sizeof *reusable);
        if (reusable == NULL)
            return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for a stream");
        nova_status status = nova_device_check(
            device, device->driver->stream_create(device->driver, &reusable->stream),
            "the device has no stream for a run", error);
        if (status != NOVA_OK) {
            free(reusable);
            return status;
        }
    }
    *pooled = reusable;
    return NOVA_OK;
}

void nova_pooled_stream_give(nova_device *device, nova_pooled_stream *pooled)
{
    if (pooled == NULL)
        return;
    pthread_mutex_lock(&device->mutex);
    pooled->next = device->idle_streams;
    device->idle_streams = pooled;
    pthread_mutex_unlock(&device->mutex);
}

nova_status nova_device_mark_inside(nova_device *device, void *stream, void **event,
                                    nova_error *error)
{
    nova_driver *driver = device->driver;
    void *new_event = device_take_event(device);
    int result = new_event != NULL ? 0 : driver->event_create(driver, false, &new_event);
    if (result == 0) {
        result = driver->event_record(driver, new_event, stream);
        if (result == 0)
            *event = new_event;
        else
            device_give_event(device, new_event);
    }
    return nova_device_check(device, result, "the device has no events", error);
}

nova_status nova_device_await_inside(nova_device *device, void *event, nova_error *error)
{
    int result = device->driver->event_synchronize(device->driver, event);
    device_give_event(device, event);
    return nova_device_check(device, result, "the run did not end", error);
}

nova_status nova_device_mark(nova_device *device, void *stream, void **event, nova_error *error)
{
    nova_status status = nova_device_enter(device, error);
    if (status != NOVA_OK)
        return status;
    status = nova_device_mark_inside(device, stream, event, error);
    nova_device_leave(device);
    return status;
}

nova_status nova_device_await(nova_device *device, void *event, nova_error *error)
{
    nova_status status = nova_device_enter(device, error);
    if (status != NOVA_OK) {
        device_give_event(device, event); /* of a device that is lost: it is freed with it */
        return status;
    }
    status = nova_device_await_inside(device, event, error);
    nova_device_leave(device);
    return status;
}

nova_status nova_device_order_inside(nova_device *device, void *earlier, void *later,
                                     nova_error *error)
{
    if (earlier == later)
        return NOVA_OK;
    nova_driver *driver = device->driver;
    void *event;
    nova_status status = nova_device_mark_inside(device, earlier, &event, error);
    if (status != NOVA_OK)
        return status;
    /* The wait is for the state recorded now: the event can be recorded again immediately. */
    int result = driver->stream_wait(driver, later, event);
    device_give_event(device, event);
    return nova_device_check(device, result, "streams cannot be put in order", error);
}

nova_status nova_device_order(nova_device *device, void *earlier, void *later, nova_error *error)
{
    nova_status status = nova_device_enter_idle(device, error);
    if (status != NOVA_OK)
        return status;
    status = nova_device_order_inside(device, earlier, later, error);
    nova_device_leave(device);
    return status;
}

nova_status nova_device_synchronize(nova_device *device, void *stream, nova_error *error)
{
    nova_status status = nova_device_enter_idle(device, error);
    if (status != NOVA_OK)
        return status;
    status = nova_device_check(device, device->driver->stream_synchronize(device->driver, stream),
                               "the stream did not end", error);
    nova_device_leave(device);
    return status;
}
