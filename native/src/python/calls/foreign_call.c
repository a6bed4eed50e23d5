/* Calling a program with tensors of another library, by address.
 *
 * The caller (nova/api/torch_backend) has checked shapes, dtypes, layouts and devices when it
 * compiled the program and guards them: only addresses are read here, by the tensors' method
 * `data_ptr`. Tensors on a device are used on the stream that the caller names. */
#include "python/calls/calls.h"

/* The address of a tensor; NULL with an exception. */
static void *foreign_address(PyObject *tensor)
{
    static PyObject *name; /* interned once, under the GIL */
    static _Alignas(64) char empty[64];
    if (name == NULL && (name = PyUnicode_InternFromString("data_ptr")) == NULL)
        return NULL;
    PyObject *number = PyObject_CallMethodObjArgs(tensor, name, NULL);
    if (number == NULL)
        return NULL;
    void *address = PyLong_AsVoidPtr(number);
    Py_DECREF(number);
    if (address == NULL && !PyErr_Occurred())
        return empty; /* A tensor without elements: kernels never see NULL, and a run on a device
                       * passes them memory of the device instead (run_address_of). */
    return address;
}

/* Takes a tensor into the next slot of a call, with a reference to it. */
static bool foreign_add(const ProgramObject *self, Call *call, const Spec *spec, PyObject *tensor)
{
    if (tensor == NULL)
        return false;
    Py_ssize_t slot = call->filled++;
    Py_INCREF(tensor);
    call->objects[slot] = tensor;
    call->arrays[slot] = NULL;
    call->data[slot] = foreign_address(tensor);
    if (call->data[slot] == NULL)
        return false;
    if (self->device != NULL)
        call->arrays[slot] = device_view(self, spec, call->data[slot], call->stream, tensor);
    return self->device == NULL || call->arrays[slot] != NULL;
}

static bool foreign_add_arguments(const ProgramObject *self, Call *call, PyObject *tensors)
{
    for (Py_ssize_t i = 0; i < self->arg_count; i++)
        if (!foreign_add(self, call, &self->args[i], PyList_GetItem(tensors, i)))
            return false;
    return true;
}

/* Outputs that are donated arguments have their address; the others are in `tensors`, in order. */
static bool foreign_add_outputs(const ProgramObject *self, Call *call, PyObject *tensors)
{
    Py_ssize_t next = 0;
    for (Py_ssize_t i = 0; i < self->output_count; i++) {
        int alias = self->outputs[i].alias;
        if (alias < 0) {
            if (!foreign_add(self, call, &self->outputs[i], PyList_GetItem(tensors, next++)))
                return false;
            continue;
        }
        Py_ssize_t slot = call->filled++;
        call->objects[slot] = NULL;
        call->arrays[slot] = call->arrays[alias];
        Py_XINCREF(call->arrays[slot]);
        call->data[slot] = call->data[alias];
    }
    return true;
}

static bool foreign_run(ProgramObject *self, Call *call, PyObject *arguments, PyObject *outputs)
{
    if (!foreign_add_arguments(self, call, arguments) ||
        (self->donated_count > 0 && !check_donated(self, call)) ||
        !foreign_add_outputs(self, call, outputs))
        return false;
    if (is_anything_running() && !check_in_flight(self, call, NULL))
        return false;
    Running running;
    running_begin(&running, self, call);
    bool ok = self->device == NULL ? host_execute(self, call, 0) : device_execute(self, call);
    running_end(&running);
    return ok;
}

PyObject *program_run_foreign(PyObject *object, PyObject *const *args, Py_ssize_t nargs)
{
    ProgramObject *self = (ProgramObject *)object;
    Py_ssize_t expected = self->device == NULL ? 2 : 3;
    if (nargs != expected || !PyList_Check(args[0]) || !PyList_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError,
                        "run_foreign() takes two lists of tensors, and on a device a stream");
        return NULL;
    }
    void *stream = self->device == NULL ? NULL : PyLong_AsVoidPtr(args[2]);
    if (stream == NULL && PyErr_Occurred())
        return NULL;
    if (PyList_Size(args[0]) != self->arg_count) {
        PyErr_Format(PyExc_TypeError, "run_foreign() got %zd arguments, not %zd",
                     PyList_Size(args[0]), self->arg_count);
        return NULL;
    }
    Call call;
    if (!call_begin(&call, self->arg_count + self->output_count))
        return NULL;
    call.stream = stream;
    call.location = self->device == NULL ? WITH_INPUTS : ON_DEVICE;
    bool ok = foreign_run(self, &call, args[0], args[1]);
    call_end(&call);
    if (!ok)
        return NULL;
    Py_RETURN_NONE;
}
