/* Selects the lane functions for this CPU, under one numbering. */
#include "gpusim/isa/lanes.h"

enum { TABLES = 3 };

static const lane_row *const LANES_PLAIN[TABLES] = {NOVA_SIM_INTEGERS, NOVA_SIM_FLOATS,
                                                    NOVA_SIM_HALVES};
#if defined __x86_64__
static const lane_row *const LANES_V3[TABLES] = {NOVA_SIM_INTEGERS_V3, NOVA_SIM_FLOATS_V3,
                                                 NOVA_SIM_HALVES_V3};
#endif

static const lane_row *const *lanes_tables_of_cpu(void)
{
#if defined __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return LANES_V3;
#endif
    return LANES_PLAIN;
}

static const lane_row *lanes_find_row(uint32_t detail)
{
    const lane_row *const *tables = lanes_tables_of_cpu();
    for (int t = 0; t < TABLES; t++)
        for (const lane_row *row = tables[t]; row->facts.name != NULL; row++)
            if (detail-- == 0)
                return row;
    return NULL;
}

const sim_lane_facts *nova_sim_lane(uint32_t detail)
{
    const lane_row *row = lanes_find_row(detail);
    return row == NULL ? NULL : &row->facts;
}

lane_function sim_lane_function(uint32_t detail)
{
    const lane_row *row = lanes_find_row(detail);
    return row == NULL ? NULL : row->function;
}
