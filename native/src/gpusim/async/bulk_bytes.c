/* The bytes of bulk copies: rows of a box, swizzled in shared memory. */
#include "gpusim/async/bulk_copy.h"

static uint8_t *bulk_host(sim_bulk *copy, uint64_t address, uint32_t bytes)
{
    const sim_range *range = sim_find_range(copy->block, address, bytes);
    return (uint8_t *)(uintptr_t)(address + range->moved);
}

/* Zeros or the quiet NaN of the copy engine: 7ff7 for 16-bit floats on an H200, alike for others.
 */
static void bulk_fill(const sim_tiling *map, uint8_t *row, uint32_t bytes)
{
    memset(row, map->fills_nan ? 0xff : 0, bytes);
    uint32_t element = (uint32_t)map->strides[0];
    for (uint32_t i = 0; map->fills_nan && i < bytes; i += element) {
        row[i] = 0xf7;
        row[i + element - 1] = 0x7f;
    }
}

/* Writes a row of a box to the shared memory of a block, swizzled. */
static void bulk_scatter(const sim_bulk *copy, sim_block *target, uint64_t at, const uint8_t *row,
                         uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i += 16)
        memcpy(target->shared + sim_swizzle(at + i, copy->map.swizzle), row + i, 16);
}

static void bulk_gather(const sim_bulk *copy, uint64_t at, uint8_t *row, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i += 16)
        memcpy(row + i, copy->block->shared + sim_swizzle(at + i, copy->map.swizzle), 16);
}

static void bulk_load_row(sim_bulk *copy, uint32_t number, uint8_t *row, uint32_t bytes)
{
    const sim_tiling *map = &copy->map;
    sim_tile_row tile = sim_tile_row_at(map, copy->coordinates, number);
    uint32_t element = (uint32_t)map->strides[0];
    bulk_fill(map, row, bytes);
    if (tile.first == tile.end)
        return;
    uint32_t length = (tile.end - tile.first) * element;
    memcpy(row + tile.first * element, bulk_host(copy, tile.address, length), length);
}

enum { MOST_ROW_BYTES = 2048 };

void sim_bulk_move_in(sim_bulk *copy)
{
    sim_block *blocks = copy->block->cluster->blocks;
    uint8_t row[MOST_ROW_BYTES];
    const uint8_t *linear =
        copy->at->detail == BULK_SEND ? copy->block->shared + copy->global : NULL;
    uint32_t rows = 1, bytes = copy->bytes;
    if (copy->at->flags & COPY_TENSOR)
        rows = sim_tile_rows(&copy->map), bytes = sim_tile_row_bytes(&copy->map);
    else if (linear == NULL)
        linear = bulk_host(copy, copy->global, bytes);
    for (uint32_t i = 0; i < rows; i++) {
        if (copy->at->flags & COPY_TENSOR)
            bulk_load_row(copy, i, row, bytes);
        for (uint32_t rank = 0; rank < copy->block->cluster->size; rank++) {
            if (!(copy->targets >> rank & 1))
                continue;
            if (copy->at->flags & COPY_TENSOR)
                bulk_scatter(copy, blocks + rank,
                             copy->shared + (uint64_t)i * sim_tile_pitch(&copy->map), row, bytes);
            else
                memmove(blocks[rank].shared + copy->shared, linear, bytes);
        }
    }
}

/* The bytes of shared memory that a store has: rows of a box without their swizzle. */
void sim_bulk_take(sim_bulk *copy)
{
    if (copy->at->flags & COPY_TENSOR) {
        uint32_t bytes = sim_tile_row_bytes(&copy->map);
        for (uint32_t i = 0; i < sim_tile_rows(&copy->map); i++)
            bulk_gather(copy, copy->shared + (uint64_t)i * sim_tile_pitch(&copy->map),
                        copy->data + (size_t)i * bytes, bytes);
    } else {
        memcpy(copy->data, copy->block->shared + copy->shared, copy->bytes);
    }
}

static void bulk_put(sim_bulk *copy, sim_type type, uint64_t address, const uint8_t *from,
                     uint32_t bytes)
{
    uint8_t *to = bulk_host(copy, address, bytes);
    if (copy->at->detail == BULK_STORE) {
        memcpy(to, from, bytes);
        return;
    }
    uint32_t size = bytes_of(type);
    for (uint32_t i = 0; i < bytes; i += size) {
        uint64_t old = 0, by = 0;
        memcpy(&old, to + i, size), memcpy(&by, from + i, size);
        uint64_t value = sim_atomic_combine(copy->at->flags >> COPY_OPERATION_AT, type, old, by, 0);
        memcpy(to + i, &value, size);
    }
}

void sim_bulk_move_out(sim_bulk *copy)
{
    if (!(copy->at->flags & COPY_TENSOR)) {
        bulk_put(copy, copy->at->type, copy->global, copy->data, copy->bytes);
        return;
    }
    const sim_tiling *map = &copy->map;
    uint32_t element = (uint32_t)map->strides[0], bytes = sim_tile_row_bytes(map);
    for (uint32_t i = 0; i < sim_tile_rows(map); i++) {
        sim_tile_row tile = sim_tile_row_at(map, copy->coordinates, i);
        const uint8_t *from = copy->data + (size_t)i * bytes + tile.first * element;
        uint32_t count = tile.end - tile.first;
        if (count != 0)
            bulk_put(copy, map->type, tile.address, from, count * element);
    }
}
