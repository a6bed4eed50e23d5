/* System calls, as the C library has two versions of its functions for this, and files name
 * none. */
#define _GNU_SOURCE /* syscall */

#include "scheduler/cpu_affinity.h"

#include <limits.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WORD_BITS = sizeof(unsigned long) * CHAR_BIT, WORDS = 4096 / WORD_BITS };

/* The mask of the calling thread; how many words of it the system wrote. */
static unsigned affinity_read_mask(unsigned long *mask)
{
    long bytes = syscall(SYS_sched_getaffinity, 0, WORDS * sizeof *mask, mask);
    return bytes > 0 ? (unsigned)bytes / (unsigned)sizeof *mask : 0;
}

unsigned nova_cpus_allowed(void)
{
    unsigned long mask[WORDS];
    unsigned words = affinity_read_mask(mask), count = 0;
    for (unsigned i = 0; i < words; i++)
        for (unsigned long bits = mask[i]; bits != 0; bits &= bits - 1)
            count++;
    return count;
}

void nova_cpus_bind(unsigned index)
{
    unsigned long mask[WORDS], single[WORDS] = {0};
    unsigned words = affinity_read_mask(mask), count = nova_cpus_allowed();
    if (count == 0)
        return;
    unsigned skip = index % count;
    for (unsigned cpu = 0; cpu < words * WORD_BITS; cpu++) {
        unsigned long bit = 1ul << cpu % WORD_BITS;
        if ((mask[cpu / WORD_BITS] & bit) == 0 || skip-- > 0)
            continue;
        single[cpu / WORD_BITS] = bit;
        (void)syscall(SYS_sched_setaffinity, 0, words * sizeof *single, single);
        return;
    }
}

bool nova_cpus_allows(uint32_t cpu)
{
    unsigned long mask[WORDS];
    unsigned words = affinity_read_mask(mask);
    return cpu < words * WORD_BITS && (mask[cpu / WORD_BITS] >> cpu % WORD_BITS & 1) != 0;
}

void nova_cpus_bind_list(const uint16_t *cpus, uint32_t count)
{
    unsigned long mask[WORDS] = {0};
    for (uint32_t i = 0; i < count; i++)
        if (cpus[i] < WORDS * WORD_BITS)
            mask[cpus[i] / WORD_BITS] |= 1ul << cpus[i] % WORD_BITS;
    (void)syscall(SYS_sched_setaffinity, 0, sizeof mask, mask);
}

uint32_t nova_cpus_current(void)
{
    unsigned cpu;
    return syscall(SYS_getcpu, &cpu, NULL, NULL) == 0 ? cpu : NOVA_NO_CPU;
}

void nova_cpus_leave(uint32_t cpu)
{
    if (cpu >= WORDS * WORD_BITS || nova_cpus_current() != cpu || nova_cpus_allowed() < 2)
        return;
    unsigned long mask[WORDS];
    unsigned words = affinity_read_mask(mask);
    if (cpu >= words * WORD_BITS)
        return;
    mask[cpu / WORD_BITS] ^= 1ul << cpu % WORD_BITS;
    if (syscall(SYS_sched_setaffinity, 0, words * sizeof *mask, mask) != 0)
        return;
    mask[cpu / WORD_BITS] ^= 1ul << cpu % WORD_BITS;
    (void)syscall(SYS_sched_setaffinity, 0, words * sizeof *mask, mask);
}
