#include "nova/specialized.h"

#include <inttypes.h>
#include <string.h>

_Static_assert(sizeof(nova_specialized_header) == 48 && sizeof(nova_specialized_block) == 16,
               "as in docs/nova-format.md");

#define REFUSE(error, ...) nova_fail((error), NOVA_REFUSED, "specialized-size", __VA_ARGS__)

enum { MOST_SPECIALIZED = 4096, MOST_DIMS = 4096 };

bool nova_specialized_matches(const void *block, size_t size)
{
    return size >= sizeof(nova_specialized_header) && memcmp(block, NOVA_SPECIALIZED_MAGIC, 8) == 0;
}

/* Whether [offset, offset + length) is after `begin` and inside of the block. */
static bool specialized_is_inside(uint64_t offset, uint64_t length, uint64_t begin, uint64_t size)
{
    return offset % 8 == 0 && offset >= begin && offset <= size && length <= size - offset;
}

nova_status nova_specialized_check(const void *block, size_t size, nova_specialized *specialized,
                                   nova_error *error)
{
    const nova_specialized_header *header = block;
    if ((uintptr_t)block % 8 != 0 || !nova_specialized_matches(block, size))
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "", "the block has no specialized tables");
    if (header->size != size || header->reserved != 0)
        return REFUSE(error, "the header says %" PRIu64 " bytes, the file %zu", header->size, size);
    if (header->count < 1 || header->count > MOST_SPECIALIZED || header->dim_count < 1 ||
        header->dim_count > MOST_DIMS)
        return REFUSE(error, "%u combinations of %u sizes", header->count, header->dim_count);
    uint64_t sizes = sizeof *header + header->count * sizeof *specialized->blocks;
    uint64_t end = sizes + (uint64_t)header->count * header->dim_count * sizeof(int64_t);
    if (end > size ||
        !specialized_is_inside(header->symbolic_offset, header->symbolic_size, end, size))
        return REFUSE(error, "the symbolic tables do not fit into the block");
    *specialized = (nova_specialized){
        .header = header,
        .blocks = (const void *)((const char *)block + sizeof *header),
        .sizes = (const void *)((const char *)block + sizes),
    };
    for (uint32_t i = 0; i < header->count; i++)
        if (!specialized_is_inside(specialized->blocks[i].offset, specialized->blocks[i].size, end,
                                   size))
            return REFUSE(error, "the tables of combination %u do not fit into the block", i);
    return NOVA_OK;
}

const void *nova_specialized_tables(const nova_specialized *specialized, uint32_t number,
                                    size_t *size)
{
    *size = (size_t)specialized->blocks[number].size;
    return (const char *)specialized->header + specialized->blocks[number].offset;
}

uint32_t nova_specialized_find(const nova_specialized *specialized, const int64_t *dims)
{
    uint32_t count = specialized->header != NULL ? specialized->header->count : 0, i = 0;
    size_t width = count > 0 ? specialized->header->dim_count : 0;
    while (i < count && memcmp(specialized->sizes + i * width, dims, width * sizeof *dims) != 0)
        i++;
    return i;
}
