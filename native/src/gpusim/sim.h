/* The simulated GPU: executes decoded PTX, a warp of 32 lanes at a time, and reports faults.
 *
 * nova/gpusim/ decodes PTX text into the records below. A launch runs its clusters in sequence, the
 * warps of a cluster round-robin between waits, in a fixed order: two runs are bit-identical. */
#ifndef NOVA_GPUSIM_SIM_H
#define NOVA_GPUSIM_SIM_H

#include <stdatomic.h>
#include <stdint.h>
#include <stddef.h>

enum {
    LANES = 32,
    MOST_WARPS = 32,
    BLOCK_THREADS = LANES * MOST_WARPS,
    BARRIERS = 16,
    MOST_BLOCKS = 1 << 25,
    MOST_MOMENTS = 1 << 22,
    MOST_CLUSTER = 16,       /* blocks of a cluster */
    MOST_RESIDENT = 16,      /* blocks of a cooperative launch */
    FILE_REGISTERS = 1 << 16 /* registers of a multiprocessor */
};

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
    T_E4M3,
    T_E5M2,
    T_COUNT
} sim_type;

typedef enum { SPACE_GENERIC, SPACE_PARAM, SPACE_GLOBAL, SPACE_SHARED, SPACE_LOCAL } sim_space;

/* Where generic addresses of a space begin; addresses of the space are offsets from there. */
#define WINDOW_SHIFT 56
#define WINDOW(number) ((uint64_t)(number) << WINDOW_SHIFT)
#define SHARED_WINDOW WINDOW(1)
#define LOCAL_WINDOW WINDOW(2)
#define PARAM_WINDOW WINDOW(3)

/* A shared::cluster address: the rank of a block + 1, then the offset in its shared memory. Rank
 * bits of 0 are the executing block, so that shared::cta addresses are shared::cluster addresses
 * too. */
#define CLUSTER_SHIFT 24

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
    OP_PROXY_FENCE,    /* flags: PROXY_* */
    OP_MAP_ADDRESS,    /* mapa: d, address, rank; space: generic or shared */
    OP_CLUSTER_RANK,   /* getctarank: d, address; space: generic or shared */
    OP_CLUSTER_ARRIVE, /* flags: ACCESS_RELEASE | BARRIER_ALIGNED << 8 */
    OP_CLUSTER_WAIT,
    OP_SET_REGISTERS, /* setmaxnreg; detail: 1 increases; target: registers */
    OP_MBARRIER,      /* detail: MBARRIER_*; flags: ACCESS_* */
    OP_MBARRIER_WAIT, /* p, address, phase or token; flags: WAIT_* */
    OP_BULK_COPY,     /* detail: BULK_*; flags: COPY_*; count: dimensions; target: bytes */
    OP_BULK_COMMIT,
    OP_BULK_WAIT, /* target: groups that may be pending; flags: 1 waits for reads only */
    OP_WGMMA,     /* d.., a (register(s)), b, scale-d; flags: WGMMA_*; target: n; count: k */
    OP_WGMMA_FENCE,
    OP_WGMMA_COMMIT,
    OP_WGMMA_WAIT,  /* target: groups that may be pending */
    OP_CLOCK,       /* d: instructions of all warps of the launch so far */
    OP_LAUNCH_WAIT, /* griddepcontrol.wait */
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
enum {
    ACCESS_STRONG = 1,
    ACCESS_ACQUIRE = 2,
    ACCESS_RELEASE = 4,
    ACCESS_HOST = 8 /* an acquire or release of system scope */
};
enum { BARRIER_ALIGNED = 1, BARRIER_ARRIVE = 2 };
/* Fences between the generic proxy and the async proxy (wgmma, bulk copies). */
enum { PROXY_SHARED = 1, PROXY_GLOBAL = 2, PROXY_MBARRIER_INIT = 4 };
enum {
    MBARRIER_INIT, /* address, count */
    MBARRIER_INVALIDATE,
    MBARRIER_ARRIVE,    /* token, address, count */
    MBARRIER_EXPECT_TX, /* address, bytes */
    MBARRIER_COMPLETE_TX,
    MBARRIER_ARRIVE_EXPECT_TX, /* token, address, bytes: arrives once */
    MBARRIER_ARRIVE_COPIES,    /* cp.async.mbarrier.arrive: address */
    MBARRIER_COUNT             /* mbarrier.pending_count: d, token */
};
enum { MBARRIER_DROPS = 8, MBARRIER_NO_INCREMENT = 16 }; /* with ACCESS_* */
enum { WAIT_PARITY = 1, WAIT_POLLS = 2, WAIT_ACQUIRES = 4 };
/* Operands of bulk copies: shared address, then mbarrier (loads) and mask of ranks (multicast),
 * then global address and bytes, or the address of a tensor map and coordinates. */
enum { BULK_LOAD, BULK_STORE, BULK_REDUCE, BULK_SEND /* to another block of the cluster */ };
enum { COPY_TENSOR = 1, COPY_MULTICAST = 2, COPY_OPERATION_AT = 8 };
enum {
    WGMMA_REGISTERS_A = 1,
    WGMMA_TRANSPOSE_A = 2,
    WGMMA_TRANSPOSE_B = 4,
    WGMMA_NEGATE_A = 8,
    WGMMA_NEGATE_B = 16,
    WGMMA_SATURATE = 32
};

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
    uint32_t register_words;   /* 32-bit words of a lane: special registers first */
    uint32_t shared_bytes;     /* static ones; dynamic ones follow */
    uint32_t local_bytes;      /* of a thread */
    uint32_t thread_registers; /* at the launch, for setmaxnreg; 0: not known */
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
    S_CLUSTERID_X,
    S_CLUSTERID_Y,
    S_CLUSTERID_Z,
    S_NCLUSTERID_X,
    S_NCLUSTERID_Y,
    S_NCLUSTERID_Z,
    S_CLUSTER_CTAID_X,
    S_CLUSTER_CTAID_Y,
    S_CLUSTER_CTAID_Z,
    S_CLUSTER_NCTAID_X,
    S_CLUSTER_NCTAID_Y,
    S_CLUSTER_NCTAID_Z,
    S_CLUSTER_CTARANK,
    S_CLUSTER_NCTARANK,
    S_DYNAMIC_SMEM,
    S_TOTAL_SMEM,
    S_SMID,
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
    FAULT_OPERATION,
    FAULT_PROXY,       /* a missing fence between the generic and the async proxy */
    FAULT_MBARRIER,    /* misuse of an mbarrier */
    FAULT_EXPECT_TX,   /* the bytes of a phase are not those that copies bring */
    FAULT_OVERWRITE,   /* a write to memory that an asynchronous operation may still read */
    FAULT_ACCUMULATOR, /* registers of a pending wgmma */
    FAULT_WGMMA_FENCE, /* registers written after the last wgmma.fence */
    FAULT_WGMMA,       /* an invalid wgmma */
    FAULT_CLUSTER,     /* misuse of a cluster */
    FAULT_REGISTERS,   /* misuse of setmaxnreg */
    FAULT_TENSOR_MAP,  /* an invalid bulk copy */
    FAULT_EARLY        /* before griddepcontrol.wait: memory that earlier launches write */
} sim_fault_kind;

enum { DETAIL_BYTES = 1024 };

typedef struct {
    sim_fault_kind kind;
    uint32_t line;
    uint32_t block[3], thread[3];
    uint32_t other_block[3], other[3]; /* the other thread of a race */
    uint64_t address;
    uint32_t bytes;
    uint8_t space, writes, has_other, other_writes;
    char detail[DETAIL_BYTES]; /* in words, or empty */
} sim_fault;

/* Global memory that kernels may use, sorted by address. `state` has a byte for each of its bytes:
 * 1 once it is initialized; without it (NULL) uninitialized reads are not reported. `moved` is
 * added to an address of a kernel to get that of the host. Launches that write an `unfinished`
 * range may still run when this one starts: nothing touches it before griddepcontrol.wait.
 * `is_written` becomes 1 when a kernel writes there; NULL if the caller does not ask. */
typedef struct {
    uint64_t start, size;
    uint8_t *state;
    uint64_t read_only, moved, unfinished;
    _Atomic uint8_t *is_written;
} sim_range;

/* A tensor map as the driver of the simulator encodes it, in the parameters of a kernel or in
 * global memory. `address` is of the kernel's view of memory; the element type has the driver's
 * number. Dimensions are innermost first. */
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

/* NULL, or what cuTensorMapEncodeTiled would refuse. Thread-safe. */
const char *nova_sim_check_tensor_map(const sim_tensor_map *map);

typedef struct {
    const sim_range *ranges;
    uint32_t range_count;
    const uint8_t *params;
    uint32_t param_bytes;
    uint32_t grid[3], block[3], cluster[3]; /* blocks of a cluster, by dimension */
    uint32_t dynamic_shared;
    uint64_t most_steps; /* instructions of a warp; more is reported as a loop without end */
    uint8_t check_races;
    /* Whether all blocks run at once: then they may wait for each other. There are at most
     * MOST_RESIDENT of them. */
    uint8_t is_cooperative;
    /* When asynchronous operations happen: 0 as late as allowed, 1 as early as allowed, another
     * number chooses for each of them, pseudo-randomly. */
    uint32_t schedule;
    uint64_t *steps; /* gets the instructions of all warps, unless NULL */
} sim_launch;

/* Runs a launch to its end; the first fault stops it, is described in *fault, and returns 1. A
 * block has at most 1024 threads, a grid fewer than MOST_BLOCKS blocks and a multiple of the
 * cluster in each dimension: the caller checks that and the records. Thread-safe: several launches
 * may run concurrently on disjoint memory. */
int nova_sim_run(const sim_kernel *kernel, const sim_launch *launch, sim_fault *fault);

/* A lane function: its name, and the bits of its result and of up to four operands (0: none). */
typedef struct {
    const char *name;
    uint8_t out, in[4];
} sim_lane_facts;

/* The lane functions in the order of `detail`; NULL after the last. */
const sim_lane_facts *nova_sim_lane(uint32_t detail);

#endif
