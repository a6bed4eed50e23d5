/* The driver table over libcuda.so.1, loaded at run time with dlopen: building needs no CUDA. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/cuda/cuda_state.h"

/* Nodes of a graph, and its executable form. */
typedef struct {
    void *graph, *exec;
    void *nodes[];
} kernel_graph;

/* --- error numbers ---------------------------------------------------------------------------- */

static nova_status cuda_classify(nova_driver *driver, int result)
{
    (void)driver;
    switch (result) {
    case OUT_OF_MEMORY:
        return NOVA_DEVICE_MEMORY;
    case NO_DEVICE:
    case INVALID_DEVICE:
        return NOVA_WRONG_DEVICE;
    case NO_BINARY_FOR_GPU:
        return NOVA_UNSUPPORTED;
    case INVALID_IMAGE:
    case INVALID_PTX:
    case UNSUPPORTED_PTX_VERSION:
    case NOT_FOUND:
        return NOVA_DEVICE_CODE;
    }
    /* 214 is an uncorrectable memory error; from 700 on a kernel has faulted, except for the few
     * that report a state that already holds. After a fault no call of the context succeeds. */
    enum { LOST = 214, FIRST = 700, LAST = 720, RESOURCES = 701, PEER_ON = 704, PEER_OFF = 705 };
    enum { ACTIVE = 708, PEERS = 711, PINNED = 712, NOT_PINNED = 713 };
    bool harmless = result == RESOURCES || result == PEER_ON || result == PEER_OFF ||
                    result == ACTIVE || result == PEERS || result == PINNED || result == NOT_PINNED;
    if (result == LOST || (result >= FIRST && result < LAST && !harmless))
        return NOVA_DEVICE_FAULT;
    return NOVA_DEVICE_CALL;
}

static void cuda_explain(nova_driver *driver, int result, char *text, size_t size)
{
    const char *name = NULL, *words = NULL;
    (void)cuda_context_of(driver)->error_name(result, &name);
    (void)cuda_context_of(driver)->error_string(result, &words);
    if (name == NULL || words == NULL)
        (void)snprintf(text, size, "error %d of the CUDA driver", result);
    else
        (void)snprintf(text, size, "%s (%s)", words, name);
}

/* --- devices and contexts --------------------------------------------------------------------- */

static int cuda_count(nova_driver *driver, int *number)
{
    int result = cuda_context_of(driver)->device_count(number);
    if (result == NO_DEVICE) {
        *number = 0;
        return 0;
    }
    return result;
}

static int cuda_describe(nova_driver *driver, int ordinal, nova_device_info *info)
{
    const cuda *c = cuda_context_of(driver);
    *info = (nova_device_info){.driver_version = c->version};
    int device;
    size_t memory = 0;
    int result = c->device_get(&device, ordinal);
    if (result == 0)
        result = c->device_name(info->name, sizeof info->name, device);
    if (result == 0)
        result = c->device_attribute(&info->major, ATTRIBUTE_MAJOR, device);
    if (result == 0)
        result = c->device_attribute(&info->minor, ATTRIBUTE_MINOR, device);
    if (result == 0)
        result = c->device_attribute(&info->multiprocessors, ATTRIBUTE_MULTIPROCESSORS, device);
    if (result == 0)
        result = c->device_memory(&memory, device);
    info->memory = memory;
    return result;
}

static int cuda_memory_left(nova_driver *driver, uint64_t *bytes)
{
    size_t left = 0, all;
    int result = cuda_context_of(driver)->memory_info(&left, &all);
    *bytes = left;
    return result;
}

static int cuda_context_open(nova_driver *driver, int ordinal, void **context)
{
    int device;
    int result = cuda_context_of(driver)->device_get(&device, ordinal);
    return result != 0 ? result : cuda_context_of(driver)->context_retain(context, device);
}

static void cuda_context_close(nova_driver *driver, int ordinal, void *context)
{
    (void)context;
    int device;
    if (cuda_context_of(driver)->device_get(&device, ordinal) == 0)
        (void)cuda_context_of(driver)->context_release(device);
}

static int cuda_enter(nova_driver *driver, void *context)
{
    return cuda_context_of(driver)->context_push(context);
}

static void cuda_leave(nova_driver *driver)
{
    void *context;
    (void)cuda_context_of(driver)->context_pop(&context);
}

/* --- code ------------------------------------------------------------------------------------- */

static int cuda_function_use(nova_driver *driver, void *function, nova_function_use *use)
{
    const cuda *c = cuda_context_of(driver);
    int shared = 0, registers = 0;
    int result = c->function_get(&shared, FUNCTION_SHARED, function);
    if (result == 0)
        result = c->function_get(&registers, FUNCTION_REGISTERS, function);
    *use = (nova_function_use){(uint32_t)registers, (uint32_t)shared};
    return result;
}

static int cuda_function_allow_shared(nova_driver *driver, void *function, uint32_t bytes)
{
    const cuda *c = cuda_context_of(driver);
    int allowed = 0; /* a kernel of several tables keeps the most that one of them needs */
    int result = c->function_get(&allowed, FUNCTION_MOST_DYNAMIC_SHARED, function);
    if (result != 0 || allowed >= (int)bytes)
        return result;
    return c->function_set(function, FUNCTION_MOST_DYNAMIC_SHARED, (int)bytes);
}

static int cuda_function_resident(nova_driver *driver, void *function, uint32_t threads,
                                  uint32_t shared, uint32_t *blocks, uint32_t *processors)
{
    const cuda *c = cuda_context_of(driver);
    int device = 0, multiprocessors = 0, per_multiprocessor = 0;
    int result = c->context_device(&device);
    if (result == 0)
        result = c->device_attribute(&multiprocessors, ATTRIBUTE_MULTIPROCESSORS, device);
    if (result == 0)
        result = c->occupancy(&per_multiprocessor, function, (int)threads, shared);
    *blocks = (uint32_t)(multiprocessors * per_multiprocessor);
    *processors = (uint32_t)multiprocessors;
    return result == 0 && *blocks == 0 ? LAUNCH_RESOURCES : result;
}

static int cuda_tensor_map_encode(nova_driver *driver, const nova_tensor_map *map, uint64_t address,
                                  nova_encoded_map *encoded)
{
    enum { NO_INTERLEAVE = 0, SWIZZLE_128B = 3, L2_PROMOTION_256B = 3, FILL_ZEROS = 0 };
    static const uint32_t ADJACENT[NOVA_MAP_RANK] = {1, 1, 1, 1, 1};
    const cuda *c = cuda_context_of(driver);
    if (c->map_encode == NULL)
        return NOT_SUPPORTED;
    return c->map_encode(encoded->bytes, (int)map->element, map->rank,
                         (void *)(uintptr_t)(address + map->offset), map->dims, map->strides,
                         map->box, ADJACENT, NO_INTERLEAVE, SWIZZLE_128B, L2_PROMOTION_256B,
                         FILL_ZEROS);
}

/* --- memory ----------------------------------------------------------------------------------- */

static int cuda_memory_take(nova_driver *driver, uint64_t size, uint64_t *address)
{
    return cuda_context_of(driver)->memory_take(address, size);
}

static void cuda_memory_free(nova_driver *driver, uint64_t address)
{
    (void)cuda_context_of(driver)->memory_free(address);
}

static int cuda_pinned_take(nova_driver *driver, uint64_t size, void **memory)
{
    return cuda_context_of(driver)->pinned_take(memory, size, HOST_PORTABLE);
}

static void cuda_pinned_free(nova_driver *driver, void *memory)
{
    (void)cuda_context_of(driver)->pinned_free(memory);
}

static int cuda_copy_in(nova_driver *driver, uint64_t to, const void *from, uint64_t size,
                        void *stream)
{
    return cuda_context_of(driver)->copy_in(to, from, size, stream);
}

static int cuda_copy_out(nova_driver *driver, void *to, uint64_t from, uint64_t size, void *stream)
{
    return cuda_context_of(driver)->copy_out(to, from, size, stream);
}

static int cuda_copy_within(nova_driver *driver, uint64_t to, uint64_t from, uint64_t size,
                            void *stream)
{
    return cuda_context_of(driver)->copy_within(to, from, size, stream);
}

/* The engines that copy run concurrently with kernels. */
static int cuda_read_concurrently(nova_driver *driver, void *to, uint64_t from, uint64_t size,
                                  void *stream)
{
    int result = cuda_copy_out(driver, to, from, size, stream);
    return result != 0 ? result : cuda_context_of(driver)->stream_synchronize(stream);
}

/* --- streams and events ----------------------------------------------------------------------- */

static int cuda_stream_create(nova_driver *driver, void **stream)
{
    return cuda_context_of(driver)->stream_create(stream, STREAM_NON_BLOCKING);
}

static void cuda_stream_destroy(nova_driver *driver, void *stream)
{
    (void)cuda_context_of(driver)->stream_destroy(stream);
}

static int cuda_stream_synchronize(nova_driver *driver, void *stream)
{
    return cuda_context_of(driver)->stream_synchronize(stream);
}

static int cuda_stream_wait(nova_driver *driver, void *stream, void *event)
{
    return cuda_context_of(driver)->stream_wait(stream, event, 0);
}

static int cuda_event_create(nova_driver *driver, bool timed, void **event)
{
    return cuda_context_of(driver)->event_create(event, timed ? 0 : EVENT_DISABLE_TIMING);
}

static void cuda_event_destroy(nova_driver *driver, void *event)
{
    (void)cuda_context_of(driver)->event_destroy(event);
}

static int cuda_event_record(nova_driver *driver, void *event, void *stream)
{
    return cuda_context_of(driver)->event_record(event, stream);
}

static int cuda_event_synchronize(nova_driver *driver, void *event)
{
    return cuda_context_of(driver)->event_synchronize(event);
}

static int cuda_event_elapsed(nova_driver *driver, void *from, void *to, float *milliseconds)
{
    return cuda_context_of(driver)->event_elapsed(milliseconds, from, to);
}

/* --- launches --------------------------------------------------------------------------------- */

static int cuda_pack(packed *out, const nova_kernel_call *call)
{
    enum { BUFFER_POINTER = 1, BUFFER_SIZE = 2 };
    uint32_t maps = call->shape->tensor_map_count;
    out->has_maps = maps > 0;
    if (!out->has_maps) {
        out->size = call->argument_count * sizeof *call->arguments;
        out->list[0] = (void *)(uintptr_t)BUFFER_POINTER;
        out->list[1] = (void *)(uintptr_t)call->arguments;
        out->list[2] = (void *)(uintptr_t)BUFFER_SIZE;
        out->list[3] = &out->size;
        out->list[4] = NULL;
        return 0;
    }
    if (call->argument_count > MOST_PARAMETERS - maps)
        return NOT_SUPPORTED;
    for (uint32_t i = 0; i < call->argument_count; i++)
        out->each[i] = (void *)(uintptr_t)&call->arguments[i];
    for (uint32_t i = 0; i < maps; i++)
        out->each[call->argument_count + i] = (void *)(uintptr_t)&call->maps[i];
    return 0;
}

static uint32_t cuda_shared_of(const nova_kernel_call *call)
{
    uint32_t shared = call->shape->shared;
    return shared > call->least_shared ? shared : call->least_shared;
}

static int cuda_launch(nova_driver *driver, const nova_kernel_call *call, void *stream)
{
    packed parameters;
    int result = cuda_pack(&parameters, call);
    if (result != 0)
        return result;
    const nova_device_launch *shape = call->shape;
    if (call->is_cooperative) {
        void *each[MOST_PARAMETERS];
        for (uint32_t i = 0; i < call->argument_count && i < MOST_PARAMETERS; i++)
            each[i] = (void *)(uintptr_t)&call->arguments[i];
        return cuda_context_of(driver)->launch_cooperative(
            call->function, shape->grid[0], shape->grid[1], shape->grid[2], shape->block[0],
            shape->block[1], shape->block[2], shape->shared, stream, each);
    }
    return cuda_context_of(driver)->launch(
        call->function, shape->grid[0], shape->grid[1], shape->grid[2], shape->block[0],
        shape->block[1], shape->block[2], cuda_shared_of(call), stream,
        parameters.has_maps ? parameters.each : NULL, parameters.has_maps ? NULL : parameters.list);
}

int cuda_params_of(const nova_kernel_call *call, packed *parameters, node_params *params)
{
    int result = cuda_pack(parameters, call);
    *params = (node_params){.function = call->function, .shared = cuda_shared_of(call)};
    if (parameters->has_maps)
        params->parameters = parameters->each;
    else
        params->extra = parameters->list;
    memcpy(params->grid, call->shape->grid, sizeof params->grid);
    memcpy(params->block, call->shape->block, sizeof params->block);
    return result;
}

static void cuda_graph_destroy(nova_driver *driver, void *graph)
{
    kernel_graph *created = graph;
    if (created->exec != NULL)
        (void)cuda_context_of(driver)->exec_destroy(created->exec);
    if (created->graph != NULL)
        (void)cuda_context_of(driver)->graph_destroy(created->graph);
    free(created);
}

static bool cuda_is_programmatic(const cuda *c, const nova_graph_edge *edge)
{
    return edge->is_dependent && c->graph_add_edges != NULL;
}

/* Adds the node of a launch after those that it waits for; *edge is its first edge, and moved after
 * its last. `before` has room for all nodes. */
static int cuda_graph_add(cuda *c, kernel_graph *created, uint32_t index,
                          const nova_kernel_call *call, const nova_graph_edge **edge,
                          const nova_graph_edge *end, void **before)
{
    const nova_graph_edge *first = *edge;
    size_t count = 0;
    for (; *edge < end && (*edge)->after == index; (*edge)++)
        if (!cuda_is_programmatic(c, *edge))
            before[count++] = created->nodes[(*edge)->before];
    packed parameters;
    node_params params;
    int result = cuda_params_of(call, &parameters, &params);
    if (result == 0)
        result = c->graph_add(&created->nodes[index], created->graph, count > 0 ? before : NULL,
                              count, &params);
    for (; result == 0 && first < *edge; first++) {
        const edge_data data = {.from_port = PORT_PROGRAMMATIC, .type = EDGE_PROGRAMMATIC};
        if (cuda_is_programmatic(c, first))
            result = c->graph_add_edges(created->graph, &created->nodes[first->before],
                                        &created->nodes[index], &data, 1);
    }
    return result;
}

static int cuda_graph_create(nova_driver *driver, const nova_kernel_call *calls, uint32_t number,
                             const nova_graph_edge *edges, uint32_t edge_count, void **graph)
{
    cuda *c = cuda_context_of(driver);
    kernel_graph *created = calloc(1, sizeof *created + number * sizeof created->nodes[0]);
    void **before = calloc((size_t)number + 1, sizeof *before);
    if (created == NULL || before == NULL) {
        free(created);
        free(before);
        return OUT_OF_MEMORY;
    }
    const nova_graph_edge *edge = edges, *end = edges + edge_count;
    int result = c->graph_create(&created->graph, 0);
    for (uint32_t i = 0; result == 0 && i < number; i++)
        result = cuda_graph_add(c, created, i, &calls[i], &edge, end, before);
    free(before);
    if (result == 0)
        result = c->graph_instantiate(&created->exec, created->graph, 0);
    if (result != 0) {
        cuda_graph_destroy(driver, created);
        return result;
    }
    *graph = created;
    return 0;
}

static int cuda_graph_update(nova_driver *driver, void *graph, uint32_t index,
                             const nova_kernel_call *call)
{
    kernel_graph *created = graph;
    packed parameters;
    node_params params;
    int result = cuda_params_of(call, &parameters, &params);
    return result != 0
               ? result
               : cuda_context_of(driver)->exec_set(created->exec, created->nodes[index], &params);
}

static int cuda_graph_launch(nova_driver *driver, void *graph, void *stream)
{
    return cuda_context_of(driver)->graph_launch(((kernel_graph *)graph)->exec, stream);
}

/* --- opening ---------------------------------------------------------------------------------- */

static const nova_driver CUDA_TABLE = {
    .name = "cuda",
    .classify = cuda_classify,
    .explain = cuda_explain,
    .count = cuda_count,
    .describe = cuda_describe,
    .memory_left = cuda_memory_left,
    .context_open = cuda_context_open,
    .context_close = cuda_context_close,
    .enter = cuda_enter,
    .leave = cuda_leave,
    .module_load = nova_cuda_module_load,
    .module_unload = nova_cuda_module_unload,
    .function_find = nova_cuda_function_find,
    .function_allow_shared = cuda_function_allow_shared,
    .function_use = cuda_function_use,
    .function_resident = cuda_function_resident,
    .tensor_map_encode = cuda_tensor_map_encode,
    .memory_take = cuda_memory_take,
    .memory_free = cuda_memory_free,
    .pinned_take = cuda_pinned_take,
    .pinned_free = cuda_pinned_free,
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .stream_synchronize = cuda_stream_synchronize,
    .stream_wait = cuda_stream_wait,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .event_synchronize = cuda_event_synchronize,
    .event_elapsed = cuda_event_elapsed,
    .copy_in = cuda_copy_in,
    .write_concurrently = cuda_copy_in,
    .read_concurrently = cuda_read_concurrently,
    .copy_out = cuda_copy_out,
    .copy_within = cuda_copy_within,
    .launch = cuda_launch,
    .graph_create = cuda_graph_create,
    .graph_destroy = cuda_graph_destroy,
    .graph_update = cuda_graph_update,
    .graph_launch = cuda_graph_launch,
    .flow_is_supported = nova_cuda_flow_is_supported,
    .flow_create = nova_cuda_flow_create,
    .flow_add_launch = nova_cuda_flow_add_launch,
    .flow_add_copies = nova_cuda_flow_add_copies,
    .flow_add_loop = nova_cuda_flow_add_loop,
    .flow_add_switch = nova_cuda_flow_add_switch,
    .flow_end_body = nova_cuda_flow_end_body,
    .flow_finish = nova_cuda_flow_finish,
    .flow_launch = nova_cuda_flow_launch,
    .flow_destroy = nova_cuda_flow_destroy,
};

static nova_status cuda_find_functions(cuda *c, void *library, nova_error *error)
{
    static const char *const names[] = {
#define NAME(symbol, name, parameters) #symbol,
        FUNCTIONS(NAME)};
    enum { COUNT = sizeof names / sizeof *names };
    void *found[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        found[i] = dlsym(library, names[i]);
        if (found[i] == NULL)
            return nova_fail(error, NOVA_NO_DRIVER, "", "the CUDA driver has no %s: it is too old",
                             names[i]);
    }
    size_t i = 0;
    /* ISO C has no cast between data and function pointers. */
#define KEEP(symbol, name, parameters) memcpy(&c->name, &found[i++], sizeof c->name);
    FUNCTIONS(KEEP)
    void *encode = dlsym(library, "cuTensorMapEncodeTiled");
    memcpy(&c->map_encode, &encode, sizeof c->map_encode);
    void *current = dlsym(library, "cuCtxGetCurrent");
    memcpy(&c->context_current, &current, sizeof c->context_current);
    void *condition = dlsym(library, "cuGraphConditionalHandleCreate");
    memcpy(&c->condition_create, &condition, sizeof c->condition_create);
    void *add_node = dlsym(library, "cuGraphAddNode");
    memcpy(&c->graph_add_node, &add_node, sizeof c->graph_add_node);
    void *add_edges = dlsym(library, "cuGraphAddDependencies_v2");
    memcpy(&c->graph_add_edges, &add_edges, sizeof c->graph_add_edges);
    return NOVA_OK;
}

static nova_status cuda_start(cuda *c, nova_error *error)
{
    int version = 0;
    int result = c->init(0);
    if (result == 0)
        result = c->driver_version(&version);
    c->version = version;
    if (result == NO_DEVICE)
        return nova_fail(error, NOVA_NO_DRIVER, "",
                         "the CUDA driver is installed, but there is no GPU");
    if (result != 0) {
        char text[256];
        cuda_explain(&c->driver, result, text, sizeof text);
        return nova_fail(error, NOVA_NO_DRIVER, "", "the CUDA driver does not start: %s", text);
    }
    if (version < LEAST_VERSION)
        return nova_fail(error, NOVA_NO_DRIVER, "",
                         "the CUDA driver is of version %d.%d, and %d.%d is the oldest that Nova "
                         "knows",
                         version / 1000, version % 1000 / 10, LEAST_VERSION / 1000,
                         LEAST_VERSION % 1000 / 10);
    return NOVA_OK;
}

nova_status nova_cuda_open(const char *path, nova_driver **driver, nova_error *error)
{
    if (driver == NULL)
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "", "the pointer for the driver is NULL");
    /* Never closed: its effects in this process cannot be undone. */
    void *library = dlopen(path != NULL ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *why = dlerror();
        return nova_fail(error, NOVA_NO_DRIVER, "", "there is no CUDA driver: %s",
                         why != NULL ? why : "libcuda.so.1 was not found");
    }
    cuda *created = calloc(1, sizeof *created);
    if (created == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the driver");
    created->driver = CUDA_TABLE;
    if (pthread_mutex_init(&created->mutex, NULL) != 0) {
        free(created);
        return nova_fail(error, NOVA_SYSTEM_ERROR, "", "no mutex");
    }
    nova_status status = cuda_find_functions(created, library, error);
    if (status == NOVA_OK)
        status = cuda_start(created, error);
    if (status != NOVA_OK) {
        nova_cuda_close(&created->driver);
        return status;
    }
    *driver = &created->driver;
    return NOVA_OK;
}

void nova_cuda_close(nova_driver *driver)
{
    if (driver != NULL)
        pthread_mutex_destroy(&cuda_context_of(driver)->mutex);
    free(driver);
}
