/* The shadow of global memory: a stamp record for each word. One map is kept between launches, as making it anew would
 * take most of the time of a small one. Its old stamps say nothing: blocks have numbers that never come again, until they
 * run out and the map is thrown away. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS and MAP_NORESERVE */
#include "gpusim/memory/shadow_memory.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

static _Atomic(shadow_map *) kept;

static void drop(shadow_map *map)
{
    if (map != NULL && map->words != NULL)
        munmap(map->words, map->room * sizeof *map->words);
    free(map);
}

/* Only the parts of it that a kernel touches take memory. */
static shadow_map *make(uint64_t room)
{
    shadow_map *map = calloc(1, sizeof *map);
    if (map == NULL)
        return NULL;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *words = mmap(NULL, room * sizeof *map->words, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (words == MAP_FAILED) {
        free(map);
        return NULL;
    }
    map->words = words, map->room = room;
    return map;
}

shadow_map *sim_take_shadow(uint64_t words, uint64_t blocks)
{
    shadow_map *map = atomic_exchange(&kept, NULL);
    if (map != NULL && map->room >= words && map->used + blocks < MOST_BLOCKS)
        return map;
    drop(map);
    return make(words < LEAST_ROOM ? LEAST_ROOM : words);
}

void sim_give_shadow(shadow_map *map, uint64_t blocks)
{
    if (map == NULL)
        return;
    map->used += (uint32_t)blocks;
    shadow_map *none = NULL;
    if (map->room > MOST_KEPT || !atomic_compare_exchange_strong(&kept, &none, map))
        drop(map);
}
