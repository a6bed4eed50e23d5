/* A libcuda for tests: memory is that of the process, kernels are C functions by name, all happens
 * at once.
 *
 * `fake_*` control it: devices, memory, calls that fail, and how often each call was made. A kernel
 * that fails is sticky, as on a GPU: every later call that enqueues or waits gives its number. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define API __attribute__((visibility("default")))

enum { OK = 0, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_PTX = 218 };
enum { INVALID_HANDLE = 400, NOT_FOUND = 500 };
enum { MOST_CALLS = 64, MOST_BLOCKS = 4096 };

static struct {
    const char *name;
    long count, fail_at;
    int result;
} calls[MOST_CALLS];
static char history[1 << 16];
static struct {
    uint64_t address;
    size_t size;
} blocks[MOST_BLOCKS];
static int devices = 1, major = 9, minor = 0, version = 13000;
static atomic_int sticky, depth;
static size_t total = (size_t)1 << 30, used;
static atomic_ullong next_handle = 16;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;   /* guards calls, history and blocks */
static pthread_mutex_t holding = PTHREAD_MUTEX_INITIALIZER; /* guards the next two */
static pthread_cond_t let_go = PTHREAD_COND_INITIALIZER;
static int held;

static int note_inside(const char *name)
{
    size_t length = strlen(history);
    if (length + strlen(name) + 2 < sizeof history)
        (void)snprintf(history + length, sizeof history - length, "%s ", name);
    for (int i = 0; i < MOST_CALLS; i++) {
        if (calls[i].name == NULL)
            calls[i].name = name;
        if (strcmp(calls[i].name, name) != 0)
            continue;
        calls[i].count++;
        if (calls[i].fail_at != 0 && calls[i].count >= calls[i].fail_at) {
            if (calls[i].result >= 700 && calls[i].result < 720)
                sticky = calls[i].result;
            return calls[i].result;
        }
        break;
    }
    return OK;
}

static int note(const char *name)
{
    pthread_mutex_lock(&mutex);
    int result = note_inside(name);
    pthread_mutex_unlock(&mutex);
    return result;
}

/* Streams and events are of the device whose context made them, and of use in no other. */
static _Thread_local int entered[16], own_depth;

static int current(void)
{
    return own_depth > 0 ? entered[own_depth - 1] : 0;
}
/* Small numbers are CUDA's own streams, which every context has. */
static int is_foreign(const void *handle)
{
    uintptr_t number = (uintptr_t)handle;
    return number >= 16 && (int)(number & 15) != current();
}

#define CALL(name)                                                                                 \
    do {                                                                                           \
        int failed = note(name);                                                                   \
        if (failed)                                                                                \
            return failed;                                                                         \
    } while (0)
#define WORK(name, handle)                                                                         \
    do {                                                                                           \
        CALL(name);                                                                                \
        if (is_foreign(handle))                                                                    \
            return INVALID_HANDLE;                                                                 \
        if (sticky)                                                                                \
            return sticky;                                                                         \
    } while (0)

/* --- control ---------------------------------------------------------------------------------- */

API void fake_reset(void)
{
    memset(calls, 0, sizeof calls);
    history[0] = '\0';
    devices = 1, major = 9, minor = 0, version = 13000, sticky = 0;
    total = (size_t)1 << 30;
}
API void fake_devices(int count, int x, int y)
{
    devices = count, major = x, minor = y;
}
/* From 1 to 0, nobody who waits for the device gets to an end. */
API void fake_hold(int is_held)
{
    pthread_mutex_lock(&holding);
    held = is_held;
    pthread_cond_broadcast(&let_go);
    pthread_mutex_unlock(&holding);
}
static void wait_for_device(void)
{
    pthread_mutex_lock(&holding);
    while (held)
        pthread_cond_wait(&let_go, &holding);
    pthread_mutex_unlock(&holding);
}
API void fake_version(int number)
{
    version = number;
}
API void fake_memory(size_t bytes)
{
    total = bytes;
}
API size_t fake_used(void)
{
    return used;
}
API int fake_depth(void)
{
    return depth;
}
API const char *fake_history(void)
{
    return history;
}
API void fake_forget(void)
{
    history[0] = '\0';
    for (int i = 0; i < MOST_CALLS; i++)
        calls[i].count = 0;
}
API long fake_count(const char *name)
{
    for (int i = 0; i < MOST_CALLS && calls[i].name != NULL; i++)
        if (strcmp(calls[i].name, name) == 0)
            return calls[i].count;
    return 0;
}
/* From the end of what is held on, a kernel has failed. */
API void fake_fault(int result)
{
    sticky = result;
}
/* The n-th call from now on, and all behind it, give `result`. */
API void fake_fail(char *name, long n, int result)
{
    for (int i = 0; i < MOST_CALLS; i++) {
        if (calls[i].name == NULL)
            calls[i].name = strdup(name);
        if (strcmp(calls[i].name, name) == 0) {
            calls[i].fail_at = result ? calls[i].count + n : 0;
            calls[i].result = result;
            return;
        }
    }
}

/* --- devices ---------------------------------------------------------------------------------- */

API int cuInit(unsigned flags)
{
    (void)flags;
    CALL("cuInit");
    return devices ? OK : NO_DEVICE;
}
API int cuDriverGetVersion(int *number)
{
    *number = version;
    return OK;
}
API int cuGetErrorName(int result, const char **text)
{
    *text = result == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
            : result == 700         ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : result == INVALID_PTX ? "CUDA_ERROR_INVALID_PTX"
                                    : "CUDA_ERROR_OTHER";
    return OK;
}
API int cuGetErrorString(int result, const char **text)
{
    *text = result == OUT_OF_MEMORY ? "out of memory"
            : result == 700         ? "an illegal memory access was encountered"
            : result == INVALID_PTX ? "a PTX JIT compilation failed"
                                    : "something else";
    return OK;
}
API int cuDeviceGetCount(int *count)
{
    *count = devices;
    return OK;
}
API int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return ordinal < devices ? OK : INVALID_DEVICE;
}
API int cuDeviceGetName(char *text, int size, int device)
{
    (void)snprintf(text, (size_t)size, "Fake %d", device);
    return OK;
}
API int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)device;
    *value = attribute == 75 ? major : attribute == 76 ? minor : 132;
    return OK;
}
API int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    (void)device;
    *bytes = total;
    return OK;
}
API int cuDevicePrimaryCtxRetain(void **context, int device)
{
    CALL("cuDevicePrimaryCtxRetain");
    *context = (void *)(uintptr_t)(0x1000 + device);
    return OK;
}
API int cuDevicePrimaryCtxRelease_v2(int device)
{
    (void)device;
    CALL("cuDevicePrimaryCtxRelease");
    return OK;
}
API int cuCtxPushCurrent_v2(void *context)
{
    entered[own_depth++] = (int)((uintptr_t)context - 0x1000);
    depth++;
    return OK;
}
API int cuCtxGetCurrent(void **context)
{
    *context = own_depth == 0 ? NULL : (void *)(uintptr_t)(0x1000 + entered[own_depth - 1]);
    return OK;
}
API int cuCtxPopCurrent_v2(void **context)
{
    *context = NULL;
    own_depth--;
    depth--;
    return OK;
}

/* --- code ------------------------------------------------------------------------------------- */

typedef void kernel(void **p, size_t threads);

static void scale(void **p, size_t n) /* y = 2 x */
{
    for (size_t i = 0; i < n; i++)
        ((float *)p[1])[i] = 2 * ((const float *)p[0])[i];
}
static void add(void **p, size_t n) /* z = x + y */
{
    for (size_t i = 0; i < n; i++)
        ((float *)p[2])[i] = ((const float *)p[0])[i] + ((const float *)p[1])[i];
}
static void step(void **p, size_t n) /* w = w + x, in place */
{
    for (size_t i = 0; i < n; i++)
        ((float *)p[1])[i] += ((const float *)p[0])[i];
}
static void masked(void **p, size_t n) /* y = 2 x, of as many elements as the last parameter says */
{
    for (size_t i = 0; i < n && i < (size_t)p[2]; i++)
        ((float *)p[1])[i] = 2 * ((const float *)p[0])[i];
}
static const struct {
    const char *name;
    kernel *code;
} kernels[] = {{"scale", scale}, {"add", add}, {"step", step}, {"masked", masked}};

API int cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options,
                           void **values)
{
    CALL("cuModuleLoadDataEx");
    char *log = NULL;
    size_t size = 0;
    for (unsigned i = 0; i < count; i++) {
        if (options[i] == 5)
            log = values[i];
        if (options[i] == 6)
            size = (size_t)(uintptr_t)values[i];
    }
    if (strstr(image, "mistake") != NULL) {
        (void)snprintf(log, size,
                       "ptxas application ptx input, line 7; error: Unknown symbol 'mistake'");
        return INVALID_PTX;
    }
    *module = strdup(image);
    return OK;
}
API int cuModuleUnload(void *module)
{
    free(module);
    CALL("cuModuleUnload");
    return OK;
}
API int cuModuleGetFunction(void **function, void *module, const char *name)
{
    CALL("cuModuleGetFunction");
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (strcmp(kernels[i].name, name) == 0 && strstr(module, name) != NULL) {
            *function = (void *)(uintptr_t)(i + 1);
            return OK;
        }
    return NOT_FOUND;
}
API int cuFuncSetAttribute(void *function, int attribute, int value)
{
    (void)function, (void)attribute, (void)value;
    CALL("cuFuncSetAttribute");
    return OK;
}

/* --- memory ----------------------------------------------------------------------------------- */

API int cuMemGetInfo_v2(size_t *left, size_t *all)
{
    *left = total - used;
    *all = total;
    return OK;
}
API int cuMemAlloc_v2(uint64_t *address, size_t size)
{
    CALL("cuMemAlloc");
    if (sticky)
        return sticky;
    pthread_mutex_lock(&mutex);
    int i = 0;
    while (i < MOST_BLOCKS && blocks[i].address != 0)
        i++;
    void *memory = NULL;
    if (i < MOST_BLOCKS && size <= total - used)
        memory = aligned_alloc(256, (size + 255) / 256 * 256);
    if (memory != NULL) {
        memset(memory, 0xa5, size);
        used += size;
        blocks[i].address = *address = (uintptr_t)memory;
        blocks[i].size = size;
    }
    pthread_mutex_unlock(&mutex);
    return memory != NULL ? OK : OUT_OF_MEMORY;
}
API int cuMemFree_v2(uint64_t address)
{
    CALL("cuMemFree");
    int result = 1;
    pthread_mutex_lock(&mutex);
    for (int i = 0; result != OK && i < MOST_BLOCKS; i++)
        if (blocks[i].address == address) {
            used -= blocks[i].size;
            blocks[i].address = 0;
            free((void *)(uintptr_t)address);
            result = OK;
        }
    pthread_mutex_unlock(&mutex);
    return result;
}
API int cuMemHostAlloc(void **memory, size_t size, unsigned flags)
{
    (void)flags;
    CALL("cuMemHostAlloc");
    *memory = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    return OK;
}
API int cuMemFreeHost(void *memory)
{
    CALL("cuMemFreeHost");
    free(memory);
    return OK;
}
API int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t size, void *stream)
{
    WORK("cuMemcpyHtoDAsync", stream);
    memcpy((void *)(uintptr_t)to, from, size);
    return OK;
}
API int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t size, void *stream)
{
    WORK("cuMemcpyDtoHAsync", stream);
    memcpy(to, (const void *)(uintptr_t)from, size);
    return OK;
}
API int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, void *stream)
{
    WORK("cuMemcpyDtoDAsync", stream);
    memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, size);
    return OK;
}

/* --- streams and events ----------------------------------------------------------------------- */

static int handle(void **made)
{
    *made = (void *)(uintptr_t)((next_handle += 16) + (unsigned)current());
    return OK;
}
API int cuStreamCreate(void **stream, unsigned flags)
{
    (void)flags;
    CALL("cuStreamCreate");
    return handle(stream);
}
API int cuStreamDestroy_v2(void *stream)
{
    (void)stream;
    CALL("cuStreamDestroy");
    return OK;
}
API int cuStreamSynchronize(void *stream)
{
    CALL("cuStreamSynchronize");
    wait_for_device();
    return is_foreign(stream) ? INVALID_HANDLE : sticky;
}
API int cuStreamWaitEvent(void *stream, void *event, unsigned flags)
{
    (void)event, (void)flags;
    WORK("cuStreamWaitEvent", stream);
    return OK;
}
/* An event is the moment at which it was recorded; handles are multiples of 16, the device in the
 * rest. */
enum { EVENTS = 1 << 16 };
static double moments[EVENTS];
static double *moment_of(void *event)
{
    return &moments[((uintptr_t)event >> 4) % EVENTS];
}

API int cuEventCreate(void **event, unsigned flags)
{
    (void)flags;
    CALL("cuEventCreate");
    return handle(event);
}
API int cuEventDestroy_v2(void *event)
{
    (void)event;
    CALL("cuEventDestroy");
    return OK;
}
API int cuEventRecord(void *event, void *stream)
{
    WORK("cuEventRecord", stream);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *moment_of(event) = 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
    return is_foreign(event) ? INVALID_HANDLE : OK;
}
API int cuEventSynchronize(void *event)
{
    CALL("cuEventSynchronize");
    wait_for_device();
    return is_foreign(event) ? INVALID_HANDLE : sticky;
}
API int cuEventElapsedTime(float *time, void *from, void *to)
{
    CALL("cuEventElapsedTime");
    *time = (float)(*moment_of(to) - *moment_of(from));
    return OK;
}

/* --- launches --------------------------------------------------------------------------------- */

typedef struct {
    void *function;
    unsigned grid[3], block[3], shared;
    void **parameters, **extra;
} node_params;

static int run(void *function, const unsigned *grid, const unsigned *block, void *const *buffer)
{
    void *pointers[32];
    memcpy(pointers, buffer, sizeof(void *) * 3);
    kernels[(uintptr_t)function - 1].code(pointers, (size_t)grid[0] * block[0]);
    return OK;
}
/* The parameters behind a list {1, buffer, 2, &size, 0}. */
static void *const *unpack(void **extra, size_t *size)
{
    *size = *(size_t *)extra[3];
    return extra[1];
}
API int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                       unsigned by, unsigned bz, unsigned shared, void *stream, void **parameters,
                       void **extra)
{
    (void)gy, (void)gz, (void)by, (void)bz, (void)shared, (void)parameters;
    WORK("cuLaunchKernel", stream);
    size_t size;
    void *const *given = unpack(extra, &size);
    void *buffer[32] = {0};
    memcpy(buffer, given, size);
    return run(function, (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, buffer);
}

typedef struct {
    unsigned count;
    struct {
        void *function;
        unsigned grid[3], block[3];
        void *buffer[32];
    } nodes[64];
} graph;

API int cuGraphCreate(void **made, unsigned flags)
{
    (void)flags;
    CALL("cuGraphCreate");
    *made = calloc(1, sizeof(graph));
    return OK;
}
API int cuGraphDestroy(void *given)
{
    CALL("cuGraphDestroy");
    free(given);
    return OK;
}
static void set_node(graph *g, unsigned i, const node_params *params)
{
    size_t size;
    void *const *given = unpack(params->extra, &size);
    g->nodes[i].function = params->function;
    memcpy(g->nodes[i].grid, params->grid, sizeof params->grid);
    memcpy(g->nodes[i].block, params->block, sizeof params->block);
    memcpy(g->nodes[i].buffer, given, size);
}
API int cuGraphAddKernelNode(void **node, void *given, void *const *before, size_t count,
                             const node_params *params)
{
    graph *g = given;
    CALL("cuGraphAddKernelNode");
    for (size_t i = 0; i < count; i++)
        CALL(before[i] != NULL ? "full edge" : "broken edge");
    set_node(g, g->count, params);
    *node = (void *)(uintptr_t)++g->count;
    return OK;
}
/* An edge that has data: only programmatic ones, from the port of a kernel that has started. */
API int cuGraphAddDependencies_v2(void *given, void *const *from, void *const *to,
                                  const unsigned char *data, size_t count)
{
    CALL("cuGraphAddDependencies");
    (void)given;
    return count != 1 || from[0] >= to[0] || memcmp(data, "\1\0\1\0\0\0\0", 8) != 0;
}
API int cuGraphInstantiateWithFlags(void **exec, void *given, unsigned long long flags)
{
    (void)flags;
    CALL("cuGraphInstantiate");
    *exec = malloc(sizeof(graph));
    memcpy(*exec, given, sizeof(graph));
    return OK;
}
API int cuGraphExecDestroy(void *exec)
{
    CALL("cuGraphExecDestroy");
    free(exec);
    return OK;
}
API int cuGraphExecKernelNodeSetParams(void *exec, void *node, const node_params *params)
{
    CALL("cuGraphExecKernelNodeSetParams");
    set_node(exec, (unsigned)(uintptr_t)node - 1, params);
    return OK;
}
API int cuGraphLaunch(void *exec, void *stream)
{
    WORK("cuGraphLaunch", stream);
    const graph *g = exec;
    for (unsigned i = 0; i < g->count; i++)
        (void)run(g->nodes[i].function, g->nodes[i].grid, g->nodes[i].block, g->nodes[i].buffer);
    return OK;
}
