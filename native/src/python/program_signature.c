/* The signature of a Program: converts rows (shape, dtype, donated or alias) to the form that the
 * call path compares. Every wrong row is a TypeError or ValueError that names it. */
#include "python/native.h"

void signature_free(Signature *signature)
{
    Py_XDECREF(signature->args);
    Py_XDECREF(signature->outputs);
    PyMem_Free(signature->tensors);
    PyMem_Free(signature->nbytes);
}

/* --- reading numbers and tuples --------------------------------------------------------------- */

static bool signature_read_int64(PyObject *object, const char *label, Py_ssize_t index,
                                 int64_t *value)
{
    *value = PyLong_AsLongLong(object);
    if (*value != -1 || !PyErr_Occurred())
        return true;
    if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "%s %zd: %R does not fit into 64 bits", label, index,
                     object);
    }
    return false;
}

static PyObject *signature_read_table(PyObject *object, const char *label)
{
    if (PyList_Check(object) || PyTuple_Check(object))
        return PySequence_Tuple(object);
    PyErr_Format(PyExc_TypeError, "%s must be a list or tuple", label);
    return NULL;
}

static bool signature_check_row(PyObject *row, Py_ssize_t size, const char *label, Py_ssize_t index,
                                const char *fields)
{
    if (PyTuple_Check(row) && PyTuple_Size(row) == size)
        return true;
    PyErr_Format(PyExc_ValueError, "%s %zd must be a tuple %s", label, index, fields);
    return false;
}

static void *signature_allocate(Py_ssize_t count, size_t size)
{
    void *memory = PyMem_Calloc((size_t)count + 1, size); /* never NULL for an empty table */
    if (memory == NULL)
        PyErr_NoMemory();
    return memory;
}

/* --- arguments and outputs -------------------------------------------------------------------- */

static bool signature_count_extents(PyObject *rows, const char *label, const char *fields,
                                    Py_ssize_t *total)
{
    for (Py_ssize_t i = 0; i < PyTuple_Size(rows); i++) {
        PyObject *row = PyTuple_GetItem(rows, i);
        if (!signature_check_row(row, 3, label, i, fields))
            return false;
        PyObject *shape = PyTuple_GetItem(row, 0);
        if (!PyTuple_Check(shape)) {
            PyErr_Format(PyExc_ValueError, "%s %zd: the shape must be a tuple", label, i);
            return false;
        }
        if (PyTuple_Size(shape) > NPY_MAXDIMS) {
            PyErr_Format(PyExc_ValueError, "%s %zd: more than %d axes", label, i, NPY_MAXDIMS);
            return false;
        }
        *total += PyTuple_Size(shape);
    }
    return true;
}

/* Fills `tensor` and the owned `spec->descr` from (shape, dtype, _). */
static bool signature_read_tensor(PyObject *row, const char *label, Py_ssize_t index,
                                  int64_t **extents, nova_tensor_info *tensor, Spec *spec)
{
    PyObject *shape = PyTuple_GetItem(row, 0);
    if (!PyArray_DescrConverter(PyTuple_GetItem(row, 1), &spec->descr))
        return false;
    npy_intp size = PyDataType_ELSIZE(spec->descr);
    if (size <= 0 || PyDataType_REFCHK(spec->descr) || PyDataType_HASSUBARRAY(spec->descr)) {
        PyErr_Format(PyExc_ValueError, "%s %zd: arrays of %R hold no plain numbers", label, index,
                     (PyObject *)spec->descr);
        return false;
    }
    *tensor = (nova_tensor_info){.shape = *extents,
                                 .rank = (int32_t)PyTuple_Size(shape),
                                 .element_size = size,
                                 .alias = -1,
                                 .weight = NOVA_NO_WEIGHT};
    for (int32_t k = 0; k < tensor->rank; k++, (*extents)++)
        if (!signature_read_int64(PyTuple_GetItem(shape, k), label, index, *extents))
            return false;
    spec->dims = (const npy_intp *)tensor->shape;
    spec->rank = tensor->rank;
    spec->flags = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED;
    spec->alias = -1;
    return true;
}

static bool signature_read_arguments(ProgramObject *self, Signature *signature, int64_t **extents)
{
    for (Py_ssize_t i = 0; i < self->arg_count; i++) {
        PyObject *row = PyTuple_GetItem(signature->args, i);
        nova_tensor_info *tensor = &signature->tensors[i];
        if (!signature_read_tensor(row, "argument", i, extents, tensor, &self->args[i]))
            return false;
        int donated = PyObject_IsTrue(PyTuple_GetItem(row, 2));
        if (donated < 0)
            return false;
        if (donated) {
            tensor->donated = 1;
            self->args[i].flags |= NPY_ARRAY_WRITEABLE;
            self->donated_count++;
        }
    }
    return true;
}

static bool signature_read_outputs(ProgramObject *self, Signature *signature, int64_t **extents)
{
    for (Py_ssize_t i = 0; i < self->output_count; i++) {
        PyObject *row = PyTuple_GetItem(signature->outputs, i);
        nova_tensor_info *tensor = &signature->tensors[self->arg_count + i];
        Spec *spec = &self->outputs[i];
        if (!signature_read_tensor(row, "output", i, extents, tensor, spec) ||
            !signature_read_int64(PyTuple_GetItem(row, 2), "output", i, &tensor->alias))
            return false;
        spec->flags |= NPY_ARRAY_WRITEABLE;
    }
    return true;
}

/* The core compares shapes and sizes; that an alias has the same type only numpy can tell. */
static bool signature_check(ProgramObject *self, Signature *signature)
{
    nova_error error;
    nova_tensor_info *outputs = signature->tensors + signature->arg_count;
    if (nova_tensors_check(signature->tensors, signature->arg_count, outputs,
                           signature->output_count, &error) != NOVA_OK) {
        raise_error(&error);
        return false;
    }
    for (Py_ssize_t i = 0; i < self->output_count; i++) {
        Spec *spec = &self->outputs[i];
        spec->alias = (int)outputs[i].alias;
        if (spec->alias >= 0 && !PyArray_EquivTypes(spec->descr, self->args[spec->alias].descr)) {
            PyErr_Format(PyExc_ValueError, "output %zd: its type is not that of argument %d", i,
                         spec->alias);
            return false;
        }
    }
    for (Py_ssize_t i = 0; i < self->arg_count + self->output_count; i++) {
        Spec *spec = i < self->arg_count ? &self->args[i] : &self->outputs[i - self->arg_count];
        signature->nbytes[i] = signature->tensors[i].nbytes;
        spec->nbytes = (size_t)signature->tensors[i].nbytes;
    }
    return true;
}

bool read_signature(ProgramObject *self, PyObject *args, PyObject *outputs, Signature *signature)
{
    Py_ssize_t total = 0;
    signature->args = signature_read_table(args, "args");
    signature->outputs = signature->args != NULL ? signature_read_table(outputs, "outputs") : NULL;
    if (signature->outputs == NULL ||
        !signature_count_extents(signature->args, "argument", "(shape, dtype, donated)", &total) ||
        !signature_count_extents(signature->outputs, "output", "(shape, dtype, alias)", &total))
        return false;
    Py_ssize_t arg_count = PyTuple_Size(signature->args);
    Py_ssize_t output_count = PyTuple_Size(signature->outputs);
    signature->arg_count = (size_t)arg_count;
    signature->output_count = (size_t)output_count;
    signature->tensors = signature_allocate(arg_count + output_count, sizeof *signature->tensors);
    signature->nbytes = signature_allocate(arg_count + output_count, sizeof *signature->nbytes);
    self->extents = signature_allocate(total, sizeof *self->extents);
    self->args = signature_allocate(arg_count, sizeof *self->args);
    self->outputs = signature_allocate(output_count, sizeof *self->outputs);
    self->disjoint = signature_allocate(arg_count, sizeof *self->disjoint);
    if (!signature->tensors || !signature->nbytes || !self->extents || !self->args ||
        !self->outputs || !self->disjoint)
        return false;
    self->arg_count = arg_count;
    self->output_count = output_count;
    int64_t *extents = self->extents;
    return signature_read_arguments(self, signature, &extents) &&
           signature_read_outputs(self, signature, &extents) && signature_check(self, signature);
}

bool check_tables(const ProgramObject *self, const Signature *signature, uint64_t constants_size,
                  nova_tables *tables)
{
    nova_error error;
    const nova_tables_limits limits = {
        .argument_count = signature->arg_count,
        .output_count = signature->output_count,
        .argument_nbytes = signature->nbytes,
        .output_nbytes = signature->nbytes + signature->arg_count,
        .constants_size = constants_size,
    };
    if (nova_tables_check(self->tables.buf, (size_t)self->tables.len, &limits, tables, &error) ==
        NOVA_OK)
        return true;
    raise_error(&error);
    return false;
}
