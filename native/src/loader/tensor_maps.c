/* Checks the tensor maps of a block: the copy engine accesses all that a map describes. */
#include "loader/tables_parts.h"

#include <inttypes.h>

#define REFUSE(error, check, ...) nova_fail((error), NOVA_REFUSED, (check), __VA_ARGS__)

enum { MOST_MAPS = 16, MOST_BOX = 256, ALIGNMENT = 16, SWIZZLE = 128 };

/* Limits of the copy engine. */
#define MOST_EXTENT (UINT64_C(1) << 32)
#define MOST_STRIDE (UINT64_C(1) << 40)

nova_status nova_tensor_maps_find(nova_tables *tables, const char *block, uint64_t limit,
                                  uint64_t *position, nova_error *error)
{
    uint64_t count = 0;
    for (uint32_t i = 0; tables->devices != NULL && i < tables->header->kernel_count; i++) {
        if (tables->devices[i].tensor_map_count > MOST_MAPS)
            return REFUSE(error, "tables-tensor-map", "kernel %u has %u tensor maps", i,
                          tables->devices[i].tensor_map_count);
        count += tables->devices[i].tensor_map_count;
    }
    tables->tensor_maps = count > 0 ? (const void *)(block + *position) : NULL;
    if (*position > limit || (limit - *position) / sizeof(nova_tensor_map) < count)
        return REFUSE(error, "tables-size", "%" PRIu64 " tensor maps end after the block", count);
    *position += count * sizeof(nova_tensor_map);
    return NOVA_OK;
}

/* Whether the unused entries of a map are 0, and the used ones within the limits. */
static bool maps_is_valid(const nova_tensor_map *map)
{
    uint32_t size = nova_tensor_map_element_size(map->element);
    if (size == 0 || map->rank < 1 || map->rank > NOVA_MAP_RANK || map->reserved != 0 ||
        map->padding != 0 || map->offset % ALIGNMENT != 0 || map->offset >= MOST_STRIDE ||
        map->box[0] * size > SWIZZLE || map->box[0] * size % ALIGNMENT != 0)
        return false;
    for (uint32_t i = 0; i < NOVA_MAP_RANK; i++) {
        bool is_used = i < map->rank;
        if (is_used ? map->dims[i] < 1 || map->dims[i] > MOST_EXTENT || map->box[i] < 1 ||
                          map->box[i] > MOST_BOX
                    : map->dims[i] != 0 || map->box[i] != 0)
            return false;
        if (i + 1 < NOVA_MAP_RANK &&
            (i + 1 < map->rank ? map->strides[i] == 0 || map->strides[i] % ALIGNMENT != 0 ||
                                     map->strides[i] >= MOST_STRIDE
                               : map->strides[i] != 0))
            return false;
    }
    return true;
}

/* The end of what a map describes, in bytes from the start of its operand; of a valid map. */
static uint64_t maps_end(const nova_tensor_map *map)
{
    uint64_t end = map->offset + map->dims[0] * nova_tensor_map_element_size(map->element);
    for (uint32_t i = 1; i < map->rank; i++) {
        uint64_t distance;
        if (__builtin_mul_overflow(map->dims[i] - 1, map->strides[i - 1], &distance) ||
            __builtin_add_overflow(end, distance, &end))
            return UINT64_MAX;
    }
    return end;
}

nova_status nova_tensor_maps_check(const nova_tables *tables, nova_error *error)
{
    if (tables->tensor_maps == NULL)
        return NOVA_OK;
    if (tables->interfaces == NULL)
        return REFUSE(error, "tables-tensor-map", "there are tensor maps, and no interfaces");
    const nova_tensor_map *map = tables->tensor_maps;
    const uint64_t *sizes = tables->interface_sizes;
    for (uint32_t i = 0; i < tables->header->kernel_count; i++) {
        const nova_interface *interface = &tables->interfaces[i];
        /* A size of the program is 0: the kernel is not launched, and nothing is encoded. */
        bool is_empty = tables->devices[i].grid[0] == 0;
        for (uint32_t k = 0; k < tables->devices[i].tensor_map_count; k++, map++) {
            if (is_empty)
                continue;
            if (!maps_is_valid(map) || map->operand >= interface->operand_count)
                return REFUSE(error, "tables-tensor-map",
                              "tensor map %u of kernel %u is not one of the copy engine", k, i);
            if (maps_end(map) > sizes[map->operand])
                return REFUSE(error, "tables-tensor-map",
                              "tensor map %u of kernel %u ends at %" PRIu64 " of %" PRIu64 " bytes",
                              k, i, maps_end(map), sizes[map->operand]);
        }
        sizes += interface->operand_count;
    }
    return NOVA_OK;
}
