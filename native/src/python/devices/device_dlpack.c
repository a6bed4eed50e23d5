/* DeviceArray for other libraries: DLPack and __cuda_array_interface__, both without a copy. */
#include "python/devices/devices.h"

#include <stdlib.h>

#include "python/devices/dlpack.h"

static bool dlpack_is_simulated(const DeviceArrayObject *self)
{
    return strcmp(self->device->driver->driver->name, "sim") == 0;
}

/* The characters that ml_dtypes gives float8_e4m3fn and float8_e5m2. */
static bool dlpack_is_float8(PyArray_Descr *descr)
{
    return PyDataType_ELSIZE(descr) == 1 && (descr->type == '4' || descr->type == '5');
}

bool read_dl_type(PyArray_Descr *descr, dl_tensor *tensor)
{
    char kind = descr->kind;
    tensor->bits = (uint8_t)(8 * PyDataType_ELSIZE(descr));
    tensor->lanes = 1;
    if (dlpack_is_float8(descr)) {
        tensor->code = descr->type == '4' ? DL_FLOAT8_E4M3FN : DL_FLOAT8_E5M2;
        return true;
    }
    switch (kind) {
    case 'f':
        tensor->code = DL_FLOAT;
        return true;
    case 'c':
        tensor->code = DL_COMPLEX;
        return true;
    case 'i':
        tensor->code = DL_INT;
        return true;
    case 'u':
        tensor->code = DL_UINT;
        return true;
    case 'b':
        tensor->code = DL_BOOL;
        return true;
    case 'V': /* numpy has no bfloat16: it is the one type of ml_dtypes with 16 bits */
        tensor->code = DL_BFLOAT;
        return tensor->bits == 16;
    }
    return false;
}

/* One block: strides are those of a dense array. */
static int64_t *dlpack_copy_shape(const DeviceArrayObject *self, int rank)
{
    int64_t *extents = malloc(2 * ((size_t)rank + 1) * sizeof *extents);
    if (extents == NULL)
        return NULL;
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        extents[i] = self->dims[i];
        extents[rank + i] = stride;
        stride *= self->dims[i];
    }
    return extents;
}

static bool dlpack_fill(DeviceArrayObject *self, dl_tensor *tensor)
{
    int rank = (int)Py_SIZE((PyObject *)self);
    int64_t *extents = dlpack_copy_shape(self, rank);
    if (extents == NULL || !read_dl_type(self->descr, tensor)) {
        free(extents);
        PyErr_SetString(PyExc_BufferError, "DLPack has no such array");
        return false;
    }
    tensor->data = (void *)(uintptr_t)self->address;
    tensor->device_type = dlpack_is_simulated(self) ? DL_CPU : DL_CUDA;
    tensor->device_id = dlpack_is_simulated(self) ? 0 : nova_device_ordinal(self->device->device);
    tensor->rank = rank;
    tensor->shape = extents;
    tensor->strides = extents + rank;
    tensor->byte_offset = 0;
    Py_INCREF((PyObject *)self);
    return true;
}

/* Deleters may be called on any thread, with or without the GIL. */
static void dlpack_release(void *context, int64_t *shape)
{
    free(shape);
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF((PyObject *)context);
    PyGILState_Release(state);
}

static void dlpack_delete_managed(dl_managed *self)
{
    dlpack_release(self->context, self->tensor.shape);
    free(self);
}

static void dlpack_delete_versioned(dl_versioned *self)
{
    dlpack_release(self->context, self->tensor.shape);
    free(self);
}

/* A capsule that was not consumed; a consumer renames it. */
static void dlpack_drop_managed(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor"))
        dlpack_delete_managed(PyCapsule_GetPointer(capsule, "dltensor"));
}

static void dlpack_drop_versioned(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
        dlpack_delete_versioned(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
}

static PyObject *dlpack_export_managed(DeviceArrayObject *self)
{
    dl_managed *created = calloc(1, sizeof *created);
    if (created == NULL)
        return PyErr_NoMemory();
    if (!dlpack_fill(self, &created->tensor)) {
        free(created);
        return NULL;
    }
    created->context = self;
    created->deleter = dlpack_delete_managed;
    PyObject *capsule = PyCapsule_New(created, "dltensor", dlpack_drop_managed);
    if (capsule == NULL)
        dlpack_delete_managed(created);
    return capsule;
}

static PyObject *dlpack_export_versioned(DeviceArrayObject *self)
{
    dl_versioned *created = calloc(1, sizeof *created);
    if (created == NULL)
        return PyErr_NoMemory();
    if (!dlpack_fill(self, &created->tensor)) {
        free(created);
        return NULL;
    }
    created->major = DL_MAJOR, created->minor = DL_MINOR;
    created->context = self;
    created->deleter = dlpack_delete_versioned;
    PyObject *capsule = PyCapsule_New(created, "dltensor_versioned", dlpack_drop_versioned);
    if (capsule == NULL)
        dlpack_delete_versioned(created);
    return capsule;
}

/* Has the consumer's stream wait, or waits itself where the consumer has none. */
static bool dlpack_transfer(DeviceArrayObject *self, PyObject *handle)
{
    nova_device *device = self->device->device;
    nova_error error;
    nova_status status;
    if (dlpack_is_simulated(self)) { /* its memory is read by the CPU next */
        Py_BEGIN_ALLOW_THREADS
        status = nova_device_synchronize(device, self->stream, &error);
        Py_END_ALLOW_THREADS
    } else {
        /* None and 1 are the legacy default stream, 2 the per-thread default stream, -1 means no
         * synchronization. */
        long long number = handle == Py_None ? 1 : PyLong_AsLongLong(handle);
        if (PyErr_Occurred())
            return false;
        if (number == -1)
            return true;
        void *stream = number == 1 ? NULL : (void *)(uintptr_t)number;
        status = nova_device_order(device, self->stream, stream, &error);
    }
    if (status != NOVA_OK)
        raise_device_error(self->device, &error);
    return status == NOVA_OK;
}

PyObject *device_array_dlpack(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = Py_None, *version = Py_None, *device = Py_None, *copy = Py_None;
    DeviceArrayObject *self = (DeviceArrayObject *)object;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__", names, &stream, &version,
                                     &device, &copy))
        return NULL;
    if (copy == Py_True) {
        PyErr_SetString(PyExc_BufferError, "a DeviceArray gives its own memory, never a copy");
        return NULL;
    }
    if (device != Py_None) {
        int type, id;
        if (!PyArg_ParseTuple(device, "ii", &type, &id))
            return NULL;
        if (type != (dlpack_is_simulated(self) ? DL_CPU : DL_CUDA)) {
            PyErr_SetString(PyExc_BufferError, "a DeviceArray stays on its device: use .numpy()");
            return NULL;
        }
    }
    long major = 0;
    if (version != Py_None) {
        PyObject *first = PySequence_GetItem(version, 0);
        major = first != NULL ? PyLong_AsLong(first) : 0;
        Py_XDECREF(first);
        if (PyErr_Occurred())
            return NULL;
    }
    if (!dlpack_transfer(self, stream))
        return NULL;
    return major >= DL_MAJOR ? dlpack_export_versioned(self) : dlpack_export_managed(self);
}

PyObject *device_array_dlpack_device(PyObject *object, PyObject *unused)
{
    (void)unused;
    DeviceArrayObject *self = (DeviceArrayObject *)object;
    if (dlpack_is_simulated(self))
        return Py_BuildValue("(ii)", DL_CPU, 0);
    return Py_BuildValue("(ii)", DL_CUDA, nova_device_ordinal(self->device->device));
}

PyObject *device_array_interface(PyObject *object, void *closure)
{
    (void)closure;
    DeviceArrayObject *self = (DeviceArrayObject *)object;
    if (dlpack_is_simulated(self) || self->descr->kind == 'V' || dlpack_is_float8(self->descr)) {
        PyErr_SetString(PyExc_AttributeError, "__cuda_array_interface__");
        return NULL;
    }
    PyObject *shape = PyObject_GetAttrString(object, "shape");
    PyObject *type = PyObject_GetAttrString((PyObject *)self->descr, "str");
    /* 0 is not allowed there, and 1 means the same stream. */
    unsigned long long stream = self->stream != NULL ? (uintptr_t)self->stream : 1;
    PyObject *created = NULL;
    if (shape != NULL && type != NULL)
        created = Py_BuildValue("{sOsOs(KO)sisK}", "shape", shape, "typestr", type, "data",
                                (unsigned long long)self->address, Py_False, "version", 3, "stream",
                                stream);
    Py_XDECREF(shape);
    Py_XDECREF(type);
    return created;
}
