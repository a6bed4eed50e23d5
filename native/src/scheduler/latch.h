/* Who is in a run, and the caller's sleep: a gate that counts threads and can be closed, and a
 * bell. Used by run.c, submit.c and worker_pool.c; explored by native/model. */
#ifndef NOVA_SCHEDULER_LATCH_H
#define NOVA_SCHEDULER_LATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/futex.h"

/* The number of threads inside, and this bit once nobody may enter any more. */
#define NOVA_GATE_CLOSED UINT32_C(0x80000000)

typedef struct nova_gate {
    _Atomic uint32_t word;
} nova_gate;

/* Threads inside; meaningless once closed. Any thread. */
static inline uint32_t nova_gate_count(nova_gate *gate)
{
    return (uint32_t)atomic_load_explicit(&gate->word, memory_order_seq_cst) & ~NOVA_GATE_CLOSED;
}

static inline bool nova_gate_is_closed(nova_gate *gate)
{
    return (atomic_load_explicit(&gate->word, memory_order_seq_cst) & NOVA_GATE_CLOSED) != 0;
}

/* Enters, unless the gate is closed or `limit` threads are inside. Any thread. */
static inline bool nova_gate_enter(nova_gate *gate, uint32_t limit)
{
    uint32_t seen = (uint32_t)atomic_load_explicit(&gate->word, memory_order_relaxed);
    while (!(seen & NOVA_GATE_CLOSED) && seen < limit)
        if (atomic_compare_exchange_weak_explicit(&gate->word, &seen, seen + 1,
                                                  memory_order_seq_cst, memory_order_relaxed))
            return true;
    return false;
}

/* Lets nobody in any more. By a thread that is inside: the count cannot be 0 then. */
static inline void nova_gate_close(nova_gate *gate)
{
    atomic_fetch_or_explicit(&gate->word, NOVA_GATE_CLOSED, memory_order_seq_cst);
}

/* Leaves; true for exactly one thread: the last of a closed gate, who ends the run. Everybody else
 * must not touch the run any more. */
static inline bool nova_gate_leave(nova_gate *gate)
{
    uint32_t before = (uint32_t)atomic_fetch_sub_explicit(&gate->word, 1, memory_order_seq_cst);
    return before == (NOVA_GATE_CLOSED | 1);
}

/* The caller is asleep (1) or not (0). It sleeps inside of the run, so that it can be the one
 * who gets new work; only threads that are inside too ring, and those who stop the run. */
typedef struct nova_bell {
    _Atomic uint32_t asleep;
} nova_bell;

/* Announces a sleep. The caller then looks for work once more, and waits or cancels. */
static inline void nova_bell_announce(nova_bell *bell)
{
    atomic_store_explicit(&bell->asleep, 1, memory_order_seq_cst);
}

static inline void nova_bell_cancel(nova_bell *bell)
{
    atomic_store_explicit(&bell->asleep, 0, memory_order_relaxed);
}

/* Sleeps until the bell was rung since the announcement, or the deadline. */
static inline void nova_bell_wait(nova_bell *bell, uint64_t deadline_ns)
{
    nova_futex_wait(&bell->asleep, 1, deadline_ns);
    nova_bell_cancel(bell);
}

/* Whether the caller sleeps; if it does, wakes it. After the work was published. */
static inline bool nova_bell_ring(nova_bell *bell)
{
    if (atomic_load_explicit(&bell->asleep, memory_order_seq_cst) == 0 ||
        atomic_exchange_explicit(&bell->asleep, 0, memory_order_seq_cst) == 0)
        return false;
    nova_futex_wake(&bell->asleep, 1);
    return true;
}

#endif
