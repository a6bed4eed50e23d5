/* Arithmetic of a warp: functions that compute all 32 lanes, by the PTX name of the instruction. */
#ifndef NOVA_SIM_LANES_H
#define NOVA_SIM_LANES_H

#include "sim.h"

/* out, a, b and c are 32 words of the row's widths (64: uint64_t, else uint32_t); out is apart from the rest. */
typedef void (*lane_function)(void *out, const void *a, const void *b, const void *c);

typedef struct {
    const char *name;
    lane_function function;
    uint8_t out, in[3]; /* bits; 0 for none */
} lane_row;

extern const lane_row NOVA_SIM_LANES[];
extern const uint32_t NOVA_SIM_LANE_COUNT;

#endif
