/* What a running block consists of; shared between the files of the simulator, one thread at a time. */
#ifndef NOVA_SIM_STATE_H
#define NOVA_SIM_STATE_H

#include "sim.h"

/* What happened to a byte of shared memory since the barrier that ended `epoch - 1`. */
typedef struct {
    uint32_t write_epoch, read_epoch;           /* of the block's barriers */
    uint32_t write_warp_epoch, read_warp_epoch; /* of the barriers of the warp that did it */
    uint16_t writer, reader;                    /* thread + 1; 0: nobody yet; MANY readers */
    uint16_t pending;                           /* thread + 1 whose copy is on its way here */
} sim_shadow;
enum { MANY = 0xffff };

typedef struct {
    uint8_t lane, bytes, filled;
    uint32_t group, at;
    uint8_t data[16];
} sim_copy;

typedef struct {
    uint32_t *registers; /* rows of 32 words */
    uint32_t pc[LANES];
    uint32_t live, parked, deferred; /* lanes: not exited; at a barrier; at an exchange that waits for others */
    uint32_t number, epoch;
    uint64_t steps;
    sim_copy *copies;
    uint32_t copy_count, copy_room;
    uint32_t groups[LANES]; /* committed so far */
} sim_warp;

typedef struct {
    uint32_t narrow[LANES];
    uint64_t wide[LANES];
} sim_plane;

typedef struct {
    const sim_kernel *kernel;
    const sim_launch *launch;
    const sim_plane *constants;
    sim_fault *fault;
    sim_warp *warps;
    uint32_t warp_count, threads, epoch, index[3];
    uint8_t *shared, *local;
    uint32_t shared_bytes;
    sim_shadow *shadow;
    uint32_t last_range;
} sim_block;

/* --- operands ----------------------------------------------------------------------------------- */

static inline const sim_operand *operand(const sim_block *block, const sim_instruction *at, uint32_t number)
{
    return block->kernel->operands + at->first + number;
}

static inline const uint32_t *narrow(const sim_block *block, const sim_warp *warp, const sim_operand *o)
{
    return o->kind == OPERAND_CONSTANT ? block->constants[o->at].narrow : warp->registers + (size_t)o->at * LANES;
}

static inline const uint64_t *wide(const sim_block *block, const sim_warp *warp, const sim_operand *o)
{
    return o->kind == OPERAND_CONSTANT ? block->constants[o->at].wide
                                       : (const uint64_t *)(warp->registers + (size_t)o->at * LANES);
}

/* A predicate as a mask of lanes. */
static inline uint32_t predicate(const sim_block *block, const sim_warp *warp, const sim_operand *o)
{
    uint32_t value = o->kind == OPERAND_CONSTANT ? (block->constants[o->at].narrow[0] ? ~0u : 0)
                                                 : warp->registers[(size_t)o->at * LANES];
    return o->negated ? ~value : value;
}

static inline uint64_t lane_value(const sim_block *block, const sim_warp *warp, const sim_operand *o, int lane)
{
    return o->width == 64 ? wide(block, warp, o)[lane] : narrow(block, warp, o)[lane];
}

static inline void put_narrow(sim_warp *warp, const sim_operand *o, const uint32_t *values, uint32_t mask)
{
    if (o->kind != OPERAND_REGISTER)
        return;
    uint32_t *row = warp->registers + (size_t)o->at * LANES;
    for (int i = 0; i < LANES; i++)
        row[i] = mask >> i & 1 ? values[i] : row[i];
}

static inline void put_wide(sim_warp *warp, const sim_operand *o, const uint64_t *values, uint32_t mask)
{
    if (o->kind != OPERAND_REGISTER)
        return;
    uint64_t *row = (uint64_t *)(warp->registers + (size_t)o->at * LANES);
    for (int i = 0; i < LANES; i++)
        row[i] = mask >> i & 1 ? values[i] : row[i];
}

static inline void put_predicate(sim_warp *warp, const sim_operand *o, uint32_t value, uint32_t mask)
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

/* --- the parts: each gives 0, or 1 after it has described a fault ---------------------------------- */

int sim_report(sim_block *block, sim_fault_kind kind, const sim_instruction *at, uint32_t thread);

/* memory.c: the host address of `bytes` at an address of a space, checked; NULL after a fault. */
uint8_t *sim_reach(sim_block *block, sim_warp *warp, const sim_instruction *at, int lane, sim_space space,
                   uint64_t address, uint32_t bytes, int writes);
int sim_load(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask);
int sim_store(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask);
int sim_atomic(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask);
uint64_t sim_address(const sim_block *block, const sim_warp *warp, const sim_operand *o, int lane);

/* copies.c: cp.async */
int sim_copy_start(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask);
void sim_copy_commit(sim_warp *warp, uint32_t mask);
int sim_copy_wait(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask);

/* convert.c */
void sim_convert(const sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask);
void sim_compare(const sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask);

/* exchange.c: between the lanes of a warp */
void sim_shuffle(const sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask);
void sim_vote(const sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask, uint32_t members);
void sim_reduce(const sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask, uint32_t members);

/* matrix.c: tensor cores */
int sim_load_matrix(sim_block *block, sim_warp *warp, const sim_instruction *at);
void sim_multiply(const sim_block *block, sim_warp *warp, const sim_instruction *at);

/* warp.c: runs until every lane has exited or waits at a barrier of the block. */
int sim_run_warp(sim_block *block, sim_warp *warp);

#endif
