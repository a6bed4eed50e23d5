/* Programs with symbolic sizes: the tables of one program for all sizes of its dims.
 *
 * A block begins with a nova_symbolic_header and has dims, expressions over them in postfix order,
 * and a block of tables (nova/tables.h) for representative sizes. Its patches name the numbers of
 * the tables that depend on sizes: `nova_symbolic_instantiate` evaluates the expressions for the
 * sizes of a call and returns the tables of an ordinary program, which is checked like one from a
 * file. docs/nova-format.md describes the fields. */
#ifndef NOVA_SYMBOLIC_H
#define NOVA_SYMBOLIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nova/error.h"
#include "nova/status.h"
#include "nova/tables.h"

#define NOVA_SYMBOLIC_MAGIC "NOVASYM1"

typedef struct nova_symbolic_header {
    char magic[8];
    uint64_t size;          /* of the block */
    uint64_t tables_offset; /* of the tables in it, 8-byte aligned */
    uint64_t tables_size;
    uint32_t dim_count;
    uint32_t expression_count;
    uint32_t op_count;
    uint32_t patch_count;
    uint32_t extent_count; /* axes of all arguments, then of all outputs */
    uint32_t value_count;  /* kernels load the values of the first expressions, this many */
    uint32_t string_size;
    uint32_t argument_extents; /* how many of the extents are those of arguments */
} nova_symbolic_header;

typedef struct nova_dim {
    int64_t min, max; /* inclusive */
    uint32_t name;    /* offset of a string */
    uint32_t reserved;
} nova_dim;

/* Ops [first, first + count); `text` is for people. */
typedef struct nova_expression {
    uint32_t first, count;
    uint32_t text;
    uint32_t reserved;
} nova_expression;

/* Each but the first two takes two values from the stack and leaves one. */
enum {
    NOVA_PUSH = 0, /* `value` */
    NOVA_PUSH_DIM = 1,
    NOVA_ADD = 2,
    NOVA_MULTIPLY = 3,
    NOVA_FLOOR_DIVIDE = 4,
    NOVA_MAXIMUM = 5,
    NOVA_MINIMUM = 6
};

typedef struct nova_size_op {
    uint32_t code;
    uint32_t dim; /* of NOVA_PUSH_DIM */
    int64_t value;
} nova_size_op;

/* The 8 bytes at `offset` of the tables are the value of an expression; of NOVA_PATCH_SHORT, the 4
 * bytes are. */
enum { NOVA_PATCH_LONG = 0, NOVA_PATCH_SHORT = 1 };

typedef struct nova_patch {
    uint64_t offset; /* a multiple of 8 */
    uint32_t expression;
    uint32_t width; /* NOVA_PATCH_LONG or NOVA_PATCH_SHORT */
} nova_patch;

/* A checked block: pointers into it, valid as long as it is. */
typedef struct nova_symbolic {
    const nova_symbolic_header *header;
    const nova_dim *dims;
    const nova_expression *expressions;
    const nova_size_op *ops;
    const nova_patch *patches;
    const int64_t *extents; /* a size, or ~i for the value of expression i */
    const char *strings;
    const void *tables;
} nova_symbolic;

/* Whether a block has the magic number of a symbolic one. Pure. */
bool nova_symbolic_matches(const void *block, size_t size);

/* Checks all but the tables; fills *symbolic with pointers into `block` (8-byte aligned, owned by
 * the caller, must not change). Thread-safe. */
nova_status nova_symbolic_check(const void *block, size_t size, nova_symbolic *symbolic,
                                nova_error *error);

/* The sizes of the dims from the shapes of all arguments, whose extents follow each other in
 * `extents`; an error names two sizes that contradict each other, or a dim out of bounds.
 * Thread-safe. */
nova_status nova_symbolic_bind(const nova_symbolic *symbolic, const int64_t *extents, int64_t *dims,
                               nova_error *error);

/* The values of all expressions: `values` has room for them. Thread-safe. */
nova_status nova_symbolic_evaluate(const nova_symbolic *symbolic, const int64_t *dims,
                                   int64_t *values, nova_error *error);

/* The tables for sizes, with a workspace that is laid out for them: tables_size bytes, which the
 * caller frees and checks with nova_tables_check. `checked` are the tables in the block, and
 * `values` those of nova_symbolic_evaluate. Thread-safe. */
nova_status nova_symbolic_instantiate(const nova_symbolic *symbolic, const nova_tables *checked,
                                      const int64_t *values, void **tables, nova_error *error);

#endif
