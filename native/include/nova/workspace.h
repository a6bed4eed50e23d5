/* Workspace pool: blocks of one size, reused from run to run, each held by one run at a time. */
#ifndef NOVA_WORKSPACE_H
#define NOVA_WORKSPACE_H

#include <stddef.h>
#include <stdint.h>

#include "nova/status.h"

/* Fresh memory with arbitrary contents, 64-byte aligned (from 2 MiB on 2 MiB aligned and on huge
 * pages, where the system has them); NULL when the size is 0. The caller frees it with free().
 * Thread-safe. */
nova_status nova_memory_take(uint64_t size, void **memory);

/* Memory with arbitrary contents, page-aligned (from 2 MiB on also on huge pages, where the system
 * has them); NULL when the size is 0. It may have been used
 * before, by any program: a few blocks that were given back are cached, as memory that was touched
 * before causes no page faults. The caller owns it until nova_memory_recycle. Thread-safe. */
nova_status nova_memory_reuse(uint64_t size, void **memory);

/* Gives back memory of nova_memory_reuse; NULL is fine. Thread-safe. */
void nova_memory_recycle(void *memory);

typedef struct nova_pool nova_pool;

/* Makes an empty pool of blocks of `size` bytes; the caller owns *pool. Thread-safe. */
nova_status nova_pool_create(uint64_t size, nova_pool **pool);

/* Makes the pool take recycled memory for each block, and recycle it afterwards: for a program that
 * is one of many, for different sizes. Before the first nova_pool_take. NULL is fine. */
void nova_pool_share(nova_pool *pool);

/* Frees the pool and its idle blocks. NULL is fine. All blocks must have been released. */
void nova_pool_destroy(nova_pool *pool);

/* Takes a block, allocated as by nova_memory_take; NULL when the size is 0. The caller holds it
 * exclusively until it releases it. Thread-safe. */
nova_status nova_pool_take(nova_pool *pool, void **block);

/* Gives back a block of nova_pool_take; NULL is fine. Thread-safe. */
void nova_pool_give(nova_pool *pool, void *block);

#endif
