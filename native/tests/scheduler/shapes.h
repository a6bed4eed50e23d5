/* Small graphs of known shapes for the tests. */
#ifndef NOVA_TESTS_SHAPES_H
#define NOVA_TESTS_SHAPES_H

#include <stdint.h>
#include <string.h>

#include "../support/check.h"
#include "nova/scheduler.h"

enum { MOST_TASKS = 4096, MOST_EDGES = 8192 };

typedef struct shape {
    nova_task tasks[MOST_TASKS];
    uint32_t successors[MOST_EDGES];
    uint8_t core[MOST_TASKS];
    uint64_t cost[MOST_TASKS];
    nova_graph_tables tables;
    nova_graph *graph;
} shape;

/* `count` vector tasks of cost 1000 without edges. */
static inline shape *shape_make(uint32_t count)
{
    shape *created = calloc(1, sizeof *created);
    CHECK(created != NULL && count <= MOST_TASKS);
    created->tables = (nova_graph_tables){
        created->tasks, created->successors, created->core, created->cost, count, 0};
    for (uint32_t i = 0; i < count; i++) {
        created->core[i] = NOVA_VECTOR;
        created->cost[i] = 1000;
    }
    return created;
}

/* Edges are added in the order of `from`. */
static inline void shape_connect(shape *shape, uint32_t from, uint32_t to)
{
    nova_task *task = &shape->tasks[from];
    CHECK(shape->tables.successor_count < MOST_EDGES);
    if (task->successor_count++ == 0)
        task->first_successor = shape->tables.successor_count;
    shape->successors[shape->tables.successor_count++] = to;
    shape->tasks[to].waits++;
}

static inline nova_graph *shape_finish(shape *shape)
{
    CHECK(nova_graph_create(&shape->tables, 0, &shape->graph) == NOVA_OK);
    return shape->graph;
}

/* A root, `width` tasks after it, and one after them. */
static inline shape *shape_fan(uint32_t width)
{
    shape *created = shape_make(width + 2);
    for (uint32_t i = 1; i <= width; i++)
        shape_connect(created, 0, i);
    for (uint32_t i = 1; i <= width; i++)
        shape_connect(created, i, width + 1);
    shape_finish(created);
    return created;
}

static inline void shape_free(shape *shape)
{
    nova_graph_destroy(shape->graph);
    free(shape);
}

/* An instance with that many threads allowed in the process and worker slots. */
static inline nova_instance *instance_with(const nova_graph *graph, unsigned workers)
{
    nova_workers_options options = {.count = workers};
    CHECK(nova_workers_configure(&options) == NOVA_OK);
    nova_instance *instance;
    CHECK(nova_instance_create(graph, workers, 0, &instance) == NOVA_OK);
    return instance;
}

#endif
