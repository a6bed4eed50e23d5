#include <stdlib.h>

#include "loader/reader.h"

enum { CHUNK = 16 << 10 };

struct nova_chunk {
    struct nova_chunk *before;
    size_t used, size;
    uint64_t memory[];
};

void *nova_arena_take(nova_arena *arena, uint64_t count, size_t size)
{
    uint64_t bytes;
    if (__builtin_mul_overflow(count, (uint64_t)size, &bytes) || bytes > SIZE_MAX / 2)
        return NULL;
    bytes = (bytes + 7) & ~UINT64_C(7);
    struct nova_chunk *chunk = arena->last;
    if (chunk == NULL || bytes > chunk->size - chunk->used) {
        size_t capacity = bytes > CHUNK ? (size_t)bytes : CHUNK;
        chunk = calloc(1, sizeof *chunk + capacity);
        if (chunk == NULL)
            return NULL;
        chunk->size = capacity;
        chunk->before = arena->last;
        arena->last = chunk;
    }
    void *memory = chunk->memory + chunk->used / sizeof *chunk->memory;
    chunk->used += (size_t)bytes;
    return memory;
}

void nova_arena_free(nova_arena *arena)
{
    while (arena->last != NULL) {
        struct nova_chunk *chunk = arena->last;
        arena->last = chunk->before;
        free(chunk);
    }
}
