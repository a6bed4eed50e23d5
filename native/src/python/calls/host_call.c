/* Running a call on the CPU: inline on this thread, or as tasks of the pool. */
#include "python/calls/calls.h"

nova_status caller_poll(void *owner)
{
    Caller *caller = owner;
    PyEval_RestoreThread(caller->thread);
    int result = PyErr_CheckSignals();
    caller->thread = PyEval_SaveThread();
    return result < 0 ? NOVA_CANCELLED : NOVA_OK;
}

static nova_status host_call_poll_signals(void *context)
{
    return caller_poll(((nova_execution *)context)->owner);
}

/* Runs as tasks, which can be stopped between them. */
static bool host_call_execute_tasks(ProgramObject *self, Call *call, void *workspace,
                                    uint64_t timeout_ns)
{
    nova_execution *execution;
    PyObject *sinks = trace_sinks_now();
    unsigned workers = self->order != NULL ? self->order_workers : settings_threads();
    nova_status status = nova_execution_take_for(self->program, workers,
                                                 trace_capacity(self, workers, sinks), &execution);
    if (status != NOVA_OK) {
        Py_XDECREF(sinks);
        raise_run_status(status, "the run cannot be prepared");
        return false;
    }
    Caller caller;
    nova_run_options options = {.timeout_ns = timeout_ns, .poll = host_call_poll_signals};
    nova_run_result result = {.task = NOVA_NO_TASK};
    execution->owner = &caller;
    apply_settings(execution, &options);
    status = nova_execution_bind(execution, call->data, call->data + self->arg_count, workspace);
    if (status == NOVA_OK) {
        options.trace = execution->trace_capacity > 0 && self->order == NULL;
        uint64_t start_ns = options.trace ? nova_clock_ns() : 0;
        caller.thread = PyEval_SaveThread();
        status = self->order != NULL ? run_in_order(self, execution, &options, &result)
                                     : nova_instance_run(execution->instance, nova_execution_task,
                                                         execution, &options, &result);
        PyEval_RestoreThread(caller.thread);
        if (options.trace)
            trace_add(self, sinks, execution, options.policy, &result, start_ns, nova_clock_ns());
    }
    result.status = status;
    if (status != NOVA_OK) {
        PyObject *type, *cause, *traceback;
        PyErr_Fetch(&type, &cause, &traceback); /* the exception of a signal handler, or NULL */
        PyErr_NormalizeException(&type, &cause, &traceback);
        PyObject *error = make_run_error(self, execution, &result, cause, false);
        if (error != NULL) {
            PyErr_SetObject((PyObject *)Py_TYPE(error), error);
            Py_DECREF(error);
        }
        Py_XDECREF(type);
        Py_XDECREF(cause);
        Py_XDECREF(traceback);
    }
    nova_execution_give(execution);
    Py_XDECREF(sinks);
    return status == NOVA_OK;
}

bool host_execute(ProgramObject *self, Call *call, uint64_t timeout_ns)
{
    void *workspace = NULL;
    if (self->pool != NULL) {
        nova_status status = nova_pool_take(self->pool, &workspace);
        if (status != NOVA_OK) {
            raise_run_status(status, "there is no workspace for the run");
            return false;
        }
    }
    bool ok = true;
    /* Runs that are watched are tasks, too. */
    if (timeout_ns != 0 || !nova_program_is_inline(self->program) || trace_sinks != NULL ||
        self->order != NULL) {
        ok = host_call_execute_tasks(self, call, workspace, timeout_ns);
    } else {
        nova_status status;
        void **outputs = call->data + self->arg_count;
        if (self->release_gil) {
            Py_BEGIN_ALLOW_THREADS
            status = nova_program_run(self->program, call->data, outputs, workspace, NULL);
            Py_END_ALLOW_THREADS
        } else {
            status = nova_program_run(self->program, call->data, outputs, workspace, NULL);
        }
        if (status != NOVA_OK) {
            raise_status(status, "the program did not run");
            ok = false;
        }
    }
    if (self->pool != NULL)
        nova_pool_give(self->pool, workspace);
    return ok;
}
