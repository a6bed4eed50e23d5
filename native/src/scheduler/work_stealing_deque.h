/* The queues of ready tasks: a work-stealing deque (one owner, many thieves), and the host queue
 * (many producers, one consumer at a time). Used by run.c and instance.c; explored by native/model.
 *
 * A task enters a queue at most once in a run, so an array with one entry for every task of a core
 * type never overflows and never wraps: no growth, no ring buffer, no ABA problem.
 *
 * The deque is that of Chase and Lev, "Dynamic Circular Work-Stealing Deque" (SPAA 2005), with a
 * fixed array in place of the circular one. Its two races are "the owner pops a task that a thief
 * steals" and "the owner publishes a task while all threads go to sleep". Both need the owner's
 * store of `bottom` and its next load to stay in order. Le et al. (PPoPP 2013) order them with
 * fences; here the accesses to `bottom` and `top` that race are sequentially consistent. */
#ifndef NOVA_SCHEDULER_WORK_STEALING_DEQUE_H
#define NOVA_SCHEDULER_WORK_STEALING_DEQUE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "nova/scheduler.h"

/* Thieves write `top`, the owner `bottom`: two cache lines. */
typedef struct nova_deque {
    _Alignas(64) _Atomic int64_t top;
    _Alignas(64) _Atomic int64_t bottom;
    _Atomic uint32_t *tasks;
} nova_deque;

static inline void nova_deque_reset(nova_deque *deque)
{
    atomic_store_explicit(&deque->top, 0, memory_order_relaxed);
    atomic_store_explicit(&deque->bottom, 0, memory_order_relaxed);
}

/* Where the owner stages its next task. Owner only. */
static inline int64_t nova_deque_end(nova_deque *deque)
{
    return atomic_load_explicit(&deque->bottom, memory_order_relaxed);
}

/* Writes a task that is invisible until nova_deque_publish(deque, at + 1 or more). Owner only. */
static inline void nova_deque_write(nova_deque *deque, int64_t at, uint32_t task)
{
    atomic_store_explicit(&deque->tasks[at], task, memory_order_relaxed);
}

/* Shows all staged tasks below `end`, with one barrier for all of them. Owner only. */
static inline void nova_deque_publish(nova_deque *deque, int64_t end)
{
    atomic_store_explicit(&deque->bottom, end, memory_order_seq_cst);
}

/* Takes the newest task, or NOVA_NO_TASK. Owner only. */
static inline uint32_t nova_deque_pop(nova_deque *deque)
{
    int64_t last = atomic_load_explicit(&deque->bottom, memory_order_relaxed) - 1;
    /* `top` only grows: a deque that looks empty to the owner is empty, without a barrier. */
    if (last < (int64_t)atomic_load_explicit(&deque->top, memory_order_relaxed))
        return NOVA_NO_TASK;
    atomic_store_explicit(&deque->bottom, last, memory_order_seq_cst);
    int64_t top = atomic_load_explicit(&deque->top, memory_order_seq_cst);
    if (top < last)
        return (uint32_t)atomic_load_explicit(&deque->tasks[last], memory_order_relaxed);
    uint32_t task = NOVA_NO_TASK;
    if (top == last) {
        uint32_t only = (uint32_t)atomic_load_explicit(&deque->tasks[last], memory_order_relaxed);
        if (atomic_compare_exchange_strong_explicit(&deque->top, &top, top + 1,
                                                    memory_order_seq_cst, memory_order_relaxed))
            task = only;
    }
    atomic_store_explicit(&deque->bottom, last + 1, memory_order_release);
    return task;
}

/* Tasks that a thief would find. Any thread. */
static inline int64_t nova_deque_count(nova_deque *deque)
{
    int64_t top = atomic_load_explicit(&deque->top, memory_order_seq_cst);
    int64_t count = (int64_t)atomic_load_explicit(&deque->bottom, memory_order_seq_cst) - top;
    return count > 0 ? count : 0;
}

/* Steals the oldest task, or NOVA_NO_TASK: it was empty, or another thread took that task. Any
 * thread. */
static inline uint32_t nova_deque_steal(nova_deque *deque)
{
    int64_t top = atomic_load_explicit(&deque->top, memory_order_seq_cst);
    if (top >= (int64_t)atomic_load_explicit(&deque->bottom, memory_order_seq_cst))
        return NOVA_NO_TASK;
    uint32_t task = (uint32_t)atomic_load_explicit(&deque->tasks[top], memory_order_relaxed);
    if (!atomic_compare_exchange_strong_explicit(&deque->top, &top, top + 1, memory_order_seq_cst,
                                                 memory_order_relaxed))
        return NOVA_NO_TASK;
    return task;
}

/* Entries hold task + 1; 0 is an entry that was reserved and is not written yet. */
typedef struct nova_host_queue {
    _Alignas(64) _Atomic uint32_t reserved;
    _Atomic uint32_t head; /* written by the reader */
    _Atomic uint32_t *entries;
} nova_host_queue;

/* `entries` must be zero for as many tasks as the run can push. */
static inline void nova_host_queue_reset(nova_host_queue *queue)
{
    atomic_store_explicit(&queue->reserved, 0, memory_order_relaxed);
    atomic_store_explicit(&queue->head, 0, memory_order_relaxed);
}

/* Any thread. */
static inline void nova_host_queue_push(nova_host_queue *queue, uint32_t task)
{
    uint32_t at = (uint32_t)atomic_fetch_add_explicit(&queue->reserved, 1, memory_order_relaxed);
    atomic_store_explicit(&queue->entries[at], task + 1, memory_order_seq_cst);
}

/* The oldest task, or NOVA_NO_TASK; `head` is the number of tasks read. */
static inline uint32_t nova_host_queue_first(nova_host_queue *queue, uint32_t head)
{
    if (head == (uint32_t)atomic_load_explicit(&queue->reserved, memory_order_seq_cst))
        return NOVA_NO_TASK;
    return (uint32_t)atomic_load_explicit(&queue->entries[head], memory_order_seq_cst) - 1;
}

/* Any thread. */
static inline bool nova_host_queue_has_task(nova_host_queue *queue)
{
    uint32_t head = (uint32_t)atomic_load_explicit(&queue->head, memory_order_seq_cst);
    return nova_host_queue_first(queue, head) != NOVA_NO_TASK;
}

/* The oldest task, or NOVA_NO_TASK. Holder of slot 0 only. */
static inline uint32_t nova_host_queue_pop(nova_host_queue *queue)
{
    uint32_t head = (uint32_t)atomic_load_explicit(&queue->head, memory_order_relaxed);
    uint32_t task = nova_host_queue_first(queue, head);
    if (task != NOVA_NO_TASK)
        atomic_store_explicit(&queue->head, head + 1, memory_order_seq_cst);
    return task;
}

#endif
