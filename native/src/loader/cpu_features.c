/* What this processor has, by LLVM's names: those of nova/core/cpu_features.py, in its order. */
#define _GNU_SOURCE /* getauxval, syscall */

#include <elf.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "loader/reader.h"

/* The levels that a process can be held to, as nova/knobs.py names them; each has the ones
 * before. */
enum { BASELINE = 1, V2, V3, V4, ALL };

static const struct {
    const char *name;
    unsigned char level;
} CPU_LEVELS[] = {
    {"x86_64", BASELINE}, {"x86_64-v2", V2},     {"x86_64-v3", V3},
    {"x86_64-v4", V4},    {"aarch64", BASELINE},
};

/* The limit set by the program; 0: the environment decides. */
static atomic_uint cpu_limit;

void nova_cpu_limit(unsigned level)
{
    atomic_store(&cpu_limit, level);
}

static unsigned char cpu_requested_level(void)
{
    unsigned level = atomic_load(&cpu_limit);
    if (level != 0)
        return (unsigned char)(level < ALL ? level : ALL);
    const char *name = getenv("NOVA_CPU_LEVEL");
    for (size_t i = 0; name != NULL && i < sizeof CPU_LEVELS / sizeof *CPU_LEVELS; i++)
        if (strcmp(CPU_LEVELS[i].name, name) == 0)
            return CPU_LEVELS[i].level;
    return ALL;
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of Linux' <asm/prctl.h>, which older systems have without them. */
enum { REQUEST_STATE = 0x1023, TILE_DATA = 18 };

enum { LEAF1_C, LEAF7_B, LEAF7_C, LEAF7_D, LEAF7_1_A, EXTENDED_C };
enum { PLAIN, YMM, ZMM, TILES };

/* clang-format off */
static const struct feature {
    const char *name;
    unsigned char word, bit, needs, level;
} CPU_FEATURES[] = {
    {"sse3", LEAF1_C, 0, PLAIN, V2},
    {"ssse3", LEAF1_C, 9, PLAIN, V2},
    {"sse4.1", LEAF1_C, 19, PLAIN, V2},
    {"sse4.2", LEAF1_C, 20, PLAIN, V2},
    {"sse4a", EXTENDED_C, 6, PLAIN, ALL},
    {"popcnt", LEAF1_C, 23, PLAIN, V2},
    {"cx16", LEAF1_C, 13, PLAIN, V2},
    {"sahf", EXTENDED_C, 0, PLAIN, V2},
    {"movbe", LEAF1_C, 22, PLAIN, V3},
    {"aes", LEAF1_C, 25, PLAIN, ALL},
    {"pclmul", LEAF1_C, 1, PLAIN, ALL},
    {"avx", LEAF1_C, 28, YMM, V3},
    {"f16c", LEAF1_C, 29, YMM, V3},
    {"fma", LEAF1_C, 12, YMM, V3},
    {"avx2", LEAF7_B, 5, YMM, V3},
    {"bmi", LEAF7_B, 3, PLAIN, V3},
    {"bmi2", LEAF7_B, 8, PLAIN, V3},
    {"lzcnt", EXTENDED_C, 5, PLAIN, V3},
    {"adx", LEAF7_B, 19, PLAIN, ALL},
    {"sha", LEAF7_B, 29, PLAIN, ALL},
    {"gfni", LEAF7_C, 8, PLAIN, ALL},
    {"vaes", LEAF7_C, 9, YMM, ALL},
    {"vpclmulqdq", LEAF7_C, 10, YMM, ALL},
    {"avxvnni", LEAF7_1_A, 4, YMM, ALL},
    {"avx512f", LEAF7_B, 16, ZMM, V4},
    {"avx512cd", LEAF7_B, 28, ZMM, V4},
    {"avx512bw", LEAF7_B, 30, ZMM, V4},
    {"avx512dq", LEAF7_B, 17, ZMM, V4},
    {"avx512vl", LEAF7_B, 31, ZMM, V4},
    {"avx512ifma", LEAF7_B, 21, ZMM, ALL},
    {"avx512vbmi", LEAF7_C, 1, ZMM, ALL},
    {"avx512vbmi2", LEAF7_C, 6, ZMM, ALL},
    {"avx512vnni", LEAF7_C, 11, ZMM, ALL},
    {"avx512bitalg", LEAF7_C, 12, ZMM, ALL},
    {"avx512vpopcntdq", LEAF7_C, 14, ZMM, ALL},
    {"avx512bf16", LEAF7_1_A, 5, ZMM, ALL},
    {"avx512fp16", LEAF7_D, 23, ZMM, ALL},
    {"amx-tile", LEAF7_D, 24, TILES, ALL},
    {"amx-int8", LEAF7_D, 25, TILES, ALL},
    {"amx-bf16", LEAF7_D, 22, TILES, ALL},
};
/* clang-format on */

uint16_t nova_cpu_machine(void)
{
    return EM_X86_64;
}

/* Whether this process may use AMX tiles. The system requires a request, as signal frames grow by 8
 * KiB, and refuses if an alternate stack is too small for them. The request is made on first use;
 * repeating it has no effect. */
static bool cpu_may_use_tiles(const nova_cpu *cpu)
{
    return !cpu->asks_for_tiles || syscall(SYS_arch_prctl, REQUEST_STATE, TILE_DATA) == 0;
}

static bool cpu_saves(const nova_cpu *cpu, unsigned needs)
{
    return needs == PLAIN || (needs == YMM && cpu->saves_ymm) || (needs == ZMM && cpu->saves_zmm) ||
           (needs == TILES && cpu->saves_tiles && cpu_may_use_tiles(cpu));
}

void nova_cpu_read(nova_cpu *cpu)
{
    *cpu = (nova_cpu){.level = cpu_requested_level()};
    unsigned a, b, c, d;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        cpu->words[LEAF7_B] = b;
        cpu->words[LEAF7_C] = c;
        cpu->words[LEAF7_D] = d;
        if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d))
            cpu->words[LEAF7_1_A] = a;
    }
    if (__get_cpuid(0x80000001, &a, &b, &c, &d))
        cpu->words[EXTENDED_C] = c;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return;
    cpu->words[LEAF1_C] = c;
    if (c & 1u << 27) { /* xgetbv may be used: which registers does the system save? */
        unsigned low, high;
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        (void)high;
        cpu->saves_ymm = (low & 0x6) == 0x6;
        cpu->saves_zmm = (low & 0xe6) == 0xe6;
        cpu->saves_tiles = (low & 0x60000) == 0x60000;
        cpu->asks_for_tiles = true;
    }
}

#elif defined(__aarch64__)
#include <sys/auxv.h>

enum { CAPABILITIES, CAPABILITIES_2 };
enum { PLAIN };

/* The bits of Linux' <asm/hwcap.h>, which no C library repeats in full. */
/* clang-format off */
static const struct feature {
    const char *name;
    unsigned char word, bit, needs, level;
} CPU_FEATURES[] = {
    {"neon", CAPABILITIES, 1, PLAIN, BASELINE},
    {"fullfp16", CAPABILITIES, 10, PLAIN, ALL},
    {"dotprod", CAPABILITIES, 20, PLAIN, ALL},
    {"lse", CAPABILITIES, 8, PLAIN, ALL},
    {"aes", CAPABILITIES, 3, PLAIN, ALL},
    {"sha2", CAPABILITIES, 6, PLAIN, ALL},
    {"crc", CAPABILITIES, 7, PLAIN, ALL},
    {"bf16", CAPABILITIES_2, 14, PLAIN, ALL},
    {"i8mm", CAPABILITIES_2, 13, PLAIN, ALL},
};
/* clang-format on */

uint16_t nova_cpu_machine(void)
{
    return EM_AARCH64;
}

static bool cpu_saves(const nova_cpu *cpu, unsigned needs)
{
    (void)cpu;
    return needs == PLAIN;
}

void nova_cpu_read(nova_cpu *cpu)
{
    *cpu = (nova_cpu){.level = cpu_requested_level()};
    cpu->words[CAPABILITIES] = (uint32_t)getauxval(AT_HWCAP);
    cpu->words[CAPABILITIES_2] = (uint32_t)getauxval(AT_HWCAP2);
}

#else
#error "Nova runs on x86-64 and AArch64"
#endif

bool nova_cpu_has(const nova_cpu *cpu, const char *feature)
{
    for (size_t i = 0; i < sizeof CPU_FEATURES / sizeof *CPU_FEATURES; i++)
        if (strcmp(CPU_FEATURES[i].name, feature) == 0)
            return CPU_FEATURES[i].level <= cpu->level &&
                   cpu->words[CPU_FEATURES[i].word] >> CPU_FEATURES[i].bit & 1 &&
                   cpu_saves(cpu, CPU_FEATURES[i].needs);
    return false;
}

const char *nova_cpu_feature(size_t i)
{
    return i < sizeof CPU_FEATURES / sizeof *CPU_FEATURES ? CPU_FEATURES[i].name : NULL;
}
