/* The types Driver and Device. */
#include "python/devices/devices.h"

#include "gpusim/driver/sim_driver.h"

PyTypeObject *driver_type;
PyTypeObject *device_type;

/* --- drivers ---------------------------------------------------------------------------------- */

/* DriverError(status, text), for drivers that do not open: there is no device to report it. */
static PyObject *driver_raise_error(const nova_error *error)
{
    PyObject *value = Py_BuildValue("(is)", (int)error->status, error->text);
    if (value != NULL)
        PyErr_SetObject(PyExc_OSError, value);
    Py_XDECREF(value);
    return NULL;
}

static PyObject *driver_make(PyTypeObject *type, nova_driver *driver, void (*close)(nova_driver *))
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    DriverObject *self = (DriverObject *)alloc(type, 0);
    if (self == NULL) {
        close(driver);
        return NULL;
    }
    self->driver = driver;
    self->close = close;
    return (PyObject *)self;
}

static PyObject *driver_cuda(PyObject *type, PyObject *args)
{
    const char *path = NULL;
    nova_driver *driver;
    nova_error error;
    nova_status status;
    if (!PyArg_ParseTuple(args, "|z:cuda", &path))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = nova_cuda_open(path, &driver, &error);
    Py_END_ALLOW_THREADS
    if (status != NOVA_OK)
        return driver_raise_error(&error);
    return driver_make((PyTypeObject *)type, driver, nova_cuda_close);
}

static PyObject *driver_sim(PyObject *type, PyObject *unused)
{
    (void)unused;
    nova_driver *driver;
    nova_error error;
    if (nova_sim_open(&driver, &error) != NOVA_OK)
        return driver_raise_error(&error);
    return driver_make((PyTypeObject *)type, driver, nova_sim_close);
}

/* (kernel, text of the line, (address, size) of the nearest operand, record) of the last launch
 * that failed. */
static PyObject *driver_last_fault(DriverObject *self, PyObject *args)
{
    int ordinal = 0;
    nova_sim_report report;
    if (!PyArg_ParseTuple(args, "|i:last_fault", &ordinal))
        return NULL;
    if (self->close != nova_sim_close || ordinal < 0 || ordinal >= NOVA_SIM_DEVICES ||
        !nova_sim_last_fault(self->driver, ordinal, &report))
        Py_RETURN_NONE;
    PyObject *record = describe_fault(&report.fault);
    if (record == NULL)
        return NULL;
    return Py_BuildValue("(ss(KK)N)", report.kernel, report.line,
                         (unsigned long long)report.near_address,
                         (unsigned long long)report.near_size, record);
}

static void driver_dealloc(DriverObject *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    if (self->driver != NULL)
        self->close(self->driver);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *driver_count(DriverObject *self, PyObject *unused)
{
    (void)unused;
    int count = 0;
    int result = self->driver->count(self->driver, &count);
    if (result == 0)
        return PyLong_FromLong(count);
    nova_error error = {.status = self->driver->classify(self->driver, result)};
    self->driver->explain(self->driver, result, error.text, sizeof error.text);
    return driver_raise_error(&error);
}

static PyObject *driver_name(DriverObject *self, void *closure)
{
    (void)closure;
    return PyUnicode_FromString(self->driver->name);
}

static PyMethodDef driver_methods[] = {
    {"cuda", driver_cuda, METH_VARARGS | METH_CLASS,
     "cuda(path=None, /)\n--\n\nThe CUDA driver of this machine; OSError(status, text) without "
     "one."},
    {"sim", driver_sim, METH_NOARGS | METH_CLASS,
     "sim()\n--\n\nSimulated GPUs, which take what nova.gpusim.image makes of PTX."},
    {"last_fault", (PyCFunction)driver_last_fault, METH_VARARGS,
     "last_fault(ordinal=0, /)\n--\n\n(kernel, line, nearest operand, record) of a simulated "
     "GPU's last fault, or None."},
    {"count", (PyCFunction)driver_count, METH_NOARGS, "count()\n--\n\nHow many devices there are."},
    {0},
};

static PyGetSetDef driver_attributes[] = {
    {"name", (getter)driver_name, NULL, "\"cuda\" or \"sim\".", NULL},
    {0},
};

static PyType_Slot driver_slots[] = {
    {Py_tp_doc, "An interface to devices; `cuda` and `sim` create one."},
    {Py_tp_dealloc, driver_dealloc},
    {Py_tp_methods, driver_methods},
    {Py_tp_getset, driver_attributes},
    {0, NULL},
};

PyType_Spec driver_spec = {
    .name = "nova._native.Driver",
    .basicsize = sizeof(DriverObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = driver_slots,
};

/* --- devices ---------------------------------------------------------------------------------- */

void raise_device_error(const DeviceObject *device, const nova_error *error)
{
    PyObject *created =
        PyObject_CallFunction(device->report, "is", (int)error->status, error->text);
    if (created == NULL)
        return;
    PyErr_SetObject((PyObject *)Py_TYPE(created), created);
    Py_DECREF(created);
}

static PyObject *device_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"driver", "ordinal", "report", NULL};
    PyObject *driver, *report;
    int ordinal;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!iO:Device", names, driver_type, &driver,
                                     &ordinal, &report))
        return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    DeviceObject *self = (DeviceObject *)alloc(type, 0);
    if (self == NULL)
        return NULL;
    Py_INCREF(driver);
    self->driver = (DriverObject *)driver;
    Py_INCREF(report);
    self->report = report;
    nova_error error;
    nova_status status;
    Py_BEGIN_ALLOW_THREADS
    status = nova_device_open(self->driver->driver, ordinal, &self->device, &error);
    Py_END_ALLOW_THREADS
    if (status == NOVA_OK)
        return (PyObject *)self;
    raise_device_error(self, &error);
    Py_DECREF((PyObject *)self);
    return NULL;
}

static void device_dealloc(DeviceObject *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    nova_device_close(self->device);
    Py_XDECREF((PyObject *)self->driver);
    Py_XDECREF(self->report);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *device_name(DeviceObject *self, void *closure)
{
    (void)closure;
    const char *driver = self->driver->driver->name;
    int ordinal = nova_device_ordinal(self->device);
    if (strcmp(driver, "sim") == 0 && ordinal == 0)
        return PyUnicode_FromString(driver);
    return PyUnicode_FromFormat("%s:%d", driver, ordinal);
}

static PyObject *device_driver(DeviceObject *self, void *closure)
{
    (void)closure;
    return Py_NewRef((PyObject *)self->driver);
}

static PyObject *device_model(DeviceObject *self, void *closure)
{
    (void)closure;
    return PyUnicode_FromString(nova_device_describe(self->device)->name);
}

static PyObject *device_capability(DeviceObject *self, void *closure)
{
    (void)closure;
    const nova_device_info *info = nova_device_describe(self->device);
    return Py_BuildValue("(ii)", info->major, info->minor);
}

static PyObject *device_memory(DeviceObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromUnsignedLongLong(nova_device_describe(self->device)->memory);
}

static PyObject *device_driver_version(DeviceObject *self, void *closure)
{
    (void)closure;
    int version = nova_device_describe(self->device)->driver_version;
    return Py_BuildValue("(ii)", version / 1000, version % 1000 / 10);
}

static PyObject *device_stream(DeviceObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromVoidPtr(nova_device_stream(self->device));
}

static PyObject *device_usage(DeviceObject *self, PyObject *unused)
{
    (void)unused;
    nova_device_usage usage = nova_device_memory(self->device);
    return Py_BuildValue("(KKK)", (unsigned long long)usage.idle_bytes,
                         (unsigned long long)usage.used_bytes,
                         (unsigned long long)usage.allocations);
}

static PyObject *device_trim(DeviceObject *self, PyObject *unused)
{
    (void)unused;
    Py_BEGIN_ALLOW_THREADS
    nova_device_trim(self->device);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *device_synchronize(DeviceObject *self, PyObject *args)
{
    nova_error error;
    nova_status status;
    PyObject *handle = Py_None;
    if (!PyArg_ParseTuple(args, "|O:synchronize", &handle))
        return NULL;
    void *stream = handle == Py_None ? nova_device_stream(self->device) : PyLong_AsVoidPtr(handle);
    if (PyErr_Occurred())
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = nova_device_synchronize(self->device, stream, &error);
    Py_END_ALLOW_THREADS
    if (status == NOVA_OK)
        Py_RETURN_NONE;
    raise_device_error(self, &error);
    return NULL;
}

static PyGetSetDef device_attributes[] = {
    {"name", (getter)device_name, NULL, "Such as \"cuda:0\".", NULL},
    {"driver", (getter)device_driver, NULL, "What it is reached through.", NULL},
    {"model", (getter)device_model, NULL, "What its maker calls it.", NULL},
    {"capability", (getter)device_capability, NULL, "(major, minor)", NULL},
    {"driver_version", (getter)device_driver_version, NULL,
     "The CUDA version of its driver, (major, minor); (0, 0) for the simulator.", NULL},
    {"memory", (getter)device_memory, NULL, "Bytes in all.", NULL},
    {"stream", (getter)device_stream, NULL, "The stream of runs on arrays of Nova.", NULL},
    {0},
};

static PyMethodDef device_methods[] = {
    {"usage", (PyCFunction)device_usage, METH_NOARGS,
     "usage()\n--\n\n(idle bytes, used bytes, blocks that the driver was asked for)."},
    {"trim", (PyCFunction)device_trim, METH_NOARGS, "trim()\n--\n\nFrees all idle memory."},
    {"synchronize", (PyCFunction)device_synchronize, METH_VARARGS,
     "synchronize(stream=None, /)\n--\n\nWaits until all work of a stream has ended."},
    {0},
};

static PyType_Slot device_slots[] = {
    {Py_tp_doc,
     "Device(driver, ordinal, report)\n--\n\nA device, opened; report(status, text) gives "
     "the exception for an error."},
    {Py_tp_new, device_new},
    {Py_tp_dealloc, device_dealloc},
    {Py_tp_methods, device_methods},
    {Py_tp_getset, device_attributes},
    {0, NULL},
};

PyType_Spec device_spec = {
    .name = "nova._native.Device",
    .basicsize = sizeof(DeviceObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = device_slots,
};
