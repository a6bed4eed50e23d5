/* Calling a program with tensors of another library, by address.
 *
 * The caller (nova/api/torch_backend) has checked shapes, dtypes and layouts when it compiled the
 * program and guards them: only addresses are read here, by the tensors' method `data_ptr`. */
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
        return empty; /* kernels never see NULL, not even for a tensor without elements */
    return address;
}

/* Takes `count` tensors of a list into the slots of a call, with a reference to each. */
static bool foreign_add(Call *call, PyObject *tensors, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *tensor = PyList_GetItem(tensors, i);
        if (tensor == NULL)
            return false;
        Py_ssize_t slot = call->filled++;
        Py_INCREF(tensor);
        call->objects[slot] = tensor;
        call->arrays[slot] = NULL;
        call->data[slot] = foreign_address(tensor);
        if (call->data[slot] == NULL)
            return false;
    }
    return true;
}

/* Outputs that are donated arguments have their address; the others are in `tensors`, in order. */
static bool foreign_add_outputs(ProgramObject *self, Call *call, PyObject *tensors)
{
    Py_ssize_t next = 0;
    for (Py_ssize_t i = 0; i < self->output_count; i++) {
        int alias = self->outputs[i].alias;
        Py_ssize_t slot = call->filled++;
        call->arrays[slot] = NULL;
        call->objects[slot] = NULL;
        if (alias >= 0) {
            call->data[slot] = call->data[alias];
            continue;
        }
        PyObject *tensor = PyList_GetItem(tensors, next++);
        if (tensor == NULL)
            return false;
        Py_INCREF(tensor);
        call->objects[slot] = tensor;
        call->data[slot] = foreign_address(tensor);
        if (call->data[slot] == NULL)
            return false;
    }
    return true;
}

static bool foreign_run(ProgramObject *self, Call *call, PyObject *arguments, PyObject *outputs)
{
    if (!foreign_add(call, arguments, self->arg_count) ||
        (self->donated_count > 0 && !check_donated(self, call)) ||
        !foreign_add_outputs(self, call, outputs))
        return false;
    if (is_anything_running() && !check_in_flight(self, call, NULL))
        return false;
    Running running;
    running_begin(&running, self, call);
    bool ok = host_execute(self, call, 0);
    running_end(&running);
    return ok;
}

PyObject *program_run_foreign(PyObject *object, PyObject *const *args, Py_ssize_t nargs)
{
    ProgramObject *self = (ProgramObject *)object;
    if (nargs != 2 || !PyList_Check(args[0]) || !PyList_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "run_foreign() takes two lists of tensors");
        return NULL;
    }
    if (self->device != NULL) {
        PyErr_SetString(PyExc_TypeError, "run_foreign() is for programs of the CPU");
        return NULL;
    }
    if (PyList_Size(args[0]) != self->arg_count) {
        PyErr_Format(PyExc_TypeError, "run_foreign() got %zd arguments, not %zd",
                     PyList_Size(args[0]), self->arg_count);
        return NULL;
    }
    Call call;
    if (!call_begin(&call, self->arg_count + self->output_count))
        return NULL;
    bool ok = foreign_run(self, &call, args[0], args[1]);
    call_end(&call);
    if (!ok)
        return NULL;
    Py_RETURN_NONE;
}
