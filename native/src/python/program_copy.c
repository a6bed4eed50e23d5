/* Copies of a program with symbolic sizes, for the sizes of other calls.
 *
 * The first call with new sizes waits for its program, and its caches are cold: a copy runs no
 * Python code. Whatever does not fit is left to the Python code, which raises the error. */
#include "python/native.h"

#include <stdlib.h>

/* Fills the tables of the signature with the sizes of a call, and the specs that use them. */
static bool copy_signature(ProgramObject *self, const ProgramObject *like,
                           const nova_symbolic *symbolic, const int64_t *values,
                           Signature *signature)
{
    size_t count = (size_t)(like->arg_count + like->output_count), used = 0;
    uint32_t total = symbolic->header->extent_count;
    signature->tensors = PyMem_Calloc(count + 1, sizeof *signature->tensors);
    signature->nbytes = PyMem_Calloc(count + 1, sizeof *signature->nbytes);
    self->extents = PyMem_Calloc((size_t)total + 1, sizeof *self->extents);
    self->args = PyMem_Calloc((size_t)like->arg_count + 1, sizeof *self->args);
    self->outputs = PyMem_Calloc((size_t)like->output_count + 1, sizeof *self->outputs);
    self->disjoint = PyMem_Calloc((size_t)like->arg_count + 1, sizeof *self->disjoint);
    if (!signature->tensors || !signature->nbytes || !self->extents || !self->args ||
        !self->outputs || !self->disjoint)
        return false;
    signature->arg_count = (size_t)(self->arg_count = like->arg_count);
    signature->output_count = (size_t)(self->output_count = like->output_count);
    self->donated_count = like->donated_count;
    for (uint32_t i = 0; i < total; i++) {
        int64_t extent = symbolic->extents[i];
        self->extents[i] = extent < 0 ? values[~extent] : extent;
    }
    for (size_t i = 0; i < count; i++) {
        bool is_output = i >= signature->arg_count;
        size_t number = is_output ? i - signature->arg_count : i;
        const Spec *before = is_output ? &like->outputs[number] : &like->args[number];
        Spec *spec = is_output ? &self->outputs[number] : &self->args[number];
        *spec = *before;
        Py_INCREF((PyObject *)spec->descr);
        if ((uint64_t)spec->rank > total - used)
            return false; /* of another program */
        spec->dims = (const npy_intp *)(self->extents + used);
        used += (size_t)spec->rank;
        signature->tensors[i] = (nova_tensor_info){
            .shape = spec->dims,
            .rank = spec->rank,
            .element_size = PyDataType_ELSIZE(spec->descr),
            .alias = is_output ? spec->alias : -1,
            .donated = !is_output && (spec->flags & NPY_ARRAY_WRITEABLE) != 0,
            .weight = NOVA_NO_WEIGHT,
        };
    }
    nova_error error;
    if (nova_tensors_check(signature->tensors, signature->arg_count,
                           signature->tensors + signature->arg_count, signature->output_count,
                           &error) != NOVA_OK)
        return false;
    for (size_t i = 0; i < count; i++) {
        Spec *spec =
            i < signature->arg_count ? &self->args[i] : &self->outputs[i - signature->arg_count];
        signature->nbytes[i] = signature->tensors[i].nbytes;
        spec->nbytes = (size_t)signature->tensors[i].nbytes;
    }
    return true;
}

/* Whether the arguments are numpy arrays of these shapes. */
static bool copy_fits(const ProgramObject *self, PyObject *arrays)
{
    if (PyTuple_Size(arrays) != self->arg_count)
        return false;
    for (Py_ssize_t i = 0; i < self->arg_count; i++) {
        PyObject *array = PyTuple_GetItem(arrays, i);
        const Spec *spec = &self->args[i];
        if (!PyArray_Check(array) || PyArray_NDIM((PyArrayObject *)array) != spec->rank ||
            memcmp(PyArray_DIMS((PyArrayObject *)array), spec->dims,
                   (size_t)spec->rank * sizeof *spec->dims) != 0)
            return false;
    }
    return true;
}

/* Gives the copy its tables for the sizes. */
static bool copy_tables(ProgramObject *self, const ProgramObject *like,
                        const nova_symbolic *symbolic, const nova_tables *checked,
                        const int64_t *values, const Signature *signature)
{
    nova_error error;
    void *tables;
    if (nova_symbolic_instantiate(symbolic, checked, values, &tables, &error) != NOVA_OK)
        return false;
    PyObject *block = PyBytes_FromStringAndSize(tables, (Py_ssize_t)symbolic->header->tables_size);
    free(tables);
    bool ok = block != NULL && hold_tables(self, block) &&
              bind_tables(self, signature, like->constants) &&
              set_sizes(self, values, symbolic->header->value_count);
    if (ok)
        self->release_gil = nova_program_tables(self->program)->header->work > KEEP_GIL_WORK;
    Py_XDECREF(block);
    return ok;
}

PyObject *program_copy(PyObject *object, const nova_symbolic *symbolic, const nova_tables *checked,
                       const int64_t *dims, PyObject *arrays, PyObject *make_convert)
{
    const ProgramObject *like = (const ProgramObject *)object;
    nova_error error;
    Signature signature = {0};
    int64_t *values = PyMem_Calloc((size_t)symbolic->header->expression_count + 1, sizeof *values);
    ProgramObject *self = program_allocate(program_type, Py_None, like->report);
    bool ok = values != NULL && self != NULL &&
              nova_symbolic_evaluate(symbolic, dims, values, &error) == NOVA_OK;
    if (ok) {
        Py_INCREF(like->image);
        self->image = like->image;
        self->constants = like->constants;
        Py_INCREF(make_convert);
        self->make_convert = make_convert;
        ok = copy_signature(self, like, symbolic, values, &signature) && copy_fits(self, arrays) &&
             copy_tables(self, like, symbolic, checked, values, &signature);
    }
    signature_free(&signature);
    PyMem_Free(values);
    if (ok)
        return (PyObject *)self;
    Py_XDECREF((PyObject *)self);
    PyErr_Clear();
    return NULL;
}
