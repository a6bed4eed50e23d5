/* DeviceArray: memory of a device with a shape and a dtype, which other libraries can view without
 * a copy. */
#include "python/devices/devices.h"

#include <stddef.h>

PyTypeObject *device_array_type;

/* --- making ----------------------------------------------------------------------------------- */

static int array_rank_of(const DeviceArrayObject *self)
{
    return (int)Py_SIZE((PyObject *)self);
}

/* An array without memory yet; takes no reference to anything but the device and the type. */
static DeviceArrayObject *array_allocate(DeviceObject *device, PyArray_Descr *descr, int rank,
                                         const npy_intp *dims)
{
    DeviceArrayObject *self =
        (DeviceArrayObject *)PyType_GenericAlloc(device_array_type, (Py_ssize_t)rank);
    if (self == NULL)
        return NULL;
    Py_INCREF((PyObject *)device);
    self->device = device;
    Py_INCREF((PyObject *)descr);
    self->descr = descr;
    self->nbytes = (size_t)PyDataType_ELSIZE(descr);
    for (int i = 0; i < rank; i++) {
        self->dims[i] = dims[i];
        self->nbytes *= (size_t)dims[i];
    }
    return self;
}

static bool array_take_memory(DeviceArrayObject *self, void *stream)
{
    nova_error error;
    nova_status status =
        nova_device_take(self->device->device, self->nbytes, stream, &self->block, &error);
    if (status != NOVA_OK) {
        raise_device_error(self->device, &error);
        return false;
    }
    self->address = self->block->address;
    self->stream = stream;
    return true;
}

PyObject *make_device_array(DeviceObject *device, const Spec *spec, void *stream)
{
    DeviceArrayObject *self = array_allocate(device, spec->descr, spec->rank, spec->dims);
    if (self != NULL && !array_take_memory(self, stream)) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    return (PyObject *)self;
}

PyObject *view_device_array(DeviceObject *device, const Spec *spec, uint64_t address, void *stream,
                            PyObject *owner)
{
    DeviceArrayObject *self = array_allocate(device, spec->descr, spec->rank, spec->dims);
    if (self == NULL)
        return NULL;
    self->address = address;
    self->stream = stream;
    Py_INCREF(owner);
    self->owner = owner;
    return (PyObject *)self;
}

/* DeviceArray.of(device, array): a copy of a numpy array that is dense. */
static PyObject *array_of(PyObject *type, PyObject *args)
{
    (void)type;
    PyObject *device, *memory;
    if (!PyArg_ParseTuple(args, "O!O!:of", device_type, &device, &PyArray_Type, &memory))
        return NULL;
    PyArrayObject *array = (PyArrayObject *)memory;
    if (!PyArray_IS_C_CONTIGUOUS(array) || PyDataType_REFCHK(PyArray_DESCR(array))) {
        PyErr_SetString(PyExc_ValueError, "the array is not dense, or does not hold numbers");
        return NULL;
    }
    DeviceArrayObject *self = array_allocate((DeviceObject *)device, PyArray_DESCR(array),
                                             PyArray_NDIM(array), PyArray_DIMS(array));
    if (self == NULL)
        return NULL;
    nova_device *target = self->device->device;
    if (!array_take_memory(self, nova_device_stream(target))) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    nova_error error;
    nova_status status;
    Py_BEGIN_ALLOW_THREADS
    status = nova_device_upload(target, self->address, PyArray_DATA(array), self->nbytes,
                                self->stream, &error);
    Py_END_ALLOW_THREADS
    if (status == NOVA_OK)
        return (PyObject *)self;
    raise_device_error(self->device, &error);
    Py_DECREF((PyObject *)self);
    return NULL;
}

/* DeviceArray.view(device, address, shape, dtype, stream, owner, is_shared): memory of another
 * owner. */
static PyObject *array_view(PyObject *type, PyObject *args)
{
    (void)type;
    PyObject *device, *shape, *owner, *dtype;
    unsigned long long address, stream;
    int is_shared;
    if (!PyArg_ParseTuple(args, "O!KO!OKOp:view", device_type, &device, &address, &PyTuple_Type,
                          &shape, &dtype, &stream, &owner, &is_shared))
        return NULL;
    npy_intp dims[NPY_MAXDIMS];
    Py_ssize_t rank = PyTuple_Size(shape);
    if (rank > NPY_MAXDIMS) {
        PyErr_SetString(PyExc_ValueError, "too many axes");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < rank; i++) {
        dims[i] = PyLong_AsSsize_t(PyTuple_GetItem(shape, i));
        if (dims[i] < 0) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "an extent below 0");
            return NULL;
        }
    }
    PyArray_Descr *descr;
    if (!PyArray_DescrConverter(dtype, &descr))
        return NULL;
    DeviceArrayObject *self = array_allocate((DeviceObject *)device, descr, (int)rank, dims);
    Py_DECREF((PyObject *)descr);
    if (self == NULL)
        return NULL;
    self->address = address;
    self->stream = (void *)(uintptr_t)stream;
    Py_INCREF(owner);
    self->owner = owner;
    self->is_shared = is_shared != 0;
    return (PyObject *)self;
}

static void array_dealloc(DeviceArrayObject *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    if (self->block != NULL) {
        self->block->stream = self->stream;
        nova_device_give(self->device->device, self->block);
    }
    Py_XDECREF(self->owner);
    Py_XDECREF((PyObject *)self->descr);
    Py_XDECREF((PyObject *)self->device);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* --- as arguments of runs --------------------------------------------------------------------- */

bool is_device_array(const DeviceObject *device, const Spec *spec, PyObject *object)
{
    if (!is_on_device(object))
        return false;
    const DeviceArrayObject *array = (const DeviceArrayObject *)object;
    if (array->device != device || array_rank_of(array) != spec->rank)
        return false;
    for (int i = 0; i < spec->rank; i++)
        if (array->dims[i] != spec->dims[i])
            return false;
    return array->descr == spec->descr || PyArray_EquivTypes(array->descr, spec->descr);
}

bool order_device_array(DeviceArrayObject *array, void *stream)
{
    if (array->stream == stream)
        return true;
    nova_error error;
    if (nova_device_order(array->device->device, array->stream, stream, &error) != NOVA_OK) {
        raise_device_error(array->device, &error);
        return false;
    }
    array->stream = stream;
    return true;
}

/* --- looking ---------------------------------------------------------------------------------- */

static PyObject *array_shape(DeviceArrayObject *self, void *closure)
{
    (void)closure;
    int rank = array_rank_of(self);
    PyObject *shape = PyTuple_New(rank);
    for (int i = 0; shape != NULL && i < rank; i++) {
        PyObject *extent = PyLong_FromSsize_t(self->dims[i]);
        if (extent == NULL || PyTuple_SetItem(shape, i, extent) < 0)
            Py_CLEAR(shape);
    }
    return shape;
}

static PyObject *array_dtype(DeviceArrayObject *self, void *closure)
{
    (void)closure;
    return Py_NewRef((PyObject *)self->descr);
}

static PyObject *array_device(DeviceArrayObject *self, void *closure)
{
    (void)closure;
    return Py_NewRef((PyObject *)self->device);
}

static PyObject *array_device_name(DeviceArrayObject *self, void *closure)
{
    (void)closure;
    return PyObject_GetAttrString((PyObject *)self->device, "name");
}

static PyObject *array_address(DeviceArrayObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromUnsignedLongLong(self->address);
}

static PyObject *array_stream(DeviceArrayObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromVoidPtr(self->stream);
}

static PyObject *array_nbytes(DeviceArrayObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromSize_t(self->nbytes);
}

/* A copy in plain memory, when the work that makes it has ended. */
static PyObject *array_numpy(DeviceArrayObject *self, PyObject *unused)
{
    (void)unused;
    Py_INCREF((PyObject *)self->descr); /* stolen by the next call */
    PyObject *array = PyArray_NewFromDescr(&PyArray_Type, self->descr, array_rank_of(self),
                                           self->dims, NULL, NULL, 0, NULL);
    if (array == NULL)
        return NULL;
    nova_error error;
    nova_status status;
    void *data = PyArray_DATA((PyArrayObject *)array);
    Py_BEGIN_ALLOW_THREADS
    status = nova_device_download(self->device->device, data, self->address, self->nbytes,
                                  self->stream, &error);
    Py_END_ALLOW_THREADS
    if (status == NOVA_OK)
        return array;
    raise_device_error(self->device, &error);
    Py_DECREF(array);
    return NULL;
}

static PyObject *array_array(DeviceArrayObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"dtype", "copy", NULL};
    PyObject *dtype = Py_None, *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OO:__array__", names, &dtype, &copy))
        return NULL;
    if (copy == Py_False) {
        PyErr_SetString(PyExc_ValueError, "an array on a device can only be copied");
        return NULL;
    }
    PyObject *array = array_numpy(self, NULL);
    if (array == NULL || dtype == Py_None)
        return array;
    PyObject *cast = PyObject_CallMethod(array, "astype", "O", dtype);
    Py_DECREF(array);
    return cast;
}

static PyObject *array_repr(DeviceArrayObject *self)
{
    PyObject *shape = array_shape(self, NULL), *device = array_device_name(self, NULL);
    PyObject *text = NULL;
    if (shape != NULL && device != NULL)
        text = PyUnicode_FromFormat("<DeviceArray %S%S on %S>", (PyObject *)self->descr, shape,
                                    device);
    Py_XDECREF(shape);
    Py_XDECREF(device);
    return text;
}

static PyObject *array_order(DeviceArrayObject *self, PyObject *handle)
{
    void *stream = PyLong_AsVoidPtr(handle);
    if (PyErr_Occurred())
        return NULL;
    nova_error error;
    if (nova_device_order(self->device->device, self->stream, stream, &error) == NOVA_OK)
        Py_RETURN_NONE;
    raise_device_error(self->device, &error);
    return NULL;
}

static PyGetSetDef array_attributes[] = {
    {"shape", (getter)array_shape, NULL, "Extents, outermost first.", NULL},
    {"dtype", (getter)array_dtype, NULL, "numpy's type of the elements.", NULL},
    {"nbytes", (getter)array_nbytes, NULL, "Bytes of the elements.", NULL},
    {"address", (getter)array_address, NULL, "Where it is on the device.", NULL},
    {"device", (getter)array_device_name, NULL, "Such as \"cuda:0\".", NULL},
    {"native_device", (getter)array_device, NULL, "The device that it is on.", NULL},
    {"__cuda_array_interface__", (getter)device_array_interface, NULL, "For other libraries.",
     NULL},
    {"stream", (getter)array_stream, NULL, "The stream whose work makes its contents.", NULL},
    {0},
};

static PyMethodDef array_methods[] = {
    {"of", array_of, METH_VARARGS | METH_CLASS,
     "of(device, array, /)\n--\n\nA copy of a dense numpy array on a device."},
    {"view", array_view, METH_VARARGS | METH_CLASS,
     "view(device, address, shape, dtype, stream, owner, is_shared, /)\n--\n\nMemory that `owner` "
     "keeps alive."},
    {"__dlpack__", (PyCFunction)(void (*)(void))device_array_dlpack, METH_VARARGS | METH_KEYWORDS,
     "__dlpack__(*, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\nFor other "
     "libraries: `stream` waits for the contents."},
    {"__dlpack_device__", device_array_dlpack_device, METH_NOARGS,
     "__dlpack_device__()\n--\n\nKind and number of the device."},
    {"__array__", (PyCFunction)(void (*)(void))array_array, METH_VARARGS | METH_KEYWORDS,
     "__array__(dtype=None, copy=None)\n--\n\nThe same as numpy()."},
    {"numpy", (PyCFunction)array_numpy, METH_NOARGS, "numpy()\n--\n\nA copy in plain memory."},
    {"order_before", (PyCFunction)array_order, METH_O,
     "order_before(stream, /)\n--\n\nHas a stream wait for the contents."},
    {0},
};

static PyType_Slot array_slots[] = {
    {Py_tp_doc, "An array in the memory of a device, created by `of` and by runs."},
    {Py_tp_dealloc, array_dealloc},
    {Py_tp_repr, array_repr},
    {Py_tp_methods, array_methods},
    {Py_tp_getset, array_attributes},
    {0, NULL},
};

PyType_Spec device_array_spec = {
    .name = "nova._native.DeviceArray",
    .basicsize = offsetof(DeviceArrayObject, dims),
    .itemsize = sizeof(npy_intp),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = array_slots,
};
