/* An eventcount over futexes: idle threads of the pool wait here for work. Used by worker_pool.c;
 * its interleavings are explored by native/model.
 *
 * A thread without work spins (counted in `spinning`), then parks (in a list, counted in `parked`),
 * and checks for work once more after it was counted. A publisher of work reads both counts after
 * its store. As all of these accesses are sequentially consistent, either the publisher sees the
 * thread, or the thread sees the work (Dekker's argument). A spinning thread needs no wake-up: it
 * checks again before it sleeps. */
#ifndef NOVA_SCHEDULER_EVENTCOUNT_H
#define NOVA_SCHEDULER_EVENTCOUNT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A thread of the pool; lives as long as the eventcount. */
typedef struct nova_sleeper {
    /* set by the notifier that removed it from the list; the futex word */
    _Atomic uint32_t notified;
    uint32_t notifier_cpu; /* CPU of the notifier; valid once `notified` is set */
    struct nova_sleeper *next;
} nova_sleeper;

typedef struct nova_eventcount {
    _Alignas(64) _Atomic uint32_t spinning;
    _Atomic uint32_t parked;
    _Atomic uint32_t epoch; /* changes when spinning threads should check for work again */
    pthread_mutex_t *lock;  /* guards the list */
    nova_sleeper *list;     /* newest first: the warmest thread is called first */
} nova_eventcount;

/* Starts and ends spinning. Own thread only. */
void nova_eventcount_start_spinning(nova_eventcount *eventcount);
void nova_eventcount_stop_spinning(nova_eventcount *eventcount);

/* The epoch: changes when a spinning thread should check for work again. */
uint32_t nova_eventcount_epoch(nova_eventcount *eventcount);

/* Enters the list and stops spinning. The thread must check for work once more, and then call
 * nova_eventcount_sleep or nova_eventcount_unpark. unpark returns false if a notifier has called
 * the thread: the call is for work that it may not have seen. Owning thread only. */
void nova_eventcount_park(nova_eventcount *eventcount, nova_sleeper *sleeper);
bool nova_eventcount_unpark(nova_eventcount *eventcount, nova_sleeper *sleeper);

/* Sleeps until called. Own thread only. */
void nova_eventcount_sleep(nova_sleeper *sleeper);

/* Notifies up to `count` waiting threads, spinning ones first. Call it after the work was published
 * with a sequentially consistent store, without holding the lock. Thread-safe. */
void nova_eventcount_notify(nova_eventcount *eventcount, uint32_t count);

#endif
