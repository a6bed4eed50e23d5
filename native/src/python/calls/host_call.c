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

/* --- inline runs ------------------------------------------------------------------------------ */

/* The workspace of inline runs that keep the GIL, which guards it. Never freed: the pages that no
 * run touches cost nothing. */
enum { MOST_GUARDED = 4 << 20 };
static void *host_call_guarded;
static uint64_t host_call_guarded_size;

/* A block of at least `size` bytes; NULL: there is none. */
static void *host_call_guarded_block(uint64_t size)
{
    if (size > host_call_guarded_size && size <= MOST_GUARDED) {
        void *block;
        if (nova_memory_take(MOST_GUARDED, &block) == NOVA_OK) {
            host_call_guarded = block;
            host_call_guarded_size = MOST_GUARDED;
        }
    }
    return size <= host_call_guarded_size ? host_call_guarded : NULL;
}

static nova_status host_call_execute_inline(ProgramObject *self, Call *call, void *workspace)
{
    nova_status status;
    void **outputs = call->data + self->arg_count;
    if (!self->release_gil)
        return nova_program_run(self->program, call->data, outputs, workspace, NULL);
    Py_BEGIN_ALLOW_THREADS
    status = nova_program_run(self->program, call->data, outputs, workspace, NULL);
    Py_END_ALLOW_THREADS
    return status;
}

bool host_execute(ProgramObject *self, Call *call, uint64_t timeout_ns)
{
    /* Runs that are watched are tasks, too. */
    bool is_inline = timeout_ns == 0 && nova_program_is_inline(self->program) &&
                     trace_sinks == NULL && self->order == NULL;
    void *workspace = NULL, *guarded = NULL;
    if (self->pool != NULL && is_inline && !self->release_gil)
        workspace = guarded = host_call_guarded_block(nova_program_workspace_size(self->program));
    if (self->pool != NULL && guarded == NULL) {
        nova_status status = nova_pool_take(self->pool, &workspace);
        if (status != NOVA_OK) {
            raise_run_status(status, "there is no workspace for the run");
            return false;
        }
    }
    bool ok = true;
    if (!is_inline) {
        ok = host_call_execute_tasks(self, call, workspace, timeout_ns);
    } else {
        nova_status status = host_call_execute_inline(self, call, workspace);
        if (status != NOVA_OK) {
            raise_run_status(status, "the program did not run");
            ok = false;
        }
    }
    if (self->pool != NULL && guarded == NULL)
        nova_pool_give(self->pool, workspace);
    return ok;
}
