/* Run and Stream: runs that were submitted, and the order between them.
 *
 * A run is QUEUED behind the run before it in its stream, RUNNING on the pool, FINISHED when a thread
 * of the pool has ended it, REAPING while a thread with the GIL makes its result or exception and lets
 * go of its arrays, and REAPED then. Threads of the pool never touch Python: that is why it has steps. `lock` guards the states and the streams; it is never held while the GIL is waited for. */
#include "native.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

typedef enum { QUEUED, RUNNING, FINISHED, REAPING, REAPED } State;

typedef struct Stream {
    PyObject_HEAD
    Run *first, *last; /* in flight, in their order; guarded by `lock` */
    PyObject *error;   /* the first exception that nobody has seen, or NULL; guarded by the GIL */
} Stream;

struct Run {
    PyObject_HEAD
    ProgramObject *program;    /* owned */
    Stream *stream;            /* owned, or NULL */
    nova_execution *execution; /* until it is reaped */
    void *workspace;           /* while it is running */
    nova_run_options options;
    Call call;                 /* until it is reaped */
    PyObject *result;          /* when it is reaped: the result or */
    PyObject *error;           /* the exception */
    Run *before, *after;       /* in flight; guarded by the GIL */
    /* Guarded by `lock`: */
    State state;
    nova_status status;
    bool started;        /* its instance was in use */
    bool cancelled;      /* somebody asked for it */
    bool dropped;        /* a run before it in the stream failed */
    bool wanted;         /* by the thread of await_finished, when it has ended */
    bool listed;         /* among finished_runs */
    unsigned waiters;    /* threads in wait() */
    Run *next;           /* in the stream */
    Run *next_finished;  /* in the list of await_finished */
};

Run *runs_in_flight;    /* the oldest */
static Run *newest_run; /* guarded by the GIL, as that one */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;  /* a run that has waiters ended */
static pthread_cond_t noticed;  /* there is something for await_finished */
static Run *finished_runs;      /* for await_finished; see `reap` for who holds references */
static bool closing;            /* guarded by the GIL */

enum { SLICE_MS = 50 }; /* how often a waiting thread looks at signals */

/* --- without the GIL: starting and ending ------------------------------------------------------ */

static void on_done(void *context, nova_status status);

/* Starts a run whose turn it is; `lock` is held. What it returns other than NOVA_OK ends the run. */
static nova_status start(Run *run)
{
    if (run->cancelled || run->dropped)
        return NOVA_CANCELLED;
    ProgramObject *program = run->program;
    nova_status status = NOVA_OK;
    if (program->pool != NULL)
        status = nova_pool_take(program->pool, &run->workspace);
    if (status == NOVA_OK)
        status = nova_execution_bind(run->execution, run->call.data,
                                     run->call.data + program->arg_count, run->workspace);
    if (status == NOVA_OK) {
        run->state = RUNNING;
        status = nova_instance_submit(run->execution->instance, nova_execution_task,
                                      run->execution, &run->options, on_done);
        run->started = status == NOVA_OK;
    }
    return status;
}

/* Notes the end of a run; `lock` is held. Returns the next run of the stream, whose turn it is. */
static Run *end(Run *run, nova_status status)
{
    nova_pool_give(run->program->pool, run->workspace);
    run->workspace = NULL;
    run->status = status;
    run->state = FINISHED;
    if (run->waiters > 0)
        pthread_cond_broadcast(&changed);
    if (run->waiters == 0 || run->wanted) {
        run->next_finished = finished_runs;
        finished_runs = run;
        run->listed = true;
        pthread_cond_signal(&noticed);
    }
    Stream *stream = run->stream;
    if (stream == NULL)
        return NULL;
    stream->first = run->next;
    if (stream->first == NULL)
        stream->last = NULL;
    if (status != NOVA_OK)
        for (Run *later = stream->first; later != NULL; later = later->next)
            later->dropped = true;
    return stream->first;
}

/* Starts a run, and those behind it as long as they end at once; `lock` is held. */
static void start_all(Run *run)
{
    while (run != NULL) {
        nova_status status = start(run);
        if (status == NOVA_OK)
            return;
        run = end(run, status);
    }
}

/* By the thread that ended the run, before its instance can be reused. */
static void on_done(void *context, nova_status status)
{
    pthread_mutex_lock(&lock);
    start_all(end(((nova_execution *)context)->owner, status));
    pthread_mutex_unlock(&lock);
}

/* --- fork -------------------------------------------------------------------------------------- */

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

/* The threads that ran them are not here: all runs of the parent count as cancelled. */
static void in_child(void)
{
    pthread_cond_init(&changed, NULL);
    pthread_cond_init(&noticed, NULL);
    finished_runs = NULL;
    for (Run *run = runs_in_flight; run != NULL; run = run->after) {
        if (run->stream != NULL)
            run->stream->first = run->stream->last = NULL;
        run->waiters = 0;
        run->listed = false;
        if (run->state < FINISHED) {
            run->status = NOVA_CANCELLED;
            run->state = FINISHED;
        }
    }
    pthread_mutex_unlock(&lock);
}

bool init_runs(void)
{
    pthread_condattr_t monotonic;
    if (pthread_condattr_init(&monotonic) != 0 ||
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) != 0 ||
        pthread_cond_init(&changed, &monotonic) != 0 ||
        pthread_cond_init(&noticed, &monotonic) != 0 ||
        pthread_atfork(before_fork, after_fork, in_child) != 0) {
        PyErr_SetString(PyExc_OSError, "the system has no room for a condition variable");
        return false;
    }
    pthread_condattr_destroy(&monotonic);
    return true;
}

/* --- with the GIL: reaping --------------------------------------------------------------------- */

static State state_of(Run *run)
{
    pthread_mutex_lock(&lock);
    State state = run->state;
    pthread_mutex_unlock(&lock);
    return state;
}

PyObject *make_run_error(ProgramObject *self, const nova_execution *execution,
                         const nova_run_result *result, PyObject *cause, bool dropped)
{
    if (self->report == Py_None) {
        if (cause != NULL) {
            Py_INCREF(cause);
            return cause;
        }
        return PyObject_CallFunction(PyExc_RuntimeError, "s", nova_status_text(result->status));
    }
    PyObject *running = PyTuple_New((Py_ssize_t)result->running_count), *states = NULL;
    for (uint32_t i = 0; running != NULL && i < result->running_count; i++) {
        PyObject *task = PyLong_FromUnsignedLong(result->running[i]);
        if (task == NULL) {
            Py_DECREF(running);
            return NULL;
        }
        PyTuple_SetItem(running, (Py_ssize_t)i, task); /* steals */
    }
    if (running != NULL && result->status == NOVA_STALLED) {
        const nova_graph *graph;
        if (nova_program_graph(self->program, &graph) == NOVA_OK)
            states = PyBytes_FromStringAndSize(NULL, nova_graph_get_facts(graph).task_count);
        if (states != NULL)
            (void)nova_instance_states(execution->instance, (uint8_t *)PyBytes_AsString(states));
        PyErr_Clear();
    }
    PyObject *error = NULL;
    if (running != NULL)
        error = PyObject_CallFunction(
            self->report, "iLOOiO", (int)result->status,
            dropped                        ? -2LL
            : result->task == NOVA_NO_TASK ? -1LL
                                           : (long long)result->task,
            running,
            states != NULL ? states : Py_None,
            (int)atomic_load_explicit(&((nova_execution *)(uintptr_t)execution)->reported,
                                      memory_order_relaxed),
            cause != NULL ? cause : Py_None);
    Py_XDECREF(running);
    Py_XDECREF(states);
    return error;
}

/* Takes a run that has ended to be reaped by this thread; else *ended says whether it was before. */
static bool take_finished(Run *run, bool *ended)
{
    pthread_mutex_lock(&lock);
    *ended = run->state == REAPED;
    bool taken = run->state == FINISHED;
    if (taken) {
        run->state = REAPING;
        if (run->listed && run->wanted) {
            Py_INCREF((PyObject *)run); /* the list's own: that of the runs in flight goes */
        } else if (run->listed) {
            Run **link = &finished_runs;
            while (*link != run)
                link = &(*link)->next_finished;
            *link = run->next_finished;
            run->listed = false;
        }
    }
    pthread_mutex_unlock(&lock);
    return taken;
}

/* Whether it has ended. Makes the result of one that has, and lets go of its arrays. */
static bool reap_one(Run *run)
{
    bool ended;
    if (!take_finished(run, &ended))
        return ended;
    nova_run_result outcome = {.task = NOVA_NO_TASK};
    /* The thread that ended it may be about to leave the instance. */
    if (run->started)
        (void)nova_instance_wait(run->execution->instance, UINT64_MAX, &outcome);
    outcome.status = run->status;
    if (run->started)
        trace_add(run->program, run->execution, run->options.policy, &outcome, 0, 0);
    if (run->status == NOVA_OK)
        run->result = call_result(run->program, &run->call);
    else
        run->error = make_run_error(run->program, run->execution, &outcome,
                                    run->dropped ? run->stream->error : NULL, run->dropped);
    if (run->result == NULL && run->error == NULL) {
        PyObject *type, *traceback; /* no memory for either: that is the error then */
        PyErr_Fetch(&type, &run->error, &traceback);
        PyErr_NormalizeException(&type, &run->error, &traceback);
        Py_XDECREF(type);
        Py_XDECREF(traceback);
    }
    if (run->workspace != NULL) { /* of the parent of this process */
        nova_pool_give(run->program->pool, run->workspace);
        run->workspace = NULL;
    }
    nova_execution_give(run->execution);
    run->execution = NULL;
    if (run->error != NULL && run->stream != NULL && run->stream->error == NULL) {
        Py_INCREF(run->error);
        run->stream->error = run->error;
    }
    if (run->before != NULL)
        run->before->after = run->after;
    else
        runs_in_flight = run->after;
    if (run->after != NULL)
        run->after->before = run->before;
    else
        newest_run = run->before;
    call_end(&run->call); /* not before it is out of the list: what it frees may look there */
    pthread_mutex_lock(&lock);
    run->state = REAPED;
    pthread_mutex_unlock(&lock);
    Py_DECREF((PyObject *)run);
    return true;
}

static void reap_all(void)
{
    /* A report is Python: other threads may reap while it runs. So look from the start after each. */
    for (Run *run = runs_in_flight; run != NULL;) {
        if (state_of(run) == FINISHED) {
            reap_one(run);
            run = runs_in_flight;
        } else {
            run = run->after;
        }
    }
}

/* The same for one run, behind those before it in its stream: the first error is the one that counts. */
static bool reap(Run *run)
{
    if (run->stream == NULL)
        return reap_one(run);
    if (state_of(run) == FINISHED)
        reap_all();
    return state_of(run) == REAPED;
}

bool check_in_flight(ProgramObject *self, const Call *call, PyObject *stream)
{
    reap_all();
    for (Run *run = runs_in_flight; run != NULL; run = run->after) {
        if ((stream != NULL && (PyObject *)run->stream == stream) || state_of(run) >= FINISHED)
            continue;
        Py_ssize_t index = call_conflict(self, call, run->program, &run->call);
        if (index >= 0) {
            raise_in_use(self, index);
            return false;
        }
    }
    return true;
}

/* --- waiting ----------------------------------------------------------------------------------- */

bool read_timeout(PyObject *object, uint64_t *timeout_ns)
{
    *timeout_ns = 0;
    if (object == Py_None)
        return true;
    double seconds = PyFloat_AsDouble(object);
    if (seconds == -1.0 && PyErr_Occurred())
        return false;
    if (!(seconds >= 0)) {
        PyErr_Format(PyExc_ValueError, "a timeout of %R seconds", object);
        return false;
    }
    /* 0 means that there is none: the shortest one is a nanosecond. */
    *timeout_ns = seconds < 1e9 ? (uint64_t)(seconds * 1e9) + 1 : UINT64_C(1000000000000000000);
    return true;
}

static struct timespec soon(uint64_t ns)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    uint64_t nanoseconds = (uint64_t)time.tv_nsec + ns;
    time.tv_sec += (time_t)(nanoseconds / 1000000000u);
    time.tv_nsec = (long)(nanoseconds % 1000000000u);
    return time;
}

/* Waits up to a moment for a run to end. Without the GIL. */
static void wait_a_moment(Run *run, uint64_t ns)
{
    struct timespec until = soon(ns);
    pthread_mutex_lock(&lock);
    run->waiters++;
    int result = 0;
    while (run->state < FINISHED && result != ETIMEDOUT)
        result = pthread_cond_timedwait(&changed, &lock, &until);
    run->waiters--;
    pthread_mutex_unlock(&lock);
}

/* 1 when it has ended, 0 when the time is over (0 ns: only looks), -1 with an exception. */
static int wait_for(Run *run, uint64_t timeout_ns)
{
    const uint64_t slice = SLICE_MS * UINT64_C(1000000);
    uint64_t now = nova_clock_ns(), until;
    if (__builtin_add_overflow(now, timeout_ns, &until))
        until = UINT64_MAX;
    while (!reap(run)) {
        now = nova_clock_ns();
        if (now >= until)
            return 0;
        uint64_t ns = until - now < slice ? until - now : slice;
        Py_BEGIN_ALLOW_THREADS
        if (state_of(run) == REAPING) /* by another thread, which is quick */
            (void)nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
        else
            wait_a_moment(run, ns);
        Py_END_ALLOW_THREADS
        if (PyErr_CheckSignals() < 0)
            return -1;
    }
    return 1;
}

PyObject *module_reap(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    reap_all();
    Py_RETURN_NONE;
}

PyObject *module_drain(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    closing = true;
    while (runs_in_flight != NULL) {
        Run *run = runs_in_flight;
        Py_INCREF((PyObject *)run);
        int result = wait_for(run, UINT64_MAX);
        Py_DECREF((PyObject *)run);
        if (result < 0)
            return NULL;
    }
    Py_RETURN_NONE;
}

PyObject *module_await_finished(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&lock);
    while (finished_runs == NULL)
        pthread_cond_wait(&noticed, &lock);
    pthread_mutex_unlock(&lock);
    Py_END_ALLOW_THREADS
    PyObject *found = PyList_New(0);
    if (found == NULL)
        return NULL;
    for (;;) {
        pthread_mutex_lock(&lock);
        Run *run = finished_runs;
        bool owned = false;
        if (run != NULL) {
            finished_runs = run->next_finished;
            run->listed = false;
            owned = run->state > FINISHED; /* `take_finished` has left a reference here */
        }
        pthread_mutex_unlock(&lock);
        if (run == NULL)
            return found;
        int result = run->wanted ? PyList_Append(found, (PyObject *)run) : 0;
        if (!owned) {
            Py_INCREF((PyObject *)run);
            reap(run);
        }
        Py_DECREF((PyObject *)run);
        if (result < 0) {
            Py_DECREF(found);
            return NULL;
        }
    }
}

/* --- Run --------------------------------------------------------------------------------------- */

static Run *make_run(ProgramObject *program, Stream *stream)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(run_type, Py_tp_alloc);
    Run *run = (Run *)alloc(run_type, 0); /* cleared */
    if (run == NULL)
        return NULL;
    run->state = REAPED; /* nothing to reap yet */
    Py_INCREF((PyObject *)program);
    run->program = program;
    Py_XINCREF((PyObject *)stream);
    run->stream = stream;
    return run;
}

PyObject *program_submit(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"arrays", "out", "stream", "timeout", NULL};
    ProgramObject *self = (ProgramObject *)object;
    PyObject *arrays, *out = Py_None, *stream = Py_None, *timeout = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OOO:submit", names, &arrays, &out, &stream,
                                     &timeout))
        return NULL;
    if (!PyTuple_Check(arrays) && !PyList_Check(arrays)) {
        PyErr_SetString(PyExc_TypeError, "submit() takes a list or tuple of arrays");
        return NULL;
    }
    if (stream != Py_None && !PyObject_TypeCheck(stream, stream_type)) {
        PyErr_SetString(PyExc_TypeError, "stream must be a Stream or None");
        return NULL;
    }
    if (closing) {
        PyErr_SetString(PyExc_RuntimeError, "the interpreter exits: no run can be submitted");
        return NULL;
    }
    PyObject *order = stream != Py_None ? stream : NULL;
    Run *run = make_run(self, (Stream *)order);
    if (run == NULL)
        return NULL;
    if (!read_timeout(timeout, &run->options.timeout_ns) ||
        !call_collect(self, &run->call, arrays, out != Py_None ? out : NULL)) {
        Py_DECREF((PyObject *)run);
        return NULL;
    }
    if (runs_in_flight != NULL && !check_in_flight(self, &run->call, order)) {
        call_end(&run->call);
        Py_DECREF((PyObject *)run);
        return NULL;
    }
    nova_status status =
        nova_execution_take(self->program, trace_capacity(self), &run->execution);
    if (status != NOVA_OK) {
        raise_status(status, "the run cannot be prepared");
        call_end(&run->call);
        Py_DECREF((PyObject *)run);
        return NULL;
    }
    run->execution->owner = run;
    run->options.trace = run->execution->trace_capacity > 0;
    apply_settings(run->execution, &run->options);
    /* In flight, with a reference until it is reaped. */
    Py_INCREF((PyObject *)run);
    run->before = newest_run;
    if (newest_run != NULL)
        newest_run->after = run;
    else
        runs_in_flight = run;
    newest_run = run;

    pthread_mutex_lock(&lock);
    run->state = QUEUED;
    Stream *queue = run->stream;
    if (queue != NULL && queue->last != NULL) {
        queue->last->next = run;
        queue->last = run;
    } else {
        if (queue != NULL)
            queue->first = queue->last = run;
        start_all(run);
    }
    pthread_mutex_unlock(&lock);
    return (PyObject *)run;
}

static PyObject *run_wait(Run *self, PyObject *timeout)
{
    uint64_t timeout_ns;
    if (!read_timeout(timeout, &timeout_ns))
        return NULL;
    int result = wait_for(self, timeout == Py_None ? UINT64_MAX : timeout_ns - 1);
    return result < 0 ? NULL : PyBool_FromLong(result);
}

static PyObject *run_done(Run *self, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(reap(self));
}

static PyObject *run_cancel(Run *self, PyObject *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    bool going = self->state < FINISHED;
    if (going)
        self->cancelled = true;
    if (self->state == RUNNING)
        nova_instance_cancel(self->execution->instance);
    pthread_mutex_unlock(&lock);
    return PyBool_FromLong(going);
}

static PyObject *run_watch(Run *self, PyObject *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    bool going = self->state < FINISHED;
    if (going)
        self->wanted = true;
    pthread_mutex_unlock(&lock);
    return PyBool_FromLong(going);
}

static PyObject *run_outcome(Run *self, PyObject *unused)
{
    (void)unused;
    if (!reap(self)) {
        PyErr_SetString(PyExc_RuntimeError, "the run has not ended");
        return NULL;
    }
    if (self->error != NULL && self->stream != NULL && self->stream->error == self->error) {
        Py_DECREF(self->error); /* seen now */
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
    Py_XDECREF((PyObject *)self->stream);
    Py_XDECREF((PyObject *)self->program);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyMethodDef run_methods[] = {
    {"wait", (PyCFunction)run_wait, METH_O,
     "wait(timeout)\n--\n\nWaits up to so many seconds (None: without limit); whether it ended."},
    {"done", (PyCFunction)run_done, METH_NOARGS, "done()\n--\n\nWhether it ended."},
    {"cancel", (PyCFunction)run_cancel, METH_NOARGS,
     "cancel()\n--\n\nAsks it to stop between two tasks; False when it has ended."},
    {"watch", (PyCFunction)run_watch, METH_NOARGS,
     "watch()\n--\n\nHas await_finished() return it when it ends; False when it has ended."},
    {"outcome", (PyCFunction)run_outcome, METH_NOARGS,
     "outcome()\n--\n\nOf a run that ended: (result, None) or (None, exception)."},
    {0},
};

static PyType_Slot run_slots[] = {
    {Py_tp_doc, "A submitted run; Program.submit makes it."},
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

/* --- Stream ------------------------------------------------------------------------------------ */

static PyObject *stream_take_error(Stream *self, PyObject *unused)
{
    (void)unused;
    reap_all();
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
     "take_error()\n--\n\nThe first exception of its runs that nobody has seen, or None."},
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
