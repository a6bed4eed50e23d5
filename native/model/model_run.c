/* The whole scheduler, all of its files: a caller and threads of the pool run a small graph, in
 * every order with up to a few switches. Found here: lost wake-ups, threads that never leave or
 * never come, a run that is ended twice, touched after its end, or with a task that ran twice or
 * too early.
 *
 *     model_run [more [most [n]]]   more switches than by default, at most that many orders a
 * program; program number n alone model_run planted             the pool's threads do not look
 * again before they sleep */
#define _GNU_SOURCE /* declarations that the sources need */

#include "explore.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include "nova/scheduler.h"

/* --- the C library, as the scheduler uses it -------------------------------------------------- */

static int start_thread(pthread_t *thread, void *(*body)(void *), void *argument);

#define malloc(size) explore_allocate(size)
#define calloc(count, size) explore_allocate((count) * (size))
#define aligned_alloc(alignment, size) explore_allocate(size)
#define free(memory) explore_free(memory)
#define NOVA_LOCK_SPIN 0 /* the spinlock only saves time */
#define pthread_create(thread, attributes, body, argument) start_thread(thread, body, argument)
#define pthread_join(thread, result) explore_join((int)(thread))
#define pthread_once(once, body) ((void)(once), (body)(), 0)
#define pthread_key_create(key, destroy) ((void)(key), 0)
#define pthread_getspecific(key) ((void)(key), explore_get_local())
#define pthread_setspecific(key, value) ((void)(key), explore_set_local(value), 0)

enum { MOST_TASKS = 8 };

uint64_t nova_clock_ns(void)
{
    return 1;
}

#include "model_cpu_affinity.h"

#define NOVA_NODES_FOLDER "" /* one node */
#include "scheduler/graph.c"
#include "scheduler/instance.c"
#include "scheduler/eventcount.c"
#include "scheduler/numa.c"
#include "scheduler/worker_count.c"
#include "scheduler/worker_pool.c"

static bool blind;

/* The planted bug: between parking and sleeping, every run seems to have no work. */
static nova_instance *look_or_not(nova_workers *pool, uint32_t preferred, bool spinning,
                                  uint32_t *index)
{
    if (blind && atomic_load_explicit(&pool->eventcount.parked, memory_order_relaxed) > 0)
        return NULL;
    return nova_workers_enter_run(pool, preferred, spinning, index);
}
#define nova_workers_enter_run look_or_not
#include "scheduler/worker_threads.c"
#undef nova_workers_enter_run
#include "scheduler/run.c"
#include "scheduler/submit.c"

typedef struct start {
    void *(*body)(void *);
    void *argument;
} start_of;

static void run_start(void *argument)
{
    start_of start = *(start_of *)argument;
    start.body(start.argument);
}

static int start_thread(pthread_t *thread, void *(*body)(void *), void *argument)
{
    start_of *start = explore_allocate(sizeof *start);
    *start = (start_of){body, argument};
    *thread = (pthread_t)explore_start(run_start, start);
    return 0;
}

/* --- the programs ----------------------------------------------------------------------------- */

static nova_task tasks[MOST_TASKS];
static uint32_t successors[MOST_TASKS], edges;
static uint8_t core[MOST_TASKS];
static uint32_t ran[MOST_TASKS], ended; /* plain: threads are coroutines */
static uint32_t task_count, cancel_at;
static nova_instance *instance;
static _Atomic uint32_t met;

static void connect(uint32_t from, uint32_t to)
{
    if (tasks[from].successor_count++ == 0)
        tasks[from].first_successor = edges;
    successors[edges++] = to;
    tasks[to].waits++;
}

static nova_status run_task(void *context, uint32_t task, unsigned worker)
{
    (void)context;
    explore_check(ran[task] == 0 && (core[task] != NOVA_HOST || worker == 0));
    for (uint32_t i = 0; i < task_count; i++)
        for (uint32_t k = 0; k < tasks[i].successor_count; k++)
            if (successors[tasks[i].first_successor + k] == task)
                explore_check(ran[i] == 1);
    ran[task]++;
    if (task == cancel_at)
        nova_instance_cancel(instance);
    return NOVA_OK;
}

static void note_end(void *context, nova_status status)
{
    (void)context, (void)status;
    ended++;
}

/* New tables and a new pool of some cores; threads do not spin. */
static nova_graph *begin_on(uint32_t cores, uint32_t count, uint32_t flags)
{
    pool_process = NULL;
    nova_workers_options pool = {.count = cores, .spin = 1};
    explore_check(nova_workers_configure(&pool) == NOVA_OK);
    task_count = count;
    const nova_graph_tables tables = {tasks, successors, core, NULL, count, edges};
    nova_graph *graph = NULL;
    explore_check(nova_graph_create(&tables, flags, &graph) == NOVA_OK);
    explore_check(nova_instance_create(graph, cores, 0, &instance) == NOVA_OK);
    memset(ran, 0, sizeof ran);
    ended = 0;
    return graph;
}

static nova_graph *begin(uint32_t count, uint32_t flags)
{
    return begin_on(2, count, flags);
}

static void clear_tables(void)
{
    memset(tasks, 0, sizeof tasks);
    memset(core, NOVA_VECTOR, sizeof core);
    edges = 0;
    cancel_at = NOVA_NO_TASK;
}

static void finish(nova_graph *graph, uint32_t expected)
{
    uint32_t finished = 0;
    for (uint32_t i = 0; i < task_count; i++)
        finished += ran[i];
    explore_check(expected == NOVA_NO_TASK || finished == expected);
    nova_instance_destroy(instance); /* freed: no thread may touch it any more */
    nova_graph_destroy(graph);
    nova_workers_shutdown();
}

static const nova_run_options two_workers = {.workers = 2};

/* 0 -> 1, 2 -> 3: the thread of the pool enters for one task and leaves again. */
static void run_diamond(void)
{
    clear_tables();
    connect(0, 1);
    connect(0, 2);
    connect(1, 3);
    connect(2, 3);
    nova_graph *graph = begin(4, 0);
    explore_check(nova_instance_run(instance, run_task, NULL, &two_workers, NULL) == NOVA_OK);
    finish(graph, 4);
}

/* Two roots that a host task waits for: the caller may be asleep when it becomes ready. */
static void run_host(void)
{
    clear_tables();
    connect(0, 2);
    connect(1, 2);
    core[2] = NOVA_HOST;
    nova_graph *graph = begin(3, 0);
    explore_check(nova_instance_run(instance, run_task, NULL, &two_workers, NULL) == NOVA_OK);
    finish(graph, 3);
}

/* Only the pool works, until a thread waits. */
static void submit_pair(void)
{
    clear_tables();
    connect(0, 1);
    nova_graph *graph = begin(3, 0);
    explore_check(nova_instance_submit(instance, run_task, NULL, &two_workers, note_end) == 0);
    explore_check(nova_instance_wait(instance, UINT64_MAX, NULL) == NOVA_OK);
    explore_check(ended == 1);
    finish(graph, 3);
}

/* Without a waiter: shutdown waits for the run. */
static void submit_alone(void)
{
    clear_tables();
    nova_graph *graph = begin(2, 0);
    explore_check(nova_instance_submit(instance, run_task, NULL, &two_workers, note_end) == 0);
    nova_workers_shutdown();
    explore_check(ended == 1);
    finish(graph, 2);
}

static void submit_and_cancel(void)
{
    clear_tables();
    nova_graph *graph = begin(2, 0);
    explore_check(nova_instance_submit(instance, run_task, NULL, &two_workers, note_end) == 0);
    nova_instance_cancel(instance);
    nova_status status = nova_instance_wait(instance, UINT64_MAX, NULL);
    explore_check(status == NOVA_OK || status == NOVA_CANCELLED);
    explore_check(ended == 1);
    finish(graph, NOVA_NO_TASK);
}

static void cancel_inside(void)
{
    clear_tables();
    connect(0, 2);
    nova_graph *graph = begin(3, 0);
    cancel_at = 0;
    nova_status status = nova_instance_run(instance, run_task, NULL, &two_workers, NULL);
    explore_check(status == NOVA_CANCELLED && ran[2] == 0);
    finish(graph, NOVA_NO_TASK);
}

/* Task 2 waits for one task too many: a stall is found, in every order. */
static void stall(void)
{
    clear_tables();
    connect(0, 2);
    connect(1, 2);
    tasks[2].waits++;
    nova_graph *graph = begin(3, NOVA_GRAPH_MAY_STALL);
    explore_check(nova_instance_run(instance, run_task, NULL, &two_workers, NULL) == NOVA_STALLED);
    finish(graph, 2);
}

/* A task without successors ends when all of these have started: each needs a thread. */
static nova_status meet(void *context, uint32_t task, unsigned worker)
{
    run_task(context, task, worker);
    if (tasks[task].successor_count > 0)
        return NOVA_OK;
    uint32_t all = task_count - (edges > 0); /* task 0 has all edges */
    if (atomic_fetch_add_explicit(&met, 1, memory_order_seq_cst) + 1 == all) {
        nova_futex_wake(&met, INT_MAX);
        return NOVA_OK;
    }
    uint32_t count;
    while ((count = atomic_load_explicit(&met, memory_order_seq_cst)) < all)
        nova_futex_wait(&met, count, UINT64_MAX);
    return NOVA_OK;
}

/* Three roots, three cores: the caller, and two threads that must both be woken. */
static void run_meeting(void)
{
    clear_tables();
    nova_graph *graph = begin_on(3, 3, 0);
    *(uint32_t *)&met = 0;
    nova_run_options three_workers = {.workers = 3};
    explore_check(nova_instance_run(instance, meet, NULL, &three_workers, NULL) == NOVA_OK);
    finish(graph, 3);
}

/* 0 -> 2, 3, and 1: a thread may take 1 when 3 is published, and another one must be woken. */
static void run_late_meeting(void)
{
    clear_tables();
    connect(0, 2);
    connect(0, 3);
    nova_graph *graph = begin_on(3, 4, 0);
    *(uint32_t *)&met = 0;
    nova_run_options three_workers = {.workers = 3};
    explore_check(nova_instance_run(instance, meet, NULL, &three_workers, NULL) == NOVA_OK);
    finish(graph, 4);
}

int main(int count, char **arguments)
{
    blind = count > 1 && strcmp(arguments[1], "planted") == 0;
    int more = count > 1 && !blind ? atoi(arguments[1]) : 0;
    uint64_t most = count > 2 ? strtoull(arguments[2], NULL, 10) : 0;
    size_t only = count > 3 ? strtoull(arguments[3], NULL, 10) : SIZE_MAX;
    static const struct {
        const char *name;
        void (*body)(void);
        int bound; /* three threads take a hundred times as long for each switch, two ten times */
    } programs[] = {
        {"submit, nobody waits", submit_alone, 1},
        {"diamond", run_diamond, 2},
        {"host task", run_host, 2},
        {"submit", submit_pair, 1},
        {"submit, cancel", submit_and_cancel, 1},
        {"cancel", cancel_inside, 2},
        {"stall", stall, 2},
        {"a thread for every task", run_meeting, 0},
        {"a thread for a task that is published later", run_late_meeting, 0},
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof programs / sizeof *programs && failed == 0; i++) {
        if (only != SIZE_MAX && i != only)
            continue;
        explore_options options = {.name = programs[i].name,
                                   .body = programs[i].body,
                                   .bound = programs[i].bound + more,
                                   .most = most};
        failed += explore(&options) != NULL;
    }
    return (failed > 0) == blind ? 0 : 1;
}
