/* Traced runs, and runs in the order of a simulation.
 *
 * nova/tracing/collect.py sets the sinks of records with trace_into(). Program.order is set once by
 * nova/runtime/executor.py for run_mode="sim". Both run as tasks, also for programs that otherwise
 * run inline. */
#include "python/native.h"

PyObject *trace_sinks;

/* --- traces ----------------------------------------------------------------------------------- */

PyObject *trace_sinks_now(void)
{
    Py_XINCREF(trace_sinks);
    return trace_sinks;
}

uint32_t trace_capacity(const ProgramObject *self, unsigned workers, PyObject *sinks)
{
    if (sinks == NULL)
        return 0;
    const nova_graph *graph;
    if (nova_program_graph_for(self->program, workers, &graph) != NOVA_OK)
        return 0; /* the run itself is going to say so */
    return nova_graph_get_facts(graph).task_count;
}

/* All records of the last run, by worker slot: bytes, a new reference. */
static PyObject *trace_read_records(const nova_execution *execution, unsigned slots, uint64_t *lost)
{
    uint64_t recorded = 0;
    *lost = 0;
    for (unsigned i = 0; i < slots; i++) {
        uint64_t count = nova_instance_trace(execution->instance, i, NULL, 0);
        uint64_t capacity = execution->trace_capacity;
        recorded += count < capacity ? count : capacity;
        *lost += count < capacity ? 0 : count - capacity;
    }
    PyObject *block =
        PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(recorded * sizeof(nova_trace_record)));
    if (block == NULL)
        return NULL;
    nova_trace_record *to = (nova_trace_record *)(void *)PyBytes_AsString(block);
    for (unsigned i = 0; i < slots && recorded > 0; i++) {
        uint32_t capacity = recorded < UINT32_MAX ? (uint32_t)recorded : UINT32_MAX;
        uint64_t count = nova_instance_trace(execution->instance, i, to, capacity);
        if (count > execution->trace_capacity)
            count = execution->trace_capacity;
        to += count;
        recorded -= count;
    }
    return block;
}

void trace_append(ProgramObject *self, PyObject *sinks, PyObject *item)
{
    for (Py_ssize_t i = 0; item != NULL && sinks != NULL && i < PyTuple_Size(sinks); i++)
        if (PyList_Append(PyTuple_GetItem(sinks, i), item) < 0)
            break;
    Py_XDECREF(item);
    if (PyErr_Occurred())
        PyErr_WriteUnraisable((PyObject *)self);
}

void trace_add(ProgramObject *self, PyObject *sinks, const nova_execution *execution,
               nova_policy policy, const nova_run_result *result, uint64_t start_ns,
               uint64_t end_ns)
{
    if (execution->trace_capacity == 0)
        return;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback); /* of a run that failed */
    uint64_t lost;
    PyObject *block = trace_read_records(execution, result->workers, &lost);
    if (block != NULL && start_ns == 0) {
        const nova_trace_record *records = (const void *)PyBytes_AsString(block);
        size_t count = (size_t)PyBytes_Size(block) / sizeof *records;
        start_ns = count > 0 ? UINT64_MAX : 0;
        for (size_t i = 0; i < count; i++) {
            start_ns = records[i].ready_ns < start_ns ? records[i].ready_ns : start_ns;
            end_ns = records[i].end_ns > end_ns ? records[i].end_ns : end_ns;
        }
    }
    PyObject *item = NULL;
    if (block != NULL)
        item = Py_BuildValue("OKKIiKOI", (PyObject *)self, (unsigned long long)start_ns,
                             (unsigned long long)end_ns, result->workers, (int)policy,
                             (unsigned long long)lost, block, execution->tasks_for);
    Py_XDECREF(block);
    trace_append(self, sinks, item);
    PyErr_Restore(type, value, traceback);
}

PyObject *module_trace_into(PyObject *module, PyObject *sinks)
{
    (void)module;
    bool good = PyTuple_Check(sinks);
    for (Py_ssize_t i = 0; good && i < PyTuple_Size(sinks); i++)
        good = PyList_Check(PyTuple_GetItem(sinks, i));
    if (!good) {
        PyErr_SetString(PyExc_TypeError, "trace_into() takes a tuple of lists");
        return NULL;
    }
    PyObject *before = trace_sinks;
    trace_sinks = NULL;
    device_traces_forget();
    if (PyTuple_Size(sinks) > 0) {
        Py_INCREF(sinks);
        trace_sinks = sinks;
    }
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

/* --- the order of a simulation ---------------------------------------------------------------- */

nova_status run_in_order(const ProgramObject *self, nova_execution *execution,
                         const nova_run_options *options, nova_run_result *result)
{
    uint64_t until = options->timeout_ns > 0 ? nova_clock_ns() + options->timeout_ns : UINT64_MAX;
    *result = (nova_run_result){.task = NOVA_NO_TASK, .workers = 1};
    uint64_t polled = nova_clock_ns(), now = polled;
    for (uint32_t i = 0; i < self->order_count; i++) {
        if (now >= until)
            return NOVA_TIMEOUT;
        if (now - polled >= NOVA_POLL_NS) {
            polled = now;
            nova_status status = options->poll != NULL ? options->poll(execution) : NOVA_OK;
            if (status != NOVA_OK)
                return status;
        }
        nova_status status = nova_execution_task(execution, self->order[i], 0);
        if (status != NOVA_OK) {
            result->task = self->order[i];
            return status;
        }
        result->executed++;
        now = nova_clock_ns();
    }
    return NOVA_OK;
}

/* Whether `order` has every task once, and none before one that it waits for. */
static bool trace_is_possible(const nova_task_plan *plan, const uint32_t *order, uint32_t count)
{
    uint32_t *waits = PyMem_Calloc((size_t)count + 1, sizeof *waits);
    if (waits == NULL)
        return false;
    bool good = count == plan->task_count;
    for (uint32_t i = 0; good && i < count; i++)
        waits[i] = plan->tasks[i].waits;
    for (uint32_t i = 0; good && i < count; i++) {
        good = order[i] < count && waits[order[i]] == 0;
        if (!good)
            break;
        waits[order[i]] = UINT32_MAX; /* done */
        for (uint32_t k = 0; k < plan->tasks[order[i]].successor_count; k++)
            waits[plan->successors[plan->tasks[order[i]].first_successor + k]]--;
    }
    PyMem_Free(waits);
    return good;
}

/* The same for the tasks of a program for `workers` threads. An empty program has no tasks to
 * order. */
static bool trace_accepts(nova_program *program, unsigned workers, const uint32_t *order,
                          uint32_t count)
{
    if (nova_program_tables(program)->header->launch_count == 0)
        return count == 0;
    nova_execution *execution;
    if (nova_execution_take_for(program, workers, 0, &execution) != NOVA_OK)
        return false;
    nova_task_plan plan = nova_execution_tasks(execution);
    bool good = trace_is_possible(&plan, order, count);
    nova_execution_give(execution);
    return good;
}

PyObject *program_set_order(PyObject *object, PyObject *args)
{
    ProgramObject *self = (ProgramObject *)object;
    Py_buffer view;
    PyObject *sequence;
    unsigned workers;
    if (!PyArg_ParseTuple(args, "OI:set_order", &sequence, &workers))
        return NULL;
    if (self->device != NULL) {
        PyErr_SetString(PyExc_TypeError, "a program for a device has no order of tasks");
        return NULL;
    }
    if (self->order != NULL) {
        PyErr_SetString(PyExc_ValueError, "the order of the tasks is set already");
        return NULL;
    }
    if (PyObject_GetBuffer(sequence, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    size_t count = (size_t)view.len / sizeof(uint32_t);
    uint32_t *order = PyMem_Malloc((size_t)view.len + 1);
    bool good = order != NULL && count < UINT32_MAX && (size_t)view.len % sizeof(uint32_t) == 0;
    if (good) {
        memcpy(order, view.buf, (size_t)view.len);
        good = trace_accepts(self->program, workers, order, (uint32_t)count);
    }
    PyBuffer_Release(&view);
    if (!good) {
        PyMem_Free(order);
        PyErr_SetString(PyExc_ValueError, "the tasks cannot run in this order");
        return NULL;
    }
    self->order = order;
    self->order_count = (uint32_t)count;
    self->order_workers = workers;
    Py_RETURN_NONE;
}
