/* .nova files: opened, checked in the order of docs/nova-format.md, and only then mapped. */
#ifndef NOVA_FILE_H
#define NOVA_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nova/error.h"
#include "nova/image.h"
#include "nova/status.h"
#include "nova/specialized.h"
#include "nova/symbolic.h"
#include "nova/tables.h"
#include "nova/tensor.h"

typedef struct nova_file nova_file;

/* A section of the file; `kind` and `flags` are ELF's sh_type and sh_flags. */
typedef struct nova_section {
    const char *name;
    uint64_t vaddr; /* 0 when it is not loaded */
    uint64_t offset;
    uint64_t size;
    uint64_t flags;
    uint32_t kind;
    uint32_t reserved;
} nova_section;

typedef struct nova_symbol {
    const char *name;
    uint64_t vaddr;
} nova_symbol;

enum { NOVA_PTX = 0, NOVA_CUBIN = 1 };

/* Code for a device; `arch` is, for example, "sm_90a". PTX is text without a NUL at its end. */
typedef struct nova_device_code {
    const char *arch;
    const void *data;
    uint64_t size;
    uint32_t kind;
    uint32_t reserved;
} nova_device_code;

typedef struct nova_variant {
    const char *target;
    const char *cpu;
    const char *const *features; /* LLVM's names */
    size_t feature_count;
    nova_tables tables;           /* checked; for representative sizes if there are symbolic ones */
    nova_symbolic symbolic;       /* checked; its header is NULL for a program with static sizes */
    nova_specialized specialized; /* checked; its header is NULL without code for some sizes */
    uint64_t constants_vaddr;     /* virtual address of its constants; 0 when it has none */
    uint64_t constants_size;
} nova_variant;

/* Opens `path`, which may be a link to a file but no pipe or device, copies it into sealed memory
 * and checks all of it but the signature and the CPU; the caller owns *file. Thread-safe. */
nova_status nova_file_open(const char *path, nova_file **file, nova_error *error);

/* The same checks for bytes in memory, which must stay unchanged until nova_file_close. */
nova_status nova_file_view(const void *data, size_t size, nova_file **file, nova_error *error);

/* A file that the dynamic linker has mapped: where its parts lie in this process. */
typedef struct nova_mapped {
    const void *start; /* its ELF header: vaddr 0 */
    const void *manifest;
    size_t manifest_size;
    const void *tables;
    size_t tables_size;
    const void *constants; /* of all variants */
    size_t constants_size;
    const void *weights;
    size_t weights_size;
    const void *device;
    size_t device_size;
} nova_mapped;

/* A file over mapped parts, which stay mapped until nova_file_close. Checks the manifest and the
 * tables; there is no seal to check, and code of this file runs already. Thread-safe. */
nova_status nova_file_adopt(const nova_mapped *mapped, nova_file **file, nova_error *error);

/* NULL is fine. Images that were loaded stay valid. */
void nova_file_close(nova_file *file);

/* The functions below are thread-safe; the file owns the memory that they return. */
size_t nova_file_argument_count(const nova_file *file);
size_t nova_file_output_count(const nova_file *file);
const nova_tensor_info *nova_file_arguments(const nova_file *file);
const nova_tensor_info *nova_file_outputs(const nova_file *file);
size_t nova_file_variant_count(const nova_file *file);
const nova_variant *nova_file_variants(const nova_file *file); /* best first */

const nova_device_code *nova_file_devices(const nova_file *file, size_t *count);

/* Whether a variant runs on a device: its code is in the device images for its `cpu`. Pure. */
bool nova_variant_is_device(const nova_variant *variant);

/* Which of `count` images a device of compute capability major.minor takes: a cubin for exactly
 * this one, else the PTX for the newest architecture that it can translate; `count` when it takes
 * none. Code for "sm_90a" runs on 9.0 alone. Pure. */
size_t nova_device_choose(const nova_device_code *images, size_t count, int major, int minor);

/* The variant of an image: of the same architecture. Every device variant has one; an image without
 * a variant returns nova_file_variant_count(). */
size_t nova_file_device_variant(const nova_file *file, const nova_device_code *image);

/* All bytes of the file; NULL and 0 for an adopted one. */
const void *nova_file_data(const nova_file *file, size_t *size);

const nova_section *nova_file_sections(const nova_file *file, size_t *count);
const nova_symbol *nova_file_symbols(const nova_file *file, size_t *count); /* exported */
const char *const *nova_file_imports(const nova_file *file, size_t *count); /* libc's functions */

/* A section's bytes; false when there is none of that name in the file. */
bool nova_file_section(const nova_file *file, const char *name, const void **data, size_t *size);

/* Where a section is loaded; 0 when it is not. */
uint64_t nova_file_section_vaddr(const nova_file *file, const char *name);

/* SHA-256 of the seal's records (32), and the signature block (NULL when unsigned). */
const unsigned char *nova_file_digest(const nova_file *file);
const unsigned char *nova_file_signature(const nova_file *file); /* public key 32, signature 64 */

/* Names the features of a variant that this CPU lacks, separated by ", ", cut to `size`; "" when
 * it has them all and is of the right architecture. */
void nova_file_missing(const nova_file *file, size_t variant, char *text, size_t size);

/* The first variant that runs on this CPU, or NOVA_UNSUPPORTED with every variant's reason. */
nova_status nova_file_choose(const nova_file *file, size_t *variant, nova_error *error);

/* Maps the code and data of all variants, with relative relocations applied; refuses a variant that
 * does not run here. Imports stay unbound: only the runtime inside the file has any, for programs
 * that dlopen it. Large read-only data of a file from nova_file_open is shared, not copied; an
 * adopted file returns an image over its mapping. The caller owns *image, which may outlive a file
 * that was not adopted. */
nova_status nova_file_load(const nova_file *file, size_t variant, nova_image **image,
                           nova_error *error);

#endif
