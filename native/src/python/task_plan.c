/* plan_tasks(): the tasks of a block of tables for a number of threads.
 *
 * Called by nova/artifact/task_plan.py: tools, traces and simulations read the same tasks that a
 * run on so many threads has. */
#include "python/native.h"

#include "nova/task_plan.h"

static PyObject *task_plan_pack(const nova_task_plan *plan)
{
    static const char NONE[] = "";
    const void *tasks = plan->tasks, *successors = plan->successors;
    return Py_BuildValue("y#y#", tasks != NULL ? tasks : NONE,
                         (Py_ssize_t)(plan->task_count * sizeof *plan->tasks),
                         successors != NULL ? successors : NONE,
                         (Py_ssize_t)(plan->successor_count * sizeof *plan->successors));
}

PyObject *module_plan_tasks(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer block;
    unsigned workers;
    unsigned long long worth_ns, output_count;
    int on_device = 0;
    if (!PyArg_ParseTuple(args, "y*IKK|p:plan_tasks", &block, &workers, &worth_ns, &output_count,
                          &on_device))
        return NULL;
    const nova_tables_limits limits = {
        .argument_count = UINT32_MAX, .output_count = output_count, .constants_size = UINT64_MAX};
    nova_tables tables;
    nova_error error = {.status = NOVA_OK};
    nova_task_plan plan = {0};
    nova_status status;
    Py_BEGIN_ALLOW_THREADS
    status = nova_tables_check(block.buf, (size_t)block.len, &limits, &tables, &error);
    if (status == NOVA_OK)
        status = on_device != 0 ? nova_task_plan_create_device(&tables, workers, &plan)
                                : nova_task_plan_create(&tables, workers, worth_ns, &plan);
    Py_END_ALLOW_THREADS
    PyObject *result = NULL;
    if (status == NOVA_OK)
        result = task_plan_pack(&plan);
    else
        raise_status(status,
                     error.text[0] != '\0' ? error.text : "these tables have no tasks to plan");
    nova_task_plan_free(&plan);
    PyBuffer_Release(&block);
    return result;
}
