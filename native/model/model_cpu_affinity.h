/* CPU affinity of the models: their threads are on no CPU, and system calls would only take time.
 * Included once by a model, instead of src/scheduler/cpu_affinity.c. */
#include "scheduler/cpu_affinity.h"

unsigned nova_cpus_allowed(void)
{
    return 2;
}

void nova_cpus_bind(unsigned index)
{
    (void)index;
}

bool nova_cpus_allows(uint32_t cpu)
{
    return cpu < 2;
}

void nova_cpus_bind_list(const uint16_t *cpus, uint32_t count)
{
    (void)cpus;
    (void)count;
}

uint32_t nova_cpus_current(void)
{
    return NOVA_NO_CPU;
}

void nova_cpus_leave(uint32_t cpu)
{
    (void)cpu;
}
