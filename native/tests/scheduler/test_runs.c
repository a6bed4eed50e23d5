/* Runs: order, errors, cancelling, time-outs, stalls, traces, and no allocation. */
#define _POSIX_C_SOURCE 200809L /* nanosleep */

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "../support/allocations.h"
#include "shapes.h"

/* --- tasks ------------------------------------------------------------------------------------ */

typedef struct context {
    nova_instance *instance;
    _Atomic uint32_t ran;
    uint32_t special;      /* the task that does something */
    nova_status status;    /* its result */
    bool cancels;          /* it cancels its run */
    _Atomic uint32_t open; /* it waits for this */
    _Atomic uint32_t entered;
    pthread_t host;
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
    if (task != context->special)
        return NOVA_OK;
    if (context->cancels)
        nova_instance_cancel(context->instance);
    return context->status;
}

static nova_status wait_for_release(void *argument, uint32_t task, unsigned worker)
{
    context *context = argument;
    (void)worker;
    atomic_fetch_add(&context->ran, 1);
    if (task != context->special)
        return NOVA_OK;
    atomic_store(&context->entered, 1);
    while (atomic_load(&context->open) == 0)
        pause_ms(1);
    return NOVA_OK;
}

static nova_status sleep_a_little(void *argument, uint32_t task, unsigned worker)
{
    (void)task, (void)worker;
    atomic_fetch_add(&((context *)argument)->ran, 1);
    pause_ms(2);
    return NOVA_OK;
}

/* --- tests ------------------------------------------------------------------------------------ */

static void test_arguments(void)
{
    shape *shape = shape_fan(4);
    nova_instance *instance = instance_with(shape->graph, 2), *other;
    context context = {.special = NOVA_NO_TASK};
    CHECK(nova_instance_create(NULL, 1, 0, &other) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_instance_create(shape->graph, NOVA_MAX_WORKERS + 1, 0, &other) == NOVA_OUT_OF_RANGE);
    CHECK(nova_instance_run(NULL, count_task, &context, NULL, NULL) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_instance_run(instance, NULL, &context, NULL, NULL) == NOVA_INVALID_ARGUMENT);
    nova_run_options options = {.trace = true}; /* has no rings */
    CHECK(nova_instance_run(instance, count_task, &context, &options, NULL) ==
          NOVA_INVALID_ARGUMENT);
    options = (nova_run_options){.policy = (nova_policy)3};
    CHECK(nova_instance_run(instance, count_task, &context, &options, NULL) ==
          NOVA_INVALID_ARGUMENT);
    CHECK(nova_workers_configure(NULL) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_workers_configure(&(nova_workers_options){.count = NOVA_MAX_WORKERS + 1}) ==
          NOVA_OUT_OF_RANGE);
    CHECK(nova_instance_wait(NULL, 0, NULL) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_instance_wait(instance, 0, NULL) == NOVA_OK); /* no run to wait for */
    nova_instance_cancel(instance);                          /* no run to cancel */
    uint8_t states[6];
    CHECK(nova_instance_states(instance, states) == NOVA_OK && states[0] == NOVA_TASK_WAITING);
    CHECK(atomic_load(&context.ran) == 0);

    /* Cheap: the plan runs it inline, and the cancel before it has no effect. */
    nova_run_result result;
    CHECK(nova_instance_run(instance, count_task, &context, NULL, &result) == NOVA_OK);
    CHECK(result.workers == 1 && result.executed == 6 && atomic_load(&context.ran) == 6);
    nova_instance_destroy(instance);
    nova_instance_destroy(NULL);
    shape_free(shape);
}

/* The first error stops the run; every task has succeeded, failed, is ready or waits. */
static void test_error(unsigned workers)
{
    shape *shape = shape_fan(1000);
    nova_instance *instance = instance_with(shape->graph, workers);
    nova_run_options options = {.workers = workers};
    for (uint32_t special = 0; special < 1002; special += 143) {
        context context = {.special = special, .status = NOVA_SYSTEM_ERROR};
        nova_run_result result;
        CHECK(nova_instance_run(instance, count_task, &context, &options, &result) ==
              NOVA_SYSTEM_ERROR);
        CHECK(result.status == NOVA_SYSTEM_ERROR && result.task == special);
        CHECK(result.executed + 1 == atomic_load(&context.ran));
        uint8_t states[1002];
        CHECK(nova_instance_states(instance, states) == NOVA_OK);
        uint32_t finished = 0;
        for (uint32_t i = 0; i < 1002; i++)
            finished += states[i] == NOVA_TASK_DONE;
        CHECK(finished == result.executed && states[special] == NOVA_TASK_FAILED);
        CHECK(special == 1001 || states[1001] == NOVA_TASK_WAITING);
        for (uint32_t i = 0; i < result.running_count; i++)
            CHECK(states[result.running[i]] == NOVA_TASK_DONE);
    }
    context context = {.special = NOVA_NO_TASK}; /* and it runs again */
    CHECK(nova_instance_run(instance, count_task, &context, &options, NULL) == NOVA_OK);
    nova_instance_destroy(instance);
    shape_free(shape);
}

static void test_cancel_from_task(unsigned workers)
{
    shape *shape = shape_fan(1000);
    nova_instance *instance = instance_with(shape->graph, workers);
    nova_run_options options = {.workers = workers};
    for (uint32_t special = 0; special < 1001; special += 77) {
        context context = {.instance = instance, .special = special, .cancels = true};
        nova_run_result result;
        CHECK(nova_instance_run(instance, count_task, &context, &options, &result) ==
              NOVA_CANCELLED);
        CHECK(result.task == NOVA_NO_TASK && result.executed == atomic_load(&context.ran));
        /* The one that cancelled was running, and finished. */
        bool listed = false;
        for (uint32_t i = 0; i < result.running_count; i++)
            listed = listed || result.running[i] == special;
        CHECK(listed && result.running_count <= workers);
    }
    nova_instance_destroy(instance);
    shape_free(shape);
}

static void *cancel_later(void *argument)
{
    context *context = argument;
    while (atomic_load(&context->entered) == 0)
        pause_ms(1);
    uint32_t running[8];
    CHECK(nova_instance_running(context->instance, running, 8) == 1 &&
          running[0] == context->special);
    uint8_t states[66];
    CHECK(nova_instance_states(context->instance, states) == NOVA_BUSY);
    CHECK(nova_instance_run(context->instance, count_task, context, NULL, NULL) == NOVA_BUSY);
    nova_instance_cancel(context->instance);
    pause_ms(5);
    atomic_store(&context->open, 1);
    return NULL;
}

static void test_cancel_from_thread(unsigned workers)
{
    shape *shape = shape_fan(64);
    nova_instance *instance = instance_with(shape->graph, workers);
    nova_run_options options = {.workers = workers};
    context context = {.instance = instance, .special = 0};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, cancel_later, &context) == 0);
    nova_run_result result;
    CHECK(nova_instance_run(instance, wait_for_release, &context, &options, &result) ==
          NOVA_CANCELLED);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(result.executed == 1 && result.running_count == 1 && result.running[0] == 0);
    nova_instance_destroy(instance);
    shape_free(shape);
}

static void test_timeout(unsigned workers)
{
    shape *shape = shape_fan(2000);
    nova_instance *instance = instance_with(shape->graph, workers);
    nova_run_options options = {.workers = workers, .timeout_ns = 20000000};
    context context = {.special = NOVA_NO_TASK};
    nova_run_result result;
    CHECK(nova_instance_run(instance, sleep_a_little, &context, &options, &result) == NOVA_TIMEOUT);
    CHECK(result.executed == atomic_load(&context.ran) && result.executed < 2002);
    CHECK(result.running_count >= 1 && result.running_count <= workers);
    options.timeout_ns = UINT64_MAX; /* does not fit: none */
    CHECK(nova_instance_run(instance, count_task, &context, &options, &result) == NOVA_OK);
    nova_instance_destroy(instance);
    shape_free(shape);
}

/* A task that waits for one too many: the run reports a stall instead of hanging. */
static void test_stall(unsigned workers, bool submitted)
{
    shape *shape = shape_make(200);
    for (uint32_t i = 0; i < 199; i++)
        shape_connect(shape, i, i < 100 ? 100 + i % 50 : 199);
    shape->tasks[120].waits++;
    shape->core[130] = NOVA_HOST;
    CHECK(nova_graph_create(&shape->tables, NOVA_GRAPH_MAY_STALL, &shape->graph) == NOVA_OK);
    nova_instance *instance = instance_with(shape->graph, workers);
    nova_run_options options = {.workers = workers};
    for (int round = 0; round < 20; round++) {
        context context = {.special = NOVA_NO_TASK};
        nova_run_result result;
        if (submitted) {
            CHECK(nova_instance_submit(instance, count_task, &context, &options, NULL) == NOVA_OK);
            CHECK(nova_instance_wait(instance, UINT64_MAX, &result) == NOVA_STALLED);
        } else {
            CHECK(nova_instance_run(instance, count_task, &context, &options, &result) ==
                  NOVA_STALLED);
        }
        CHECK(result.executed == 198 && result.running_count == 0);
        uint8_t states[200];
        CHECK(nova_instance_states(instance, states) == NOVA_OK);
        for (uint32_t i = 0; i < 200; i++)
            CHECK(states[i] == (i == 120 || i == 199 ? NOVA_TASK_WAITING : NOVA_TASK_DONE));
    }
    nova_instance_destroy(instance);
    shape_free(shape);
}

static nova_status check_host(void *argument, uint32_t task, unsigned worker)
{
    context *context = argument;
    if (task % 3 == 0)
        CHECK(worker == 0 && pthread_equal(pthread_self(), context->host));
    return NOVA_OK;
}

static void test_host_tasks(unsigned workers)
{
    shape *shape = shape_make(900);
    for (uint32_t i = 0; i < 900; i++) {
        shape->core[i] = i % 3 == 0 ? NOVA_HOST : NOVA_MATRIX;
        if (i + 7 < 900)
            shape_connect(shape, i, i + 7);
    }
    shape_finish(shape);
    nova_instance *instance = instance_with(shape->graph, workers);
    nova_run_options options = {.workers = workers};
    context context = {.host = pthread_self()};
    for (int round = 0; round < 20; round++)
        CHECK(nova_instance_run(instance, check_host, &context, &options, NULL) == NOVA_OK);
    nova_instance_destroy(instance);
    shape_free(shape);
}

static void test_trace(unsigned workers)
{
    shape *shape = shape_fan(500);
    nova_workers_options pool = {.count = workers};
    CHECK(nova_workers_configure(&pool) == NOVA_OK);
    nova_instance *instance;
    CHECK(nova_instance_create(shape->graph, workers, 512, &instance) == NOVA_OK);
    nova_run_options options = {.workers = workers, .trace = true};
    context context = {.special = NOVA_NO_TASK};
    nova_run_result result;
    uint64_t before = nova_clock_ns();
    CHECK(nova_instance_run(instance, count_task, &context, &options, &result) == NOVA_OK);
    uint64_t after = nova_clock_ns();
    static nova_trace_record records[512];
    uint8_t is_recorded[502] = {0};
    uint32_t stolen = 0;
    for (unsigned slot = 0; slot < workers; slot++) {
        uint64_t count = nova_instance_trace(instance, slot, records, 512), last = before;
        CHECK(count <= 502);
        for (uint64_t i = 0; i < count; i++) {
            const nova_trace_record *record = &records[i];
            CHECK(record->worker == slot && record->start_ns >= last);
            CHECK(record->ready_ns >= before && record->ready_ns <= record->start_ns);
            CHECK(record->end_ns >= record->start_ns && record->end_ns <= after);
            is_recorded[record->task]++;
            last = record->end_ns;
            if (record->stolen_from == NOVA_NOT_STOLEN)
                continue;
            CHECK(record->stolen_from < workers && record->stolen_from != slot);
            stolen++;
        }
    }
    for (uint32_t i = 0; i < 502; i++)
        CHECK(is_recorded[i] == 1);
    CHECK(stolen == result.stolen);

    /* A ring that is too small keeps the newest records, and returns the total. */
    nova_instance_destroy(instance);
    CHECK(nova_instance_create(shape->graph, 1, 10, &instance) == NOVA_OK);
    options.workers = 1;
    CHECK(nova_instance_run(instance, count_task, &context, &options, NULL) == NOVA_OK);
    CHECK(nova_instance_trace(instance, 0, records, 512) == 502);
    for (uint32_t i = 0; i < 10; i++)
        CHECK(records[i].task == 492 + i);
    CHECK(nova_instance_trace(instance, 0, records, 3) == 502 && records[0].task == 499);
    options.trace = false;
    CHECK(nova_instance_run(instance, count_task, &context, &options, NULL) == NOVA_OK);
    CHECK(nova_instance_trace(instance, 0, records, 512) == 0);
    CHECK(nova_instance_trace(instance, 1, records, 512) == 0);
    nova_instance_destroy(instance);
    shape_free(shape);
}

/* --- release order ---------------------------------------------------------------------------- */

enum { FAN = 5, MOST_ROOTS = 6 };

typedef struct releases {
    uint32_t roots;
    _Atomic uint32_t entered;
    uint32_t root_of[MOST_ROOTS];  /* a worker: the root that it ran */
    uint32_t first_of[MOST_ROOTS]; /* a worker: the task that it ran after that */
} releases;

/* A root waits until all roots run, so that every worker runs one of them. */
static nova_status record_release(void *argument, uint32_t task, unsigned worker)
{
    releases *releases = argument;
    if (task < releases->roots) {
        CHECK(releases->root_of[worker] == NOVA_NO_TASK);
        releases->root_of[worker] = task;
        atomic_fetch_add(&releases->entered, 1);
        while (atomic_load(&releases->entered) < releases->roots)
            pause_ms(1);
    } else if (releases->first_of[worker] == NOVA_NO_TASK) {
        releases->first_of[worker] = task;
    }
    return NOVA_OK;
}

/* Of the tasks that a worker releases it runs the first next, and in the upper half of the slots of
 * a `locality` run the last. */
static void test_release_order(unsigned workers, nova_policy policy)
{
    shape *shape = shape_make(workers * (1 + FAN));
    for (uint32_t root = 0; root < workers; root++)
        for (uint32_t i = 0; i < FAN; i++)
            shape_connect(shape, root, workers + root * FAN + i);
    shape_finish(shape);
    nova_instance *instance = instance_with(shape->graph, workers);
    nova_run_options options = {.workers = workers, .policy = policy};
    for (int round = 0; round < 10; round++) {
        releases releases = {.roots = workers};
        memset(releases.root_of, 0xff, sizeof releases.root_of);
        memset(releases.first_of, 0xff, sizeof releases.first_of);
        nova_run_result result;
        CHECK(nova_instance_run(instance, record_release, &releases, &options, &result) == NOVA_OK);
        CHECK(result.executed == workers * (1 + FAN));
        for (unsigned worker = 0; worker < workers; worker++) {
            bool upper = policy == NOVA_LOCALITY && 2 * worker >= workers;
            uint32_t first = workers + releases.root_of[worker] * FAN;
            CHECK(releases.first_of[worker] == (upper ? first + FAN - 1 : first));
        }
    }
    nova_instance_destroy(instance);
    shape_free(shape);
}

static void test_no_allocation(unsigned workers)
{
    shape *shape = shape_fan(100);
    nova_instance *instance = instance_with(shape->graph, workers);
    nova_run_options options = {.workers = workers};
    context context = {.special = NOVA_NO_TASK};
    CHECK(nova_instance_run(instance, count_task, &context, &options, NULL) == NOVA_OK);
    uint64_t before = atomic_load(&allocations);
    CHECK(before > 0); /* the instance itself: the count works */
    for (int round = 0; round < 200; round++)
        CHECK(nova_instance_run(instance, count_task, &context, &options, NULL) == NOVA_OK);
    CHECK(atomic_load(&allocations) == before);
    nova_instance_destroy(instance);
    shape_free(shape);
}

int main(void)
{
    test_arguments();
    for (unsigned workers = 1; workers <= 4; workers++) {
        test_error(workers);
        test_cancel_from_task(workers);
        test_cancel_from_thread(workers);
        test_timeout(workers);
        test_host_tasks(workers);
        test_trace(workers);
        test_no_allocation(workers);
        if (workers == 1)
            continue; /* one thread runs the tasks in order and does not read the counters */
        test_stall(workers, false);
        test_stall(workers, true);
        test_release_order(workers, NOVA_LOCALITY);
        test_release_order(workers, NOVA_CRITICAL_PATH);
    }
    for (unsigned workers = 5; workers <= MOST_ROOTS; workers++)
        test_release_order(workers, NOVA_LOCALITY);
    nova_workers_shutdown();
    return 0;
}
