#include "scheduler/eventcount.h"

#include <stddef.h>

#include "scheduler/cpu_affinity.h"
#include "base/futex.h"

void nova_eventcount_start_spinning(nova_eventcount *eventcount)
{
    atomic_fetch_add_explicit(&eventcount->spinning, 1, memory_order_seq_cst);
}

void nova_eventcount_stop_spinning(nova_eventcount *eventcount)
{
    atomic_fetch_sub_explicit(&eventcount->spinning, 1, memory_order_seq_cst);
}

uint32_t nova_eventcount_epoch(nova_eventcount *eventcount)
{
    return (uint32_t)atomic_load_explicit(&eventcount->epoch, memory_order_acquire);
}

void nova_eventcount_park(nova_eventcount *eventcount, nova_sleeper *sleeper)
{
    pthread_mutex_lock(eventcount->lock);
    atomic_store_explicit(&sleeper->notified, 0, memory_order_relaxed);
    sleeper->next = eventcount->list;
    eventcount->list = sleeper;
    atomic_fetch_add_explicit(&eventcount->parked, 1, memory_order_seq_cst);
    pthread_mutex_unlock(eventcount->lock);
    nova_eventcount_stop_spinning(eventcount);
}

void nova_eventcount_unpark(nova_eventcount *eventcount, nova_sleeper *sleeper)
{
    pthread_mutex_lock(eventcount->lock);
    for (nova_sleeper **link = &eventcount->list; *link != NULL; link = &(*link)->next)
        if (*link == sleeper) {
            *link = sleeper->next;
            atomic_fetch_sub_explicit(&eventcount->parked, 1, memory_order_seq_cst);
            break;
        }
    pthread_mutex_unlock(eventcount->lock);
}

void nova_eventcount_sleep(nova_sleeper *sleeper)
{
    while (atomic_load_explicit(&sleeper->notified, memory_order_acquire) == 0)
        nova_futex_wait(&sleeper->notified, 0, UINT64_MAX);
}

void nova_eventcount_notify(nova_eventcount *eventcount, uint32_t count)
{
    uint32_t spinning = (uint32_t)atomic_load_explicit(&eventcount->spinning, memory_order_seq_cst);
    if (spinning > 0) {
        atomic_fetch_add_explicit(&eventcount->epoch, 1, memory_order_release);
        if (spinning >= count)
            return;
    }
    for (count -= spinning; count > 0; count--) {
        if (atomic_load_explicit(&eventcount->parked, memory_order_seq_cst) == 0)
            return;
        pthread_mutex_lock(eventcount->lock);
        nova_sleeper *sleeper = eventcount->list;
        if (sleeper != NULL) {
            eventcount->list = sleeper->next;
            atomic_fetch_sub_explicit(&eventcount->parked, 1, memory_order_seq_cst);
            sleeper->notifier_cpu = nova_cpus_current();
            atomic_store_explicit(&sleeper->notified, 1, memory_order_release);
        }
        pthread_mutex_unlock(eventcount->lock);
        if (sleeper == NULL)
            return;
        nova_futex_wake(&sleeper->notified, 1);
    }
}
