/* Calling a program: its keywords read, the call collected, run, and its result returned. */
#include "python/calls/calls.h"

static bool call_execute(ProgramObject *self, Call *call, uint64_t timeout_ns)
{
    if (self->device == NULL)
        return host_execute(self, call, timeout_ns);
    if (timeout_ns == 0)
        return device_execute(self, call);
    PyErr_SetString(PyExc_TypeError, "a run on a device with a timeout has to be submitted");
    return false;
}

/* Runs a call whose arguments are all collected, and returns its result. Always ends the call. */
static PyObject *call_finish(ProgramObject *self, Call *call, PyObject *out, uint64_t timeout_ns)
{
    PyObject *result = NULL;
    if (call_complete(self, call, out) &&
        (!is_anything_running() || check_in_flight(self, call, NULL))) {
        Running running;
        running_begin(&running, self, call);
        bool ok = call_execute(self, call, timeout_ns);
        running_end(&running);
        if (ok)
            result = call_result(self, call);
    }
    call_end(call);
    return result;
}

static void call_raise_unknown_keyword(const char *function, PyObject *name)
{
    PyErr_Format(PyExc_TypeError, "%s() has no keyword %R", function, name);
}

/* A keyword of a call: out=, or, on a device, outputs=. */
static bool call_read_keyword(const ProgramObject *self, PyObject *name, PyObject *value,
                              PyObject **out, OutputLocation *location)
{
    if (PyUnicode_CompareWithASCIIString(name, "out") == 0) {
        *out = value;
        return true;
    }
    if (self->device != NULL && PyUnicode_CompareWithASCIIString(name, "outputs") == 0)
        return read_output_location(value, location);
    call_raise_unknown_keyword("program", name);
    return false;
}

/* `out` is NULL or borrowed. */
static PyObject *call_positional(ProgramObject *self, PyObject *const *args, Py_ssize_t nargs,
                                 PyObject *out, OutputLocation location)
{
    if (nargs != self->arg_count) {
        ask_to_raise(self, -1, nargs, false, "wrong number of arguments");
        return NULL;
    }
    Call call;
    if (!call_begin(&call, self->arg_count + self->output_count))
        return NULL;
    call.location = location;
    for (Py_ssize_t i = 0; i < nargs; i++) {
        if (!add_argument(self, &call, args[i])) {
            call_end(&call);
            return NULL;
        }
    }
    return call_finish(self, &call, out != Py_None ? out : NULL, 0);
}

PyObject *program_vectorcall(PyObject *callable, PyObject *const *args, size_t nargsf,
                             PyObject *kwnames)
{
    /* The top bit allows the callee to overwrite args[-1], which is not used here. */
    Py_ssize_t nargs = (Py_ssize_t)(nargsf & (SIZE_MAX >> 1));
    PyObject *out = NULL;
    OutputLocation location = WITH_INPUTS;
    ProgramObject *self = (ProgramObject *)callable;
    Py_ssize_t count = kwnames != NULL ? PyTuple_Size(kwnames) : 0;
    for (Py_ssize_t i = 0; i < count; i++)
        if (!call_read_keyword(self, PyTuple_GetItem(kwnames, i), args[nargs + i], &out, &location))
            return NULL;
    return call_positional(self, args, nargs, out, location);
}

PyObject *program_call_items(PyObject *self, PyObject *const *items, Py_ssize_t count,
                             PyObject *kwargs)
{
    PyObject *key, *value, *out = NULL;
    OutputLocation location = WITH_INPUTS;
    Py_ssize_t position = 0;
    while (kwargs != NULL && PyDict_Next(kwargs, &position, &key, &value))
        if (!call_read_keyword((ProgramObject *)self, key, value, &out, &location))
            return NULL;
    return call_positional((ProgramObject *)self, items, count, out, location);
}

PyObject **call_items(PyObject *sequence, PyObject **on_stack, Py_ssize_t *count)
{
    bool is_tuple = PyTuple_Check(sequence);
    *count = is_tuple ? PyTuple_Size(sequence) : PyList_Size(sequence);
    PyObject **items = on_stack;
    if (*count > STACK_SLOTS)
        items = PyMem_Malloc((size_t)*count * sizeof *items);
    if (items == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < *count; i++)
        items[i] = is_tuple ? PyTuple_GetItem(sequence, i) : PyList_GetItem(sequence, i);
    return items;
}

PyObject *program_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    Py_ssize_t count;
    PyObject *on_stack[STACK_SLOTS];
    PyObject **items = call_items(args, on_stack, &count);
    if (items == NULL)
        return NULL;
    PyObject *result = program_call_items(self, items, count, kwargs);
    if (items != on_stack)
        PyMem_Free(items);
    return result;
}

static Py_ssize_t call_count_items(ProgramObject *self, PyObject *items, const char *name)
{
    if (items == NULL)
        return 0;
    if (PyList_Check(items))
        return PyList_Size(items);
    if (PyTuple_Check(items))
        return PyTuple_Size(items);
    PyObject *result = ask(self, -3, items, false);
    if (result == NULL)
        return -1;
    Py_DECREF(result);
    PyErr_Format(PyExc_TypeError, "%s must be a list or tuple of arrays, not %R", name,
                 (PyObject *)Py_TYPE(items));
    return -1;
}

PyObject *program_run(PyObject *object, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"inputs", "params", "out", "timeout", "outputs"};
    enum { MOST = sizeof names / sizeof *names, MOST_POSITIONAL = 4 };
    ProgramObject *self = (ProgramObject *)object;
    PyObject *values[MOST] = {NULL};
    if (nargs > MOST_POSITIONAL) {
        PyErr_Format(PyExc_TypeError, "run() takes at most %d arguments (%zd given)",
                     MOST_POSITIONAL, nargs);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < nargs; i++)
        values[i] = args[i];
    Py_ssize_t keyword_count = kwnames != NULL ? PyTuple_Size(kwnames) : 0;
    for (Py_ssize_t i = 0; i < keyword_count; i++) {
        PyObject *name = PyTuple_GetItem(kwnames, i);
        int k = 0;
        while (k < MOST && PyUnicode_CompareWithASCIIString(name, names[k]) != 0)
            k++;
        if (k == MOST) {
            call_raise_unknown_keyword("run", name);
            return NULL;
        }
        if (values[k] != NULL) {
            PyErr_Format(PyExc_TypeError, "run() got %s twice", names[k]);
            return NULL;
        }
        values[k] = args[nargs + i];
    }
    if (values[0] == NULL) {
        PyErr_SetString(PyExc_TypeError, "run() needs inputs: a list or tuple of arrays");
        return NULL;
    }
    PyObject *out = values[2] != Py_None ? values[2] : NULL;
    uint64_t timeout_ns = 0;
    if (values[3] != NULL && !read_timeout(values[3], &timeout_ns))
        return NULL;
    OutputLocation location = WITH_INPUTS;
    if (values[4] != NULL && !call_output_location(self, values[4], &location))
        return NULL;
    Py_ssize_t input_count = call_count_items(self, values[0], "inputs");
    Py_ssize_t param_count = input_count < 0 ? -1 : call_count_items(self, values[1], "params");
    if (param_count < 0)
        return NULL;
    if (input_count + param_count != self->arg_count) {
        ask_to_raise(self, -1, input_count + param_count, false, "wrong number of arguments");
        return NULL;
    }
    Call call;
    if (!call_begin(&call, self->arg_count + self->output_count))
        return NULL;
    call.location = location;
    if (!add_sequence(self, &call, values[0], input_count) ||
        (param_count > 0 && !add_sequence(self, &call, values[1], param_count))) {
        call_end(&call);
        return NULL;
    }
    return call_finish(self, &call, out, timeout_ns);
}
