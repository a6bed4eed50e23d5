/* Shared state of the simulator's driver; included by the files of this folder only. */
#ifndef NOVA_GPUSIM_DRIVER_DRIVER_STATE_H
#define NOVA_GPUSIM_DRIVER_DRIVER_STATE_H

#include <pthread.h>
#include <stdbool.h>

#include "gpusim/driver/sim_driver.h"

/* Numbers that the table's calls give. */
enum {
    SIM_OK,
    SIM_NO_MEMORY,
    SIM_FAULT,
    SIM_BAD_CODE,
    SIM_NO_KERNEL,
    SIM_BAD_LAUNCH,
    SIM_BAD_ADDRESS,
    SIM_OTHER_DEVICE
};

enum { ALIGNMENT = 256, MOST_SHARED = 227 << 10, DEVICES = NOVA_SIM_DEVICES };
/* Shared memory of a block that no launch has to ask for; and of a multiprocessor, which keeps a
 * part for each block; its registers and threads. */
enum {
    USUAL_SHARED = 48 << 10,
    PROCESSOR_SHARED = 228 << 10,
    BLOCK_SHARED = 1 << 10,
    PROCESSOR_REGISTERS = 65536,
    PROCESSOR_THREADS = 2048
};
#define MOST_STEPS UINT64_C(200000000)

typedef struct block {
    uint64_t address, size;
    uint8_t *state; /* one byte each: whether it was written */
    struct block *next;
} block;

typedef struct simulator simulator;
typedef struct module module;

typedef struct {
    const module *of;
    const char *name;
    sim_kernel kernel;
    uint32_t param_bytes, most_threads;
    uint32_t allowed_shared; /* bytes of dynamic shared memory that were asked for */
    uint32_t required[3];
    uint32_t cluster[3]; /* blocks of a cluster; 0: not given by the kernel */
} function;

struct module {
    const simulator *on;
    char *image;
    const char *text; /* the PTX, for its lines */
    uint64_t text_size;
    uint32_t count;
    uint32_t schedule; /* of its launches: see sim_launch */
    function functions[];
};

typedef struct event event;
typedef struct stream stream;
typedef struct flow flow; /* both: driver_flow.c */
typedef struct flow_body flow_body;

typedef enum { COPY_IN, COPY_OUT, COPY_WITHIN, FORGET, RECORD, WAIT, LAUNCH, FLOW } operation;

/* One work item; a launch has its arguments and ranges after it. */
typedef struct work {
    struct work *next;
    operation operation;
    uint64_t to, from, size, ticket;
    void *host;
    event *event;
    stream *recorded; /* of a wait: the ticket of its event when the wait was enqueued */
    const function *function;
    const flow *flow;
    nova_device_launch shape;
    bool is_cooperative;
    bool is_dependent; /* starts before the launches before it have ended */
    uint32_t argument_count, range_count;
    uint64_t data[];
} work;

struct stream {
    const simulator *on;
    work *first, *last;
    stream *next;
};

/* `ticket` counts how often it was recorded, the last time in the stream `in`; `at_ns` is when that
 * came there. */
struct event {
    const simulator *on;
    uint64_t ticket;
    stream *in;
    uint64_t at_ns;
};

/* Launches as a list that is enqueued again and again, in an order that the edges allow. */
typedef struct {
    uint32_t count;
    uint32_t *order;
    work *calls[];
} graph;

/* One simulated GPU, with separate memory and streams; its address is its context. */
struct simulator {
    pthread_mutex_t mutex;
    block *blocks;
    stream *streams;
    stream usual;           /* the one that is NULL */
    nova_sim_report report; /* of the last launch that failed */
    bool has_report;
    /* what launches write that may not have ended when the next dependent one starts */
    nova_device_range *unfinished;
    uint32_t unfinished_count;
    char why[160];
};

typedef struct {
    nova_driver driver; /* first: callers have a pointer to it */
    simulator devices[DEVICES];
} sim_driver;

/* The one whose context the calling thread has entered, as with CUDA; the first when it has none.
 * driver.c */
simulator *sim_of(nova_driver *driver);

/* The block that holds all of these bytes, or NULL. With the lock; driver.c. */
block *sim_find_block(const simulator *s, uint64_t address, uint64_t size);

/* Runs a launch, with the lock; driver_launch.c. */
int sim_launch_now(simulator *s, const work *w);

/* Checks a launch as the driver of a GPU would, and copies it; driver_queue.c. */
int sim_check_launch(simulator *s, const nova_kernel_call *call);
work *sim_make_launch(const nova_kernel_call *call);

/* Enqueues a flow; driver_queue.c. Runs one, with the lock; driver_flow.c. */
int sim_push_flow(simulator *s, void *handle, const flow *pushed);
int sim_flow_now(simulator *s, const flow *in);

/* Runs all streams to their ends. With the lock; driver_queue.c. */
int sim_drain_all(simulator *s);

/* Calls of the table: driver_code.c, driver_flow.c, driver_queue.c. */
bool nova_sim_flow_is_supported(nova_driver *driver);
int nova_sim_flow_create(nova_driver *driver, void **created, void **body);
int nova_sim_flow_add_launch(nova_driver *driver, void *body, const nova_kernel_call *call);
int nova_sim_flow_add_copies(nova_driver *driver, void *body, const nova_flow_copy *copies,
                             uint32_t count);
int nova_sim_flow_add_loop(nova_driver *driver, void *body, const nova_flow_loop *loop,
                           void **inner);
int nova_sim_flow_add_switch(nova_driver *driver, void *body, uint64_t selector, uint64_t size,
                             uint32_t count, void **branches);
int nova_sim_flow_end_body(nova_driver *driver, void *handle);
int nova_sim_flow_finish(nova_driver *driver, void *handle);
int nova_sim_flow_launch(nova_driver *driver, void *handle, void *stream);
void nova_sim_flow_destroy(nova_driver *driver, void *handle);
void nova_sim_module_unload(nova_driver *driver, void *handle);
int nova_sim_module_load(nova_driver *driver, const void *image, size_t size, uint32_t kind,
                         char *log, size_t log_size, void **loaded);
int nova_sim_function_find(nova_driver *driver, void *handle, const char *name, void **function);
int nova_sim_function_use(nova_driver *driver, void *handle, nova_function_use *use);
int nova_sim_function_allow_shared(nova_driver *driver, void *handle, uint32_t bytes);
int nova_sim_function_resident(nova_driver *driver, void *handle, uint32_t threads, uint32_t shared,
                               uint32_t *blocks, uint32_t *processors);
int nova_sim_copy_in(nova_driver *driver, uint64_t to, const void *from, uint64_t size,
                     void *stream);
int nova_sim_copy_out(nova_driver *driver, void *to, uint64_t from, uint64_t size, void *stream);
int nova_sim_copy_within(nova_driver *driver, uint64_t to, uint64_t from, uint64_t size,
                         void *stream);
int nova_sim_memory_forget(nova_driver *driver, uint64_t address, uint64_t size, void *stream);
int nova_sim_launch(nova_driver *driver, const nova_kernel_call *call, void *stream);
void nova_sim_graph_destroy(nova_driver *driver, void *handle);
int nova_sim_graph_create(nova_driver *driver, const nova_kernel_call *calls, uint32_t number,
                          const nova_graph_edge *edges, uint32_t edge_count, void **created);
int nova_sim_graph_update(nova_driver *driver, void *handle, uint32_t index,
                          const nova_kernel_call *call);
int nova_sim_graph_launch(nova_driver *driver, void *handle, void *stream);
int nova_sim_stream_create(nova_driver *driver, void **created);
void nova_sim_stream_destroy(nova_driver *driver, void *handle);
int nova_sim_stream_synchronize(nova_driver *driver, void *handle);
int nova_sim_stream_wait(nova_driver *driver, void *handle, void *event_handle);
int nova_sim_event_create(nova_driver *driver, bool timed, void **created);
void nova_sim_event_destroy(nova_driver *driver, void *handle);
int nova_sim_event_record(nova_driver *driver, void *event_handle, void *handle);
int nova_sim_event_synchronize(nova_driver *driver, void *handle);
int nova_sim_event_elapsed(nova_driver *driver, void *from, void *to, float *milliseconds);

#endif
