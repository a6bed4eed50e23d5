/* What of a call differs on a device: arrays that are there, the stream, and the run itself. */
#include "python/calls/calls.h"
#include "python/devices/devices.h"

nova_device *program_device(const ProgramObject *self)
{
    return ((const DeviceObject *)self->device)->device;
}

/* --- arrays ----------------------------------------------------------------------------------- */

bool device_conforms(const ProgramObject *self, const Spec *spec, PyObject *object)
{
    return is_device_array((const DeviceObject *)self->device, spec, object);
}

void *device_data(PyObject *object)
{
    return (void *)(uintptr_t)((const DeviceArrayObject *)object)->address;
}

PyObject *device_exchange(const ProgramObject *self, const Spec *spec, PyObject *object)
{
    return exchange_device_array((DeviceObject *)self->device, spec, object);
}

PyObject *device_view(const ProgramObject *self, const Spec *spec, void *address, void *stream,
                      PyObject *owner)
{
    return view_device_array((DeviceObject *)self->device, spec, (uintptr_t)address, stream, owner);
}

bool read_output_location(PyObject *object, OutputLocation *location)
{
    if (object == Py_None)
        *location = WITH_INPUTS;
    else if (PyUnicode_Check(object) && PyUnicode_CompareWithASCIIString(object, "host") == 0)
        *location = ON_HOST;
    else if (PyUnicode_Check(object) && PyUnicode_CompareWithASCIIString(object, "device") == 0)
        *location = ON_DEVICE;
    else {
        PyErr_Format(PyExc_ValueError, "outputs is %R: it takes 'host', 'device' or None", object);
        return false;
    }
    return true;
}

/* The array of a slot: the caller's object, or its converted form. */
static PyObject *device_call_array_at(const Call *call, Py_ssize_t slot)
{
    return call->arrays[slot] != NULL ? call->arrays[slot] : call->objects[slot];
}

bool device_choose_stream(ProgramObject *self, Call *call)
{
    const DeviceObject *device = (const DeviceObject *)self->device;
    Py_ssize_t deciding = self->input_count > 0 ? self->input_count : self->arg_count;
    bool any = false;
    void *stream = nova_device_stream(device->device);
    call->stream = stream;
    for (Py_ssize_t i = 0; i < self->arg_count; i++) {
        PyObject *array = device_call_array_at(call, i);
        if (!is_on_device(array))
            continue;
        any = true;
        if (i < deciding && call->location == WITH_INPUTS)
            call->location = ON_DEVICE;
        /* Memory of another library is used on that library's stream, which may free it there. */
        const DeviceArrayObject *on_device = (const DeviceArrayObject *)array;
        if (on_device->owner != NULL && call->stream == stream)
            call->stream = on_device->stream;
    }
    if (call->location == WITH_INPUTS)
        call->location = ON_HOST;
    if (!any && call->location == ON_HOST)
        call->stream = NOVA_OWN_STREAM;
    return true;
}

PyObject *device_output(ProgramObject *self, const Call *call, const Spec *spec)
{
    if (call->location == ON_HOST)
        return result_array(spec);
    return make_device_array((DeviceObject *)self->device, spec, call->stream);
}

/* --- running ---------------------------------------------------------------------------------- */

bool device_prepare(ProgramObject *self, Call *call, nova_device_value *values, bool *waits)
{
    Py_ssize_t count = self->arg_count + self->output_count;
    *waits = false;
    for (Py_ssize_t i = 0; i < count; i++) {
        bool on_device = is_on_device(device_call_array_at(call, i));
        if (on_device)
            values[i] = (nova_device_value){.address = (uintptr_t)call->data[i]};
        else
            values[i] = (nova_device_value){.host = call->data[i]};
        if (on_device && call->stream == NOVA_OWN_STREAM) /* an output on the device */
            call->stream = nova_device_stream(program_device(self));
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *array = device_call_array_at(call, i);
        if (!is_on_device(array))
            continue;
        if (!order_device_array((DeviceArrayObject *)array, call->stream))
            return false;
        *waits |= ((DeviceArrayObject *)array)->is_shared;
    }
    return true;
}

/* Raises for a run that failed; `cause` is the exception of a signal handler, or NULL. Takes the
 * reference. */
static void device_call_raise_failure(ProgramObject *self, nova_status status,
                                      const nova_error *error, PyObject *cause)
{
    if (cause == NULL && status != NOVA_CANCELLED) {
        raise_device_error((DeviceObject *)self->device, error);
        return;
    }
    PyObject *raised = PyObject_CallFunction(self->report, "iiOOiO", (int)NOVA_CANCELLED, -1,
                                             Py_None, Py_None, 1, cause != NULL ? cause : Py_None);
    if (raised != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(raised), raised);
        Py_DECREF(raised);
    }
    Py_XDECREF(cause);
}

/* Enough for most programs; others take memory of the heap. */
enum { STACK_VALUES = 64 };

bool device_execute(ProgramObject *self, Call *call)
{
    Py_ssize_t count = self->arg_count + self->output_count;
    nova_device_value on_stack[STACK_VALUES], *values = on_stack;
    if (count > STACK_VALUES) {
        values = PyMem_Malloc((size_t)count * sizeof *values);
        if (values == NULL) {
            PyErr_NoMemory();
            return false;
        }
    }
    nova_device_run_options options = {0};
    nova_status status = NOVA_OK;
    nova_error error;
    bool ready = device_prepare(self, call, values, &options.waits);
    if (ready) {
        options.stream = call->stream;
        PyObject *sinks = trace_sinks_now();
        options.trace = device_trace_begin(self, sinks);
        apply_host_settings(&options.host);
        Caller caller;
        options.host.poll = caller_poll;
        options.host.owner = &caller;
        caller.thread = PyEval_SaveThread();
        status = nova_device_program_run(self->on_device, values, values + self->arg_count,
                                         &options, &error);
        PyEval_RestoreThread(caller.thread);
        device_trace_add(self, sinks, options.trace);
        Py_XDECREF(sinks);
        PyObject *type, *cause, *traceback;
        PyErr_Fetch(&type, &cause, &traceback); /* the exception of a signal handler, or NULL */
        PyErr_NormalizeException(&type, &cause, &traceback);
        if (cause != NULL && status == NOVA_OK)
            status = NOVA_CANCELLED; /* it was stopped too late, and the exception is still one */
        if (status != NOVA_OK)
            device_call_raise_failure(self, status, &error, cause); /* takes the cause */
        Py_XDECREF(type);
        Py_XDECREF(traceback);
    }
    if (values != on_stack)
        PyMem_Free(values);
    return ready && status == NOVA_OK;
}
