/* Drivers, devices and arrays on devices, as the files of the extension share them. */
#ifndef NOVA_PYTHON_DEVICES_DEVICES_H
#define NOVA_PYTHON_DEVICES_DEVICES_H

#include "python/native.h"

#include "python/devices/dlpack.h"
#include "gpusim/sim.h"

typedef struct {
    PyObject_HEAD
    nova_driver *driver;
    void (*close)(nova_driver *driver);
} DriverObject;

typedef struct {
    PyObject_HEAD
    DriverObject *driver; /* owned */
    nova_device *device;
    PyObject *report; /* report(status, text) -> exception */
} DeviceObject;

/* An array in the memory of a device, dense and in row-major order. */
typedef struct {
    PyObject_VAR_HEAD
    DeviceObject *device;     /* owned */
    nova_device_block *block; /* its memory; NULL if it has another owner: */
    PyObject *owner;          /* the object that keeps it alive, or NULL */
    bool is_shared;           /* whether the owner may change it as soon as a run has returned */
    uint64_t address;
    size_t nbytes;
    void *stream; /* its contents are complete when this stream has executed; guarded by the GIL */
    PyArray_Descr *descr; /* owned */
    npy_intp dims[];
} DeviceArrayObject;

extern PyTypeObject *driver_type;
extern PyTypeObject *device_type;
extern PyTypeObject *device_array_type;
extern PyType_Spec driver_spec;
extern PyType_Spec device_spec;
extern PyType_Spec device_array_spec;

/* A fault of the simulated GPU as a tuple; gpusim.c */
PyObject *describe_fault(const sim_fault *fault);

/* Raises the exception that the device's `report` creates for an error. */
void raise_device_error(const DeviceObject *device, const nova_error *error);

/* A new array with arbitrary contents, for work of `stream`; NULL with an exception. */
PyObject *make_device_array(DeviceObject *device, const Spec *spec, void *stream);

/* Whether an object is an array on this device of the type and shape of `spec`. */
bool is_device_array(const DeviceObject *device, const Spec *spec, PyObject *object);

/* Makes `stream` wait for an array, which belongs to that stream from then on; false with an
 * exception. */
bool order_device_array(DeviceArrayObject *array, void *stream);

/* Memory of `owner` on the device, which is used on its library's stream. A new reference. */
PyObject *view_device_array(DeviceObject *device, const Spec *spec, uint64_t address, void *stream,
                            PyObject *owner);

/* The same for an array of a library with a C exchange API, such as torch: NULL without an
 * exception if it is not an array, or not of this dtype and shape on this device.
 * device_import.c */
PyObject *exchange_device_array(DeviceObject *device, const Spec *spec, PyObject *object);

/* DLPack's name of a type; false when it has none. */
bool read_dl_type(PyArray_Descr *descr, dl_tensor *tensor);

/* Attributes of the type, and read_dlpack() of the module; device_dlpack.c,
 * device_import.c */
PyObject *device_array_dlpack(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *device_array_dlpack_device(PyObject *self, PyObject *unused);
PyObject *device_array_interface(PyObject *self, void *closure);
PyObject *module_read_dlpack(PyObject *module, PyObject *capsule);

static inline bool is_on_device(PyObject *object)
{
    return Py_TYPE(object) == device_array_type;
}

#endif
