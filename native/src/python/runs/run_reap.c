/* Submitted runs, with the GIL: the result or exception of those that have ended. */
#include "python/runs/runs.h"

State run_state(Run *run)
{
    pthread_mutex_lock(&runs_lock);
    State state = run->state;
    pthread_mutex_unlock(&runs_lock);
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
        states = PyBytes_FromStringAndSize(NULL, nova_execution_tasks(execution).task_count);
        if (states != NULL)
            (void)nova_instance_states(execution->instance, (uint8_t *)PyBytes_AsString(states));
        PyErr_Clear();
    }
    PyObject *error = NULL;
    if (running != NULL)
        error = PyObject_CallFunction(
            self->report, "iLOOiOI", (int)result->status,
            dropped                        ? -2LL
            : result->task == NOVA_NO_TASK ? -1LL
                                           : (long long)result->task,
            running, states != NULL ? states : Py_None,
            (int)atomic_load_explicit(&((nova_execution *)(uintptr_t)execution)->reported,
                                      memory_order_relaxed),
            cause != NULL ? cause : Py_None, execution->tasks_for);
    Py_XDECREF(running);
    Py_XDECREF(states);
    return error;
}

/* Acquires a run that has ended, for this thread to reap; else *ended tells whether it had ended
 * before. */
static bool reap_take_finished(Run *run, bool *ended)
{
    pthread_mutex_lock(&runs_lock);
    *ended = run->state == REAPED;
    bool is_finished = run->state == FINISHED;
    if (is_finished) {
        run->state = REAPING;
        if (run->listed && run->is_awaited) {
            /* the reference of this list: that of the runs in flight is released */
            Py_INCREF((PyObject *)run);
        } else if (run->listed) {
            Run **link = &finished_runs;
            while (*link != run)
                link = &(*link)->next_finished;
            *link = run->next_finished;
            run->listed = false;
        }
    }
    pthread_mutex_unlock(&runs_lock);
    return is_finished;
}

bool run_is_over(Run *run)
{
    pthread_mutex_lock(&runs_lock);
    bool over = run->state >= FINISHED && !run->lingers;
    pthread_mutex_unlock(&runs_lock);
    return over;
}

bool run_lingers(Run *run)
{
    pthread_mutex_lock(&runs_lock);
    bool lingers = run->lingers;
    pthread_mutex_unlock(&runs_lock);
    return lingers;
}

/* The result or the error of a run on this machine's cores. */
static void reap_conclude(Run *run)
{
    nova_run_result outcome = {.task = NOVA_NO_TASK};
    /* The thread that ended it may be about to leave the instance. */
    if (run->started)
        (void)nova_instance_wait(run->execution->instance, UINT64_MAX, &outcome);
    outcome.status = run->status;
    if (run->started)
        trace_add(run->program, run->sinks, run->execution, run->options.policy, &outcome, 0, 0);
    if (run->status == NOVA_OK)
        run->result = call_result(run->program, &run->call);
    else
        run->error = make_run_error(run->program, run->execution, &outcome,
                                    run->dropped ? run->stream->error : NULL, run->dropped);
    if (run->workspace != NULL) { /* of the parent of this process */
        nova_pool_give(run->program->pool, run->workspace);
        run->workspace = NULL;
    }
    nova_execution_give(run->execution);
    run->execution = NULL;
}

/* Removes a run from those in flight, and releases its arrays. */
static void reap_release(Run *run)
{
    if (run->before != NULL)
        run->before->after = run->after;
    else
        runs_in_flight = run->after;
    if (run->after != NULL)
        run->after->before = run->before;
    else
        newest_run = run->before;
    if (run->program->device != NULL)
        device_run_release(run);
    Py_CLEAR(run->sinks);
    call_end(&run->call); /* after it is out of the list: destructors may read the list */
}

/* Whether it has ended. Creates the result of one that has, and releases its arrays, unless it
 * lingers. */
static bool reap_run(Run *run)
{
    bool ended;
    if (!reap_take_finished(run, &ended))
        return ended;
    if (run->program->device != NULL)
        device_run_conclude(run);
    else
        reap_conclude(run);
    if (run->result == NULL && run->error == NULL) {
        PyObject *type, *traceback; /* no memory for either: that is the error then */
        PyErr_Fetch(&type, &run->error, &traceback);
        PyErr_NormalizeException(&type, &run->error, &traceback);
        Py_XDECREF(type);
        Py_XDECREF(traceback);
    }
    if (run->error != NULL && run->stream != NULL && run->stream->error == NULL) {
        Py_INCREF(run->error);
        run->stream->error = run->error;
    }
    pthread_mutex_lock(&runs_lock);
    bool lingers = run->lingers;
    if (lingers)
        run->state = REAPED; /* the remaining steps follow when it has ended */
    pthread_mutex_unlock(&runs_lock);
    if (lingers)
        return true;
    reap_release(run);
    pthread_mutex_lock(&runs_lock);
    run->state = REAPED;
    pthread_mutex_unlock(&runs_lock);
    Py_DECREF((PyObject *)run);
    return true;
}

void runs_release_spent(void)
{
    for (;;) {
        pthread_mutex_lock(&runs_lock);
        Run *run = spent_runs;
        if (run != NULL)
            spent_runs = run->next_spent;
        pthread_mutex_unlock(&runs_lock);
        if (run == NULL)
            return;
        reap_release(run);
        Py_DECREF((PyObject *)run);
    }
}

/* Whether a run before it in its stream is not reaped yet, maybe by another thread right now. One
 * whose time on a device is over does not wait for those that the device has before it. */
static bool reap_is_after(Run *run)
{
    if (run->stream != NULL && !run_lingers(run))
        for (Run *other = run->before; other != NULL; other = other->before)
            if (other->stream == run->stream && run_state(other) != REAPED)
                return true;
    return false;
}

void runs_reap(void)
{
    runs_release_spent();
    /* A report runs Python code: other threads may reap concurrently. So scan from the start
     * after each, and leave the runs after one that is being reaped to its thread: its error
     * comes first. */
    for (Run *run = runs_in_flight; run != NULL;) {
        if (run_state(run) == FINISHED && !reap_is_after(run)) {
            reap_run(run);
            run = runs_in_flight;
        } else {
            run = run->after;
        }
    }
}

bool run_reap(Run *run)
{
    if (run->program->device != NULL) {
        pthread_mutex_lock(&runs_lock);
        (void)device_runs_expire();
        pthread_mutex_unlock(&runs_lock);
    }
    if (run->stream == NULL)
        return reap_run(run);
    if (run_state(run) == FINISHED)
        runs_reap();
    return run_state(run) == REAPED;
}
