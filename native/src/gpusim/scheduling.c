/* Lanes that wait for something other than a barrier of their block: when they go on, and what a
 * deadlock consists of. */
#include <stdarg.h>
#include <stdio.h>

#include "gpusim/state.h"

static int scheduling_can_go_on(const sim_block *block, const sim_warp *warp, const sim_wait *wait)
{
    switch (wait->reason) {
    case WAIT_MBARRIER:
        return sim_mbarrier_is_complete(block, wait);
    case WAIT_CLUSTER:
        return block->cluster->phase != wait->phase;
    case WAIT_REGISTERS:
        return block->free_registers >= wait->phase;
    default:
        return block->warpgroups[warp->number / 4].count > warp->wgmma_count;
    }
}

/* Unblocks lanes; returns those that can run. */
uint32_t sim_wake(sim_block *block, sim_warp *warp)
{
    for (uint32_t lanes = warp->blocked; lanes != 0; lanes &= lanes - 1) {
        int lane = lowest(lanes);
        if (scheduling_can_go_on(block, warp, warp->wait + lane))
            warp->blocked &= ~((uint32_t)1 << lane);
    }
    return warp->live & ~warp->blocked & ~warp->parked & ~warp->deferred;
}

int sim_report_detail(sim_block *block, sim_fault_kind fault_type, const sim_instruction *at,
                      uint32_t thread, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(block->fault->detail, sizeof block->fault->detail, format, arguments);
    va_end(arguments);
    return sim_report(block, fault_type, at, thread);
}

typedef struct {
    char *text;
    size_t size, length;
} sim_text;

__attribute__((format(printf, 2, 3))) static void scheduling_say(sim_text *out, const char *format,
                                                                 ...)
{
    va_list arguments;
    va_start(arguments, format);
    int count = vsnprintf(out->text + out->length, out->size - out->length, format, arguments);
    va_end(arguments);
    if (count > 0)
        out->length +=
            (size_t)count < out->size - out->length ? (size_t)count : out->size - out->length - 1;
}

static void scheduling_describe_mbarrier(const sim_block *block, const sim_wait *wait,
                                         sim_text *out)
{
    const sim_mbarrier *m = block->cluster->blocks[wait->rank].mbarriers + wait->number;
    scheduling_say(out, "mbarrier at 0x%x", m->address);
    if (wait->rank != block->rank)
        scheduling_say(out, " of rank %u", wait->rank);
    scheduling_say(out, ", phase %u: %u of %u arrivals", m->phase, m->expected - m->pending,
                   m->expected);
    if (m->bytes > 0)
        scheduling_say(out, ", %lld bytes missing", (long long)m->bytes);
    else if (m->bytes < 0)
        scheduling_say(out, ", %lld bytes too many", -(long long)m->bytes);
    if (m->bytes != 0 && m->last_expect != NULL)
        scheduling_say(out, " (expected at line %u)", m->last_expect->line);
}

/* The instruction that a lane of a warp waits at, or polls at in vain. */
static const sim_instruction *scheduling_location(const sim_block *block, const sim_warp *warp,
                                                  int lane)
{
    return block->kernel->code + (warp->blocked ? warp->wait[lane].at
                                  : warp->polls ? warp->polled_at
                                                : warp->at_barrier[lane]);
}

static void scheduling_describe(const sim_block *block, const sim_warp *warp, int lane,
                                sim_text *out)
{
    const sim_wait *wait = warp->wait + lane;
    const sim_instruction *at = scheduling_location(block, warp, lane);
    if (block->cluster->size > 1)
        scheduling_say(out, "block (%u, %u, %u), ", block->index[0], block->index[1],
                       block->index[2]);
    scheduling_say(out, "warp %u, line %u: ", warp->number, at->line);
    if (!warp->blocked && warp->polls && at->op == OP_LOAD)
        scheduling_say(out, "a value of memory");
    else if (!warp->blocked && !warp->polls)
        scheduling_say(out, "barrier %u", warp->waits ? warp->waits - 1 : 0);
    else if (wait->reason == WAIT_MBARRIER)
        scheduling_describe_mbarrier(block, wait, out);
    else if (wait->reason == WAIT_CLUSTER)
        scheduling_say(out, "barrier.cluster");
    else if (wait->reason == WAIT_REGISTERS)
        scheduling_say(out, "setmaxnreg: %u registers, %u are free", wait->phase,
                       block->free_registers);
    else
        scheduling_say(out, "wgmma: the other warps of the warpgroup");
}

/* A phase whose arrivals are complete, and whose bytes never will be. */
static int scheduling_lacks_bytes(const sim_block *block, const sim_warp *warp, int lane)
{
    const sim_wait *wait = warp->wait + lane;
    if (!warp->blocked || wait->reason != WAIT_MBARRIER)
        return 0;
    const sim_mbarrier *m = block->cluster->blocks[wait->rank].mbarriers + wait->number;
    return m->pending == 0 && m->bytes != 0;
}

/* No warp can run: the report is of the first one, of one that lacks bytes if there is any, and
 * lists what all of them wait for. */
int sim_report_deadlock(sim_cluster *cluster)
{
    sim_fault *fault = cluster->blocks->fault;
    sim_text out = {fault->detail, sizeof fault->detail, 0};
    sim_block *reported = NULL;
    const sim_warp *reported_warp = NULL;
    sim_fault_kind fault_type = FAULT_DEADLOCK;
    for (uint32_t b = 0; b < cluster->size; b++)
        for (uint32_t w = 0; w < cluster->blocks[b].warp_count; w++) {
            sim_block *block = cluster->blocks + b;
            const sim_warp *warp = block->warps + w;
            if (!warp->live)
                continue;
            int lane = lowest(warp->blocked ? warp->blocked : warp->live);
            if (out.length > 0)
                scheduling_say(&out, "\n  ");
            scheduling_describe(block, warp, lane, &out);
            int lacks = scheduling_lacks_bytes(block, warp, lane);
            if (reported == NULL || (lacks && fault_type == FAULT_DEADLOCK)) {
                reported = block, reported_warp = warp;
                fault_type = lacks ? FAULT_EXPECT_TX : FAULT_DEADLOCK;
            }
        }
    int lane = lowest(reported_warp->blocked ? reported_warp->blocked : reported_warp->live);
    return sim_report(reported, fault_type, scheduling_location(reported, reported_warp, lane),
                      thread_of(reported_warp, lane));
}
