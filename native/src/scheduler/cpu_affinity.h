/* CPU affinity: the CPUs that the system allows this process to use. Used by worker_pool.c,
 * worker_threads.c and eventcount.c. */
#ifndef NOVA_SCHEDULER_CPU_AFFINITY_H
#define NOVA_SCHEDULER_CPU_AFFINITY_H

#include <stdbool.h>
#include <stdint.h>

/* How many there are, at least 1; 0 when the system does not say. Thread-safe. */
unsigned nova_cpus_allowed(void);

/* Binds the calling thread to allowed CPU `index`, modulo their number. Best effort: a refusal of
 * the system is ignored. Thread-safe. */
void nova_cpus_bind(unsigned index);

/* Whether the calling thread may use a CPU, by its number in the system. Thread-safe. */
bool nova_cpus_allows(uint32_t cpu);

/* Binds the calling thread to the CPUs of a list. Best effort, as above. Thread-safe. */
void nova_cpus_bind_list(const uint16_t *cpus, uint32_t count);

/* The CPU that the calling thread is on; NOVA_NO_CPU when the system does not say. Thread-safe. */
#define NOVA_NO_CPU UINT32_MAX
uint32_t nova_cpus_current(void);

/* Migrates the calling thread to another allowed CPU if it is on `cpu`; it may return later. Best
 * effort, as above. Thread-safe. */
void nova_cpus_leave(uint32_t cpu);

#endif
