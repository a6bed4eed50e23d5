/* The state of the CUDA driver table; included by the files of this folder only. */
#ifndef NOVA_GPU_CUDA_STATE_H
#define NOVA_GPU_CUDA_STATE_H

#include <pthread.h>

#include "nova/driver.h"

/* Numbers of the driver API used here; they never change. */
enum {
    OUT_OF_MEMORY = 2,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    NO_BINARY_FOR_GPU = 209,
    INVALID_PTX = 218,
    UNSUPPORTED_PTX_VERSION = 222,
    NOT_FOUND = 500,
    LAUNCH_RESOURCES = 701,
    NOT_SUPPORTED = 801,
};
enum { ATTRIBUTE_MULTIPROCESSORS = 16, ATTRIBUTE_MAJOR = 75, ATTRIBUTE_MINOR = 76 };
enum { FUNCTION_SHARED = 1, FUNCTION_REGISTERS = 4, FUNCTION_MOST_DYNAMIC_SHARED = 8 };
enum { JIT_ERROR_LOG = 5, JIT_ERROR_LOG_SIZE = 6 };
enum { STREAM_NON_BLOCKING = 1, EVENT_DISABLE_TIMING = 2, HOST_PORTABLE = 1 };

/* Older drivers lack the functions for graphs. */
enum { LEAST_VERSION = 11040 };

/* The parameters of a kernel node, in the layout that all versions since 10 take. */
typedef struct {
    void *function;
    unsigned grid[3], block[3], shared;
    void **parameters;
    void **extra;
} node_params;

/* The parameters of a conditional node. */
typedef struct {
    int type;
    int reserved[3];
    struct {
        uint64_t handle;
        int type;
        unsigned count;
        void **graphs; /* written by the driver, which owns them: those of the bodies */
        void *context;
        uint64_t padding[25];
    } node;
    uint64_t last;
} conditional_params;

_Static_assert(sizeof(conditional_params) == 256, "as in the driver API");

/* The data of an edge of a graph. */
typedef struct {
    unsigned char from_port, to_port, type, reserved[5];
} edge_data;

enum { PORT_PROGRAMMATIC = 1, EDGE_PROGRAMMATIC = 1 };

/* The kernels of flows, loaded into a context; cuda_flow.c. */
enum {
    CUDA_FLOW_BEGIN,
    CUDA_FLOW_NEXT,
    CUDA_FLOW_COPY,
    CUDA_FLOW_SELECT,
    CUDA_FLOW_KERNELS,
    CUDA_MOST_CONTEXTS = 16
};

typedef struct {
    void *context;
    void *functions[CUDA_FLOW_KERNELS];
    bool is_loaded;
    bool waits; /* whether the kernels wait by themselves for the launches before them */
} cuda_flow_code;

/* Name of a function of the driver, how it is called here, and its parameters. */
#define FUNCTIONS(F)                                                                               \
    F(cuInit, init, (unsigned))                                                                    \
    F(cuDriverGetVersion, driver_version, (int *))                                                 \
    F(cuGetErrorName, error_name, (int, const char **))                                            \
    F(cuGetErrorString, error_string, (int, const char **))                                        \
    F(cuDeviceGetCount, device_count, (int *))                                                     \
    F(cuDeviceGet, device_get, (int *, int))                                                       \
    F(cuDeviceGetName, device_name, (char *, int, int))                                            \
    F(cuDeviceGetAttribute, device_attribute, (int *, int, int))                                   \
    F(cuDeviceTotalMem_v2, device_memory, (size_t *, int))                                         \
    F(cuDevicePrimaryCtxRetain, context_retain, (void **, int))                                    \
    F(cuDevicePrimaryCtxRelease_v2, context_release, (int))                                        \
    F(cuCtxPushCurrent_v2, context_push, (void *))                                                 \
    F(cuCtxPopCurrent_v2, context_pop, (void **))                                                  \
    F(cuModuleLoadDataEx, module_load, (void **, const void *, unsigned, int *, void **))          \
    F(cuModuleUnload, module_unload, (void *))                                                     \
    F(cuModuleGetFunction, module_function, (void **, void *, const char *))                       \
    F(cuFuncGetAttribute, function_get, (int *, int, void *))                                      \
    F(cuFuncSetAttribute, function_set, (void *, int, int))                                        \
    F(cuMemGetInfo_v2, memory_info, (size_t *, size_t *))                                          \
    F(cuMemAlloc_v2, memory_take, (uint64_t *, size_t))                                            \
    F(cuMemFree_v2, memory_free, (uint64_t))                                                       \
    F(cuMemHostAlloc, pinned_take, (void **, size_t, unsigned))                                    \
    F(cuMemFreeHost, pinned_free, (void *))                                                        \
    F(cuMemcpyHtoDAsync_v2, copy_in, (uint64_t, const void *, size_t, void *))                     \
    F(cuMemcpyDtoHAsync_v2, copy_out, (void *, uint64_t, size_t, void *))                          \
    F(cuMemcpyDtoDAsync_v2, copy_within, (uint64_t, uint64_t, size_t, void *))                     \
    F(cuStreamCreate, stream_create, (void **, unsigned))                                          \
    F(cuStreamDestroy_v2, stream_destroy, (void *))                                                \
    F(cuStreamSynchronize, stream_synchronize, (void *))                                           \
    F(cuStreamWaitEvent, stream_wait, (void *, void *, unsigned))                                  \
    F(cuEventCreate, event_create, (void **, unsigned))                                            \
    F(cuEventDestroy_v2, event_destroy, (void *))                                                  \
    F(cuEventRecord, event_record, (void *, void *))                                               \
    F(cuEventSynchronize, event_synchronize, (void *))                                             \
    F(cuEventElapsedTime, event_elapsed, (float *, void *, void *))                                \
    F(cuLaunchKernel, launch,                                                                      \
      (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,       \
       void **, void **))                                                                          \
    F(cuLaunchCooperativeKernel, launch_cooperative,                                               \
      (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,       \
       void **))                                                                                   \
    F(cuOccupancyMaxActiveBlocksPerMultiprocessor, occupancy, (int *, void *, int, size_t))        \
    F(cuCtxGetDevice, context_device, (int *))                                                     \
    F(cuGraphCreate, graph_create, (void **, unsigned))                                            \
    F(cuGraphDestroy, graph_destroy, (void *))                                                     \
    F(cuGraphAddKernelNode, graph_add,                                                             \
      (void **, void *, void *const *, size_t, const node_params *))                               \
    F(cuGraphInstantiateWithFlags, graph_instantiate, (void **, void *, unsigned long long))       \
    F(cuGraphExecDestroy, exec_destroy, (void *))                                                  \
    F(cuGraphExecKernelNodeSetParams, exec_set, (void *, void *, const node_params *))             \
    F(cuGraphLaunch, graph_launch, (void *, void *))

#define MEMBER(symbol, name, parameters) int(*name) parameters;
typedef struct {
    nova_driver driver; /* first: callers have a pointer to it */
    FUNCTIONS(MEMBER)
    /* NULL in drivers before 12.0, which have no device with a copy engine either */
    int (*map_encode)(void *, int, uint32_t, void *, const uint64_t *, const uint64_t *,
                      const uint32_t *, const uint32_t *, int, int, int, int);
    /* NULL in drivers before 12.3: conditional nodes of graphs */
    int (*context_current)(void **);
    int (*condition_create)(uint64_t *, void *, void *, unsigned, unsigned);
    int (*graph_add_node)(void **, void *, void *const *, size_t, conditional_params *);
    /* NULL in drivers before 12.3: edges with data */
    int (*graph_add_edges)(void *, void *const *, void *const *, const edge_data *, size_t);
    int version;
    pthread_mutex_t mutex; /* guards the two below */
    cuda_flow_code flow_codes[CUDA_MOST_CONTEXTS];
    int flow_code_count;
} cuda;

static inline cuda *cuda_context_of(nova_driver *driver)
{
    return (cuda *)driver;
}

/* The parameters of a launch: one buffer with all of them; or, with tensor maps, a pointer to each,
 * because only the driver knows where a map is aligned among them. */
enum { MOST_PARAMETERS = 256 };

typedef struct {
    size_t size;
    void *list[5];
    void *each[MOST_PARAMETERS];
    bool has_maps;
} packed;

/* The parameters of the node of a launch; *parameters must live as long as *params. */
int cuda_params_of(const nova_kernel_call *call, packed *parameters, node_params *params);

/* Calls of the table: cuda_modules.c. */
int nova_cuda_module_load(nova_driver *driver, const void *image, size_t size, uint32_t kind,
                          char *log, size_t log_size, void **module);
void nova_cuda_module_unload(nova_driver *driver, void *module);
int nova_cuda_function_find(nova_driver *driver, void *module, const char *name, void **function);

/* Calls of the table: cuda_flow.c. */
bool nova_cuda_flow_is_supported(nova_driver *driver);
int nova_cuda_flow_create(nova_driver *driver, void **created, void **body);
int nova_cuda_flow_add_launch(nova_driver *driver, void *handle, const nova_kernel_call *call);
int nova_cuda_flow_add_copies(nova_driver *driver, void *handle, const nova_flow_copy *copies,
                              uint32_t count);
int nova_cuda_flow_add_loop(nova_driver *driver, void *handle, const nova_flow_loop *loop,
                            void **inner);
int nova_cuda_flow_add_switch(nova_driver *driver, void *handle, uint64_t selector, uint64_t size,
                              uint32_t count, void **branches);
int nova_cuda_flow_end_body(nova_driver *driver, void *handle);
int nova_cuda_flow_finish(nova_driver *driver, void *handle);
int nova_cuda_flow_launch(nova_driver *driver, void *handle, void *stream);
void nova_cuda_flow_destroy(nova_driver *driver, void *handle);

#endif
