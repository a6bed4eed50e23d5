/* Blocks of memory for large results, kept for a while after they are given back and handed out
 * again: memory that was touched before costs no page faults. One store a process.
 *
 * Blocks are of size classes, eight to each power of two. What is idle is bounded: the oldest
 * blocks go back to the system above the limit, and each after it was idle for a while. */
#ifndef NOVA_BASE_CACHING_ALLOCATOR_H
#define NOVA_BASE_CACHING_ALLOCATOR_H

#include <stddef.h>
#include <stdint.h>

typedef struct nova_blocks_info {
    uint64_t limit; /* idle bytes that are kept at most */
    uint64_t idle_bytes;
    uint64_t idle_count;
    uint64_t live_bytes; /* of blocks that somebody holds */
    uint64_t live_count;
    uint64_t reused; /* takes that got an idle block */
    uint64_t mapped; /* takes that got fresh memory of the system */
} nova_blocks_info;

/* Takes at least `size` bytes with arbitrary contents, page-aligned, on huge pages from 2 MiB on
 * where the system has them; NULL: out of memory. The caller owns it until it gives it back.
 * Thread-safe. */
void *nova_blocks_take(size_t size);

/* Gives back what nova_blocks_take returned; NULL is fine. Thread-safe. */
void nova_blocks_give(void *block);

/* Bytes that a block of nova_blocks_take has room for. Thread-safe. */
size_t nova_blocks_capacity(const void *block);

/* Idle bytes that are kept at most (0: none), and for how long. Thread-safe. */
void nova_blocks_configure(uint64_t limit, uint64_t keep_ns);

/* Gives all idle blocks back to the system. Thread-safe. */
void nova_blocks_clear(void);

/* Thread-safe. */
nova_blocks_info nova_blocks_get_info(void);

#endif
