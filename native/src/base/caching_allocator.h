/* A caching allocator for large results: freed blocks are reused, as memory that was touched before
 * causes no page faults. One cache a process.
 *
 * Size classes divide each power of two by eight. Idle memory is bounded: above the limit the
 * oldest blocks are unmapped, and each block after a time of idleness. */
#ifndef NOVA_BASE_CACHING_ALLOCATOR_H
#define NOVA_BASE_CACHING_ALLOCATOR_H

#include <stddef.h>
#include <stdint.h>

typedef struct nova_blocks_info {
    uint64_t limit; /* most idle bytes that stay cached */
    uint64_t idle_bytes;
    uint64_t idle_count;
    uint64_t live_bytes; /* of blocks in use */
    uint64_t live_count;
    uint64_t reused; /* takes that got an idle block */
    uint64_t mapped; /* takes that got fresh memory of the system */
} nova_blocks_info;

/* Allocates at least `size` bytes with arbitrary contents, page-aligned, on huge pages from 2 MiB
 * on if the system has them; NULL: out of memory. The caller owns the block until nova_blocks_give.
 * Thread-safe. */
void *nova_blocks_take(size_t size);

/* Frees a block of nova_blocks_take; NULL is fine. Thread-safe. */
void nova_blocks_give(void *block);

/* Capacity in bytes of a block of nova_blocks_take. Thread-safe. */
size_t nova_blocks_capacity(const void *block);

/* Sets the most idle bytes that stay cached (0: none), and for how long. Thread-safe. */
void nova_blocks_configure(uint64_t limit, uint64_t keep_ns);

/* Gives all idle blocks back to the system. Thread-safe. */
void nova_blocks_clear(void);

/* Thread-safe. */
nova_blocks_info nova_blocks_get_info(void);

#endif
