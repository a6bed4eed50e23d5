#define _DEFAULT_SOURCE /* madvise */

#include "nova/workspace.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

enum {
    ALIGNMENT = 64,
    HUGE_PAGE = 2 << 20,
    HUGE_FROM = 2 << 20,
    MOST_IDLE = 16, /* blocks beyond this many go back to the system */
};

struct nova_pool {
    uint64_t size;
    /* The block released last, still warm in the caches: one atomic exchange, no lock. */
    _Atomic(void *) warm;
    pthread_mutex_t mutex;
    size_t idle_count; /* guarded by mutex, as is idle */
    void *idle[MOST_IDLE];
};

nova_status nova_memory_take(uint64_t size, void **memory)
{
    *memory = NULL;
    if (size == 0)
        return NOVA_OK;
    if (size > SIZE_MAX / 2)
        return NOVA_OVERFLOW;
    size_t alignment = size >= HUGE_FROM ? HUGE_PAGE : ALIGNMENT;
    size_t rounded = ((size_t)size + alignment - 1) & ~(alignment - 1);
    *memory = aligned_alloc(alignment, rounded);
    if (*memory == NULL)
        return NOVA_OUT_OF_MEMORY;
    if (alignment == HUGE_PAGE)
        (void)madvise(*memory, rounded, MADV_HUGEPAGE); /* only a hint: small pages work as well */
    return NOVA_OK;
}

nova_status nova_pool_create(uint64_t size, nova_pool **pool)
{
    if (pool == NULL)
        return NOVA_INVALID_ARGUMENT;
    if (size > SIZE_MAX / 2)
        return NOVA_OVERFLOW;
    nova_pool *created = calloc(1, sizeof *created);
    if (created == NULL)
        return NOVA_OUT_OF_MEMORY;
    if (pthread_mutex_init(&created->mutex, NULL) != 0) {
        free(created);
        return NOVA_SYSTEM_ERROR;
    }
    created->size = size;
    atomic_init(&created->warm, NULL);
    *pool = created;
    return NOVA_OK;
}

void nova_pool_destroy(nova_pool *pool)
{
    if (pool == NULL)
        return;
    free(atomic_load(&pool->warm));
    for (size_t i = 0; i < pool->idle_count; i++)
        free(pool->idle[i]);
    pthread_mutex_destroy(&pool->mutex);
    free(pool);
}

nova_status nova_pool_take(nova_pool *pool, void **block)
{
    if (pool == NULL || block == NULL)
        return NOVA_INVALID_ARGUMENT;
    *block = NULL;
    if (pool->size == 0)
        return NOVA_OK;
    *block = atomic_exchange_explicit(&pool->warm, NULL, memory_order_acquire);
    if (*block != NULL)
        return NOVA_OK;
    pthread_mutex_lock(&pool->mutex);
    if (pool->idle_count > 0)
        *block = pool->idle[--pool->idle_count];
    pthread_mutex_unlock(&pool->mutex);
    if (*block != NULL)
        return NOVA_OK;
    return nova_memory_take(pool->size, block);
}

void nova_pool_give(nova_pool *pool, void *block)
{
    if (pool == NULL || block == NULL)
        return;
    void *other = atomic_exchange_explicit(&pool->warm, block, memory_order_acq_rel);
    if (other == NULL)
        return;
    pthread_mutex_lock(&pool->mutex);
    if (pool->idle_count < MOST_IDLE) {
        pool->idle[pool->idle_count++] = other;
        other = NULL;
    }
    pthread_mutex_unlock(&pool->mutex);
    free(other);
}
