/* Shared state of the device runtime; included by the files of this folder only. */
#ifndef NOVA_GPU_DEVICE_STATE_H
#define NOVA_GPU_DEVICE_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "nova/device.h"
#include "nova/program.h"

/* Size classes divide each power of two by four, from 256 bytes on. */
enum {
    NOVA_DEVICE_ALIGNMENT = 256,
    NOVA_DEVICE_CLASSES = 160,
    NOVA_IDLE_EVENTS = 32,
    NOVA_IDLE_TIMED = 1024
};

/* Two halves of pinned memory, through which large arrays go: while the device copies one, the CPU
 * fills the other. */
enum { NOVA_DOUBLE_BUFFER_HALVES = 2 };
#define NOVA_HALF_BYTES (UINT64_C(4) << 20)

typedef struct nova_double_buffer {
    char *memory[NOVA_DOUBLE_BUFFER_HALVES];
    void *copied[NOVA_DOUBLE_BUFFER_HALVES]; /* events: the device has finished with that half */
    bool is_busy[NOVA_DOUBLE_BUFFER_HALVES]; /* whether the event was recorded and not waited for */
    unsigned next_half;
    struct nova_double_buffer *next;
} nova_double_buffer;

/* A pooled stream, reused by executions. It lives as long as the device: a block of the memory pool
 * refers to the last stream that used it, even after the program of that stream is destroyed. */
typedef struct nova_pooled_stream {
    void *stream;
    struct nova_pooled_stream *next;
} nova_pooled_stream;

struct nova_device {
    nova_driver *driver;
    int ordinal;
    void *context;
    nova_device_info info;
    void *stream;                   /* of runs on arrays of Nova */
    void *in, *out;                 /* streams of large copies */
    nova_device_block *empty_block; /* the address of arrays without elements */
    atomic_bool is_lost;
    atomic_uint
        resident_count;    /* programs with a ring that run: they leave when the host ends them */
    pthread_mutex_t mutex; /* guards all below */
    char lost_reason[448];
    nova_device_block *idle[NOVA_DEVICE_CLASSES];
    nova_device_usage usage;
    void *events[NOVA_IDLE_EVENTS];
    unsigned event_count;
    void *timed[NOVA_IDLE_TIMED]; /* events of traces */
    unsigned timed_count;
    nova_double_buffer *double_buffers;
    nova_pooled_stream *idle_streams; /* idle ones */
};

/* --- device.c --------------------------------------------------------------------------------- */

/* Makes the device's context that of the calling thread until nova_device_leave; fails for one that
 * is lost. All functions below are called in between. */
nova_status nova_device_enter(nova_device *device, nova_error *error);
/* The same for new work, which would wait for a resident program: that is an error while there is
 * one. */
nova_status nova_device_enter_idle(nova_device *device, nova_error *error);
void nova_device_leave(nova_device *device);

/* NOVA_OK for 0, else the status of the driver's number, with the text "`action` failed". A fault
 * marks the device as lost. */
nova_status nova_device_check(nova_device *device, int result, const char *action,
                              nova_error *error);

/* nova_device_order, inside of enter and leave. */
nova_status nova_device_order_inside(nova_device *device, void *earlier, void *later,
                                     nova_error *error);

/* nova_device_mark and nova_device_await, inside of enter and leave. */
nova_status nova_device_mark_inside(nova_device *device, void *stream, void **event,
                                    nova_error *error);
nova_status nova_device_await_inside(nova_device *device, void *event, nova_error *error);

/* A stream for one execution. */
nova_status nova_pooled_stream_take(nova_device *device, nova_pooled_stream **pooled_stream,
                                    nova_error *error);
void nova_pooled_stream_give(nova_device *device, nova_pooled_stream *pooled_stream);

/* --- device_memory.c -------------------------------------------------------------------------- */

nova_status nova_device_take_inside(nova_device *device, uint64_t size, void *stream,
                                    nova_device_block **block, nova_error *error);
void nova_device_trim_inside(nova_device *device);

/* Pinned memory, with the same second try when there is none. */
nova_status nova_device_pin(nova_device *device, uint64_t size, void **memory, nova_error *error);

/* --- pinned_copy.c ---------------------------------------------------------------------------- */

nova_status nova_double_buffer_take(nova_device *device, nova_double_buffer **buffer,
                                    nova_error *error);
void nova_double_buffer_give(nova_device *device, nova_double_buffer *buffer);
void nova_double_buffer_destroy(nova_device *device, nova_double_buffer *buffer);

/* Copies through a double buffer of pinned memory. `upload` returns when `from` has been read and
 * all copies are enqueued, `download` when `to` has been written. */
nova_status nova_double_buffer_upload(nova_device *device, nova_double_buffer *buffer, uint64_t to,
                                      const void *from, uint64_t size, void *stream,
                                      nova_error *error);
nova_status nova_double_buffer_download(nova_device *device, nova_double_buffer *buffer, void *to,
                                        uint64_t from, uint64_t size, void *stream,
                                        nova_error *error);

/* --- loaded_code.c ---------------------------------------------------------------------------- */

/* A module of the driver and the constants of its kernels; freed with its last user. */
typedef struct nova_loaded_code {
    nova_device *device;
    void *module;
    nova_device_block *constants; /* NULL when there are none */
    atomic_uint users;
} nova_loaded_code;

/* Loads code and constants of a program; the caller is its first user. */
nova_status nova_loaded_code_create(nova_device *device, const nova_device_source *source,
                                    nova_loaded_code **code, nova_error *error);

/* Adds a user; returns the same code. Thread-safe. */
nova_loaded_code *nova_loaded_code_retain(nova_loaded_code *code);

/* Removes a user; NULL is fine. Thread-safe. */
void nova_loaded_code_release(nova_loaded_code *code);

/* --- device_program.c ------------------------------------------------------------------------- */

/* Consecutive launches that execute together: device kernels, as one graph; copies between device
 * and host, followed by an event; host kernels, on the task scheduler. A loop is a step of one
 * launch, and the steps up to `end` are its body; a control kernel is one, too, and runs regions
 * (device_control.c). */
typedef enum {
    NOVA_DEVICE_STEP,
    NOVA_COPY_STEP,
    NOVA_HOST_STEP,
    NOVA_LOOP_STEP,
    NOVA_CONTROL_STEP
} nova_step_type;

typedef struct {
    nova_step_type type;
    uint32_t first, count; /* of the program's launches that do anything */
    uint32_t number;       /* index among the steps of its type */
    uint32_t end;          /* of a loop: the first step after its body */
    bool has_graph;        /* whether its launches run as a graph */
} nova_device_step;

/* Launches with one set of pointers that the driver runs as a graph. */
typedef struct {
    void **graphs; /* one for each step of the device; NULL for a step of one launch */
    void **flows;  /* one for each control step, unless the host decides */
    /* of arguments, outputs and workspace: the pointers are computed from them */
    uint64_t *slots;
    uint64_t *pointers; /* one for each operand of the tables */
    uint64_t used;      /* number of the run that used it last */
} nova_device_graph;

enum { NOVA_DEVICE_GRAPHS = 4 };

/* Persistent execution: persistent/. */
typedef struct nova_persistent_plan nova_persistent_plan;
typedef struct nova_persistent_state nova_persistent_state;

/* What a run needs, reused from run to run. */
typedef struct nova_device_execution {
    struct nova_device_execution *next;
    nova_pooled_stream *pooled_stream; /* its stream, for runs without a stream */
    void *last;                        /* stream of its last run */
    nova_device_block *workspace;      /* NULL when none is needed */
    nova_device_block *staging;        /* copies of values that are on the host, or not aligned */
    char *pinned;                      /* as large, where that is not much */
    uint64_t pinned_size;
    void *copied; /* event: the device has read the pinned memory */
    bool pinned_is_busy;
    uint64_t runs;
    uint64_t *slots;
    uint64_t *pointers;
    /* offsets of arguments and outputs in `staging`, or UINT64_MAX */
    uint64_t *staging_offsets;
    nova_kernel_call *calls; /* one for each launch that does anything */
    /* of launches with tensor maps, and the address that each is encoded for */
    nova_encoded_map *maps;
    uint64_t *map_addresses;
    nova_device_range *ranges;         /* one for each operand, if the driver checks accesses */
    char *host_shadow;                 /* pinned: see nova_hybrid_layout; NULL when there is none */
    void **copies;                     /* events, one for each step of copies: they have ended */
    void *host_shadow_released;        /* event: the copies of the last run have ended */
    bool host_shadow_is_busy;          /* whether that was recorded and not waited for */
    nova_persistent_state *persistent; /* NULL: not used yet */
    unsigned graph_count;
    nova_device_graph graphs[NOVA_DEVICE_GRAPHS];
} nova_device_execution;

/* A host region: the kernels of a host step as a CPU program. Its workspace is the host shadow, its
 * arguments are constants. */
typedef struct {
    nova_program *program;
    nova_tables_header header; /* these are its tables */
    nova_buffer *buffers;
    nova_kernel_record *kernels;
    nova_launch_record *launches;
    uint32_t *operands;
    nova_tiling *tilings;
    nova_task *tasks;
    uint32_t *successors;
    void **constants; /* one for each operand; NULL unless it is a constant */
    /* for the copies up to this step of them; NOVA_NO_STEP: for none of the run */
    uint32_t waits;
} nova_host_region;

#define NOVA_NO_STEP UINT32_MAX

/* Of a hybrid program, which has host kernels between device kernels: the host kernels use one
 * block of host memory, the host shadow. */
typedef struct {
    nova_host_region *host_regions;
    uint32_t host_region_count, copy_count; /* steps of the host, and of copies */
    /* of launches that do anything: a copy of an argument as the caller gave it */
    bool *is_original;
    /* of arguments, then outputs, in the host shadow; UINT64_MAX: not used by host kernels */
    uint64_t *shadow_offsets;
    uint64_t workspace; /* its offset in the host shadow, with the same layout as on the device */
    uint64_t layout;    /* bytes of the host shadow that are assigned */
    uint64_t size;      /* of the host shadow, with the workspaces of host regions */
    /* a copy of those that host kernels use, which start at `first_constant` */
    char *constants;
    uint64_t first_constant;
} nova_hybrid_layout;

/* The edges of the graphs of all device steps: those of step i are [starts[i], starts[i + 1]), and
 * name launches of the step. `least_shared` is the shared memory that a block of each kernel gets
 * at least: see graph_edges.c. */
typedef struct {
    nova_graph_edge *items;
    uint32_t *starts;
    uint32_t *least_shared;
    uint32_t count, dependent_count, branch_count;
} nova_graph_edges;

/* The tables of a region of a loop or branch, and the functions of its kernels. */
typedef struct {
    nova_tables tables;
    void **functions;
    uint32_t *first_maps; /* of each kernel, in the tables */
    /* of each output: 0 for a carry that the region updates in place; NULL for the program */
    unsigned char *has_output;
    /* of each kernel: its number among the tasks of the persistent kernel; NULL without one */
    uint32_t *task_numbers;
} nova_device_region;

struct nova_device_program {
    nova_device *device;
    nova_tables tables;     /* pointers into the caller's block */
    uint32_t *first_maps;   /* of each kernel, in the tables */
    uint32_t map_count;     /* of all launches that do anything */
    uint32_t *task_numbers; /* as those of a region */
    nova_loaded_code *code;
    void **functions; /* one a kernel; code, for one of the host */
    int64_t *sizes;   /* the values of symbolic sizes */
    nova_hybrid_layout hybrid;
    uint32_t *launches; /* those that do anything */
    uint32_t launch_count;
    nova_device_step *steps;
    uint32_t step_count;
    uint32_t device_count; /* steps of the device */
    nova_graph_edges edges;
    nova_device_region *regions;
    uint32_t control_count;           /* control steps */
    nova_device_loops loops;          /* who decides them */
    bool has_dependent_flows;         /* whether launches of flows are dependent ones */
    nova_device_block *positions;     /* the numbers from 0 on; NULL: no loop needs them */
    nova_persistent_plan *persistent; /* NULL: launches run as a graph */
    bool has_graphs;                  /* whether any of them is worth a graph */
    bool has_single;                  /* whether any of them is not */
    int64_t *nbytes;                  /* of arguments, then outputs */
    int32_t *alias;                   /* of outputs: the donated argument, or -1 */
    bool *donated;                    /* of arguments */
    uint64_t repeats;                 /* of the program in a run */
    bool has_ring;                    /* whether the data of repetitions comes while it runs */
    size_t stacked_count; /* arguments with a part for each repetition: the first ones */
    size_t argument_count, output_count;
    pthread_mutex_t mutex; /* guards the two below */
    nova_device_execution *idle;
    nova_device_counts counts;
};

/* Finds the functions of a block of tables in the module of the program, and sets the first tensor
 * map of each kernel; device_program.c. */
nova_status nova_device_find_kernels(const nova_device_program *program,
                                     const nova_device_region *region, nova_error *error);

nova_status nova_device_execution_take(nova_device_program *program,
                                       nova_device_execution **execution, nova_error *error);
void nova_device_execution_give(nova_device_program *program, nova_device_execution *execution,
                                const nova_device_counts *counts);

/* Destroys its driver objects and frees its arrays; device_launch.c. */
void nova_graph_free(const nova_device_program *program, nova_device_graph *graph);

/* --- persistent/ ------------------------------------------------------------------------------ */

/* Whether a program has a persistent kernel. */
bool nova_persistent_has_kernel(const nova_tables *tables);

/* Plans the tasks of a program that has a persistent kernel; steps and regions must be set. */
nova_status nova_persistent_prepare(nova_device_program *program, nova_error *error);

/* The tables of the program itself as a region. */
nova_device_region nova_device_main_region(const nova_device_program *program);

/* Both take NULL. */
void nova_persistent_free(nova_persistent_plan *plan);
void nova_persistent_free_state(nova_device *device, nova_persistent_state *state);

/* --- graph_edges.c ---------------------------------------------------------------------------- */

/* Finds the edges of all graphs; the steps must be set. */
nova_status nova_graph_edges_prepare(nova_device_program *program, nova_device_overlap overlap,
                                     nova_error *error);
void nova_graph_edges_free(nova_graph_edges *edges);

/* Whether outputs in the tables are the memory of donated arguments: the task table does not say
 * so. */
bool nova_graph_has_aliases(const nova_device_program *program);

/* --- host_shadow.c: host copies of the values that host kernels use -------------------------- */

/* Assigns offsets to all operands of host kernels and copies. */
nova_status nova_host_shadow_lay_out(nova_device_program *program, const nova_device_source *source,
                                     nova_error *error);

/* Where an argument or output is counted: an output that is a donated argument is that. */
size_t nova_host_shadow_slot(const nova_device_program *program, const nova_buffer *buffer);

/* The offset of a buffer in the host shadow. Constants have an address instead: */
uint64_t nova_host_shadow_offset(const nova_device_program *program, const nova_buffer *buffer);
void *nova_host_shadow_constant(const nova_device_program *program, const nova_buffer *buffer);

/* The host shadow of an execution and its events; no effect if the program is not hybrid. */
nova_status nova_host_shadow_create(const nova_device_program *program,
                                    nova_device_execution *execution, nova_error *error);
void nova_host_shadow_free(nova_device_program *program, nova_device_execution *execution);

/* --- host_region.c ---------------------------------------------------------------------------- */

/* Creates the program of a host step, from the code in `image`. The region owns its arrays. */
nova_status nova_host_region_create(const nova_device_program *program,
                                    const nova_device_step *step, const nova_image *image,
                                    nova_host_region *region, nova_error *error);
void nova_host_region_free(nova_host_region *region);

/* --- device_steps.c --------------------------------------------------------------------------- */

/* Groups the launches into steps, and creates the host regions; `launches` must be set. */
nova_status nova_steps_prepare(nova_device_program *program, const nova_device_source *source,
                               nova_error *error);
void nova_steps_free(nova_device_program *program);

static inline const nova_launch_record *nova_step_launch(const nova_device_program *program,
                                                         const nova_device_step *step,
                                                         uint32_t index)
{
    return &program->tables.launches[program->launches[step->first + index]];
}

static inline const nova_buffer *nova_operand(const nova_device_program *program,
                                              const nova_launch_record *launch, uint32_t index)
{
    return &program->tables.buffers[program->tables.operands[launch->first_operand + index]];
}

/* Bytes of the slots of an execution: arguments, outputs and workspace. */
static inline size_t nova_slots_size(const nova_device_program *program)
{
    return (program->argument_count + program->output_count + 1) * sizeof(uint64_t);
}

static inline uint32_t nova_launch_core(const nova_device_program *program,
                                        const nova_launch_record *launch)
{
    return program->tables.kernels[launch->kernel].core & NOVA_CORE_MASK;
}

#endif
