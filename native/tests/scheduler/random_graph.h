/* Random task graphs whose tasks compute a value from the values before them. Used by the tests. */
#ifndef NOVA_TESTS_RANDOM_GRAPH_H
#define NOVA_TESTS_RANDOM_GRAPH_H

#include <stdint.h>

#include "nova/scheduler.h"

/* A graph with the inputs of each task, so that a task can check and use its predecessors. */
typedef struct random_graph {
    nova_task *tasks;
    uint32_t *successors;
    uint8_t *core;
    uint64_t *cost;
    uint32_t *first_input, *inputs; /* of a task: inputs[first_input[i]] up to first_input[i + 1] */
    uint32_t task_count, edge_count;
    uint64_t *expected; /* the values of a sequential run */
    nova_graph *graph;
} random_graph;

/* One of several shapes (chains, layers, fans, trees, dense, no edges, all of them combined),
 * several core types, and up to `most` tasks. Ends the process on an error. */
random_graph *random_graph_make(uint64_t seed, uint32_t most);
void random_graph_free(random_graph *graph);

/* What a task computes from the values of its inputs. */
uint64_t random_graph_value(const random_graph *graph, const uint64_t *values, uint32_t task);

uint64_t random_next(uint64_t *state);

#endif
