/* Traces of runs on devices, as items of the open traces: a capsule each, which is read on demand.
 *
 * A run that does not wait for its device leaves pending events. The number of such runs is
 * bounded: before one more is added, the oldest is waited for and its events are reused. */
#include "python/native.h"

static const char DEVICE_TRACE_NAME[] = "nova.device_trace";

enum { MOST_UNREAD = 32 };
static PyObject *device_trace_unread[MOST_UNREAD]; /* capsules or NULL; guarded by the GIL */
static unsigned device_trace_next_unread;

static void device_trace_destroy(PyObject *capsule)
{
    nova_device_trace_destroy(PyCapsule_GetPointer(capsule, DEVICE_TRACE_NAME));
    Py_XDECREF((PyObject *)PyCapsule_GetContext(capsule)); /* the program, and with it the device */
}

nova_device_trace *device_trace_begin(const ProgramObject *self, PyObject *sinks)
{
    if (sinks == NULL)
        return NULL;
    nova_device *device = program_device(self);
    nova_device_trace *trace = NULL;
    nova_error ignored; /* the run itself reports a lost device */
    Py_BEGIN_ALLOW_THREADS(void)
    nova_device_trace_create(device, &trace, &ignored);
    Py_END_ALLOW_THREADS
    return trace;
}

static void device_trace_settle(PyObject *capsule, nova_device_timeline *timeline)
{
    nova_device_trace *trace = PyCapsule_GetPointer(capsule, DEVICE_TRACE_NAME);
    Py_BEGIN_ALLOW_THREADS
    nova_device_trace_read(trace, timeline);
    Py_END_ALLOW_THREADS
}

/* Adds a capsule to those that may be unread, replacing the oldest. */
static void device_trace_keep(PyObject *capsule)
{
    nova_device_timeline unused;
    /* a submitted run that ended after the block: it would never be released */
    if (trace_sinks == NULL) {
        device_trace_settle(capsule, &unused);
        return;
    }
    PyObject *oldest = device_trace_unread[device_trace_next_unread];
    Py_INCREF(capsule);
    device_trace_unread[device_trace_next_unread] = capsule;
    device_trace_next_unread = (device_trace_next_unread + 1) % MOST_UNREAD;
    if (oldest == NULL)
        return;
    device_trace_settle(oldest, &unused);
    Py_DECREF(oldest);
}

void device_trace_add(ProgramObject *self, PyObject *sinks, nova_device_trace *trace)
{
    if (trace == NULL)
        return;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback); /* of a run that failed */
    PyObject *capsule = PyCapsule_New(trace, DEVICE_TRACE_NAME, device_trace_destroy);
    if (capsule == NULL) {
        nova_device_trace_destroy(trace);
    } else {
        Py_INCREF((PyObject *)self);
        (void)PyCapsule_SetContext(capsule, self);
        device_trace_keep(capsule);
    }
    trace_append(self, sinks, capsule != NULL ? PyTuple_Pack(2, (PyObject *)self, capsule) : NULL);
    Py_XDECREF(capsule);
    PyErr_Restore(type, value, traceback);
}

void device_traces_forget(void)
{
    for (unsigned i = 0; i < MOST_UNREAD; i++)
        Py_CLEAR(device_trace_unread[i]);
}

PyObject *module_read_device_trace(PyObject *module, PyObject *capsule)
{
    (void)module;
    if (!PyCapsule_IsValid(capsule, DEVICE_TRACE_NAME)) {
        PyErr_SetString(PyExc_TypeError, "read_device_trace() takes what a run left in a trace");
        return NULL;
    }
    nova_device_timeline t;
    device_trace_settle(capsule, &t);
    return Py_BuildValue("KKKy#y#", (unsigned long long)t.start_ns, (unsigned long long)t.end_ns,
                         (unsigned long long)t.lost, t.spans != NULL ? (const char *)t.spans : "",
                         (Py_ssize_t)(t.span_count * sizeof *t.spans),
                         t.values != NULL ? (const char *)t.values : "",
                         (Py_ssize_t)(t.value_count * sizeof *t.values));
}
