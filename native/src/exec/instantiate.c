/* The tables of a symbolic program for given sizes: patched numbers and a workspace.
 *
 * Buffers of the workspace are placed by size, the largest first, at the lowest offset that is free
 * during their lifetime (greedy by size, as nova/passes/kernels/workspace/assign_offsets.py does
 * it). The lifetime of a buffer is from the first launch that has it as an operand to the last. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "nova/symbolic.h"
#include "nova/tables.h"

enum { ALIGNMENT = 64 };

/* Bytes of a buffer, at most: sums over the carries of a loop fit into 64 bits. */
#define MOST_BYTES (UINT64_C(1) << 46)

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
    for (uint32_t i = 0; i < tables->header->buffer_count; i++)
        if (buffers[i].kind == NOVA_OUTPUT_PART) /* its output has another size in each call */
            return nova_fail(error, NOVA_REFUSED, "tables-buffer-kind",
                             "buffer %u is a part of an output of a symbolic size", i);
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

/* Sets the size of the buffer that a control kernel has for itself, in its launch, interface and
 * tiling: the workspaces of its regions are laid out. `tables` are the checked ones, and
 * `container` is the patched copy of theirs. */
static nova_status instantiate_control(const nova_tables *tables, char *block,
                                       const char *container, const nova_launch_record *launch,
                                       nova_error *error)
{
    /* patched: on a device its length decides the size of slices */
    const nova_control_record *control =
        (const void *)(container + ((const char *)nova_tables_control(tables, launch->kernel) -
                                    (const char *)tables->container.header));
    nova_tables patched = *tables;
    nova_buffer *buffers = instantiate_at(tables, block, tables->buffers);
    patched.buffers = buffers;
    const uint32_t *operands = tables->operands + launch->first_operand;
    for (uint32_t i = 0; i < launch->operand_count; i++)
        if (buffers[operands[i]].nbytes > MOST_BYTES)
            return nova_fail(error, NOVA_OVERFLOW, "", "an operand of a loop for these sizes: %s",
                             nova_status_text(NOVA_OVERFLOW));
    if (control->construct == NOVA_CALL)
        return NOVA_OK; /* a called file has static sizes */
    uint64_t workspace = 0;
    for (uint32_t i = 0; i < control->region_count; i++) {
        uint32_t number = tables->container.regions[control->first_region + i];
        const nova_tables_header *region =
            (const void *)(container + tables->container.blocks[number].offset);
        workspace = region->workspace_size > workspace ? region->workspace_size : workspace;
    }
    uint64_t size;
    if (nova_control_bookkeeping(&patched, launch, control, &size) != NOVA_OK)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the sizes of a loop");
    size += (workspace + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1);
    buffers[operands[launch->operand_count - 1]].nbytes = size;
    if (tables->interface_sizes != NULL) {
        uint64_t *sizes = instantiate_at(tables, block, tables->interface_sizes);
        for (uint32_t i = 0; i < launch->kernel; i++)
            sizes += tables->interfaces[i].operand_count;
        sizes[launch->operand_count - 1] = size;
    }
    if (tables->tilings == NULL)
        return NOVA_OK;
    const nova_tiling *tiling = &tables->tilings[launch->kernel];
    int64_t *words = instantiate_at(tables, block, tables->tiling_words);
    int64_t *range = words + tiling->first_word + 2 * (uint64_t)tiling->rank;
    for (uint32_t k = 0; k < tiling->range_count; k++, range += 3 + tiling->rank)
        if (range[0] >> 1 == launch->operand_count - 1)
            range[2] = (int64_t)size;
    return NOVA_OK;
}

/* One block of tables: of a program, or of a region, whose own regions precede it. */
static nova_status instantiate_block(const nova_tables *tables, char *block, const char *container,
                                     nova_error *error)
{
    nova_status status = NOVA_OK;
    for (uint32_t i = 0; status == NOVA_OK && i < tables->header->launch_count; i++) {
        const nova_launch_record *launch = &tables->launches[i];
        if ((tables->kernels[launch->kernel].core & NOVA_CONTROL) != 0)
            status = instantiate_control(tables, block, container, launch, error);
    }
    if (status != NOVA_OK)
        return status;
    instantiate_empty_ranges(tables, block);
    return instantiate_lay_out(tables, block, error);
}

nova_status nova_symbolic_instantiate(const nova_symbolic *symbolic, const nova_tables *checked,
                                      const int64_t *values, void **tables, nova_error *error)
{
    const nova_symbolic_header *header = symbolic->header;
    uint64_t size;
    if (nova_tables_bytes(checked, &size) != symbolic->tables || size != header->tables_size)
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "", "the tables are of another program");
    char *block = malloc((size_t)header->tables_size);
    if (block == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the tables");
    memcpy(block, symbolic->tables, (size_t)header->tables_size);
    nova_status status = instantiate_patch(symbolic, values, block, error);
    uint32_t regions = nova_tables_region_count(checked);
    for (uint32_t i = 0; status == NOVA_OK && i < regions; i++) {
        nova_tables region;
        nova_tables_region(checked, i, &region);
        status =
            instantiate_block(&region, block + checked->container.blocks[i].offset, block, error);
    }
    char *last = block + ((const char *)checked->header - (const char *)symbolic->tables);
    if (status == NOVA_OK)
        status = instantiate_block(checked, last, block, error);
    if (status != NOVA_OK) {
        free(block);
        return status;
    }
    *tables = block;
    return NOVA_OK;
}
