/* Graphs, the thread plan and the simulation. */
#include "shapes.h"

/* --- graphs ----------------------------------------------------------------------------------- */

static nova_status create(const shape *shape, uint32_t flags)
{
    nova_graph *graph = NULL;
    nova_status status = nova_graph_create(&shape->tables, flags, &graph);
    CHECK((graph != NULL) == (status == NOVA_OK));
    nova_graph_destroy(graph);
    return status;
}

static void test_refusals(void)
{
    nova_graph *graph;
    CHECK(nova_graph_create(NULL, 0, &graph) == NOVA_INVALID_ARGUMENT);
    shape *shape = shape_make(4);
    shape_connect(shape, 0, 2);
    shape_connect(shape, 1, 2);
    CHECK(create(shape, 0) == NOVA_OK);
    CHECK(create(shape, 8) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_graph_create(&shape->tables, 0, NULL) == NOVA_INVALID_ARGUMENT);

    shape->successors[1] = 4;
    CHECK(create(shape, 0) == NOVA_OUT_OF_RANGE);
    shape->successors[1] = 1; /* itself */
    CHECK(create(shape, 0) == NOVA_INVALID_ARGUMENT);
    shape->successors[1] = 0; /* backwards */
    CHECK(create(shape, 0) == NOVA_INVALID_ARGUMENT);
    shape->successors[1] = 2;

    shape->tasks[2].waits = 1; /* too few is never accepted: the task would be queued twice */
    CHECK(create(shape, 0) == NOVA_INVALID_ARGUMENT);
    CHECK(create(shape, NOVA_GRAPH_MAY_STALL) == NOVA_INVALID_ARGUMENT);
    shape->tasks[2].waits = 3;
    CHECK(create(shape, 0) == NOVA_INVALID_ARGUMENT);
    CHECK(create(shape, NOVA_GRAPH_MAY_STALL) == NOVA_OK);
    shape->tasks[2].waits = 2;

    shape->tasks[1].first_successor = 0; /* shared with task 0 */
    CHECK(create(shape, 0) == NOVA_INVALID_ARGUMENT);
    shape->tasks[1].first_successor = 2;
    CHECK(create(shape, 0) == NOVA_OUT_OF_RANGE);
    shape->tasks[1].first_successor = 1;
    shape->tasks[1].successor_count = UINT32_MAX;
    CHECK(create(shape, 0) == NOVA_OUT_OF_RANGE);
    shape->tasks[1].successor_count = 1;

    shape->core[3] = 3;
    CHECK(create(shape, 0) == NOVA_OUT_OF_RANGE);
    shape->core[3] = NOVA_HOST;
    shape->cost[0] = shape->cost[1] = UINT64_MAX / 2 + 1;
    CHECK(create(shape, 0) == NOVA_OVERFLOW);
    shape->tables.task_count = 0;
    CHECK(create(shape, 0) == NOVA_INVALID_ARGUMENT);
    shape_free(shape);
}

static void test_facts(void)
{
    /* 0 -> 1 -> 3, 0 -> 2 -> 3, and 4 alone. */
    shape *shape = shape_make(5);
    shape_connect(shape, 0, 1);
    shape_connect(shape, 0, 2);
    shape_connect(shape, 1, 3);
    shape_connect(shape, 2, 3);
    shape->cost[2] = 5000;
    shape->core[4] = NOVA_HOST;
    const nova_graph *graph = shape_finish(shape);
    nova_graph_facts facts = nova_graph_get_facts(graph);
    CHECK(facts.task_count == 5 && facts.root_count == 2 && facts.host_count == 1);
    CHECK(facts.total_cost == 9000 && facts.critical_cost == 7000 && facts.width == 2);
    const uint64_t priorities[] = {7000, 2000, 6000, 1000, 1000};
    CHECK(memcmp(nova_graph_priorities(graph), priorities, sizeof priorities) == 0);
    shape_free(shape);
}

/* A cheap chain that starts an expensive task at every step: narrow by levels, wide in time. */
static void test_width_is_measured_in_time(void)
{
    shape *shape = shape_make(40);
    for (uint32_t i = 0; i < 20; i++) {
        shape->cost[2 * i] = 1;
        shape->cost[2 * i + 1] = 1000;
        shape_connect(shape, 2 * i, 2 * i + 1);
        if (i < 19)
            shape_connect(shape, 2 * i, 2 * i + 2);
    }
    CHECK(nova_graph_get_facts(shape_finish(shape)).width == 20);
    shape_free(shape);
}

static void test_from_tables(void)
{
    nova_tables_header header = {.task_count = 3, .successor_count = 2};
    nova_kernel_record kernels[] = {{.grid = 4, .flops = 4000, .bytes = 40, .core = NOVA_MATRIX},
                                    {.grid = 1, .flops = 1, .bytes = 300, .core = NOVA_HOST}};
    nova_launch_record launches[] = {{.kernel = 0}, {.kernel = 1}};
    nova_task tasks[] = {{0, 0, 0, 1, 0, 1}, {0, 0, 1, 4, 1, 1}, {1, 2, 0, 1, 2, 0}};
    uint32_t successors[] = {2, 2};
    nova_tables tables = {.header = &header,
                          .kernels = kernels,
                          .launches = launches,
                          .tasks = tasks,
                          .successors = successors};
    nova_graph *graph;
    CHECK(nova_graph_from_tables(&tables, &(nova_speeds){10, 0}, &graph) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_graph_from_tables(&tables, &(nova_speeds){10, 3}, &graph) == NOVA_OK);
    nova_graph_facts facts = nova_graph_get_facts(graph);
    CHECK(facts.total_cost == 100 + 300 + 100 && facts.critical_cost == 400);
    CHECK(facts.host_count == 1 && facts.width == 2);
    nova_graph_destroy(graph);
}

/* --- the plan --------------------------------------------------------------------------------- */

static void test_plan(void)
{
    static const struct {
        uint32_t width;
        uint64_t total, critical, per_worker;
        unsigned limit, expected;
    } cases[] = {
        {64, 10000000, 100000, 20000, 16, 16},  /* enough of everything */
        {3, 10000000, 100000, 20000, 16, 3},    /* as wide as it is */
        {64, 10000000, 10000000, 20000, 16, 2}, /* a path: at most twice its parallelism */
        {64, 10000000, 4000000, 20000, 16, 6},  /* 2.5 rounds up to 3 */
        {64, 100000, 1000, 20000, 16, 5},       /* each thread gets its share */
        {64, 39999, 1000, 20000, 16, 1},        /* inline */
        {64, 0, 0, 20000, 16, 1},
        {64, 0, 0, 0, 16, 16}, /* costs unknown, waking is free */
        {64, 10000000, 100000, 20000, 1, 1},
        {64, 10000000, 100000, 20000, 0, 1},
        {100000, UINT64_MAX, 1, 1, 100000, NOVA_MAX_WORKERS},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        nova_graph_facts facts = {.width = cases[i].width,
                                  .total_cost = cases[i].total,
                                  .critical_cost = cases[i].critical};
        CHECK(nova_plan_workers(&facts, cases[i].per_worker, cases[i].limit) == cases[i].expected);
    }
}

/* --- simulation ------------------------------------------------------------------------------- */

typedef struct order {
    uint32_t tasks[64];
    uint32_t count;
    uint32_t fails; /* NOVA_NO_TASK: none */
} order;

static nova_status note(void *context, uint32_t task, unsigned worker)
{
    order *order = context;
    (void)worker;
    order->tasks[order->count++] = task;
    return task == order->fails ? NOVA_OUT_OF_RANGE : NOVA_OK;
}

/* 0 -> 1..6 -> 7 with tasks 1..6 of costs 1000, 2000, ... 6000. */
static shape *stairs(void)
{
    shape *created = shape_fan(6);
    nova_graph_destroy(created->graph);
    for (uint32_t i = 1; i <= 6; i++)
        created->cost[i] = 1000 * i;
    shape_finish(created);
    return created;
}

static void check_timeline(const shape *shape, const nova_simulated *timeline, unsigned cores)
{
    uint64_t free_at[8] = {0}, end[64] = {0}, last = 0;
    for (uint32_t i = 0; i < shape->tables.task_count; i++) {
        const nova_simulated *entry = &timeline[i];
        CHECK(entry->core < cores && entry->start >= free_at[entry->core] && entry->start >= last);
        CHECK(entry->end == entry->start + shape->cost[entry->task]);
        CHECK(shape->core[entry->task] != NOVA_HOST || entry->core == 0);
        free_at[entry->core] = end[entry->task] = entry->end;
        last = entry->start;
    }
    for (uint32_t i = 0; i < shape->tables.task_count; i++) {
        const nova_simulated *entry = &timeline[i];
        const nova_task *task = &shape->tasks[entry->task];
        for (uint32_t k = 0; k < task->successor_count; k++) {
            uint32_t successor = shape->successors[task->first_successor + k];
            CHECK(end[successor] - shape->cost[successor] >= entry->end);
        }
    }
}

static void test_simulation(void)
{
    shape *shape = stairs();
    nova_simulated timeline[8], again[8];
    nova_simulation summary;
    order order = {.fails = NOVA_NO_TASK};
    CHECK(nova_simulate(shape->graph, 1, NOVA_FIFO, 0, note, &order, timeline, &summary) ==
          NOVA_OK);
    CHECK(summary.makespan == 23000 && summary.busy == 23000 && summary.critical_cost == 8000);
    CHECK(summary.executed == 8 && summary.task == NOVA_NO_TASK);
    for (uint32_t i = 0; i < 8; i++)
        CHECK(order.tasks[i] == i);

    /* Two cores: longest first is (6 4 1) in parallel with (5 3 2), plus the ends. */
    CHECK(nova_simulate(shape->graph, 2, NOVA_CRITICAL_PATH, 0, NULL, NULL, timeline, &summary) ==
          NOVA_OK);
    check_timeline(shape, timeline, 2);
    CHECK(summary.makespan == 1000 + 11000 + 1000 && timeline[1].task == 6);
    CHECK(summary.lower_bound == 11500);
    CHECK(nova_simulate(shape->graph, 6, NOVA_LOCALITY, 0, NULL, NULL, timeline, &summary) ==
          NOVA_OK);
    CHECK(summary.makespan == 8000 && summary.lower_bound == 8000);

    /* Seeds: the same twice, and not all the same. */
    int different = 0;
    for (uint64_t seed = 1; seed < 20; seed++) {
        CHECK(nova_simulate(shape->graph, 3, NOVA_FIFO, seed, NULL, NULL, timeline, NULL) == 0);
        CHECK(nova_simulate(shape->graph, 3, NOVA_FIFO, seed, NULL, NULL, again, NULL) == 0);
        check_timeline(shape, timeline, 3);
        CHECK(memcmp(timeline, again, sizeof timeline) == 0);
        different += timeline[1].task != 1;
    }
    CHECK(different > 3);
    shape_free(shape);
}

static void test_simulation_faults(void)
{
    shape *shape = stairs();
    nova_simulated timeline[8];
    nova_simulation summary;
    order order = {.fails = 3};
    CHECK(nova_simulate(shape->graph, 2, NOVA_FIFO, 0, note, &order, NULL, &summary) ==
          NOVA_OUT_OF_RANGE);
    CHECK(summary.task == 3 && summary.executed == 3 && order.count == 4);
    CHECK(nova_simulate(shape->graph, 0, NOVA_FIFO, 0, NULL, NULL, NULL, NULL) ==
          NOVA_INVALID_ARGUMENT);
    CHECK(nova_simulate(NULL, 1, NOVA_FIFO, 0, NULL, NULL, NULL, NULL) == NOVA_INVALID_ARGUMENT);

    /* Host tasks run in sequence on core 0, independent of other tasks. */
    nova_graph_destroy(shape->graph);
    for (uint32_t i = 1; i <= 3; i++)
        shape->core[i] = NOVA_HOST;
    shape_finish(shape);
    CHECK(nova_simulate(shape->graph, 6, NOVA_FIFO, 0, NULL, NULL, timeline, &summary) == NOVA_OK);
    check_timeline(shape, timeline, 6);
    CHECK(summary.makespan == 8000);

    nova_graph_destroy(shape->graph);
    shape->tasks[7].waits++;
    CHECK(nova_graph_create(&shape->tables, NOVA_GRAPH_MAY_STALL, &shape->graph) == NOVA_OK);
    CHECK(nova_simulate(shape->graph, 6, NOVA_FIFO, 0, NULL, NULL, timeline, &summary) ==
          NOVA_STALLED);
    CHECK(summary.executed == 7);
    shape_free(shape);
}

int main(void)
{
    test_refusals();
    test_facts();
    test_width_is_measured_in_time();
    test_from_tables();
    test_plan();
    test_simulation();
    test_simulation_faults();
    return 0;
}
