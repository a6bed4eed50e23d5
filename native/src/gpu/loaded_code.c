/* Code and constants of a program on a device: loaded once, shared by the programs for all sizes of
 * a program with symbolic sizes. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "gpu/device_state.h"

static nova_status loaded_code_load(nova_loaded_code *code, const nova_device_code *image,
                                    nova_error *error)
{
    nova_driver *driver = code->device->driver;
    char log[1024] = "", text[200];
    int result = driver->module_load(driver, image->data, (size_t)image->size, image->kind, log,
                                     sizeof log, &code->module);
    if (result == 0)
        return NOVA_OK;
    nova_status status = driver->classify(driver, result);
    if (status == NOVA_DEVICE_FAULT || *log == '\0')
        return nova_device_check(code->device, result, "the code cannot be loaded", error);
    driver->explain(driver, result, text, sizeof text);
    return nova_fail(error, status, "", "the code for %s cannot be loaded: %s: %s", image->arch,
                     text, log);
}

static nova_status loaded_code_upload(nova_loaded_code *code, const nova_device_source *source,
                                      nova_error *error)
{
    nova_device *device = code->device;
    nova_double_buffer *buffer;
    if (source->constants_size == 0)
        return NOVA_OK;
    nova_status status = nova_device_take_inside(device, source->constants_size, device->stream,
                                                 &code->constants, error);
    if (status == NOVA_OK)
        status = nova_double_buffer_take(device, &buffer, error);
    if (status != NOVA_OK)
        return status;
    status = nova_double_buffer_upload(device, buffer, code->constants->address, source->constants,
                                       source->constants_size, device->stream, error);
    nova_double_buffer_give(device, buffer);
    /* Runs on any stream may read them from now on. */
    if (status == NOVA_OK)
        status = nova_device_check(
            device, device->driver->stream_synchronize(device->driver, device->stream),
            "the constants cannot be copied to the device", error);
    return status;
}

nova_status nova_loaded_code_create(nova_device *device, const nova_device_source *source,
                                    nova_loaded_code **code, nova_error *error)
{
    nova_loaded_code *created = calloc(1, sizeof *created);
    if (created == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the program");
    created->device = device;
    atomic_init(&created->users, 1);
    nova_status status = loaded_code_load(created, source->code, error);
    if (status == NOVA_OK)
        status = loaded_code_upload(created, source, error);
    if (status != NOVA_OK)
        nova_loaded_code_release(created);
    else
        *code = created;
    return status;
}

nova_loaded_code *nova_loaded_code_retain(nova_loaded_code *code)
{
    atomic_fetch_add_explicit(&code->users, 1, memory_order_relaxed);
    return code;
}

void nova_loaded_code_release(nova_loaded_code *code)
{
    if (code == NULL || atomic_fetch_sub_explicit(&code->users, 1, memory_order_acq_rel) != 1)
        return;
    nova_driver *driver = code->device->driver;
    if (code->module != NULL)
        driver->module_unload(driver, code->module);
    nova_device_give(code->device, code->constants);
    free(code);
}
