/* Waiting for submitted runs: for one, for all at exit, and for traced ones. */
#include "python/runs/runs.h"

#include <errno.h>
#include <time.h>

bool runs_closing;

enum { SLICE_MS = 50 }; /* how often a waiting thread checks for signals */

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

static struct timespec wait_soon(uint64_t ns)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    uint64_t nanoseconds = (uint64_t)time.tv_nsec + ns;
    time.tv_sec += (time_t)(nanoseconds / 1000000000u);
    time.tv_nsec = (long)(nanoseconds % 1000000000u);
    return time;
}

/* Waits up to a moment for a run to end. Without the GIL. */
static void wait_briefly(Run *run, uint64_t ns)
{
    struct timespec until = wait_soon(ns);
    pthread_mutex_lock(&runs_lock);
    run->waiters++;
    int result = 0;
    while ((run->state < FINISHED || run->lingers) && result != ETIMEDOUT)
        result = pthread_cond_timedwait(&run_changed, &runs_lock, &until);
    run->waiters--;
    pthread_mutex_unlock(&runs_lock);
}

/* When the time of a run on a device is over, which ends it; 0: never, or it has not begun. */
static uint64_t wait_run_deadline(Run *run)
{
    pthread_mutex_lock(&runs_lock);
    uint64_t deadline = run->deadline_ns;
    pthread_mutex_unlock(&runs_lock);
    return deadline;
}

int run_wait_for(Run *run, uint64_t timeout_ns)
{
    const uint64_t slice = SLICE_MS * UINT64_C(1000000);
    uint64_t now = nova_clock_ns(), until;
    if (__builtin_add_overflow(now, timeout_ns, &until))
        until = UINT64_MAX;
    while (!run_reap(run)) {
        now = nova_clock_ns();
        if (now >= until)
            return 0;
        uint64_t ns = until - now < slice ? until - now : slice;
        uint64_t deadline = wait_run_deadline(run);
        if (deadline > now && deadline - now < ns)
            ns = deadline - now;
        Py_BEGIN_ALLOW_THREADS
        if (run_state(run) >=
            FINISHED) /* another thread reaps it, or one before it: that is quick */
            (void)nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
        else
            wait_briefly(run, ns);
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
    runs_reap();
    Py_RETURN_NONE;
}

/* A run in flight that a trace waits for, or NULL. One whose time is over is not waited for. */
static Run *wait_find_traced(PyObject *sink)
{
    for (Run *run = runs_in_flight; run != NULL; run = run->after)
        for (Py_ssize_t i = 0; run->sinks != NULL && i < PyTuple_Size(run->sinks); i++)
            if (PyTuple_GetItem(run->sinks, i) == sink && run_state(run) != REAPED)
                return run;
    return NULL;
}

PyObject *module_await_traced(PyObject *module, PyObject *sink)
{
    (void)module;
    for (Run *run = wait_find_traced(sink); run != NULL; run = wait_find_traced(sink)) {
        Py_INCREF((PyObject *)run);
        int result = run_wait_for(run, UINT64_MAX);
        Py_DECREF((PyObject *)run);
        if (result < 0)
            return NULL;
    }
    Py_RETURN_NONE;
}

PyObject *module_drain(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    runs_closing = true;
    while (runs_in_flight != NULL) {
        Run *run = runs_in_flight;
        Py_INCREF((PyObject *)run);
        int result = run_wait_for(run, UINT64_MAX);
        while (result > 0 && !run_is_over(run)) {
            Py_BEGIN_ALLOW_THREADS
            wait_briefly(run, SLICE_MS * UINT64_C(1000000));
            Py_END_ALLOW_THREADS
            result = PyErr_CheckSignals() < 0 ? -1 : 1;
        }
        runs_reap();
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
    pthread_mutex_lock(&runs_lock);
    for (;;) {
        uint64_t nearest = device_runs_expire(), now = nova_clock_ns();
        if (finished_runs != NULL || spent_runs != NULL)
            break;
        struct timespec until = wait_soon(nearest > now ? nearest - now : 0);
        if (nearest == UINT64_MAX)
            pthread_cond_wait(&run_noticed, &runs_lock);
        else
            (void)pthread_cond_timedwait(&run_noticed, &runs_lock, &until);
    }
    pthread_mutex_unlock(&runs_lock);
    Py_END_ALLOW_THREADS
    runs_release_spent();
    PyObject *runs = PyList_New(0);
    if (runs == NULL)
        return NULL;
    for (;;) {
        pthread_mutex_lock(&runs_lock);
        Run *run = finished_runs;
        bool owned = false;
        if (run != NULL) {
            finished_runs = run->next_finished;
            run->listed = false;
            owned = run->state > FINISHED; /* `take_finished` has left a reference here */
        }
        pthread_mutex_unlock(&runs_lock);
        if (run == NULL)
            return runs;
        int result = run->is_awaited ? PyList_Append(runs, (PyObject *)run) : 0;
        if (!owned) {
            Py_INCREF((PyObject *)run);
            run_reap(run);
        }
        Py_DECREF((PyObject *)run);
        if (result < 0) {
            Py_DECREF(runs);
            return NULL;
        }
    }
}
