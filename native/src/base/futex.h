/* Sleeping on a 32-bit word, and waiting a moment without sleeping. Used by eventcount.c, latch.h,
 * submit.c. */
#ifndef NOVA_BASE_FUTEX_H
#define NOVA_BASE_FUTEX_H

#include <stdatomic.h>
#include <stdint.h>

/* Sleeps while *word is `value`, up to the CLOCK_MONOTONIC time `deadline_ns` (UINT64_MAX: without
 * limit). May return early for no reason. Thread-safe. */
void nova_futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t deadline_ns);

/* Wakes up to `count` sleepers. The word is only an address here: it may have been freed.
 * Thread-safe. */
void nova_futex_wake(_Atomic uint32_t *word, int count);

static inline void nova_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
