/* A prepared graph, as instance.c, run.c and schedule_sim.c read it. */
#ifndef NOVA_SCHEDULER_GRAPH_H
#define NOVA_SCHEDULER_GRAPH_H

#include "nova/scheduler.h"

/* One allocation holds the struct and its arrays; the tables belong to the caller. */
struct nova_graph {
    nova_graph_facts facts;
    uint32_t core_type_count[3]; /* tasks that are matrix, vector, host */
    const nova_task *tasks;
    const uint32_t *successors;   /* of a task: in the order of the tables */
    const uint32_t *by_priority;  /* of a task: longest remaining path first (critical path) */
    const uint32_t *roots;        /* in the order of the tables */
    const uint32_t *ranked_roots; /* longest remaining path first */
    const uint8_t *core;
    const uint64_t *cost;
    const uint64_t *priority;
};

#endif
