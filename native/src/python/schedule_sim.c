/* simulate(): plays a task graph on virtual cores, without running anything.
 *
 * Called by nova/tracing/schedule_sim.py with the records of tables.h; the graph is checked
 * here. */
#include "python/native.h"

#include "nova/scheduler.h"

typedef struct {
    Py_buffer tasks, successors, kinds, costs;
} Arguments;

static void schedule_sim_release(Arguments *arguments)
{
    Py_buffer *all[] = {&arguments->tasks, &arguments->successors, &arguments->kinds,
                        &arguments->costs};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i]->obj != NULL)
            PyBuffer_Release(all[i]);
}

/* Whether the four arrays have the same number of tasks, and can be used in place. */
static bool schedule_sim_fits(const Arguments *arguments)
{
    size_t count = (size_t)arguments->tasks.len / sizeof(nova_task);
    return (size_t)arguments->tasks.len == count * sizeof(nova_task) && count <= UINT32_MAX &&
           (size_t)arguments->kinds.len == count &&
           (size_t)arguments->costs.len == count * sizeof(uint64_t) &&
           (size_t)arguments->successors.len % sizeof(uint32_t) == 0 &&
           (size_t)arguments->successors.len / sizeof(uint32_t) <= UINT32_MAX &&
           (uintptr_t)arguments->tasks.buf % _Alignof(nova_task) == 0 &&
           (uintptr_t)arguments->costs.buf % _Alignof(uint64_t) == 0 &&
           (uintptr_t)arguments->successors.buf % _Alignof(uint32_t) == 0;
}

static PyObject *schedule_sim_play(const nova_graph *graph, unsigned cores, nova_policy policy,
                                   unsigned long long seed)
{
    Py_ssize_t count = nova_graph_get_facts(graph).task_count;
    PyObject *timeline =
        PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(nova_simulated));
    if (timeline == NULL)
        return NULL;
    nova_simulation summary;
    nova_status status;
    nova_simulated *records = (nova_simulated *)(void *)PyBytes_AsString(timeline);
    Py_BEGIN_ALLOW_THREADS
    status = nova_simulate(graph, cores, policy, seed, NULL, NULL, records, &summary);
    Py_END_ALLOW_THREADS
    if (status != NOVA_OK) {
        Py_DECREF(timeline);
        raise_status(status, "the task graph cannot be simulated");
        return NULL;
    }
    return Py_BuildValue("NKKK", timeline, (unsigned long long)summary.makespan,
                         (unsigned long long)summary.critical_cost,
                         (unsigned long long)summary.lower_bound);
}

PyObject *module_simulate(PyObject *module, PyObject *args)
{
    (void)module;
    Arguments arguments = {0};
    unsigned cores;
    int policy;
    unsigned long long seed;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*y*y*y*IiK:simulate", &arguments.tasks, &arguments.successors,
                          &arguments.kinds, &arguments.costs, &cores, &policy, &seed))
        return NULL;
    nova_graph *graph = NULL;
    nova_status status = NOVA_INVALID_ARGUMENT;
    if (schedule_sim_fits(&arguments)) {
        const nova_graph_tables tables = {
            .tasks = arguments.tasks.buf,
            .successors = arguments.successors.buf,
            .core = arguments.kinds.buf,
            .cost = arguments.costs.buf,
            .task_count = (uint32_t)((size_t)arguments.tasks.len / sizeof(nova_task)),
            .successor_count = (uint32_t)((size_t)arguments.successors.len / sizeof(uint32_t)),
        };
        status = nova_graph_create(&tables, 0, &graph);
    }
    if (status != NOVA_OK)
        raise_status(status, "these arrays are not a task graph");
    else
        result = schedule_sim_play(graph, cores, (nova_policy)policy, seed);
    nova_graph_destroy(graph);
    schedule_sim_release(&arguments);
    return result;
}
