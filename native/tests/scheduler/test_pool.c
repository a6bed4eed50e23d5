/* The pool: submissions, waiting, nested and parallel runs, resizing, fork, shutdown, idling.
 *
 *     test_pool [no-fork]      (TSan does not follow a fork of a process with threads) */
#define _GNU_SOURCE /* sched_getaffinity */

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shapes.h"

typedef struct context {
    nova_instance *instance;
    _Atomic uint32_t ran;
    _Atomic uint32_t open; /* task 0 waits for this, if requested */
    _Atomic uint32_t entered;
    _Atomic uint32_t ended; /* calls of the callback */
    nova_status status;     /* that the callback got */
    bool waits;
    const nova_graph *inner;
    unsigned depth;
} context;

static void pause_ms(long milliseconds)
{
    struct timespec pause = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

static nova_status count_task(void *argument, uint32_t task, unsigned worker)
{
    context *context = argument;
    (void)worker;
    atomic_fetch_add(&context->ran, 1);
    if (task == 0 && context->waits) {
        atomic_store(&context->entered, 1);
        while (atomic_load(&context->open) == 0)
            pause_ms(1);
    }
    return NOVA_OK;
}

static void note_end(void *argument, nova_status status)
{
    context *context = argument;
    context->status = status; /* plain: the waiter must be ordered after it */
    atomic_fetch_add(&context->ended, 1);
}

/* --- submissions ------------------------------------------------------------------------------ */

static void test_submit(unsigned workers)
{
    shape *shape = shape_fan(300);
    nova_instance *instance = instance_with(shape->graph, workers);
    nova_run_options options = {.workers = workers};
    for (int round = 0; round < 100; round++) {
        context context = {.waits = round % 10 == 0};
        nova_run_result result;
        CHECK(nova_instance_submit(instance, count_task, &context, &options, note_end) == NOVA_OK);
        if (context.waits) {
            CHECK(nova_instance_submit(instance, count_task, &context, &options, NULL) ==
                  NOVA_BUSY);
            CHECK(nova_instance_wait(instance, 0, NULL) == NOVA_NOT_FINISHED);
            while (atomic_load(&context.entered) == 0)
                pause_ms(1);
            CHECK(nova_instance_wait(instance, 3000000, NULL) == NOVA_NOT_FINISHED);
            atomic_store(&context.open, 1);
        }
        if (round % 3 == 0) /* no other thread helps */
            while (nova_instance_wait(instance, 0, NULL) == NOVA_NOT_FINISHED)
                pause_ms(1);
        CHECK(nova_instance_wait(instance, UINT64_MAX, &result) == NOVA_OK);
        CHECK(atomic_load(&context.ended) == 1 && context.status == NOVA_OK);
        CHECK(atomic_load(&context.ran) == 302 && result.executed == 302);
    }
    nova_instance_destroy(instance);
    shape_free(shape);
}

static void test_submit_cancel(unsigned workers)
{
    shape *shape = shape_fan(300);
    nova_instance *instance = instance_with(shape->graph, workers);
    nova_run_options options = {.workers = workers};
    for (int round = 0; round < 50; round++) {
        context context = {0};
        CHECK(nova_instance_submit(instance, count_task, &context, &options, note_end) == NOVA_OK);
        if (round % 2 == 0)
            sched_yield();
        nova_instance_cancel(instance);
        nova_run_result result;
        nova_status status = nova_instance_wait(instance, UINT64_MAX, &result);
        CHECK(status == NOVA_CANCELLED || (status == NOVA_OK && result.executed == 302));
        CHECK(context.status == status && atomic_load(&context.ended) == 1);
        CHECK(atomic_load(&context.ran) == result.executed);
    }
    nova_instance_destroy(instance);
    shape_free(shape);
}

/* Many in flight concurrently; destroying waits for them. */
static void test_many_submissions(unsigned workers)
{
    enum { COUNT = 40 };
    shape *shape = shape_fan(50);
    nova_instance *instances[COUNT];
    static context contexts[COUNT];
    memset(contexts, 0, sizeof contexts);
    for (int i = 0; i < COUNT; i++) {
        instances[i] = instance_with(shape->graph, workers);
        CHECK(nova_instance_submit(instances[i], count_task, &contexts[i],
                                   &(nova_run_options){.workers = workers}, note_end) == NOVA_OK);
    }
    for (int i = 0; i < COUNT; i++) {
        nova_instance_destroy(instances[i]);
        CHECK(atomic_load(&contexts[i].ran) == 52 && atomic_load(&contexts[i].ended) == 1);
    }
    shape_free(shape);
}

static void *wait_for(void *argument)
{
    CHECK(nova_instance_wait(((context *)argument)->instance, UINT64_MAX, NULL) == NOVA_OK);
    return NULL;
}

static void test_several_waiters(unsigned workers)
{
    shape *shape = shape_fan(300);
    context context = {.waits = true};
    context.instance = instance_with(shape->graph, workers);
    CHECK(nova_instance_submit(context.instance, count_task, &context,
                               &(nova_run_options){.workers = workers}, note_end) == NOVA_OK);
    pthread_t threads[6];
    for (int i = 0; i < 6; i++)
        CHECK(pthread_create(&threads[i], NULL, wait_for, &context) == 0);
    pause_ms(2);
    atomic_store(&context.open, 1);
    for (int i = 0; i < 6; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(atomic_load(&context.ran) == 302 && atomic_load(&context.ended) == 1);
    nova_instance_destroy(context.instance);
    shape_free(shape);
}

/* --- several runs at once --------------------------------------------------------------------- */

/* Every task runs a graph, a part of them submitted first. */
static nova_status run_inside(void *argument, uint32_t task, unsigned worker)
{
    context *outer = argument;
    (void)worker;
    atomic_fetch_add(&outer->ran, 1);
    if (outer->depth == 0)
        return NOVA_OK;
    context inner = {.inner = outer->inner, .depth = outer->depth - 1};
    nova_instance *instance;
    CHECK(nova_instance_create(inner.inner, 0, 0, &instance) == NOVA_OK);
    nova_run_options options = {.workers = nova_workers_count()};
    if (task % 2 == 0) {
        CHECK(nova_instance_submit(instance, run_inside, &inner, &options, NULL) == NOVA_OK);
        CHECK(nova_instance_wait(instance, UINT64_MAX, NULL) == NOVA_OK);
    } else {
        CHECK(nova_instance_run(instance, run_inside, &inner, &options, NULL) == NOVA_OK);
    }
    CHECK(atomic_load(&inner.ran) == nova_graph_get_facts(inner.inner).task_count);
    nova_instance_destroy(instance);
    return NOVA_OK;
}

static void *run_nested(void *argument)
{
    context *context = argument;
    nova_instance *instance;
    CHECK(nova_instance_create(context->inner, 0, 0, &instance) == NOVA_OK);
    nova_run_options options = {.workers = nova_workers_count()};
    for (int round = 0; round < 3; round++)
        CHECK(nova_instance_run(instance, run_inside, context, &options, NULL) == NOVA_OK);
    nova_instance_destroy(instance);
    return NULL;
}

static void test_nested(unsigned workers, int callers)
{
    shape *shape = shape_fan(4);
    nova_workers_options pool = {.count = workers};
    CHECK(nova_workers_configure(&pool) == NOVA_OK);
    pthread_t threads[4];
    context contexts[4];
    for (int i = 0; i < callers; i++) {
        contexts[i] = (context){.inner = shape->graph, .depth = 2};
        CHECK(pthread_create(&threads[i], NULL, run_nested, &contexts[i]) == 0);
    }
    for (int i = 0; i < callers; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    shape_free(shape);
}

/* Three callers on two cores: once all of them are at work, threads of the pool stay away. */
typedef struct crowd {
    pthread_t caller;
    const nova_graph *graph;
    _Atomic uint32_t *arrived; /* callers that have begun: only grows */
    _Atomic uint32_t *inside;  /* callers at work */
    _Atomic uint32_t *helped;  /* tasks that others ran while all three were */
} crowd;

static nova_status work_in_crowd(void *argument, uint32_t task, unsigned worker)
{
    crowd *crowd = argument;
    (void)worker;
    if (task == 0) { /* a host task */
        CHECK(pthread_equal(pthread_self(), crowd->caller));
        atomic_fetch_add(crowd->inside, 1);
        atomic_fetch_add(crowd->arrived, 1);
        while (atomic_load(crowd->arrived) < 3)
            pause_ms(1);
        pause_ms(5); /* the threads inside see that it is crowded, and leave */
        return NOVA_OK;
    }
    if (task == 401) {
        atomic_fetch_sub(crowd->inside, 1);
        return NOVA_OK;
    }
    if (atomic_load(crowd->inside) == 3 && !pthread_equal(pthread_self(), crowd->caller))
        atomic_fetch_add(crowd->helped, 1);
    for (volatile int i = 0; i < 2000; i++)
        ;
    return NOVA_OK;
}

static void *run_in_crowd(void *argument)
{
    crowd *crowd = argument;
    crowd->caller = pthread_self();
    nova_instance *instance;
    CHECK(nova_instance_create(crowd->graph, 2, 0, &instance) == NOVA_OK);
    nova_run_options options = {.workers = 2};
    CHECK(nova_instance_run(instance, work_in_crowd, crowd, &options, NULL) == NOVA_OK);
    nova_instance_destroy(instance);
    return NULL;
}

static void test_no_oversubscription(void)
{
    shape *shape = shape_fan(400);
    nova_graph_destroy(shape->graph);
    shape->core[0] = NOVA_HOST;
    shape_finish(shape);
    nova_workers_options pool = {.count = 2};
    CHECK(nova_workers_configure(&pool) == NOVA_OK);
    _Atomic uint32_t arrived = 0, inside = 0, helped = 0;
    pthread_t threads[3];
    crowd crowds[3];
    for (int i = 0; i < 3; i++) {
        crowds[i] = (crowd){
            .graph = shape->graph, .arrived = &arrived, .inside = &inside, .helped = &helped};
        CHECK(pthread_create(&threads[i], NULL, run_in_crowd, &crowds[i]) == 0);
    }
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    /* A caller that sleeps briefly yields its core, for one task. */
    CHECK(atomic_load(&helped) <= 12);
    shape_free(shape);
}

/* --- the threads ------------------------------------------------------------------------------ */

static nova_status check_pinned(void *argument, uint32_t task, unsigned worker)
{
    context *context = argument;
    (void)worker;
    cpu_set_t set;
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    if (task > 0 && CPU_COUNT(&set) == 1)
        atomic_fetch_add(&context->ran, 1);
    return NOVA_OK;
}

static void test_pinning(void)
{
    nova_workers_shutdown(); /* threads that exist are not bound */
    nova_workers_options pool = {.count = 2, .pin = true};
    CHECK(nova_workers_configure(&pool) == NOVA_OK);
    shape *shape = shape_fan(50);
    nova_instance *instance;
    CHECK(nova_instance_create(shape->graph, 2, 0, &instance) == NOVA_OK);
    context context = {0};
    CHECK(nova_instance_submit(instance, check_pinned, &context, &(nova_run_options){.workers = 2},
                               NULL) == NOVA_OK);
    while (nova_instance_wait(instance, 0, NULL) == NOVA_NOT_FINISHED)
        pause_ms(1);
    CHECK(atomic_load(&context.ran) == 51); /* all but the root, on threads of the pool */
    nova_instance_destroy(instance);
    shape_free(shape);
    nova_workers_shutdown();
}

static void *resize(void *argument)
{
    _Atomic uint32_t *stop = argument;
    for (unsigned i = 0; atomic_load(stop) == 0; i++) {
        nova_workers_options pool = {.count = 1 + i % 5};
        CHECK(nova_workers_configure(&pool) == NOVA_OK);
        sched_yield();
    }
    return NULL;
}

static void test_resizing(void)
{
    shape *shape = shape_fan(300);
    nova_instance *instance = instance_with(shape->graph, 5);
    _Atomic uint32_t stop = 0;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, resize, &stop) == 0);
    for (int round = 0; round < 100; round++) {
        context context = {0};
        nova_run_options options = {.workers = 5};
        if (round % 2 == 0) {
            CHECK(nova_instance_run(instance, count_task, &context, &options, NULL) == NOVA_OK);
        } else {
            CHECK(nova_instance_submit(instance, count_task, &context, &options, NULL) == NOVA_OK);
            CHECK(nova_instance_wait(instance, UINT64_MAX, NULL) == NOVA_OK);
        }
        CHECK(atomic_load(&context.ran) == 302);
    }
    atomic_store(&stop, 1);
    CHECK(pthread_join(thread, NULL) == 0);
    nova_instance_destroy(instance);
    shape_free(shape);
}

static void test_shutdown_waits(void)
{
    shape *shape = shape_fan(300);
    nova_instance *instance = instance_with(shape->graph, 3);
    nova_run_options options = {.workers = 3};
    for (int round = 0; round < 20; round++) {
        context context = {0};
        CHECK(nova_instance_submit(instance, count_task, &context, &options, NULL) == NOVA_OK);
        nova_workers_shutdown();
        CHECK(nova_instance_wait(instance, 0, NULL) == NOVA_OK);
        CHECK(atomic_load(&context.ran) == 302);
    }
    nova_workers_shutdown();
    nova_instance_destroy(instance);
    shape_free(shape);
}

static double cpu_seconds(void)
{
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void test_idle_costs_nothing(void)
{
    shape *shape = shape_fan(300);
    nova_instance *instance = instance_with(shape->graph, 4);
    context context = {0};
    CHECK(nova_instance_run(instance, count_task, &context, &(nova_run_options){.workers = 4},
                            NULL) == NOVA_OK);
    int idle = 0; /* the spinning ends; on a busy machine threads take a while to reach that */
    for (int attempt = 0; attempt < 20 && !idle; attempt++) {
        pause_ms(50);
        double before = cpu_seconds();
        pause_ms(400);
        idle = cpu_seconds() - before < 0.01;
    }
    CHECK(idle);
    nova_instance_destroy(instance);
    shape_free(shape);
}

static void test_fork(void)
{
    shape *shape = shape_fan(300);
    nova_instance *idle = instance_with(shape->graph, 3), *busy;
    CHECK(nova_instance_create(shape->graph, 3, 0, &busy) == NOVA_OK);
    nova_run_options options = {.workers = 3};
    context context = {0}, waiting = {.waits = true};
    CHECK(nova_instance_run(idle, count_task, &context, &options, NULL) == NOVA_OK);
    CHECK(nova_instance_submit(busy, count_task, &waiting, &options, NULL) == NOVA_OK);
    while (atomic_load(&waiting.entered) == 0)
        pause_ms(1);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(nova_workers_count() == 3);
        atomic_store(&context.ran, 0);
        CHECK(nova_instance_run(idle, count_task, &context, &options, NULL) == NOVA_OK);
        CHECK(nova_instance_submit(idle, count_task, &context, &options, NULL) == NOVA_OK);
        CHECK(nova_instance_wait(idle, UINT64_MAX, NULL) == NOVA_OK);
        CHECK(atomic_load(&context.ran) == 604);
        CHECK(nova_instance_wait(busy, UINT64_MAX, NULL) == NOVA_CANCELLED);
        waiting.waits = false;
        CHECK(nova_instance_run(busy, count_task, &waiting, &options, NULL) == NOVA_OK);
        nova_instance_destroy(idle);
        nova_instance_destroy(busy);
        nova_workers_shutdown();
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    atomic_store(&waiting.open, 1);
    CHECK(nova_instance_wait(busy, UINT64_MAX, NULL) == NOVA_OK);
    CHECK(atomic_load(&waiting.ran) == 302);
    nova_instance_destroy(idle);
    nova_instance_destroy(busy);
    shape_free(shape);
}

int main(int count, char **arguments)
{
    CHECK(nova_workers_available() >= 1);
    for (unsigned workers = 1; workers <= 4; workers++) {
        test_submit(workers);
        test_submit_cancel(workers);
        test_many_submissions(workers);
        test_several_waiters(workers);
        test_nested(workers, 1);
        test_nested(workers, 3);
    }
    test_no_oversubscription();
    test_resizing();
    test_pinning();
    test_shutdown_waits();
    test_idle_costs_nothing();
    if (count < 2 || strcmp(arguments[1], "no-fork") != 0)
        test_fork();
    nova_workers_shutdown();
    return 0;
}
