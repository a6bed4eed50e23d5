/* .nova files: opened, checked in the order of docs/nova-format.md, and only then mapped. */
#ifndef NOVA_FILE_H
#define NOVA_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nova/error.h"
#include "nova/image.h"
#include "nova/status.h"
#include "nova/tables.h"

typedef struct nova_file nova_file;

enum { NOVA_INPUT = 0, NOVA_PARAM = 1, NOVA_RESULT = 2 };

/* One argument or output; everything is owned by the file. */
typedef struct nova_tensor_info {
    const char *name;
    const char *dtype; /* "f32", ... */
    const int64_t *shape;
    int32_t rank;
    uint32_t role;
    int64_t element_size;
    int64_t nbytes;
    int64_t alias;   /* outputs: the donated argument that this output is, or -1 */
    uint32_t donated;
    uint32_t reserved;
    uint64_t weight; /* params: offset of the value in .nova.weights, or UINT64_MAX */
} nova_tensor_info;

typedef struct nova_variant {
    const char *target;
    const char *const *features; /* LLVM's names */
    size_t feature_count;
    nova_tables tables; /* checked */
    uint64_t constants_vaddr; /* virtual address of its constants; 0 when it has none */
    uint64_t constants_size;
} nova_variant;

/* Opens `path` without following a link at its end, copies it into sealed memory and checks all of
 * it but the signature and the CPU; the caller owns *file. Thread-safe. */
nova_status nova_file_open(const char *path, nova_file **file, nova_error *error);

/* The same checks for bytes in memory, which the caller keeps unchanged until nova_file_close. */
nova_status nova_file_view(const void *data, size_t size, nova_file **file, nova_error *error);

/* NULL is fine. Images that were loaded stay valid. */
void nova_file_close(nova_file *file);

/* The functions below are thread-safe; what they return is owned by the file. */
size_t nova_file_argument_count(const nova_file *file);
size_t nova_file_output_count(const nova_file *file);
const nova_tensor_info *nova_file_arguments(const nova_file *file);
const nova_tensor_info *nova_file_outputs(const nova_file *file);
size_t nova_file_variant_count(const nova_file *file);
const nova_variant *nova_file_variants(const nova_file *file); /* best first */

/* A section's bytes; false when there is none of that name. */
bool nova_file_section(const nova_file *file, const char *name, const void **data, size_t *size);

/* Where a section is loaded; 0 when it is not. */
uint64_t nova_file_section_vaddr(const nova_file *file, const char *name);

/* SHA-256 of the seal's records, and the signature block (NULL when unsigned). */
const unsigned char *nova_file_digest(const nova_file *file);
const unsigned char *nova_file_signature(const nova_file *file); /* public key 32, signature 64 */

/* Names the features of a variant that this CPU lacks, separated by ", ", cut to `size`; "" when
 * it has them all and is of the right architecture. */
void nova_file_missing(const nova_file *file, size_t variant, char *text, size_t size);

/* The first variant that runs here, or NOVA_UNSUPPORTED with every variant's reason. */
nova_status nova_file_choose(const nova_file *file, size_t *variant, nova_error *error);

/* Maps the code and data of all variants, with relative relocations applied; refuses a variant that
 * does not run here. The caller owns *image, which may outlive the file. */
nova_status nova_file_load(const nova_file *file, size_t variant, nova_image **image,
                           nova_error *error);

#endif
