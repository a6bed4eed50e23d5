/* Programs with symbolic sizes that also have code of their own for some sizes.
 *
 * A block begins with a nova_specialized_header and has a block of symbolic tables
 * (nova/symbolic.h), and for each combination of sizes a block of ordinary tables (nova/tables.h),
 * whose kernels are compiled for these sizes. All share the constants of the variant.
 * docs/nova-format.md describes the fields. */
#ifndef NOVA_SPECIALIZED_H
#define NOVA_SPECIALIZED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nova/error.h"
#include "nova/status.h"

#define NOVA_SPECIALIZED_MAGIC "NOVASPC1"

typedef struct nova_specialized_header {
    char magic[8];
    uint64_t size; /* of the block */
    uint64_t symbolic_offset;
    uint64_t symbolic_size;
    uint32_t count;     /* combinations of sizes */
    uint32_t dim_count; /* that of the symbolic tables */
    uint64_t reserved;  /* 0 */
} nova_specialized_header;

typedef struct nova_specialized_block {
    uint64_t offset; /* 8-byte aligned */
    uint64_t size;
} nova_specialized_block;

/* A checked block: pointers into it, valid as long as it is. */
typedef struct nova_specialized {
    const nova_specialized_header *header; /* NULL: there is no code for certain sizes */
    const nova_specialized_block *blocks;
    const int64_t *sizes; /* of the dims, combination by combination */
} nova_specialized;

/* Whether a block has the magic number. Pure. */
bool nova_specialized_matches(const void *block, size_t size);

/* Checks the layout, not the tables inside; fills *specialized with pointers into `block` (8-byte
 * aligned, owned by the caller, must not change). Thread-safe. */
nova_status nova_specialized_check(const void *block, size_t size, nova_specialized *specialized,
                                   nova_error *error);

/* The block of tables of combination `number`. Pure. */
const void *nova_specialized_tables(const nova_specialized *specialized, uint32_t number,
                                    size_t *size);

/* The combination that is `dims`; the count if there is none. Pure. */
uint32_t nova_specialized_find(const nova_specialized *specialized, const int64_t *dims);

#endif
