/* wgmma.mma_async: issued by the four warps of a warpgroup together, executed when one of them
 * waits for its group (or at once, by the schedule).
 *
 * Until a warp has waited, its accumulators and its registers of a are not to be touched; registers
 * that were touched need a wgmma.fence before the next wgmma. The shared memory is read by an agent
 * of the warpgroup: what a warp has waited for is ordered before its later releases. */
#include "gpusim/async/wgmma.h"

#include <stdlib.h>

enum { PENDING_WRITE = 1, PENDING_READ = 1 << 8 };
#define RESERVED_BITS UINT64_C(0x3ff1c000c000c000) /* of a descriptor */

static uint32_t wgmma_register_count(const sim_instruction *at)
{
    return at->results + (at->flags & WGMMA_REGISTERS_A ? 4u : 0u);
}

/* --- registers -------------------------------------------------------------------------------- */

int sim_wgmma_touch(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    if (at->op == OP_WGMMA)
        return 0;
    for (uint32_t i = 0; i < at->operands; i++) {
        const sim_operand *o = operand(block, at, i);
        if (o->kind != OPERAND_REGISTER)
            continue;
        for (uint32_t word = o->at; word < o->at + (o->width == 64 ? 2u : 1u); word++) {
            warp->touched_words[word] = warp->wgmma_fences;
            if (warp->pending_words[word] != 0)
                return sim_report_detail(
                    block, FAULT_ACCUMULATOR, at, thread_of(warp, lowest(mask)),
                    "%s of a wgmma that is not waited for",
                    warp->pending_words[word] & 0xff ? "an accumulator" : "a register of a");
        }
    }
    return 0;
}

/* Whether a pending wgmma has the same accumulators, so that the next one may add to them. */
static int wgmma_continues(const sim_block *block, const sim_warpgroup *group,
                           const sim_instruction *at)
{
    for (uint32_t i = group->pending_count; i-- > 0;) {
        const sim_instruction *other = group->pending[i].at;
        if (operand(block, other, 0)->at == operand(block, at, 0)->at)
            return other->target == at->target && other->type == at->type;
    }
    return 0;
}

static int wgmma_check_registers(sim_block *block, sim_warp *warp, const sim_warpgroup *group,
                                 const sim_instruction *at)
{
    uint32_t thread = thread_of(warp, 0);
    int continues = wgmma_continues(block, group, at);
    for (uint32_t i = 0; i < wgmma_register_count(at); i++) {
        const sim_operand *o = operand(block, at, i);
        if (o->kind != OPERAND_REGISTER)
            return sim_report_detail(block, FAULT_WGMMA, at, thread,
                                     "an operand is not a register");
        int is_result = i < at->results;
        uint16_t pending = warp->pending_words[o->at];
        if (is_result ? pending >> 8 || (pending && !continues) : pending & 0xff)
            return sim_report_detail(block, FAULT_ACCUMULATOR, at, thread,
                                     "a wgmma that is not waited for %s a register of %s",
                                     pending & 0xff ? "writes" : "reads",
                                     is_result ? "this result" : "a");
        if (warp->touched_words[o->at] == warp->wgmma_fences)
            return sim_report_detail(block, FAULT_WGMMA_FENCE, at, thread,
                                     "register %u of %s was accessed after the last wgmma.fence",
                                     is_result ? i : i - at->results,
                                     is_result ? "the accumulator" : "a");
    }
    return 0;
}

static void wgmma_mark(const sim_block *block, sim_warp *warp, const sim_instruction *at, int by)
{
    for (uint32_t i = 0; i < wgmma_register_count(at); i++) {
        int amount = by * (i < at->results ? PENDING_WRITE : PENDING_READ);
        uint16_t *pending = warp->pending_words + operand(block, at, i)->at;
        *pending = (uint16_t)(*pending + amount);
    }
}

/* --- shared memory ---------------------------------------------------------------------------- */

static int wgmma_check_matrix(sim_actor *actor, uint64_t descriptor, uint32_t rows,
                              uint32_t elements_of_chunk, int transposed)
{
    sim_matrix m = sim_read_descriptor(descriptor, rows, elements_of_chunk, transposed);
    for (uint32_t outer = 0; outer < m.outer; outer++)
        for (uint32_t chunk = 0; chunk < m.chunks; chunk++)
            if (sim_bulk_read_shared(actor, actor->block, sim_matrix_chunk(&m, outer, chunk), 16))
                return 1;
    return 0;
}

static int wgmma_check_shared(sim_block *block, uint32_t group, const sim_instruction *at,
                              uint64_t a, uint64_t b, uint32_t *clock)
{
    sim_warp *warps = block->warps + 4 * group;
    sim_actor actor = sim_make_actor(block, warps, at, 4 * group * LANES, AGENT_WGMMA + group);
    actor.warp_count = 4;
    for (uint32_t w = 0; w < 4; w++)
        actor.warps[w] = warps + w;
    *clock = actor.clock;
    uint32_t each = at->from == T_TF32 ? 4 : at->from == T_F16 || at->from == T_BF16 ? 8 : 16;
    if (!(at->flags & WGMMA_REGISTERS_A) &&
        wgmma_check_matrix(&actor, a, WGMMA_ROWS, each, (at->flags & WGMMA_TRANSPOSE_A) != 0))
        return 1;
    return wgmma_check_matrix(&actor, b, at->target, each, (at->flags & WGMMA_TRANSPOSE_B) != 0);
}

/* --- issue ------------------------------------------------------------------------------------ */

static sim_wgmma *wgmma_add(sim_warpgroup *group)
{
    if (group->pending_count == group->capacity) {
        uint32_t capacity = group->capacity ? 2 * group->capacity : 16;
        sim_wgmma *larger = realloc(group->pending, capacity * sizeof *larger);
        if (larger == NULL)
            return NULL;
        group->pending = larger, group->capacity = capacity;
    }
    return group->pending + group->pending_count++;
}

static int wgmma_start(sim_block *block, uint32_t number, const sim_instruction *at)
{
    sim_warpgroup *group = block->warpgroups + number;
    sim_warp *warps = block->warps + 4 * number;
    uint32_t thread = 4 * number * LANES, clock;
    for (uint32_t w = 0; w < 4; w++) {
        if (warps[w].wgmma_groups != warps->wgmma_groups)
            return sim_report_detail(block, FAULT_WGMMA, at, thread,
                                     "warps of the warpgroup have committed %u and %u groups",
                                     warps->wgmma_groups, warps[w].wgmma_groups);
        if (warps[w].thread_registers != warps->thread_registers)
            return sim_report_detail(block, FAULT_REGISTERS, at, thread,
                                     "warps of the warpgroup have %u and %u registers: all of them "
                                     "execute setmaxnreg",
                                     warps->thread_registers, warps[w].thread_registers);
        if (wgmma_check_registers(block, warps + w, group, at))
            return 1;
    }
    if (wgmma_check_shared(block, number, at, group->a, group->b, &clock))
        return 1;
    sim_wgmma *operation = wgmma_add(group);
    if (operation == NULL)
        return sim_report(block, FAULT_MEMORY, at, thread);
    *operation = (sim_wgmma){.at = at,
                             .a = group->a,
                             .b = group->b,
                             .group = warps->wgmma_groups,
                             .clock = clock,
                             .accumulates = (uint8_t)group->accumulates};
    for (uint32_t w = 0; w < 4; w++) {
        wgmma_mark(block, warps + w, at, 1);
        warps[w].pending_count++;
    }
    /* In order: an early one after a late one would pass it. */
    int is_first =
        group->pending_count == 1 || group->pending[group->pending_count - 2].is_executed;
    if (is_first && sim_is_early(block->cluster)) {
        sim_wgmma_compute(block, warps, operation);
        operation->is_executed = 1;
    }
    group->arrived = 0;
    group->count++;
    return 0;
}

/* A descriptor, which has to be the same in all lanes. */
static int wgmma_descriptor(sim_block *block, sim_warp *warp, const sim_instruction *at,
                            uint32_t number, uint64_t *value)
{
    const sim_operand *o = operand(block, at, number);
    *value = lane_value(block, warp, o, 0);
    for (int lane = 1; lane < LANES; lane++)
        if (lane_value(block, warp, o, lane) != *value)
            return sim_report_detail(block, FAULT_WGMMA, at, thread_of(warp, lane),
                                     "the descriptor is not the same in all lanes");
    if (*value & RESERVED_BITS)
        return sim_report_detail(block, FAULT_WGMMA, at, thread_of(warp, 0),
                                 "reserved bits of the descriptor %#llx are set",
                                 (unsigned long long)*value);
    return 0;
}

/* Operands: results, a (a descriptor, or four registers), b, scale-d. */
int sim_wgmma_issue(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask,
                    uint32_t *waiting)
{
    uint32_t number = warp->number / 4, thread = thread_of(warp, lowest(mask));
    sim_warpgroup *group = block->warpgroups + number;
    if (warp->wgmma_count < group->count) { /* the last warp to arrive has issued it */
        warp->wgmma_count++;
        return 0;
    }
    if (mask != ~0u)
        return sim_report(block, FAULT_DIVERGED, at, thread);
    if (4 * number + 4 > block->warp_count)
        return sim_report_detail(block, FAULT_WGMMA, at, thread,
                                 "the warpgroup has %u warps instead of 4",
                                 block->warp_count - 4 * number);
    uint64_t a = 0, b;
    uint32_t first = at->results, second = wgmma_register_count(at);
    if (!(at->flags & WGMMA_REGISTERS_A)) {
        if (wgmma_descriptor(block, warp, at, first, &a))
            return 1;
        second++;
    }
    uint32_t scale = predicate(block, warp, operand(block, at, second + 1));
    if (wgmma_descriptor(block, warp, at, second, &b))
        return 1;
    if (scale != 0 && scale != ~0u)
        return sim_report_detail(block, FAULT_WGMMA, at, thread,
                                 "scale-d is not the same in all lanes");
    if (group->arrived == 0) {
        group->at = at, group->a = a, group->b = b, group->accumulates = scale & 1;
    } else if (group->at != at || group->a != a || group->b != b ||
               group->accumulates != (scale & 1)) {
        return sim_report_detail(block, FAULT_WGMMA, at, thread,
                                 "another warp of the warpgroup executes line %u, or has other "
                                 "descriptors",
                                 group->at->line);
    }
    group->arrived |= (uint32_t)1 << warp->number % 4;
    if (group->arrived == 15) {
        warp->wgmma_count++;
        return wgmma_start(block, number, at);
    }
    *waiting = mask;
    for (int lane = 0; lane < LANES; lane++)
        warp->wait[lane] =
            (sim_wait){.reason = WAIT_WARPGROUP, .at = (uint32_t)(at - block->kernel->code)};
    return 0;
}

/* --- wait ------------------------------------------------------------------------------------- */

/* Forgets operations that all four warps have waited for. */
static void wgmma_drop(sim_warpgroup *group, const sim_warp *warps)
{
    uint32_t waited = UINT32_MAX, ended = 0;
    for (uint32_t w = 0; w < 4; w++)
        waited = warps[w].wgmma_waited < waited ? warps[w].wgmma_waited : waited;
    while (ended < group->pending_count && group->pending[ended].group < waited)
        ended++;
    group->pending_count -= ended;
    memmove(group->pending, group->pending + ended, group->pending_count * sizeof *group->pending);
}

int sim_wgmma_wait(sim_block *block, sim_warp *warp, const sim_instruction *at)
{
    uint32_t number = warp->number / 4;
    if (4 * number + 4 > block->warp_count)
        return 0;
    sim_warpgroup *group = block->warpgroups + number;
    sim_warp *warps = block->warps + 4 * number;
    uint32_t ended = warp->wgmma_groups > at->target ? warp->wgmma_groups - at->target : 0;
    if (ended <= warp->wgmma_waited)
        return 0;
    uint32_t *seen = warp->vector_clock + block->rank * CLOCK_ROW + AGENT_WGMMA + number;
    for (uint32_t i = 0; i < group->pending_count; i++) {
        sim_wgmma *operation = group->pending + i;
        if (operation->group >= ended)
            break;
        if (!operation->is_executed)
            sim_wgmma_compute(block, warps, operation);
        operation->is_executed = 1;
        *seen = *seen > operation->clock ? *seen : operation->clock;
        if (operation->group >= warp->wgmma_waited) {
            wgmma_mark(block, warp, operation->at, -1);
            warp->pending_count--;
        }
    }
    warp->wgmma_waited = ended;
    wgmma_drop(group, warps);
    return 0;
}
