/* Tensor maps: how bulk tensor copies see global memory, and the rows of a box. */
#ifndef NOVA_GPUSIM_ASYNC_TENSOR_MAP_H
#define NOVA_GPUSIM_ASYNC_TENSOR_MAP_H

#include "gpusim/sim.h"

/* A checked map; box in elements of shared memory, strides[0] is the size of an element. The
 * element stride of the innermost dimension is ignored, as by the copy engine. */
typedef struct {
    uint64_t address, dims[TENSOR_DIMS], strides[TENSOR_DIMS];
    uint32_t rank, box[TENSOR_DIMS], steps[TENSOR_DIMS];
    uint32_t swizzle; /* bits of the address that are permuted: 0, 1, 3 or 7 */
    sim_type type;
    uint8_t fills_nan;
} sim_tiling;

/* NULL, or what is wrong with the bytes of a map. */
const char *sim_read_tensor_map(const uint8_t *bytes, sim_tiling *tiling);

/* A row of a box: elements [first, end) are inside of the tensor, the first of them at `address`.
 */
typedef struct {
    uint64_t address;
    uint32_t first, end;
} sim_tile_row;

static inline uint32_t sim_tile_rows(const sim_tiling *map)
{
    return map->box[1] * map->box[2] * map->box[3] * map->box[4];
}
/* All bytes of a box; up to 2^43, so that it is checked before the rows are counted. */
static inline uint64_t sim_tile_bytes(const sim_tiling *map)
{
    uint64_t bytes = map->strides[0];
    for (int i = 0; i < TENSOR_DIMS; i++)
        bytes *= map->box[i];
    return bytes;
}
static inline uint32_t sim_tile_row_bytes(const sim_tiling *map)
{
    return map->box[0] * (uint32_t)map->strides[0];
}

/* Bytes from a row of a box to the next in shared memory: with a swizzle, a row has a whole span of
 * it, and the copy engine leaves out the end of a shorter one (seen on an H200). */
static inline uint32_t sim_tile_pitch(const sim_tiling *map)
{
    return map->swizzle != 0 ? (map->swizzle + 1) * 16 : sim_tile_row_bytes(map);
}
sim_tile_row sim_tile_row_at(const sim_tiling *map, const int32_t *coordinates, uint32_t row);

/* Where a chunk of 16 bytes of shared memory is after the swizzle. */
static inline uint64_t sim_swizzle(uint64_t address, uint32_t bits)
{
    return address ^ (address >> 7 & bits) << 4;
}

#endif
