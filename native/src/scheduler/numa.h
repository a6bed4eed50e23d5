/* The NUMA nodes of the machine, and those of worker slots.
 *
 * Slots are numbered along the nodes, so those of a node are neighbours. A thread of the pool runs
 * on the node of its preferred slot and steals there first; the roots of a slot are the same tiles
 * in every run. So memory that tasks touch first, such as packed panels and scratch, is on the node
 * that uses it next. */
#ifndef NOVA_SCHEDULER_NUMA_H
#define NOVA_SCHEDULER_NUMA_H

#include <stdbool.h>
#include <stdint.h>

#include "nova/scheduler.h"

/* Immutable once published. The CPUs that the process may use, in the order of their nodes. */
typedef struct nova_topology {
    uint32_t node_count;                  /* nodes that have such CPUs; at least 1 */
    uint32_t node_end[NOVA_MAX_NODES];    /* a node: the first CPU after its own */
    uint16_t cpus[NOVA_MAX_WORKERS];      /* numbers of the system */
    bool simulated;                       /* no thread is bound */
    const struct nova_topology *replaced; /* by this one: a run may still read it */
} nova_topology;

/* The slots [*begin, *end) of the node of a slot, where runs have `workers` slots. */
void nova_topology_span(const nova_topology *topology, uint32_t slot, uint32_t workers,
                        uint32_t *begin, uint32_t *end);

/* Reads the nodes from a folder such as NOVA_NODES_FOLDER; one node where it has none, or the
 * system hides them. */
#ifndef NOVA_NODES_FOLDER
#define NOVA_NODES_FOLDER "/sys/devices/system/node"
#endif
void nova_topology_read(nova_topology *topology, const char *folder);

/* Nodes of these sizes, which do not exist: for tests, and to study schedules. */
nova_status nova_topology_simulate(nova_topology *topology, const unsigned *sizes, unsigned count);

/* Binds the calling thread to the CPUs of the node of a slot, or with `pin` to one of them. Without
 * effect on a machine with one node, but for `pin`. */
void nova_topology_bind(const nova_topology *topology, uint32_t slot, uint32_t workers, bool pin);

#endif
