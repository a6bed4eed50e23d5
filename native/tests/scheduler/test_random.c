/* Random graphs against a sequential run: every policy, 1 to 16 threads, run, submit and simulate.
 *
 *     test_random [seeds [first seed [most tasks]]]
 *
 * Meant for TSan and ASan: the values are plain memory, ordered only by the scheduler. */
#include <pthread.h>
#include <string.h>

#include "../support/check.h"
#include "random_graph.h"

typedef struct context {
    const random_graph *graph;
    uint64_t *values;
    uint32_t *times; /* a task: how often it ran */
    /* a worker slot: tasks that ran there; a race if two threads held it concurrently */
    uint64_t in_place[64];
    pthread_t host; /* thread that has to run host tasks */
    int has_host;
} context;

static nova_status compute(void *argument, uint32_t task, unsigned worker)
{
    context *context = argument;
    context->times[task]++;
    context->in_place[worker]++;
    if (context->graph->core[task] == NOVA_HOST) {
        CHECK(worker == 0);
        CHECK(!context->has_host || pthread_equal(pthread_self(), context->host));
    }
    context->values[task] = random_graph_value(context->graph, context->values, task);
    return NOVA_OK;
}

static void clear(context *context)
{
    size_t count = context->graph->task_count;
    memset(context->values, 0xee, count * sizeof *context->values);
    memset(context->times, 0, count * sizeof *context->times);
    memset(context->in_place, 0, sizeof context->in_place);
}

static void check(const context *context, uint64_t seed)
{
    const random_graph *graph = context->graph;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < graph->task_count; i++)
        if (context->times[i] != 1 || context->values[i] != graph->expected[i]) {
            fprintf(stderr, "seed %llu: task %u ran %u times\n", (unsigned long long)seed, i,
                    context->times[i]);
            exit(1);
        }
    for (int i = 0; i < 64; i++)
        sum += context->in_place[i];
    CHECK(sum == graph->task_count);
}

static uint64_t total_stolen;

static void run_all_ways(context *context, nova_instance *instance, uint64_t *state, uint64_t seed,
                         unsigned threads)
{
    for (int policy = NOVA_LOCALITY; policy <= NOVA_CRITICAL_PATH; policy++) {
        nova_run_options options = {.policy = (nova_policy)policy, .workers = threads};
        options.trace = random_next(state) % 4 == 0;
        nova_run_result result;
        clear(context);
        context->has_host = 1;
        context->host = pthread_self();
        CHECK(nova_instance_run(instance, compute, context, &options, &result) == NOVA_OK);
        CHECK(result.status == NOVA_OK && result.executed == context->graph->task_count);
        CHECK(result.workers == threads && result.running_count == 0);
        total_stolen += result.stolen;
        check(context, seed);
    }
    nova_run_options options = {.policy = (nova_policy)(random_next(state) % 3),
                                .workers = threads};
    clear(context);
    context->has_host = 0;
    CHECK(nova_instance_submit(instance, compute, context, &options, NULL) == NOVA_OK);
    CHECK(nova_instance_wait(instance, UINT64_MAX, NULL) == NOVA_OK);
    check(context, seed);
}

static void test_seed(uint64_t seed, uint32_t most)
{
    uint64_t state = seed ^ 0x5eed;
    random_graph *graph = random_graph_make(seed, most);
    context context = {.graph = graph};
    context.values = malloc(graph->task_count * sizeof *context.values);
    context.times = malloc(graph->task_count * sizeof *context.times);
    CHECK(context.values != NULL && context.times != NULL);
    unsigned threads = 1 + (unsigned)(seed % 16);
    nova_workers_options workers = {.count = threads, .spin = 1 + (unsigned)(seed % 3) * 300};
    CHECK(nova_workers_configure(&workers) == NOVA_OK);
    nova_instance *instance;
    CHECK(nova_instance_create(graph->graph, threads, 64, &instance) == NOVA_OK);
    run_all_ways(&context, instance, &state, seed, threads);
    nova_instance_destroy(instance);

    clear(&context);
    nova_simulation summary;
    CHECK(nova_simulate(graph->graph, threads, (nova_policy)(seed % 3), seed % 5, compute, &context,
                        NULL, &summary) == NOVA_OK);
    check(&context, seed);
    CHECK(summary.makespan >= summary.lower_bound && summary.executed == graph->task_count);
    free(context.values);
    free(context.times);
    random_graph_free(graph);
}

int main(int count, char **arguments)
{
    uint64_t seeds = count > 1 ? strtoull(arguments[1], NULL, 10) : 64;
    uint64_t first = count > 2 ? strtoull(arguments[2], NULL, 10) : 0;
    uint32_t most = count > 3 ? (uint32_t)strtoul(arguments[3], NULL, 10) : 50000;
    for (uint64_t seed = first; seed < first + seeds; seed++)
        test_seed(seed, most);
    CHECK(seeds < 16 || total_stolen > 0);
    nova_workers_shutdown();
    return 0;
}
