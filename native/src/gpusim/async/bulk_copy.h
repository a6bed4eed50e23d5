/* Pending bulk copies; shared between the files of bulk copies. */
#ifndef NOVA_GPUSIM_ASYNC_BULK_COPY_H
#define NOVA_GPUSIM_ASYNC_BULK_COPY_H

#include "gpusim/async/tensor_map.h"
#include "gpusim/memory/bulk_access.h"

typedef enum { STAGE_ISSUED, STAGE_READ, STAGE_WRITTEN } bulk_stage;

struct sim_bulk {
    const sim_instruction *at;
    sim_block *block;
    uint32_t thread, group, agent, clock;
    bulk_stage stage;
    uint32_t targets; /* loads: ranks that get the bytes */
    uint32_t shared, bytes, mbarrier;
    uint32_t region; /* bytes of shared memory that a swizzle may reach */
    uint64_t global;
    uint32_t phases[MOST_CLUSTER]; /* of the mbarriers, when it was issued */
    sim_tiling map;
    int32_t coordinates[TENSOR_DIMS];
    uint8_t *data; /* stores, after the read */
};

static inline int bulk_is_load(const sim_bulk *copy)
{
    return copy->at->detail == BULK_LOAD || copy->at->detail == BULK_SEND;
}

/* bulk_bytes.c: moves the bytes of a load to shared memory; of a store from there, then out. */
void sim_bulk_move_in(sim_bulk *copy);
void sim_bulk_take(sim_bulk *copy);
void sim_bulk_move_out(sim_bulk *copy);

#endif
