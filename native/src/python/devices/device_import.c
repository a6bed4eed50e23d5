/* Device arrays of other libraries: their DLPack descriptions, and DeviceArrays over their
 * memory. */
#include "python/devices/devices.h"

#include "python/devices/dlpack.h"

static bool import_is_dense(const dl_tensor *tensor)
{
    int64_t stride = 1;
    for (int32_t i = tensor->rank - 1; tensor->strides != NULL && i >= 0; i--) {
        if (tensor->shape[i] != 1 && tensor->strides[i] != stride)
            return false;
        stride *= tensor->shape[i];
    }
    return true;
}

/* read_dlpack(capsule): (address, device number, shape, code, bits, is dense) of an array on a GPU;
 * the capsule owns the array. */
PyObject *module_read_dlpack(PyObject *module, PyObject *capsule)
{
    (void)module;
    const dl_tensor *tensor = NULL;
    if (PyCapsule_IsValid(capsule, "dltensor"))
        tensor = &((dl_managed *)PyCapsule_GetPointer(capsule, "dltensor"))->tensor;
    else if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
        tensor = &((dl_versioned *)PyCapsule_GetPointer(capsule, "dltensor_versioned"))->tensor;
    if (tensor == NULL || tensor->lanes != 1 || tensor->rank < 0 || tensor->rank > NPY_MAXDIMS) {
        PyErr_SetString(PyExc_ValueError, "this is not a DLPack capsule");
        return NULL;
    }
    PyObject *shape = PyTuple_New(tensor->rank);
    for (int32_t i = 0; shape != NULL && i < tensor->rank; i++) {
        PyObject *extent = PyLong_FromLongLong(tensor->shape[i]);
        if (extent == NULL || PyTuple_SetItem(shape, i, extent) < 0)
            Py_CLEAR(shape);
    }
    if (shape == NULL)
        return NULL;
    unsigned long long address = (uintptr_t)tensor->data + tensor->byte_offset;
    return Py_BuildValue("(KiNiiO)", address, (int)tensor->device_id, shape, (int)tensor->code,
                         (int)tensor->bits, import_is_dense(tensor) ? Py_True : Py_False);
}

/* --- arrays without a call of Python ---------------------------------------------------------- */

/* The exchange functions of the last type, which a reference keeps alive; NULL if it has none.
 * Guarded by the GIL. */
static PyTypeObject *import_cached_type;
static const dl_exchange *import_cached;

static const dl_exchange *import_find_exchange(PyTypeObject *type)
{
    if (type == import_cached_type)
        return import_cached;
    const dl_exchange *exchange = NULL;
    PyObject *capsule = PyObject_GetAttrString((PyObject *)type, "__dlpack_c_exchange_api__");
    if (capsule == NULL)
        PyErr_Clear();
    else if (PyCapsule_IsValid(capsule, "dlpack_exchange_api"))
        exchange = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    if (exchange != NULL &&
        (exchange->major != DL_MAJOR || exchange->view == NULL || exchange->current_stream == NULL))
        exchange = NULL;
    Py_XDECREF(capsule); /* the type has it */
    PyTypeObject *before = import_cached_type;
    Py_INCREF((PyObject *)type);
    import_cached_type = type;
    import_cached = exchange;
    Py_XDECREF((PyObject *)before);
    return exchange;
}

static bool import_is_expected(const DeviceObject *device, const Spec *spec,
                               const dl_tensor *tensor)
{
    dl_tensor expected;
    if (tensor->device_type != DL_CUDA ||
        tensor->device_id != nova_device_ordinal(device->device) || tensor->rank != spec->rank ||
        !read_dl_type(spec->descr, &expected) || tensor->code != expected.code ||
        tensor->bits != expected.bits || tensor->lanes != 1 || !import_is_dense(tensor))
        return false;
    for (int i = 0; i < spec->rank; i++)
        if (tensor->shape[i] != spec->dims[i])
            return false;
    return true;
}

PyObject *exchange_device_array(DeviceObject *device, const Spec *spec, PyObject *object)
{
    dl_tensor tensor;
    void *stream;
    const dl_exchange *with = import_find_exchange(Py_TYPE(object));
    if (with == NULL || strcmp(device->driver->driver->name, "cuda") != 0)
        return NULL;
    if (with->view(object, &tensor) != 0 || !import_is_expected(device, spec, &tensor) ||
        with->current_stream(tensor.device_type, tensor.device_id, &stream) != 0) {
        PyErr_Clear(); /* `convert` checks it once more, and raises the error */
        return NULL;
    }
    uint64_t address = (uintptr_t)tensor.data + tensor.byte_offset;
    return view_device_array(device, spec, address, stream, object);
}
