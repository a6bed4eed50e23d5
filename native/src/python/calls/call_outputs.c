/* The outputs of a call: arrays of the caller, donated arguments, or new arrays. */
#include "python/calls/calls.h"

/* Whether the bytes of output `index` are shared with an argument or an output before it. */
static bool outputs_is_shared(ProgramObject *self, Call *call, Py_ssize_t index, const void *data)
{
    size_t nbytes = self->outputs[index].nbytes;
    for (Py_ssize_t i = 0; i < self->arg_count; i++)
        if (overlap(data, nbytes, call->data[i], self->args[i].nbytes))
            return true;
    for (Py_ssize_t i = 0; i < index; i++)
        if (overlap(data, nbytes, call->data[self->arg_count + i], self->outputs[i].nbytes))
            return true;
    return false;
}

static bool outputs_use_caller_output(ProgramObject *self, Call *call, Py_ssize_t index,
                                      PyObject *object)
{
    const Spec *spec = &self->outputs[index];
    Py_ssize_t slot = call->filled++;
    Py_INCREF(object);
    call->objects[slot] = object;
    call->arrays[slot] = NULL;
    if (conforms(self, spec, object) && !outputs_is_shared(self, call, index, data_of(object))) {
        call->data[slot] = data_of(object);
        return true;
    }
    PyObject *array = ask(self, index, object, true);
    if (array == NULL)
        return false;
    call->arrays[slot] = array;
    if (!conforms(self, spec, array)) {
        PyErr_Format(PyExc_ValueError,
                     "output %zd: the object given as out is not a writable array "
                     "of the compiled shape, type and layout",
                     index);
        return false;
    }
    call->data[slot] = data_of(array);
    if (outputs_is_shared(self, call, index, call->data[slot])) {
        PyObject *again = ask(self, index, array, true); /* to raise for the array itself */
        if (again == NULL)
            return false;
        Py_DECREF(again);
        PyErr_Format(PyExc_ValueError,
                     "output %zd: the array given as out shares memory with an "
                     "argument or another output",
                     index);
        return false;
    }
    return true;
}

/* The output is the donated argument itself, so `out` can only name that very object. */
static bool outputs_use_donated(ProgramObject *self, Call *call, Py_ssize_t index, PyObject *out)
{
    int alias = self->outputs[index].alias;
    if (out != NULL && out != call->objects[alias]) {
        PyObject *array = ask(self, index, out, true);
        if (array == NULL)
            return false;
        Py_DECREF(array);
        PyErr_Format(PyExc_ValueError,
                     "output %zd is the donated argument %d: out must be that "
                     "object or None",
                     index, alias);
        return false;
    }
    Py_ssize_t slot = call->filled++;
    Py_INCREF(call->objects[alias]);
    call->objects[slot] = call->objects[alias];
    call->arrays[slot] = NULL;
    call->data[slot] = call->data[alias];
    return true;
}

static inline bool outputs_allocate(ProgramObject *self, Call *call, Py_ssize_t index)
{
    PyObject *array = self->device == NULL ? result_array(&self->outputs[index])
                                           : device_output(self, call, &self->outputs[index]);
    if (array == NULL)
        return false;
    Py_ssize_t slot = call->filled++;
    call->objects[slot] = array;
    call->arrays[slot] = NULL;
    call->data[slot] = data_of(array);
    return true;
}

/* The object for output `index`, borrowed: NULL when Nova is to allocate it. */
static PyObject *outputs_pick(PyObject *out, Py_ssize_t index)
{
    PyObject *item = out;
    if (out != NULL && PyList_Check(out))
        item = PyList_GetItem(out, index);
    else if (out != NULL && PyTuple_Check(out))
        item = PyTuple_GetItem(out, index);
    return item == Py_None ? NULL : item;
}

bool add_outputs(ProgramObject *self, Call *call, PyObject *out)
{
    if (out != NULL) {
        Py_ssize_t count = 1;
        if (PyList_Check(out) || PyTuple_Check(out))
            count = PyObject_Size(out);
        if (count != self->output_count) {
            ask_to_raise(self, -1, count, true, "wrong number of out arrays");
            return false;
        }
    }
    for (Py_ssize_t i = 0; i < self->output_count; i++) {
        PyObject *item = outputs_pick(out, i);
        if (item == NULL && PyErr_Occurred())
            return false; /* `convert` shortened the list */
        bool ok = self->outputs[i].alias >= 0 ? outputs_use_donated(self, call, i, item)
                  : item != NULL              ? outputs_use_caller_output(self, call, i, item)
                                              : outputs_allocate(self, call, i);
        if (!ok)
            return false;
    }
    return true;
}
