/* Symbolic(block, arguments, outputs): a checked block of symbolic tables.
 *
 * `instantiate(dims)` returns the tables and the values of sizes for the sizes of a call, as bytes;
 * a Program is made from them. `extents(dims)` are the sizes of the axes of its arrays. */
#include "python/native.h"

#include <stdlib.h>

typedef struct {
    PyObject_HEAD
    Py_buffer block;
    void *copy; /* of a block that is not aligned; NULL otherwise */
    nova_symbolic symbolic;
    nova_tables tables;
} SymbolicObject;

const nova_symbolic *symbolic_block(PyObject *symbolic)
{
    return &((SymbolicObject *)symbolic)->symbolic;
}

const nova_tables *symbolic_checked(PyObject *symbolic)
{
    return &((SymbolicObject *)symbolic)->tables;
}

static bool symbolic_hold(SymbolicObject *self, PyObject *block, Py_ssize_t arguments,
                          Py_ssize_t outputs)
{
    nova_error error;
    if (PyObject_GetBuffer(block, &self->block, PyBUF_SIMPLE) < 0)
        return false;
    const void *data = self->block.buf;
    if ((uintptr_t)data % 8 != 0) {
        self->copy = PyMem_Malloc((size_t)self->block.len + 1);
        if (self->copy == NULL) {
            PyErr_NoMemory();
            return false;
        }
        data = memcpy(self->copy, data, (size_t)self->block.len);
    }
    nova_status status =
        nova_symbolic_check(data, (size_t)self->block.len, &self->symbolic, &error);
    const nova_tables_limits limits = {.argument_count = (uint64_t)arguments,
                                       .output_count = (uint64_t)outputs,
                                       .constants_size = UINT64_MAX};
    if (status == NOVA_OK)
        status =
            nova_tables_check(self->symbolic.tables, (size_t)self->symbolic.header->tables_size,
                              &limits, &self->tables, &error);
    if (status != NOVA_OK)
        raise_error(&error);
    return status == NOVA_OK;
}

static PyObject *symbolic_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"block", "arguments", "outputs", NULL};
    PyObject *block;
    Py_ssize_t arguments, outputs;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Onn:Symbolic", names, &block, &arguments,
                                     &outputs))
        return NULL;
    if (arguments < 0 || outputs < 0) {
        PyErr_SetString(PyExc_ValueError, "counts are not negative");
        return NULL;
    }
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    SymbolicObject *self = (SymbolicObject *)alloc(type, 0);
    if (self == NULL)
        return NULL;
    if (symbolic_hold(self, block, arguments, outputs))
        return (PyObject *)self;
    Py_DECREF((PyObject *)self);
    return NULL;
}

static void symbolic_dealloc(SymbolicObject *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    if (self->block.obj != NULL)
        PyBuffer_Release(&self->block);
    PyMem_Free(self->copy);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static bool symbolic_read_dims(const SymbolicObject *self, PyObject *object, int64_t *dims)
{
    uint32_t count = self->symbolic.header->dim_count;
    if (!PyTuple_Check(object) || PyTuple_Size(object) != (Py_ssize_t)count) {
        PyErr_Format(PyExc_ValueError, "the sizes of %u dims are expected", count);
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        dims[i] = PyLong_AsLongLong(PyTuple_GetItem(object, i));
        if (dims[i] == -1 && PyErr_Occurred())
            return false;
    }
    return true;
}

static PyObject *symbolic_make_tables(const SymbolicObject *self, const int64_t *values,
                                      nova_error *error)
{
    void *tables;
    if (nova_symbolic_instantiate(&self->symbolic, &self->tables, values, &tables, error) !=
        NOVA_OK) {
        raise_error(error);
        return NULL;
    }
    PyObject *result = Py_BuildValue(
        "(y#y#)", (const char *)tables, (Py_ssize_t)self->symbolic.header->tables_size,
        (const char *)values, (Py_ssize_t)(self->symbolic.header->value_count * sizeof *values));
    free(tables);
    return result;
}

/* The values of all expressions for a tuple of dims, to be freed; NULL with an exception. */
static int64_t *symbolic_evaluate(const SymbolicObject *self, PyObject *tuple)
{
    const nova_symbolic_header *header = self->symbolic.header;
    nova_error error;
    int64_t *values =
        PyMem_Calloc((size_t)header->expression_count + header->dim_count + 1, sizeof *values);
    if (values == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    int64_t *dims = values + header->expression_count;
    bool ok = symbolic_read_dims(self, tuple, dims);
    if (ok && nova_symbolic_evaluate(&self->symbolic, dims, values, &error) != NOVA_OK) {
        raise_error(&error);
        ok = false;
    }
    if (ok)
        return values;
    PyMem_Free(values);
    return NULL;
}

static PyObject *symbolic_instantiate(PyObject *object, PyObject *argument)
{
    nova_error error;
    int64_t *values = symbolic_evaluate((SymbolicObject *)object, argument);
    if (values == NULL)
        return NULL;
    PyObject *result = symbolic_make_tables((SymbolicObject *)object, values, &error);
    PyMem_Free(values);
    return result;
}

static PyObject *symbolic_extents(PyObject *object, PyObject *argument)
{
    const nova_symbolic *symbolic = &((SymbolicObject *)object)->symbolic;
    int64_t *values = symbolic_evaluate((SymbolicObject *)object, argument);
    if (values == NULL)
        return NULL;
    uint32_t count = symbolic->header->extent_count;
    PyObject *result = PyTuple_New(count);
    for (uint32_t i = 0; result != NULL && i < count; i++) {
        int64_t extent = symbolic->extents[i];
        PyObject *number = PyLong_FromLongLong(extent < 0 ? values[~extent] : extent);
        if (number == NULL || PyTuple_SetItem(result, i, number) < 0) { /* steals */
            Py_DECREF(result);
            result = NULL;
        }
    }
    PyMem_Free(values);
    return result;
}

static PyMethodDef symbolic_methods[] = {
    {"instantiate", symbolic_instantiate, METH_O,
     "instantiate(dims, /)\n--\n\n(tables, values of sizes) of a program for these sizes."},
    {"extents", symbolic_extents, METH_O,
     "extents(dims, /)\n--\n\nThe sizes of all axes of the arguments, then of the outputs."},
    {0},
};

static PyType_Slot symbolic_slots[] = {
    {Py_tp_doc, "Symbolic(block, arguments, outputs)\n--\n\n"
                "The tables of a program with symbolic sizes."},
    {Py_tp_new, symbolic_new},
    {Py_tp_dealloc, symbolic_dealloc},
    {Py_tp_methods, symbolic_methods},
    {0, NULL},
};

PyType_Spec symbolic_spec = {
    .name = "nova._native.Symbolic",
    .basicsize = sizeof(SymbolicObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = symbolic_slots,
};
