/* Copies between plain host memory and a device, through pinned memory in two halves. */
#include "gpu/device_state.h"

#include <stdlib.h>
#include <string.h>

void nova_double_buffer_destroy(nova_device *device, nova_double_buffer *buffer)
{
    nova_driver *driver = device->driver;
    for (int half = 0; half < NOVA_DOUBLE_BUFFER_HALVES; half++) {
        if (buffer->copied[half] != NULL) {
            if (buffer->is_busy[half])
                (void)driver->event_synchronize(driver, buffer->copied[half]);
            driver->event_destroy(driver, buffer->copied[half]);
        }
        if (buffer->memory[half] != NULL)
            driver->pinned_free(driver, buffer->memory[half]);
    }
    free(buffer);
}

nova_status nova_double_buffer_take(nova_device *device, nova_double_buffer **buffer,
                                    nova_error *error)
{
    pthread_mutex_lock(&device->mutex);
    nova_double_buffer *reusable = device->double_buffers;
    if (reusable != NULL)
        device->double_buffers = reusable->next;
    pthread_mutex_unlock(&device->mutex);
    if (reusable != NULL) {
        *buffer = reusable;
        return NOVA_OK;
    }
    nova_driver *driver = device->driver;
    nova_double_buffer *created = calloc(1, sizeof *created);
    if (created == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for copies");
    nova_status status = NOVA_OK;
    for (int half = 0; status == NOVA_OK && half < NOVA_DOUBLE_BUFFER_HALVES; half++) {
        void *memory = NULL;
        status = nova_device_pin(device, NOVA_HALF_BYTES, &memory, error);
        created->memory[half] = memory;
        if (status == NOVA_OK)
            status = nova_device_check(device,
                                       driver->event_create(driver, false, &created->copied[half]),
                                       "the device has no events", error);
    }
    if (status != NOVA_OK)
        nova_double_buffer_destroy(device, created);
    else
        *buffer = created;
    return status;
}

void nova_double_buffer_give(nova_device *device, nova_double_buffer *buffer)
{
    pthread_mutex_lock(&device->mutex);
    buffer->next = device->double_buffers;
    device->double_buffers = buffer;
    pthread_mutex_unlock(&device->mutex);
}

/* Waits until the device has finished with a half. */
static int pinned_free_half(nova_driver *driver, nova_double_buffer *buffer, unsigned half)
{
    if (!buffer->is_busy[half])
        return 0;
    buffer->is_busy[half] = false;
    return driver->event_synchronize(driver, buffer->copied[half]);
}

static uint64_t pinned_piece_of(uint64_t size, uint64_t offset)
{
    return size - offset < NOVA_HALF_BYTES ? size - offset : NOVA_HALF_BYTES;
}

nova_status nova_double_buffer_upload(nova_device *device, nova_double_buffer *buffer, uint64_t to,
                                      const void *from, uint64_t size, void *stream,
                                      nova_error *error)
{
    nova_driver *driver = device->driver;
    int result = 0;
    for (uint64_t offset = 0; result == 0 && offset < size; offset += NOVA_HALF_BYTES) {
        uint64_t piece = pinned_piece_of(size, offset);
        unsigned half = buffer->next_half++ % NOVA_DOUBLE_BUFFER_HALVES;
        result = pinned_free_half(driver, buffer, half);
        if (result != 0)
            break;
        memcpy(buffer->memory[half], (const char *)from + offset, piece);
        result = driver->copy_in(driver, to + offset, buffer->memory[half], piece, stream);
        if (result == 0)
            result = driver->event_record(driver, buffer->copied[half], stream);
        buffer->is_busy[half] = result == 0;
    }
    return nova_device_check(device, result, "an array cannot be copied to the device", error);
}

nova_status nova_double_buffer_download(nova_device *device, nova_double_buffer *buffer, void *to,
                                        uint64_t from, uint64_t size, void *stream,
                                        nova_error *error)
{
    nova_driver *driver = device->driver;
    uint64_t asked = 0; /* bytes that are enqueued for copying; `offset` bytes have arrived */
    unsigned first = buffer->next_half;
    int result = 0;
    for (uint64_t offset = 0; result == 0 && offset < size; offset += NOVA_HALF_BYTES) {
        while (result == 0 && asked < size &&
               asked < offset + NOVA_DOUBLE_BUFFER_HALVES * NOVA_HALF_BYTES) {
            unsigned half = buffer->next_half++ % NOVA_DOUBLE_BUFFER_HALVES;
            result = pinned_free_half(driver, buffer, half);
            if (result == 0)
                result = driver->copy_out(driver, buffer->memory[half], from + asked,
                                          pinned_piece_of(size, asked), stream);
            if (result == 0)
                result = driver->event_record(driver, buffer->copied[half], stream);
            buffer->is_busy[half] = result == 0;
            asked += NOVA_HALF_BYTES;
        }
        unsigned half = first++ % NOVA_DOUBLE_BUFFER_HALVES;
        if (result == 0)
            result = pinned_free_half(driver, buffer, half);
        if (result == 0)
            memcpy((char *)to + offset, buffer->memory[half], pinned_piece_of(size, offset));
    }
    return nova_device_check(device, result, "an array cannot be copied from the device", error);
}

/* Enters the device and acquires a double buffer; neither on failure. */
static nova_status pinned_begin(nova_device *device, nova_double_buffer **buffer, nova_error *error)
{
    nova_status status = nova_device_enter_idle(device, error);
    if (status != NOVA_OK)
        return status;
    status = nova_double_buffer_take(device, buffer, error);
    if (status != NOVA_OK)
        nova_device_leave(device);
    return status;
}

static void pinned_end(nova_device *device, nova_double_buffer *buffer)
{
    nova_double_buffer_give(device, buffer);
    nova_device_leave(device);
}

nova_status nova_device_upload(nova_device *device, uint64_t to, const void *from, uint64_t size,
                               void *stream, nova_error *error)
{
    nova_double_buffer *buffer;
    nova_status status = pinned_begin(device, &buffer, error);
    if (status == NOVA_OK) {
        status = nova_double_buffer_upload(device, buffer, to, from, size, stream, error);
        pinned_end(device, buffer);
    }
    return status;
}

nova_status nova_device_download(nova_device *device, void *to, uint64_t from, uint64_t size,
                                 void *stream, nova_error *error)
{
    nova_double_buffer *buffer;
    nova_status status = pinned_begin(device, &buffer, error);
    if (status == NOVA_OK) {
        status = nova_double_buffer_download(device, buffer, to, from, size, stream, error);
        pinned_end(device, buffer);
    }
    return status;
}
