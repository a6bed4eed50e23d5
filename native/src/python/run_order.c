/* Submitted runs, without the GIL: starting one when it is its turn, ending it, and fork. */
#include "runs.h"

#include <time.h>

Run *runs_in_flight; /* the oldest */
Run *newest_run;
Run *finished_runs;
pthread_mutex_t runs_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t run_changed;
pthread_cond_t run_noticed;

/* --- starting and ending ----------------------------------------------------------------------- */

static void on_done(void *context, nova_status status);

/* Starts a run whose turn it is; `runs_lock` is held. A status other than NOVA_OK ends the run. */
static nova_status start(Run *run)
{
    if (run->cancelled || run->dropped)
        return NOVA_CANCELLED;
    ProgramObject *program = run->program;
    nova_status status = NOVA_OK;
    if (program->pool != NULL)
        status = nova_pool_take(program->pool, &run->workspace);
    if (status == NOVA_OK)
        status = nova_execution_bind(run->execution, run->call.data,
                                     run->call.data + program->arg_count, run->workspace);
    if (status == NOVA_OK) {
        run->state = RUNNING;
        status = nova_instance_submit(run->execution->instance, nova_execution_task,
                                      run->execution, &run->options, on_done);
        run->started = status == NOVA_OK;
    }
    return status;
}

/* Notes the end of a run; `runs_lock` is held. Returns the run of the stream whose turn it is. */
static Run *end(Run *run, nova_status status)
{
    nova_pool_give(run->program->pool, run->workspace);
    run->workspace = NULL;
    run->status = status;
    run->state = FINISHED;
    if (run->waiters > 0)
        pthread_cond_broadcast(&run_changed);
    if (run->waiters == 0 || run->wanted) {
        run->next_finished = finished_runs;
        finished_runs = run;
        run->listed = true;
        pthread_cond_signal(&run_noticed);
    }
    Stream *stream = run->stream;
    if (stream == NULL)
        return NULL;
    stream->first = run->next;
    if (stream->first == NULL)
        stream->last = NULL;
    if (status != NOVA_OK)
        for (Run *later = stream->first; later != NULL; later = later->next)
            later->dropped = true;
    return stream->first;
}

void runs_start(Run *run)
{
    while (run != NULL) {
        nova_status status = start(run);
        if (status == NOVA_OK)
            return;
        run = end(run, status);
    }
}

/* By the thread that ended the run, before its instance can be reused. */
static void on_done(void *context, nova_status status)
{
    pthread_mutex_lock(&runs_lock);
    runs_start(end(((nova_execution *)context)->owner, status));
    pthread_mutex_unlock(&runs_lock);
}

/* --- fork -------------------------------------------------------------------------------------- */

/* Timed waits count on the clock that nobody sets, in a child as well. */
static bool init_conditions(void)
{
    pthread_condattr_t monotonic;
    if (pthread_condattr_init(&monotonic) != 0)
        return false;
    bool made = pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0 &&
                pthread_cond_init(&run_changed, &monotonic) == 0 &&
                pthread_cond_init(&run_noticed, &monotonic) == 0;
    pthread_condattr_destroy(&monotonic);
    return made;
}

static void before_fork(void)
{
    pthread_mutex_lock(&runs_lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&runs_lock);
}

/* The threads that ran them are not here: all runs of the parent count as cancelled. */
static void in_child(void)
{
    (void)init_conditions();
    finished_runs = NULL;
    for (Run *run = runs_in_flight; run != NULL; run = run->after) {
        if (run->stream != NULL)
            run->stream->first = run->stream->last = NULL;
        run->waiters = 0;
        run->listed = false;
        if (run->state < FINISHED) {
            run->status = NOVA_CANCELLED;
            run->state = FINISHED;
        }
    }
    pthread_mutex_unlock(&runs_lock);
}

bool init_runs(void)
{
    if (!init_conditions() || pthread_atfork(before_fork, after_fork, in_child) != 0) {
        PyErr_SetString(PyExc_OSError, "the system has no room for a condition variable");
        return false;
    }
    return true;
}
