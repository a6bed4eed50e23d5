/* The tables of a symbolic program for given sizes: patched numbers and a workspace.
 *
 * Buffers of the workspace are placed by size, the largest first, at the lowest offset that is free
 * during their lifetime (greedy by size, as nova/passes/kernels/assign_offsets.py does it). The
 * lifetime of a buffer is from the first launch that has it as an operand to the last. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "nova/symbolic.h"
#include "nova/tables.h"

enum { ALIGNMENT = 64 };

typedef struct {
    uint64_t offset, size;
    uint32_t first, last; /* launches */
    uint32_t buffer;
} lifetime;

static int instantiate_compare_sizes(const void *a, const void *b)
{
    const lifetime *left = a, *right = b;
    if (left->size != right->size)
        return left->size > right->size ? -1 : 1;
    return left->buffer < right->buffer ? -1 : left->buffer > right->buffer;
}

static int instantiate_compare_offsets(const void *a, const void *b)
{
    uint64_t left = (*(const lifetime *const *)a)->offset;
    uint64_t right = (*(const lifetime *const *)b)->offset;
    return left < right ? -1 : left > right;
}

/* The lifetimes of the workspace buffers that launches use; `count` of them. The indices of the
 * launches and operands were checked with the tables for representative sizes. */
static lifetime *instantiate_find_lifetimes(const nova_tables *tables, uint32_t *count)
{
    uint32_t buffers = tables->header->buffer_count;
    lifetime *all = calloc((size_t)buffers + 1, sizeof *all);
    if (all == NULL)
        return NULL;
    for (uint32_t i = 0; i < buffers; i++)
        all[i] = (lifetime){.first = UINT32_MAX, .buffer = i};
    for (uint32_t i = 0; i < tables->header->launch_count; i++) {
        const nova_launch_record *launch = &tables->launches[i];
        for (uint32_t k = 0; k < launch->operand_count; k++) {
            lifetime *used = &all[tables->operands[launch->first_operand + k]];
            used->first = used->first == UINT32_MAX ? i : used->first;
            used->last = i;
        }
    }
    *count = 0;
    for (uint32_t i = 0; i < buffers; i++)
        if (tables->buffers[i].kind == NOVA_WORKSPACE && all[i].first != UINT32_MAX)
            all[(*count)++] = all[i];
    return all;
}

/* The lowest offset where `size` bytes are free of the `count` buffers, which are sorted. */
static uint64_t instantiate_find_gap(lifetime *const *placed, uint32_t count, uint64_t size)
{
    uint64_t free = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (placed[i]->offset >= free && placed[i]->offset - free >= size)
            return free;
        uint64_t end = placed[i]->offset + placed[i]->size;
        free = end > free ? end : free;
    }
    return free;
}

/* The part of `block` that `part` of the checked tables is a copy of. */
static void *instantiate_at(const nova_tables *tables, char *block, const void *part)
{
    return block + ((const char *)part - (const char *)tables->header);
}

static nova_status instantiate_lay_out(const nova_tables *tables, char *block, nova_error *error)
{
    nova_tables_header *header = (void *)block;
    nova_buffer *buffers = instantiate_at(tables, block, tables->buffers);
    uint32_t count;
    lifetime *all = instantiate_find_lifetimes(tables, &count);
    lifetime **conflicts = calloc((size_t)tables->header->buffer_count + 1, sizeof *conflicts);
    nova_status status = all == NULL || conflicts == NULL ? NOVA_OUT_OF_MEMORY : NOVA_OK;
    uint64_t end = 0;
    for (uint32_t i = 0; status == NOVA_OK && i < count; i++) {
        uint64_t nbytes = buffers[all[i].buffer].nbytes;
        if (nbytes > (uint64_t)INT64_MAX / 2)
            status = NOVA_OVERFLOW;
        all[i].size = (nbytes + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1);
    }
    if (status == NOVA_OK)
        qsort(all, count, sizeof *all, instantiate_compare_sizes);
    for (uint32_t i = 0; status == NOVA_OK && i < count; i++) {
        uint32_t used = 0;
        for (uint32_t k = 0; k < i; k++)
            if (all[k].first <= all[i].last && all[i].first <= all[k].last)
                conflicts[used++] = &all[k];
        qsort(conflicts, used, sizeof *conflicts, instantiate_compare_offsets);
        all[i].offset = instantiate_find_gap(conflicts, used, all[i].size);
        buffers[all[i].buffer].value = all[i].offset;
        if (__builtin_add_overflow(all[i].offset, all[i].size, &all[i].size))
            status = NOVA_OVERFLOW;
        end = all[i].size > end ? all[i].size : end;
        all[i].size -= all[i].offset;
    }
    free(all);
    free(conflicts);
    if (status != NOVA_OK)
        return nova_fail(error, status, "", "the workspace for these sizes: %s",
                         nova_status_text(status));
    header->workspace_size = end;
    return NOVA_OK;
}

/* An operand without elements, or a loop of no iterations, makes the byte range of a tile empty:
 * its expressions hold for positive sizes only. */
static void instantiate_empty_ranges(const nova_tables *tables, char *block)
{
    if (tables->tilings == NULL)
        return;
    const uint64_t *sizes = instantiate_at(tables, block, tables->interface_sizes);
    int64_t *words = instantiate_at(tables, block, tables->tiling_words);
    for (uint32_t i = 0; i < tables->header->kernel_count; i++) {
        const nova_tiling *tiling = &tables->tilings[i];
        int64_t *range = words + tiling->first_word + 2 * (uint64_t)tiling->rank;
        for (uint32_t k = 0; k < tiling->range_count; k++, range += 3 + tiling->rank)
            if (range[1] >= range[2] || sizes[range[0] >> 1] == 0)
                memset(range + 1, 0, (2 + (size_t)tiling->rank) * sizeof *range);
        sizes += tables->interfaces[i].operand_count;
    }
}

/* Writes the numbers that depend on sizes. */
static nova_status instantiate_patch(const nova_symbolic *symbolic, const int64_t *values,
                                     char *block, nova_error *error)
{
    for (uint32_t i = 0; i < symbolic->header->patch_count; i++) {
        const nova_patch *patch = &symbolic->patches[i];
        int64_t value = values[patch->expression];
        if (patch->width == NOVA_PATCH_SHORT && (value < 0 || value > INT32_MAX))
            return nova_fail(error, NOVA_OVERFLOW, "",
                             "%s is %" PRId64 ", and a device launches up to %d blocks",
                             symbolic->strings + symbolic->expressions[patch->expression].text,
                             value, INT32_MAX);
        /* little-endian, as the file */
        memcpy(block + patch->offset, &value,
               patch->width == NOVA_PATCH_SHORT ? sizeof(int32_t) : sizeof value);
    }
    return NOVA_OK;
}

nova_status nova_symbolic_instantiate(const nova_symbolic *symbolic, const nova_tables *checked,
                                      const int64_t *values, void **tables, nova_error *error)
{
    const nova_symbolic_header *header = symbolic->header;
    if ((const void *)checked->header != symbolic->tables)
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "", "the tables are of another program");
    char *block = malloc((size_t)header->tables_size);
    if (block == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the tables");
    memcpy(block, symbolic->tables, (size_t)header->tables_size);
    nova_status status = instantiate_patch(symbolic, values, block, error);
    instantiate_empty_ranges(checked, block);
    if (status == NOVA_OK)
        status = instantiate_lay_out(checked, block, error);
    if (status != NOVA_OK) {
        free(block);
        return status;
    }
    *tables = block;
    return NOVA_OK;
}
