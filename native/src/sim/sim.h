/* The simulated GPU: executes decoded PTX, a warp of 32 lanes at a time, and reports what a program may not do.
 *
 * nova/runtime/sim/ decodes PTX text into the records below. A launch runs its blocks one after the other, the warps of a
 * block in turns between barriers, in an order that depends on nothing: two runs give the same bits. */
#ifndef NOVA_SIM_H
#define NOVA_SIM_H

#include <stdint.h>
#include <stddef.h>

enum { LANES = 32 };

typedef enum {
    T_NONE, T_PRED, T_B8, T_U8, T_S8, T_B16, T_U16, T_S16, T_F16, T_BF16, T_B32, T_U32, T_S32, T_F32, T_F16X2, T_BF16X2,
    T_TF32, T_B64, T_U64, T_S64, T_F64, T_COUNT
} sim_type;

typedef enum { SPACE_GENERIC, SPACE_PARAM, SPACE_GLOBAL, SPACE_SHARED, SPACE_LOCAL } sim_space;

/* Where generic addresses of a space begin; its own addresses are offsets from there. */
#define SHARED_WINDOW ((uint64_t)1 << 56)
#define LOCAL_WINDOW ((uint64_t)2 << 56)

typedef enum {
    OP_LANES,  /* `detail` is a row of the table of lane functions */
    OP_MOVE, OP_PACK, OP_UNPACK, OP_CONVERT, OP_COMPARE, OP_SELECT, OP_PREDICATE,
    OP_LOAD, OP_STORE, OP_ATOMIC, OP_ADDRESS,
    OP_BRANCH, OP_EXIT, OP_BARRIER, OP_WARP_BARRIER, OP_FENCE, OP_TRAP,
    OP_SHUFFLE, OP_VOTE, OP_REDUCE, OP_MATCH, OP_ACTIVE,
    OP_COPY, OP_COPY_COMMIT, OP_COPY_WAIT, OP_LOAD_MATRIX, OP_MULTIPLY,
    OP_COUNT
} sim_op;

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
    uint8_t unless, results, unused[2];
    uint32_t first, operands; /* operands[first .. first + operands): results first */
    uint32_t target;          /* of a branch */
    uint32_t line;            /* of the PTX, from 1 */
} sim_instruction;

typedef struct {
    const sim_instruction *code;
    uint32_t length;
    const sim_operand *operands;
    const uint64_t *constants;
    uint32_t constant_count;
    uint32_t register_words; /* 32-bit words of a lane: those of special registers first */
    uint32_t shared_bytes;   /* static ones; dynamic ones follow */
    uint32_t local_bytes;    /* of a thread */
} sim_kernel;

enum {
    S_TID_X, S_TID_Y, S_TID_Z, S_NTID_X, S_NTID_Y, S_NTID_Z, S_CTAID_X, S_CTAID_Y, S_CTAID_Z, S_NCTAID_X, S_NCTAID_Y,
    S_NCTAID_Z, S_LANEID, S_WARPID, S_NWARPID, S_SMID, S_LANEMASK_LT, S_CLOCK, S_COUNT
};

typedef enum {
    FAULT_NONE, FAULT_BOUNDS, FAULT_ALIGNMENT, FAULT_RACE, FAULT_UNINITIALIZED, FAULT_PENDING_COPY, FAULT_DEADLOCK,
    FAULT_TRAP, FAULT_WRITE_PROTECTED, FAULT_MEMORY, FAULT_STEPS, FAULT_DIVERGED, FAULT_OPERATION
} sim_fault_kind;

typedef struct {
    sim_fault_kind kind;
    uint32_t line;
    uint32_t block[3], thread[3];
    uint32_t other[3]; /* the other thread of a race */
    uint64_t address;
    uint32_t bytes;
    uint8_t space, writes;
} sim_fault;

/* Global memory that kernels may use, sorted by address. */
typedef struct {
    uint64_t start, size;
} sim_range;

typedef struct {
    const sim_range *ranges;
    uint32_t range_count;
    const uint8_t *params;
    uint32_t param_bytes;
    uint32_t grid[3], block[3];
    uint32_t dynamic_shared;
    uint64_t most_steps; /* instructions of a warp; more is reported as a loop without end */
    uint8_t check_races;
} sim_launch;

/* Runs a launch to its end; the first fault stops it, is described in *fault, and gives 1. Thread-safe: several launches
 * may run at the same time on memory of their own. */
int nova_sim_run(const sim_kernel *kernel, const sim_launch *launch, sim_fault *fault);

/* The names of the lane functions, in the order of `detail`; NULL behind the last. */
const char *nova_sim_lane_name(uint32_t detail);

#endif
