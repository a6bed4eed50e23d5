/* The interface of a device: a table of calls, implemented by the CUDA driver and by the simulator.
 *
 * Every call returns 0, or an error number of the driver that `classify` and `explain` decode.
 * Calls are as thread-safe as those of CUDA: threads may share a device, but must order their use
 * of one stream. Calls with a stream only enqueue; host memory that they refer to must be pinned
 * and unchanged until the stream has executed them. */
#ifndef NOVA_DRIVER_H
#define NOVA_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nova/error.h"
#include "nova/status.h"
#include "nova/tables.h"

typedef struct nova_device_info {
    char name[128];
    int major, minor; /* compute capability */
    int multiprocessors;
    uint64_t memory;    /* bytes in all */
    int driver_version; /* the CUDA version of its driver, such as 13000; 0 for a simulator */
} nova_device_info;

/* Memory of a device that a kernel may touch. */
typedef struct nova_device_range {
    uint64_t address, size;
    uint64_t is_read_only;
} nova_device_range;

/* A tensor map as the driver has encoded it. */
typedef struct nova_encoded_map {
    _Alignas(64) unsigned char bytes[128];
} nova_encoded_map;

/* One launch. `arguments` are its parameters of 8 bytes, which are pointers, and `maps` those that
 * follow them: as many as `shape` says. `ranges` are the memory they point to, passed only to a
 * driver with `checks_ranges`. A block has at least `least_shared` bytes of shared memory. A
 * dependent launch of a flow starts before the launch before it ends: see nova_graph_edge. */
typedef struct nova_kernel_call {
    void *function;
    const nova_device_launch *shape;
    const uint64_t *arguments;
    const nova_encoded_map *maps;
    uint32_t argument_count;
    uint32_t range_count;
    uint32_t least_shared;
    const nova_device_range *ranges;
    bool is_cooperative; /* all blocks run at once: see function_resident */
    bool is_dependent;   /* of a flow only: graphs have edges */
} nova_kernel_call;

/* A copy between two addresses of the device. In a loop with positions, each address moves by its
 * stride from one position to the next. */
typedef struct nova_flow_copy {
    uint64_t to, from, size;
    int64_t to_stride, from_stride;
} nova_flow_copy;

/* A loop that the device decides. With a `condition`, it runs while the byte there is not 0; else
 * once for each position from 0 to `length` - 1, or in reverse, and the position is at `position`
 * as an int64_t. `enters` are done before the loop, `loads` before each iteration at its position,
 * `stores` after each iteration. No copy overlaps another one of the same list. */
typedef struct nova_flow_loop {
    uint64_t condition; /* 0: a loop with positions */
    uint64_t position;
    int64_t length;
    bool is_reverse;
    const nova_flow_copy *enters, *loads, *stores;
    uint32_t enter_count, load_count, store_count;
} nova_flow_loop;

typedef struct nova_driver nova_driver;

/* Launch `after` of a graph waits for launch `before`, which has a smaller number. Edges are in the
 * order of `after`. A dependent launch starts when all blocks of the other have started, and waits
 * by itself for its end (programmatic dependent launch); a driver without them waits. */
typedef struct nova_graph_edge {
    uint32_t before, after;
    bool is_dependent;
} nova_graph_edge;

/* What a block of a kernel takes of a multiprocessor: registers of a thread, and bytes of shared
 * memory that the code declares. */
typedef struct nova_function_use {
    uint32_t registers, shared;
} nova_function_use;

struct nova_driver {
    const char *name;   /* "cuda" or "sim" */
    bool checks_ranges; /* whether launches should pass the memory ranges they may access */

    /* The status of an error number: NOVA_DEVICE_MEMORY, NOVA_DEVICE_FAULT (the context is lost),
     * NOVA_WRONG_DEVICE, NOVA_UNSUPPORTED (code for another device), NOVA_DEVICE_CODE,
     * NOVA_SIMULATED_FAULT, or NOVA_DEVICE_CALL for all others. */
    nova_status (*classify)(nova_driver *driver, int result);
    void (*explain)(nova_driver *driver, int result, char *text, size_t size);

    int (*count)(nova_driver *driver, int *count);
    int (*describe)(nova_driver *driver, int ordinal, nova_device_info *info);
    int (*memory_left)(nova_driver *driver, uint64_t *bytes); /* of the current context */

    /* The primary context, shared by all libraries of the process. `enter` makes it current for the
     * calling thread and `leave` restores the previous one. */
    int (*context_open)(nova_driver *driver, int ordinal, void **context);
    void (*context_close)(nova_driver *driver, int ordinal, void *context);
    int (*enter)(nova_driver *driver, void *context);
    void (*leave)(nova_driver *driver);

    /* `log` gets the messages of the driver's compiler about PTX that it refuses. */
    int (*module_load)(nova_driver *driver, const void *image, size_t size, uint32_t kind,
                       char *log, size_t log_size, void **module);
    void (*module_unload)(nova_driver *driver, void *module);
    int (*function_find)(nova_driver *driver, void *module, const char *name, void **function);
    /* What the code of a function needs for each block, without dynamic shared memory. */
    int (*function_use)(nova_driver *driver, void *function, nova_function_use *use);
    /* Lets it have so many bytes of dynamic shared memory, or more. */
    int (*function_allow_shared)(nova_driver *driver, void *function, uint32_t bytes);
    /* The most blocks of a cooperative launch on the device of the entered context, and on how many
     * multiprocessors they are; an error if not even one fits. */
    int (*function_resident)(nova_driver *driver, void *function, uint32_t threads, uint32_t shared,
                             uint32_t *blocks, uint32_t *processors);

    /* Encodes a tensor map for the operand at `address`, for launches by this driver. */
    int (*tensor_map_encode)(nova_driver *driver, const nova_tensor_map *map, uint64_t address,
                             nova_encoded_map *encoded);

    int (*memory_take)(nova_driver *driver, uint64_t size, uint64_t *address);
    void (*memory_free)(nova_driver *driver, uint64_t address);
    /* Marks the contents of memory as undefined from here on; NULL if the driver does not track
     * it. */
    int (*memory_forget)(nova_driver *driver, uint64_t address, uint64_t size, void *stream);
    int (*pinned_take)(nova_driver *driver, uint64_t size, void **memory);
    void (*pinned_free)(nova_driver *driver, void *memory);

    int (*stream_create)(nova_driver *driver, void **stream);
    void (*stream_destroy)(nova_driver *driver, void *stream);
    int (*stream_synchronize)(nova_driver *driver, void *stream);
    int (*stream_wait)(nova_driver *driver, void *stream, void *event);
    int (*event_create)(nova_driver *driver, bool timed, void **event);
    void (*event_destroy)(nova_driver *driver, void *event);
    int (*event_record)(nova_driver *driver, void *event, void *stream);
    int (*event_synchronize)(nova_driver *driver, void *event);
    int (*event_elapsed)(nova_driver *driver, void *from, void *to, float *milliseconds);

    int (*copy_in)(nova_driver *driver, uint64_t to, const void *from, uint64_t size, void *stream);
    int (*copy_out)(nova_driver *driver, void *to, uint64_t from, uint64_t size, void *stream);
    int (*copy_within)(nova_driver *driver, uint64_t to, uint64_t from, uint64_t size,
                       void *stream);
    /* Copies while a resident kernel runs that waits for them: on a stream of their own, in order.
     * A word is written as a whole. The second returns when the bytes are there. */
    int (*write_concurrently)(nova_driver *driver, uint64_t to, const void *from, uint64_t size,
                              void *stream);
    int (*read_concurrently)(nova_driver *driver, void *to, uint64_t from, uint64_t size,
                             void *stream);
    int (*launch)(nova_driver *driver, const nova_kernel_call *call, void *stream);

    /* Launches that are launched as one graph, in any order that its edges allow; the arguments of
     * each can be updated, which does not affect earlier launches of the graph. */
    int (*graph_create)(nova_driver *driver, const nova_kernel_call *calls, uint32_t count,
                        const nova_graph_edge *edges, uint32_t edge_count, void **graph);
    void (*graph_destroy)(nova_driver *driver, void *graph);
    int (*graph_update)(nova_driver *driver, void *graph, uint32_t index,
                        const nova_kernel_call *call);
    int (*graph_launch)(nova_driver *driver, void *graph, void *stream);

    /* Flows: graphs with branches and loops that the device decides. Whether the device of the
     * entered context can run them; the calls below are made only if it can. */
    bool (*flow_is_supported)(nova_driver *driver);
    /* A flow that does nothing yet, and its body. Bodies belong to the flow. Work is added at the
     * end of a body; every body is ended after all that it contains. */
    int (*flow_create)(nova_driver *driver, void **flow, void **body);
    int (*flow_add_launch)(nova_driver *driver, void *body, const nova_kernel_call *call);
    int (*flow_add_copies)(nova_driver *driver, void *body, const nova_flow_copy *copies,
                           uint32_t count);
    int (*flow_add_loop)(nova_driver *driver, void *body, const nova_flow_loop *loop, void **inner);
    /* Runs one of `count` branches: the selector, of 1 or 8 bytes, is its number; one out of range
     * selects the first or the last. */
    int (*flow_add_switch)(nova_driver *driver, void *body, uint64_t selector, uint64_t size,
                           uint32_t count, void **branches);
    int (*flow_end_body)(nova_driver *driver, void *body);
    /* Completes a flow whose bodies have ended: from now on it can be launched. */
    int (*flow_finish)(nova_driver *driver, void *flow);
    int (*flow_launch)(nova_driver *driver, void *flow, void *stream);
    void (*flow_destroy)(nova_driver *driver, void *flow);
};

/* The driver of the GPUs in this machine: `path` is that of libcuda, NULL for the default search.
 * The caller owns *driver; the text of NOVA_NO_DRIVER names the missing part. Thread-safe. */
nova_status nova_cuda_open(const char *path, nova_driver **driver, nova_error *error);

/* Not while anything of it is in use; the library stays loaded, as others may use it. NULL is
 * fine. */
void nova_cuda_close(nova_driver *driver);

#endif
