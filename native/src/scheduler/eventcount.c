#include "scheduler/eventcount.h"

#include <stddef.h>

#include "scheduler/cpu_affinity.h"
#include "base/futex.h"
#include "nova/scheduler.h"

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
    /* Under the lock: a notifier that holds it never counts one thread twice. */
    nova_eventcount_stop_spinning(eventcount);
    pthread_mutex_unlock(eventcount->lock);
}

bool nova_eventcount_unpark(nova_eventcount *eventcount, nova_sleeper *sleeper)
{
    bool in_list = false;
    pthread_mutex_lock(eventcount->lock);
    for (nova_sleeper **link = &eventcount->list; *link != NULL; link = &(*link)->next)
        if (*link == sleeper) {
            *link = sleeper->next;
            atomic_fetch_sub_explicit(&eventcount->parked, 1, memory_order_seq_cst);
            in_list = true;
            break;
        }
    pthread_mutex_unlock(eventcount->lock);
    return in_list;
}

void nova_eventcount_sleep(nova_sleeper *sleeper)
{
    while (atomic_load_explicit(&sleeper->notified, memory_order_acquire) == 0)
        nova_futex_wait(&sleeper->notified, 0, UINT64_MAX);
}

static uint32_t eventcount_spinning(nova_eventcount *eventcount)
{
    return (uint32_t)atomic_load_explicit(&eventcount->spinning, memory_order_seq_cst);
}

void nova_eventcount_notify(nova_eventcount *eventcount, uint32_t count)
{
    uint32_t spinning = eventcount_spinning(eventcount);
    if (spinning > 0)
        atomic_fetch_add_explicit(&eventcount->epoch, 1, memory_order_release);
    if (spinning >= count || atomic_load_explicit(&eventcount->parked, memory_order_seq_cst) == 0)
        return;
    /* Both counts again, now of one moment: threads park under the lock. */
    pthread_mutex_lock(eventcount->lock);
    spinning = eventcount_spinning(eventcount);
    nova_sleeper *called[NOVA_MAX_WORKERS];
    uint32_t calls = 0;
    for (; count > spinning + calls && eventcount->list != NULL; calls++) {
        called[calls] = eventcount->list;
        eventcount->list = called[calls]->next;
        called[calls]->notifier_cpu = nova_cpus_current();
        atomic_store_explicit(&called[calls]->notified, 1, memory_order_release);
    }
    atomic_fetch_sub_explicit(&eventcount->parked, calls, memory_order_seq_cst);
    pthread_mutex_unlock(eventcount->lock);
    /* Without the lock, which a woken thread takes at once. */
    for (uint32_t i = 0; i < calls; i++)
        nova_futex_wake(&called[i]->notified, 1);
}
