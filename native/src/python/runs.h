/* Submitted runs, as the files that start, reap, wait for and show them share them.
 *
 * A run is QUEUED behind the run before it in its stream, RUNNING on the pool, FINISHED when a thread
 * of the pool has ended it, REAPING while a thread with the GIL makes its result or exception and lets
 * go of its arrays, and REAPED then. Threads of the pool never touch Python: that is why it has steps.
 * `runs_lock` guards the states and the streams; it is never held while the GIL is waited for. */
#ifndef NOVA_PYTHON_RUNS_H
#define NOVA_PYTHON_RUNS_H

#include "native.h"

#include <pthread.h>

typedef enum { QUEUED, RUNNING, FINISHED, REAPING, REAPED } State;

typedef struct Stream {
    PyObject_HEAD
    Run *first, *last; /* in flight, in their order; guarded by `runs_lock` */
    PyObject *error;   /* the first exception that nobody has seen, or NULL; guarded by the GIL */
} Stream;

struct Run {
    PyObject_HEAD
    ProgramObject *program;    /* owned */
    Stream *stream;            /* owned, or NULL */
    nova_execution *execution; /* until it is reaped */
    void *workspace;           /* while it is running */
    nova_run_options options;
    Call call;                 /* until it is reaped */
    PyObject *result;          /* when it is reaped: the result or */
    PyObject *error;           /* the exception */
    Run *before, *after;       /* in flight; guarded by the GIL */
    /* Guarded by `runs_lock`: */
    State state;
    nova_status status;
    bool started;        /* its instance was in use */
    bool cancelled;      /* somebody asked for it */
    bool dropped;        /* a run before it in the stream failed */
    bool wanted;         /* by the thread of await_finished, when it has ended */
    bool listed;         /* among finished_runs */
    unsigned waiters;    /* threads in wait() */
    Run *next;           /* in the stream */
    Run *next_finished;  /* in the list of await_finished */
};

extern pthread_mutex_t runs_lock;
extern pthread_cond_t run_changed; /* a run that has waiters ended */
extern pthread_cond_t run_noticed; /* there is something for await_finished */
extern Run *finished_runs;         /* for await_finished; `take_finished` says who has references */
extern Run *newest_run;            /* the other end of runs_in_flight; guarded by the GIL */
extern bool runs_closing;          /* the interpreter exits; guarded by the GIL */

/* Starts a run, and those behind it as long as they end at once; `runs_lock` is held. */
void runs_start(Run *run);

/* Its state at this moment. Takes `runs_lock`. */
State run_state(Run *run);

/* Whether a run has ended. Makes the result of one that has, behind those before it in its stream: the
 * first error is the one that counts. With the GIL. */
bool run_reap(Run *run);

/* The same for all runs in flight. With the GIL, which reports of errors may give away. */
void runs_reap(void);

/* 1 when it has ended, 0 when the time is over (0 ns: only looks), -1 with an exception. With the GIL,
 * which is given away. */
int run_wait_for(Run *run, uint64_t timeout_ns);

#endif
