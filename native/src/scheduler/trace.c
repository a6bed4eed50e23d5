#include "scheduler/trace.h"

uint64_t nova_instance_trace(const nova_instance *instance, unsigned worker,
                             nova_trace_record *records, uint32_t count)
{
    if (instance == NULL || worker >= instance->slot_count || instance->trace_capacity == 0)
        return 0;
    const nova_worker_slot *slot = &instance->slots[worker];
    uint64_t recorded =
        slot->traced < instance->trace_capacity ? slot->traced : instance->trace_capacity;
    if (recorded > count)
        recorded = count;
    for (uint64_t i = 0; i < recorded; i++)
        records[i] = slot->ring[(slot->traced - recorded + i) % instance->trace_capacity];
    return slot->traced;
}
