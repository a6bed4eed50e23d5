/* The parking lot: where threads of the pool wait for work. Used by worker_pool.c; explored by
 * native/model.
 *
 * A thread that finds nothing spins (counted in `spinning`), then parks (a list, counted in
 * `parked`), and looks once more after it was counted. Who publishes work looks at the two
 * counts afterwards. As all of this is sequentially consistent, either the publisher sees the
 * thread, or the thread sees the work. A spinning thread needs no wake-up: it looks again before
 * it sleeps. */
#ifndef NOVA_SCHEDULER_EVENTCOUNT_H
#define NOVA_SCHEDULER_EVENTCOUNT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A thread of the pool; lives as long as the lot. */
typedef struct nova_sleeper {
    _Atomic uint32_t notified; /* set by who took it out of the list; the word it sleeps on */
    uint32_t notifier_cpu;     /* where that thread was; valid once `notified` is seen */
    struct nova_sleeper *next;
} nova_sleeper;

typedef struct nova_eventcount {
    _Alignas(64) _Atomic uint32_t spinning;
    _Atomic uint32_t parked;
    _Atomic uint32_t epoch; /* changes when spinning threads should look again */
    pthread_mutex_t *lock;  /* guards the list */
    nova_sleeper *list;     /* newest first: the warmest thread is called first */
} nova_eventcount;

/* Starts and ends spinning. Own thread only. */
void nova_eventcount_start_spinning(nova_eventcount *eventcount);
void nova_eventcount_stop_spinning(nova_eventcount *eventcount);

/* A value that changes when a spinning thread should look again. */
uint32_t nova_eventcount_epoch(nova_eventcount *eventcount);

/* Enters the list and stops spinning. The thread must look for work once more, and then call
 * nova_eventcount_sleep or nova_eventcount_unpark. Own thread only. */
void nova_eventcount_park(nova_eventcount *eventcount, nova_sleeper *sleeper);
void nova_eventcount_unpark(nova_eventcount *eventcount, nova_sleeper *sleeper);

/* Sleeps until called. Own thread only. */
void nova_eventcount_sleep(nova_sleeper *sleeper);

/* Makes up to `count` waiting threads look for work, spinning ones first. Call it after the work
 * was published with a sequentially consistent store, without holding the lock. Thread-safe. */
void nova_eventcount_notify(nova_eventcount *eventcount, uint32_t count);

#endif
