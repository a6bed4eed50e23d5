/* The scheduler: runs a task graph on all cores, each task as soon as its predecessors finish.
 *
 *     nova_graph     immutable: the tasks of a program, prepared once (roots, priorities, width)
 *     nova_instance  one run of a graph at a time: counters and queues, reused from run to run
 *     nova_workers_* the threads of the process, shared by all runs and created at first use
 *
 * Work stealing: a run has `workers` worker slots, each with a Chase-Lev deque. The thread that
 * calls nova_instance_run holds slot 0 and works too; idle threads of the pool hold the others, and
 * leave when they find no task. A task may start other runs and wait for them. In a child of fork()
 * the pool is new; runs in flight are not inherited: their status there is NOVA_CANCELLED. */
#ifndef NOVA_SCHEDULER_H
#define NOVA_SCHEDULER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nova/status.h"
#include "nova/tables.h"

enum { NOVA_MAX_WORKERS = 256, NOVA_MAX_NODES = 64 };

#define NOVA_NO_TASK UINT32_MAX

/* --- graphs ----------------------------------------------------------------------------------- */

typedef struct nova_graph nova_graph;

/* The parts of a graph, owned by the caller. Tasks and successors must outlive the graph; core and
 * cost are copied. */
typedef struct nova_graph_tables {
    const nova_task *tasks; /* in topological order: `waits`, `first_successor`, ... are used */
    const uint32_t *successors;
    const uint8_t *core;  /* a task: NOVA_MATRIX, NOVA_VECTOR, NOVA_HOST; NULL: all vector */
    const uint64_t *cost; /* a task: nanoseconds, roughly; NULL: each costs 1 */
    uint32_t task_count;
    uint32_t successor_count;
} nova_graph_tables;

enum {
    /* Accept a task that waits for more tasks than name it: its run ends with NOVA_STALLED. Without
     * this flag, and for tasks that wait for fewer, the graph is refused. */
    NOVA_GRAPH_MAY_STALL = 1,
};

typedef struct nova_graph_facts {
    uint32_t task_count;
    uint32_t root_count;
    uint32_t host_count;
    uint32_t width; /* most tasks at the same time, with a core for each */
    uint64_t total_cost;
    uint64_t critical_cost; /* of the most expensive path: no number of cores is faster */
} nova_graph_facts;

/* Throughput that converts the operations and bytes of a kernel into nanoseconds. */
typedef struct nova_speeds {
    double flops_per_ns;
    double bytes_per_ns;
} nova_speeds;

/* Checks and prepares; the caller owns *graph and the tables. Thread-safe. */
nova_status nova_graph_create(const nova_graph_tables *tables, uint32_t flags, nova_graph **graph);

/* The same for the tasks of a file's checked tables; core types and costs are those of the kernels.
 * The caller owns *graph; `tables` must outlive it. Thread-safe. */
nova_status nova_graph_from_tables(const nova_tables *tables, const nova_speeds *speeds,
                                   nova_graph **graph);

/* Frees the graph; NULL is fine. Not while an instance of it exists. */
void nova_graph_destroy(nova_graph *graph);

/* Thread-safe. */
nova_graph_facts nova_graph_get_facts(const nova_graph *graph);

/* Cost of the most expensive path from the start of each task to the end of the program; owned by
 * the graph. Thread-safe. */
const uint64_t *nova_graph_priorities(const nova_graph *graph);

/* --- the thread plan -------------------------------------------------------------------------- */

/* A thread is worth waking when it gets this many nanoseconds of work. */
#define NOVA_COST_PER_WORKER UINT64_C(20000)

/* Number of threads, including the caller, that run a graph: the minimum of `limit`, its width,
 * twice its parallelism (total / critical cost, rounded up) and total / cost_per_worker; at least
 * 1, and 1 means that it runs inline. Twice, because a greedy schedule on p cores takes at most
 * total / p + critical (Graham's bound): beyond that more threads gain little. Pure. */
unsigned nova_plan_workers(const nova_graph_facts *facts, uint64_t cost_per_worker, unsigned limit);

/* --- the threads of the process --------------------------------------------------------------- */

typedef struct nova_workers_options {
    unsigned count; /* threads that work concurrently, including callers; 0: the CPUs allowed */
    unsigned spin;  /* checks for work before a thread sleeps; 0: the default */
    bool pin;       /* bind thread i to the i-th allowed CPU; affects threads created later */
    /* Simulated NUMA nodes: how many CPUs each has; NULL: those of the machine. Affects runs that
     * start later. */
    const unsigned *node_sizes;
    unsigned node_count;
} nova_workers_options;

/* CPUs that this process may use (its affinity mask, which containers set). Thread-safe. */
unsigned nova_workers_available(void);

/* Sets the size; runs that are in flight adapt between two tasks. Thread-safe. */
nova_status nova_workers_configure(const nova_workers_options *options);

/* Threads that may work at the same time. Thread-safe. */
unsigned nova_workers_count(void);

/* Waits for all runs and joins all threads; a later run makes new ones. Needed only before this
 * code is unmapped: at exit, idle threads hold no lock and are asleep. Not from a task. */
void nova_workers_shutdown(void);

/* --- runs ------------------------------------------------------------------------------------- */

typedef struct nova_instance nova_instance;

/* Runs one task in worker slot `worker`; a result other than NOVA_OK stops the run. Called
 * concurrently, but never by two threads with the same `worker` or `task`. */
typedef nova_status (*nova_execute)(void *context, uint32_t task, unsigned worker);

/* Called once at the end of a submitted run, by the thread that ended it and before any waiter
 * returns. May submit other instances; must not wait for, reuse or destroy this one. */
typedef void (*nova_done)(void *context, nova_status status);

typedef enum nova_policy {
    NOVA_LOCALITY = 0,      /* newest first (LIFO): the operands are still in the cache */
    NOVA_FIFO = 1,          /* oldest first */
    NOVA_CRITICAL_PATH = 2, /* of the tasks made ready together, the longest remaining path first */
} nova_policy;

/* Called with the run's context by the thread of nova_instance_run alone, about every NOVA_POLL_NS:
 * between two tasks, or when it sleeps. What it returns other than NOVA_OK stops the run. */
typedef nova_status (*nova_poll)(void *context);

#define NOVA_POLL_NS UINT64_C(50000000)

typedef struct nova_run_options {
    nova_policy policy;
    unsigned workers;    /* at most this many threads; 0: nova_plan_workers decides */
    uint64_t timeout_ns; /* stop between tasks after this long; 0: never */
    bool trace;          /* fill the trace rings, which the instance must have */
    nova_poll poll;      /* for nova_instance_run; NULL: none */
} nova_run_options;

/* For a task that takes long, from nova_execute in worker slot `worker`: whether its run goes on.
 * Looks at the deadline, polls if it is due and this is the thread to do it, and returns the status
 * that stopped the run, or NOVA_OK. */
nova_status nova_instance_check(struct nova_instance *instance, unsigned worker);

typedef struct nova_run_result {
    nova_status status;      /* of the run: NOVA_OK, the first error of a task, NOVA_CANCELLED,
                                NOVA_TIMEOUT or NOVA_STALLED */
    uint32_t task;           /* that reported the error; else NOVA_NO_TASK */
    uint32_t executed;       /* tasks that succeeded */
    uint32_t stolen;         /* of them, stolen from the deque of another worker */
    unsigned workers;        /* worker slots of the run; 1: it ran inline */
    uint32_t running_count;  /* of a run that was stopped: tasks that were running, and finished */
    const uint32_t *running; /* owned by the instance until its next run */
} nova_run_result;

typedef enum nova_task_state {
    NOVA_TASK_WAITING = 0,
    NOVA_TASK_READY = 1,
    NOVA_TASK_DONE = 2,
    NOVA_TASK_FAILED = 3,
} nova_task_state;

/* Creates an instance with `workers` slots (0: nova_workers_count()) and trace rings of
 * `trace_capacity` records a slot (0: none), all in one allocation; runs allocate no memory. The
 * caller owns *instance, the graph must outlive it. Thread-safe. */
nova_status nova_instance_create(const nova_graph *graph, unsigned workers, uint32_t trace_capacity,
                                 nova_instance **instance);

/* Waits for a run in flight, then frees. NULL is fine. Not together with any other call. */
void nova_instance_destroy(nova_instance *instance);

/* Runs the graph with the caller at work; host tasks run on the caller. `options` and `result`
 * may be NULL. Returns the status of the run, or NOVA_BUSY when one is in flight. Thread-safe. */
nova_status nova_instance_run(nova_instance *instance, nova_execute execute, void *context,
                              const nova_run_options *options, nova_run_result *result);

/* Starts a run and returns immediately; host tasks run on the holder of slot 0, in sequence. `done`
 * may be NULL. NOVA_BUSY when a run is in flight. Thread-safe. */
nova_status nova_instance_submit(nova_instance *instance, nova_execute execute, void *context,
                                 const nova_run_options *options, nova_done done);

/* Waits for the run in flight, and works in it. Returns its status (that of the last run when none
 * is in flight), or NOVA_NOT_FINISHED when `timeout_ns` passed first (UINT64_MAX: no limit; 0: only
 * polls); the run continues then. Several threads may wait; a task may not wait for its own run.
 * Thread-safe. */
nova_status nova_instance_wait(nova_instance *instance, uint64_t timeout_ns,
                               nova_run_result *result);

/* Requests that the run in flight stops between tasks; returns immediately. No effect when there is
 * none. Thread-safe, also from a task. */
void nova_instance_cancel(nova_instance *instance);

/* Tasks that run at this moment: writes up to `count` and returns how many. Thread-safe. */
uint32_t nova_instance_running(const nova_instance *instance, uint32_t *tasks, uint32_t count);

/* States of all tasks after a run (nova_task_state, one byte each); NOVA_BUSY during one. */
nova_status nova_instance_states(const nova_instance *instance, uint8_t *states);

/* --- traces ----------------------------------------------------------------------------------- */

#define NOVA_NOT_STOLEN UINT16_MAX

typedef struct nova_trace_record {
    uint32_t task;
    uint16_t worker;
    uint16_t stolen_from; /* the slot whose deque it was stolen from, or NOVA_NOT_STOLEN */
    uint64_t ready_ns;    /* CLOCK_MONOTONIC */
    uint64_t start_ns;
    uint64_t end_ns;
} nova_trace_record;

/* Copies the records of the last run in slot `worker`, oldest first: up to `count` of the newest.
 * Returns the total number of records: more than `count` or the capacity means that records were
 * lost. Not during a run. */
uint64_t nova_instance_trace(const nova_instance *instance, unsigned worker,
                             nova_trace_record *records, uint32_t count);

/* CLOCK_MONOTONIC in nanoseconds, the clock of traces and timeouts. Thread-safe. */
uint64_t nova_clock_ns(void);

/* --- simulation ------------------------------------------------------------------------------- */

typedef struct nova_simulated {
    uint32_t task;
    uint32_t core;
    uint64_t start; /* in the unit of the costs */
    uint64_t end;
} nova_simulated;

typedef struct nova_simulation {
    uint64_t makespan;
    uint64_t busy; /* core time in tasks: the total cost */
    uint64_t critical_cost;
    uint64_t lower_bound; /* max(critical cost, total / cores rounded up, cost on the host) */
    uint32_t executed;
    uint32_t task; /* that reported an error; else NOVA_NO_TASK */
} nova_simulation;

/* Simulates list scheduling: runs all tasks on this thread in the order of `cores` virtual cores
 * under `policy`, host tasks on core 0, each task taking its cost. A seed other than 0 picks among
 * the ready tasks at random instead; the same arguments give the same order on every machine.
 * `execute` may be NULL; `timeline` (NULL, or one record per task, in the order of the starts) and
 * `summary` are filled also on errors. Returns NOVA_STALLED when tasks remain that never become
 * ready. Thread-safe. */
nova_status nova_simulate(const nova_graph *graph, unsigned cores, nova_policy policy,
                          uint64_t seed, nova_execute execute, void *context,
                          nova_simulated *timeline, nova_simulation *summary);

#endif
