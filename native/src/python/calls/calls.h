/* The arrays of a call; shared by the files that collect, check and run them.
 *
 * Arrays that conform are recognized by comparing a few words. Others are passed to the program's
 * `convert`, which returns an array that conforms or raises; its result is checked again. */
#ifndef NOVA_PYTHON_CALLS_CALLS_H
#define NOVA_PYTHON_CALLS_CALLS_H

#include "python/native.h"

/* A run that the calling thread works in, while it is in there without the GIL. */
typedef struct {
    PyThreadState *thread;
} Caller;

/* Lets Python handle signals, such as Ctrl-C; the exception stays set and stops the run. A
 * nova_poll, whose `owner` is the caller; without the GIL. host_call.c */
nova_status caller_poll(void *owner);

static inline bool conforms(const ProgramObject *self, const Spec *spec, PyObject *object)
{
    if (!PyArray_CheckExact(object))
        return self->device != NULL && device_conforms(self, spec, object);
    PyArrayObject *array = (PyArrayObject *)object;
    if ((PyArray_FLAGS(array) & spec->flags) != spec->flags || PyArray_NDIM(array) != spec->rank)
        return false;
    const npy_intp *dims = PyArray_DIMS(array);
    for (int i = 0; i < spec->rank; i++)
        if (dims[i] != spec->dims[i])
            return false;
    return PyArray_DESCR(array) == spec->descr ||
           PyArray_EquivTypes(PyArray_DESCR(array), spec->descr);
}

/* Kernels never see NULL, not even for an array without elements. */
static inline void *data_of(PyObject *array)
{
    static _Alignas(64) char empty[64];
    if (!PyArray_CheckExact(array))
        return device_data(array);
    void *data = PyArray_DATA((PyArrayObject *)array);
    return data != NULL ? data : empty;
}

static inline bool overlap(const void *a, size_t a_size, const void *b, size_t b_size)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return a_size != 0 && b_size != 0 && x < y + b_size && y < x + a_size;
}

struct Running {
    ProgramObject *program;
    const Call *call;
    Running *before, *after;
};

/* Around the run of a call: concurrent calls that would write its arrays, or read arrays that it
 * writes, are refused. run_conflict.c */
void running_begin(Running *running, ProgramObject *program, const Call *call);
void running_end(Running *running);

/* Asks `convert`; a new reference, or NULL with an exception. call_arguments.c */
PyObject *ask(ProgramObject *self, Py_ssize_t index, PyObject *object, bool is_output);

/* `convert` is called to raise; if it does not, a plain ValueError has the text `otherwise`. */
void ask_to_raise(ProgramObject *self, Py_ssize_t index, Py_ssize_t value, bool is_output,
                  const char *otherwise);

/* Memory for the slots of a call, which `call_end` frees; false with an exception. */
bool call_begin(Call *call, Py_ssize_t slots);

/* Adds an argument: takes a reference, as a list may change while `convert` or a kernel runs. */
bool add_argument(ProgramObject *self, Call *call, PyObject *object);

/* Adds the items of a list or tuple, which `convert` may shorten concurrently. */
bool add_sequence(ProgramObject *self, Call *call, PyObject *items, Py_ssize_t count);

/* A donated argument is written while others are read: it may overlap no other argument. False
 * with an exception. */
bool check_donated(ProgramObject *self, Call *call);

/* All arguments are in `call`: checks them together, and adds the outputs. */
bool call_complete(ProgramObject *self, Call *call, PyObject *out);

/* Adds the outputs: those of `out` (NULL: none), and new ones for the others. call_outputs.c */
bool add_outputs(ProgramObject *self, Call *call, PyObject *out);

/* Runs a call on this machine's cores; false with an exception. host_call.c */
bool host_execute(ProgramObject *self, Call *call, uint64_t timeout_ns);

#endif
