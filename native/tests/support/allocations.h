/* A count of allocations: link with --wrap for the four functions.
 *
 * Included by the one source file of a test. Safe to call from several
 * threads. */

#ifndef NOVA_TESTS_ALLOCATIONS_H
#define NOVA_TESTS_ALLOCATIONS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

static _Atomic uint64_t allocations;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

void *__wrap_malloc(size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __real_realloc(memory, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __real_aligned_alloc(alignment, size);
}

#endif
