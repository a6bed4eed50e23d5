#include "nova/scheduler.h"

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

unsigned nova_plan_workers(const nova_graph_facts *facts, uint64_t cost_per_worker, unsigned limit)
{
    uint64_t workers = least(limit, facts->width);
    if (facts->critical_cost > 0) {
        uint64_t parallelism = facts->total_cost / facts->critical_cost +
                               (facts->total_cost % facts->critical_cost != 0);
        workers = least(workers, parallelism > UINT32_MAX ? UINT32_MAX : 2 * parallelism);
    }
    if (cost_per_worker > 0)
        workers = least(workers, facts->total_cost / cost_per_worker);
    return workers > 0 ? (unsigned)least(workers, NOVA_MAX_WORKERS) : 1;
}
