/* What the files of the extension module `nova._native` share.
 *
 * Limited API of Python 3.11 and the C API of numpy 2: one build serves every later version. */
#ifndef NOVA_PYTHON_NATIVE_H
#define NOVA_PYTHON_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdio.h> /* numpy's headers leave it to us */
#include <string.h>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL nova_numpy_api
#ifndef NOVA_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#include "nova.h"

_Static_assert(sizeof(npy_intp) == sizeof(int64_t), "shapes are shared with numpy");

typedef struct {
    PyObject_HEAD
    nova_image *image;
} ImageObject;

/* An argument or output, in the form that the call path compares with arrays. */
typedef struct {
    PyArray_Descr *descr; /* owned */
    const npy_intp *dims; /* a slice of the program's extents */
    size_t nbytes;
    int rank;
    int flags; /* NPY_ARRAY_* that an array must have */
    int alias; /* outputs: index of the donated argument, or -1 */
} Spec;

/* PEP 590. The limited API shows these names from 3.12 on; 3.11 has the same bit and signature. */
enum { HAVE_VECTORCALL = 1 << 11 };
typedef PyObject *(*Vectorcall)(PyObject *callable, PyObject *const *args, size_t nargsf,
                                PyObject *kwnames);

typedef struct {
    PyObject_HEAD
    Vectorcall vectorcall;
    PyObject *image;   /* keeps the code mapped */
    Py_buffer tables;  /* the block that the program uses in place; obj is NULL before it is set */
    int64_t *extents;  /* of all arguments and outputs */
    PyObject *convert; /* convert(index, object, is_output) -> ndarray; None: made when needed */
    /* make_convert(extents) -> convert, of a copy for other sizes; NULL for the others */
    PyObject *make_convert;
    uint64_t constants; /* the address of its constants in the image */
    PyObject *label;    /* its name in traces; a str or None */
    /* the names of its arguments and outputs in traces: two tuples of str, or None */
    PyObject *names;
    /* report(status, task, running, states, number, cause, tasks_for) -> exception, or None */
    PyObject *report;
    nova_program *program;
    nova_pool *pool; /* NULL when no workspace is needed */
    Spec *args;
    Spec *outputs;
    Py_ssize_t arg_count;
    Py_ssize_t output_count;
    Py_ssize_t donated_count;
    /* Data pointers of the last call whose donated arguments overlap no other array. Sizes are
     * fixed, so the same pointers need no second check. Guarded by the GIL. */
    void **disjoint;
    bool release_gil;
    uint32_t *order; /* in which its tasks run, on the calling thread; NULL: on the pool */
    uint32_t order_count;
    unsigned order_workers; /* threads that the ordered tasks were cut for */
    /* Of a program for a device, which has neither image nor pool; NULL for the others. */
    PyObject *device;
    nova_device_program *on_device;
    Py_ssize_t input_count; /* arguments before the params: where they are, results are */
} ProgramObject;

/* Inline runs of at most this many scalar operations keep the GIL: they are shorter than releasing
 * it. */
enum { KEEP_GIL_WORK = 200000 };

/* Calls with at most this many arguments and outputs need no heap. */
enum { STACK_SLOTS = 24 };

/* Where results are allocated. */
typedef enum { WITH_INPUTS, ON_HOST, ON_DEVICE } OutputLocation;

/* The arrays of one run; all references in it are owned. Must not be moved. */
typedef struct {
    PyObject **objects; /* argument objects as passed by the caller, then outputs as returned */
    PyObject **arrays;  /* the converted arrays; NULL if it is the object in `objects` itself */
    void **data;        /* base pointers of the arguments, then of the outputs */
    Py_ssize_t filled;  /* slots of `objects` and `arrays` that hold references or NULL */
    OutputLocation location; /* of a program for a device */
    /* the same: the stream that runs it, once all arguments are collected */
    void *stream;
    PyObject *stack_objects[STACK_SLOTS];
    PyObject *stack_arrays[STACK_SLOTS];
    void *stack_data[STACK_SLOTS];
} Call;

/* A submitted run in flight is in a list, which the GIL guards; see runs.h. */
typedef struct Run Run;
extern Run *runs_in_flight;

/* A call that runs now, on a thread that may have released the GIL; a list that the GIL guards. It
 * is on the stack of its thread. */
typedef struct Running Running;
extern Running *calls_running;

/* Set once by the module's initialization, and never changed. */
extern PyTypeObject *image_type;
extern PyTypeObject *program_type;
extern PyTypeObject *run_type;
extern PyTypeObject *stream_type;
extern PyType_Spec run_spec;
extern PyType_Spec stream_spec;
extern PyType_Spec file_spec;
extern PyType_Spec image_spec;
extern PyType_Spec program_spec;
extern PyType_Spec symbolic_spec;
extern PyType_Spec sized_programs_spec;

/* Converts a status to the matching Python exception, with the prefix `context`. */
void raise_status(nova_status status, const char *context);
/* The same for a run: nova.RunError, or nova.RunMemoryError if memory is exhausted. */
void raise_run_status(nova_status status, const char *context);

/* The exception for a function that has filled an error. */
void raise_error(const nova_error *error);

/* Raises FileError with the check and the text of an error. */
void raise_file_error(const nova_error *error);

/* Makes the class FileError; called once by the module's initialization. */
PyObject *make_file_error(void);

/* cpu_features(), limit_cpu() and allowed_imports() */
PyObject *module_cpu_features(PyObject *module, PyObject *unused);
PyObject *module_limit_cpu(PyObject *module, PyObject *level);
PyObject *module_allowed_imports(PyObject *module, PyObject *unused);

/* choose_image(images, major, minor); select_code.c */
PyObject *module_choose_image(PyObject *module, PyObject *args);

/* plan_tasks(block, workers, worth_ns, outputs, on_device=False): records of tasks, and their
 * successors. On a device, `workers` is the most tasks of a launch. */
PyObject *module_plan_tasks(PyObject *module, PyObject *args);

/* simulate(), measure_flops() and measure_copy() of the module; schedule_sim.c, peaks.c */
PyObject *module_simulate(PyObject *module, PyObject *args);
PyObject *module_measure_flops(PyObject *module, PyObject *args);
PyObject *module_measure_copy(PyObject *module, PyObject *args);

/* sim_run(), sim_lanes() and sim_check_tensor_map() of the module; gpusim.c */
PyObject *module_sim_check_tensor_map(PyObject *module, PyObject *args);
PyObject *module_sim_run(PyObject *module, PyObject *args);
PyObject *module_sim_lanes(PyObject *module, PyObject *unused);

/* Lists that get an item for every run, in a tuple; NULL without tracing. Guarded by the GIL. */
extern PyObject *trace_sinks;
PyObject *module_trace_into(PyObject *module, PyObject *sinks);

/* What `trace_sinks` is when a run starts: the run holds it until it is added. A new reference, or
 * NULL. */
PyObject *trace_sinks_now(void);

/* Records that each worker may leave in a run with these sinks; 0 for NULL. */
uint32_t trace_capacity(const ProgramObject *self, unsigned workers, PyObject *sinks);

/* Adds a run that has ended to its sinks, when it has records. A `start_ns` of 0: begin and end
 * are those of the records. With the GIL; an exception that is set stays. */
void trace_add(ProgramObject *self, PyObject *sinks, const nova_execution *execution,
               nova_policy policy, const nova_run_result *result, uint64_t start_ns,
               uint64_t end_ns);

/* Appends to every sink, and takes the reference to the item; one that fails is only a run less. */
void trace_append(ProgramObject *self, PyObject *sinks, PyObject *item);

/* Runs on devices, which add (program, capsule); device_trace.c. `begin` creates the trace of a run
 * that starts now, or NULL without sinks; `add` takes it when the run has been enqueued or has
 * ended. With the GIL. */
nova_device_trace *device_trace_begin(const ProgramObject *self, PyObject *sinks);
void device_trace_add(ProgramObject *self, PyObject *sinks, nova_device_trace *trace);
void device_traces_forget(void);
PyObject *module_read_device_trace(PyObject *module, PyObject *capsule);

/* program.set_order(order, workers): u32 numbers of all tasks for so many threads, as a simulation
 * starts them. */
PyObject *program_set_order(PyObject *self, PyObject *args);

/* Runs the tasks in that order on this thread, instead of nova_instance_run. Without the GIL. */
nova_status run_in_order(const ProgramObject *self, nova_execution *execution,
                         const nova_run_options *options, nova_run_result *result);

/* The device of a program that has one; device_call.c. */
nova_device *program_device(const ProgramObject *self);

/* Program.on_device(...): a program for a device; device_program.c. */
PyObject *program_on_device(PyObject *type, PyObject *args, PyObject *kwargs);

/* Methods of a program with a ring; device_ring.c */
PyObject *program_ring_push(PyObject *object, PyObject *arrays);
PyObject *program_ring_wait(PyObject *object, PyObject *args);
PyObject *program_ring_read(PyObject *object, PyObject *args);
PyObject *program_ring_is_running(PyObject *object, PyObject *unused);
PyObject *program_ring_end(PyObject *object, PyObject *unused);
PyObject *program_ring_release(PyObject *object, PyObject *unused);

/* Holds the block: in place if it is immutable and aligned, else a copy. */
bool hold_tables(ProgramObject *self, PyObject *object);

/* A program without its parts yet; NULL with an exception. */
ProgramObject *program_allocate(PyTypeObject *type, PyObject *convert, PyObject *report);

/* The parts of a call that differ for a device; device_call.c. `device_conforms` tells whether the
 * program accepts an object that is not a numpy array as it is, and `device_data` is its address.
 * `device_exchange` converts an array of another library, or returns NULL, with an exception only
 * when memory is exhausted; `device_view` is an array over memory at an address, which `owner`
 * keeps alive. `device_choose_stream`, once all arguments are collected, sets stream and output
 * location; `device_execute` runs. */
bool device_conforms(const ProgramObject *self, const Spec *spec, PyObject *object);
void *device_data(PyObject *object);
PyObject *device_exchange(const ProgramObject *self, const Spec *spec, PyObject *object);
PyObject *device_view(const ProgramObject *self, const Spec *spec, void *address, void *stream,
                      PyObject *owner);
bool device_choose_stream(ProgramObject *self, Call *call);
PyObject *device_output(ProgramObject *self, const Call *call, const Spec *spec);
bool device_execute(ProgramObject *self, Call *call);

/* The values of a run, one for each slot, and their order on the call's stream; *waits tells
 * whether the owner may change them as soon as the call returns. False with an exception. */
bool device_prepare(ProgramObject *self, Call *call, nova_device_value *values, bool *waits);

/* Reads "host", "device" or None; false with an exception. */
bool read_output_location(PyObject *object, OutputLocation *location);

/* The signature of a program while it is read; freed by `signature_free`. */
typedef struct {
    PyObject *args, *outputs;  /* tuples */
    nova_tensor_info *tensors; /* arguments, then outputs */
    int64_t *nbytes;           /* of the tensors, in the same order */
    size_t arg_count, output_count;
} Signature;

/* Fills *signature and the specs of `self` from rows (shape, dtype, donated) and (shape, dtype,
 * alias); false with an exception, when both have to be freed. */
bool read_signature(ProgramObject *self, PyObject *args, PyObject *outputs, Signature *signature);
void signature_free(Signature *signature);

/* The program's tables, if they fit its signature and constants of this size; false with an
 * exception. */
bool check_tables(const ProgramObject *self, const Signature *signature, uint64_t constants_size,
                  nova_tables *tables);

/* Binds the tables that the program holds to the code of its image; false with an exception. */
bool bind_tables(ProgramObject *self, const Signature *signature, uint64_t constants);

/* Sets the values of symbolic sizes; false with an exception. */
bool set_sizes(ProgramObject *self, const int64_t *values, size_t count);

/* A program like `like`, with the tables for the sizes `dims` of a call with the tuple `arrays`.
 * NULL, without an exception: it cannot be made, or does not fit the arrays. program_copy.c */
PyObject *program_copy(PyObject *like, const nova_symbolic *symbolic, const nova_tables *checked,
                       const int64_t *dims, PyObject *arrays, PyObject *make_convert);

/* The parts of a Symbolic, which own them; symbolic_type.c */
extern PyTypeObject *symbolic_type;
const nova_symbolic *symbolic_block(PyObject *symbolic);
const nova_tables *symbolic_checked(PyObject *symbolic);

/* program(*arrays, out=None) */
PyObject *program_vectorcall(PyObject *callable, PyObject *const *args, size_t nargsf,
                             PyObject *kwnames);

/* The same, for callers with a tuple and a dict. */
PyObject *program_call(PyObject *self, PyObject *args, PyObject *kwargs);

/* The same, for callers with an array of `count` borrowed references and a dict or NULL. */
PyObject *program_call_items(PyObject *self, PyObject *const *items, Py_ssize_t count,
                             PyObject *kwargs);

/* The borrowed items of a tuple or list, in `on_stack` if there are at most STACK_SLOTS; otherwise
 * the caller frees them with PyMem_Free. NULL with an exception. */
PyObject **call_items(PyObject *sequence, PyObject **on_stack, Py_ssize_t *count);

/* Collects and checks the arrays of a run: those of the tuple or list `arrays`, in order, and `out`
 * (NULL: all outputs are allocated, at `location`). False with an exception, and no call to end. */
bool call_collect(ProgramObject *self, Call *call, PyObject *arrays, PyObject *out,
                  OutputLocation location);

/* The location of results by outputs=, which only a device can choose; false with an exception. */
bool call_output_location(ProgramObject *self, PyObject *outputs, OutputLocation *location);

/* The result for the caller: one array or a tuple. The call still has to be ended. */
PyObject *call_result(ProgramObject *self, Call *call);
void call_end(Call *call);

/* Whether two runs may be in flight concurrently: neither writes an array that the other one uses.
 * The index of the first conflicting argument, or of arguments and outputs, of `call`; -1: none. */
Py_ssize_t call_conflict(ProgramObject *self, const Call *call, ProgramObject *other,
                         const Call *other_call);

/* Raises for slot `index` of a call that a submitted run uses. */
void raise_in_use(ProgramObject *self, Py_ssize_t index);

/* Whether a call conflicts with no run in flight, except runs of `stream` (NULL: none); false with
 * an exception. */
static inline bool is_anything_running(void)
{
    return runs_in_flight != NULL || calls_running != NULL;
}

bool check_in_flight(ProgramObject *self, const Call *call, PyObject *stream);

/* A new array for an output, with arbitrary contents; NULL with an exception. result_memory.c */
PyObject *result_array(const Spec *spec);
bool init_result_memory(void);
PyObject *module_configure_outputs(PyObject *module, PyObject *args);
PyObject *module_clear_outputs(PyObject *module, PyObject *unused);
PyObject *module_outputs_info(PyObject *module, PyObject *unused);

/* Seconds as nanoseconds, 0 for None; false with an exception. */
bool read_timeout(PyObject *object, uint64_t *timeout_ns);

/* Threads of a run that this thread starts; 0: those of the pool. */
unsigned settings_threads(void);

/* Threads and policy of a run that this thread starts; settings.c. */
void apply_settings(nova_execution *execution, nova_run_options *options);
void apply_host_settings(nova_program_options *options);
PyObject *module_configure(PyObject *module, PyObject *args);
PyObject *module_override(PyObject *module, PyObject *args);

/* The exception for a run that ended with `result`, as `report` makes it; `cause` is an exception
 * that stopped it, or NULL; `dropped` when it was that of a run before it in the stream. A new
 * reference; NULL with an exception. */
PyObject *make_run_error(ProgramObject *self, const nova_execution *execution,
                         const nova_run_result *result, PyObject *cause, bool dropped);

/* await_finished(), await_traced(), drain() and reap() of the module. */
PyObject *module_await_traced(PyObject *module, PyObject *sink);
PyObject *module_await_finished(PyObject *module, PyObject *unused);
PyObject *module_drain(PyObject *module, PyObject *unused);
PyObject *module_reap(PyObject *module, PyObject *unused);
bool init_runs(void);

/* program.submit(arrays, out=None, stream=None, timeout=None, outputs=None) */
PyObject *program_submit(PyObject *self, PyObject *args, PyObject *kwargs);

/* program.run(inputs, params=(), out=None, timeout=None) */
PyObject *program_run(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);

/* program.run_foreign(arguments, outputs[, stream]); foreign_call.c */
PyObject *program_run_foreign(PyObject *self, PyObject *const *args, Py_ssize_t nargs);

#endif
