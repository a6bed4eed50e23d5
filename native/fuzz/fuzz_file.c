/* A libFuzzer target over the reader of .nova files: no input may crash it, hang it or make it read
 * outside of the input. Accepted inputs are walked to the last byte and mapped, never run.
 *
 * Every input is read twice: as it is, and with corrected hashes, which lets mutations pass the
 * seal. README.md describes how to build and run it. */
#include <elf.h>
#include <stdlib.h>

#include "loader/reader.h"
#include "nova/program.h"

enum { MOST_BOUNDS = 2 * NOVA_MAX_SECTIONS + 2, RECORD = 48, ENDING = 56 };

/* --- walking ---------------------------------------------------------------------------------- */

/* Reads every byte, so that a sanitizer sees those that are not there. */
static unsigned sum(const void *data, size_t size)
{
    unsigned total = 0;
    for (size_t i = 0; i < size; i++)
        total += ((const unsigned char *)data)[i];
    return total;
}

static unsigned walk_tensors(const nova_tensor_info *tensors, size_t count)
{
    unsigned total = 0;
    for (size_t i = 0; i < count; i++)
        total += sum(tensors[i].name, strlen(tensors[i].name)) +
                 sum(tensors[i].shape, (size_t)tensors[i].rank * sizeof *tensors[i].shape);
    return total;
}

static unsigned walk_variant(const nova_file *file, size_t index)
{
    const nova_variant *variant = &nova_file_variants(file)[index];
    const nova_tables *tables = &variant->tables;
    unsigned total = sum(tables->header, tables->header->size) + sum(variant->target, 1);
    for (size_t i = 0; i < variant->feature_count; i++)
        total += sum(variant->features[i], strlen(variant->features[i]));
    for (uint32_t i = 0; i < tables->header->kernel_count; i++)
        total += sum(tables->strings + tables->kernels[i].location,
                     strlen(tables->strings + tables->kernels[i].location));
    char missing[64];
    nova_file_missing(file, index, missing, sizeof missing);
    nova_image *image;
    nova_program *program;
    nova_error error;
    if (nova_file_load(file, index, &image, &error) != NOVA_OK)
        return total;
    if (nova_program_create(tables, image, variant->constants_vaddr, &program, &error) == NOVA_OK) {
        total += (unsigned)nova_program_workspace_size(program);
        nova_program_destroy(program);
    }
    nova_image_destroy(image);
    return total;
}

static unsigned walk(const nova_file *file)
{
    size_t count, size;
    const void *data = nova_file_data(file, &size);
    unsigned total = sum(data, size) + sum(nova_file_digest(file), 32);
    if (nova_file_signature(file) != NULL)
        total += sum(nova_file_signature(file), 96);
    const nova_section *sections = nova_file_sections(file, &count);
    for (size_t i = 0; i < count; i++)
        if (nova_file_section(file, sections[i].name, &data, &size))
            total += sum(data, size);
    const nova_symbol *symbols = nova_file_symbols(file, &count);
    for (size_t i = 0; i < count; i++)
        total += sum(symbols[i].name, strlen(symbols[i].name));
    const char *const *imports = nova_file_imports(file, &count);
    for (size_t i = 0; i < count; i++)
        total += sum(imports[i], strlen(imports[i]));
    total += walk_tensors(nova_file_arguments(file), nova_file_argument_count(file));
    total += walk_tensors(nova_file_outputs(file), nova_file_output_count(file));
    for (size_t i = 0; i < nova_file_variant_count(file); i++)
        total += walk_variant(file, i);
    return total;
}

static void read_input(const uint8_t *data, size_t size)
{
    nova_file *file;
    nova_error error;
    nova_status status = nova_file_view(data, size, &file, &error);
    if (status == NOVA_OK) {
        volatile unsigned total = walk(file);
        (void)total;
        nova_file_close(file);
    } else if (error.status != status || error.text[0] == '\0' ||
               (status == NOVA_REFUSED && error.check[0] == '\0')) {
        abort(); /* a refusal has a text */
    }
}

/* --- sealing again ---------------------------------------------------------------------------- */

static size_t body_size(const uint8_t *data, size_t size)
{
    uint64_t sizes[2];
    if (size < ENDING || memcmp(data + size - 8, "NOVAEND2", 8) != 0)
        return size;
    memcpy(sizes, data + size - 24, sizeof sizes);
    size_t length = size - ENDING;
    if (sizes[0] > length || sizes[1] > length - sizes[0])
        return size;
    return length - (size_t)(sizes[0] + sizes[1]);
}

static int compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

/* Region boundaries: the bounds of the sections with Nova's names. */
static size_t find_bounds(const uint8_t *data, size_t size, uint64_t *bounds)
{
    size_t count = 0;
    bounds[count++] = 0;
    bounds[count++] = size;
    Elf64_Ehdr header;
    Elf64_Shdr names, row;
    if (size < sizeof header)
        return count;
    memcpy(&header, data, sizeof header);
    uint64_t table = header.e_shoff;
    if (!nova_fits(table, (uint64_t)header.e_shnum * sizeof row, size) ||
        header.e_shstrndx >= header.e_shnum || header.e_shnum > NOVA_MAX_SECTIONS)
        return count;
    memcpy(&names, data + table + header.e_shstrndx * sizeof row, sizeof names);
    for (size_t i = 0; i < header.e_shnum; i++) {
        memcpy(&row, data + table + i * sizeof row, sizeof row);
        uint64_t name = names.sh_offset + row.sh_name;
        if (nova_fits(name, 6, size) && memcmp(data + name, ".nova.", 6) == 0 &&
            nova_fits(row.sh_offset, row.sh_size, size)) {
            bounds[count++] = row.sh_offset;
            bounds[count++] = row.sh_offset + row.sh_size;
        }
    }
    qsort(bounds, count, sizeof *bounds, compare);
    return count;
}

static void read_sealed(const uint8_t *data, size_t size)
{
    uint64_t bounds[MOST_BOUNDS];
    size_t body = body_size(data, size), count = find_bounds(data, body, bounds), end = body;
    uint8_t *file = malloc(body + MOST_BOUNDS * RECORD + ENDING);
    if (file == NULL)
        return;
    memcpy(file, data, body);
    nova_sha256_blocks *blocks = nova_sha256_choose();
    for (size_t i = 0; i + 1 < count; i++) {
        uint64_t region[2] = {bounds[i], bounds[i + 1] - bounds[i]};
        if (region[1] == 0)
            continue;
        memcpy(file + end, region, sizeof region);
        nova_sha256(blocks, file + region[0], (size_t)region[1], file + end + 16);
        end += RECORD;
    }
    uint64_t sizes[2] = {end - body, 0};
    nova_sha256(blocks, file + body, end - body, file + end);
    memcpy(file + end + 32, sizes, sizeof sizes);
    memcpy(file + end + 48, "NOVAEND2", 8);
    end += ENDING;
    uint8_t *exact = malloc(end); /* so that a sanitizer knows where it ends */
    if (exact != NULL) {
        memcpy(exact, file, end);
        read_input(exact, end);
    }
    free(exact);
    free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    read_input(data, size);
    read_sealed(data, size);
    return 0;
}
