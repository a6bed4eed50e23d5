/* The ring of a program on a device, as methods of Program: slots are filled while it runs. */
#include "python/devices/devices.h"

#include <sched.h>
#include <time.h>

/* A look at the word costs little: this often before the thread sleeps in between. */
enum { QUICK_LOOKS = 20000, SLEEP_NS = 20000, SLEEPS_BETWEEN_SIGNALS = 500 };

static bool ring_check(const ProgramObject *self)
{
    if (self->on_device != NULL)
        return true;
    PyErr_SetString(PyExc_ValueError, "the program is not for a device");
    return false;
}

/* The memory of the values of a slot: arrays of the host, which the caller has checked. */
static bool ring_read_arrays(PyObject *arrays, const void **data, Py_ssize_t most,
                             Py_ssize_t *count)
{
    if (!PyTuple_Check(arrays) || PyTuple_Size(arrays) > most) {
        PyErr_SetString(PyExc_TypeError, "a tuple of arrays is needed, one for each value");
        return false;
    }
    *count = PyTuple_Size(arrays);
    for (Py_ssize_t i = 0; i < *count; i++) {
        PyObject *array = PyTuple_GetItem(arrays, i);
        if (!PyArray_CheckExact(array) || !PyArray_IS_C_CONTIGUOUS((PyArrayObject *)array)) {
            PyErr_Format(PyExc_TypeError, "value %zd is not a dense array", i);
            return false;
        }
        data[i] = PyArray_DATA((PyArrayObject *)array);
    }
    return true;
}

/* Whether an array has as many bytes as the part of a slot. */
static bool ring_check_size(PyObject *arrays, Py_ssize_t i, Py_ssize_t nbytes)
{
    PyArrayObject *array = (PyArrayObject *)PyTuple_GetItem(arrays, i);
    if (PyArray_NBYTES(array) == nbytes)
        return true;
    PyErr_Format(PyExc_ValueError, "value %zd has %zd bytes, not %zd", i,
                 (Py_ssize_t)PyArray_NBYTES(array), nbytes);
    return false;
}

static bool ring_check_sizes(const ProgramObject *self, PyObject *arrays, Py_ssize_t count,
                             bool is_input)
{
    Py_ssize_t expected = 0;
    const Spec *specs = is_input ? self->args : self->outputs;
    Py_ssize_t end = is_input ? self->input_count : self->output_count;
    uint64_t slots = nova_device_ring_slots(self->on_device);
    for (Py_ssize_t i = 0; slots > 0 && i < end; i++) {
        const Spec *spec = &specs[i];
        if (!is_input && spec->alias >= 0)
            continue;
        if (expected < count &&
            !ring_check_size(arrays, expected, (Py_ssize_t)(spec->nbytes / slots)))
            return false;
        expected++;
    }
    if (slots > 0 && expected == count)
        return true;
    PyErr_Format(PyExc_ValueError, "a ring with %llu slots takes %zd values, not %zd",
                 (unsigned long long)slots, expected, count);
    return false;
}

PyObject *program_ring_push(PyObject *object, PyObject *arrays)
{
    ProgramObject *self = (ProgramObject *)object;
    Py_ssize_t count = 0, most = self->input_count + 1;
    const void **data = PyMem_Calloc((size_t)most, sizeof *data);
    if (data == NULL)
        return PyErr_NoMemory();
    bool is_ready = ring_check(self) && ring_read_arrays(arrays, data, most, &count) &&
                    ring_check_sizes(self, arrays, count, true);
    nova_error error;
    nova_status status = NOVA_OK;
    if (is_ready) {
        Py_BEGIN_ALLOW_THREADS
        status = nova_device_ring_push(self->on_device, data, &error);
        Py_END_ALLOW_THREADS
    }
    PyMem_Free(data);
    if (status != NOVA_OK)
        raise_device_error((DeviceObject *)self->device, &error);
    if (!is_ready || status != NOVA_OK)
        return NULL;
    Py_RETURN_NONE;
}

PyObject *program_ring_read(PyObject *object, PyObject *args)
{
    ProgramObject *self = (ProgramObject *)object;
    unsigned int number;
    PyObject *arrays;
    if (!PyArg_ParseTuple(args, "IO:ring_read", &number, &arrays))
        return NULL;
    Py_ssize_t count = 0, most = self->output_count + 1;
    void **data = PyMem_Calloc((size_t)most, sizeof *data);
    if (data == NULL)
        return PyErr_NoMemory();
    bool is_ready = ring_check(self) &&
                    ring_read_arrays(arrays, (const void **)data, most, &count) &&
                    ring_check_sizes(self, arrays, count, false);
    nova_error error;
    nova_status status = NOVA_OK;
    if (is_ready) {
        Py_BEGIN_ALLOW_THREADS
        status = nova_device_ring_read(self->on_device, number, data, &error);
        Py_END_ALLOW_THREADS
    }
    PyMem_Free(data);
    if (status != NOVA_OK)
        raise_device_error((DeviceObject *)self->device, &error);
    if (!is_ready || status != NOVA_OK)
        return NULL;
    Py_RETURN_NONE;
}

/* Waits until more than `number` repetitions are complete, or for so many seconds. */
static nova_status ring_wait_quietly(const ProgramObject *self, uint32_t number, uint64_t until_ns,
                                     bool *is_done)
{
    const struct timespec moment = {.tv_nsec = SLEEP_NS};
    for (uint64_t looks = 0; !*is_done; looks++) {
        *is_done = nova_device_ring_done(self->on_device) > number;
        if (*is_done)
            break;
        if (looks >= QUICK_LOOKS) {
            (void)nanosleep(&moment, NULL);
            if ((looks - QUICK_LOOKS) % SLEEPS_BETWEEN_SIGNALS == SLEEPS_BETWEEN_SIGNALS - 1)
                break; /* signals are looked at, which needs the GIL */
        } else if (looks % 64 == 63) {
            (void)sched_yield();
        }
        if (looks % 64 == 63 && nova_clock_ns() >= until_ns)
            return NOVA_TIMEOUT;
    }
    return NOVA_OK;
}

PyObject *program_ring_wait(PyObject *object, PyObject *args)
{
    ProgramObject *self = (ProgramObject *)object;
    unsigned int number;
    double seconds;
    if (!PyArg_ParseTuple(args, "Id:ring_wait", &number, &seconds) || !ring_check(self))
        return NULL;
    uint64_t until_ns = nova_clock_ns() + (uint64_t)(seconds * 1e9);
    bool is_done = false;
    nova_status status = NOVA_OK;
    while (!is_done && status == NOVA_OK && nova_clock_ns() < until_ns) {
        Py_BEGIN_ALLOW_THREADS
        status = ring_wait_quietly(self, number, until_ns, &is_done);
        Py_END_ALLOW_THREADS
        if (PyErr_CheckSignals() != 0)
            return NULL;
    }
    return PyBool_FromLong(is_done);
}

PyObject *program_ring_is_running(PyObject *object, PyObject *unused)
{
    (void)unused;
    ProgramObject *self = (ProgramObject *)object;
    return ring_check(self) ? PyBool_FromLong(nova_device_ring_is_running(self->on_device)) : NULL;
}

PyObject *program_ring_end(PyObject *object, PyObject *unused)
{
    (void)unused;
    ProgramObject *self = (ProgramObject *)object;
    if (!ring_check(self))
        return NULL;
    nova_error error;
    nova_status status;
    Py_BEGIN_ALLOW_THREADS
    status = nova_device_ring_end(self->on_device, &error);
    Py_END_ALLOW_THREADS
    if (status != NOVA_OK) {
        raise_device_error((DeviceObject *)self->device, &error);
        return NULL;
    }
    Py_RETURN_NONE;
}

PyObject *program_ring_release(PyObject *object, PyObject *unused)
{
    (void)unused;
    ProgramObject *self = (ProgramObject *)object;
    if (!ring_check(self))
        return NULL;
    nova_device_ring_release(self->on_device);
    Py_RETURN_NONE;
}
