/* The tables of one code variant, in the layout of section .nova.tables of a file.
 *
 * docs/nova-format.md describes the fields. A block is checked once by nova_tables_check and then
 * used in place. */
#ifndef NOVA_TABLES_H
#define NOVA_TABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "nova/error.h"
#include "nova/status.h"

#define NOVA_TABLES_MAGIC "NOVATBL1"

/* Of a block with device kernels: the launch parameters of each kernel are one more array, after
 * the successors; then their tensor maps, if there are any. */
#define NOVA_TABLES_DEVICE_MAGIC "NOVATBL2"

/* The same two with the interfaces of the kernels before the strings. */
#define NOVA_TABLES_CHECKED_MAGIC "NOVATBL3"
#define NOVA_TABLES_CHECKED_DEVICE_MAGIC "NOVATBL4"

/* The same two with the tilings of the kernels before the interfaces, from which the tasks are
 * derived (nova/task_plan.h) unless the block has tasks. */
#define NOVA_TABLES_TILED_MAGIC "NOVATBL5"
#define NOVA_TABLES_TILED_DEVICE_MAGIC "NOVATBL6"

/* The last two where kernels of a device may have tilings and flags, too. Nova writes the second
 * only. */
#define NOVA_TABLES_TASKS_MAGIC "NOVATBL7"
#define NOVA_TABLES_TASKS_DEVICE_MAGIC "NOVATBL8"

/* A block with regions: it contains one of the blocks above for each region, and then that of the
 * program. Regions of the second may update carries in place. */
#define NOVA_CONTAINER_MAGIC "NOVACTL1"
#define NOVA_IN_PLACE_MAGIC "NOVACTL2"

typedef struct nova_tables_header {
    char magic[8];
    uint64_t size; /* of the block */
    uint64_t workspace_size;
    uint64_t work; /* scalar operations of one run */
    uint32_t buffer_count;
    uint32_t kernel_count;
    uint32_t launch_count;
    uint32_t operand_count;
    uint32_t task_count; /* 0: derived from the tilings; without those, the launches run in order */
    uint32_t successor_count;
    uint32_t string_size;
    uint32_t scratch_size; /* bytes that a thread needs for itself while it runs a kernel */
} nova_tables_header;

/* NOVA_SIZES is the buffer of the values of symbolic sizes (nova/symbolic.h). A kernel of a device
 * has 8 bytes of it, at `value`, as a parameter. NOVA_OUTPUT_PART is an intermediate value in the
 * memory of an output, before the output's own value is there. */
enum {
    NOVA_ARGUMENT = 0,
    NOVA_OUTPUT = 1,
    NOVA_WORKSPACE = 2,
    NOVA_CONSTANT = 3,
    NOVA_SIZES = 4,
    NOVA_OUTPUT_PART = 5
};

typedef struct nova_buffer {
    uint32_t kind;
    uint32_t output; /* the index of the output that a NOVA_OUTPUT_PART is in; 0 for other kinds */
    uint64_t value;  /* index (argument, output) or byte offset (the others) */
    uint64_t nbytes;
} nova_buffer;

/* Kernels of the first three types are code in the file. The last three have no code: a launch
 * copies its one buffer from the memory of the device to that of the host, or back; or it is a
 * loop, and the `grid` launches after it run while its one buffer, a byte on the device, is not
 * 0. */
enum {
    NOVA_MATRIX = 0,
    NOVA_VECTOR = 1,
    NOVA_HOST = 2,
    NOVA_DEVICE = 3,
    NOVA_TO_HOST = 4,
    NOVA_TO_DEVICE = 5,
    NOVA_WHILE = 6
};

/* Loops that may be inside of each other. */
enum { NOVA_MOST_LOOPS = 32 };

/* In `core`: the kernel returns an int32_t, where anything but 0 is an error that ends the run. */
enum { NOVA_REPORTS = 0x100 };

/* In `core`: the kernel takes a fourth argument, a tile-local buffer of `scratch_size` bytes,
 * 64-byte aligned, private to the thread. Not together with NOVA_REPORTS. */
enum { NOVA_TAKES_SCRATCH = 0x200 };

/* In `core`: the kernel is a loop or branch. It has no code, and runs regions: see
 * nova_control_record. Without another flag. */
enum { NOVA_CONTROL = 0x400 };

/* In `core` of a kernel of a device: its code has matrix instructions; and it waits by itself for
 * the launches before it (`griddepcontrol.wait` in every thread), so that it may be launched before
 * they have ended. */
enum { NOVA_MATRIX_CORES = 0x800, NOVA_DEPENDENT = 0x1000 };

/* The core type in `core`. */
enum { NOVA_CORE_MASK = 0xff };

typedef struct nova_kernel_record {
    uint64_t code; /* virtual address; 0 for one that is not linked: see nova_kernel_is_linked */
    int64_t grid;  /* tiles; of a loop: launches of its body */
    uint64_t flops;
    uint64_t bytes;
    uint32_t core; /* one of the seven types, and at most one of the first three flags */
    uint32_t name; /* these three: offsets of strings */
    uint32_t symbol;
    uint32_t location;
} nova_kernel_record;

/* Whether a kernel is host code in the file; device code is found by its symbol. */
static inline bool nova_kernel_is_linked(const nova_kernel_record *kernel)
{
    return (kernel->core & NOVA_CORE_MASK) < NOVA_DEVICE && (kernel->core & NOVA_CONTROL) == 0;
}

/* Whether a kernel is code of a device; loops and branches on a device are not. */
static inline bool nova_kernel_is_device(const nova_kernel_record *kernel)
{
    return (kernel->core & (NOVA_CORE_MASK | NOVA_CONTROL)) == NOVA_DEVICE;
}

typedef struct nova_launch_record {
    uint32_t kernel;
    uint32_t first_operand;
    uint32_t operand_count;
    uint32_t reads; /* read-only operands: they precede the others */
} nova_launch_record;

typedef struct nova_task {
    uint32_t launch;
    uint32_t waits; /* tasks that must have finished before */
    int64_t begin;  /* tiles [begin, end) of the launch's kernel */
    int64_t end;
    uint32_t first_successor;
    uint32_t successor_count;
} nova_task;

/* How a kernel of a device is launched; all zero for the others. */
typedef struct nova_device_launch {
    uint32_t grid[3]; /* blocks; 0 in any dimension means an empty launch */
    uint32_t block[3];
    uint32_t shared;           /* bytes of dynamic shared memory */
    uint32_t tensor_map_count; /* parameters after the pointers */
} nova_device_launch;

/* A tensor in one operand of a kernel, as the copy engine (TMA) sees it, with a swizzle of 128
 * bytes. The runtime encodes it with the address of the operand and passes it as a parameter.
 * Dimensions are from the innermost, whose elements are adjacent, to the outermost; unused entries
 * are 0. */
enum { NOVA_MAP_RANK = 5 };

typedef struct nova_tensor_map {
    uint32_t operand; /* of the launch */
    uint32_t element; /* the driver's number of its type: see nova_tensor_map_element_size */
    uint32_t rank;
    uint32_t reserved; /* 0 */
    uint64_t offset;   /* bytes from the start of the operand */
    uint64_t dims[NOVA_MAP_RANK];
    uint64_t strides[NOVA_MAP_RANK - 1]; /* bytes; those of all dimensions but the innermost */
    uint32_t box[NOVA_MAP_RANK];         /* elements that one copy moves */
    uint32_t padding;                    /* 0 */
} nova_tensor_map;

/* Bytes of an element: of i8, f16, f32, bf16 and tf32; 0 for an unknown number. Thread-safe. */
static inline uint32_t nova_tensor_map_element_size(uint32_t element)
{
    enum { UINT8 = 0, FLOAT16 = 6, FLOAT32 = 7, BFLOAT16 = 9, TFLOAT32 = 11 };
    switch (element) {
    case UINT8:
        return 1;
    case FLOAT16:
    case BFLOAT16:
        return 2;
    case FLOAT32:
    case TFLOAT32:
        return 4;
    default:
        return 0;
    }
}

/* Dimensions of a tile grid. */
enum { NOVA_MOST_DIMENSIONS = 16 };

/* The tile grid of a kernel, and the bytes that its tiles touch. Its words: the size of the grid
 * along each dimension, then that of a tile; then for each byte range: operand * 2 + whether it is
 * written, low, high, and a stride for each dimension. At grid point p, a tile touches bytes of the
 * operand within [low, high) + strides . p. Tiles are numbered with the last dimension fastest. */
typedef struct nova_tiling {
    uint32_t first_word;
    uint32_t rank;
    uint32_t range_count; /* ordered by operand and direction */
    /* estimated time that one task should have; on a device 1: each block is a task. 0: the kernel
     * has no tiles */
    uint32_t task_ns;
} nova_tiling;

/* The interface of a kernel, by its symbol: the shapes that its code was compiled for, which cannot
 * be derived from the code. After the rows come the bytes of each operand, u64, kernel by kernel.
 * Copies and loops have none. */
typedef struct nova_interface {
    int64_t grid;
    uint32_t symbol; /* offset of a string: that of the kernel */
    uint32_t reads;
    uint32_t operand_count;
    /* that of the kernel, with its flags: the direction of a copy, or the type of code */
    uint32_t core;
} nova_interface;

/* What a control kernel does. The operands of its launch are the `reads`, the results, and one
 * buffer for itself (src/exec/control.h); regions get the arguments and outputs that follow.
 *
 *     switch  reads: selector (1 or 8 bytes), operands; regions (operands) -> results, one of them
 *             runs
 *     while   reads: condition (1 byte), constants, carries; region (constants, carries) ->
 *             (carries, condition)
 *     for     reads: constants, carries, xs; results: carries, ys; region (position, constants,
 *             carries, slices of xs) -> (carries, slices of ys), for each of `length` positions
 *     call    reads: the bytes of a `.nova` file, a constant, and its arguments; results: its
 *             outputs; no region: the program of the file runs (src/exec/callee.h)
 *
 * A region without a buffer for the output of a carry updates it in place: the argument is the
 * result from the first iteration on. */
enum { NOVA_SWITCH = 0, NOVA_LOOP_WHILE = 1, NOVA_LOOP_FOR = 2, NOVA_CALL = 3 };

typedef struct nova_control_record {
    uint32_t block;  /* that has the kernel */
    uint32_t kernel; /* in the table of the block */
    uint32_t construct;
    uint32_t first_region; /* in the list of regions: numbers of blocks before this one */
    uint32_t region_count;
    uint32_t constants;
    uint32_t carries;
    uint32_t reverse; /* of a for loop: from the last position to the first */
    int64_t length;
} nova_control_record;

typedef struct nova_container_header {
    char magic[8];
    uint64_t size;
    uint32_t block_count;
    uint32_t control_count;
    uint32_t region_count;
    uint32_t reserved; /* 0 */
} nova_container_header;

typedef struct nova_contained_block {
    uint64_t offset; /* in the container */
    uint64_t size;
} nova_contained_block;

/* A checked container: pointers into it. */
typedef struct nova_container {
    const nova_container_header *header; /* NULL: the block is not in a container */
    const nova_control_record *controls;
    const uint32_t *regions;
    const nova_contained_block *blocks;
} nova_container;

/* A checked block: pointers into it, valid as long as it is. */
typedef struct nova_tables {
    const nova_tables_header *header;
    const nova_buffer *buffers;
    const nova_kernel_record *kernels;
    const nova_launch_record *launches;
    const uint32_t *operands;
    const nova_task *tasks;
    const uint32_t *successors;
    const nova_device_launch *devices;  /* one a kernel; NULL when none is for a device */
    const nova_tensor_map *tensor_maps; /* of all kernels, in their order; NULL when none has any */
    const nova_interface *interfaces;   /* one a kernel; NULL in a block of an older Nova */
    const nova_tiling *tilings;         /* one a kernel; NULL in a block of an older Nova */
    const int64_t *tiling_words;
    uint64_t tiling_word_count;
    const uint64_t *interface_sizes;
    const char *strings;
    nova_container container;
    uint32_t block; /* its number in the container */
} nova_tables;

/* What the indices and offsets of a block must stay below. */
typedef struct nova_tables_limits {
    uint64_t argument_count;
    uint64_t output_count;
    const int64_t *argument_nbytes; /* a buffer's nbytes must be its tensor's; NULL: not checked */
    const int64_t *output_nbytes;
    uint64_t constants_size;
    const unsigned char *argument_donated; /* whether it may be written; NULL: not checked */
} nova_tables_limits;

/* Checks everything but `code`, which only the file's segments can tell; fills *tables with
 * pointers into `block` (8-byte aligned, owned by the caller, must not change). Thread-safe. */
nova_status nova_tables_check(const void *block, size_t size, const nova_tables_limits *limits,
                              nova_tables *tables, nova_error *error);

/* Whether kernels of a device may have tilings and flags in a block whose header was found. Pure.
 */
static inline bool nova_tables_have_device_tasks(const nova_tables *tables)
{
    return memcmp(tables->header->magic, NOVA_TABLES_TASKS_DEVICE_MAGIC,
                  sizeof tables->header->magic) == 0;
}

/* The bytes that nova_tables_check was called with. Pure. */
const void *nova_tables_bytes(const nova_tables *tables, uint64_t *size);

/* The number of regions of a checked block: 0 if it is not in a container. Pure. */
uint32_t nova_tables_region_count(const nova_tables *tables);

/* The tables of a region of a checked block, by the number of its block. Pure. */
void nova_tables_region(const nova_tables *tables, uint32_t number, nova_tables *region);

/* The control record of a kernel of a checked block; NULL when it is not a control kernel. Pure. */
const nova_control_record *nova_tables_control(const nova_tables *tables, uint32_t kernel);

/* Bytes of its own buffer that a control kernel needs for the operands of `launch`, before the
 * workspace of the regions, which are checked. */
nova_status nova_control_bookkeeping(const nova_tables *tables, const nova_launch_record *launch,
                                     const nova_control_record *control, uint64_t *size);

/* For each of the first `count` outputs of a block, whether a buffer is that output. Pure. */
void nova_tables_mark_outputs(const nova_tables *tables, unsigned char *has_output, uint64_t count);

/* Bytes of it for one slice of an operand or result of a loop on a device. Pure. */
uint64_t nova_control_slice(const nova_tables *tables, const nova_launch_record *launch,
                            const nova_control_record *control, uint32_t operand);

#endif
