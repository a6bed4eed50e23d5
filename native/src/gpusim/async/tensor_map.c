#include "gpusim/async/tensor_map.h"

#include <string.h>

/* By the driver's number of a data type. */
static const struct {
    uint8_t bytes, type, is_float;
} TENSOR_TYPES[] = {{1, T_U8, 0},  {2, T_U16, 0},  {4, T_U32, 0}, {4, T_S32, 0}, {8, T_U64, 0},
                    {8, T_S64, 0}, {2, T_F16, 1},  {4, T_F32, 1}, {8, T_F64, 1}, {2, T_BF16, 1},
                    {4, T_F32, 1}, {4, T_TF32, 1}, {4, T_TF32, 1}};
enum { TENSOR_TYPE_COUNT = sizeof TENSOR_TYPES / sizeof TENSOR_TYPES[0] };

static uint32_t tensor_step(const sim_tensor_map *map, uint32_t dim)
{
    return map->steps[dim] != 0 ? map->steps[dim] : 1;
}

const char *nova_sim_check_tensor_map(const sim_tensor_map *map)
{
    if (map->element >= TENSOR_TYPE_COUNT)
        return "the data type is not known";
    if (map->rank < 1 || map->rank > TENSOR_DIMS)
        return "the rank is not 1 to 5";
    if (map->swizzle != 0 && map->swizzle != 32 && map->swizzle != 64 && map->swizzle != 128)
        return "the swizzle mode is not known";
    if (map->address % 16 != 0)
        return "the address is not a multiple of 16 bytes";
    if (map->fills_nan && !TENSOR_TYPES[map->element].is_float)
        return "only elements out of bounds of a float tensor can be filled with NaN";
    uint64_t element = TENSOR_TYPES[map->element].bytes;
    for (uint32_t i = 0; i < map->rank; i++) {
        if (map->dims[i] == 0 || map->dims[i] > UINT64_C(1) << 32)
            return "a dimension is not 1 to 2^32 elements";
        if (map->box[i] == 0 || map->box[i] > 256)
            return "a dimension of the box is not 1 to 256 elements";
        if (tensor_step(map, i) > 8)
            return "an element stride is not 1 to 8";
        if (i + 1 < map->rank &&
            (map->strides[i] % 16 != 0 || map->strides[i] >= UINT64_C(1) << 40))
            return "a stride is not a multiple of 16 bytes below 2^40";
    }
    uint64_t inner = map->box[0] * element;
    if (inner % 16 != 0)
        return "the innermost dimension of the box is not a multiple of 16 bytes";
    if (map->swizzle != 0 && inner > map->swizzle)
        return "the innermost dimension of the box is larger than the swizzle span";
    return NULL;
}

const char *sim_read_tensor_map(const uint8_t *bytes, sim_tiling *tiling)
{
    sim_tensor_map map;
    memcpy(&map, bytes, sizeof map);
    const char *wrong = nova_sim_check_tensor_map(&map);
    if (wrong != NULL)
        return wrong;
    *tiling = (sim_tiling){.address = map.address,
                           .rank = map.rank,
                           .swizzle = map.swizzle == 0 ? 0 : map.swizzle / 16 - 1,
                           .type = TENSOR_TYPES[map.element].type,
                           .fills_nan = map.fills_nan};
    for (uint32_t i = 0; i < TENSOR_DIMS; i++) {
        int used = i < map.rank;
        uint32_t step = used && i > 0 ? tensor_step(&map, i) : 1;
        tiling->dims[i] = used ? map.dims[i] : 1;
        tiling->steps[i] = step;
        tiling->box[i] = used ? (map.box[i] + step - 1) / step : 1;
        tiling->strides[i] = i == 0 ? TENSOR_TYPES[map.element].bytes
                             : used ? map.strides[i - 1]
                                    : 0;
    }
    return NULL;
}

sim_tile_row sim_tile_row_at(const sim_tiling *map, const int32_t *coordinates, uint32_t row)
{
    sim_tile_row out = {.address = map->address};
    for (uint32_t i = 1; i < map->rank; i++) {
        int64_t at = coordinates[i] + (int64_t)(row % map->box[i]) * map->steps[i];
        row /= map->box[i];
        if (at < 0 || at >= (int64_t)map->dims[i])
            return out;
        out.address += (uint64_t)at * map->strides[i];
    }
    int64_t first = coordinates[0], dims = (int64_t)map->dims[0];
    while (out.first < map->box[0] && first + out.first < 0)
        out.first++;
    out.end = out.first;
    while (out.end < map->box[0] && first + out.end < dims)
        out.end++;
    out.address += (uint64_t)(first + out.first) * map->strides[0];
    return out;
}
