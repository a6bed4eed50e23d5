#include "nova/execution.h"

#include <stdlib.h>

#include "nova/workspace.h"
#include "exec/program.h"

/* --- the pool of a program -------------------------------------------------------------------- */

static nova_status execution_make(nova_program *program, const nova_prepared *prepared,
                                  unsigned slots, uint32_t trace_capacity,
                                  nova_execution **execution)
{
    uint32_t operands = program->tables.header->operand_count;
    nova_execution *created = malloc(sizeof *created + operands * sizeof created->pointers[0]);
    if (created == NULL)
        return NOVA_OUT_OF_MEMORY;
    created->program = program;
    created->prepared = prepared;
    created->tasks_for = prepared->workers;
    created->places = slots;
    created->trace_capacity = trace_capacity;
    created->instance = NULL;
    /* Whole pages: no two threads write to the same one. */
    created->scratch_stride = ((size_t)program->tables.header->scratch_size + 4095) & ~(size_t)4095;
    created->scratch = NULL;
    nova_status status =
        nova_instance_create(prepared->graph, slots, trace_capacity, &created->instance);
    if (status != NOVA_OK) {
        free(created);
        return status;
    }
    *execution = created;
    return NOVA_OK;
}

void nova_execution_destroy(nova_execution *execution)
{
    if (execution == NULL)
        return;
    nova_instance_destroy(execution->instance);
    nova_memory_recycle(execution->scratch);
    free(execution);
}

static nova_status execution_take_scratch(nova_execution *execution)
{
    void *scratch;
    nova_status status = nova_memory_reuse(execution->scratch_stride * execution->places, &scratch);
    execution->scratch = scratch;
    return status;
}

nova_status nova_execution_take(nova_program *program, uint32_t trace_capacity,
                                nova_execution **execution)
{
    return nova_execution_take_for(program, 0, trace_capacity, execution);
}

nova_status nova_execution_take_for(nova_program *program, unsigned workers,
                                    uint32_t trace_capacity, nova_execution **execution)
{
    if (program == NULL || execution == NULL)
        return NOVA_INVALID_ARGUMENT;
    const nova_prepared *prepared;
    nova_status status = nova_program_prepare(program, workers, &prepared);
    if (status != NOVA_OK)
        return status;
    unsigned slots = prepared->planned;
    if (slots > 1) {
        unsigned most = nova_workers_count();
        slots = slots < most ? slots : most;
    }
    nova_execution *reusable = NULL;
    if (trace_capacity == 0) {
        reusable = atomic_exchange_explicit(&program->warm, NULL, memory_order_acquire);
        if (reusable == NULL) {
            pthread_mutex_lock(&program->mutex);
            reusable = program->idle;
            if (reusable != NULL) {
                program->idle = reusable->next;
                program->idle_count--;
            }
            pthread_mutex_unlock(&program->mutex);
        }
    }
    /* It was created for fewer threads, or for other tasks. */
    if (reusable != NULL && (reusable->places < slots || reusable->prepared != prepared)) {
        nova_execution_destroy(reusable);
        reusable = NULL;
    }
    if (reusable == NULL)
        status = execution_make(program, prepared, slots, trace_capacity, &reusable);
    if (status != NOVA_OK)
        return status;
    if (reusable->scratch == NULL)
        status = execution_take_scratch(reusable);
    if (status != NOVA_OK) {
        nova_execution_destroy(reusable);
        return status;
    }
    reusable->owner = NULL;
    reusable->worker_limit = 0;
    atomic_store_explicit(&reusable->reported, 0, memory_order_relaxed);
    *execution = reusable;
    return NOVA_OK;
}

void nova_execution_give(nova_execution *execution)
{
    if (execution == NULL)
        return;
    nova_program *program = execution->program;
    if (execution->trace_capacity > 0) {
        nova_execution_destroy(execution);
        return;
    }
    if (program->sizes != NULL) {
        /* Programs for other sizes use the same memory. */
        nova_memory_recycle(execution->scratch);
        execution->scratch = NULL;
    }
    nova_execution *other =
        atomic_exchange_explicit(&program->warm, execution, memory_order_acq_rel);
    if (other == NULL)
        return;
    pthread_mutex_lock(&program->mutex);
    if (program->idle_count < NOVA_IDLE_EXECUTIONS) {
        other->next = program->idle;
        program->idle = other;
        program->idle_count++;
        other = NULL;
    }
    pthread_mutex_unlock(&program->mutex);
    nova_execution_destroy(other);
}

/* --- running ---------------------------------------------------------------------------------- */

nova_status nova_execution_bind(nova_execution *execution, void *const *arguments,
                                void *const *outputs, void *workspace)
{
    if (execution == NULL ||
        !nova_program_accepts(execution->program, arguments, outputs, workspace))
        return NOVA_INVALID_ARGUMENT;
    /* Also for the pointers of the last run: 0.7 ns an operand, less than to see that they are. */
    nova_program_bind(execution->program, arguments, outputs, workspace, execution->pointers);
    return NOVA_OK;
}

/* A task that runs a loop or branch, and the worker slot that it is in. */
typedef struct {
    nova_execution *execution;
    unsigned worker;
} running_task;

static nova_status execution_check_task(void *context)
{
    const running_task *running = context;
    return nova_instance_check(running->execution->instance, running->worker);
}

nova_status nova_execution_task(void *context, uint32_t number, unsigned worker)
{
    nova_execution *execution = context;
    const nova_program *program = execution->program;
    const nova_task *task = &execution->prepared->tasks.tasks[number];
    if (task->begin == task->end)
        return NOVA_OK; /* a join */
    const nova_launch_record *launch = &program->tables.launches[task->launch];
    const nova_bound_kernel *kernel = &program->kernels[launch->kernel];
    void *const *pointers = execution->pointers + launch->first_operand;
    if (kernel->control != NULL) {
        running_task running = {execution, worker};
        const nova_watch watch = {execution_check_task, &running, execution->worker_limit};
        return nova_control_run(program, launch, kernel->control, pointers,
                                execution->scratch + worker * execution->scratch_stride, &watch);
    }
    if (kernel->takes_scratch) {
        kernel->with_scratch(pointers, task->begin, task->end,
                             execution->scratch + worker * execution->scratch_stride);
        return NOVA_OK;
    }
    if (!kernel->reports) {
        kernel->code(pointers, task->begin, task->end);
        return NOVA_OK;
    }
    int32_t reported = kernel->reporting(pointers, task->begin, task->end);
    if (reported == 0)
        return NOVA_OK;
    int32_t none = 0;
    atomic_compare_exchange_strong_explicit(&execution->reported, &none, reported,
                                            memory_order_relaxed, memory_order_relaxed);
    return NOVA_TASK_REPORTED;
}

nova_task_plan nova_execution_tasks(const nova_execution *execution)
{
    return execution->prepared->tasks;
}

unsigned nova_execution_workers(nova_execution *execution, unsigned limit)
{
    execution->worker_limit = limit;
    return limit > 0 && limit < execution->places ? limit : execution->places;
}

/* How many tasks wait for ever, and the first of them. */
static nova_status execution_explain_stall(const nova_execution *execution, nova_error *error)
{
    uint32_t count = execution->prepared->tasks.task_count, waiting = 0, first = 0;
    uint8_t *states = malloc(count);
    if (states == NULL || nova_instance_states(execution->instance, states) != NOVA_OK) {
        free(states);
        return nova_fail(error, NOVA_STALLED, "", "%s", nova_status_text(NOVA_STALLED));
    }
    for (uint32_t i = count; i-- > 0;)
        if (states[i] != NOVA_TASK_DONE) {
            first = i;
            waiting++;
        }
    free(states);
    char message[256];
    nova_prepared_describe(execution->program, execution->prepared, first, message, sizeof message);
    return nova_fail(error, NOVA_STALLED, "", "%s: %u of %u tasks, the first is %s",
                     nova_status_text(NOVA_STALLED), waiting, count, message);
}

nova_status nova_execution_explain(const nova_execution *execution, const nova_run_result *result,
                                   nova_error *error)
{
    if (result->status == NOVA_STALLED)
        return execution_explain_stall(execution, error);
    char message[256] = "";
    uint32_t task = result->task;
    if (task == NOVA_NO_TASK && result->running_count > 0)
        task = result->running[0];
    if (task != NOVA_NO_TASK)
        nova_prepared_describe(execution->program, execution->prepared, task, message,
                               sizeof message);
    if (result->status == NOVA_TASK_REPORTED)
        return nova_fail(error, result->status, "", "%s reported error %d", message,
                         (int)atomic_load_explicit(&execution->reported, memory_order_relaxed));
    return nova_fail(error, result->status, "", "%s%s%s", nova_status_text(result->status),
                     *message != '\0' ? " at " : "", message);
}
