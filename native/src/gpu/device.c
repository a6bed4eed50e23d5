/* Opening and closing devices, what is lost, and the order between streams. */
#include "gpu/device_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- errors ----------------------------------------------------------------------------------- */

static nova_status lost(nova_device *device, nova_error *error)
{
    char why[sizeof device->lost_why];
    pthread_mutex_lock(&device->mutex);
    memcpy(why, device->lost_why, sizeof why);
    pthread_mutex_unlock(&device->mutex);
    return nova_fail(error, NOVA_DEVICE_FAULT, "", "%s", why);
}

nova_status nova_device_check(nova_device *device, int result, const char *what, nova_error *error)
{
    if (result == 0)
        return NOVA_OK;
    char text[320];
    nova_status status = device->driver->classify(device->driver, result);
    device->driver->explain(device->driver, result, text, sizeof text);
    if (status != NOVA_DEVICE_FAULT)
        return nova_fail(error, status, "", "%s: %s", what, text);
    pthread_mutex_lock(&device->mutex);
    if (device->lost_why[0] == '\0')
        (void)snprintf(device->lost_why, sizeof device->lost_why, "a kernel failed on %.60s: %s",
                       device->info.name, text);
    pthread_mutex_unlock(&device->mutex);
    atomic_store_explicit(&device->is_lost, true, memory_order_release);
    return lost(device, error);
}

nova_status nova_device_enter(nova_device *device, nova_error *error)
{
    if (atomic_load_explicit(&device->is_lost, memory_order_acquire))
        return lost(device, error);
    return nova_device_check(device, device->driver->enter(device->driver, device->context),
                             "the device cannot be used", error);
}

void nova_device_leave(nova_device *device)
{
    device->driver->leave(device->driver);
}

/* --- opening and closing ---------------------------------------------------------------------- */

static nova_status start(nova_device *device, nova_error *error)
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
                                         &device->nothing, error);
    nova_device_leave(device);
    return status;
}

nova_status nova_device_open(nova_driver *driver, int ordinal, nova_device **device,
                             nova_error *error)
{
    if (driver == NULL || device == NULL)
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "", "a pointer is missing");
    nova_device *made = calloc(1, sizeof *made);
    if (made == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the device");
    made->driver = driver;
    made->ordinal = ordinal;
    atomic_init(&made->is_lost, false);
    if (pthread_mutex_init(&made->mutex, NULL) != 0) {
        free(made);
        return nova_fail(error, NOVA_SYSTEM_ERROR, "", "no mutex");
    }
    int count = 0;
    nova_status status =
        nova_device_check(made, driver->count(driver, &count), "no GPU can be asked for", error);
    if (status == NOVA_OK && (ordinal < 0 || ordinal >= count))
        status = nova_fail(error, NOVA_WRONG_DEVICE, "", "there is no %s %d: this machine has %d",
                           strcmp(driver->name, "sim") == 0 ? "simulated GPU" : "GPU", ordinal,
                           count);
    if (status == NOVA_OK)
        status = nova_device_check(made, driver->describe(driver, ordinal, &made->info),
                                   "the GPU does not say what it is", error);
    if (status == NOVA_OK)
        status = nova_device_check(made, driver->context_open(driver, ordinal, &made->context),
                                   "the GPU cannot be opened", error);
    if (status == NOVA_OK)
        status = start(made, error);
    if (status != NOVA_OK) {
        nova_device_close(made);
        return status;
    }
    *device = made;
    return NOVA_OK;
}

static void stop(nova_device *device)
{
    nova_driver *driver = device->driver;
    nova_device_give(device, device->nothing);
    nova_device_trim_inside(device);
    while (device->stages != NULL) {
        nova_stage *stage = device->stages;
        device->stages = stage->next;
        nova_stage_destroy(device, stage);
    }
    while (device->event_count > 0)
        driver->event_destroy(driver, device->events[--device->event_count]);
    while (device->timed_count > 0)
        driver->event_destroy(driver, device->timed[--device->timed_count]);
    while (device->lanes != NULL) {
        nova_lane *lane = device->lanes;
        device->lanes = lane->next;
        driver->stream_destroy(driver, lane->stream);
        free(lane);
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
        /* Also when it is lost: the driver then refuses, and what is of this process is freed. */
        (void)driver->enter(driver, device->context);
        stop(device);
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

static void *take_event(nova_device *device)
{
    pthread_mutex_lock(&device->mutex);
    void *event = device->event_count > 0 ? device->events[--device->event_count] : NULL;
    pthread_mutex_unlock(&device->mutex);
    return event;
}

static void give_event(nova_device *device, void *event)
{
    pthread_mutex_lock(&device->mutex);
    bool kept = device->event_count < NOVA_IDLE_EVENTS;
    if (kept)
        device->events[device->event_count++] = event;
    pthread_mutex_unlock(&device->mutex);
    if (!kept)
        device->driver->event_destroy(device->driver, event);
}

nova_status nova_lane_take(nova_device *device, nova_lane **lane, nova_error *error)
{
    pthread_mutex_lock(&device->mutex);
    nova_lane *found = device->lanes;
    if (found != NULL)
        device->lanes = found->next;
    pthread_mutex_unlock(&device->mutex);
    if (found == NULL) {
        found = calloc(1, sizeof *found);
        if (found == NULL)
            return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for a stream");
        nova_status status =
            nova_device_check(device, device->driver->stream_create(device->driver, &found->stream),
                              "the device has no stream for a run", error);
        if (status != NOVA_OK) {
            free(found);
            return status;
        }
    }
    *lane = found;
    return NOVA_OK;
}

void nova_lane_give(nova_device *device, nova_lane *lane)
{
    if (lane == NULL)
        return;
    pthread_mutex_lock(&device->mutex);
    lane->next = device->lanes;
    device->lanes = lane;
    pthread_mutex_unlock(&device->mutex);
}

nova_status nova_device_mark_inside(nova_device *device, void *stream, void **event,
                                    nova_error *error)
{
    nova_driver *driver = device->driver;
    void *taken = take_event(device);
    int result = taken != NULL ? 0 : driver->event_create(driver, false, &taken);
    if (result == 0) {
        result = driver->event_record(driver, taken, stream);
        if (result == 0)
            *event = taken;
        else
            give_event(device, taken);
    }
    return nova_device_check(device, result, "the device has no events", error);
}

nova_status nova_device_await_inside(nova_device *device, void *event, nova_error *error)
{
    int result = device->driver->event_synchronize(device->driver, event);
    give_event(device, event);
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
        give_event(device, event); /* of a device that is lost: it is freed with it */
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
    /* The wait is for what was recorded now: the event can be recorded anew at once. */
    int result = driver->stream_wait(driver, later, event);
    give_event(device, event);
    return nova_device_check(device, result, "streams cannot be put in order", error);
}

nova_status nova_device_order(nova_device *device, void *earlier, void *later, nova_error *error)
{
    nova_status status = nova_device_enter(device, error);
    if (status != NOVA_OK)
        return status;
    status = nova_device_order_inside(device, earlier, later, error);
    nova_device_leave(device);
    return status;
}

nova_status nova_device_synchronize(nova_device *device, void *stream, nova_error *error)
{
    nova_status status = nova_device_enter(device, error);
    if (status != NOVA_OK)
        return status;
    status = nova_device_check(device,
                               device->driver->stream_synchronize(device->driver, stream),
                               "the stream did not end", error);
    nova_device_leave(device);
    return status;
}
