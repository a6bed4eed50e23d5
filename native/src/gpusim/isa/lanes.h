/* Arithmetic of a warp: functions that compute all 32 lanes, by the PTX name of the instruction
 * without its modes. */
#ifndef NOVA_GPUSIM_ISA_LANES_H
#define NOVA_GPUSIM_ISA_LANES_H

#include "gpusim/isa/float_bits.h"
#include "gpusim/sim.h"

/* out and in[...] are 32 words of the row's widths (64: uint64_t, else uint32_t); out is identical
 * to an operand or disjoint from all. Words of 16 bits have a zero upper half. */
typedef void (*lane_function)(void *out, const void *const *in);

typedef struct {
    sim_lane_facts facts;
    lane_function function;
} lane_row;

/* Tables end with a row without a name. Those of lanes_avx2.c are the same for CPUs with AVX2 and
 * FMA. */
extern const lane_row NOVA_SIM_INTEGERS[], NOVA_SIM_FLOATS[], NOVA_SIM_HALVES[];
extern const lane_row NOVA_SIM_INTEGERS_V3[], NOVA_SIM_FLOATS_V3[], NOVA_SIM_HALVES_V3[];

/* The function of a row of nova_sim_lane. */
lane_function sim_lane_function(uint32_t detail);

typedef uint32_t u32;
typedef int32_t s32;
typedef uint64_t u64;
typedef int64_t s64;

/* out may be a, b or c: lanes are independent. */
#if defined __clang__
#define ALL_LANES _Pragma("clang loop vectorize(assume_safety)") for (int i = 0; i < LANES; i++)
#else
#define ALL_LANES _Pragma("GCC ivdep") for (int i = 0; i < LANES; i++)
#endif

/* A function: name, C types of the result and the operands, and an expression over a, b, c and
 * d. */
#define LANE_FUNCTION(N, O, READ, E)                                                               \
    static void N(void *out, const void *const *in)                                                \
    {                                                                                              \
        ALL_LANES                                                                                  \
        {                                                                                          \
            READ;                                                                                  \
            ((O *)out)[i] = (O)(E);                                                                \
        }                                                                                          \
    }
#define READ_(T, name, number) T name = ((const T *)in[number])[i]
#define LANE1(N, O, A, E) LANE_FUNCTION(N, O, READ_(A, a, 0), E)
#define LANE2(N, O, A, B, E) LANE_FUNCTION(N, O, READ_(A, a, 0); READ_(B, b, 1), E)
#define LANE3(N, O, A, B, C, E)                                                                    \
    LANE_FUNCTION(N, O, READ_(A, a, 0); READ_(B, b, 1); READ_(C, c, 2), E)
#define LANE4(N, O, A, B, C, D, E)                                                                 \
    LANE_FUNCTION(N, O, READ_(A, a, 0); READ_(B, b, 1); READ_(C, c, 2); READ_(D, d, 3), E)

/* A row: name, function, bits of the result, bits of the operands. */
#define ROW(name, f, out, ...) {{name, out, {__VA_ARGS__}}, f}
#define LAST_ROW {{NULL, 0, {0}}, NULL}

#endif
