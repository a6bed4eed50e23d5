/* How many threads runs use, and in which order tasks are picked: for the process, and for runs
 * that one thread starts. */
#include "python/native.h"

/* Guarded by the GIL. */
static unsigned settings_process_threads; /* 0: those of the pool */
static nova_policy settings_process_policy = NOVA_LOCALITY;
static unsigned settings_node_sizes[NOVA_MAX_NODES], settings_node_count; /* 0: the machine's */

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

/* Reads the sizes of simulated NUMA nodes; false with an exception set. */
static bool settings_read_nodes(PyObject *nodes)
{
    Py_ssize_t length = nodes != NULL ? PyTuple_Size(nodes) : 0;
    if (length < 0 || length > NOVA_MAX_NODES) {
        PyErr_Format(PyExc_ValueError, "%zd nodes; there are at most %d", length, NOVA_MAX_NODES);
        return false;
    }
    unsigned sizes[NOVA_MAX_NODES];
    for (Py_ssize_t i = 0; i < length; i++) {
        unsigned long size = PyLong_AsUnsignedLong(PyTuple_GetItem(nodes, i));
        if (PyErr_Occurred() != NULL)
            return false;
        sizes[i] = size > NOVA_MAX_WORKERS ? NOVA_MAX_WORKERS + 1 : (unsigned)size;
    }
    memcpy(settings_node_sizes, sizes, (size_t)length * sizeof *sizes);
    settings_node_count = (unsigned)length;
    return true;
}

/* Sizes the pool; false with an exception set. */
static bool settings_configure(int threads, int pin)
{
    nova_status status = nova_workers_configure(&(nova_workers_options){
        .count = (unsigned)threads,
        .pin = pin != 0,
        .node_sizes = settings_node_count > 0 ? settings_node_sizes : NULL,
        .node_count = settings_node_count,
    });
    if (status != NOVA_OK)
        raise_status(status, "the threads cannot be configured");
    return status == NOVA_OK;
}

PyObject *module_configure(PyObject *module, PyObject *args)
{
    (void)module;
    int threads, policy, pin;
    PyObject *nodes = NULL;
    if (!PyArg_ParseTuple(args, "iip|O!:configure", &threads, &policy, &pin, &PyTuple_Type,
                          &nodes) ||
        !settings_check(threads, 1, policy, 0) || !settings_read_nodes(nodes) ||
        !settings_configure(threads, pin))
        return NULL;
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
    if ((unsigned)threads > nova_workers_count() && !settings_configure(threads, pin))
        return NULL;
    settings_local_threads = (unsigned)threads;
    settings_local_policy = policy;
    Py_RETURN_NONE;
}
