#include "scheduler/trace.h"

uint64_t nova_instance_trace(const nova_instance *instance, unsigned worker,
                             nova_trace_record *records, uint32_t count)
{
    if (instance == NULL || worker >= instance->place_count || instance->trace_capacity == 0)
        return 0;
    const nova_place *place = &instance->places[worker];
    uint64_t kept = place->traced < instance->trace_capacity ? place->traced
                                                             : instance->trace_capacity;
    if (kept > count)
        kept = count;
    for (uint64_t i = 0; i < kept; i++)
        records[i] = place->ring[(place->traced - kept + i) % instance->trace_capacity];
    return place->traced;
}
