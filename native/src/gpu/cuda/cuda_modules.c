/* Code of a program: PTX or a cubin, which is one module of the driver, or a bundle of cubins,
 * which is one module each. The driver compiles PTX when it loads a module, and one module at a
 * time, in whatever thread: ptxas compiles the parts of large code before
 * (nova/artifact/cubins/assembled.py). A bundle names the module of each kernel, because a lookup
 * in another module is an error of the driver, which tools such as compute-sanitizer report. */
#include <stdlib.h>
#include <string.h>

#include "gpu/cuda/cuda_state.h"
#include "nova/file.h"

/* A bundle: this header, the rows of modules and of kernels, names that end with a NUL, cubins. All
 * offsets are from its start. */
typedef struct {
    char magic[8];
    uint32_t module_count, kernel_count;
} bundle_header;

typedef struct {
    uint64_t offset, size;
} bundle_module;

typedef struct {
    uint32_t module, name;
} bundle_kernel;

static const char MAGIC[8] = {'N', 'O', 'V', 'A', 'C', 'U', 'B', '1'};

enum { MOST_MODULES = 4096, MOST_KERNELS = 1 << 20 };

/* A kernel of code in several modules; `name` is in `names`. */
typedef struct {
    const char *name;
    uint32_t module;
} kernel_row;

typedef struct {
    uint32_t count, kernel_count;
    void **modules;
    kernel_row *kernels; /* NULL if the code is not a bundle */
    char *names;
} cuda_code;

static int load_module(cuda *c, const void *image, char *log, size_t log_size, void **module)
{
    int options[] = {JIT_ERROR_LOG, JIT_ERROR_LOG_SIZE};
    void *values[] = {log, (void *)(uintptr_t)log_size};
    int result = c->module_load(module, image, 2, options, values);
    log[log_size - 1] = '\0';
    return result;
}

/* Load PTX or one cubin. */
static int load_single(cuda *c, const void *image, size_t size, char *log, size_t log_size,
                       cuda_code *code)
{
    char *text = malloc(size + 1);
    if (text == NULL)
        return OUT_OF_MEMORY;
    memcpy(text, image, size);
    text[size] = '\0'; /* the driver reads PTX up to the NUL */
    int result = load_module(c, text, log, log_size, &code->modules[0]);
    free(text);
    return result;
}

/* --- bundles ---------------------------------------------------------------------------------- */

static bool is_bundle(const void *image, size_t size)
{
    return size >= sizeof(bundle_header) && memcmp(image, MAGIC, sizeof MAGIC) == 0;
}

/* The offset of the names; 0 for a bundle whose tables are not within it. */
static size_t names_offset(const bundle_header *header, size_t size)
{
    if (header->module_count == 0 || header->module_count > MOST_MODULES ||
        header->kernel_count > MOST_KERNELS)
        return 0;
    size_t offset = sizeof *header + header->module_count * sizeof(bundle_module) +
                    header->kernel_count * sizeof(bundle_kernel);
    return offset < size ? offset : 0;
}

/* Read the kernels of a bundle; INVALID_IMAGE for rows that refer to nothing. */
static int read_kernels(const char *image, size_t size, const bundle_header *header,
                        cuda_code *code)
{
    bundle_module first;
    memcpy(&first, image + sizeof *header, sizeof first);
    size_t names = names_offset(header, size), end = first.offset;
    if (end < names || end > size)
        return INVALID_IMAGE;
    const char *rows =
        image + sizeof *header + (size_t)header->module_count * sizeof(bundle_module);
    code->names = malloc(end - names + 1);
    code->kernels = calloc((size_t)header->kernel_count + 1, sizeof *code->kernels);
    if (code->names == NULL || code->kernels == NULL)
        return OUT_OF_MEMORY;
    memcpy(code->names, image + names, end - names);
    for (uint32_t i = 0; i < header->kernel_count; i++) {
        bundle_kernel row;
        memcpy(&row, rows + i * sizeof row, sizeof row);
        if (row.module >= header->module_count || row.name < names || row.name >= end ||
            memchr(image + row.name, '\0', end - row.name) == NULL)
            return INVALID_IMAGE;
        code->kernels[i] = (kernel_row){code->names + (row.name - names), row.module};
    }
    code->kernel_count = header->kernel_count;
    return 0;
}

/* Load the cubins of a bundle. */
static int load_bundle(cuda *c, const char *image, size_t size, char *log, size_t log_size,
                       cuda_code *code)
{
    bundle_header header;
    memcpy(&header, image, sizeof header);
    int result = read_kernels(image, size, &header, code);
    for (uint32_t i = 0; i < header.module_count && result == 0; i++) {
        bundle_module row;
        memcpy(&row, image + sizeof header + i * sizeof row, sizeof row);
        if (row.offset > size || row.size > size - row.offset || row.size == 0)
            return INVALID_IMAGE;
        result = load_module(c, image + row.offset, log, log_size, &code->modules[i]);
    }
    return result;
}

/* --- the table of the driver ------------------------------------------------------------------ */

int nova_cuda_module_load(nova_driver *driver, const void *image, size_t size, uint32_t kind,
                          char *log, size_t log_size, void **module)
{
    cuda *c = cuda_context_of(driver);
    *log = '\0';
    bundle_header header = {.module_count = 1};
    bool bundled = kind == NOVA_CUBIN && is_bundle(image, size);
    if (bundled)
        memcpy(&header, image, sizeof header);
    if (bundled && names_offset(&header, size) == 0)
        return INVALID_IMAGE;
    cuda_code *code = calloc(1, sizeof *code);
    if (code == NULL)
        return OUT_OF_MEMORY;
    code->modules = calloc(header.module_count, sizeof *code->modules);
    code->count = code->modules == NULL ? 0 : header.module_count;
    int result = OUT_OF_MEMORY;
    if (code->modules != NULL)
        result = bundled ? load_bundle(c, image, size, log, log_size, code)
                         : load_single(c, image, size, log, log_size, code);
    if (result == 0)
        *module = code;
    else
        nova_cuda_module_unload(driver, code);
    return result;
}

void nova_cuda_module_unload(nova_driver *driver, void *module)
{
    cuda_code *code = module;
    for (uint32_t i = 0; i < code->count; i++)
        if (code->modules[i] != NULL)
            (void)cuda_context_of(driver)->module_unload(code->modules[i]);
    free(code->modules);
    free(code->kernels);
    free(code->names);
    free(code);
}

int nova_cuda_function_find(nova_driver *driver, void *module, const char *name, void **function)
{
    const cuda_code *code = module;
    uint32_t number = 0;
    if (code->kernels != NULL) {
        uint32_t row = 0;
        while (row < code->kernel_count && strcmp(code->kernels[row].name, name) != 0)
            row++;
        if (row == code->kernel_count)
            return NOT_FOUND;
        number = code->kernels[row].module;
    }
    return cuda_context_of(driver)->module_function(function, code->modules[number], name);
}
