/* The caching allocator of a device: freed blocks are reused by size class, so that a program which
 * runs repeatedly makes no driver calls. */
#include "gpu/device_state.h"

#include <stdlib.h>

/* How many idle blocks of a size class are searched for one that the same stream used last. */
enum { MOST_LOOKED_AT = 16 };

/* The class of a size, and the size of its blocks. */
static unsigned memory_class_of(uint64_t size, uint64_t *rounded)
{
    uint64_t units = (size + NOVA_DEVICE_ALIGNMENT - 1) / NOVA_DEVICE_ALIGNMENT;
    if (units <= 4) {
        *rounded = (units == 0 ? 1 : units) * NOVA_DEVICE_ALIGNMENT;
        return units == 0 ? 0 : (unsigned)units - 1;
    }
    /* 2^power < units <= 2^(power + 1) */
    unsigned power = 63u - (unsigned)__builtin_clzll(units - 1);
    uint64_t step = UINT64_C(1) << (power - 2);
    uint64_t steps = (units + step - 1) / step; /* 5 to 8 */
    *rounded = steps * step * NOVA_DEVICE_ALIGNMENT;
    return 4 * (power - 1) + (unsigned)steps - 5;
}

/* Takes an idle block out of its list: one that `stream` used last, else any. */
static nova_device_block *memory_find_idle(nova_device *device, unsigned class, const void *stream)
{
    nova_device_block **list = &device->idle[class], **at = list;
    for (int i = 0; i < MOST_LOOKED_AT && *at != NULL; i++, at = &(*at)->next)
        if ((*at)->stream == stream) {
            list = at;
            break;
        }
    nova_device_block *reusable = *list;
    if (reusable != NULL)
        *list = reusable->next;
    return reusable;
}

void nova_device_trim_inside(nova_device *device)
{
    for (unsigned class = 0; class < NOVA_DEVICE_CLASSES; class++) {
        pthread_mutex_lock(&device->mutex);
        nova_device_block *list = device->idle[class];
        device->idle[class] = NULL;
        for (const nova_device_block *block = list; block != NULL; block = block->next)
            device->usage.idle_bytes -= block->size;
        pthread_mutex_unlock(&device->mutex);
        while (list != NULL) {
            nova_device_block *block = list;
            list = block->next;
            device->driver->memory_free(device->driver, block->address); /* waits for its users */
            free(block);
        }
    }
}

void nova_device_trim(nova_device *device)
{
    nova_error ignored;
    if (nova_device_enter(device, &ignored) != NOVA_OK)
        return;
    nova_device_trim_inside(device);
    nova_device_leave(device);
}

static nova_status memory_exhausted(nova_device *device, int result, uint64_t size,
                                    nova_error *error)
{
    nova_driver *driver = device->driver;
    if (driver->classify(driver, result) != NOVA_DEVICE_MEMORY)
        return nova_device_check(device, result, "memory of the device cannot be taken", error);
    uint64_t left = 0;
    (void)driver->memory_left(driver, &left);
    pthread_mutex_lock(&device->mutex);
    uint64_t used = device->usage.used_bytes;
    pthread_mutex_unlock(&device->mutex);
    return nova_fail(
        error, NOVA_DEVICE_MEMORY, "",
        "%s has no memory for %llu bytes more: %llu of %llu are free, and Nova holds %llu",
        device->info.name, (unsigned long long)size, (unsigned long long)left,
        (unsigned long long)device->info.memory, (unsigned long long)used);
}

/* A new block of the driver. */
static nova_status memory_make_block(nova_device *device, uint64_t size, nova_device_block **block,
                                     nova_error *error)
{
    nova_driver *driver = device->driver;
    nova_device_block *created = calloc(1, sizeof *created);
    if (created == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for a block of the device");
    created->size = size;
    int result = driver->memory_take(driver, size, &created->address);
    if (result != 0 && driver->classify(driver, result) == NOVA_DEVICE_MEMORY) {
        nova_device_trim_inside(device);
        result = driver->memory_take(driver, size, &created->address);
    }
    if (result != 0) {
        free(created);
        return memory_exhausted(device, result, size, error);
    }
    *block = created;
    return NOVA_OK;
}

nova_status nova_device_take_inside(nova_device *device, uint64_t size, void *stream,
                                    nova_device_block **block, nova_error *error)
{
    uint64_t rounded;
    if (size > UINT64_C(1) << 45)
        return nova_fail(error, NOVA_DEVICE_MEMORY, "", "no device has %llu bytes",
                         (unsigned long long)size);
    unsigned class = memory_class_of(size, &rounded);
    pthread_mutex_lock(&device->mutex);
    nova_device_block *reusable = memory_find_idle(device, class, stream);
    if (reusable != NULL)
        device->usage.idle_bytes -= rounded;
    else
        device->usage.allocations++;
    pthread_mutex_unlock(&device->mutex);
    nova_status status = NOVA_OK;
    if (reusable == NULL)
        status = memory_make_block(device, rounded, &reusable, error);
    else if (reusable->stream != stream)
        status = nova_device_order_inside(device, reusable->stream, stream, error);
    if (status == NOVA_OK && device->driver->memory_forget != NULL)
        status = nova_device_check(
            device,
            device->driver->memory_forget(device->driver, reusable->address, rounded, stream),
            "memory of the device cannot be taken", error);
    if (status != NOVA_OK)
        return status; /* a block that cannot be ordered belongs to a device that is lost */
    reusable->stream = stream;
    reusable->next = NULL;
    pthread_mutex_lock(&device->mutex);
    device->usage.used_bytes += rounded;
    pthread_mutex_unlock(&device->mutex);
    *block = reusable;
    return NOVA_OK;
}

nova_status nova_device_take(nova_device *device, uint64_t size, void *stream,
                             nova_device_block **block, nova_error *error)
{
    nova_status status = nova_device_enter_idle(device, error);
    if (status != NOVA_OK)
        return status;
    status = nova_device_take_inside(device, size, stream, block, error);
    nova_device_leave(device);
    return status;
}

void nova_device_give(nova_device *device, nova_device_block *block)
{
    if (block == NULL)
        return;
    uint64_t rounded;
    unsigned class = memory_class_of(block->size, &rounded);
    pthread_mutex_lock(&device->mutex);
    device->usage.used_bytes -= block->size;
    device->usage.idle_bytes += block->size;
    block->next = device->idle[class];
    device->idle[class] = block;
    pthread_mutex_unlock(&device->mutex);
}

nova_device_usage nova_device_memory(nova_device *device)
{
    pthread_mutex_lock(&device->mutex);
    nova_device_usage usage = device->usage;
    pthread_mutex_unlock(&device->mutex);
    return usage;
}

nova_status nova_device_pin(nova_device *device, uint64_t size, void **memory, nova_error *error)
{
    nova_driver *driver = device->driver;
    return nova_device_check(device, driver->pinned_take(driver, size, memory),
                             "the system has no memory that a device can copy from", error);
}
