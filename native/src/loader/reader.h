/* Shared declarations of the reader; included by the files of this folder only.
 *
 * file.c calls the others in the order of docs/nova-format.md. Each takes all bytes of the file,
 * never reads outside of them, and takes linear time. */
#ifndef NOVA_LOADER_READER_H
#define NOVA_LOADER_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "nova/error.h"
#include "nova/file.h"
#include "nova/image.h"
#include "nova/tables.h"

/* Refuses a file that fails a check; the text is formatted as by printf. */
#define REFUSE(error, check, ...) nova_fail((error), NOVA_REFUSED, (check), __VA_ARGS__)

typedef struct nova_bytes {
    const unsigned char *data;
    uint64_t size;
} nova_bytes;

/* Whether [offset, offset + size) is inside [0, limit). */
static inline bool nova_fits(uint64_t offset, uint64_t size, uint64_t limit)
{
    return offset <= limit && size <= limit - offset;
}

/* --- arena.c: an arena allocator -------------------------------------------------------------- */

typedef struct nova_arena {
    struct nova_chunk *last;
} nova_arena;

/* Zeroed and 8-byte aligned; NULL: out of memory. A size of 0 returns a valid pointer. */
void *nova_arena_take(nova_arena *arena, uint64_t count, size_t size);
void nova_arena_free(nova_arena *arena);

/* --- sealed_copy.c: immutable bytes ----------------------------------------------------------- */

typedef struct nova_copy {
    void *data; /* NULL: not copied */
    uint64_t size;
    int fd; /* the memfd that `data` is mapped from, or -1 */
} nova_copy;

/* Both expect {.fd = -1}; nova_copy_free is due also after a failure. A system error sets errno. */
nova_status nova_copy_path(nova_copy *copy, const char *path, nova_error *error);
nova_status nova_copy_memory(nova_copy *copy, const void *data, size_t size, nova_error *error);
void nova_copy_free(nova_copy *copy);

/* --- elf.c: headers, segments and sections ---------------------------------------------------- */

enum { NOVA_MAX_SEGMENTS = 32, NOVA_MAX_SECTIONS = 64 };

typedef struct nova_elf {
    uint16_t machine; /* EM_X86_64 or EM_AARCH64 */
    size_t segment_count;
    size_t section_count;
    uint64_t dynamic_offset, dynamic_size;
    uint64_t relro_vaddr, relro_size;
    uint64_t end; /* of all parts that the headers describe: the seal follows */
    nova_segment segments[NOVA_MAX_SEGMENTS];
    nova_section sections[NOVA_MAX_SECTIONS]; /* without the empty first one */
} nova_elf;

nova_status nova_elf_read(nova_bytes file, nova_elf *elf, nova_error *error);

/* Only the segments: for a file that is mapped, of which no more is in memory. */
nova_status nova_elf_read_segments(nova_bytes file, nova_elf *elf, nova_error *error);

/* NULL when there is none. */
const nova_section *nova_elf_section(const nova_elf *elf, const char *name);

/* The segment that holds [vaddr, vaddr + size) in bytes of the file, with all of `flags`; or
 * NULL. */
const nova_segment *nova_elf_segment(const nova_elf *elf, uint64_t vaddr, uint64_t size,
                                     uint32_t flags);

/* --- elf_dynamic.c: input of the dynamic linker ----------------------------------------------- */

typedef struct nova_dynamic {
    const nova_symbol *symbols;
    const char *const *imports;
    const nova_relocation *relocations; /* without those of imports, which stay unbound */
    size_t symbol_count, import_count, relocation_count;
} nova_dynamic;

nova_status nova_dynamic_check(nova_bytes file, const nova_elf *elf, nova_arena *arena,
                               nova_dynamic *dynamic, nova_error *error);

/* --- elf_imports.c: functions of the C library that a file may name --------------------------- */

bool nova_import_allowed(const char *name);

/* The i-th allowed name, sorted; NULL after the last. */
const char *nova_import_name(size_t i);

/* --- seal.c ----------------------------------------------------------------------------------- */

typedef struct nova_seal {
    const unsigned char *digest;
    const unsigned char *signature; /* NULL when there is none */
} nova_seal;

nova_status nova_seal_check(nova_bytes file, const nova_elf *elf, nova_seal *seal,
                            nova_error *error);

/* --- sha256.c --------------------------------------------------------------------------------- */

typedef void nova_sha256_blocks(uint32_t state[8], const unsigned char *data, size_t count);

/* The fastest implementation for this CPU, and the portable one. */
nova_sha256_blocks *nova_sha256_choose(void);
extern nova_sha256_blocks nova_sha256_portable;

void nova_sha256(nova_sha256_blocks *blocks, const void *data, size_t size,
                 unsigned char digest[32]);

/* --- manifest.c ------------------------------------------------------------------------------- */

/* A part of a section. */
typedef struct nova_range {
    uint64_t offset, size;
} nova_range;

typedef struct nova_manifest {
    nova_tensor_info *arguments;
    nova_tensor_info *outputs;
    nova_variant *variants; /* tables and constants are not filled */
    nova_range *tables;     /* one a variant; the same for the constants */
    nova_range *constants;
    nova_device_code *devices;
    size_t argument_count, output_count, variant_count, device_count;
    int64_t version;
} nova_manifest;

/* Upper bounds of ranges in the manifest, and values that it must match. */
typedef struct nova_manifest_limits {
    uint16_t machine;
    uint64_t tables_size, constants_size, weights_size, device_size;
    const void *device; /* contents of the section of that size */
} nova_manifest_limits;

/* Everything in *manifest is in the arena. */
nova_status nova_manifest_read(const void *text, size_t size, const nova_manifest_limits *limits,
                               nova_arena *arena, nova_manifest *manifest, nova_error *error);

/* --- cpu_features.c --------------------------------------------------------------------------- */

/* This machine's ELF number; 0 when it is neither x86-64 nor AArch64. */
uint16_t nova_cpu_machine(void);

typedef struct nova_cpu {
    uint32_t words[8]; /* of cpuid, or of the auxiliary vector */
    /* register state that the system saves across context switches */
    bool saves_ymm, saves_zmm, saves_tiles;
    unsigned char level; /* features beyond it are not there: see nova_cpu_limit */
    bool asks_for_tiles; /* they need a permission of the process, requested on first use */
} nova_cpu;

/* Limits this process to a level: 1 for the baseline of the architecture, 2 to 4 for x86-64-v2 to
 * -v4, 5 for all features of the processor, 0 for the level in NOVA_CPU_LEVEL. */
void nova_cpu_limit(unsigned level);

/* Asks the processor: costs microseconds in a virtual machine, so ask once for many questions. */
void nova_cpu_read(nova_cpu *cpu);

/* Whether code may use a feature. For AMX, requests the permission of the system. */
bool nova_cpu_has(const nova_cpu *cpu, const char *feature);

/* The i-th feature of this architecture that Nova supports; NULL after the last. */
const char *nova_cpu_feature(size_t i);

/* --- file.c, file_variants.c ------------------------------------------------------------------ */

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

nova_status nova_file_out_of_memory(nova_error *error);

/* Checks the tables of all variants and fills them in; the manifest and the symbols are read. */
nova_status nova_file_check_variants(nova_file *file, nova_error *error);

#endif
