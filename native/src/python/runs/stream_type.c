/* The type Stream: an order between submitted runs, and the first error of theirs. */
#include "python/runs/runs.h"

static PyObject *stream_take_error(Stream *self, PyObject *unused)
{
    (void)unused;
    runs_reap();
    PyObject *error = self->error;
    self->error = NULL;
    if (error == NULL)
        Py_RETURN_NONE;
    return error;
}

static int stream_traverse(Stream *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->error);
    return 0;
}

static int stream_clear(Stream *self)
{
    Py_CLEAR(self->error);
    return 0;
}

static void stream_dealloc(Stream *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    stream_clear(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyMethodDef stream_methods[] = {
    {"take_error", (PyCFunction)stream_take_error, METH_NOARGS,
     "take_error()\n--\n\nThe first exception of its runs that was not reported, or None."},
    {0},
};

static PyType_Slot stream_slots[] = {
    {Py_tp_doc, "Stream()\n--\n\nRuns that are submitted with it run one after the other."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, stream_dealloc},
    {Py_tp_traverse, stream_traverse},
    {Py_tp_clear, stream_clear},
    {Py_tp_methods, stream_methods},
    {0, NULL},
};

PyType_Spec stream_spec = {
    .name = "nova._native.Stream",
    .basicsize = sizeof(Stream),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = stream_slots,
};
