/* The lane functions compiled for CPUs with AVX2 and FMA. The results are bit-identical. */
#if defined __x86_64__

#if defined __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif

#define NOVA_SIM_INTEGERS NOVA_SIM_INTEGERS_V3
#define NOVA_SIM_FLOATS NOVA_SIM_FLOATS_V3
#define NOVA_SIM_HALVES NOVA_SIM_HALVES_V3
#include "gpusim/isa/lanes_integer.c"
#include "gpusim/isa/lanes_float.c"
#include "gpusim/isa/lanes_half.c"

#if defined __clang__
#pragma clang attribute pop
#endif

#else
typedef int nova_sim_no_v3;
#endif
