/* Programs: checked tables bound to mapped code and constants, ready to run. */
#ifndef NOVA_PROGRAM_H
#define NOVA_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nova/error.h"
#include "nova/image.h"
#include "nova/scheduler.h"
#include "nova/status.h"
#include "nova/tables.h"

/* A compiled kernel: base pointers in the order of its launch, tiles [begin, end) of its grid. */
typedef void (*nova_kernel)(void *const *buffers, int64_t begin, int64_t end);

/* With NOVA_REPORTS: 0, or an error number that ends the run with NOVA_TASK_REPORTED. */
typedef int32_t (*nova_reporting_kernel)(void *const *buffers, int64_t begin, int64_t end);

/* One with NOVA_TAKES_SCRATCH. */
typedef void (*nova_scratch_kernel)(void *const *buffers, int64_t begin, int64_t end,
                                    void *scratch);

/* Programs that take less than this many nanoseconds, by the estimate of their tables, run inline
 * on the calling thread, with no synchronization at all. */
#define NOVA_INLINE_COST UINT64_C(40000)

typedef struct nova_program nova_program;

/* Binds tables that nova_tables_check has filled to `image`: every kernel must be in executable,
 * every constant in readable memory. `constants` is the vaddr where the constants of the variant
 * begin (any value if it has none). The memory of `tables` is used in place: tables and image must
 * outlive the program; the caller owns *program. Thread-safe. */
nova_status nova_program_create(const nova_tables *tables, const nova_image *image,
                                uint64_t constants, nova_program **program, nova_error *error);

/* Sets the values of symbolic sizes that kernels load, which are copied: before the first run of a
 * program whose tables have a buffer of them. */
nova_status nova_program_set_sizes(nova_program *program, const int64_t *values, size_t count,
                                   nova_error *error);

/* NULL is fine. Not during a run. */
void nova_program_destroy(nova_program *program);

/* The tables it was created from. Thread-safe. */
const nova_tables *nova_program_tables(const nova_program *program);

/* Bytes of workspace that a run needs: the planned ones and its bookkeeping. Thread-safe. */
uint64_t nova_program_workspace_size(const nova_program *program);

/* Whether it runs inline; a plain run of it cannot be stopped. Thread-safe. */
bool nova_program_is_inline(const nova_program *program);

/* The graph of its tasks for the current number of threads, created at first use and owned by the
 * program; a chain of one task per launch (or one empty task) if nothing could run concurrently.
 * Thread-safe. */
nova_status nova_program_graph(nova_program *program, const nova_graph **graph);

/* The same for `workers` threads; 0: the current number. */
nova_status nova_program_graph_for(nova_program *program, unsigned workers,
                                   const nova_graph **graph);

/* Describes a task of that graph: kernel, tiles and the user's source line, in at most `size`
 * bytes. Thread-safe. */
void nova_program_describe(nova_program *program, uint32_t task, char *text, size_t size);

/* Runs once: inline, or as tasks on the pool (nova/scheduler.h) including the caller. The caller
 * owns every pointer: a non-NULL one for each argument and output, at least element-aligned, and a
 * 64-byte aligned workspace of nova_program_workspace_size() bytes (NULL when that is 0). *error
 * (NULL is fine) has the reason of a failure, and the task. Thread-safe if concurrent runs share
 * neither a workspace nor a written array. */
nova_status nova_program_run(nova_program *program, void *const *arguments, void *const *outputs,
                             void *workspace, nova_error *error);

/* How a run is carried out. All zero: as nova_program_run does it. */
typedef struct nova_program_options {
    unsigned workers;   /* at most this many threads; 0: those of the pool */
    nova_policy policy; /* the order of ready tasks */
    /* called with `owner` by the calling thread, about every NOVA_POLL_NS between two tasks; a
     * result other than NOVA_OK stops the run; NULL: none */
    nova_poll poll;
    void *owner;
} nova_program_options;

/* The same as `options` say. A program that runs inline is not stopped. */
nova_status nova_program_run_by(nova_program *program, void *const *arguments, void *const *outputs,
                                void *workspace, const nova_program_options *options,
                                nova_error *error);

#endif
