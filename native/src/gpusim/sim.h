/* The simulated GPU: executes decoded PTX, a warp of 32 lanes at a time, and reports faults.
 *
 * nova/gpusim/ decodes PTX text into the records below. A launch runs its blocks in sequence, the
 * warps of a block round-robin between barriers, in a fixed order: two runs are bit-identical. */
#ifndef NOVA_GPUSIM_SIM_H
#define NOVA_GPUSIM_SIM_H

#include <stdint.h>
#include <stddef.h>

enum { LANES = 32, MOST_WARPS = 32, BARRIERS = 16, MOST_BLOCKS = 1 << 26, MOST_MOMENTS = 1 << 22 };

typedef enum {
    T_NONE,
    T_PRED,
    T_B8,
    T_U8,
    T_S8,
    T_B16,
    T_U16,
    T_S16,
    T_F16,
    T_BF16,
    T_B32,
    T_U32,
    T_S32,
    T_F32,
    T_F16X2,
    T_BF16X2,
    T_TF32,
    T_B64,
    T_U64,
    T_S64,
    T_F64,
    T_COUNT
} sim_type;

typedef enum { SPACE_GENERIC, SPACE_PARAM, SPACE_GLOBAL, SPACE_SHARED, SPACE_LOCAL } sim_space;

/* Where generic addresses of a space begin; addresses of the space are offsets from there. */
#define WINDOW_SHIFT 56
#define WINDOW(number) ((uint64_t)(number) << WINDOW_SHIFT)
#define SHARED_WINDOW WINDOW(1)
#define LOCAL_WINDOW WINDOW(2)
#define PARAM_WINDOW WINDOW(3)

typedef enum {
    OP_LANES, /* `detail` is a row of the table of lane functions; flags: ARITHMETIC_* */
    OP_MOVE,
    OP_PACK,
    OP_UNPACK,
    OP_CONVERT,      /* flags: CONVERT_* */
    OP_CONVERT_PAIR, /* two f32 to a pair of halves, the first to the upper one */
    OP_COMPARE,      /* flags: COMPARE_* */
    OP_SELECT,
    OP_PREDICATE,
    OP_LOAD,
    OP_STORE,
    OP_ATOMIC,  /* flags: ACCESS_* */
    OP_ADDRESS, /* cvta; flags: 1 towards the space */
    OP_BRANCH,
    OP_EXIT,
    OP_TRAP,
    OP_BARRIER, /* operands: number [, threads]; flags: BARRIER_* */
    OP_WARP_BARRIER,
    OP_FENCE, /* flags: ACCESS_* */
    OP_SHUFFLE,
    OP_VOTE,
    OP_REDUCE,
    OP_MATCH,
    OP_ACTIVE,
    OP_ELECT,
    OP_COPY,
    OP_COPY_COMMIT,
    OP_COPY_WAIT,
    OP_LOAD_MATRIX,
    OP_STORE_MATRIX,
    OP_MULTIPLY,
    OP_COUNT
} sim_op;

enum { ROUND_NEAREST, ROUND_ZERO, ROUND_DOWN, ROUND_UP, ROUND_AWAY };
enum {
    ARITHMETIC_ROUNDING = 3,
    ARITHMETIC_FLUSH = 4,
    ARITHMETIC_SATURATE = 8,
    ARITHMETIC_RELU = 16
};
enum {
    CONVERT_ROUNDING = 7,
    CONVERT_INTEGRAL = 8,
    CONVERT_SATURATE = 16,
    CONVERT_RELU = 32,
    CONVERT_FLUSH = 64,
    CONVERT_FINITE = 128
};
enum {
    COMPARE_WHICH = 15,
    COMPARE_UNORDERED = 16,
    COMPARE_AND = 32,
    COMPARE_OR = 64,
    COMPARE_XOR = 128,
    COMPARE_FLUSH = 256
};
/* STRONG: ordered by the memory model, as atomics are, so that two of them never race. */
enum { ACCESS_STRONG = 1, ACCESS_ACQUIRE = 2, ACCESS_RELEASE = 4 };
enum { BARRIER_ALIGNED = 1, BARRIER_ARRIVE = 2 };

typedef enum { OPERAND_NONE, OPERAND_REGISTER, OPERAND_CONSTANT, OPERAND_SINK } operand_kind;

typedef struct {
    uint8_t kind, width; /* bits of a register: 1, 16, 32, 64 */
    uint8_t negated, unused;
    uint32_t at;    /* first word of a register of the warp, or number of a constant */
    int64_t offset; /* of an address */
} sim_operand;

typedef struct {
    uint16_t op, detail;
    uint8_t type, from, space, count; /* count: elements of a vector access */
    uint32_t flags;                   /* by op */
    int32_t guard;                    /* word of a predicate; -1: always */
    uint8_t unless, results;
    uint16_t ignored;         /* elements of a vector load, a bit each, that are not used */
    uint32_t first, operands; /* operands[first .. first + operands): results first */
    uint32_t target;          /* of a branch */
    uint32_t line;            /* of the PTX, from 1 */
} sim_instruction;

typedef struct {
    const sim_instruction *code; /* the last one is an exit */
    uint32_t length;
    const sim_operand *operands;
    const uint64_t *constants;
    uint32_t constant_count;
    uint32_t register_words; /* 32-bit words of a lane: special registers first */
    uint32_t shared_bytes;   /* static ones; dynamic ones follow */
    uint32_t local_bytes;    /* of a thread */
} sim_kernel;

/* Special registers: the first words of a lane. */
enum {
    S_TID_X,
    S_TID_Y,
    S_TID_Z,
    S_NTID_X,
    S_NTID_Y,
    S_NTID_Z,
    S_CTAID_X,
    S_CTAID_Y,
    S_CTAID_Z,
    S_NCTAID_X,
    S_NCTAID_Y,
    S_NCTAID_Z,
    S_LANEID,
    S_WARPID,
    S_NWARPID,
    S_LANEMASK_EQ,
    S_LANEMASK_LT,
    S_LANEMASK_LE,
    S_LANEMASK_GT,
    S_LANEMASK_GE,
    S_COUNT
};

typedef enum {
    FAULT_NONE,
    FAULT_BOUNDS,
    FAULT_ALIGNMENT,
    FAULT_RACE,
    FAULT_UNINITIALIZED,
    FAULT_PENDING_COPY,
    FAULT_DEADLOCK,
    FAULT_TRAP,
    FAULT_READ_ONLY,
    FAULT_MEMORY,
    FAULT_STEPS,
    FAULT_DIVERGED,
    FAULT_EXCHANGE,
    FAULT_BARRIER,
    FAULT_OPERATION
} sim_fault_kind;

typedef struct {
    sim_fault_kind kind;
    uint32_t line;
    uint32_t block[3], thread[3];
    uint32_t other_block[3], other[3]; /* the other thread of a race */
    uint64_t address;
    uint32_t bytes;
    uint8_t space, writes, has_other, other_writes;
} sim_fault;

/* Global memory that kernels may use, sorted by address. `state` has a byte for each of its bytes:
 * 1 once it is initialized; without it (NULL) uninitialized reads are not reported. `moved` is
 * added to an address of a kernel to get that of the host. */
typedef struct {
    uint64_t start, size;
    uint8_t *state;
    uint64_t read_only, moved;
} sim_range;

/* A tensor map as the driver of the simulator encodes it, in the parameters of a kernel or in global
 * memory. `address` is of the kernel's view of memory; the element type has the driver's number.
 * Dimensions are innermost first. */
typedef struct {
    uint64_t address;
    uint32_t element, rank;
    uint64_t dims[5], strides[4]; /* strides in bytes: of all dimensions but the innermost */
    uint32_t box[5];
    uint32_t swizzle;  /* bytes */
    uint8_t steps[5];  /* strides of elements in a box; 0: 1 */
    uint8_t fills_nan; /* elements out of bounds: NaN instead of zero */
    uint8_t unused[10];
} sim_tensor_map;
enum { TENSOR_DIMS = 5, TENSOR_MAP_BYTES = 128, TENSOR_MAP_ALIGNMENT = 64 };
_Static_assert(sizeof(sim_tensor_map) == TENSOR_MAP_BYTES, "as large as those of CUDA");

typedef struct {
    const sim_range *ranges;
    uint32_t range_count;
    const uint8_t *params;
    uint32_t param_bytes;
    uint32_t grid[3], block[3];
    uint32_t dynamic_shared;
    uint64_t most_steps; /* instructions of a warp; more is reported as a loop without end */
    uint8_t check_races;
    uint64_t *steps; /* gets the instructions of all warps, unless NULL */
} sim_launch;

/* Runs a launch to its end; the first fault stops it, is described in *fault, and returns 1. A
 * block has at most 1024 threads, a grid fewer than MOST_BLOCKS blocks: the caller checks that and
 * the records. Thread-safe: several launches may run concurrently on disjoint memory. */
int nova_sim_run(const sim_kernel *kernel, const sim_launch *launch, sim_fault *fault);

/* A lane function: its name, and the bits of its result and of up to four operands (0: none). */
typedef struct {
    const char *name;
    uint8_t out, in[4];
} sim_lane_facts;

/* The lane functions in the order of `detail`; NULL after the last. */
const sim_lane_facts *nova_sim_lane(uint32_t detail);

#endif
