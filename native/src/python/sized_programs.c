/* SizedPrograms(axes, most): the programs of one file, by the sizes of its dims; a base class.
 *
 * A call reads the sizes from the shapes of its arrays and runs the program for them. `axes` has
 * (argument, axis) for each dim, or is None if some dim is not the size of an axis. At most `most`
 * programs are cached, and the least recently used one is dropped. The GIL guards everything.
 *
 * The subclass has two methods: program_of(arrays) makes the program for sizes that are not cached,
 * and explain(error, arrays) returns the exception to raise instead of that of a call. */
#include "python/native.h"

#include <stddef.h>
#include <structmember.h>

typedef struct {
    PyObject_HEAD
    Py_ssize_t dim_count;
    Py_ssize_t most, count;
    Py_ssize_t latest;   /* the program of the last call that was cached */
    Py_ssize_t *axes;    /* argument and axis of each dim; NULL: there are others */
    int64_t *sizes;      /* of the programs, `dim_count` each */
    PyObject **programs; /* owned */
    uint64_t *used;      /* when each program was used last, in calls */
    uint64_t now;
    long long hits, misses;
    char counts_calls; /* program_of counts the calls of each size: all calls ask it */
    /* What programs for new sizes are copied from: a Symbolic, a Program, and what makes the
     * converter of a copy. NULL: program_of makes all programs. */
    PyObject *symbolic, *like, *make_convert;
} SizedProgramsObject;

/* --- the cache -------------------------------------------------------------------------------- */

static bool sized_has(const SizedProgramsObject *self, Py_ssize_t slot, const int64_t *sizes)
{
    const int64_t *cached = self->sizes + slot * self->dim_count;
    for (Py_ssize_t i = 0; i < self->dim_count; i++)
        if (cached[i] != sizes[i])
            return false;
    return true;
}

/* The slot of the program for these sizes; `count` if there is none. */
static Py_ssize_t sized_slot_of(const SizedProgramsObject *self, const int64_t *sizes)
{
    if (self->latest < self->count && sized_has(self, self->latest, sizes))
        return self->latest;
    Py_ssize_t slot = 0;
    while (slot < self->count && !sized_has(self, slot, sizes))
        slot++;
    return slot;
}

static PyObject *sized_lookup(SizedProgramsObject *self, const int64_t *sizes)
{
    Py_ssize_t slot = sized_slot_of(self, sizes);
    if (slot == self->count)
        return NULL;
    self->latest = slot;
    self->used[slot] = ++self->now;
    return self->programs[slot];
}

/* The slot of a new entry: a free one, or that of the least recently used program. */
static Py_ssize_t sized_free_slot(SizedProgramsObject *self)
{
    if (self->count < self->most) {
        self->programs[self->count] = NULL;
        return self->count++;
    }
    Py_ssize_t oldest = 0;
    for (Py_ssize_t i = 1; i < self->count; i++)
        if (self->used[i] < self->used[oldest])
            oldest = i;
    return oldest;
}

static void sized_store(SizedProgramsObject *self, const int64_t *sizes, PyObject *program)
{
    Py_ssize_t slot = sized_slot_of(self, sizes);
    if (slot == self->count)
        slot = sized_free_slot(self);
    PyObject *before = self->programs[slot];
    memcpy(self->sizes + slot * self->dim_count, sizes, (size_t)self->dim_count * sizeof *sizes);
    self->used[slot] = ++self->now;
    Py_INCREF(program);
    self->programs[slot] = program;
    Py_XDECREF(before); /* last: it may run Python code */
}

/* --- sizes ------------------------------------------------------------------------------------ */

/* Dims of programs that need no heap. */
enum { STACK_DIMS = 16 };

/* The size of an axis of an object with a tuple as shape; false, without an exception, if it has
 * none. */
static bool sized_read_axis(PyObject *object, Py_ssize_t axis, int64_t *size)
{
    if (PyArray_Check(object)) {
        if (axis >= PyArray_NDIM((PyArrayObject *)object))
            return false;
        *size = PyArray_DIM((PyArrayObject *)object, (int)axis);
        return true;
    }
    PyObject *shape = PyObject_GetAttrString(object, "shape");
    bool ok = shape != NULL && PyTuple_Check(shape) && axis < PyTuple_Size(shape);
    if (ok) {
        *size = PyLong_AsLongLong(PyTuple_GetItem(shape, axis));
        ok = *size >= 0;
    }
    Py_XDECREF(shape);
    PyErr_Clear();
    return ok;
}

/* The sizes of the dims in a call; false, without an exception, if the axes do not tell them. */
static bool sized_read(const SizedProgramsObject *self, PyObject *const *arrays, Py_ssize_t count,
                       int64_t *sizes)
{
    if (self->axes == NULL || self->dim_count > STACK_DIMS)
        return false;
    for (Py_ssize_t i = 0; i < self->dim_count; i++) {
        Py_ssize_t number = self->axes[2 * i];
        if (number >= count || !sized_read_axis(arrays[number], self->axes[2 * i + 1], &sizes[i]))
            return false;
    }
    return true;
}

static PyObject *sized_find(PyObject *object, PyObject *arrays)
{
    SizedProgramsObject *self = (SizedProgramsObject *)object;
    int64_t sizes[STACK_DIMS];
    PyObject *program = NULL;
    if (PyTuple_Check(arrays) || PyList_Check(arrays)) {
        Py_ssize_t count;
        PyObject *on_stack[STACK_SLOTS], **items = call_items(arrays, on_stack, &count);
        if (items == NULL)
            return NULL;
        if (sized_read(self, items, count, sizes))
            program = sized_lookup(self, sizes);
        if (items != on_stack)
            PyMem_Free(items);
    }
    self->hits += program != NULL;
    if (program == NULL)
        program = Py_None;
    Py_INCREF(program);
    return program;
}

/* Reads a tuple of the sizes of all dims; to be freed, NULL with an exception. */
static int64_t *sized_read_sizes(const SizedProgramsObject *self, PyObject *object)
{
    if (!PyTuple_Check(object) || PyTuple_Size(object) != self->dim_count) {
        PyErr_Format(PyExc_ValueError, "the sizes of %zd dims are expected", self->dim_count);
        return NULL;
    }
    int64_t *sizes = PyMem_Malloc((size_t)self->dim_count * sizeof *sizes + 1);
    if (sizes == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; sizes != NULL && i < self->dim_count; i++) {
        sizes[i] = PyLong_AsLongLong(PyTuple_GetItem(object, i));
        if (sizes[i] == -1 && PyErr_Occurred()) {
            PyMem_Free(sizes);
            return NULL;
        }
    }
    return sizes;
}

static PyObject *sized_get(PyObject *object, PyObject *argument)
{
    SizedProgramsObject *self = (SizedProgramsObject *)object;
    int64_t *sizes = sized_read_sizes(self, argument);
    if (sizes == NULL)
        return NULL;
    PyObject *program = sized_lookup(self, sizes);
    PyMem_Free(sizes);
    self->hits += program != NULL;
    if (program == NULL)
        program = Py_None;
    Py_INCREF(program);
    return program;
}

static PyObject *sized_keep(PyObject *object, PyObject *args)
{
    SizedProgramsObject *self = (SizedProgramsObject *)object;
    PyObject *tuple, *program;
    if (!PyArg_ParseTuple(args, "OO!:keep", &tuple, program_type, &program))
        return NULL;
    int64_t *sizes = sized_read_sizes(self, tuple);
    if (sizes == NULL)
        return NULL;
    sized_store(self, sizes, program);
    PyMem_Free(sizes);
    Py_RETURN_NONE;
}

/* --- programs for new sizes ------------------------------------------------------------------- */

/* "LABEL [B=17, C=3, symbolic]", the name of a program in traces; NULL with an exception. */
static PyObject *sized_label(SizedProgramsObject *self, const int64_t *sizes)
{
    const nova_symbolic *symbolic = symbolic_block(self->symbolic);
    PyObject *label = PyObject_GetAttrString((PyObject *)self, "label");
    if (label == NULL)
        return NULL;
    int is_set = PyObject_IsTrue(label);
    PyObject *text = is_set > 0    ? PyUnicode_FromFormat("%S [", label)
                     : is_set == 0 ? PyUnicode_FromString("program [")
                                   : NULL;
    Py_DECREF(label);
    for (Py_ssize_t i = 0; text != NULL && i < self->dim_count; i++) {
        PyObject *before = text;
        text = PyUnicode_FromFormat(
            "%U%s=%lld, ", before, symbolic->strings + symbolic->dims[i].name, (long long)sizes[i]);
        Py_DECREF(before);
    }
    if (text == NULL)
        return NULL;
    PyObject *result = PyUnicode_FromFormat("%Usymbolic]", text);
    Py_DECREF(text);
    return result;
}

static PyObject *sized_copy(SizedProgramsObject *self, PyObject *arrays, const int64_t *sizes)
{
    PyObject *copy =
        program_copy(self->like, symbolic_block(self->symbolic), symbolic_checked(self->symbolic),
                     sizes, arrays, self->make_convert);
    if (copy == NULL)
        return NULL;
    PyObject *label = sized_label(self, sizes);
    PyObject *names = label != NULL ? PyObject_GetAttrString((PyObject *)self, "names") : NULL;
    bool ok = names != NULL && PyObject_SetAttrString(copy, "label", label) == 0 &&
              PyObject_SetAttrString(copy, "names", names) == 0;
    Py_XDECREF(label);
    Py_XDECREF(names);
    if (!ok) {
        Py_DECREF(copy);
        PyErr_Clear(); /* program_of makes one, or raises */
        return NULL;
    }
    self->misses++;
    sized_store(self, sizes, copy);
    return copy;
}

static PyObject *sized_copy_from(PyObject *object, PyObject *args)
{
    SizedProgramsObject *self = (SizedProgramsObject *)object;
    PyObject *symbolic, *like, *make_convert;
    if (!PyArg_ParseTuple(args, "O!O!O:copy_from", symbolic_type, &symbolic, program_type, &like,
                          &make_convert))
        return NULL;
    if (symbolic_block(symbolic)->header->dim_count != self->dim_count ||
        ((ProgramObject *)like)->device != NULL || !PyCallable_Check(make_convert)) {
        PyErr_SetString(PyExc_ValueError, "programs are copied from one for a CPU");
        return NULL;
    }
    if (self->like == NULL) {
        Py_INCREF(symbolic);
        self->symbolic = symbolic;
        Py_INCREF(make_convert);
        self->make_convert = make_convert;
        Py_INCREF(like);
        self->like = like;
    }
    Py_RETURN_NONE;
}

static void sized_forget_like(SizedProgramsObject *self)
{
    Py_CLEAR(self->like);
    Py_CLEAR(self->symbolic);
    Py_CLEAR(self->make_convert);
}

static PyObject *sized_copy_none(PyObject *object, PyObject *unused)
{
    (void)unused;
    sized_forget_like((SizedProgramsObject *)object);
    Py_RETURN_NONE;
}

/* --- calls ------------------------------------------------------------------------------------ */

/* The program for the sizes of a call: cached, or a copy. A new reference; NULL, without an
 * exception: program_of makes it. */
static PyObject *sized_take(SizedProgramsObject *self, PyObject *args, PyObject *const *items,
                            Py_ssize_t count)
{
    int64_t sizes[STACK_DIMS];
    if (self->counts_calls || !sized_read(self, items, count, sizes))
        return NULL;
    PyObject *program = sized_lookup(self, sizes);
    if (program == NULL)
        return self->like != NULL ? sized_copy(self, args, sizes) : NULL;
    self->hits++;
    Py_INCREF(program);
    return program;
}

/* Replaces the exception of a call by the one that the subclass returns for it. */
static void sized_explain(PyObject *self, PyObject *args)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback != NULL)
        PyException_SetTraceback(error, traceback);
    PyObject *other = PyObject_CallMethod(self, "explain", "OO", error, args);
    if (other != NULL && PyExceptionInstance_Check(other))
        PyErr_SetObject((PyObject *)Py_TYPE(other), other);
    else if (other != NULL)
        PyErr_SetString(PyExc_TypeError, "explain() returns an exception");
    Py_XDECREF(other);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
}

static PyObject *sized_call(PyObject *object, PyObject *args, PyObject *kwargs)
{
    SizedProgramsObject *self = (SizedProgramsObject *)object;
    Py_ssize_t count;
    PyObject *on_stack[STACK_SLOTS], **items = call_items(args, on_stack, &count);
    if (items == NULL)
        return NULL;
    PyObject *result = NULL, *program = sized_take(self, args, items, count);
    if (program == NULL)
        program = PyObject_CallMethod(object, "program_of", "(O)", args);
    if (program != NULL && Py_TYPE(program) != program_type)
        PyErr_SetString(PyExc_TypeError, "program_of() returns a Program");
    else if (program != NULL) {
        result = program_call_items(program, items, count, kwargs);
        if (result == NULL)
            sized_explain(object, args);
    }
    Py_XDECREF(program);
    if (items != on_stack)
        PyMem_Free(items);
    return result;
}

/* --- the type --------------------------------------------------------------------------------- */

/* Reads the pairs (argument, axis). */
static bool sized_read_axes(SizedProgramsObject *self, PyObject *axes)
{
    self->axes = PyMem_Calloc(2 * (size_t)self->dim_count + 1, sizeof *self->axes);
    if (self->axes == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (Py_ssize_t i = 0; i < self->dim_count; i++) {
        Py_ssize_t *pair = self->axes + 2 * i;
        PyObject *item = PyTuple_GetItem(axes, i);
        if (!PyTuple_Check(item) || !PyArg_ParseTuple(item, "nn", pair, pair + 1) || pair[0] < 0 ||
            pair[1] < 0) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "axes are pairs (argument, axis)");
            return false;
        }
    }
    return true;
}

static PyObject *sized_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)args, (void)kwargs; /* those of the subclass: it calls configure */
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    return alloc(type, 0);
}

static PyObject *sized_configure(PyObject *object, PyObject *args)
{
    SizedProgramsObject *self = (SizedProgramsObject *)object;
    PyObject *axes;
    Py_ssize_t dim_count, most;
    if (!PyArg_ParseTuple(args, "nOn:configure", &dim_count, &axes, &most))
        return NULL;
    if (self->programs != NULL || dim_count < 1 || most < 1 || dim_count > PY_SSIZE_T_MAX / most ||
        (axes != Py_None && (!PyTuple_Check(axes) || PyTuple_Size(axes) != dim_count))) {
        PyErr_SetString(PyExc_ValueError, "configure(dim_count, axes or None, most), once");
        return NULL;
    }
    self->sizes = PyMem_Calloc((size_t)(dim_count * most), sizeof *self->sizes);
    self->used = PyMem_Calloc((size_t)most, sizeof *self->used);
    self->programs = PyMem_Calloc((size_t)most, sizeof *self->programs);
    if (self->sizes == NULL || self->used == NULL || self->programs == NULL)
        return PyErr_NoMemory();
    self->dim_count = dim_count;
    if (axes != Py_None && !sized_read_axes(self, axes))
        return NULL;
    self->most = most;
    Py_RETURN_NONE;
}

static int sized_traverse(SizedProgramsObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->like);
    Py_VISIT(self->make_convert);
    for (Py_ssize_t i = 0; i < self->count; i++)
        Py_VISIT(self->programs[i]);
    return 0;
}

static int sized_clear(SizedProgramsObject *self)
{
    sized_forget_like(self);
    while (self->count > 0) {
        PyObject *program = self->programs[--self->count];
        Py_XDECREF(program);
    }
    return 0;
}

static void sized_dealloc(SizedProgramsObject *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    (void)sized_clear(self);
    PyMem_Free(self->axes);
    PyMem_Free(self->sizes);
    PyMem_Free(self->used);
    PyMem_Free(self->programs);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyMemberDef sized_members[] = {
    {"hits", T_LONGLONG, offsetof(SizedProgramsObject, hits), READONLY,
     "Calls whose program was cached."},
    {"misses", T_LONGLONG, offsetof(SizedProgramsObject, misses), 0,
     "Calls whose program had to be made."},
    {"entries", T_PYSSIZET, offsetof(SizedProgramsObject, count), READONLY, "Cached programs."},
    {"counts_calls", T_BOOL, offsetof(SizedProgramsObject, counts_calls), 0,
     "Whether every call asks program_of, which counts them."},
    {0},
};

static PyMethodDef sized_methods[] = {
    {"configure", sized_configure, METH_VARARGS,
     "configure(dim_count, axes, most)\n--\n\nSets the axes of the dims, a tuple of (argument, "
     "axis) or None, and how many programs are cached."},
    {"find", sized_find, METH_O,
     "find(arrays, /)\n--\n\nThe cached program for the sizes of these arrays, or None."},
    {"get", sized_get, METH_O, "get(sizes, /)\n--\n\nThe cached program for these sizes, or None."},
    {"keep", sized_keep, METH_VARARGS,
     "keep(sizes, program)\n--\n\nCaches the program for these sizes."},
    {"copy_from", sized_copy_from, METH_VARARGS,
     "copy_from(symbolic, program, make_convert)\n--\n\nMakes programs for new sizes from this "
     "one; make_convert(extents) is the converter of one."},
    {"copy_none", sized_copy_none, METH_NOARGS,
     "copy_none()\n--\n\nLeaves all new programs to program_of."},
    {0},
};

static PyType_Slot sized_slots[] = {
    {Py_tp_doc, "The programs of one file, by the sizes of its dims; a base class."},
    {Py_tp_new, sized_new},
    {Py_tp_dealloc, sized_dealloc},
    {Py_tp_traverse, sized_traverse},
    {Py_tp_clear, sized_clear},
    {Py_tp_call, sized_call},
    {Py_tp_members, sized_members},
    {Py_tp_methods, sized_methods},
    {0, NULL},
};

PyType_Spec sized_programs_spec = {
    .name = "nova._native.SizedPrograms",
    .basicsize = sizeof(SizedProgramsObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = sized_slots,
};
