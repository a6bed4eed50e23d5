/* The call path of Program: check the arguments, make the outputs, run, return.
 *
 * Arrays that conform are recognised by comparing a few words. Whatever does not conform goes to
 * the program's `convert`, which returns an array that does or raises; its result is checked again.
 */
#include "native.h"

/* Calls with at most this many arguments and outputs need no heap. */
enum { STACK_SLOTS = 24 };

/* One call in flight; all references in it are owned. */
typedef struct {
    PyObject **given;  /* argument objects as passed by the caller, then outputs as returned */
    PyObject **arrays; /* the arrays they stand for; NULL where that is `given` itself */
    void **data;       /* base pointers of the arguments, then of the outputs */
    Py_ssize_t filled; /* slots of `given` and `arrays` that hold references or NULL */
    PyObject *stack_given[STACK_SLOTS];
    PyObject *stack_arrays[STACK_SLOTS];
    void *stack_data[STACK_SLOTS];
} Call;

static bool call_begin(Call *call, Py_ssize_t slots)
{
    call->filled = 0;
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

static void call_end(Call *call)
{
    for (Py_ssize_t i = 0; i < call->filled; i++) {
        Py_XDECREF(call->given[i]);
        Py_XDECREF(call->arrays[i]);
    }
    if (call->given != call->stack_given)
        PyMem_Free(call->given);
}

/* --- checks ---------------------------------------------------------------------------------- */

static inline bool conforms(const Spec *spec, PyObject *object)
{
    if (!PyArray_CheckExact(object))
        return false;
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
    PyObject *array = ask(self, index, call->given[index], false);
    if (array == NULL)
        return false;
    call->arrays[index] = array;
    if (conforms(&self->args[index], array))
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
    if (!conforms(&self->args[index], object)) {
        if (!convert_argument(self, call, index))
            return false;
        object = call->arrays[index];
    }
    call->data[index] = data_of(object);
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
    if (conforms(spec, object) && !is_shared(self, call, index, data_of(object))) {
        call->data[slot] = data_of(object);
        return true;
    }
    PyObject *array = ask(self, index, object, true);
    if (array == NULL)
        return false;
    call->arrays[slot] = array;
    if (!conforms(spec, array)) {
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
    const Spec *spec = &self->outputs[index];
    Py_INCREF((PyObject *)spec->descr); /* stolen by the next call */
    PyObject *array = PyArray_NewFromDescr(&PyArray_Type, spec->descr, spec->rank, spec->dims,
                                           NULL, NULL, 0, NULL);
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

static bool execute(ProgramObject *self, Call *call)
{
    void *workspace = NULL;
    nova_status status = NOVA_OK;
    if (self->pool != NULL)
        status = nova_pool_take(self->pool, &workspace);
    if (status == NOVA_OK) {
        void **outputs = call->data + self->arg_count;
        if (self->release_gil) {
            Py_BEGIN_ALLOW_THREADS
            status = nova_program_run(self->program, call->data, outputs, workspace);
            Py_END_ALLOW_THREADS
        } else {
            status = nova_program_run(self->program, call->data, outputs, workspace);
        }
        if (self->pool != NULL)
            nova_pool_give(self->pool, workspace);
    }
    if (status == NOVA_OK)
        return true;
    raise_status(status, "the program did not run");
    return false;
}

/* All arguments are in `call`: the rest of the way. Always ends the call. */
static PyObject *finish(ProgramObject *self, Call *call, PyObject *out)
{
    PyObject *result = NULL;
    if ((self->donated_count == 0 || check_donated(self, call)) && add_outputs(self, call, out) &&
        execute(self, call)) {
        PyObject **outputs = call->given + self->arg_count;
        if (self->output_count == 1) {
            result = outputs[0];
            outputs[0] = NULL;
        } else {
            result = PyTuple_New(self->output_count);
            for (Py_ssize_t i = 0; result != NULL && i < self->output_count; i++) {
                PyTuple_SetItem(result, i, outputs[i]); /* steals */
                outputs[i] = NULL;
            }
        }
    }
    call_end(call);
    return result;
}

static void raise_unknown_keyword(const char *function, PyObject *name)
{
    PyErr_Format(PyExc_TypeError, "%s() has no keyword %R", function, name);
}

static bool is_out(PyObject *name)
{
    if (PyUnicode_CompareWithASCIIString(name, "out") == 0)
        return true;
    raise_unknown_keyword("program", name);
    return false;
}

/* `out` is NULL or borrowed. */
static PyObject *call_positional(ProgramObject *self, PyObject *const *args, Py_ssize_t nargs,
                                 PyObject *out)
{
    if (nargs != self->arg_count) {
        ask_to_raise(self, -1, nargs, false, "wrong number of arguments");
        return NULL;
    }
    Call call;
    if (!call_begin(&call, self->arg_count + self->output_count))
        return NULL;
    for (Py_ssize_t i = 0; i < nargs; i++) {
        if (!add_argument(self, &call, args[i])) {
            call_end(&call);
            return NULL;
        }
    }
    return finish(self, &call, out != Py_None ? out : NULL);
}

PyObject *program_vectorcall(PyObject *callable, PyObject *const *args, size_t nargsf,
                             PyObject *kwnames)
{
    /* The top bit says that args[-1] may be overwritten, which nobody here does. */
    Py_ssize_t nargs = (Py_ssize_t)(nargsf & (SIZE_MAX >> 1));
    PyObject *out = NULL;
    if (kwnames != NULL) {
        Py_ssize_t count = PyTuple_Size(kwnames);
        for (Py_ssize_t i = 0; i < count; i++) {
            if (!is_out(PyTuple_GetItem(kwnames, i)))
                return NULL;
            out = args[nargs + i];
        }
    }
    return call_positional((ProgramObject *)callable, args, nargs, out);
}

PyObject *program_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *key, *value, *out = NULL;
    Py_ssize_t position = 0;
    while (kwargs != NULL && PyDict_Next(kwargs, &position, &key, &value)) {
        if (!is_out(key))
            return NULL;
        out = value;
    }
    Py_ssize_t nargs = PyTuple_Size(args);
    PyObject **items = PyMem_Malloc(((size_t)nargs + 1) * sizeof *items);
    if (items == NULL)
        return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < nargs; i++)
        items[i] = PyTuple_GetItem(args, i);
    PyObject *result = call_positional((ProgramObject *)self, items, nargs, out);
    PyMem_Free(items);
    return result;
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
    static const char *const names[] = {"inputs", "params", "out"};
    ProgramObject *self = (ProgramObject *)object;
    PyObject *values[3] = {NULL, NULL, NULL};
    if (nargs > 3) {
        PyErr_Format(PyExc_TypeError, "run() takes at most 3 arguments (%zd given)", nargs);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < nargs; i++)
        values[i] = args[i];
    Py_ssize_t keyword_count = kwnames != NULL ? PyTuple_Size(kwnames) : 0;
    for (Py_ssize_t i = 0; i < keyword_count; i++) {
        PyObject *name = PyTuple_GetItem(kwnames, i);
        int k = 0;
        while (k < 3 && PyUnicode_CompareWithASCIIString(name, names[k]) != 0)
            k++;
        if (k == 3) {
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
    if (!add_sequence(self, &call, values[0], input_count) ||
        (param_count > 0 && !add_sequence(self, &call, values[1], param_count))) {
        call_end(&call);
        return NULL;
    }
    return finish(self, &call, out);
}
