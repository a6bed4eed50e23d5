/* Submitted runs; shared by the files that start, reap, wait for and show them.
 *
 * A run is QUEUED after the previous run of its stream, RUNNING on the pool or on its device,
 * FINISHED when a thread of either has ended it, REAPING while a thread with the GIL creates its
 * result or exception and releases its arrays, and REAPED then. The threads of pool and device
 * never touch Python: hence the separate steps. A run past its deadline is FINISHED while its
 * device still executes it: it lingers, in flight and with its arrays, until that has ended as
 * well. `runs_lock` guards the states and the streams; it is never held while waiting for the
 * GIL. */
#ifndef NOVA_PYTHON_RUNS_RUNS_H
#define NOVA_PYTHON_RUNS_RUNS_H

#include "python/devices/devices.h"

#include <pthread.h>

typedef enum { QUEUED, RUNNING, FINISHED, REAPING, REAPED } State;

typedef struct Stream {
    PyObject_HEAD
    Run *first, *last; /* in flight, in their order; guarded by `runs_lock` */
    PyObject *error;   /* the first exception that was not reported, or NULL; guarded by the GIL */
} Stream;

struct Run {
    PyObject_HEAD
    ProgramObject *program;    /* owned */
    Stream *stream;            /* owned, or NULL */
    nova_execution *execution; /* until it is reaped */
    void *workspace;           /* while it is running */
    nova_run_options options;
    /* the traces that were open when it was submitted, or NULL; until it is reaped */
    PyObject *sinks;
    Call call;           /* until it is reaped */
    PyObject *result;    /* when it is reaped: the result or */
    PyObject *error;     /* the exception */
    Run *before, *after; /* in flight; guarded by the GIL */
    /* Guarded by `runs_lock`: */
    State state;
    nova_status status;
    bool started;       /* its instance was in use */
    bool cancelled;     /* cancellation was requested */
    bool dropped;       /* a run before it in the stream failed */
    bool is_awaited;    /* by the thread of await_finished, when it has ended */
    bool listed;        /* in finished_runs */
    unsigned waiters;   /* threads in wait() */
    Run *next;          /* in the stream */
    Run *next_finished; /* in the list of await_finished */
    /* Of a run on a device: */
    nova_device_value *values; /* until it is reaped */
    nova_device_trace *trace;  /* the same; NULL without tracing */
    nova_error failure;
    nova_stop_request stop;
    void *event;   /* recorded after it, if it was enqueued at submission, else NULL */
    bool is_quick; /* all its values are on the device */
    /* And these guarded by `runs_lock`: */
    bool is_enqueued;     /* by the submitting thread */
    bool begun;           /* a thread has it: too late to cancel */
    bool is_early;        /* it has ended, with `status`, before those before it in the stream */
    bool lingers;         /* past its deadline, while the device still runs */
    uint64_t deadline_ns; /* while it is in the list of runs with a deadline */
    Run *next_waiting, *next_timed, *next_spent;
};

extern pthread_mutex_t runs_lock;
extern pthread_cond_t run_changed; /* a run that has waiters ended */
extern pthread_cond_t run_noticed; /* there is something for await_finished */
extern Run *finished_runs;         /* for await_finished; see `take_finished` for the references */
extern Run *newest_run;            /* the other end of runs_in_flight; guarded by the GIL */
extern bool runs_closing;          /* the interpreter exits; guarded by the GIL */

extern Run *spent_runs; /* lingered, were reaped before, and have ended now */

/* Starts a run, and those after it while they end immediately; `runs_lock` is held. */
void runs_start(Run *run);

/* Ends a run, or records that a lingering one has ended; starts those after it. `runs_lock` is
 * held. */
void runs_end(Run *run, nova_status status);

/* Whether the arrays of a run are no longer used; and whether it lingers. Take `runs_lock`. */
bool run_is_over(Run *run);
bool run_lingers(Run *run);

/* device_runs.c. Values and order of a run's arrays; false with an exception. With the GIL. */
bool device_run_prepare(Run *run);

/* Whether a run can be enqueued now; `runs_lock` is held. Then it is, and a thread waits for it. */
bool device_run_may_start(const Run *run);
void device_run_enqueue(Run *run);

/* Has a thread execute a run, in the order of its stream; `runs_lock` is held. */
nova_status device_run_start(Run *run);

/* A run has no time limit any more; ends those whose time is over, and returns when the next one's
 * is. `runs_lock` is held. */
void device_run_stop_clock(Run *run);
uint64_t device_runs_expire(void);

/* Creates the result or the error of a run that has ended; releases its resources. With the GIL. */
void device_run_conclude(Run *run);
void device_run_release(Run *run);

/* In a child of fork, where its threads are not. */
void device_runs_in_child(void);
void calls_running_in_child(void);

/* Its state at this moment. Takes `runs_lock`. */
State run_state(Run *run);

/* Whether a run has ended. Creates the result of one that has, after those before it in its stream:
 * the first error is the one that counts. With the GIL. */
bool run_reap(Run *run);

/* The same for all runs in flight. With the GIL, which reports of errors may give away. */
void runs_reap(void);

/* Lets go of the arrays of runs that lingered and have ended. With the GIL. */
void runs_release_spent(void);

/* 1 when it has ended, 0 at the timeout (0 ns: only polls), -1 with an exception. With the GIL,
 * which is released meanwhile. */
int run_wait_for(Run *run, uint64_t timeout_ns);

#endif
