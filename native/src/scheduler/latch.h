/* A latch that counts the threads inside a run and can be closed, and the futex wait of the caller.
 * Used by run.c, submit.c and worker_pool.c; explored by native/model. */
#ifndef NOVA_SCHEDULER_LATCH_H
#define NOVA_SCHEDULER_LATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/futex.h"

/* The number of threads inside; this bit is set when the latch is closed. */
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

/* Enters, unless the latch is closed or `limit` threads are inside. Any thread. */
static inline bool nova_latch_enter(nova_latch *latch, uint32_t limit)
{
    uint32_t word = (uint32_t)atomic_load_explicit(&latch->word, memory_order_relaxed);
    while (!(word & NOVA_LATCH_CLOSED) && word < limit)
        if (atomic_compare_exchange_weak_explicit(&latch->word, &word, word + 1,
                                                  memory_order_seq_cst, memory_order_relaxed))
            return true;
    return false;
}

/* Closes the latch. By a thread that is inside: the count is not 0. */
static inline void nova_latch_close(nova_latch *latch)
{
    atomic_fetch_or_explicit(&latch->word, NOVA_LATCH_CLOSED, memory_order_seq_cst);
}

/* Leaves; true for exactly one thread: the last to leave a closed latch, which ends the run. Other
 * threads must not touch the run afterwards. */
static inline bool nova_latch_leave(nova_latch *latch)
{
    uint32_t before = (uint32_t)atomic_fetch_sub_explicit(&latch->word, 1, memory_order_seq_cst);
    return before == (NOVA_LATCH_CLOSED | 1);
}

/* A single-waiter event over a futex: the caller is asleep (1) or not (0). It sleeps inside the
 * run, so that it can receive new work; only threads inside the run signal it, and threads that
 * stop the run. */
typedef struct nova_futex_event {
    _Atomic uint32_t asleep;
} nova_futex_event;

/* Announces a sleep. The caller then checks for work once more, and waits or cancels. */
static inline void nova_futex_event_announce(nova_futex_event *event)
{
    atomic_store_explicit(&event->asleep, 1, memory_order_seq_cst);
}

static inline void nova_futex_event_cancel(nova_futex_event *event)
{
    atomic_store_explicit(&event->asleep, 0, memory_order_relaxed);
}

/* Sleeps until a signal after the announcement, or the deadline. */
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
