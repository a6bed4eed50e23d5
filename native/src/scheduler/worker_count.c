#include "nova/scheduler.h"

static uint64_t worker_count_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

unsigned nova_plan_workers(const nova_graph_facts *facts, uint64_t cost_per_worker, unsigned limit)
{
    uint64_t workers = worker_count_min(limit, facts->width);
    if (facts->critical_cost > 0) {
        uint64_t parallelism = facts->total_cost / facts->critical_cost +
                               (facts->total_cost % facts->critical_cost != 0);
        workers =
            worker_count_min(workers, parallelism > UINT32_MAX ? UINT32_MAX : 2 * parallelism);
    }
    if (cost_per_worker > 0)
        workers = worker_count_min(workers, facts->total_cost / cost_per_worker);
    return workers > 0 ? (unsigned)worker_count_min(workers, NOVA_MAX_WORKERS) : 1;
}
