/* Arrays of other libraries on a device: what DLPack says about them, and DeviceArrays over their memory. */
#include "python/devices/devices.h"

#include "python/devices/dlpack.h"

static bool is_dense(const dl_tensor *tensor)
{
    int64_t stride = 1;
    for (int32_t i = tensor->rank - 1; tensor->strides != NULL && i >= 0; i--) {
        if (tensor->shape[i] != 1 && tensor->strides[i] != stride)
            return false;
        stride *= tensor->shape[i];
    }
    return true;
}

/* read_dlpack(capsule): (address, device number, shape, code, bits, is dense) of an array on a GPU; the
 * capsule keeps the array. */
PyObject *module_read_dlpack(PyObject *module, PyObject *capsule)
{
    (void)module;
    const dl_tensor *tensor = NULL;
    if (PyCapsule_IsValid(capsule, "dltensor"))
        tensor = &((dl_managed *)PyCapsule_GetPointer(capsule, "dltensor"))->tensor;
    else if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
        tensor = &((dl_versioned *)PyCapsule_GetPointer(capsule, "dltensor_versioned"))->tensor;
    if (tensor == NULL || tensor->lanes != 1 || tensor->rank < 0 || tensor->rank > NPY_MAXDIMS) {
        PyErr_SetString(PyExc_ValueError, "this is no capsule of DLPack");
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
                         (int)tensor->bits, is_dense(tensor) ? Py_True : Py_False);
}

/* --- arrays without a call of Python ------------------------------------------------------------ */

/* The functions of the type that was asked last, which stays alive for it; NULL when it has none. Guarded by
 * the GIL. */
static PyTypeObject *known_type;
static const dl_exchange *known;

static const dl_exchange *find_exchange(PyTypeObject *type)
{
    if (type == known_type)
        return known;
    const dl_exchange *found = NULL;
    PyObject *capsule = PyObject_GetAttrString((PyObject *)type, "__dlpack_c_exchange_api__");
    if (capsule == NULL)
        PyErr_Clear();
    else if (PyCapsule_IsValid(capsule, "dlpack_exchange_api"))
        found = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    if (found != NULL && (found->major != DL_MAJOR || found->view == NULL || found->current_stream == NULL))
        found = NULL;
    Py_XDECREF(capsule); /* the type has it */
    PyTypeObject *before = known_type;
    Py_INCREF((PyObject *)type);
    known_type = type;
    known = found;
    Py_XDECREF((PyObject *)before);
    return found;
}

static bool is_wanted(const DeviceObject *device, const Spec *spec, const dl_tensor *tensor)
{
    dl_tensor wanted;
    if (tensor->device_type != DL_CUDA || tensor->device_id != nova_device_ordinal(device->device) ||
        tensor->rank != spec->rank || !read_dl_type(spec->descr, &wanted) || tensor->code != wanted.code ||
        tensor->bits != wanted.bits || tensor->lanes != 1 || !is_dense(tensor))
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
    const dl_exchange *with = find_exchange(Py_TYPE(object));
    if (with == NULL || strcmp(device->driver->driver->name, "cuda") != 0)
        return NULL;
    if (with->view(object, &tensor) != 0 || !is_wanted(device, spec, &tensor) ||
        with->current_stream(tensor.device_type, tensor.device_id, &stream) != 0) {
        PyErr_Clear(); /* `convert` looks at it once more, and says what is wrong */
        return NULL;
    }
    uint64_t address = (uintptr_t)tensor.data + tensor.byte_offset;
    return view_device_array(device, spec, address, stream, object);
}
