/* What a running cluster of blocks consists of; shared between the files of the simulator, one
 * thread at a time. */
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
    uint32_t fences;              /* proxy fences of the writer's block before `write` */
} sim_shadow;
enum { SEVERAL_LANES = 255 };

/* Of a byte of shared memory; state of global memory has STATE_WRITTEN only. */
enum { STATE_WRITTEN = 1, STATE_PENDING = 2, STATE_MBARRIER = 4 };

/* Vector clocks have a row for each block of the cluster: its warps, then its asynchronous agents,
 * then, for each warp, the clock up to which its generic accesses are ordered with the async proxy.
 * The operations of an agent become visible in the order of their clocks. */
enum {
    AGENT_STORES = MOST_WARPS,               /* bulk copies from shared memory, by issuing warp */
    AGENT_WGMMA = AGENT_STORES + MOST_WARPS, /* by warpgroup */
    AGENT_LOADS = AGENT_WGMMA + MOST_WARPS / 4, /* copies that signal an mbarrier, by its address */
    LOAD_AGENTS = 16,
    AGENT_COUNT = AGENT_LOADS + LOAD_AGENTS,
    CLOCK_FENCED = AGENT_COUNT,
    CLOCK_ROW = CLOCK_FENCED + MOST_WARPS
};

typedef enum { ACCESS_READ, ACCESS_WRITE, ACCESS_ATOMIC } sim_access;

typedef struct {
    uint8_t lane, bytes;
    uint32_t group, at;
    uint8_t data[16];
} sim_copy;

/* What a blocked lane waits for. */
typedef enum {
    WAIT_NONE,
    WAIT_MBARRIER,
    WAIT_CLUSTER,
    WAIT_WARPGROUP,
    WAIT_REGISTERS
} sim_wait_kind;

typedef struct {
    uint8_t reason;  /* sim_wait_kind */
    uint8_t parity;  /* of the phase of an mbarrier */
    uint16_t rank;   /* block of the mbarrier */
    uint32_t number; /* of the mbarrier */
    uint32_t phase;  /* of the cluster barrier; registers of setmaxnreg */
    uint32_t at;     /* the instruction */
} sim_wait;

/* Why a warp yields: an mbarrier whose phase is not complete, or many strong loads, which may be a
 * loop until a flag changes. */
enum { POLLS_MBARRIER = 1, POLLS_MEMORY = 2, POLLS_HOST = 3 };

typedef struct {
    uint32_t *registers; /* rows of 32 words */
    uint32_t pc[LANES];
    /* lanes: not exited; at a barrier; at an exchange that waits for others; blocked by `wait` */
    uint32_t live, parked, deferred, blocked;
    sim_wait wait[LANES];
    /* POLLS_* after it has yielded, and where; strong loads so far */
    uint32_t polls, polled_at, strong_loads;
    uint32_t cluster_arrived; /* lanes that have arrived at barrier.cluster and not yet waited */
    uint32_t cluster_phase[LANES];
    uint32_t thread_registers;   /* setmaxnreg */
    uint32_t bulk_groups[LANES]; /* committed so far */
    /* wgmma: instructions issued, groups committed, groups waited for */
    uint32_t wgmma_count, wgmma_groups, wgmma_waited;
    /* By register word: pending wgmmas that write it, and those that read it, << 8; the number of
     * wgmma.fences before the last access. */
    uint16_t *pending_words;
    uint32_t *touched_words;
    uint32_t pending_count, wgmma_fences;
    uint32_t at_barrier[LANES]; /* the instruction that a parked lane waits at */
    uint32_t waits;             /* number of the barrier that the full warp waits at, + 1 */
    uint32_t number;
    /* Clocks advance at barriers. Accesses of warp w up to vector_clock[w] are visible to this
     * warp. */
    uint32_t clock, *vector_clock;
    uint64_t steps;
    sim_copy *copies;
    uint32_t copy_count, copy_capacity;
    uint32_t groups[LANES]; /* committed so far */
    uint8_t has_waited;     /* for the launches before this one */
} sim_warp;

typedef struct {
    uint32_t waiting, resumed; /* warps: mask of those that wait; number of those that resumed */
    uint32_t threads;          /* that it waits for; 0: all of the block */
    uint32_t *vector_clock;    /* the merged vector clock of the warps that have arrived */
} sim_barrier;

/* An mbarrier object in shared memory: pending arrivals and bytes of its current phase. */
typedef struct {
    uint32_t address, expected, pending, phase;
    int64_t bytes;              /* expected and not yet completed */
    uint8_t is_live, is_fenced; /* fenced: its initialization is visible to the async proxy */
    uint32_t creator;           /* thread */
    sim_stamp created;
    const sim_instruction *last_expect;
    uint32_t *arriving, *completed; /* vector clocks of this phase, and of those before */
} sim_mbarrier;

/* One wgmma of a warpgroup, from its issue until all four warps have waited for it. */
typedef struct {
    const sim_instruction *at;
    uint64_t a, b; /* descriptors */
    uint32_t group, clock;
    uint8_t accumulates, is_executed;
} sim_wgmma;

typedef struct {
    uint32_t arrived; /* warps at the current wgmma */
    const sim_instruction *at;
    uint64_t a, b;
    uint32_t accumulates, count; /* count: wgmmas issued */
    sim_wgmma *pending;
    uint32_t pending_count, capacity, clock;
} sim_warpgroup;

typedef struct sim_bulk sim_bulk;
typedef struct sim_cluster sim_cluster;

typedef struct {
    uint32_t narrow[LANES];
    uint64_t wide[LANES];
} sim_plane;

typedef struct sim_block {
    const sim_kernel *kernel;
    const sim_launch *launch;
    sim_cluster *cluster;
    uint32_t rank; /* in the cluster */
    const sim_plane *constants;
    const lane_function *functions; /* of each instruction */
    sim_fault *fault;
    sim_warp *warps;
    sim_barrier barriers[BARRIERS];
    sim_mbarrier *mbarriers;
    uint32_t mbarrier_count, mbarrier_capacity;
    sim_warpgroup warpgroups[MOST_WARPS / 4];
    uint32_t agent_clocks[AGENT_COUNT];
    uint32_t warp_count, threads, index[3];
    uint32_t free_registers; /* setmaxnreg */
    /* proxy fences so far, and by thread: that count after its last one */
    uint32_t fences, *fenced, *fenced_global;
    uint8_t uses_async; /* whether the kernel has instructions of the async proxy */
    uint8_t uses_wgmma;
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

/* What releases at an address have published, in a cooperative launch. */
typedef struct {
    uint64_t address;
    uint32_t *vector_clock; /* NULL: a free entry */
} sim_sync;

/* Blocks that run at once: a cluster, or all blocks of a cooperative launch. */
struct sim_cluster {
    sim_block *blocks;
    uint32_t size, extent[3]; /* blocks: of all, and by dimension */
    sim_sync *syncs;          /* a hash table */
    uint32_t sync_count, sync_capacity;
    uint32_t clock_words; /* of a vector clock */
    sim_bulk *copies;     /* pending ones, oldest first */
    uint32_t copy_count, copy_capacity;
    /* barrier.cluster */
    uint32_t phase, *arriving, *completed;
    uint64_t random;
};

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

/* Whether a block has threads that have not ended. */
static inline int sim_is_live(const sim_block *block)
{
    for (uint32_t w = 0; w < block->warp_count; w++)
        if (block->warps[w].live)
            return 1;
    return 0;
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
    case T_E4M3:
    case T_E5M2:
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
/* The same, with words. */
int sim_report_detail(sim_block *block, sim_fault_kind fault_type, const sim_instruction *at,
                      uint32_t thread, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
void sim_name_thread(const sim_block *block, uint32_t thread, uint32_t *out);

/* memory.c: the checked host address of `bytes` at an address of a space; NULL after a fault.
 * `value` are the bytes to write, if they are known. */
uint8_t *sim_reach(sim_block *block, sim_warp *warp, const sim_instruction *at, int lane,
                   sim_space space, uint64_t address, uint32_t bytes, sim_access access,
                   const uint8_t *value);
int sim_load(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask);
int sim_store(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask);
/* The range of global memory that has all of these bytes, or NULL. */
const sim_range *sim_find_range(sim_block *block, uint64_t address, uint32_t bytes);

static inline void sim_note_access(const sim_range *range, sim_access access)
{
    if (access != ACCESS_READ && range->is_written != NULL)
        atomic_store_explicit(range->is_written, 1, memory_order_relaxed);
}
uint64_t sim_address(const sim_block *block, const sim_warp *warp, const sim_operand *o, int lane);
int sim_bad_access(sim_block *block, sim_fault_kind fault_type, const sim_instruction *at,
                   uint32_t thread, sim_space space, uint64_t address, uint32_t bytes,
                   sim_access access);

/* races.c */
void sim_fence(sim_block *block, uint32_t flags);

/* Release and acquire at an address, or of a fence (0): the order of a cooperative launch.
 * vector_clocks.c */
int sim_synchronize(const sim_block *block, sim_warp *warp, uint64_t address, uint32_t flags);
void sim_free_syncs(sim_cluster *cluster);

/* atomics.c */
uint64_t sim_atomic_combine(uint32_t operation, sim_type type, uint64_t old, uint64_t by,
                            uint64_t with);
int sim_atomic(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask);

/* async_copy.c: cp.async */
int sim_copy_start(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask);
void sim_copy_commit(sim_warp *warp, uint32_t mask);
/* All copies of some lanes, committed or not. */
int sim_copy_complete(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask);
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

/* vector_clocks.c */
void sim_learn(const sim_block *block, uint32_t *clock, const uint32_t *from);
/* What others learn of a warp when it releases: its view, and its own accesses. */
void sim_publish(const sim_block *block, const sim_warp *warp, uint32_t *clock);

/* async/proxy.c: fence.proxy.async, fence.mbarrier_init */
void sim_proxy_fence(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask);

/* async/mbarrier.c */
int sim_mbarrier_run(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask);
int sim_mbarrier_wait(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask,
                      uint32_t *waiting);
int sim_mbarrier_is_complete(const sim_block *block, const sim_wait *wait);
/* The live mbarrier at an offset of a block's shared memory, or NULL. */
sim_mbarrier *sim_mbarrier_at(sim_block *block, uint64_t address);
/* The same, for an asynchronous copy that will signal it: NULL after a fault. */
sim_mbarrier *sim_mbarrier_signalled(sim_block *block, sim_warp *warp, const sim_instruction *at,
                                     int lane, sim_block *target, uint64_t address);
/* Bytes of a copy have arrived; `thread` is the one that has issued it. */
int sim_mbarrier_complete(sim_block *block, const sim_instruction *at, uint32_t thread,
                          sim_block *target, sim_mbarrier *mbarrier, uint32_t bytes,
                          uint32_t issue_phase, uint32_t agent, uint32_t clock);

/* async/cluster.c: barrier.cluster, mapa, getctarank, setmaxnreg */
/* The block that a shared::cluster address with a rank is of, and its offset there; NULL: none. */
sim_block *sim_find_rank(sim_block *block, uint64_t *address);
/* The same for an access of a thread, checked: NULL after a fault. */
sim_block *sim_reach_rank(sim_block *block, const sim_warp *warp, const sim_instruction *at,
                          uint32_t thread, uint64_t *address);
int sim_cluster_arrive(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask);
int sim_cluster_wait(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask,
                     uint32_t *waiting);
int sim_map_address(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask);
int sim_set_registers(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask,
                      uint32_t *waiting);
/* Completes the phase if all live lanes have arrived. Returns 1 if it did. */
int sim_cluster_release(sim_cluster *cluster);

/* async/bulk_copy.c */
int sim_bulk_start(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask);
void sim_bulk_commit(sim_warp *warp, uint32_t mask);
int sim_bulk_wait(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask);
/* Completes a pending copy that a blocked lane waits for, or else the oldest; 1: there is one. */
int sim_bulk_advance(sim_cluster *cluster, int *failed);
int sim_bulk_check_exit(sim_block *block);
/* Names the thread whose copy to these bytes of shared memory is pending, in the fault. */
void sim_bulk_name_copier(sim_block *target, uint64_t address, uint32_t bytes);
int sim_bulk_finish(sim_cluster *cluster);
void sim_bulk_free(sim_cluster *cluster);
/* Whether the schedule of the launch lets the next asynchronous operation happen at once. */
int sim_is_early(sim_cluster *cluster);

/* isa/fp8.c: e4m3 and e5m2; bits are rounded to nearest and to the largest finite value. */
float sim_fp8_value(sim_type type, uint32_t bits);
uint32_t sim_fp8_bits(sim_type type, double value);

/* async/wgmma.c */
int sim_wgmma_issue(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask,
                    uint32_t *waiting);
int sim_wgmma_wait(sim_block *block, sim_warp *warp, const sim_instruction *at);
int sim_wgmma_touch(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask);

/* block.c: resources for a launch; the state at its begin */
int sim_prepare_block(sim_block *block);
void sim_start_block(sim_block *block);
void sim_free_block(sim_block *block);

/* scheduling.c: lanes that wait, and reports of deadlocks */
uint32_t sim_wake(sim_block *block, sim_warp *warp);
int sim_report_deadlock(sim_cluster *cluster);

/* barriers.c: a warp whose lanes are all parked arrives; complete barriers resume their warps;
 * exiting lanes must not bypass one. */
int sim_park_warp(sim_block *block, sim_warp *warp);
int sim_arrive(sim_block *block, sim_warp *warp, const sim_instruction *at, int lane, int waits);
int sim_release(sim_block *block);
int sim_check_exit(sim_block *block, const sim_warp *warp, uint32_t ending);

/* warp.c: runs until every lane has exited, waits, or has polled without success. */
int sim_run_warp(sim_block *block, sim_warp *warp);

#endif
