#include "nova/file.h"

#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "loader/reader.h"

/* From this version on, tables have the interfaces of their kernels. */
enum { MOST_MANIFEST = 64 << 20, CHECKED_VERSION = 4 };

struct nova_file {
    nova_bytes bytes;
    nova_copy copy; /* of the bytes, if this file owns them */
    bool adopted;
    nova_arena arena;
    nova_elf elf;
    nova_seal seal;
    nova_dynamic dynamic;
    nova_manifest manifest;
};

static nova_status file_out_of_memory(nova_error *error)
{
    return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the file");
}

/* --- checking them ---------------------------------------------------------------------------- */

static uint64_t file_section_size(const nova_file *file, const char *name)
{
    const nova_section *section = nova_elf_section(&file->elf, name);
    return section != NULL ? section->size : 0;
}

static nova_status file_read_manifest(nova_file *file, nova_error *error)
{
    const nova_section *section = nova_elf_section(&file->elf, ".nova.manifest");
    const nova_section *device = nova_elf_section(&file->elf, ".nova.device");
    nova_manifest_limits limits = {
        .machine = file->elf.machine,
        .tables_size = file_section_size(file, ".nova.tables"),
        .constants_size = file_section_size(file, ".nova.const"),
        .weights_size = file_section_size(file, ".nova.weights"),
    };
    if (device != NULL) {
        limits.device_size = device->size;
        limits.device = file->bytes.data + device->offset;
    }
    if (section->size > MOST_MANIFEST)
        return REFUSE(error, "manifest-size", "%" PRIu64 " bytes are too many", section->size);
    return nova_manifest_read(file->bytes.data + section->offset, (size_t)section->size, &limits,
                              &file->arena, &file->manifest, error);
}

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
        return file_out_of_memory(error);
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

static nova_status file_check_variants(nova_file *file, nova_error *error)
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
        return file_out_of_memory(error);
    for (size_t i = 0; i < manifest->variant_count; i++) {
        nova_variant *variant = &manifest->variants[i];
        const nova_range *block = &manifest->tables[i], *range = &manifest->constants[i];
        variant->constants_size = limits.constants_size = range->size;
        variant->constants_vaddr = range->size > 0 ? constants->vaddr + range->offset : 0;
        const char *data = (const char *)file->bytes.data + tables->offset + block->offset;
        size_t size = (size_t)block->size;
        nova_status status = NOVA_OK;
        variant->symbolic.header = NULL;
        if (nova_symbolic_matches(data, size))
            status = file_check_symbolic(file, variant, &data, &size, error);
        if (status == NOVA_OK)
            status = nova_tables_check(data, size, &limits, &variant->tables, error);
        if (status == NOVA_OK)
            status = file_check_kernels(file, &variant->tables, manifest->version, error);
        for (uint32_t k = 0; status == NOVA_OK && k < nova_tables_region_count(&variant->tables);
             k++) {
            nova_tables region;
            nova_tables_region(&variant->tables, k, &region);
            status = file_check_kernels(file, &region, manifest->version, error);
        }
        if (status != NOVA_OK)
            return status;
    }
    return NOVA_OK;
}

/* In the order of docs/nova-format.md. */
static nova_status file_check(nova_file *file, nova_error *error)
{
    nova_status status = nova_elf_read(file->bytes, &file->elf, error);
    if (status == NOVA_OK)
        status = file_read_manifest(file, error);
    if (status == NOVA_OK)
        status = nova_seal_check(file->bytes, &file->elf, &file->seal, error);
    if (status == NOVA_OK)
        status = nova_dynamic_check(file->bytes, &file->elf, &file->arena, &file->dynamic, error);
    if (status == NOVA_OK)
        status = file_check_variants(file, error);
    return status;
}

/* --- opening and closing ---------------------------------------------------------------------- */

static nova_status file_finish(nova_file *created, nova_status status, nova_file **file)
{
    if (status == NOVA_OK) {
        *file = created;
        return status;
    }
    int number = errno;
    nova_file_close(created);
    errno = number;
    return status;
}

static nova_file *file_make(void)
{
    nova_file *created = calloc(1, sizeof *created);
    if (created != NULL)
        created->copy.fd = -1;
    return created;
}

nova_status nova_file_open(const char *path, nova_file **file, nova_error *error)
{
    if (path == NULL || file == NULL)
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "", "a pointer is missing");
    nova_file *created = file_make();
    if (created == NULL)
        return file_out_of_memory(error);
    nova_status status = nova_copy_path(&created->copy, path, error);
    created->bytes = (nova_bytes){created->copy.data, created->copy.size};
    if (status == NOVA_OK)
        status = file_check(created, error);
    return file_finish(created, status, file);
}

nova_status nova_file_view(const void *data, size_t size, nova_file **file, nova_error *error)
{
    if (data == NULL || file == NULL)
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "", "a pointer is missing");
    if (size == 0)
        return REFUSE(error, "open-empty", "the file is empty");
    nova_file *created = file_make();
    if (created == NULL)
        return file_out_of_memory(error);
    created->bytes = (nova_bytes){data, size};
    nova_status status = NOVA_OK;
    if ((uintptr_t)data % 8 != 0) { /* the tables are used in place */
        status = nova_copy_memory(&created->copy, data, size, error);
        created->bytes.data = created->copy.data;
    }
    if (status == NOVA_OK)
        status = file_check(created, error);
    return file_finish(created, status, file);
}

/* Addresses equal file offsets: a mapped file is like its bytes, without those that are not
 * loaded. */
static void file_add_mapped(nova_file *file, const char *name, const void *data, size_t size)
{
    uint64_t offset = (uintptr_t)data - (uintptr_t)file->bytes.data;
    if (size > 0)
        file->elf.sections[file->elf.section_count++] = (nova_section){.name = name,
                                                                       .vaddr = offset,
                                                                       .offset = offset,
                                                                       .size = size,
                                                                       .flags = SHF_ALLOC,
                                                                       .kind = SHT_PROGBITS};
}

nova_status nova_file_adopt(const nova_mapped *mapped, nova_file **file, nova_error *error)
{
    if (mapped == NULL || mapped->start == NULL || file == NULL)
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "", "a pointer is missing");
    if (mapped->manifest_size == 0 || mapped->tables_size == 0)
        return REFUSE(error, "section-missing", "the mapped file has no manifest or no tables");
    nova_file *created = file_make();
    if (created == NULL)
        return file_out_of_memory(error);
    created->adopted = true;
    /* The dynamic linker has mapped the headers, which are all that is read by offset. */
    created->bytes = (nova_bytes){mapped->start, INT64_MAX};
    nova_status status = nova_elf_read_segments(created->bytes, &created->elf, error);
    file_add_mapped(created, ".nova.manifest", mapped->manifest, mapped->manifest_size);
    file_add_mapped(created, ".nova.tables", mapped->tables, mapped->tables_size);
    file_add_mapped(created, ".nova.const", mapped->constants, mapped->constants_size);
    file_add_mapped(created, ".nova.weights", mapped->weights, mapped->weights_size);
    file_add_mapped(created, ".nova.device", mapped->device, mapped->device_size);
    if (status == NOVA_OK)
        status = file_read_manifest(created, error);
    if (status == NOVA_OK)
        status = file_check_variants(created, error);
    return file_finish(created, status, file);
}

void nova_file_close(nova_file *file)
{
    if (file == NULL)
        return;
    nova_arena_free(&file->arena);
    nova_copy_free(&file->copy);
    free(file);
}

/* --- looking ---------------------------------------------------------------------------------- */

size_t nova_file_argument_count(const nova_file *file)
{
    return file->manifest.argument_count;
}

size_t nova_file_output_count(const nova_file *file)
{
    return file->manifest.output_count;
}

const nova_tensor_info *nova_file_arguments(const nova_file *file)
{
    return file->manifest.arguments;
}

const nova_tensor_info *nova_file_outputs(const nova_file *file)
{
    return file->manifest.outputs;
}

size_t nova_file_variant_count(const nova_file *file)
{
    return file->manifest.variant_count;
}

const nova_variant *nova_file_variants(const nova_file *file)
{
    return file->manifest.variants;
}

const nova_device_code *nova_file_devices(const nova_file *file, size_t *count)
{
    *count = file->manifest.device_count;
    return file->manifest.devices;
}

bool nova_variant_is_device(const nova_variant *variant)
{
    return strncmp(variant->target, "cuda:", 5) == 0;
}

size_t nova_file_device_variant(const nova_file *file, const nova_device_code *image)
{
    size_t i = 0;
    while (i < file->manifest.variant_count &&
           (!nova_variant_is_device(&file->manifest.variants[i]) ||
            strcmp(file->manifest.variants[i].cpu, image->arch) != 0))
        i++;
    return i;
}

const void *nova_file_data(const nova_file *file, size_t *size)
{
    *size = file->adopted ? 0 : (size_t)file->bytes.size;
    return file->adopted ? NULL : file->bytes.data;
}

const nova_section *nova_file_sections(const nova_file *file, size_t *count)
{
    *count = file->elf.section_count;
    return file->elf.sections;
}

const nova_symbol *nova_file_symbols(const nova_file *file, size_t *count)
{
    *count = file->dynamic.symbol_count;
    return file->dynamic.symbols;
}

const char *const *nova_file_imports(const nova_file *file, size_t *count)
{
    *count = file->dynamic.import_count;
    return file->dynamic.imports;
}

bool nova_file_section(const nova_file *file, const char *name, const void **data, size_t *size)
{
    const nova_section *section = nova_elf_section(&file->elf, name);
    if (section == NULL || section->kind == SHT_NOBITS)
        return false;
    *data = file->bytes.data + section->offset;
    *size = (size_t)section->size;
    return true;
}

uint64_t nova_file_section_vaddr(const nova_file *file, const char *name)
{
    const nova_section *section = nova_elf_section(&file->elf, name);
    return section != NULL ? section->vaddr : 0;
}

const unsigned char *nova_file_digest(const nova_file *file)
{
    return file->seal.digest;
}

const unsigned char *nova_file_signature(const nova_file *file)
{
    return file->seal.signature;
}

/* --- choosing and loading --------------------------------------------------------------------- */

static const char *file_machine_name(uint16_t machine)
{
    return machine == EM_X86_64 ? "x86_64" : "aarch64";
}

static void file_name_missing(const nova_file *file, const nova_cpu *cpu, size_t variant,
                              char *text, size_t size)
{
    *text = '\0';
    if (nova_variant_is_device(&file->manifest.variants[variant])) {
        (void)snprintf(text, size, "a GPU of %s", file->manifest.variants[variant].cpu);
        return;
    }
    if (file->elf.machine != nova_cpu_machine()) {
        (void)snprintf(text, size, "a CPU of %s", file_machine_name(file->elf.machine));
        return;
    }
    const nova_variant *row = &file->manifest.variants[variant];
    size_t used = 0;
    for (size_t i = 0; i < row->feature_count && used < size; i++)
        if (!nova_cpu_has(cpu, row->features[i]))
            used += (size_t)snprintf(text + used, size - used, used > 0 ? ", %s" : "%s",
                                     row->features[i]);
}

void nova_file_missing(const nova_file *file, size_t variant, char *text, size_t size)
{
    nova_cpu cpu;
    if (size == 0)
        return;
    nova_cpu_read(&cpu);
    file_name_missing(file, &cpu, variant, text, size);
}

nova_status nova_file_choose(const nova_file *file, size_t *variant, nova_error *error)
{
    nova_cpu cpu;
    char missing[sizeof error->text], reasons[sizeof error->text];
    size_t used = 0;
    nova_cpu_read(&cpu);
    for (size_t i = 0; i < file->manifest.variant_count; i++) {
        file_name_missing(file, &cpu, i, missing, sizeof missing);
        if (*missing == '\0') {
            *variant = i;
            return NOVA_OK;
        }
        if (used < sizeof reasons)
            used +=
                (size_t)snprintf(reasons + used, sizeof reasons - used, "%s%s needs %s",
                                 used > 0 ? "; " : "", file->manifest.variants[i].target, missing);
    }
    return nova_fail(error, NOVA_UNSUPPORTED, "cpu-features", "%s", reasons);
}

nova_status nova_file_load(const nova_file *file, size_t variant, nova_image **image,
                           nova_error *error)
{
    if (file == NULL || image == NULL || variant >= file->manifest.variant_count)
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "", "there is no such variant");
    char missing[sizeof error->text / 2] = "";
    /* What a device variant has for the host is for every CPU of the architecture. */
    if (!nova_variant_is_device(&file->manifest.variants[variant]) ||
        file->elf.machine != nova_cpu_machine())
        nova_file_missing(file, variant, missing, sizeof missing);
    if (*missing != '\0')
        return nova_fail(error, NOVA_UNSUPPORTED, "cpu-features", "%s needs %s",
                         file->manifest.variants[variant].target, missing);
    const nova_elf *elf = &file->elf;
    const nova_image_source source = {
        .data = file->bytes.data,
        .size = (size_t)file->bytes.size,
        .fd = file->copy.fd,
        .segments = elf->segments,
        .segment_count = elf->segment_count,
        .relocations = file->dynamic.relocations,
        .relocation_count = file->dynamic.relocation_count,
        .relro_vaddr = elf->relro_vaddr,
        .relro_size = elf->relro_size,
    };
    nova_status status =
        file->adopted ? nova_image_adopt(file->bytes.data, elf->segments, elf->segment_count, image)
                      : nova_image_create_from(&source, image);
    if (status != NOVA_OK)
        return nova_fail(error, status, "", "the code cannot be mapped: %s",
                         nova_status_text(status));
    return NOVA_OK;
}
