/* A program, as program.c makes it and execution.c runs it. */
#ifndef NOVA_EXEC_PROGRAM_H
#define NOVA_EXEC_PROGRAM_H

#include <pthread.h>
#include <stdatomic.h>

#include "nova/execution.h"
#include "nova/program.h"
#include "nova/task_plan.h"
#include "exec/callee.h"
#include "exec/control.h"
#include "exec/loop_threads.h"

/* A kernel as a run needs it. */
typedef struct {
    union {
        nova_kernel code;
        nova_reporting_kernel reporting;
        nova_scratch_kernel with_scratch;
    };
    int64_t grid;
    const nova_control_record *control; /* NULL: it is code */
    nova_callee *callee;                /* of a call; owned */
    bool reports;
    bool takes_scratch;
} nova_bound_kernel;

/* The tasks of a program for a number of threads, and their graph. */
typedef struct nova_prepared {
    nova_graph *graph;
    nova_task_plan tasks;
    bool is_fixed;    /* the tasks belong to the tables */
    unsigned workers; /* threads that the tasks were cut for; 0: any, they are fixed */
    unsigned planned; /* threads that are worth it, were there enough */
    struct nova_prepared *next;
} nova_prepared;

enum { NOVA_IDLE_EXECUTIONS = 16 };

struct nova_program {
    nova_tables tables; /* pointers into the caller's block */
    char *constants;    /* NULL when no buffer is one */
    bool has_arguments; /* whether any buffer is one; the same for outputs */
    bool has_outputs;
    bool is_inline;
    /* The programs of the regions, by the number of their blocks: owned by the program that is not
     * a region itself. */
    nova_program **regions;
    bool is_region;
    /* Of a region, for each output below the count, whether a buffer is that output. */
    unsigned char *has_output;
    uint64_t output_count;
    /* Of an inline run, in the workspace, after the planned bytes: */
    uint64_t pointers_offset;
    uint64_t scratch_offset;
    int64_t *sizes; /* the values of symbolic sizes; NULL until they are set */
    uint64_t sizes_size;
    uint64_t workspace_size;
    _Atomic(nova_prepared *) prepared; /* a list, one for each number of threads so far */
    /* The execution released last: one atomic exchange, no lock. */
    _Atomic(nova_execution *) warm;
    pthread_mutex_t mutex; /* guards the list of the others, and the threads of loops */
    nova_execution *idle;
    unsigned idle_count;
    nova_loop_threads loop_threads; /* of a region: as the last loop left it */
    nova_bound_kernel kernels[];
};

/* Nanoseconds of `part` of a kernel (1: all of it), roughly. Pure. */
double nova_kernel_cost(const nova_kernel_record *kernel, double part);

/* Frees a list of them. NULL is fine. */
void nova_prepared_free(nova_prepared *prepared);

/* Frees an execution that is not in use; NULL is fine. */
void nova_execution_destroy(nova_execution *execution);

/* The tasks of a program for `workers` threads (0: those of the pool), created at first use.
 * Thread-safe. */
nova_status nova_program_prepare(nova_program *program, unsigned workers,
                                 const nova_prepared **prepared);

/* Describes a task: kernel, tiles and the user's source line, in at most `size` bytes. */
void nova_prepared_describe(const nova_program *program, const nova_prepared *prepared,
                            uint32_t task, char *text, size_t size);

/* Whether the pointers of a run are there. Pure. */
bool nova_program_accepts(const nova_program *program, void *const *arguments, void *const *outputs,
                          const void *workspace);

/* Operands of a program that runs inline as a region, at most. */
enum { NOVA_STACK_OPERANDS = 128 };

/* Runs a region that is inline, in order, on this thread. `scratch` is that of the thread. */
nova_status nova_program_run_region(const nova_program *program, void *const *arguments,
                                    void *const *outputs, void *workspace, void *scratch,
                                    const nova_watch *watch);

/* Writes the pointer of every operand of the tables. Pure. */
void nova_program_bind(const nova_program *program, void *const *arguments, void *const *outputs,
                       void *workspace, void **pointers);

#endif
