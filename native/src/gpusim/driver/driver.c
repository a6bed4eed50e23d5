/* The simulated GPU as a table of driver calls: device memory is host memory, streams are queues.
 *
 * Enqueueing runs no work. A stream runs lazily, when a caller waits for it, and only as far as
 * needed: work of another stream runs when an event orders it before. So a program that relies on
 * an order without a guarantee reads stale values. One lock guards each GPU: the launches dominate
 * the time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpusim/driver/driver_state.h"

/* --- error numbers ---------------------------------------------------------------------------- */

static nova_status driver_classify(nova_driver *driver, int result)
{
    (void)driver;
    switch (result) {
    case SIM_NO_MEMORY:
        return NOVA_DEVICE_MEMORY;
    case SIM_FAULT:
        return NOVA_SIMULATED_FAULT;
    case SIM_BAD_CODE:
    case SIM_NO_KERNEL:
        return NOVA_DEVICE_CODE;
    }
    return NOVA_DEVICE_CALL;
}

static void driver_explain(nova_driver *driver, int result, char *text, size_t size)
{
    static const char *const words[] = {
        [SIM_NO_MEMORY] = "this machine has no memory left for the simulation",
        [SIM_BAD_CODE] = "this is not code for the simulator",
        [SIM_NO_KERNEL] = "it is not in the code",
        [SIM_BAD_ADDRESS] = "an address that is in no block",
        [SIM_OTHER_DEVICE] = "a stream, an event or code of another device",
    };
    simulator *s = sim_of(driver);
    pthread_mutex_lock(&s->mutex);
    if (result == SIM_BAD_LAUNCH)
        (void)snprintf(text, size, "%s", s->why);
    else if (result == SIM_FAULT)
        (void)snprintf(text, size, "kernel %s, line %u of the PTX", s->report.kernel,
                       s->report.fault.line);
    else
        (void)snprintf(text, size, "%s", words[result]);
    pthread_mutex_unlock(&s->mutex);
}

/* --- devices and contexts --------------------------------------------------------------------- */

/* The contexts that a thread has entered. */
enum { MOST_ENTERED = 16 };
static _Thread_local simulator *driver_entered[MOST_ENTERED];
static _Thread_local int driver_depth;

simulator *sim_of(nova_driver *driver)
{
    return driver_depth > 0 ? driver_entered[driver_depth - 1] : ((sim_driver *)driver)->devices;
}

static int driver_count(nova_driver *driver, int *number)
{
    (void)driver;
    *number = DEVICES;
    return SIM_OK;
}

static int driver_describe(nova_driver *driver, int ordinal, nova_device_info *info)
{
    (void)driver;
    *info = (nova_device_info){.major = 9, .multiprocessors = 1, .memory = UINT64_C(1) << 40};
    if (ordinal == 0)
        (void)snprintf(info->name, sizeof info->name, "the simulator");
    else
        (void)snprintf(info->name, sizeof info->name, "simulator %d", ordinal);
    return SIM_OK;
}

static int driver_memory_left(nova_driver *driver, uint64_t *bytes)
{
    (void)driver;
    *bytes = 0;
    return SIM_OK;
}

static int driver_context_open(nova_driver *driver, int ordinal, void **context)
{
    *context = &((sim_driver *)driver)->devices[ordinal];
    return SIM_OK;
}

static void driver_context_close(nova_driver *driver, int ordinal, void *context)
{
    (void)driver, (void)ordinal, (void)context;
}

static int driver_enter(nova_driver *driver, void *context)
{
    (void)driver;
    if (driver_depth == MOST_ENTERED)
        return SIM_OTHER_DEVICE;
    driver_entered[driver_depth++] = context;
    return SIM_OK;
}

static void driver_leave(nova_driver *driver)
{
    (void)driver;
    driver_depth--;
}

/* --- memory ----------------------------------------------------------------------------------- */

static int driver_tensor_map_encode(nova_driver *driver, const nova_tensor_map *map,
                                    uint64_t address, nova_encoded_map *encoded)
{
    simulator *s = sim_of(driver);
    sim_tensor_map layout = {.address = address + map->offset,
                             .element = map->element,
                             .rank = map->rank,
                             .swizzle = 128};
    memcpy(layout.dims, map->dims, sizeof layout.dims);
    memcpy(layout.strides, map->strides, sizeof layout.strides);
    memcpy(layout.box, map->box, sizeof layout.box);
    const char *wrong = nova_sim_check_tensor_map(&layout);
    if (wrong != NULL) {
        pthread_mutex_lock(&s->mutex);
        (void)snprintf(s->why, sizeof s->why, "a tensor map: %s", wrong);
        pthread_mutex_unlock(&s->mutex);
        return SIM_BAD_LAUNCH;
    }
    memcpy(encoded->bytes, &layout, sizeof layout);
    return SIM_OK;
}

/* Memory that kernels can access; `state` is 0 where it has no values yet. */
static int driver_add_block(simulator *s, uint64_t size, int initial, uint64_t *address)
{
    block *created = calloc(1, sizeof *created);
    void *memory = aligned_alloc(ALIGNMENT, (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    uint8_t *state = calloc(size + 1, 1);
    if (created == NULL || memory == NULL || state == NULL) {
        free(created);
        free(memory);
        free(state);
        return SIM_NO_MEMORY;
    }
    memset(memory, 0xa5, size);
    memset(state, initial, size);
    *created = (block){.address = (uintptr_t)memory, .size = size, .state = state};
    pthread_mutex_lock(&s->mutex);
    created->next = s->blocks;
    s->blocks = created;
    pthread_mutex_unlock(&s->mutex);
    *address = created->address;
    return SIM_OK;
}

static int driver_memory_take(nova_driver *driver, uint64_t size, uint64_t *address)
{
    return driver_add_block(sim_of(driver), size, 0, address);
}

block *sim_find_block(const simulator *s, uint64_t address, uint64_t size)
{
    for (block *b = s->blocks; b != NULL; b = b->next)
        if (address - b->address <= b->size && size <= b->size - (address - b->address))
            return b;
    return NULL;
}

static void driver_memory_free(nova_driver *driver, uint64_t address)
{
    simulator *s = sim_of(driver);
    pthread_mutex_lock(&s->mutex);
    (void)sim_drain_all(s);
    for (block **at = &s->blocks; *at != NULL; at = &(*at)->next)
        if ((*at)->address == address) {
            block *gone = *at;
            *at = gone->next;
            free((void *)(uintptr_t)gone->address);
            free(gone->state);
            free(gone);
            break;
        }
    pthread_mutex_unlock(&s->mutex);
}

/* The host writes pinned memory: all of it counts as written. */
static int driver_pinned_take(nova_driver *driver, uint64_t size, void **memory)
{
    uint64_t address = 0;
    int result = driver_add_block(sim_of(driver), size, 1, &address);
    *memory = (void *)(uintptr_t)address;
    return result;
}

static void driver_pinned_free(nova_driver *driver, void *memory)
{
    driver_memory_free(driver, (uintptr_t)memory); /* a copy may still name it */
}

/* A kernel that runs holds the mutex: these copies do not take it. The arrays are initialized
 * before the launch, and the kernel reads what it has been told of. */
static int driver_write_concurrently(nova_driver *driver, uint64_t to, const void *from,
                                     uint64_t size, void *stream)
{
    (void)driver;
    (void)stream;
    void *memory = (void *)(uintptr_t)to;
    uint32_t word;
    if (size == sizeof word) {
        memcpy(&word, from, sizeof word);
        __atomic_store_n((uint32_t *)memory, word, __ATOMIC_RELEASE);
    } else {
        memcpy(memory, from, size);
    }
    return SIM_OK;
}

static int driver_read_concurrently(nova_driver *driver, void *to, uint64_t from, uint64_t size,
                                    void *stream)
{
    (void)driver;
    (void)stream;
    memcpy(to, (const void *)(uintptr_t)from, size);
    return SIM_OK;
}

/* --- opening ---------------------------------------------------------------------------------- */

static const nova_driver DRIVER_TABLE = {
    .name = "sim",
    .checks_ranges = true,
    .classify = driver_classify,
    .explain = driver_explain,
    .count = driver_count,
    .describe = driver_describe,
    .memory_left = driver_memory_left,
    .context_open = driver_context_open,
    .context_close = driver_context_close,
    .enter = driver_enter,
    .leave = driver_leave,
    .module_load = nova_sim_module_load,
    .module_unload = nova_sim_module_unload,
    .function_find = nova_sim_function_find,
    .function_allow_shared = nova_sim_function_allow_shared,
    .function_use = nova_sim_function_use,
    .function_resident = nova_sim_function_resident,
    .tensor_map_encode = driver_tensor_map_encode,
    .memory_take = driver_memory_take,
    .memory_free = driver_memory_free,
    .memory_forget = nova_sim_memory_forget,
    .pinned_take = driver_pinned_take,
    .pinned_free = driver_pinned_free,
    .write_concurrently = driver_write_concurrently,
    .read_concurrently = driver_read_concurrently,
    .stream_create = nova_sim_stream_create,
    .stream_destroy = nova_sim_stream_destroy,
    .stream_synchronize = nova_sim_stream_synchronize,
    .stream_wait = nova_sim_stream_wait,
    .event_create = nova_sim_event_create,
    .event_destroy = nova_sim_event_destroy,
    .event_record = nova_sim_event_record,
    .event_synchronize = nova_sim_event_synchronize,
    .event_elapsed = nova_sim_event_elapsed,
    .copy_in = nova_sim_copy_in,
    .copy_out = nova_sim_copy_out,
    .copy_within = nova_sim_copy_within,
    .launch = nova_sim_launch,
    .graph_create = nova_sim_graph_create,
    .graph_destroy = nova_sim_graph_destroy,
    .graph_update = nova_sim_graph_update,
    .graph_launch = nova_sim_graph_launch,
    .flow_is_supported = nova_sim_flow_is_supported,
    .flow_create = nova_sim_flow_create,
    .flow_add_launch = nova_sim_flow_add_launch,
    .flow_add_copies = nova_sim_flow_add_copies,
    .flow_add_loop = nova_sim_flow_add_loop,
    .flow_add_switch = nova_sim_flow_add_switch,
    .flow_end_body = nova_sim_flow_end_body,
    .flow_finish = nova_sim_flow_finish,
    .flow_launch = nova_sim_flow_launch,
    .flow_destroy = nova_sim_flow_destroy,
};

nova_status nova_sim_open(nova_driver **driver, nova_error *error)
{
    sim_driver *created = calloc(1, sizeof *created);
    for (int i = 0; created != NULL && i < DEVICES; i++) {
        created->devices[i].usual.on = &created->devices[i];
        if (pthread_mutex_init(&created->devices[i].mutex, NULL) != 0) {
            free(created);
            created = NULL;
        }
    }
    if (created == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the simulator");
    created->driver = DRIVER_TABLE;
    *driver = &created->driver;
    return NOVA_OK;
}

void nova_sim_close(nova_driver *driver)
{
    sim_driver *gone = (sim_driver *)driver;
    for (int i = 0; gone != NULL && i < DEVICES; i++) {
        simulator *s = &gone->devices[i];
        (void)sim_drain_all(s);
        while (s->streams != NULL) {
            stream *ended = s->streams;
            s->streams = ended->next;
            free(ended);
        }
        free(s->unfinished);
        pthread_mutex_destroy(&s->mutex);
    }
    free(gone);
}

bool nova_sim_last_fault(nova_driver *driver, int ordinal, nova_sim_report *report)
{
    simulator *s = &((sim_driver *)driver)->devices[ordinal];
    pthread_mutex_lock(&s->mutex);
    bool has_report = s->has_report;
    if (has_report)
        *report = s->report;
    pthread_mutex_unlock(&s->mutex);
    return has_report;
}
