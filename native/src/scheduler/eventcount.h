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
    _Atomic uint32_t called; /* set by who took it out of the list; the word it sleeps on */
    uint32_t caller_cpu;     /* where that thread was; valid once `called` is seen */
    struct nova_sleeper *next;
} nova_sleeper;

typedef struct nova_lot {
    _Alignas(64) _Atomic uint32_t spinning;
    _Atomic uint32_t parked;
    _Atomic uint32_t news; /* changes when spinning threads should look again */
    pthread_mutex_t *lock; /* guards the list */
    nova_sleeper *list;    /* newest first: the warmest thread is called first */
} nova_lot;

/* Starts and ends spinning. Own thread only. */
void nova_lot_spin(nova_lot *lot);
void nova_lot_stop_spinning(nova_lot *lot);

/* A value that changes when a spinning thread should look again. */
uint32_t nova_lot_news(nova_lot *lot);

/* Enters the list and stops spinning. The thread must look for work once more, and then call
 * nova_lot_sleep or nova_lot_unpark. Own thread only. */
void nova_lot_park(nova_lot *lot, nova_sleeper *sleeper);
void nova_lot_unpark(nova_lot *lot, nova_sleeper *sleeper);

/* Sleeps until called. Own thread only. */
void nova_lot_sleep(nova_sleeper *sleeper);

/* Makes up to `count` waiting threads look for work, spinning ones first. Call it after the work
 * was published with a sequentially consistent store, without holding the lock. Thread-safe. */
void nova_lot_call(nova_lot *lot, uint32_t count);

#endif
