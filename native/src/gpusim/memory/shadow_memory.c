/* Shadow memory of global memory: a stamp record for each word. One map is cached between launches,
 * as a new one would dominate the time of a small launch. Stale stamps are harmless: block numbers
 * are never reused, until they run out and the map is freed. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS and MAP_NORESERVE */
#include "gpusim/memory/shadow_memory.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

static _Atomic(shadow_map *) shadow_cached;

static void shadow_drop(shadow_map *map)
{
    if (map != NULL && map->words != NULL)
        munmap(map->words, map->capacity * sizeof *map->words);
    free(map);
}

/* Only the parts of it that a kernel touches take memory. */
static shadow_map *shadow_make(uint64_t capacity)
{
    shadow_map *map = calloc(1, sizeof *map);
    if (map == NULL)
        return NULL;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *words = mmap(NULL, capacity * sizeof *map->words, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (words == MAP_FAILED) {
        free(map);
        return NULL;
    }
    map->words = words, map->capacity = capacity;
    return map;
}

shadow_map *sim_take_shadow(uint64_t words, uint64_t blocks)
{
    shadow_map *map = atomic_exchange(&shadow_cached, NULL);
    if (map != NULL && map->capacity >= words && map->used + blocks < MOST_BLOCKS)
        return map;
    shadow_drop(map);
    return shadow_make(words < LEAST_CAPACITY ? LEAST_CAPACITY : words);
}

void sim_give_shadow(shadow_map *map, uint64_t blocks)
{
    if (map == NULL)
        return;
    map->used += (uint32_t)blocks;
    shadow_map *none = NULL;
    if (map->capacity > MOST_CACHED || !atomic_compare_exchange_strong(&shadow_cached, &none, map))
        shadow_drop(map);
}
