#include "scheduler/eventcount.h"

#include <stddef.h>

#include "scheduler/cpu_affinity.h"
#include "base/futex.h"

void nova_lot_spin(nova_lot *lot)
{
    atomic_fetch_add_explicit(&lot->spinning, 1, memory_order_seq_cst);
}

void nova_lot_stop_spinning(nova_lot *lot)
{
    atomic_fetch_sub_explicit(&lot->spinning, 1, memory_order_seq_cst);
}

uint32_t nova_lot_news(nova_lot *lot)
{
    return (uint32_t)atomic_load_explicit(&lot->news, memory_order_acquire);
}

void nova_lot_park(nova_lot *lot, nova_sleeper *sleeper)
{
    pthread_mutex_lock(lot->lock);
    atomic_store_explicit(&sleeper->called, 0, memory_order_relaxed);
    sleeper->next = lot->list;
    lot->list = sleeper;
    atomic_fetch_add_explicit(&lot->parked, 1, memory_order_seq_cst);
    pthread_mutex_unlock(lot->lock);
    nova_lot_stop_spinning(lot);
}

void nova_lot_unpark(nova_lot *lot, nova_sleeper *sleeper)
{
    pthread_mutex_lock(lot->lock);
    for (nova_sleeper **link = &lot->list; *link != NULL; link = &(*link)->next)
        if (*link == sleeper) {
            *link = sleeper->next;
            atomic_fetch_sub_explicit(&lot->parked, 1, memory_order_seq_cst);
            break;
        }
    pthread_mutex_unlock(lot->lock);
}

void nova_lot_sleep(nova_sleeper *sleeper)
{
    while (atomic_load_explicit(&sleeper->called, memory_order_acquire) == 0)
        nova_futex_wait(&sleeper->called, 0, UINT64_MAX);
}

void nova_lot_call(nova_lot *lot, uint32_t count)
{
    uint32_t spinning = (uint32_t)atomic_load_explicit(&lot->spinning, memory_order_seq_cst);
    if (spinning > 0) {
        atomic_fetch_add_explicit(&lot->news, 1, memory_order_release);
        if (spinning >= count)
            return;
    }
    for (count -= spinning; count > 0; count--) {
        if (atomic_load_explicit(&lot->parked, memory_order_seq_cst) == 0)
            return;
        pthread_mutex_lock(lot->lock);
        nova_sleeper *sleeper = lot->list;
        if (sleeper != NULL) {
            lot->list = sleeper->next;
            atomic_fetch_sub_explicit(&lot->parked, 1, memory_order_seq_cst);
            sleeper->caller_cpu = nova_cpus_current();
            atomic_store_explicit(&sleeper->called, 1, memory_order_release);
        }
        pthread_mutex_unlock(lot->lock);
        if (sleeper == NULL)
            return;
        nova_futex_wake(&sleeper->called, 1);
    }
}
