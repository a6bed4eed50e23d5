/* NUMA nodes: reading them, the slots of each, and victims of the same node first.
 *
 *     test_numa FOLDER       (FOLDER has the files of a machine with three nodes, one without CPUs)
 */
#define _POSIX_C_SOURCE 200809L /* nanosleep */

#include <stdatomic.h>
#include <time.h>

#include "shapes.h"
#include "scheduler/cpu_affinity.h"
#include "scheduler/numa.h"

/* --- topologies ------------------------------------------------------------------------------- */

static void check_span(const nova_topology *topology, uint32_t slot, uint32_t workers,
                       uint32_t begin, uint32_t end)
{
    uint32_t first, last;
    nova_topology_span(topology, slot, workers, &first, &last);
    CHECK(first == begin && last == end);
}

/* The folder says node 0: CPUs 1 and 100000, node 1: none, node 4: CPUs 0. */
static void test_reading(const char *folder)
{
    nova_topology topology;
    nova_topology_read(&topology, folder);
    CHECK(!topology.simulated);
    if (nova_cpus_allows(0) && nova_cpus_allows(1)) {
        CHECK(topology.node_count == 2);
        CHECK(topology.node_end[0] == 1 && topology.node_end[1] == 2);
        CHECK(topology.cpus[0] == 1 && topology.cpus[1] == 0);
    } else {
        CHECK(topology.node_count == 1);
    }
    nova_topology_read(&topology, "/nonexistent");
    CHECK(topology.node_count == 1);
    check_span(&topology, 3, 8, 0, 8);
}

static void test_spans(void)
{
    nova_topology topology;
    CHECK(nova_topology_simulate(&topology, (unsigned[]){2, 3}, 2) == NOVA_OK);
    for (uint32_t slot = 0; slot < 5; slot++)
        check_span(&topology, slot, 5, slot < 2 ? 0 : 2, slot < 2 ? 2 : 5);
    check_span(&topology, 1, 2, 0, 2); /* few threads are on one node */
    check_span(&topology, 2, 4, 2, 4);
    for (uint32_t slot = 0; slot < 8; slot++) /* two threads a CPU */
        check_span(&topology, slot, 8, slot < 4 ? 0 : 4, slot < 4 ? 4 : 8);
    CHECK(nova_topology_simulate(&topology, (unsigned[]){0}, 1) == NOVA_OUT_OF_RANGE);
    CHECK(nova_topology_simulate(&topology, (unsigned[]){255, 2}, 2) == NOVA_OUT_OF_RANGE);
    CHECK(nova_topology_simulate(&topology, NULL, 0) == NOVA_OUT_OF_RANGE);
}

/* --- stealing --------------------------------------------------------------------------------- */

enum { SLOTS = 4, ROOTS = 2 * SLOTS, RUNS = 20 };

typedef struct context {
    _Atomic uint32_t started; /* slots that run their first task */
    _Atomic uint32_t stolen;  /* by slot 0 */
    uint32_t victims[ROOTS];
} context;

/* Every slot has two roots. Those of slots 1 to 3 run their first until slot 0, which waits for
 * them, has stolen their second. */
static nova_status note_victims(void *argument, uint32_t task, unsigned worker)
{
    context *context = argument;
    if (task / 2 == worker) {
        if (task % 2 == 0)
            atomic_fetch_add(&context->started, 1);
        while (worker == 0 ? atomic_load(&context->started) < SLOTS
                           : atomic_load(&context->stolen) < SLOTS - 1)
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL); /* leave the CPU to others */
    } else if (worker == 0) {
        context->victims[atomic_load(&context->stolen)] = task / 2;
        atomic_fetch_add(&context->stolen, 1);
    }
    return NOVA_OK;
}

static void test_victims(const unsigned *sizes, unsigned count, uint32_t first_victim)
{
    nova_workers_options options = {.count = SLOTS, .node_sizes = sizes, .node_count = count};
    CHECK(nova_workers_configure(&options) == NOVA_OK);
    shape *shape = shape_make(ROOTS);
    nova_instance *instance;
    CHECK(nova_instance_create(shape_finish(shape), SLOTS, 0, &instance) == NOVA_OK);
    uint32_t others[SLOTS] = {0};
    for (int i = 0; i < RUNS; i++) {
        context context = {0};
        nova_run_options run = {.workers = SLOTS};
        CHECK(nova_instance_run(instance, note_victims, &context, &run, NULL) == NOVA_OK);
        CHECK(atomic_load(&context.stolen) == SLOTS - 1);
        others[context.victims[0]]++;
    }
    if (first_victim > 0)
        CHECK(others[first_victim] == RUNS);
    nova_instance_destroy(instance);
    shape_free(shape);
}

int main(int count, char **arguments)
{
    CHECK(count == 2);
    test_reading(arguments[1]);
    test_spans();
    test_victims((unsigned[]){2, 2}, 2, 1);
    test_victims((unsigned[]){1, 3}, 2, 0); /* no neighbour: others, in any order */
    test_victims(NULL, 0, 0);
    nova_workers_shutdown();
    return 0;
}
