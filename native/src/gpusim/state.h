/* What a running block consists of; shared between the files of the simulator, one thread at a
 * time. */
#ifndef NOVA_GPUSIM_STATE_H
#define NOVA_GPUSIM_STATE_H

#include "gpusim/isa/lanes.h"
#include "gpusim/sim.h"

/* The last access to a word of memory, packed by races.h: block, clock of the warp, thread, bytes.
 * 0: none. */
typedef uint64_t sim_stamp;

typedef struct {
    sim_stamp write, read, other; /* other: the last reader of another warp than that of `read` */
    uint8_t lanes[4];             /* of `read`, by byte: the lane that read it, or SEVERAL_LANES */
} sim_shadow;
enum { SEVERAL_LANES = 255 };

/* Of a byte of shared memory; state of global memory has STATE_WRITTEN only. */
enum { STATE_WRITTEN = 1, STATE_PENDING = 2 };

typedef enum { ACCESS_READ, ACCESS_WRITE, ACCESS_ATOMIC } sim_access;

typedef struct {
    uint8_t lane, bytes;
    uint32_t group, at;
    uint8_t data[16];
} sim_copy;

typedef struct {
    uint32_t *registers; /* rows of 32 words */
    uint32_t pc[LANES];
    /* lanes: not exited; at a barrier; at an exchange that waits for others */
    uint32_t live, parked, deferred;
    uint32_t at_barrier[LANES]; /* the instruction that a parked lane waits at */
    uint32_t waits;             /* number of the barrier that the full warp waits at, + 1 */
    uint32_t number;
    /* Clocks advance at barriers. Accesses of warp w up to vector_clock[w] are visible to this
     * warp. */
    uint32_t clock, vector_clock[MOST_WARPS];
    uint64_t steps;
    sim_copy *copies;
    uint32_t copy_count, copy_capacity;
    uint32_t groups[LANES]; /* committed so far */
} sim_warp;

typedef struct {
    uint32_t waiting, resumed; /* warps: mask of those that wait; number of those that resumed */
    uint32_t threads;          /* that it waits for; 0: all of the block */
    uint32_t vector_clock[MOST_WARPS]; /* the merged vector clock of the warps that have arrived */
} sim_barrier;

typedef struct {
    uint32_t narrow[LANES];
    uint64_t wide[LANES];
} sim_plane;

typedef struct {
    const sim_kernel *kernel;
    const sim_launch *launch;
    const sim_plane *constants;
    const lane_function *functions; /* of each instruction */
    sim_fault *fault;
    sim_warp *warps;
    sim_barrier barriers[BARRIERS];
    uint32_t warp_count, threads, index[3];
    uint32_t serial, first_serial; /* of the block; those of the launch begin after the second */
    uint8_t *shared, *shared_state, *local;
    uint32_t shared_bytes;
    sim_shadow *shared_shadow;
    /* of all ranges, in sequence; NULL: no race detection */
    sim_shadow *global_shadow;
    uint64_t *range_words; /* where a range's begins */
    uint8_t *released;     /* by block number: whether it has released its writes */
    uint8_t acquired;      /* whether this block has acquired the writes of others */
    uint32_t last_range;
} sim_block;

/* --- operands --------------------------------------------------------------------------------- */

static inline const sim_operand *operand(const sim_block *block, const sim_instruction *at,
                                         uint32_t number)
{
    return block->kernel->operands + at->first + number;
}

static inline const uint32_t *narrow(const sim_block *block, const sim_warp *warp,
                                     const sim_operand *o)
{
    return o->kind == OPERAND_CONSTANT ? block->constants[o->at].narrow
                                       : warp->registers + (size_t)o->at * LANES;
}

static inline const uint64_t *wide(const sim_block *block, const sim_warp *warp,
                                   const sim_operand *o)
{
    return o->kind == OPERAND_CONSTANT
               ? block->constants[o->at].wide
               : (const uint64_t *)(warp->registers + (size_t)o->at * LANES);
}

/* A predicate as a mask of lanes. */
static inline uint32_t predicate(const sim_block *block, const sim_warp *warp, const sim_operand *o)
{
    uint32_t value = o->kind == OPERAND_CONSTANT ? (block->constants[o->at].narrow[0] ? ~0u : 0)
                                                 : warp->registers[(size_t)o->at * LANES];
    return o->negated ? ~value : value;
}

static inline uint64_t lane_value(const sim_block *block, const sim_warp *warp,
                                  const sim_operand *o, int lane)
{
    return o->width == 64 ? wide(block, warp, o)[lane] : narrow(block, warp, o)[lane];
}

static inline void put_narrow(sim_warp *warp, const sim_operand *o, const uint32_t *values,
                              uint32_t mask)
{
    if (o->kind != OPERAND_REGISTER)
        return;
    uint32_t *row = warp->registers + (size_t)o->at * LANES;
    for (int i = 0; i < LANES; i++)
        row[i] = mask >> i & 1 ? values[i] : row[i];
}

static inline void put_wide(sim_warp *warp, const sim_operand *o, const uint64_t *values,
                            uint32_t mask)
{
    if (o->kind != OPERAND_REGISTER)
        return;
    uint64_t *row = (uint64_t *)(warp->registers + (size_t)o->at * LANES);
    for (int i = 0; i < LANES; i++)
        row[i] = mask >> i & 1 ? values[i] : row[i];
}

static inline void put_predicate(sim_warp *warp, const sim_operand *o, uint32_t value,
                                 uint32_t mask)
{
    if (o->kind != OPERAND_REGISTER)
        return;
    uint32_t *row = warp->registers + (size_t)o->at * LANES;
    row[0] = (row[0] & ~mask) | (value & mask);
}

static inline void put_lane(sim_warp *warp, const sim_operand *o, int lane, uint64_t value)
{
    if (o->kind != OPERAND_REGISTER)
        return;
    uint32_t *row = warp->registers + (size_t)o->at * LANES;
    if (o->width == 64)
        ((uint64_t *)row)[lane] = value;
    else
        row[lane] = o->width == 16 ? (uint32_t)(value & 0xffff) : (uint32_t)value;
}

static inline uint32_t thread_of(const sim_warp *warp, int lane)
{
    return warp->number * LANES + (uint32_t)lane;
}
static inline int lowest(uint32_t mask)
{
    return __builtin_ctz(mask);
}

static inline uint32_t bytes_of(sim_type type)
{
    switch (type) {
    case T_B8:
    case T_U8:
    case T_S8:
        return 1;
    case T_B16:
    case T_U16:
    case T_S16:
    case T_F16:
    case T_BF16:
        return 2;
    case T_B64:
    case T_U64:
    case T_S64:
    case T_F64:
        return 8;
    default:
        return 4;
    }
}

static inline int is_float(sim_type type)
{
    return type == T_F16 || type == T_BF16 || type == T_F32 || type == T_F64 || type == T_TF32;
}

static inline int is_signed(sim_type type)
{
    return type == T_S8 || type == T_S16 || type == T_S32 || type == T_S64;
}

/* --- the parts: each returns 0, or 1 after it has described a fault --------------------------- */

int sim_report(sim_block *block, sim_fault_kind fault_type, const sim_instruction *at,
               uint32_t thread);
void sim_name_thread(const sim_block *block, uint32_t thread, uint32_t *out);

/* memory.c: the checked host address of `bytes` at an address of a space; NULL after a fault.
 * `value` are the bytes to write, if they are known. */
uint8_t *sim_reach(sim_block *block, sim_warp *warp, const sim_instruction *at, int lane,
                   sim_space space, uint64_t address, uint32_t bytes, sim_access access,
                   const uint8_t *value);
int sim_load(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask);
int sim_store(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask);
uint64_t sim_address(const sim_block *block, const sim_warp *warp, const sim_operand *o, int lane);
int sim_bad_access(sim_block *block, sim_fault_kind fault_type, const sim_instruction *at,
                   uint32_t thread, sim_space space, uint64_t address, uint32_t bytes,
                   sim_access access);

/* races.c */
void sim_fence(sim_block *block, uint32_t flags);

/* atomics.c */
int sim_atomic(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask);

/* async_copy.c: cp.async */
int sim_copy_start(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask);
void sim_copy_commit(sim_warp *warp, uint32_t mask);
int sim_copy_wait(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask);

/* convert.c, compare.c */
void sim_convert(const sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask);
void sim_convert_pair(const sim_block *block, sim_warp *warp, const sim_instruction *at,
                      uint32_t mask);
void sim_compare(const sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask);

/* arithmetic.c: lane functions with their modes */
void sim_run_lanes(const sim_block *block, sim_warp *warp, const sim_instruction *at,
                   uint32_t mask);

/* warp_exchange.c: between the lanes of a warp */
int sim_exchange(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask,
                 uint32_t members);

/* tensor_core.c: tensor cores */
int sim_load_matrix(sim_block *block, sim_warp *warp, const sim_instruction *at);
int sim_store_matrix(sim_block *block, sim_warp *warp, const sim_instruction *at);
void sim_multiply(const sim_block *block, sim_warp *warp, const sim_instruction *at);

/* barriers.c: a warp whose lanes are all parked arrives; complete barriers resume their warps;
 * exiting lanes must not bypass one. */
int sim_park_warp(sim_block *block, sim_warp *warp);
int sim_arrive(sim_block *block, sim_warp *warp, const sim_instruction *at, int lane, int waits);
int sim_release(sim_block *block);
int sim_check_exit(sim_block *block, const sim_warp *warp, uint32_t ending);

/* warp.c: runs until every lane has exited or waits at a barrier of the block. */
int sim_run_warp(sim_block *block, sim_warp *warp);

#endif
