#define _GNU_SOURCE /* syscall */

#include "base/futex.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "nova/scheduler.h"

uint64_t nova_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

void nova_futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t deadline_ns)
{
    struct timespec until, *limit = NULL;
    if (deadline_ns != UINT64_MAX) {
        until.tv_sec = (time_t)(deadline_ns / UINT64_C(1000000000));
        until.tv_nsec = (long)(deadline_ns % UINT64_C(1000000000));
        limit = &until;
    }
    /* The bitset form takes an absolute time of CLOCK_MONOTONIC. */
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, value, limit, NULL,
            FUTEX_BITSET_MATCH_ANY);
}

void nova_futex_wake(_Atomic uint32_t *word, int count)
{
    syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, count, NULL, NULL, 0);
}
