/* Runs small concurrent programs in every order: the scheduler's own sources, compiled with atomics
 * that stop before each access.
 *
 * A model includes this header, then the sources it checks, and calls explore() from main. Threads
 * are coroutines, so an execution is a list of choices and can be repeated. Two searches:
 *
 *     bound < 0   all orders; those that only swap independent accesses are left out (sleep sets)
 *     bound >= 0  all orders with at most that many switches away from a thread that could go on
 *
 * Memory is sequentially consistent, or with `store_buffers` that of x86: relaxed and release
 * stores wait in a buffer that drains at any time. `weak_stores` puts sequentially consistent
 * stores there too: code that needs them must then fail, which shows that the check can. */
#ifndef NOVA_MODEL_EXPLORE_H
#define NOVA_MODEL_EXPLORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct explore_options {
    const char *name;
    void (*body)(void); /* the first thread; starts the others, checks, and returns */
    int bound;
    bool store_buffers;
    bool weak_stores;
    uint64_t most; /* executions; 0: no limit */
} explore_options;

/* Explores all orders. NULL, or the failure in the first order that has one: a failed
 * explore_check, a deadlock, an access to freed memory, or no termination. Prints the number of
 * orders. */
const char *explore(const explore_options *options);

/* Ends this order as failed. */
void explore_fail(const char *message);
#define explore_check(condition)                                                                   \
    do {                                                                                           \
        if (!(condition))                                                                          \
            explore_fail(#condition);                                                              \
    } while (0)

/* Threads of the model. */
int explore_start(void (*body)(void *), void *argument);
void explore_join(int thread);

/* Explores with `options` and checks the expectation: the exit status of a model. */
int explore_expect(const explore_options *options, bool failure);

/* --- what the sources call instead ------------------------------------------------------------ */

uint64_t explore_load(const volatile void *address, size_t size, int order);
void explore_store(volatile void *address, size_t size, uint64_t value, int order);
uint64_t explore_exchange(volatile void *address, size_t size, uint64_t value);
uint64_t explore_add(volatile void *address, size_t size, uint64_t value);
uint64_t explore_or(volatile void *address, size_t size, uint64_t value);
bool explore_compare_exchange(volatile void *address, size_t size, void *expected, uint64_t value);
void explore_lock(void *mutex);
void explore_unlock(void *mutex);
void explore_wait(volatile void *word, uint32_t value);
void explore_wake(volatile void *word, int count);
void explore_relax(void);
void *explore_allocate(size_t size);
void explore_free(void *memory);
void *explore_get_local(void);
void explore_set_local(const void *value);

#define EXPLORE_TYPE(p) __typeof__((void)0, *(p))
#define EXPLORE_BITS(v) ((uint64_t)(v))
/* A statement expression: the value may be left unused. */
#define EXPLORE_RESULT(p, bits)                                                                    \
    ({                                                                                             \
        EXPLORE_TYPE(p) result = (EXPLORE_TYPE(p))(bits);                                          \
        result;                                                                                    \
    })

#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_exchange_explicit
#undef atomic_fetch_add_explicit
#undef atomic_fetch_sub_explicit
#undef atomic_fetch_or_explicit
#undef atomic_compare_exchange_strong_explicit
#undef atomic_compare_exchange_weak_explicit
#undef atomic_load
#undef atomic_store
#undef atomic_init
#undef atomic_fetch_add
#undef atomic_compare_exchange_strong
#define atomic_load_explicit(p, o) ((EXPLORE_TYPE(p))explore_load((p), sizeof *(p), (o)))
#define atomic_store_explicit(p, v, o) explore_store((p), sizeof *(p), EXPLORE_BITS(v), (o))
#define atomic_exchange_explicit(p, v, o)                                                          \
    EXPLORE_RESULT(p, explore_exchange((p), sizeof *(p), EXPLORE_BITS(v)))
#define atomic_fetch_add_explicit(p, v, o)                                                         \
    EXPLORE_RESULT(p, explore_add((p), sizeof *(p), EXPLORE_BITS(v)))
#define atomic_fetch_sub_explicit(p, v, o)                                                         \
    EXPLORE_RESULT(p, explore_add((p), sizeof *(p), -EXPLORE_BITS(v)))
#define atomic_fetch_or_explicit(p, v, o)                                                          \
    EXPLORE_RESULT(p, explore_or((p), sizeof *(p), EXPLORE_BITS(v)))
#define atomic_compare_exchange_strong_explicit(p, e, v, s, f)                                     \
    explore_compare_exchange((p), sizeof *(p), (e), EXPLORE_BITS(v))
#define atomic_compare_exchange_weak_explicit atomic_compare_exchange_strong_explicit
#define atomic_load(p) atomic_load_explicit(p, memory_order_seq_cst)
#define atomic_store(p, v) atomic_store_explicit(p, v, memory_order_seq_cst)
#define atomic_init(p, v) (*(EXPLORE_TYPE(p) *)(p) = (v))
#define atomic_fetch_add(p, v) atomic_fetch_add_explicit(p, v, memory_order_seq_cst)
#define atomic_compare_exchange_strong(p, e, v)                                                    \
    atomic_compare_exchange_strong_explicit(p, e, v, memory_order_seq_cst, memory_order_seq_cst)

#define pthread_mutex_lock(m) explore_lock(m)
#define pthread_mutex_unlock(m) explore_unlock(m)

/* futex.h, replaced. */
#define NOVA_BASE_FUTEX_H
#define nova_futex_wait(word, value, deadline) ((void)(deadline), explore_wait((word), (value)))
#define nova_futex_wake(word, count) explore_wake((word), (count))
#define nova_relax() explore_relax()

#endif
