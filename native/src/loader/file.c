#include "nova/file.h"

#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "loader/reader.h"

enum { MOST_MANIFEST = 64 << 20 };

nova_status nova_file_out_of_memory(nova_error *error)
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
        status = nova_file_check_variants(file, error);
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
        return nova_file_out_of_memory(error);
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
        return nova_file_out_of_memory(error);
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
        return nova_file_out_of_memory(error);
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
        status = nova_file_check_variants(created, error);
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
