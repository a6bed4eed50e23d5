/* mbarrier objects: arrivals and bytes of asynchronous copies complete their phases.
 *
 * A token of an arrival is the number of its phase + 1, and the pending arrivals from bit 32 on. */
#include <stdlib.h>

#include "gpusim/memory/races.h"

enum { MBARRIER_BYTES = 8, MOST_ARRIVALS = (1 << 20) - 1, MOST_TX_BYTES = (1 << 20) - 1 };

sim_mbarrier *sim_mbarrier_at(sim_block *block, uint64_t address)
{
    for (uint32_t i = 0; i < block->mbarrier_count; i++)
        if (block->mbarriers[i].is_live && block->mbarriers[i].address == address)
            return block->mbarriers + i;
    return NULL;
}

/* --- completion of a phase -------------------------------------------------------------------- */

static void mbarrier_advance(sim_block *target, sim_mbarrier *m)
{
    if (m->pending != 0 || m->bytes != 0)
        return;
    sim_learn(target, m->completed, m->arriving);
    memset(m->arriving, 0, target->cluster->clock_words * sizeof *m->arriving);
    m->pending = m->expected;
    m->phase++;
}

static int mbarrier_expect(sim_block *block, sim_mbarrier *m, const sim_instruction *at,
                           uint32_t thread, int64_t bytes)
{
    m->bytes += bytes;
    if (bytes > 0)
        m->last_expect = at;
    if (m->bytes > MOST_TX_BYTES || m->bytes < -MOST_TX_BYTES)
        return sim_report_detail(block, FAULT_EXPECT_TX, at, thread,
                                 "the mbarrier at 0x%x expects %lld bytes: 2^20 - 1 are the most",
                                 m->address, (long long)m->bytes);
    return 0;
}

static int mbarrier_arrive(sim_block *block, sim_mbarrier *m, const sim_instruction *at,
                           uint32_t thread, uint64_t count)
{
    if (count == 0 || count > m->pending)
        return sim_report_detail(
            block, FAULT_MBARRIER, at, thread,
            "%llu arrivals at the mbarrier at 0x%x, whose phase %u still expects "
            "%u of %u",
            (unsigned long long)count, m->address, m->phase, m->pending, m->expected);
    m->pending -= (uint32_t)count;
    return 0;
}

int sim_mbarrier_complete(sim_block *block, const sim_instruction *at, uint32_t thread,
                          sim_block *target, sim_mbarrier *m, uint32_t bytes, uint32_t issue_phase,
                          uint32_t agent, uint32_t clock)
{
    if (m->phase != issue_phase)
        return sim_report_detail(
            block, FAULT_EXPECT_TX, at, thread,
            "phase %u of the mbarrier at 0x%x was complete before the %u bytes of this copy "
            "arrived%s%u",
            issue_phase, m->address, bytes,
            m->last_expect != NULL ? ": too few are expected at line " : "; nothing expects them: ",
            m->last_expect != NULL ? m->last_expect->line : 0);
    uint32_t *entry = m->arriving + block->rank * CLOCK_ROW + agent;
    *entry = *entry > clock ? *entry : clock;
    int failed = mbarrier_expect(block, m, at, thread, -(int64_t)bytes);
    if (!failed)
        mbarrier_advance(target, m);
    return failed;
}

/* --- instructions ----------------------------------------------------------------------------- */

static int mbarrier_add(sim_block *block, sim_mbarrier **created)
{
    if (block->mbarrier_count == block->mbarrier_capacity) {
        uint32_t capacity = block->mbarrier_capacity ? 2 * block->mbarrier_capacity : 16;
        sim_mbarrier *larger = realloc(block->mbarriers, capacity * sizeof *larger);
        if (larger == NULL)
            return 1;
        memset(larger + block->mbarrier_capacity, 0,
               (capacity - block->mbarrier_capacity) * sizeof *larger);
        block->mbarriers = larger, block->mbarrier_capacity = capacity;
    }
    sim_mbarrier *m = block->mbarriers + block->mbarrier_count;
    uint32_t words = block->cluster->clock_words;
    if (m->arriving == NULL && (m->arriving = malloc(2 * words * sizeof *m->arriving)) == NULL)
        return 1;
    m->completed = m->arriving + words;
    memset(m->arriving, 0, 2 * words * sizeof *m->arriving);
    block->mbarrier_count++;
    *created = m;
    return 0;
}

static int mbarrier_init(sim_block *block, sim_warp *warp, const sim_instruction *at, int lane,
                         uint64_t address, uint64_t count)
{
    uint32_t thread = thread_of(warp, lane);
    if (sim_mbarrier_at(block, address) != NULL)
        return sim_report_detail(block, FAULT_MBARRIER, at, thread,
                                 "there is an mbarrier at 0x%x already: mbarrier.inval comes first",
                                 (uint32_t)address);
    if (count == 0 || count > MOST_ARRIVALS)
        return sim_report_detail(block, FAULT_MBARRIER, at, thread, "%llu expected arrivals",
                                 (unsigned long long)count);
    uint8_t zeros[MBARRIER_BYTES] = {0};
    uint8_t *object =
        sim_reach(block, warp, at, lane, SPACE_SHARED, address, MBARRIER_BYTES, ACCESS_WRITE, NULL);
    sim_mbarrier *m = NULL;
    if (object == NULL)
        return 1;
    if (mbarrier_add(block, &m))
        return sim_report(block, FAULT_MEMORY, at, thread);
    memcpy(object, zeros, sizeof zeros);
    memset(block->shared_state + address, STATE_MBARRIER, MBARRIER_BYTES);
    uint32_t *clocks = m->arriving;
    *m = (sim_mbarrier){.address = (uint32_t)address,
                        .expected = (uint32_t)count,
                        .pending = (uint32_t)count,
                        .is_live = 1,
                        .creator = thread,
                        .created = make_stamp(block, warp, thread, 0),
                        .arriving = clocks,
                        .completed = clocks + block->cluster->clock_words};
    return 0;
}

/* The mbarrier of a lane's operand, in this block or another one of the cluster. */
static sim_mbarrier *mbarrier_find(sim_block *block, sim_warp *warp, const sim_instruction *at,
                                   int lane, sim_block *target, uint64_t address)
{
    uint32_t thread = thread_of(warp, lane);
    sim_mbarrier *m = sim_mbarrier_at(target, address);
    if (m == NULL) {
        sim_report_detail(
            block, FAULT_MBARRIER, at, thread,
            "there is no mbarrier at 0x%x of shared memory: mbarrier.init comes first",
            (uint32_t)address);
        return NULL;
    }
    if (block->launch->check_races && !is_ordered(block, warp, thread, SPACE_SHARED, m->created)) {
        sim_name_thread(block, m->creator, block->fault->other);
        memcpy(block->fault->other_block, target->index, sizeof target->index);
        block->fault->has_other = 1;
        sim_report_detail(block, FAULT_MBARRIER, at, thread,
                          "nothing orders the mbarrier.init of 0x%x before it", (uint32_t)address);
        return NULL;
    }
    return m;
}

sim_mbarrier *sim_mbarrier_signalled(sim_block *block, sim_warp *warp, const sim_instruction *at,
                                     int lane, sim_block *target, uint64_t address)
{
    sim_mbarrier *m = mbarrier_find(block, warp, at, lane, target, address);
    if (m == NULL || m->is_fenced)
        return m;
    sim_report_detail(block, FAULT_PROXY, at, thread_of(warp, lane),
                      "the mbarrier.init of 0x%x may not be visible to the copy: "
                      "fence.mbarrier_init.release.cluster comes after it",
                      (uint32_t)address);
    return NULL;
}

static sim_block *mbarrier_block(sim_block *block, sim_warp *warp, const sim_instruction *at,
                                 int lane, const sim_operand *o, uint64_t *address)
{
    *address = sim_address(block, warp, o, lane);
    if (*address >= SHARED_WINDOW && *address < LOCAL_WINDOW)
        *address -= SHARED_WINDOW; /* generic */
    if (*address % MBARRIER_BYTES != 0) {
        sim_bad_access(block, FAULT_ALIGNMENT, at, thread_of(warp, lane), SPACE_SHARED, *address,
                       MBARRIER_BYTES, ACCESS_WRITE);
        return NULL;
    }
    return *address >> CLUSTER_SHIFT == 0
               ? block
               : sim_reach_rank(block, warp, at, thread_of(warp, lane), address);
}

static uint64_t mbarrier_token(const sim_mbarrier *m)
{
    return ((uint64_t)m->phase + 1) | (uint64_t)m->pending << 32;
}

/* cp.async.mbarrier.arrive: the copies of the thread so far arrive when they are complete. Here
 * they complete now; what reads their bytes is ordered by the mbarrier. */
static int mbarrier_arrive_copies(sim_block *block, sim_warp *warp, const sim_instruction *at,
                                  int lane, sim_mbarrier *m)
{
    if (sim_copy_complete(block, warp, at, (uint32_t)1 << lane))
        return 1;
    if (!(at->flags & MBARRIER_NO_INCREMENT))
        m->pending++;
    return mbarrier_arrive(block, m, at, thread_of(warp, lane), 1);
}

static int mbarrier_run_lane(sim_block *block, sim_warp *warp, const sim_instruction *at, int lane)
{
    int has_token = at->detail == MBARRIER_ARRIVE || at->detail == MBARRIER_ARRIVE_EXPECT_TX;
    uint32_t thread = thread_of(warp, lane), first = has_token ? 1 : 0;
    if (at->detail == MBARRIER_COUNT) {
        uint64_t token = lane_value(block, warp, operand(block, at, 1), lane);
        put_lane(warp, operand(block, at, 0), lane, token >> 32);
        return 0;
    }
    uint64_t address, value = 0;
    sim_block *target = mbarrier_block(block, warp, at, lane, operand(block, at, first), &address);
    if (target == NULL)
        return 1;
    if (at->operands > first + 1)
        value = lane_value(block, warp, operand(block, at, first + 1), lane);
    if (target != block && (at->detail == MBARRIER_INIT || at->detail == MBARRIER_INVALIDATE))
        return sim_report_detail(block, FAULT_MBARRIER, at, thread,
                                 "a block initializes and invalidates its own mbarriers only");
    if (at->detail == MBARRIER_INIT)
        return mbarrier_init(block, warp, at, lane, address, value);
    sim_mbarrier *m = mbarrier_find(block, warp, at, lane, target, address);
    if (m == NULL)
        return 1;
    uint64_t token = mbarrier_token(m);
    int failed = 0;
    switch (at->detail) {
    case MBARRIER_INVALIDATE:
        m->is_live = 0;
        memset(block->shared_state + address, 0, MBARRIER_BYTES);
        return 0;
    case MBARRIER_EXPECT_TX:
        failed = mbarrier_expect(block, m, at, thread, (int64_t)value);
        break;
    case MBARRIER_COMPLETE_TX:
        failed = mbarrier_expect(block, m, at, thread, -(int64_t)value);
        break;
    case MBARRIER_ARRIVE_COPIES:
        failed = mbarrier_arrive_copies(block, warp, at, lane, m);
        break;
    case MBARRIER_ARRIVE_EXPECT_TX:
        failed = mbarrier_expect(block, m, at, thread, (int64_t)value) ||
                 mbarrier_arrive(block, m, at, thread, 1);
        break;
    default:
        failed = mbarrier_arrive(block, m, at, thread, value);
        if (!failed && at->flags & MBARRIER_DROPS)
            m->expected -= (uint32_t)value;
        break;
    }
    if (failed)
        return 1;
    if (at->flags & ACCESS_RELEASE)
        sim_publish(block, warp, m->arriving);
    mbarrier_advance(target, m);
    if (has_token)
        put_lane(warp, operand(block, at, 0), lane, token);
    return 0;
}

int sim_mbarrier_run(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    for (int lane = 0; lane < LANES; lane++)
        if (mask >> lane & 1 && mbarrier_run_lane(block, warp, at, lane))
            return 1;
    warp->clock++;
    return 0;
}

static int mbarrier_has_passed(const sim_mbarrier *m, int by_parity, uint64_t value)
{
    return by_parity ? (m->phase & 1) != (value & 1) : m->phase >= (uint32_t)value;
}

int sim_mbarrier_is_complete(const sim_block *block, const sim_wait *wait)
{
    const sim_mbarrier *m = block->cluster->blocks[wait->rank].mbarriers + wait->number;
    return !m->is_live || mbarrier_has_passed(m, wait->parity != 2,
                                              wait->parity == 2 ? wait->phase : wait->parity);
}

/* Operands: p, address, parity or token. A try_wait blocks until the phase is complete, which PTX
 * allows; a test_wait that fails lets other warps run. */
int sim_mbarrier_wait(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask,
                      uint32_t *waiting)
{
    uint32_t passed = 0;
    for (int lane = 0; lane < LANES; lane++) {
        if (!(mask >> lane & 1))
            continue;
        uint64_t address;
        sim_block *target = mbarrier_block(block, warp, at, lane, operand(block, at, 1), &address);
        if (target == NULL)
            return 1;
        sim_mbarrier *m = mbarrier_find(block, warp, at, lane, target, address);
        if (m == NULL)
            return 1;
        uint64_t value = lane_value(block, warp, operand(block, at, 2), lane);
        int by_parity = (at->flags & WAIT_PARITY) != 0;
        if (mbarrier_has_passed(m, by_parity, value)) {
            passed |= (uint32_t)1 << lane;
            if (at->flags & WAIT_ACQUIRES)
                sim_learn(block, warp->vector_clock, m->completed);
            continue;
        }
        warp->wait[lane] = (sim_wait){.reason = WAIT_MBARRIER,
                                      .parity = by_parity ? (uint8_t)(value & 1) : 2,
                                      .rank = (uint16_t)target->rank,
                                      .number = (uint32_t)(m - target->mbarriers),
                                      .phase = (uint32_t)value,
                                      .at = (uint32_t)(at - block->kernel->code)};
    }
    if (at->flags & WAIT_POLLS) {
        if (passed != mask)
            warp->polls = POLLS_MBARRIER;
        put_predicate(warp, operand(block, at, 0), passed, mask);
        return 0;
    }
    *waiting = mask & ~passed;
    put_predicate(warp, operand(block, at, 0), passed, passed);
    return 0;
}
