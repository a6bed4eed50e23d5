/* Submitted runs, without the GIL: starting a run in the order of its stream, ending it, and
 * fork. */
#include "python/runs/runs.h"

#include <time.h>

Run *runs_in_flight; /* the oldest */
Run *newest_run;
Run *finished_runs;
Run *spent_runs;
pthread_mutex_t runs_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t run_changed;
pthread_cond_t run_noticed;

/* --- starting and ending ---------------------------------------------------------------------- */

static void order_on_finished(void *context, nova_status status);

/* Starts the next run of a stream; `runs_lock` is held. A status other than NOVA_OK ends the
 * run. */
static nova_status order_start(Run *run)
{
    if (run->cancelled || run->dropped)
        return NOVA_CANCELLED;
    ProgramObject *program = run->program;
    nova_status status = NOVA_OK;
    if (program->device != NULL)
        return device_run_start(run);
    if (program->pool != NULL)
        status = nova_pool_take(program->pool, &run->workspace);
    if (status == NOVA_OK)
        status = nova_execution_bind(run->execution, run->call.data,
                                     run->call.data + program->arg_count, run->workspace);
    if (status == NOVA_OK) {
        run->state = RUNNING;
        status = nova_instance_submit(run->execution->instance, nova_execution_task, run->execution,
                                      &run->options, order_on_finished);
        run->started = status == NOVA_OK;
    }
    return status;
}

/* Records the end of a run; `runs_lock` is held. Returns the next run of the stream. */
static Run *order_end(Run *run, nova_status status)
{
    nova_pool_give(run->program->pool, run->workspace);
    run->workspace = NULL;
    if (run->dropped && status == NOVA_OK) /* enqueued after one that has failed since */
        status = NOVA_CANCELLED;
    run->status = status;
    run->state = FINISHED;
    if (run->waiters > 0)
        pthread_cond_broadcast(&run_changed);
    if (run->waiters == 0 || run->is_awaited) {
        run->next_finished = finished_runs;
        finished_runs = run;
        run->listed = true;
        pthread_cond_signal(&run_noticed);
    }
    if (run->program->device != NULL)
        device_run_stop_clock(run);
    Stream *stream = run->stream;
    if (stream == NULL)
        return NULL;
    Run **link = &stream->first, *before = NULL; /* one past its deadline may be after others */
    while (*link != run) {
        before = *link;
        link = &before->next;
    }
    *link = run->next;
    if (stream->last == run)
        stream->last = before;
    if (status != NOVA_OK)
        for (Run *later = run->next; later != NULL; later = later->next)
            later->dropped = true;
    return stream->first;
}

void runs_start(Run *run)
{
    while (run != NULL && (run->state == QUEUED || run->is_early)) {
        nova_status status = run->is_early ? run->status : order_start(run);
        if (status == NOVA_OK && !run->is_early)
            return;
        run = order_end(run, status);
    }
}

void runs_end(Run *run, nova_status status)
{
    if (run->lingers && run->state >= FINISHED) { /* its time was over before */
        run->lingers = false;
        if (run->state == REAPED) {
            run->next_spent = spent_runs;
            spent_runs = run;
            pthread_cond_signal(&run_noticed);
        }
        pthread_cond_broadcast(&run_changed);
    } else if (!run->lingers && run->stream != NULL && run->stream->first != run) {
        run->is_early = true;
        run->status = status;
        /* only a device begins with one before those before it have ended */
        device_run_stop_clock(run);
    } else {
        runs_start(order_end(run, status));
    }
}

/* By the thread that ended the run, before its instance can be reused. */
static void order_on_finished(void *context, nova_status status)
{
    pthread_mutex_lock(&runs_lock);
    runs_end(((nova_execution *)context)->owner, status);
    pthread_mutex_unlock(&runs_lock);
}

/* --- fork ------------------------------------------------------------------------------------- */

/* Timed waits use the monotonic clock, in a child as well. */
static bool order_init_conditions(void)
{
    pthread_condattr_t monotonic;
    if (pthread_condattr_init(&monotonic) != 0)
        return false;
    bool created = pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0 &&
                   pthread_cond_init(&run_changed, &monotonic) == 0 &&
                   pthread_cond_init(&run_noticed, &monotonic) == 0;
    pthread_condattr_destroy(&monotonic);
    return created;
}

static void order_before_fork(void)
{
    pthread_mutex_lock(&runs_lock);
}

static void order_after_fork(void)
{
    pthread_mutex_unlock(&runs_lock);
}

/* The threads that ran them are not here: all runs of the parent count as cancelled. */
static void order_in_child(void)
{
    (void)order_init_conditions();
    device_runs_in_child();
    calls_running_in_child();
    finished_runs = spent_runs = NULL;
    for (Run *run = runs_in_flight; run != NULL; run = run->after) {
        if (run->stream != NULL)
            run->stream->first = run->stream->last = NULL;
        run->waiters = 0;
        run->listed = false;
        if (run->lingers && run->state == REAPED) {
            run->next_spent = spent_runs;
            spent_runs = run;
        }
        run->lingers = false;
        if (run->state < FINISHED) {
            run->status = NOVA_CANCELLED;
            run->state = FINISHED;
        }
    }
    pthread_mutex_unlock(&runs_lock);
}

bool init_runs(void)
{
    if (!order_init_conditions() ||
        pthread_atfork(order_before_fork, order_after_fork, order_in_child) != 0) {
        PyErr_SetString(PyExc_OSError, "the system has no memory for a condition variable");
        return false;
    }
    return true;
}
