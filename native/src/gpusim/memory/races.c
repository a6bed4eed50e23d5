#include "gpusim/memory/races.h"

static const char *agent_name(uint32_t agent)
{
    return agent >= AGENT_LOADS ? "a bulk copy" : agent >= AGENT_WGMMA ? "a wgmma" : "a bulk store";
}

int sim_report_race(sim_block *block, const sim_instruction *at, uint32_t thread, sim_space space,
                    uint64_t address, uint32_t bytes, sim_access access, const sim_shadow *word,
                    sim_stamp with)
{
    sim_fault *fault = block->fault;
    const uint32_t *grid = block->launch->grid;
    uint32_t serial = block_in(with) - block->first_serial - 1;
    fault->has_other = 1;
    fault->other_writes = word->write == with;
    fault->other_block[0] = serial % grid[0];
    fault->other_block[1] = serial / grid[0] % grid[1];
    fault->other_block[2] = serial / grid[0] / grid[1];
    if (thread_in(with) < BLOCK_THREADS) {
        sim_name_thread(block, thread_in(with), fault->other);
        return sim_bad_access(block, FAULT_RACE, at, thread, space, address, bytes, access);
    }
    fault->has_other = 0;
    (void)sim_bad_access(block, FAULT_OVERWRITE, at, thread, space, address, bytes, access);
    return sim_report_detail(block, fault->other_writes ? FAULT_PENDING_COPY : FAULT_OVERWRITE, at,
                             thread, "%s of block (%u, %u, %u)", agent_name(author_of(with)),
                             fault->other_block[0], fault->other_block[1], fault->other_block[2]);
}

void sim_fence(sim_block *block, uint32_t flags)
{
    if (flags & ACCESS_RELEASE)
        block->released[block->serial - block->first_serial] = 1;
    if (flags & ACCESS_ACQUIRE)
        block->acquired = 1;
}
