/* Copies between plain host memory and a device, through pinned memory in two halves. */
#include "gpu/device_state.h"

#include <stdlib.h>
#include <string.h>

void nova_stage_destroy(nova_device *device, nova_stage *stage)
{
    nova_driver *driver = device->driver;
    for (int half = 0; half < NOVA_STAGE_HALVES; half++) {
        if (stage->copied[half] != NULL) {
            if (stage->is_busy[half])
                (void)driver->event_synchronize(driver, stage->copied[half]);
            driver->event_destroy(driver, stage->copied[half]);
        }
        if (stage->memory[half] != NULL)
            driver->pinned_free(driver, stage->memory[half]);
    }
    free(stage);
}

nova_status nova_stage_take(nova_device *device, nova_stage **stage, nova_error *error)
{
    pthread_mutex_lock(&device->mutex);
    nova_stage *found = device->stages;
    if (found != NULL)
        device->stages = found->next;
    pthread_mutex_unlock(&device->mutex);
    if (found != NULL) {
        *stage = found;
        return NOVA_OK;
    }
    nova_driver *driver = device->driver;
    nova_stage *made = calloc(1, sizeof *made);
    if (made == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for copies");
    nova_status status = NOVA_OK;
    for (int half = 0; status == NOVA_OK && half < NOVA_STAGE_HALVES; half++) {
        void *memory = NULL;
        status = nova_device_pin(device, NOVA_STAGE_BYTES, &memory, error);
        made->memory[half] = memory;
        if (status == NOVA_OK)
            status = nova_device_check(device,
                                       driver->event_create(driver, false, &made->copied[half]),
                                       "the device has no events", error);
    }
    if (status != NOVA_OK)
        nova_stage_destroy(device, made);
    else
        *stage = made;
    return status;
}

void nova_stage_give(nova_device *device, nova_stage *stage)
{
    pthread_mutex_lock(&device->mutex);
    stage->next = device->stages;
    device->stages = stage;
    pthread_mutex_unlock(&device->mutex);
}

/* Waits until the device is done with a half. */
static int free_half(nova_driver *driver, nova_stage *stage, unsigned half)
{
    if (!stage->is_busy[half])
        return 0;
    stage->is_busy[half] = false;
    return driver->event_synchronize(driver, stage->copied[half]);
}

static uint64_t piece_of(uint64_t size, uint64_t done)
{
    return size - done < NOVA_STAGE_BYTES ? size - done : NOVA_STAGE_BYTES;
}

nova_status nova_stage_in(nova_device *device, nova_stage *stage, uint64_t to, const void *from,
                          uint64_t size, void *stream, nova_error *error)
{
    nova_driver *driver = device->driver;
    int result = 0;
    for (uint64_t done = 0; result == 0 && done < size; done += NOVA_STAGE_BYTES) {
        uint64_t piece = piece_of(size, done);
        unsigned half = stage->turn++ % NOVA_STAGE_HALVES;
        result = free_half(driver, stage, half);
        if (result != 0)
            break;
        memcpy(stage->memory[half], (const char *)from + done, piece);
        result = driver->copy_in(driver, to + done, stage->memory[half], piece, stream);
        if (result == 0)
            result = driver->event_record(driver, stage->copied[half], stream);
        stage->is_busy[half] = result == 0;
    }
    return nova_device_check(device, result, "an array cannot be copied to the device", error);
}

nova_status nova_stage_out(nova_device *device, nova_stage *stage, void *to, uint64_t from,
                           uint64_t size, void *stream, nova_error *error)
{
    nova_driver *driver = device->driver;
    uint64_t asked = 0; /* bytes that the device was told to copy; `done` have arrived */
    unsigned first = stage->turn;
    int result = 0;
    for (uint64_t done = 0; result == 0 && done < size; done += NOVA_STAGE_BYTES) {
        while (result == 0 && asked < size &&
               asked < done + NOVA_STAGE_HALVES * NOVA_STAGE_BYTES) {
            unsigned half = stage->turn++ % NOVA_STAGE_HALVES;
            result = free_half(driver, stage, half);
            if (result == 0)
                result = driver->copy_out(driver, stage->memory[half], from + asked,
                                          piece_of(size, asked), stream);
            if (result == 0)
                result = driver->event_record(driver, stage->copied[half], stream);
            stage->is_busy[half] = result == 0;
            asked += NOVA_STAGE_BYTES;
        }
        unsigned half = first++ % NOVA_STAGE_HALVES;
        if (result == 0)
            result = free_half(driver, stage, half);
        if (result == 0)
            memcpy((char *)to + done, stage->memory[half], piece_of(size, done));
    }
    return nova_device_check(device, result, "an array cannot be copied from the device", error);
}

/* Enters the device and takes a stage of it; neither is the caller's when that fails. */
static nova_status begin(nova_device *device, nova_stage **stage, nova_error *error)
{
    nova_status status = nova_device_enter(device, error);
    if (status != NOVA_OK)
        return status;
    status = nova_stage_take(device, stage, error);
    if (status != NOVA_OK)
        nova_device_leave(device);
    return status;
}

static void end(nova_device *device, nova_stage *stage)
{
    nova_stage_give(device, stage);
    nova_device_leave(device);
}

nova_status nova_device_upload(nova_device *device, uint64_t to, const void *from, uint64_t size,
                               void *stream, nova_error *error)
{
    nova_stage *stage;
    nova_status status = begin(device, &stage, error);
    if (status == NOVA_OK) {
        status = nova_stage_in(device, stage, to, from, size, stream, error);
        end(device, stage);
    }
    return status;
}

nova_status nova_device_download(nova_device *device, void *to, uint64_t from, uint64_t size,
                                 void *stream, nova_error *error)
{
    nova_stage *stage;
    nova_status status = begin(device, &stage, error);
    if (status == NOVA_OK) {
        status = nova_stage_out(device, stage, to, from, size, stream, error);
        end(device, stage);
    }
    return status;
}
