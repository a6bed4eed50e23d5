/* Checks the tilings of a block, so that a plan of tasks can use them without looking. */
#include "loader/tables_parts.h"

#include <inttypes.h>
#include <stdbool.h>

#define REFUSE(error, check, ...) nova_fail((error), NOVA_REFUSED, (check), __VA_ARGS__)

/* Byte ranges of a kernel: more than any has. */
enum { MOST_RANGES = 1 << 16 };

nova_status nova_tilings_find(nova_tables *tables, const char *block, uint64_t limit,
                              uint64_t *position, nova_error *error)
{
    uint64_t count = tables->header->kernel_count;
    uint64_t rows = count * sizeof(nova_tiling) + sizeof(uint64_t);
    if (*position > limit || limit - *position < rows)
        return REFUSE(error, "tables-size",
                      "the tilings of %" PRIu64 " kernels end after the block", count);
    tables->tilings = (const void *)(block + *position);
    *position += rows;
    tables->tiling_word_count = *(const uint64_t *)(const void *)(block + *position - 8);
    tables->tiling_words = (const void *)(block + *position);
    if (tables->tiling_word_count > (limit - *position) / sizeof(int64_t))
        return REFUSE(error, "tables-size", "%" PRIu64 " words of tilings end after the block",
                      tables->tiling_word_count);
    *position += tables->tiling_word_count * sizeof(int64_t);
    return NOVA_OK;
}

/* The tiles of a grid; -1 if the words say none. */
static int64_t tilings_count(const int64_t *words, uint32_t rank)
{
    int64_t tiles = 1;
    bool is_empty = false;
    for (uint32_t i = 0; i < rank; i++) {
        int64_t grid = words[i], tile = words[rank + i];
        if (grid < 0 || tile < 1)
            return -1;
        is_empty |= grid == 0;
        int64_t along = grid == 0 ? 1 : (grid - 1) / tile + 1;
        if (__builtin_mul_overflow(tiles, along, &tiles))
            return -1;
    }
    return is_empty ? 0 : tiles;
}

/* Whether the bytes that a range touches over the whole grid are in an operand of `size` bytes. */
static bool tilings_fit(const int64_t *words, const int64_t *range, uint32_t rank, uint64_t size)
{
    int64_t low = range[1], high = range[2];
    if (low == 0 && high == 0) { /* no bytes: an operand that is empty for the sizes of a call */
        for (uint32_t i = 0; i < rank; i++)
            if (range[3 + i] != 0)
                return false;
        return true;
    }
    if (low >= high)
        return false;
    for (uint32_t i = 0; i < rank; i++) {
        int64_t shift;
        if (__builtin_mul_overflow(range[3 + i], words[i] - 1, &shift) ||
            __builtin_add_overflow(shift < 0 ? low : high, shift, shift < 0 ? &low : &high))
            return false;
    }
    return low >= 0 && (uint64_t)high <= size;
}

static nova_status tilings_check_ranges(const nova_tables *tables, uint32_t index,
                                        const uint64_t *sizes, nova_error *error)
{
    const nova_tiling *tiling = &tables->tilings[index];
    const nova_interface *interface = &tables->interfaces[index];
    const int64_t *words = tables->tiling_words + tiling->first_word;
    const int64_t *range = words + 2 * (uint64_t)tiling->rank;
    bool is_empty = tables->kernels[index].grid == 0;
    for (uint32_t i = 0; i < tiling->range_count; i++, range += 3 + tiling->rank) {
        bool writes = (range[0] & 1) != 0;
        int64_t operand = range[0] >> 1;
        if (operand < 0 || operand >= interface->operand_count ||
            (writes && operand < interface->reads) ||
            (i > 0 && range[0] < range[-3 - (int64_t)tiling->rank]))
            return REFUSE(error, "tables-tiling",
                          "kernel %u: byte range %u is of operand %" PRId64 " of %u, or out of "
                          "order",
                          index, i, operand, interface->operand_count);
        if (!is_empty && !tilings_fit(words, range, tiling->rank, sizes[operand]))
            return REFUSE(error, "tables-tiling",
                          "kernel %u: byte range %u is outside of operand %" PRId64
                          ", which has %" PRIu64 " bytes",
                          index, i, operand, sizes[operand]);
    }
    return NOVA_OK;
}

static nova_status tilings_check_kernel(const nova_tables *tables, uint32_t index, uint64_t *word,
                                        const uint64_t *sizes, nova_error *error)
{
    const nova_tiling *tiling = &tables->tilings[index];
    const nova_kernel_record *kernel = &tables->kernels[index];
    if (tiling->rank > NOVA_MOST_DIMENSIONS || tiling->range_count > MOST_RANGES ||
        tiling->first_word != *word)
        return REFUSE(error, "tables-tiling",
                      "kernel %u has a tile grid of %u dimensions, %u byte ranges, and words from "
                      "%u, not %" PRIu64,
                      index, tiling->rank, tiling->range_count, tiling->first_word, *word);
    *word += 2 * (uint64_t)tiling->rank + (uint64_t)tiling->range_count * (3 + tiling->rank);
    if (*word > tables->tiling_word_count)
        return REFUSE(error, "tables-tiling",
                      "the words of kernel %u end at %" PRIu64 " of %" PRIu64, index, *word,
                      tables->tiling_word_count);
    bool is_host = (kernel->core & NOVA_CORE_MASK) < NOVA_DEVICE;
    bool is_tiled = is_host || (nova_tables_have_device_tasks(tables) &&
                                nova_kernel_is_device(kernel) && tiling->task_ns != 0);
    if (!is_tiled)
        return tiling->rank == 0 && tiling->range_count == 0 && tiling->task_ns == 0
                   ? NOVA_OK
                   : REFUSE(error, "tables-tiling",
                            "kernel %u is for a device, and has tiles of a CPU", index);
    const nova_device_launch *launch = is_host ? NULL : &tables->devices[index];
    if (launch != NULL &&
        (uint64_t)kernel->grid != (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2])
        return REFUSE(error, "tables-tiling", "kernel %u has %" PRId64 " tiles, not one a block",
                      index, kernel->grid);
    int64_t tiles = tilings_count(tables->tiling_words + tiling->first_word, tiling->rank);
    if (tiles != kernel->grid || tiling->task_ns == 0)
        return REFUSE(error, "tables-tiling",
                      "kernel %u has %" PRId64 " tiles, its tile grid %" PRId64
                      ", and tasks of %u ns",
                      index, kernel->grid, tiles, tiling->task_ns);
    return tilings_check_ranges(tables, index, sizes, error);
}

nova_status nova_tilings_check(const nova_tables *tables, nova_error *error)
{
    if (tables->tilings == NULL)
        return NOVA_OK;
    uint64_t word = 0;
    const uint64_t *sizes = tables->interface_sizes;
    nova_status status = NOVA_OK;
    for (uint32_t i = 0; status == NOVA_OK && i < tables->header->kernel_count; i++) {
        status = tilings_check_kernel(tables, i, &word, sizes, error);
        sizes += tables->interfaces[i].operand_count;
    }
    if (status == NOVA_OK && word != tables->tiling_word_count)
        status = REFUSE(error, "tables-tiling", "the tilings have %" PRIu64 " words of %" PRIu64,
                        word, tables->tiling_word_count);
    return status;
}
