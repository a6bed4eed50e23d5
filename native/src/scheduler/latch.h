/* Who is in a run, and the caller's sleep: a gate that counts threads and can be closed, and a
 * bell. Used by run.c, submit.c and worker_pool.c; explored by native/model. */
#ifndef NOVA_SCHEDULER_LATCH_H
#define NOVA_SCHEDULER_LATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/futex.h"

/* The number of threads inside, and this bit once nobody may enter any more. */
#define NOVA_LATCH_CLOSED UINT32_C(0x80000000)

typedef struct nova_latch {
    _Atomic uint32_t word;
} nova_latch;

/* Threads inside; meaningless once closed. Any thread. */
static inline uint32_t nova_latch_count(nova_latch *latch)
{
    return (uint32_t)atomic_load_explicit(&latch->word, memory_order_seq_cst) & ~NOVA_LATCH_CLOSED;
}

static inline bool nova_latch_is_closed(nova_latch *latch)
{
    return (atomic_load_explicit(&latch->word, memory_order_seq_cst) & NOVA_LATCH_CLOSED) != 0;
}

/* Enters, unless the gate is closed or `limit` threads are inside. Any thread. */
static inline bool nova_latch_enter(nova_latch *latch, uint32_t limit)
{
    uint32_t word = (uint32_t)atomic_load_explicit(&latch->word, memory_order_relaxed);
    while (!(word & NOVA_LATCH_CLOSED) && word < limit)
        if (atomic_compare_exchange_weak_explicit(&latch->word, &word, word + 1,
                                                  memory_order_seq_cst, memory_order_relaxed))
            return true;
    return false;
}

/* Lets nobody in any more. By a thread that is inside: the count cannot be 0 then. */
static inline void nova_latch_close(nova_latch *latch)
{
    atomic_fetch_or_explicit(&latch->word, NOVA_LATCH_CLOSED, memory_order_seq_cst);
}

/* Leaves; true for exactly one thread: the last of a closed gate, who ends the run. Everybody else
 * must not touch the run any more. */
static inline bool nova_latch_leave(nova_latch *latch)
{
    uint32_t before = (uint32_t)atomic_fetch_sub_explicit(&latch->word, 1, memory_order_seq_cst);
    return before == (NOVA_LATCH_CLOSED | 1);
}

/* The caller is asleep (1) or not (0). It sleeps inside of the run, so that it can be the one
 * who gets new work; only threads that are inside too ring, and those who stop the run. */
typedef struct nova_futex_event {
    _Atomic uint32_t asleep;
} nova_futex_event;

/* Announces a sleep. The caller then looks for work once more, and waits or cancels. */
static inline void nova_futex_event_announce(nova_futex_event *event)
{
    atomic_store_explicit(&event->asleep, 1, memory_order_seq_cst);
}

static inline void nova_futex_event_cancel(nova_futex_event *event)
{
    atomic_store_explicit(&event->asleep, 0, memory_order_relaxed);
}

/* Sleeps until the bell was rung since the announcement, or the deadline. */
static inline void nova_futex_event_wait(nova_futex_event *event, uint64_t deadline_ns)
{
    nova_futex_wait(&event->asleep, 1, deadline_ns);
    nova_futex_event_cancel(event);
}

/* Whether the caller sleeps; if it does, wakes it. After the work was published. */
static inline bool nova_futex_event_signal(nova_futex_event *event)
{
    if (atomic_load_explicit(&event->asleep, memory_order_seq_cst) == 0 ||
        atomic_exchange_explicit(&event->asleep, 0, memory_order_seq_cst) == 0)
        return false;
    nova_futex_wake(&event->asleep, 1);
    return true;
}

#endif
