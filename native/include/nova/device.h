/* Devices: GPUs, or simulated ones, and their programs.
 *
 *     nova_device_open(driver, 0, &device, &error);
 *     nova_device_program_create(device, &source, &program, &error);
 *     nova_device_program_run(program, arguments, outputs, &NOVA_RUN_ON(NOVA_OWN_STREAM), &error);
 *
 * A fault of a kernel loses the device's context until the process ends: every later call returns
 * NOVA_DEVICE_FAULT with the first reason. Programs on the CPU are not affected. */
#ifndef NOVA_DEVICE_H
#define NOVA_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nova/driver.h"
#include "nova/error.h"
#include "nova/file.h"
#include "nova/image.h"
#include "nova/program.h"
#include "nova/scheduler.h"
#include "nova/status.h"
#include "nova/tables.h"
#include "nova/tensor.h"

/* Instead of a stream: one that Nova chooses. Other values are streams of the driver, CUstream;
 * NULL is CUDA's default stream. */
#define NOVA_OWN_STREAM ((void *)UINTPTR_MAX)

typedef struct nova_device nova_device;

/* Opens the context of a device; the caller owns *device and closes it after all objects created
 * from it. Opening a GPU takes a tenth of a second: cache the device. The driver must outlive it.
 * Thread-safe. */
nova_status nova_device_open(nova_driver *driver, int ordinal, nova_device **device,
                             nova_error *error);
void nova_device_close(nova_device *device);

/* Owned by the device. Thread-safe. */
const nova_device_info *nova_device_describe(const nova_device *device);
int nova_device_ordinal(const nova_device *device);

/* The stream that runs on arrays of Nova use. Owned by the device. Thread-safe. */
void *nova_device_stream(const nova_device *device);

/* Waits until all work of a stream has ended. Thread-safe. */
nova_status nova_device_synchronize(nova_device *device, void *stream, nova_error *error);

/* Records an event after all work enqueued on a stream. The caller owns *event, and passes it to
 * nova_device_await, which waits until the device has reached it and releases it. Thread-safe. */
nova_status nova_device_mark(nova_device *device, void *stream, void **event, nova_error *error);
nova_status nova_device_await(nova_device *device, void *event, nova_error *error);

/* Orders work enqueued on `later` from now on after all work enqueued on `earlier`. Thread-safe. */
nova_status nova_device_order(nova_device *device, void *earlier, void *later, nova_error *error);

/* --- memory ----------------------------------------------------------------------------------- */

/* A block of device memory from the device's pool, at least 256-byte aligned, with arbitrary
 * contents. */
typedef struct nova_device_block {
    uint64_t address;
    uint64_t size; /* at least the requested size */
    void *stream;  /* the last one that used it */
    struct nova_device_block *next;
} nova_device_block;

/* Takes a block for work of `stream`: an idle one, else fresh memory. When the device has none
 * left, all idle blocks are freed, and it is tried once more. Thread-safe. */
nova_status nova_device_take(nova_device *device, uint64_t size, void *stream,
                             nova_device_block **block, nova_error *error);

/* Releases a block immediately; its next user waits for the work that block->stream has at that
 * time. NULL is fine. Thread-safe. */
void nova_device_give(nova_device *device, nova_device_block *block);

/* Use of the pool: idle bytes, bytes in use, and the number of allocations by the driver. */
typedef struct nova_device_usage {
    uint64_t idle_bytes, used_bytes, allocations;
} nova_device_usage;

nova_device_usage nova_device_memory(nova_device *device);

/* Frees all idle blocks. Thread-safe. */
void nova_device_trim(nova_device *device);

/* Copies between plain host memory and the device, when `stream` gets there; both have ended when
 * it returns. Thread-safe. */
nova_status nova_device_upload(nova_device *device, uint64_t to, const void *from, uint64_t size,
                               void *stream, nova_error *error);
nova_status nova_device_download(nova_device *device, void *to, uint64_t from, uint64_t size,
                                 void *stream, nova_error *error);

/* --- programs --------------------------------------------------------------------------------- */

typedef struct nova_device_program nova_device_program;

/* Who decides how often loops run, and which branches: the device, which also gets short loops
 * unrolled; the device, without unrolled loops; or the host, as always if the driver has no nodes
 * for it. */
typedef enum nova_device_loops {
    NOVA_LOOPS_AUTO = 0,
    NOVA_LOOPS_NODES = 1,
    NOVA_LOOPS_HOST = 2,
} nova_device_loops;

/* What the launches of a program may do at the same time, from their second run on. Branches:
 * independent ones run concurrently where that is estimated to gain. Dependent: each starts before
 * the one that it waits for has ended (programmatic dependent launch). `auto` is both. Launches of
 * loops and branches are dependent ones, and have no branches of their own. */
typedef enum nova_device_overlap {
    NOVA_OVERLAP_AUTO = 0,
    NOVA_OVERLAP_DEPENDENT = 1,
    NOVA_OVERLAP_BRANCHES = 2,
    NOVA_OVERLAP_NONE = 3,
} nova_device_overlap;

/* The parts of a program: checked tables, code for the device, and the values of the constants. In
 * a hybrid program (host kernels between device kernels) `image` has the host code, else it may be
 * NULL. A program for other sizes of the same symbolic program `shares` the code and constants of
 * that one, and needs neither. Only the image and the memory of the tables must outlive the call.
 */
typedef struct nova_device_source {
    const nova_tables *tables;
    const nova_device_code *code;
    const nova_image *image;
    const void *constants;
    uint64_t constants_size;
    const nova_device_program *shares;
    const int64_t *sizes; /* the values of symbolic sizes, which kernels take (nova/symbolic.h) */
    size_t size_count;
    const nova_tensor_info *arguments; /* only nbytes, donated and alias are read */
    const nova_tensor_info *outputs;
    size_t argument_count;
    size_t output_count;
    nova_device_loops loops;
    /* A run of a program with a persistent kernel repeats it: its first `stacked_count` arguments,
     * and its outputs that alias none, have a part for each repetition. 0: once. */
    uint64_t repeats;
    size_t stacked_count;
    /* Then the repetitions are slots of a ring, which are filled while the program runs: see
     * nova_device_ring_push. */
    bool has_ring;
    nova_device_overlap overlap;
} nova_device_source;

/* Loads code and constants; the caller owns *program. Thread-safe. */
nova_status nova_device_program_create(nova_device *device, const nova_device_source *source,
                                       nova_device_program **program, nova_error *error);

/* Waits for its runs first. NULL is fine. */
void nova_device_program_destroy(nova_device_program *program);

/* Whether a run needs the host between kernels of the device: for kernels of the host, or to decide
 * loops and branches. Thread-safe. */
bool nova_device_program_is_mixed(const nova_device_program *program);

/* Whether it has loops or branches that the host decides. Thread-safe. */
bool nova_device_program_is_host_decided(const nova_device_program *program);

/* What a run did and when; see below. */
typedef struct nova_device_trace nova_device_trace;

/* A request to stop a run, from any thread. Only loops and branches of a persistent kernel can be
 * stopped: its blocks read a word in pinned memory, now and then. The results of a run that was
 * stopped are incomplete. All 0 before the run; it must outlive the run, and the program must
 * outlive it. */
typedef struct nova_stop_request {
    uint32_t *word;
    uint32_t number; /* which the word gets */
    uint32_t is_requested;
} nova_stop_request;

/* Thread-safe, at any time. */
void nova_device_request_stop(nova_stop_request *request);

typedef struct nova_device_run_options {
    void *stream;             /* outlives program and arrays; NOVA_OWN_STREAM: chosen by Nova */
    nova_device_trace *trace; /* records the run; NULL: not traced */
    bool waits;               /* return when all of it has ended, wherever its values are */
    nova_stop_request *stop;  /* NULL: it is not stopped */
    /* how host kernels run; `poll` is also called before each host region, and work already
     * enqueued on the device is waited for when it stops the run */
    nova_program_options host;
} nova_device_run_options;

/* Options for a run on a stream, and no more. */
#define NOVA_RUN_ON(given) ((const nova_device_run_options){.stream = (given)})

/* Runs once. Values on the host are copied to the device and back, and the call then returns when
 * results and donated arguments are complete; without any of those it returns when all work is
 * enqueued, and values on the device must stay valid until the stream has executed it. An output
 * that aliases a donated argument is passed as that argument, or as an empty value. Thread-safe if
 * no run writes values that a concurrent run uses. */
nova_status nova_device_program_run(nova_device_program *program,
                                    const nova_device_value *arguments,
                                    const nova_device_value *outputs,
                                    const nova_device_run_options *options, nova_error *error);

/* A program with a ring, a power of two of slots, is run once, without waiting for it, and repeats
 * until nova_device_ring_end. Values with a part for each repetition have a part for each slot,
 * and must be on the device. Whether such a run has begun: slots can be filled. Thread-safe. */
bool nova_device_ring_is_running(const nova_device_program *program);

/* Its slots; 0 for a program without a ring. Thread-safe. */
uint32_t nova_device_ring_slots(const nova_device_program *program);

/* Fills the next slot with an array for each argument that has parts, in order. The caller has read
 * the results of the repetition that used this slot before. One thread at a time. */
nova_status nova_device_ring_push(nova_device_program *program, const void *const *inputs,
                                  nova_error *error);

/* How many repetitions are complete. Thread-safe. */
uint32_t nova_device_ring_done(const nova_device_program *program);

/* Copies the results of a complete repetition that have parts, in order. Thread-safe for different
 * repetitions. */
nova_status nova_device_ring_read(nova_device_program *program, uint32_t number,
                                  void *const *results, nova_error *error);

/* No slot is filled from now on: the run ends after those that are. Not while one is filled. */
nova_status nova_device_ring_end(nova_device_program *program, nova_error *error);

/* After the end of the run, or its failure: the program can run again. */
void nova_device_ring_release(nova_device_program *program);

/* Counters of its runs, for tests and tools. */
typedef struct nova_device_counts {
    uint64_t runs, launches, graphs, graph_launches, graph_updates;
} nova_device_counts;

/* The graphs that the launches of a program become: their edges, those of them that are dependent
 * launches, and the launches that may run concurrently with the one before. Thread-safe. */
typedef struct nova_graph_shape {
    uint32_t launches, edges, dependent, branches;
} nova_graph_shape;

nova_graph_shape nova_device_program_graph(const nova_device_program *program);

/* The tables of the persistent kernel of a program without loops: resident blocks, rows of tasks,
 * counters that they add to, and waits of rows for counters. All 0 without one. Thread-safe. */
typedef struct nova_persistent_shape {
    uint32_t blocks, rows, counters, waits;
} nova_persistent_shape;

nova_persistent_shape nova_device_program_persistent(const nova_device_program *program);

nova_device_counts nova_device_program_counts(nova_device_program *program);

/* --- traces ----------------------------------------------------------------------------------- */

/* A traced run launches kernel by kernel, with timed events of the driver around each kernel and
 * each copy; a persistent kernel is one launch, which records its tasks itself. The first four span
 * types are of the device, with events; the others of the calling thread, and of tasks. */
typedef enum nova_span_kind {
    NOVA_SPAN_KERNEL = 0,
    NOVA_SPAN_COPY_IN = 1,
    NOVA_SPAN_COPY_OUT = 2,
    NOVA_SPAN_COPY_WITHIN = 3,
    NOVA_SPAN_ENQUEUE = 4,
    NOVA_SPAN_WAIT = 5,
    NOVA_SPAN_STAGE = 6, /* copies to or from pinned memory, and waits for the device to follow */
    NOVA_SPAN_HOST = 7,  /* `count` launches of the host, from `launch` on */
    /* tasks of `launch` in block `count` of multiprocessor `first`, after a wait of `bytes` ns; its
     * times are those of the device's own clock */
    NOVA_SPAN_TASK = 8,
} nova_span_kind;

#define NOVA_NO_LAUNCH UINT32_MAX

typedef struct nova_span {
    uint32_t kind;
    uint32_t launch;       /* of the tables; NOVA_NO_LAUNCH when it is none */
    uint32_t first, count; /* of copies without a launch: which of the trace's values they move */
    uint64_t bytes;        /* of copies */
    uint64_t start_ns;     /* CLOCK_MONOTONIC; device times are converted to it */
    uint64_t end_ns;
} nova_span;

typedef struct nova_device_timeline {
    uint64_t start_ns, end_ns; /* of the run: all spans are in between */
    uint64_t lost;             /* spans that there was no event or memory for */
    const nova_span *spans;
    size_t span_count;
    const uint32_t *values; /* numbers of arguments, then outputs */
    size_t value_count;
} nova_device_timeline;

/* For one run, which begins at this moment. The caller owns *trace; the device must outlive it.
 * Thread-safe. */
nova_status nova_device_trace_create(nova_device *device, nova_device_trace **trace,
                                     nova_error *error);

/* Waits for the end of the run; the trace owns the arrays in *timeline. Call it after
 * nova_device_program_run has returned. Thread-safe. */
void nova_device_trace_read(nova_device_trace *trace, nova_device_timeline *timeline);

/* Waits for the run, too. NULL is fine. */
void nova_device_trace_destroy(nova_device_trace *trace);

#endif
