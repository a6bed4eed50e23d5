/* The tables of a persistent kernel and the plan of a program; included by the files of this folder
 * only. persistent_plan.c makes those of a program without loops and branches when it is loaded,
 * persistent_rows.c those of any other for the pointers of a run; persistent_run.c launches the
 * kernel. */
#ifndef NOVA_GPU_PERSISTENT_H
#define NOVA_GPU_PERSISTENT_H

#include "gpu/control/device_control.h"

/* As the kernel reads them. */
typedef struct {
    uint32_t kernel;      /* the number of its tasks: the case of the kernel's switch */
    uint32_t task_count;  /* blocks of the launch; targets of a decision */
    uint32_t first_block; /* resident block that runs task 0; the others follow it */
    uint32_t first_argument;
    uint32_t first_wait;
    /* With lists: waits for counters of this repetition, and in the upper half for those of the one
     * before it; and the counter of the row. Else its numbers of waits for rows of this repetition,
     * and of the one before it; in a program with decisions of this segment, and for the decision
     * before it. */
    uint32_t wait_count, previous_count;
    uint32_t begin; /* its first task, of a launch that is cut into rows */
} persistent_row;

/* The kernel of a decision; its first block is the size of its selector. */
#define PERSISTENT_DECISION UINT32_MAX
/* A row whose tasks do nothing: it joins those that it waits for. */
#define PERSISTENT_JOIN (UINT32_MAX - 1)
/* The last row of a repetition whose data comes from a ring: it tells the host. */
#define PERSISTENT_SIGNAL (UINT32_MAX - 2)
/* The counter of rows that no other block waits for. */
#define PERSISTENT_NO_COUNTER UINT32_MAX
/* Not one block: a counter with several tasks. */
#define PERSISTENT_SEVERAL UINT32_MAX

typedef struct {
    uint32_t row, count; /* tasks of that row or counter which must have run */
} persistent_wait;

/* An argument of a launch: a pointer, or the value of a size. In each repetition of the program it
 * moves on by the stride. */
typedef struct {
    uint64_t value, stride;
} persistent_argument;

/* Words of the places of blocks: the number of multiprocessors, or 0 where blocks keep their
 * numbers; three unused ones; arrivals of each multiprocessor; and one for each block. */
enum { PERSISTENT_PLACES = 4 + 512 };

/* Words of pinned memory: run number n is stopped when word n % PERSISTENT_STOPS is n. */
enum { PERSISTENT_STOPS = 64 };

/* A ring, as the kernel reads it: slots less 1, the addresses of the words of the host, and the
 * numbers of moves; then those of the inputs, and those of the results. */
typedef struct {
    uint64_t mask, filled, done;
    uint32_t input_count, result_count;
} persistent_ring_head;

typedef struct {
    uint64_t from, to, size, unused; /* of the first slot; those of the others follow */
} persistent_move;

typedef struct nova_persistent_ring nova_persistent_ring;

/* The tables of a kernel, and their parts in device memory. */
typedef struct {
    uint32_t row_count, wait_count, argument_count, segment_count;
    uint32_t counter_count, list_count; /* counters of rows; words of the lists of all blocks */
    uint32_t *lists;                    /* NULL without lists */
    persistent_row *rows;
    persistent_wait *waits;
    persistent_argument *arguments; /* NULL without loops: the operands of the program */
    uint32_t *launches;             /* of each row, in the program's tables */
    nova_device_range *ranges;      /* the memory of all rows, merged; NULL without loops */
    uint32_t range_count;
    /* bytes of the tables on the device, and where their parts begin; rows are first */
    uint64_t size, waits_at, arguments_at, counters_at, trace_at, places_at, visits_at, lists_at;
    uint64_t ring_at, ring_size; /* without a ring of size 0 */
} persistent_tables;

struct nova_persistent_plan {
    uint32_t kernel, blocks; /* number in the tables; of the resident launch */
    uint32_t processors;     /* on which these blocks are */
    bool has_flow;           /* whether its tables have decisions: each binding has its own */
    bool has_lists;          /* whether blocks have lists of rows, and launches bands */
    bool takes_ring;         /* whether the kernel has a parameter for a ring */
    bool has_chains;         /* whether rows that no other block waits for have no counter */
    uint32_t waited_count;   /* counters that the next repetition may wait for: the first ones */
    nova_driver *driver;
    nova_persistent_ring *ring; /* NULL: all data is there at the launch */
    uint32_t *stops;            /* words of the stop flag; NULL: the kernel does not read one */
    uint32_t last_run;          /* the number of the last run; atomic */
    uint32_t task_count;        /* kernels that are tasks; the built-in tasks follow them */
    uint32_t *task_numbers;     /* of the kernels of the program, then of its regions */
    persistent_tables tables;
};

/* Whether a launch writes an operand. */
static inline bool persistent_is_written(const nova_launch_record *launch,
                                         const nova_buffer *buffer, uint32_t operand)
{
    return operand >= launch->reads && buffer->kind != NOVA_CONSTANT;
}

/* Sets the offsets of tables whose counts are known. */
void persistent_lay_out(persistent_tables *tables, uint32_t blocks);
void persistent_free_tables(persistent_tables *tables);

/* persistent_rows.c: the tables of a program with loops or branches, for the pointers of a run. */
nova_status persistent_make_rows(nova_device_run *r, persistent_tables *tables);

/* --- persistent_ring.c ------------------------------------------------------------------------ */

/* The ring of a program with a slot for each of its repetitions; on an error, too, what
 * persistent_ring_free takes. */
nova_status persistent_ring_create(nova_device_program *program, nova_persistent_ring **ring,
                                   nova_error *error);
void persistent_ring_free(nova_persistent_ring *ring);

/* The bytes of the ring as the kernel reads it, and these bytes for a run. */
uint64_t persistent_ring_size(const nova_persistent_ring *ring);
void persistent_ring_fill(nova_persistent_ring *ring, const nova_device_run *r, void *image);

/* No slot is filled yet; right before the launch. */
nova_status persistent_ring_start(nova_persistent_ring *ring, nova_device_run *r);

/* The memory that the kernel accesses for it; as many ranges as the second says, which takes
 * NULL. */
uint32_t persistent_ring_ranges(const nova_persistent_ring *ring, nova_device_range *ranges);
uint32_t persistent_ring_range_count(const nova_persistent_ring *ring);

/* --- persistent_order.c: what rows wait for --------------------------------------------------- */

/* The dependences of rows on earlier ones: direct ones, and all. */
typedef struct {
    uint32_t row_count, words; /* 64-bit words of a set of rows */
    uint64_t *direct, *before; /* a set for each row */
} persistent_order;

/* Without any dependence; false: no memory. Both functions leave what persistent_order_free takes.
 */
bool persistent_order_create(persistent_order *order, uint32_t row_count);
void persistent_order_free(persistent_order *order);

void persistent_order_add(persistent_order *order, uint32_t row, uint32_t awaited);
bool persistent_order_has(const persistent_order *order, uint32_t row, uint32_t awaited);

/* Keeps the direct dependences that no other one implies: a row that has run has waited for its
 * own. */
void persistent_order_reduce(persistent_order *order);

/* --- persistent_bands.c: tasks of launches by what they wait for ------------------------------ */

/* Adjacent tasks of a launch, which add to one counter. */
typedef struct {
    uint32_t row, begin, count, counter; /* the row is a number in the program's launches */
} persistent_band;

typedef struct {
    /* Launch by launch; then one of no launch with one task and a counter, without dependences. */
    persistent_band *bands;
    uint32_t *totals; /* tasks that add to each counter */
    /* The block that runs the only task of a counter; whether another one follows it there, and
     * whether another block waits for it. */
    uint32_t *only_block;
    bool *is_followed, *is_awaited;
    uint32_t band_count, counter_count;
    persistent_order order; /* of counters */
} persistent_bands;

/* The bands of a program without loops; without `has_tiles` one for each launch. False: no memory.
 * Both leave what persistent_bands_free takes. */
bool persistent_bands_create(const nova_device_program *program, bool has_tiles,
                             persistent_bands *bands);
void persistent_bands_free(persistent_bands *bands);

#endif
