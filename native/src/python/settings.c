/* How many threads runs use, and in which order tasks are picked: for the process, and for runs that
 * one thread starts. */
#include "python/native.h"

/* Guarded by the GIL. */
static unsigned process_threads; /* 0: those of the pool */
static nova_policy process_policy = NOVA_LOCALITY;

/* Of this thread; 0 and -1: what the process has. */
static _Thread_local unsigned own_threads;
static _Thread_local int own_policy = -1;

static unsigned threads(void)
{
    return own_threads > 0 ? own_threads : process_threads;
}

static nova_policy policy(void)
{
    return own_policy >= 0 ? (nova_policy)own_policy : process_policy;
}

void apply_settings(const nova_execution *execution, nova_run_options *options)
{
    options->workers = nova_execution_workers(execution, threads());
    options->policy = policy();
}

void apply_host_settings(nova_program_options *options)
{
    options->workers = threads();
    options->policy = policy();
}

static bool check(int threads, int least_threads, int policy, int least_policy)
{
    if (threads >= least_threads && threads <= NOVA_MAX_WORKERS && policy >= least_policy &&
        policy <= NOVA_CRITICAL_PATH)
        return true;
    PyErr_Format(PyExc_ValueError, "%d threads with policy %d", threads, policy);
    return false;
}

PyObject *module_configure(PyObject *module, PyObject *args)
{
    (void)module;
    int threads, policy, pin;
    if (!PyArg_ParseTuple(args, "iip:configure", &threads, &policy, &pin) ||
        !check(threads, 1, policy, 0))
        return NULL;
    nova_status status = nova_workers_configure(
        &(nova_workers_options){.count = (unsigned)threads, .pin = pin != 0});
    if (status != NOVA_OK) {
        raise_status(status, "the threads cannot be configured");
        return NULL;
    }
    process_threads = (unsigned)threads;
    process_policy = (nova_policy)policy;
    Py_RETURN_NONE;
}

PyObject *module_override(PyObject *module, PyObject *args)
{
    (void)module;
    int threads, policy, pin;
    if (!PyArg_ParseTuple(args, "iip:override", &threads, &policy, &pin) ||
        !check(threads, 0, policy, -1))
        return NULL;
    /* The pool grows for it; runs elsewhere keep to their own number. */
    if ((unsigned)threads > nova_workers_count()) {
        nova_status status = nova_workers_configure(
            &(nova_workers_options){.count = (unsigned)threads, .pin = pin != 0});
        if (status != NOVA_OK) {
            raise_status(status, "the threads cannot be configured");
            return NULL;
        }
    }
    own_threads = (unsigned)threads;
    own_policy = policy;
    Py_RETURN_NONE;
}
