/* The type Run, and program.submit, which makes one. */
#include "python/runs/runs.h"

static Run *run_make(ProgramObject *program, Stream *stream)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(run_type, Py_tp_alloc);
    Run *run = (Run *)alloc(run_type, 0); /* cleared */
    if (run == NULL)
        return NULL;
    run->state = REAPED; /* there is nothing to reap yet */
    Py_INCREF((PyObject *)program);
    run->program = program;
    Py_XINCREF((PyObject *)stream);
    run->stream = stream;
    run->sinks = trace_sinks_now();
    return run;
}

/* What a run needs before it can start; false with an exception. */
static bool run_prepare(Run *run)
{
    ProgramObject *program = run->program;
    if (program->device != NULL)
        return device_run_prepare(run);
    unsigned workers = settings_threads();
    nova_status status = nova_execution_take_for(
        program->program, workers, trace_capacity(program, workers, run->sinks), &run->execution);
    if (status != NOVA_OK) {
        raise_run_status(status, "the run cannot be prepared");
        return false;
    }
    run->execution->owner = run;
    run->options.trace = run->execution->trace_capacity > 0;
    apply_settings(run->execution, &run->options);
    return true;
}

/* Adds a run to those in flight, with a reference until it is reaped, and starts it if possible. */
static void run_start(Run *run)
{
    Py_INCREF((PyObject *)run);
    run->before = newest_run;
    if (newest_run != NULL)
        newest_run->after = run;
    else
        runs_in_flight = run;
    newest_run = run;

    pthread_mutex_lock(&runs_lock);
    run->state = QUEUED;
    Stream *queue = run->stream;
    bool is_first = queue == NULL || queue->last == NULL;
    if (!is_first)
        queue->last->next = run;
    else if (queue != NULL)
        queue->first = run;
    if (queue != NULL)
        queue->last = run;
    bool at_once = run->program->device != NULL && device_run_may_start(run);
    if (at_once) {
        run->state = RUNNING;
        run->is_enqueued = run->begun = true;
    } else if (is_first) {
        runs_start(run);
    }
    pthread_mutex_unlock(&runs_lock);
    if (at_once)
        device_run_enqueue(run);
}

PyObject *program_submit(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"arrays", "out", "stream", "timeout", "outputs", NULL};
    ProgramObject *self = (ProgramObject *)object;
    PyObject *arrays, *out = Py_None, *stream = Py_None, *timeout = Py_None, *outputs = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OOOO:submit", names, &arrays, &out, &stream,
                                     &timeout, &outputs))
        return NULL;
    if (!PyTuple_Check(arrays) && !PyList_Check(arrays)) {
        PyErr_SetString(PyExc_TypeError, "submit() takes a list or tuple of arrays");
        return NULL;
    }
    if (stream != Py_None && !PyObject_TypeCheck(stream, stream_type)) {
        PyErr_SetString(PyExc_TypeError, "stream must be a Stream or None");
        return NULL;
    }
    if (runs_closing) {
        PyErr_SetString(PyExc_RuntimeError, "the interpreter exits: no run can be submitted");
        return NULL;
    }
    OutputLocation location;
    if (!call_output_location(self, outputs, &location))
        return NULL;
    PyObject *order = stream != Py_None ? stream : NULL;
    Run *run = run_make(self, (Stream *)order);
    if (run == NULL)
        return NULL;
    if (!read_timeout(timeout, &run->options.timeout_ns) ||
        !call_collect(self, &run->call, arrays, out != Py_None ? out : NULL, location)) {
        Py_DECREF((PyObject *)run);
        return NULL;
    }
    if ((is_anything_running() && !check_in_flight(self, &run->call, order)) || !run_prepare(run)) {
        PyMem_Free(run->values);
        run->values = NULL;
        call_end(&run->call);
        Py_DECREF((PyObject *)run);
        return NULL;
    }
    run_start(run);
    return (PyObject *)run;
}

static PyObject *run_wait(Run *self, PyObject *timeout)
{
    uint64_t timeout_ns;
    if (!read_timeout(timeout, &timeout_ns))
        return NULL;
    int result = run_wait_for(self, timeout == Py_None ? UINT64_MAX : timeout_ns - 1);
    return result < 0 ? NULL : PyBool_FromLong(result);
}

static PyObject *run_finished(Run *self, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(run_reap(self));
}

static PyObject *run_cancel(Run *self, PyObject *unused)
{
    (void)unused;
    pthread_mutex_lock(&runs_lock);
    bool on_device = self->program->device != NULL;
    /* A device cannot be stopped; host kernels between device kernels can. */
    bool is_late =
        on_device && self->begun && !nova_device_program_is_mixed(self->program->on_device);
    bool going = self->state < FINISHED && !is_late;
    if (going)
        self->cancelled = true;
    if (self->state == RUNNING && !on_device)
        nova_instance_cancel(self->execution->instance);
    pthread_mutex_unlock(&runs_lock);
    return PyBool_FromLong(going);
}

static PyObject *run_watch(Run *self, PyObject *unused)
{
    (void)unused;
    pthread_mutex_lock(&runs_lock);
    bool going = self->state < FINISHED;
    if (going)
        self->is_awaited = true;
    pthread_mutex_unlock(&runs_lock);
    return PyBool_FromLong(going);
}

static PyObject *run_outcome(Run *self, PyObject *unused)
{
    (void)unused;
    if (!run_reap(self)) {
        PyErr_SetString(PyExc_RuntimeError, "the run has not ended");
        return NULL;
    }
    if (self->error != NULL && self->stream != NULL && self->stream->error == self->error) {
        Py_DECREF(self->error); /* reported now */
        self->stream->error = NULL;
    }
    return PyTuple_Pack(2, self->result != NULL ? self->result : Py_None,
                        self->error != NULL ? self->error : Py_None);
}

static int run_traverse(Run *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT((PyObject *)self->program);
    Py_VISIT((PyObject *)self->stream);
    Py_VISIT(self->sinks);
    Py_VISIT(self->result);
    Py_VISIT(self->error);
    return 0;
}

/* Nothing of a run in flight is cleared: the lists have references to it. */
static int run_clear(Run *self)
{
    Py_CLEAR(self->result);
    Py_CLEAR(self->error);
    return 0;
}

static void run_dealloc(Run *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    run_clear(self);
    Py_XDECREF(self->sinks);
    Py_XDECREF((PyObject *)self->stream);
    Py_XDECREF((PyObject *)self->program);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyMethodDef run_methods[] = {
    {"wait", (PyCFunction)run_wait, METH_O,
     "wait(timeout)\n--\n\nWaits up to so many seconds (None: without limit); whether it ended."},
    {"done", (PyCFunction)run_finished, METH_NOARGS, "done()\n--\n\nWhether it ended."},
    {"cancel", (PyCFunction)run_cancel, METH_NOARGS,
     "cancel()\n--\n\nAsks it to stop between two tasks; False when it has ended, or only a device "
     "has it."},
    {"watch", (PyCFunction)run_watch, METH_NOARGS,
     "watch()\n--\n\nHas await_finished() return it when it ends; False when it has ended."},
    {"outcome", (PyCFunction)run_outcome, METH_NOARGS,
     "outcome()\n--\n\nOf a run that ended: (result, None) or (None, exception)."},
    {0},
};

static PyType_Slot run_slots[] = {
    {Py_tp_doc, "A submitted run, created by Program.submit."},
    {Py_tp_dealloc, run_dealloc},
    {Py_tp_traverse, run_traverse},
    {Py_tp_clear, run_clear},
    {Py_tp_methods, run_methods},
    {0, NULL},
};

PyType_Spec run_spec = {
    .name = "nova._native.Run",
    .basicsize = sizeof(Run),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = run_slots,
};
