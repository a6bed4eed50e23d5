/* Submitted runs on devices: threads that wait for the device, so that no other thread has to.
 *
 * A run whose arrays are all on the device is enqueued by the submitting thread, and a waiter
 * thread waits for the event after it. All others are executed by a waiter thread: it copies from
 * and to the host, and runs host kernels. Work enqueued on the device cannot be cancelled: a run
 * past its deadline lingers, with its arrays, until it ends. Loops of a persistent kernel are asked
 * to stop, and end soon. */
#include "python/runs/runs.h"

#include <signal.h>

enum { MOST_THREADS = 8 };

/* All guarded by `runs_lock`. */
static pthread_cond_t device_runs_work_available = PTHREAD_COND_INITIALIZER;
static Run *device_runs_first_waiting, *device_runs_last_waiting;
/* idle: without a run, or about to take a waiting one */
static unsigned device_runs_thread_count, device_runs_idle_count;
static size_t device_runs_waiting_count;
static Run *device_runs_timed; /* those that have a time limit */

/* --- threads ---------------------------------------------------------------------------------- */

/* A nova_poll of host kernels: whether the run was cancelled, or is past its deadline. */
static nova_status device_runs_scan(void *owner)
{
    const Run *run = owner;
    pthread_mutex_lock(&runs_lock);
    (void)device_runs_expire();
    nova_status status = run->lingers ? NOVA_TIMEOUT : run->cancelled ? NOVA_CANCELLED : NOVA_OK;
    pthread_mutex_unlock(&runs_lock);
    return status;
}

/* What a thread does for a run, without any lock; the status of the run. */
static nova_status device_runs_run_now(Run *run)
{
    const ProgramObject *program = run->program;
    nova_device *device = program_device(program);
    if (run->event != NULL)
        return nova_device_await(device, run->event, &run->failure);
    nova_device_run_options options = {.stream = run->call.stream,
                                       .waits = true,
                                       .stop = &run->stop,
                                       .host = {.workers = run->options.workers,
                                                .policy = run->options.policy,
                                                .poll = device_runs_scan,
                                                .owner = run}};
    if (run->options.trace) {
        nova_error ignored; /* the run itself reports a lost device */
        (void)nova_device_trace_create(device, &run->trace, &ignored);
        options.trace = run->trace;
    }
    return nova_device_program_run(program->on_device, run->values,
                                   run->values + program->arg_count, &options, &run->failure);
}

static void *device_runs_serve(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&runs_lock);
    for (;; device_runs_idle_count++) { /* counted by the creator of the thread */
        while (device_runs_first_waiting == NULL)
            pthread_cond_wait(&device_runs_work_available, &runs_lock);
        device_runs_idle_count--;
        Run *run = device_runs_first_waiting;
        device_runs_first_waiting = run->next_waiting;
        if (device_runs_first_waiting == NULL)
            device_runs_last_waiting = NULL;
        device_runs_waiting_count--;
        run->begun = true;
        nova_status status = NOVA_CANCELLED;
        if (!run->cancelled) {
            pthread_mutex_unlock(&runs_lock);
            status = device_runs_run_now(run);
            pthread_mutex_lock(&runs_lock);
        }
        runs_end(run, status);
    }
    return NULL;
}

/* Whether a thread can take a run, now or later. An idle thread takes one run: runs that are
 * enqueued and not yet taken need theirs. */
static bool device_runs_ensure_thread(void)
{
    if (device_runs_idle_count > device_runs_waiting_count ||
        device_runs_thread_count == MOST_THREADS)
        return true;
    pthread_t thread;
    sigset_t all, before; /* signals are delivered to the threads of the application */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool created = pthread_create(&thread, NULL, device_runs_serve, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (created)
        (void)pthread_detach(thread);
    device_runs_thread_count += created;
    device_runs_idle_count += created;
    return device_runs_thread_count > 0;
}

/* Gives a run to the threads; `runs_lock` is held. */
static bool device_runs_enqueue(Run *run)
{
    if (!device_runs_ensure_thread())
        return false;
    run->next_waiting = NULL;
    if (device_runs_last_waiting != NULL)
        device_runs_last_waiting->next_waiting = run;
    else
        device_runs_first_waiting = run;
    device_runs_last_waiting = run;
    device_runs_waiting_count++;
    pthread_cond_signal(&device_runs_work_available);
    return true;
}

/* --- time limits ------------------------------------------------------------------------------ */

static void device_runs_start_clock(Run *run)
{
    if (run->options.timeout_ns == 0 ||
        __builtin_add_overflow(nova_clock_ns(), run->options.timeout_ns, &run->deadline_ns))
        return;
    run->next_timed = device_runs_timed;
    device_runs_timed = run;
    pthread_cond_signal(&run_noticed); /* it may be the first whose time is over */
}

void device_run_stop_clock(Run *run)
{
    for (Run **link = &device_runs_timed; *link != NULL; link = &(*link)->next_timed)
        if (*link == run) {
            *link = run->next_timed;
            return;
        }
}

uint64_t device_runs_expire(void)
{
    uint64_t now = nova_clock_ns(), nearest = UINT64_MAX;
    for (Run *run = device_runs_timed; run != NULL;) {
        Run *next = run->next_timed;
        if (run->deadline_ns <= now) {
            run->lingers = true;
            nova_device_request_stop(&run->stop);
            runs_end(run, NOVA_TIMEOUT);
            next = device_runs_timed; /* others may have ended with it */
        } else if (run->deadline_ns < nearest) {
            nearest = run->deadline_ns;
        }
        run = next;
    }
    return nearest;
}

/* --- submitting ------------------------------------------------------------------------------- */

bool device_run_prepare(Run *run)
{
    ProgramObject *program = run->program;
    size_t count = (size_t)(program->arg_count + program->output_count);
    bool ignored; /* a thread waits in any case */
    run->values = PyMem_Malloc((count + 1) * sizeof *run->values);
    if (run->values == NULL) {
        PyErr_NoMemory();
        return false;
    }
    if (!device_prepare(program, &run->call, run->values, &ignored))
        return false;
    run->options.trace = run->sinks != NULL;
    nova_program_options host;
    apply_host_settings(&host); /* those of the thread that submits */
    run->options.workers = host.workers;
    run->options.policy = host.policy;
    run->is_quick = !nova_device_program_is_mixed(program->on_device);
    for (size_t i = 0; i < count; i++)
        run->is_quick &= run->values[i].address != 0;
    return true;
}

nova_status device_run_start(Run *run)
{
    if (!device_runs_enqueue(run))
        return NOVA_SYSTEM_ERROR;
    run->state = RUNNING;
    device_runs_start_clock(run);
    return NOVA_OK;
}

/* Whether all before it in its stream have been enqueued on its device: then it can be, too. */
bool device_run_may_start(const Run *run)
{
    if (!run->is_quick)
        return false;
    for (const Run *other = run->stream != NULL ? run->stream->first : NULL; other != run;
         other = other->next) {
        if (other == NULL)
            return true;
        if (!other->is_enqueued || other->program->device != run->program->device)
            return false;
    }
    return true;
}

/* Enqueues a run immediately. With the GIL, which is held: others submit after it. */
void device_run_enqueue(Run *run)
{
    ProgramObject *program = run->program;
    nova_device *device = program_device(program);
    nova_error ignored;
    if (run->options.trace)
        (void)nova_device_trace_create(device, &run->trace, &ignored);
    const nova_device_run_options options = {
        .stream = run->call.stream, .trace = run->trace, .stop = &run->stop};
    nova_status status = nova_device_program_run(
        program->on_device, run->values, run->values + program->arg_count, &options, &run->failure);
    if (status == NOVA_OK)
        status = nova_device_mark(device, run->call.stream, &run->event, &run->failure);
    pthread_mutex_lock(&runs_lock);
    if (status != NOVA_OK) {
        runs_end(run, status);
    } else {
        device_runs_start_clock(run);
        if (!device_runs_enqueue(run)) /* no thread at all: it is waited for here */
            runs_end(run, nova_device_await(device, run->event, &run->failure));
    }
    pthread_mutex_unlock(&runs_lock);
}

/* --- the end ---------------------------------------------------------------------------------- */

/* What a run raises. A new reference; NULL with an exception. */
static PyObject *device_runs_make_error(Run *run)
{
    if (!run->dropped && run->status != NOVA_TIMEOUT && run->status != NOVA_CANCELLED &&
        run->status != NOVA_SYSTEM_ERROR) {
        raise_device_error((DeviceObject *)run->program->device, &run->failure);
        return NULL;
    }
    PyObject *cause = run->dropped && run->stream->error != NULL ? run->stream->error : Py_None;
    return PyObject_CallFunction(run->program->report, "iiOOiO", (int)run->status,
                                 run->dropped ? -2 : -1, Py_None, Py_None, (int)run->begun, cause);
}

void device_run_conclude(Run *run)
{
    if (run->status == NOVA_OK)
        run->result = call_result(run->program, &run->call);
    else
        run->error = device_runs_make_error(run);
}

void device_run_release(Run *run)
{
    device_trace_add(run->program, run->sinks, run->trace);
    run->trace = NULL;
    PyMem_Free(run->values);
    run->values = NULL;
}

void device_runs_in_child(void)
{
    (void)pthread_cond_init(&device_runs_work_available, NULL);
    device_runs_first_waiting = device_runs_last_waiting = NULL;
    device_runs_thread_count = device_runs_idle_count = 0;
    device_runs_waiting_count = 0;
    device_runs_timed = NULL;
}
