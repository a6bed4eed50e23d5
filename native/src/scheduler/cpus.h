/* The CPUs that the system lets this process use. Used by pool.c and threads.c. */
#ifndef NOVA_SCHEDULER_CPUS_H
#define NOVA_SCHEDULER_CPUS_H

/* How many there are, at least 1; 0 when the system does not say. Thread-safe. */
unsigned nova_cpus_allowed(void);

/* Binds the calling thread to the allowed CPU number `index`, counted around. A wish: nothing happens
 * where the system refuses. Thread-safe. */
void nova_cpus_bind(unsigned index);

#endif
