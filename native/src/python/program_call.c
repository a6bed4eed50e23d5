/* The call path of Program: check the arguments, make the outputs, run, return.
 *
 * Arrays that conform are recognised by comparing a few words. Whatever does not conform goes to
 * the program's `convert`, which returns an array that does or raises; its result is checked again.
 */
#include "native.h"

static bool call_begin(Call *call, Py_ssize_t slots)
{
    call->filled = 0;
    call->place = WITH_INPUTS;
    if (slots <= STACK_SLOTS) {
        call->given = call->stack_given;
        call->arrays = call->stack_arrays;
        call->data = call->stack_data;
        return true;
    }
    call->given = PyMem_Malloc(3 * (size_t)slots * sizeof(void *));
    if (call->given == NULL) {
        PyErr_NoMemory();
        return false;
    }
    call->arrays = call->given + slots;
    call->data = (void **)(call->arrays + slots);
    return true;
}

void call_end(Call *call)
{
    for (Py_ssize_t i = 0; i < call->filled; i++) {
        Py_XDECREF(call->given[i]);
        Py_XDECREF(call->arrays[i]);
    }
    if (call->given != call->stack_given)
        PyMem_Free(call->given);
}

/* --- checks ---------------------------------------------------------------------------------- */

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
    static _Alignas(64) char nothing[64];
    if (!PyArray_CheckExact(array))
        return device_data(array);
    void *data = PyArray_DATA((PyArrayObject *)array);
    return data != NULL ? data : nothing;
}

static inline bool overlap(const void *a, size_t a_size, const void *b, size_t b_size)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return a_size != 0 && b_size != 0 && x < y + b_size && y < x + a_size;
}

/* Asks `convert`; a new reference, or NULL with an exception. */
static PyObject *ask(ProgramObject *self, Py_ssize_t index, PyObject *object, bool is_output)
{
    return PyObject_CallFunction(self->convert, "nOO", index, object,
                                 is_output ? Py_True : Py_False);
}

/* `convert` is asked to raise; when it does not, a plain ValueError says `otherwise`. */
static void ask_to_raise(ProgramObject *self, Py_ssize_t index, Py_ssize_t value, bool is_output,
                         const char *otherwise)
{
    PyObject *number = PyLong_FromSsize_t(value);
    if (number == NULL)
        return;
    PyObject *result = ask(self, index, number, is_output);
    Py_DECREF(number);
    if (result == NULL)
        return;
    Py_DECREF(result);
    PyErr_SetString(PyExc_ValueError, otherwise);
}

/* --- arguments ------------------------------------------------------------------------------- */

static bool convert_argument(ProgramObject *self, Call *call, Py_ssize_t index)
{
    PyObject *array = NULL;
    if (self->device != NULL)
        array = device_exchange(self, &self->args[index], call->given[index]);
    if (array == NULL && !PyErr_Occurred())
        array = ask(self, index, call->given[index], false);
    if (array == NULL)
        return false;
    call->arrays[index] = array;
    if (conforms(self, &self->args[index], array))
        return true;
    PyErr_Format(PyExc_ValueError, "argument %zd: the converted object is no array of the "
                                   "compiled shape, type and layout", index);
    return false;
}

/* Takes a reference to `object`: a list may change while `convert` or a kernel runs. */
static inline bool add_argument(ProgramObject *self, Call *call, PyObject *object)
{
    Py_ssize_t index = call->filled++;
    Py_INCREF(object);
    call->given[index] = object;
    call->arrays[index] = NULL;
    if (!conforms(self, &self->args[index], object)) {
        if (!convert_argument(self, call, index))
            return false;
        object = call->arrays[index];
    }
    call->data[index] = data_of(object);
    return true;
}

/* Adds what is in a list or tuple, which `convert` may shorten meanwhile. */
static bool add_sequence(ProgramObject *self, Call *call, PyObject *items, Py_ssize_t count)
{
    bool is_list = PyList_Check(items);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = is_list ? PyList_GetItem(items, i) : PyTuple_GetItem(items, i);
        if (item == NULL || !add_argument(self, call, item))
            return false;
    }
    return true;
}

/* A donated argument is written while others are read: its bytes must be its own. */
static bool check_donated(ProgramObject *self, Call *call)
{
    size_t bytes = (size_t)self->arg_count * sizeof(void *);
    if (memcmp(self->disjoint, call->data, bytes) == 0)
        return true;
    for (Py_ssize_t i = 0; i < self->arg_count; i++) {
        if (!(self->args[i].flags & NPY_ARRAY_WRITEABLE))
            continue;
        for (Py_ssize_t k = 0; k < self->arg_count; k++) {
            if (k != i && overlap(call->data[i], self->args[i].nbytes, call->data[k],
                                  self->args[k].nbytes)) {
                ask_to_raise(self, -2, i, false, "a donated argument overlaps another argument");
                return false;
            }
        }
    }
    memcpy(self->disjoint, call->data, bytes);
    return true;
}

/* --- outputs --------------------------------------------------------------------------------- */

/* Whether the bytes of output `index` are shared with an argument or an output before it. */
static bool is_shared(ProgramObject *self, Call *call, Py_ssize_t index, const void *data)
{
    size_t nbytes = self->outputs[index].nbytes;
    for (Py_ssize_t i = 0; i < self->arg_count; i++)
        if (overlap(data, nbytes, call->data[i], self->args[i].nbytes))
            return true;
    for (Py_ssize_t i = 0; i < index; i++)
        if (overlap(data, nbytes, call->data[self->arg_count + i], self->outputs[i].nbytes))
            return true;
    return false;
}

static bool use_given_output(ProgramObject *self, Call *call, Py_ssize_t index, PyObject *object)
{
    const Spec *spec = &self->outputs[index];
    Py_ssize_t slot = call->filled++;
    Py_INCREF(object);
    call->given[slot] = object;
    call->arrays[slot] = NULL;
    if (conforms(self, spec, object) && !is_shared(self, call, index, data_of(object))) {
        call->data[slot] = data_of(object);
        return true;
    }
    PyObject *array = ask(self, index, object, true);
    if (array == NULL)
        return false;
    call->arrays[slot] = array;
    if (!conforms(self, spec, array)) {
        PyErr_Format(PyExc_ValueError, "output %zd: the object given as out is no writable array "
                                       "of the compiled shape, type and layout", index);
        return false;
    }
    call->data[slot] = data_of(array);
    if (is_shared(self, call, index, call->data[slot])) {
        PyObject *again = ask(self, index, array, true); /* to raise for the array itself */
        if (again == NULL)
            return false;
        Py_DECREF(again);
        PyErr_Format(PyExc_ValueError, "output %zd: the array given as out shares memory with an "
                                       "argument or another output", index);
        return false;
    }
    return true;
}

/* The output is the donated argument itself, so `out` can only name that very object. */
static bool use_donated(ProgramObject *self, Call *call, Py_ssize_t index, PyObject *out)
{
    int alias = self->outputs[index].alias;
    if (out != NULL && out != call->given[alias]) {
        PyObject *array = ask(self, index, out, true);
        if (array == NULL)
            return false;
        Py_DECREF(array);
        PyErr_Format(PyExc_ValueError, "output %zd is the donated argument %d: out must be that "
                                       "object or None", index, alias);
        return false;
    }
    Py_ssize_t slot = call->filled++;
    Py_INCREF(call->given[alias]);
    call->given[slot] = call->given[alias];
    call->arrays[slot] = NULL;
    call->data[slot] = call->data[alias];
    return true;
}

static inline bool allocate_output(ProgramObject *self, Call *call, Py_ssize_t index)
{
    PyObject *array = self->device == NULL ? make_output(&self->outputs[index])
                                           : device_output(self, call, &self->outputs[index]);
    if (array == NULL)
        return false;
    Py_ssize_t slot = call->filled++;
    call->given[slot] = array;
    call->arrays[slot] = NULL;
    call->data[slot] = data_of(array);
    return true;
}

/* The object for output `index`, borrowed: NULL when Nova is to allocate it. */
static PyObject *pick_output(PyObject *out, Py_ssize_t index)
{
    PyObject *item = out;
    if (out != NULL && PyList_Check(out))
        item = PyList_GetItem(out, index);
    else if (out != NULL && PyTuple_Check(out))
        item = PyTuple_GetItem(out, index);
    return item == Py_None ? NULL : item;
}

static bool add_outputs(ProgramObject *self, Call *call, PyObject *out)
{
    if (out != NULL) {
        Py_ssize_t count = 1;
        if (PyList_Check(out) || PyTuple_Check(out))
            count = PyObject_Size(out);
        if (count != self->output_count) {
            ask_to_raise(self, -1, count, true, "wrong number of out arrays");
            return false;
        }
    }
    for (Py_ssize_t i = 0; i < self->output_count; i++) {
        PyObject *item = pick_output(out, i);
        if (item == NULL && PyErr_Occurred())
            return false; /* `convert` shortened the list */
        bool ok = self->outputs[i].alias >= 0 ? use_donated(self, call, i, item)
                  : item != NULL              ? use_given_output(self, call, i, item)
                                              : allocate_output(self, call, i);
        if (!ok)
            return false;
    }
    return true;
}

/* --- running --------------------------------------------------------------------------------- */

/* A run that the calling thread works in, while it is in there without the GIL. */
typedef struct {
    PyThreadState *thread;
} Caller;

/* Lets Python look at signals, Ctrl-C among them; the exception stays set and stops the run. */
static nova_status poll_signals(void *context)
{
    Caller *caller = ((nova_execution *)context)->owner;
    PyEval_RestoreThread(caller->thread);
    int result = PyErr_CheckSignals();
    caller->thread = PyEval_SaveThread();
    return result < 0 ? NOVA_CANCELLED : NOVA_OK;
}

/* Runs as tasks, which can be stopped between them. */
static bool execute_tasks(ProgramObject *self, Call *call, void *workspace, uint64_t timeout_ns)
{
    nova_execution *execution;
    nova_status status = nova_execution_take(self->program, trace_capacity(self), &execution);
    if (status != NOVA_OK) {
        raise_status(status, "the run cannot be prepared");
        return false;
    }
    Caller caller;
    nova_run_options options = {.timeout_ns = timeout_ns, .poll = poll_signals};
    nova_run_result result = {.task = NOVA_NO_TASK};
    execution->owner = &caller;
    apply_settings(execution, &options);
    status = nova_execution_bind(execution, call->data, call->data + self->arg_count, workspace);
    if (status == NOVA_OK) {
        options.trace = execution->trace_capacity > 0 && self->order == NULL;
        uint64_t start_ns = options.trace ? nova_clock_ns() : 0;
        caller.thread = PyEval_SaveThread();
        status = self->order != NULL ? run_in_order(self, execution, &options, &result)
                                     : nova_instance_run(execution->instance, nova_execution_task,
                                                         execution, &options, &result);
        PyEval_RestoreThread(caller.thread);
        if (options.trace)
            trace_add(self, execution, options.policy, &result, start_ns, nova_clock_ns());
    }
    result.status = status;
    if (status != NOVA_OK) {
        PyObject *type, *cause, *traceback;
        PyErr_Fetch(&type, &cause, &traceback); /* what a signal handler raised, or nothing */
        PyErr_NormalizeException(&type, &cause, &traceback);
        PyObject *error = make_run_error(self, execution, &result, cause, false);
        if (error != NULL) {
            PyErr_SetObject((PyObject *)Py_TYPE(error), error);
            Py_DECREF(error);
        }
        Py_XDECREF(type);
        Py_XDECREF(cause);
        Py_XDECREF(traceback);
    }
    nova_execution_give(execution);
    return status == NOVA_OK;
}

static bool execute(ProgramObject *self, Call *call, uint64_t timeout_ns)
{
    if (self->device != NULL) {
        if (timeout_ns == 0)
            return device_execute(self, call);
        ask_to_raise(self, -5, 0, false, "a run on a device cannot be stopped");
        return false;
    }
    void *workspace = NULL;
    if (self->pool != NULL) {
        nova_status status = nova_pool_take(self->pool, &workspace);
        if (status != NOVA_OK) {
            raise_status(status, "there is no workspace for the run");
            return false;
        }
    }
    bool ok = true;
    /* Runs that are watched are tasks, too. */
    if (timeout_ns != 0 || !nova_program_is_inline(self->program) || trace_sinks != NULL ||
        self->order != NULL) {
        ok = execute_tasks(self, call, workspace, timeout_ns);
    } else {
        nova_status status;
        void **outputs = call->data + self->arg_count;
        if (self->release_gil) {
            Py_BEGIN_ALLOW_THREADS
            status = nova_program_run(self->program, call->data, outputs, workspace, NULL);
            Py_END_ALLOW_THREADS
        } else {
            status = nova_program_run(self->program, call->data, outputs, workspace, NULL);
        }
        if (status != NOVA_OK) {
            raise_status(status, "the program did not run");
            ok = false;
        }
    }
    if (self->pool != NULL)
        nova_pool_give(self->pool, workspace);
    return ok;
}

PyObject *call_result(ProgramObject *self, Call *call)
{
    PyObject **outputs = call->given + self->arg_count;
    if (self->output_count == 1) {
        PyObject *result = outputs[0];
        outputs[0] = NULL;
        return result;
    }
    PyObject *result = PyTuple_New(self->output_count);
    for (Py_ssize_t i = 0; result != NULL && i < self->output_count; i++) {
        PyTuple_SetItem(result, i, outputs[i]); /* steals */
        outputs[i] = NULL;
    }
    return result;
}

/* All arguments are in `call`: checks them together, and adds the outputs. */
static inline bool complete(ProgramObject *self, Call *call, PyObject *out)
{
    return (self->donated_count == 0 || check_donated(self, call)) &&
           (self->device == NULL || device_place(self, call)) && add_outputs(self, call, out);
}

/* All arguments are in `call`: the rest of the way. Always ends the call. */
static PyObject *finish(ProgramObject *self, Call *call, PyObject *out, uint64_t timeout_ns)
{
    PyObject *result = NULL;
    if (complete(self, call, out) &&
        (runs_in_flight == NULL || check_in_flight(self, call, NULL)) &&
        execute(self, call, timeout_ns))
        result = call_result(self, call);
    call_end(call);
    return result;
}

/* --- runs in flight -------------------------------------------------------------------------- */

/* Whether a run writes slot `i`. */
static bool is_written(const ProgramObject *self, Py_ssize_t i)
{
    return i >= self->arg_count || (self->args[i].flags & NPY_ARRAY_WRITEABLE) != 0;
}

static size_t slot_size(const ProgramObject *self, Py_ssize_t i)
{
    return i < self->arg_count ? self->args[i].nbytes : self->outputs[i - self->arg_count].nbytes;
}

Py_ssize_t call_conflict(ProgramObject *self, const Call *call, ProgramObject *other,
                         const Call *other_call)
{
    Py_ssize_t count = self->arg_count + self->output_count;
    Py_ssize_t other_count = other->arg_count + other->output_count;
    for (Py_ssize_t i = 0; i < count; i++)
        for (Py_ssize_t k = 0; k < other_count; k++)
            if ((is_written(self, i) || is_written(other, k)) &&
                overlap(call->data[i], slot_size(self, i), other_call->data[k],
                        slot_size(other, k)))
                return i;
    return -1;
}

void raise_in_use(ProgramObject *self, Py_ssize_t index)
{
    bool is_output = index >= self->arg_count;
    ask_to_raise(self, -4, is_output ? index - self->arg_count : index, is_output,
                 "an array is in use by a run in flight");
}

bool call_collect(ProgramObject *self, Call *call, PyObject *arrays, PyObject *out)
{
    Py_ssize_t count = PyTuple_Check(arrays) ? PyTuple_Size(arrays) : PyList_Size(arrays);
    if (count != self->arg_count) {
        if (count >= 0)
            ask_to_raise(self, -1, count, false, "wrong number of arguments");
        return false;
    }
    if (!call_begin(call, self->arg_count + self->output_count))
        return false;
    if (add_sequence(self, call, arrays, count) && complete(self, call, out))
        return true;
    call_end(call);
    return false;
}

/* --- calling --------------------------------------------------------------------------------- */

static void raise_unknown_keyword(const char *function, PyObject *name)
{
    PyErr_Format(PyExc_TypeError, "%s() has no keyword %R", function, name);
}

/* A keyword of a call: where results go, or, on a device, where they are made. */
static bool read_keyword(const ProgramObject *self, PyObject *name, PyObject *value, PyObject **out,
                         Place *place)
{
    if (PyUnicode_CompareWithASCIIString(name, "out") == 0) {
        *out = value;
        return true;
    }
    if (self->device != NULL && PyUnicode_CompareWithASCIIString(name, "outputs") == 0)
        return read_place(value, place);
    raise_unknown_keyword("program", name);
    return false;
}

/* `out` is NULL or borrowed. */
static PyObject *call_positional(ProgramObject *self, PyObject *const *args, Py_ssize_t nargs,
                                 PyObject *out, Place place)
{
    if (nargs != self->arg_count) {
        ask_to_raise(self, -1, nargs, false, "wrong number of arguments");
        return NULL;
    }
    Call call;
    if (!call_begin(&call, self->arg_count + self->output_count))
        return NULL;
    call.place = place;
    for (Py_ssize_t i = 0; i < nargs; i++) {
        if (!add_argument(self, &call, args[i])) {
            call_end(&call);
            return NULL;
        }
    }
    return finish(self, &call, out != Py_None ? out : NULL, 0);
}

PyObject *program_vectorcall(PyObject *callable, PyObject *const *args, size_t nargsf,
                             PyObject *kwnames)
{
    /* The top bit says that args[-1] may be overwritten, which nobody here does. */
    Py_ssize_t nargs = (Py_ssize_t)(nargsf & (SIZE_MAX >> 1));
    PyObject *out = NULL;
    Place place = WITH_INPUTS;
    ProgramObject *self = (ProgramObject *)callable;
    Py_ssize_t count = kwnames != NULL ? PyTuple_Size(kwnames) : 0;
    for (Py_ssize_t i = 0; i < count; i++)
        if (!read_keyword(self, PyTuple_GetItem(kwnames, i), args[nargs + i], &out, &place))
            return NULL;
    return call_positional(self, args, nargs, out, place);
}

PyObject *program_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *key, *value, *out = NULL;
    Place place = WITH_INPUTS;
    Py_ssize_t position = 0;
    while (kwargs != NULL && PyDict_Next(kwargs, &position, &key, &value))
        if (!read_keyword((ProgramObject *)self, key, value, &out, &place))
            return NULL;
    Py_ssize_t nargs = PyTuple_Size(args);
    PyObject **items = PyMem_Malloc(((size_t)nargs + 1) * sizeof *items);
    if (items == NULL)
        return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < nargs; i++)
        items[i] = PyTuple_GetItem(args, i);
    PyObject *result = call_positional((ProgramObject *)self, items, nargs, out, place);
    PyMem_Free(items);
    return result;
}

static Py_ssize_t count_items(ProgramObject *self, PyObject *items, const char *name)
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
            raise_unknown_keyword("run", name);
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
    Place place = WITH_INPUTS;
    if (values[4] != NULL && self->device == NULL && values[4] != Py_None) {
        ask_to_raise(self, -6, 0, true, "a program for a CPU has its results on the host");
        return NULL;
    }
    if (values[4] != NULL && !read_place(values[4], &place))
        return NULL;
    Py_ssize_t input_count = count_items(self, values[0], "inputs");
    Py_ssize_t param_count = input_count < 0 ? -1 : count_items(self, values[1], "params");
    if (param_count < 0)
        return NULL;
    if (input_count + param_count != self->arg_count) {
        ask_to_raise(self, -1, input_count + param_count, false, "wrong number of arguments");
        return NULL;
    }
    Call call;
    if (!call_begin(&call, self->arg_count + self->output_count))
        return NULL;
    call.place = place;
    if (!add_sequence(self, &call, values[0], input_count) ||
        (param_count > 0 && !add_sequence(self, &call, values[1], param_count))) {
        call_end(&call);
        return NULL;
    }
    return finish(self, &call, out, timeout_ns);
}
