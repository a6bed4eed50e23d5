/* Collecting the arguments of a call: used in place or converted, and checked. */
#include "python/calls/calls.h"

bool call_begin(Call *call, Py_ssize_t slots)
{
    call->filled = 0;
    call->location = WITH_INPUTS;
    if (slots <= STACK_SLOTS) {
        call->objects = call->stack_objects;
        call->arrays = call->stack_arrays;
        call->data = call->stack_data;
        return true;
    }
    call->objects = PyMem_Malloc(3 * (size_t)slots * sizeof(void *));
    if (call->objects == NULL) {
        PyErr_NoMemory();
        return false;
    }
    call->arrays = call->objects + slots;
    call->data = (void **)(call->arrays + slots);
    return true;
}

void call_end(Call *call)
{
    for (Py_ssize_t i = 0; i < call->filled; i++) {
        Py_XDECREF(call->objects[i]);
        Py_XDECREF(call->arrays[i]);
    }
    if (call->objects != call->stack_objects)
        PyMem_Free(call->objects);
}

/* --- asking ----------------------------------------------------------------------------------- */

/* Makes the converter of a copy, from the sizes of all axes. */
static bool arguments_make_convert(ProgramObject *self)
{
    Py_ssize_t count = 0;
    for (Py_ssize_t i = 0; i < self->arg_count; i++)
        count += self->args[i].rank;
    for (Py_ssize_t i = 0; i < self->output_count; i++)
        count += self->outputs[i].rank;
    PyObject *extents = PyTuple_New(count);
    for (Py_ssize_t i = 0; extents != NULL && i < count; i++) {
        PyObject *number = PyLong_FromLongLong(self->extents[i]);
        if (number == NULL || PyTuple_SetItem(extents, i, number) < 0) { /* steals */
            Py_DECREF(extents);
            return false;
        }
    }
    if (extents == NULL)
        return false;
    PyObject *convert = PyObject_CallFunction(self->make_convert, "(N)", extents);
    if (convert == NULL)
        return false;
    PyObject *before = self->convert;
    self->convert = convert;
    Py_DECREF(before);
    return true;
}

PyObject *ask(ProgramObject *self, Py_ssize_t index, PyObject *object, bool is_output)
{
    if (self->convert == Py_None && self->make_convert != NULL && !arguments_make_convert(self))
        return NULL;
    return PyObject_CallFunction(self->convert, "nOO", index, object,
                                 is_output ? Py_True : Py_False);
}

void ask_to_raise(ProgramObject *self, Py_ssize_t index, Py_ssize_t value, bool is_output,
                  const char *otherwise)
{
    PyObject *number = PyLong_FromSsize_t(value);
    if (number == NULL)
        return;
    PyObject *result = ask(self, index, number, is_output);
    Py_DECREF(number);
    if (result == NULL)
        return;
    Py_DECREF(result);
    PyErr_SetString(PyExc_ValueError, otherwise);
}

/* --- arguments -------------------------------------------------------------------------------- */

static bool arguments_convert(ProgramObject *self, Call *call, Py_ssize_t index)
{
    PyObject *array = NULL;
    if (self->device != NULL)
        array = device_exchange(self, &self->args[index], call->objects[index]);
    if (array == NULL && !PyErr_Occurred())
        array = ask(self, index, call->objects[index], false);
    if (array == NULL)
        return false;
    call->arrays[index] = array;
    if (conforms(self, &self->args[index], array))
        return true;
    PyErr_Format(PyExc_ValueError,
                 "argument %zd: the converted object is not an array of the "
                 "compiled shape, type and layout",
                 index);
    return false;
}

bool add_argument(ProgramObject *self, Call *call, PyObject *object)
{
    Py_ssize_t index = call->filled++;
    Py_INCREF(object);
    call->objects[index] = object;
    call->arrays[index] = NULL;
    if (!conforms(self, &self->args[index], object)) {
        if (!arguments_convert(self, call, index))
            return false;
        object = call->arrays[index];
    }
    call->data[index] = data_of(object);
    return true;
}

bool add_sequence(ProgramObject *self, Call *call, PyObject *items, Py_ssize_t count)
{
    bool is_list = PyList_Check(items);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = is_list ? PyList_GetItem(items, i) : PyTuple_GetItem(items, i);
        if (item == NULL || !add_argument(self, call, item))
            return false;
    }
    return true;
}

bool check_donated(ProgramObject *self, Call *call)
{
    size_t bytes = (size_t)self->arg_count * sizeof(void *);
    if (memcmp(self->disjoint, call->data, bytes) == 0)
        return true;
    for (Py_ssize_t i = 0; i < self->arg_count; i++) {
        if (!(self->args[i].flags & NPY_ARRAY_WRITEABLE))
            continue;
        for (Py_ssize_t k = 0; k < self->arg_count; k++) {
            if (k != i &&
                overlap(call->data[i], self->args[i].nbytes, call->data[k], self->args[k].nbytes)) {
                ask_to_raise(self, -2, i, false, "a donated argument overlaps another argument");
                return false;
            }
        }
    }
    memcpy(self->disjoint, call->data, bytes);
    return true;
}

/* --- the whole call --------------------------------------------------------------------------- */

bool call_complete(ProgramObject *self, Call *call, PyObject *out)
{
    return (self->donated_count == 0 || check_donated(self, call)) &&
           (self->device == NULL || device_choose_stream(self, call)) &&
           add_outputs(self, call, out);
}

bool call_output_location(ProgramObject *self, PyObject *outputs, OutputLocation *location)
{
    *location = WITH_INPUTS;
    if (outputs == Py_None || self->device != NULL)
        return read_output_location(outputs, location);
    ask_to_raise(self, -5, 0, true, "a program for a CPU has its results on the host");
    return false;
}

bool call_collect(ProgramObject *self, Call *call, PyObject *arrays, PyObject *out,
                  OutputLocation location)
{
    Py_ssize_t count = PyTuple_Check(arrays) ? PyTuple_Size(arrays) : PyList_Size(arrays);
    if (count != self->arg_count) {
        if (count >= 0)
            ask_to_raise(self, -1, count, false, "wrong number of arguments");
        return false;
    }
    if (!call_begin(call, self->arg_count + self->output_count))
        return false;
    call->location = location;
    if (add_sequence(self, call, arrays, count) && call_complete(self, call, out))
        return true;
    call_end(call);
    return false;
}

PyObject *call_result(ProgramObject *self, Call *call)
{
    PyObject **outputs = call->objects + self->arg_count;
    if (self->output_count == 1) {
        PyObject *result = outputs[0];
        outputs[0] = NULL;
        return result;
    }
    PyObject *result = PyTuple_New(self->output_count);
    for (Py_ssize_t i = 0; result != NULL && i < self->output_count; i++) {
        PyTuple_SetItem(result, i, outputs[i]); /* steals */
        outputs[i] = NULL;
    }
    return result;
}
