/* Programs: the immutable tables that say which kernels run, in which order, on which buffers. */
#ifndef NOVA_PROGRAM_H
#define NOVA_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

#include "nova/status.h"

/* A compiled kernel: base pointers in the order of its launch, tiles [begin, end) of its grid. */
typedef void (*nova_kernel)(void *const *buffers, int64_t begin, int64_t end);

/* The argument is overwritten by the program. */
enum { NOVA_DONATED = 1 };

enum { NOVA_MAX_RANK = 64 };

/* An argument or an output, dense and in row-major order. */
typedef struct nova_tensor {
    const int64_t *shape; /* `rank` extents, each >= 0 */
    int32_t rank;
    uint32_t flags;       /* NOVA_DONATED or 0; 0 for outputs */
    int64_t element_size; /* bytes, > 0 */
    int64_t nbytes;       /* computed by nova_program_create from the fields above */
    int64_t alias;        /* outputs: the donated argument that this output is, or -1; else -1 */
} nova_tensor;

typedef enum nova_buffer_kind {
    NOVA_ARGUMENT = 0,  /* value: index of the argument */
    NOVA_OUTPUT = 1,    /* value: index of the output */
    NOVA_WORKSPACE = 2, /* value: byte offset in the workspace */
    NOVA_CONSTANT = 3,  /* value: address, valid as long as the program */
} nova_buffer_kind;

typedef struct nova_buffer {
    nova_buffer_kind kind;
    uint64_t value;
} nova_buffer;

typedef struct nova_launch {
    nova_kernel kernel;      /* valid as long as the program */
    int64_t grid;            /* number of tiles; a launch of none does nothing */
    const uint32_t *buffers; /* `buffer_count` indices into the table of buffers */
    size_t buffer_count;
} nova_launch;

typedef struct nova_program_tables {
    const nova_tensor *arguments;
    size_t argument_count;
    const nova_tensor *outputs;
    size_t output_count;
    const nova_buffer *buffers;
    size_t buffer_count;
    const nova_launch *launches;
    size_t launch_count;
    uint64_t workspace_size;
} nova_program_tables;

typedef struct nova_program nova_program;

/* Checks and copies the tables; the caller keeps `tables` and owns *program. Thread-safe. */
nova_status nova_program_create(const nova_program_tables *tables, nova_program **program);

/* Frees the tables, not the code and constants they point at. NULL is fine. Not during a run. */
void nova_program_destroy(nova_program *program);

/* The checked tables, owned by the program and never changed. Thread-safe. */
const nova_program_tables *nova_program_get_tables(const nova_program *program);

/* Bytes of workspace that a run needs: the planned ones and its own bookkeeping. Thread-safe. */
uint64_t nova_program_workspace_size(const nova_program *program);

/* Runs all launches in order. The caller owns every pointer: a non-NULL one for each argument and
 * output, at least element-aligned, and a 64-byte aligned workspace of
 * nova_program_workspace_size() bytes (NULL when that is 0). Thread-safe as long as no two runs
 * share a workspace or anything that is written. */
nova_status nova_program_run(const nova_program *program, void *const *arguments,
                             void *const *outputs, void *workspace);

#endif
