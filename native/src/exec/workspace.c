#define _DEFAULT_SOURCE /* madvise */

#include "nova/workspace.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

enum {
    ALIGNMENT = 64,
    HUGE_PAGE = 2 << 20,
    HUGE_FROM = 2 << 20,
    MOST_IDLE = 16, /* blocks beyond this many go back to the system */
    RECYCLED = 8,   /* blocks of all programs that are cached */
    PAGE = 4096,
    LEAST_RECYCLED = 64 << 10,
};

/* Larger blocks are not cached. */
static const uint64_t MOST_RECYCLED = UINT64_C(64) << 20;

/* Before the bytes of a recycled block. */
typedef struct {
    _Alignas(64) uint64_t capacity;
    size_t lead; /* bytes from the start of the allocation to those of the block */
} recycled;

static _Atomic(recycled *) workspace_recycled[RECYCLED];
static _Atomic uint32_t workspace_oldest; /* which of them is replaced next */

struct nova_pool {
    uint64_t size;
    bool shared;
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

static recycled *workspace_header(void *memory)
{
    return (recycled *)memory - 1;
}

/* A block of `size` bytes or more: a power of two, so that similar sizes share it. Pages that
 * no thread touches cost nothing. */
static recycled *workspace_make(uint64_t size)
{
    uint64_t capacity = LEAST_RECYCLED;
    while (capacity < size && capacity < MOST_RECYCLED)
        capacity *= 2;
    size_t lead = capacity >= HUGE_FROM ? HUGE_PAGE : PAGE;
    if (capacity < size)
        capacity = (size + lead - 1) & ~(uint64_t)(lead - 1);
    char *block = aligned_alloc(lead, lead + (size_t)capacity);
    if (block == NULL)
        return NULL;
    if (lead == HUGE_PAGE)
        (void)madvise(block + lead, (size_t)capacity, MADV_HUGEPAGE); /* only a hint */
    recycled *header = workspace_header(block + lead);
    *header = (recycled){.capacity = capacity, .lead = lead};
    return header;
}

static void workspace_free(recycled *header)
{
    if (header != NULL)
        free((char *)(header + 1) - header->lead);
}

/* A cached block that is large enough; NULL: there is none. */
static recycled *workspace_find_recycled(uint64_t size)
{
    for (int i = 0; i < RECYCLED; i++) {
        if (atomic_load_explicit(&workspace_recycled[i], memory_order_relaxed) == NULL)
            continue;
        recycled *header =
            atomic_exchange_explicit(&workspace_recycled[i], NULL, memory_order_acquire);
        if (header == NULL || header->capacity >= size)
            return header;
        workspace_free(
            atomic_exchange_explicit(&workspace_recycled[i], header, memory_order_acq_rel));
    }
    return NULL;
}

nova_status nova_memory_reuse(uint64_t size, void **memory)
{
    *memory = NULL;
    if (size == 0)
        return NOVA_OK;
    if (size > SIZE_MAX / 8)
        return NOVA_OVERFLOW;
    recycled *header = workspace_find_recycled(size);
    if (header == NULL)
        header = workspace_make(size);
    if (header == NULL)
        return NOVA_OUT_OF_MEMORY;
    *memory = header + 1;
    return NOVA_OK;
}

void nova_memory_recycle(void *memory)
{
    if (memory == NULL)
        return;
    recycled *header = workspace_header(memory);
    if (header->capacity > MOST_RECYCLED) {
        workspace_free(header);
        return;
    }
    for (int i = 0; i < RECYCLED; i++) {
        recycled *none = NULL;
        if (atomic_compare_exchange_strong_explicit(&workspace_recycled[i], &none, header,
                                                    memory_order_release, memory_order_relaxed))
            return;
    }
    uint32_t oldest = atomic_fetch_add_explicit(&workspace_oldest, 1, memory_order_relaxed);
    workspace_free(atomic_exchange_explicit(&workspace_recycled[oldest % RECYCLED], header,
                                            memory_order_acq_rel));
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

void nova_pool_share(nova_pool *pool)
{
    if (pool != NULL)
        pool->shared = true;
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
    if (pool->shared)
        return nova_memory_reuse(pool->size, block);
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
    if (pool->shared) {
        nova_memory_recycle(block);
        return;
    }
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
