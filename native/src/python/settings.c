/* How many threads runs use, and in which order tasks are picked: for the process, and for runs
 * that one thread starts. */
#include "python/native.h"

/* Guarded by the GIL. */
static unsigned settings_process_threads; /* 0: those of the pool */
static nova_policy settings_process_policy = NOVA_LOCALITY;

/* Of this thread; 0 and -1: the setting of the process. */
static _Thread_local unsigned settings_local_threads;
static _Thread_local int settings_local_policy = -1;

unsigned settings_threads(void)
{
    return settings_local_threads > 0 ? settings_local_threads : settings_process_threads;
}

static nova_policy settings_policy(void)
{
    return settings_local_policy >= 0 ? (nova_policy)settings_local_policy
                                      : settings_process_policy;
}

void apply_settings(nova_execution *execution, nova_run_options *options)
{
    options->workers = nova_execution_workers(execution, settings_threads());
    options->policy = settings_policy();
}

void apply_host_settings(nova_program_options *options)
{
    options->workers = settings_threads();
    options->policy = settings_policy();
}

static bool settings_check(int threads, int least_threads, int policy, int least_policy)
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
        !settings_check(threads, 1, policy, 0))
        return NULL;
    nova_status status = nova_workers_configure(
        &(nova_workers_options){.count = (unsigned)threads, .pin = pin != 0});
    if (status != NOVA_OK) {
        raise_status(status, "the threads cannot be configured");
        return NULL;
    }
    settings_process_threads = (unsigned)threads;
    settings_process_policy = (nova_policy)policy;
    Py_RETURN_NONE;
}

PyObject *module_override(PyObject *module, PyObject *args)
{
    (void)module;
    int threads, policy, pin;
    if (!PyArg_ParseTuple(args, "iip:override", &threads, &policy, &pin) ||
        !settings_check(threads, 0, policy, -1))
        return NULL;
    /* The pool grows for it; other runs keep their limit. */
    if ((unsigned)threads > nova_workers_count()) {
        nova_status status = nova_workers_configure(
            &(nova_workers_options){.count = (unsigned)threads, .pin = pin != 0});
        if (status != NOVA_OK) {
            raise_status(status, "the threads cannot be configured");
            return NULL;
        }
    }
    settings_local_threads = (unsigned)threads;
    settings_local_policy = policy;
    Py_RETURN_NONE;
}
