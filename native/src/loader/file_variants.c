/* Checks the tables of the variants of a file, and the kernels in them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "loader/reader.h"

/* From this version on, tables have the interfaces of their kernels. */
enum { CHECKED_VERSION = 4 };

static nova_status file_check_code(const nova_file *file, const nova_tables *tables,
                                   nova_error *error)
{
    for (uint32_t i = 0; i < tables->header->kernel_count; i++)
        if (nova_kernel_is_linked(&tables->kernels[i]) &&
            nova_elf_segment(&file->elf, tables->kernels[i].code, 1, NOVA_EXECUTE) == NULL)
            return REFUSE(error, "tables-kernel-code",
                          "kernel %u: address %#" PRIx64 " is in no executable segment", i,
                          tables->kernels[i].code);
    return NOVA_OK;
}

static int file_compare_names(const void *a, const void *b)
{
    return strcmp(((const nova_symbol *)a)->name, ((const nova_symbol *)b)->name);
}

/* The symbol of a name, of symbols in the order of their names; NULL when there is none. */
static const nova_symbol *file_find_symbol(const nova_symbol *symbols, size_t count,
                                           const char *name)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(symbols[middle].name, name);
        if (order == 0)
            return &symbols[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* The code of a kernel begins where the symbol of that name is: an address inside of a function
 * would run from its middle. Blocks of an older Nova are not held to it. */
static nova_status file_check_entries(nova_file *file, const nova_tables *tables, nova_error *error)
{
    size_t count = file->dynamic.symbol_count;
    if (tables->interfaces == NULL || file->adopted)
        return NOVA_OK;
    nova_symbol *symbols = nova_arena_take(&file->arena, count, sizeof *symbols);
    if (symbols == NULL)
        return nova_file_out_of_memory(error);
    if (count > 0)
        memcpy(symbols, file->dynamic.symbols, count * sizeof *symbols);
    qsort(symbols, count, sizeof *symbols, file_compare_names);
    for (uint32_t i = 0; i < tables->header->kernel_count; i++) {
        const nova_kernel_record *kernel = &tables->kernels[i];
        if (!nova_kernel_is_linked(kernel))
            continue;
        const char *name = tables->strings + kernel->symbol;
        const nova_symbol *symbol = file_find_symbol(symbols, count, name);
        if (symbol == NULL || symbol->vaddr != kernel->code)
            return REFUSE(error, "tables-kernel-code",
                          "kernel %u: address %#" PRIx64 " is not where %.80s is", i, kernel->code,
                          name);
    }
    return NOVA_OK;
}

/* The kernels of a block, or of one of its regions. */
static nova_status file_check_kernels(nova_file *file, const nova_tables *tables, int64_t version,
                                      nova_error *error)
{
    nova_status status = file_check_code(file, tables, error);
    if (status == NOVA_OK && version >= CHECKED_VERSION && tables->interfaces == NULL)
        status = REFUSE(error, "tables-magic", "the block has no interfaces, as in old formats");
    return status == NOVA_OK ? file_check_entries(file, tables, error) : status;
}

static int64_t *file_sizes_of(nova_file *file, const nova_tensor_info *tensors, size_t count)
{
    int64_t *sizes = nova_arena_take(&file->arena, count, sizeof *sizes);
    for (size_t i = 0; sizes != NULL && i < count; i++)
        sizes[i] = tensors[i].nbytes;
    return sizes;
}

static unsigned char *file_donated_of(nova_file *file)
{
    size_t count = file->manifest.argument_count;
    unsigned char *donated = nova_arena_take(&file->arena, count, 1);
    for (size_t i = 0; donated != NULL && i < count; i++)
        donated[i] = file->manifest.arguments[i].donated != 0;
    return donated;
}

/* The extents of the next of `count` tensors; `at` counts those before. */
static bool file_matches_extents(const nova_symbolic *symbolic, const nova_tensor_info *tensors,
                                 size_t count, uint32_t *at)
{
    for (size_t i = 0; i < count; i++)
        for (int32_t k = 0; k < tensors[i].rank; k++, (*at)++)
            if (*at >= symbolic->header->extent_count ||
                (symbolic->extents[*at] >= 0 && symbolic->extents[*at] != tensors[i].shape[k]))
                return false;
    return true;
}

/* Checks what is around the tables of a variant with symbolic sizes: *block becomes the tables. */
static nova_status file_check_symbolic(nova_file *file, nova_variant *variant, const char **block,
                                       size_t *size, nova_error *error)
{
    const nova_manifest *manifest = &file->manifest;
    nova_symbolic *symbolic = &variant->symbolic;
    nova_status status = nova_symbolic_check(*block, *size, symbolic, error);
    if (status != NOVA_OK)
        return status;
    uint32_t at = 0;
    if (!file_matches_extents(symbolic, manifest->arguments, manifest->argument_count, &at) ||
        at != symbolic->header->argument_extents ||
        !file_matches_extents(symbolic, manifest->outputs, manifest->output_count, &at) ||
        at != symbolic->header->extent_count)
        return REFUSE(error, "symbolic-extent", "the extents are not those of the signature");
    *block = symbolic->tables;
    *size = (size_t)symbolic->header->tables_size;
    return NOVA_OK;
}

/* Checks the kernels of tables and of their regions. */
static nova_status file_check_all_kernels(nova_file *file, const nova_tables *tables,
                                          nova_error *error)
{
    nova_status status = file_check_kernels(file, tables, file->manifest.version, error);
    for (uint32_t k = 0; status == NOVA_OK && k < nova_tables_region_count(tables); k++) {
        nova_tables region;
        nova_tables_region(tables, k, &region);
        status = file_check_kernels(file, &region, file->manifest.version, error);
    }
    return status;
}

/* The arguments or outputs with the extents for `values`, those of all expressions; `at` counts the
 * extents before them. In the arena. */
static int64_t *file_sizes_for(nova_file *file, const nova_symbolic *symbolic,
                               const int64_t *values, const nova_tensor_info *tensors, size_t count,
                               size_t *at)
{
    int64_t *sizes = nova_arena_take(&file->arena, count + 1, sizeof *sizes);
    for (size_t i = 0; sizes != NULL && i < count; i++) {
        uint64_t size = (uint64_t)tensors[i].element_size;
        for (int32_t k = 0; k < tensors[i].rank; k++, (*at)++) {
            int64_t extent = symbolic->extents[*at];
            extent = extent >= 0 ? extent : values[~extent];
            if (extent < 0 || __builtin_mul_overflow(size, (uint64_t)extent, &size) ||
                size > INT64_MAX)
                return NULL;
        }
        sizes[i] = (int64_t)size;
    }
    return sizes;
}

/* Checks the sizes that have code of their own, before their tables. */
static nova_status file_check_specialized(const nova_variant *variant, nova_error *error)
{
    const nova_specialized *specialized = &variant->specialized;
    const nova_symbolic *symbolic = &variant->symbolic;
    uint32_t count = specialized->header->dim_count;
    if (count != symbolic->header->dim_count)
        return REFUSE(error, "specialized-dim", "combinations of %u sizes, and %u dims", count,
                      symbolic->header->dim_count);
    for (uint32_t i = 0; i < specialized->header->count; i++)
        for (uint32_t k = 0; k < count; k++) {
            int64_t size = specialized->sizes[(size_t)i * count + k];
            if (size < symbolic->dims[k].min || size > symbolic->dims[k].max)
                return REFUSE(error, "specialized-dim",
                              "combination %u has the size %" PRId64 ", out of bounds", i, size);
        }
    return NOVA_OK;
}

/* Checks the tables of combination `number` of the sizes of a variant. */
static nova_status file_check_combination(nova_file *file, const nova_variant *variant,
                                          uint32_t number, const nova_tables_limits *limits,
                                          nova_error *error)
{
    const nova_symbolic *symbolic = &variant->symbolic;
    const nova_manifest *manifest = &file->manifest;
    const int64_t *dims =
        variant->specialized.sizes + (size_t)number * variant->specialized.header->dim_count;
    int64_t *values = nova_arena_take(
        &file->arena, UINT64_C(1) + symbolic->header->expression_count, sizeof *values);
    if (values == NULL)
        return nova_file_out_of_memory(error);
    nova_status status = nova_symbolic_evaluate(symbolic, dims, values, error);
    if (status != NOVA_OK)
        return REFUSE(error, "specialized-dim", "combination %u has sizes that overflow", number);
    nova_tables_limits sized = *limits;
    size_t at = 0, size;
    sized.argument_nbytes =
        file_sizes_for(file, symbolic, values, manifest->arguments, manifest->argument_count, &at);
    sized.output_nbytes = sized.argument_nbytes == NULL
                              ? NULL
                              : file_sizes_for(file, symbolic, values, manifest->outputs,
                                               manifest->output_count, &at);
    if (sized.output_nbytes == NULL)
        return REFUSE(error, "specialized-dim", "combination %u has sizes that overflow", number);
    nova_tables tables;
    const void *block = nova_specialized_tables(&variant->specialized, number, &size);
    status = nova_tables_check(block, size, &sized, &tables, error);
    return status == NOVA_OK ? file_check_all_kernels(file, &tables, error) : status;
}

nova_status nova_file_check_variants(nova_file *file, nova_error *error)
{
    nova_manifest *manifest = &file->manifest;
    const nova_section *tables = nova_elf_section(&file->elf, ".nova.tables");
    const nova_section *constants = nova_elf_section(&file->elf, ".nova.const");
    nova_tables_limits limits = {
        .argument_count = manifest->argument_count,
        .output_count = manifest->output_count,
        .argument_nbytes = file_sizes_of(file, manifest->arguments, manifest->argument_count),
        .output_nbytes = file_sizes_of(file, manifest->outputs, manifest->output_count),
        .argument_donated = file_donated_of(file),
    };
    if (limits.argument_nbytes == NULL || limits.output_nbytes == NULL ||
        limits.argument_donated == NULL)
        return nova_file_out_of_memory(error);
    for (size_t i = 0; i < manifest->variant_count; i++) {
        nova_variant *variant = &manifest->variants[i];
        const nova_range *block = &manifest->tables[i], *range = &manifest->constants[i];
        variant->constants_size = limits.constants_size = range->size;
        variant->constants_vaddr = range->size > 0 ? constants->vaddr + range->offset : 0;
        const char *data = (const char *)file->bytes.data + tables->offset + block->offset;
        size_t size = (size_t)block->size;
        nova_status status = NOVA_OK;
        variant->symbolic.header = NULL;
        variant->specialized.header = NULL;
        if (nova_specialized_matches(data, size)) {
            status = nova_specialized_check(data, size, &variant->specialized, error);
            if (status != NOVA_OK)
                return status;
            size = (size_t)variant->specialized.header->symbolic_size;
            data += variant->specialized.header->symbolic_offset;
            if (!nova_symbolic_matches(data, size))
                return REFUSE(error, "specialized-size", "there are no symbolic tables");
        }
        if (nova_symbolic_matches(data, size))
            status = file_check_symbolic(file, variant, &data, &size, error);
        const nova_specialized_header *specialized = variant->specialized.header;
        if (status == NOVA_OK && specialized != NULL)
            status = file_check_specialized(variant, error);
        if (status == NOVA_OK)
            status = nova_tables_check(data, size, &limits, &variant->tables, error);
        if (status == NOVA_OK)
            status = file_check_all_kernels(file, &variant->tables, error);
        for (uint32_t k = 0; status == NOVA_OK && specialized != NULL && k < specialized->count;
             k++)
            status = file_check_combination(file, variant, k, &limits, error);
        if (status != NOVA_OK)
            return status;
    }
    return NOVA_OK;
}
