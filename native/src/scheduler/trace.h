/* Writing a trace record. Used by run.c; nova_instance_trace reads them back. */
#ifndef NOVA_SCHEDULER_TRACE_H
#define NOVA_SCHEDULER_TRACE_H

#include "scheduler/instance.h"

/* Adds a record to the ring buffer of the slot, over the oldest one when it is full. Holder
 * only. */
static inline void nova_trace_add(nova_instance *run, nova_worker_slot *slot, uint32_t task,
                                  uint64_t start_ns, uint64_t end_ns)
{
    slot->ring[slot->traced++ % run->trace_capacity] = (nova_trace_record){
        .task = task,
        .worker = (uint16_t)slot->index,
        .stolen_from = slot->origin,
        .ready_ns = run->ready_ns[task],
        .start_ns = start_ns,
        .end_ns = end_ns,
    };
}

#endif
