/* What this processor has, by LLVM's names: those of nova/targets.py, in its order. */
#define _GNU_SOURCE /* getauxval, syscall */

#include <elf.h>

#include "reader.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of Linux' <asm/prctl.h>, which older systems have without them. */
enum { REQUEST_STATE = 0x1023, TILE_DATA = 18 };

enum { LEAF1_C, LEAF7_B, LEAF7_C, LEAF7_D, LEAF7_1_A, EXTENDED_C };
enum { PLAIN, YMM, ZMM, TILES };

static const struct feature {
    const char *name;
    unsigned char word, bit, needs;
} FEATURES[] = {
    {"sse3", LEAF1_C, 0, PLAIN},
    {"ssse3", LEAF1_C, 9, PLAIN},
    {"sse4.1", LEAF1_C, 19, PLAIN},
    {"sse4.2", LEAF1_C, 20, PLAIN},
    {"sse4a", EXTENDED_C, 6, PLAIN},
    {"popcnt", LEAF1_C, 23, PLAIN},
    {"cx16", LEAF1_C, 13, PLAIN},
    {"sahf", EXTENDED_C, 0, PLAIN},
    {"movbe", LEAF1_C, 22, PLAIN},
    {"aes", LEAF1_C, 25, PLAIN},
    {"pclmul", LEAF1_C, 1, PLAIN},
    {"avx", LEAF1_C, 28, YMM},
    {"f16c", LEAF1_C, 29, YMM},
    {"fma", LEAF1_C, 12, YMM},
    {"avx2", LEAF7_B, 5, YMM},
    {"bmi", LEAF7_B, 3, PLAIN},
    {"bmi2", LEAF7_B, 8, PLAIN},
    {"lzcnt", EXTENDED_C, 5, PLAIN},
    {"adx", LEAF7_B, 19, PLAIN},
    {"sha", LEAF7_B, 29, PLAIN},
    {"gfni", LEAF7_C, 8, PLAIN},
    {"vaes", LEAF7_C, 9, YMM},
    {"vpclmulqdq", LEAF7_C, 10, YMM},
    {"avxvnni", LEAF7_1_A, 4, YMM},
    {"avx512f", LEAF7_B, 16, ZMM},
    {"avx512cd", LEAF7_B, 28, ZMM},
    {"avx512bw", LEAF7_B, 30, ZMM},
    {"avx512dq", LEAF7_B, 17, ZMM},
    {"avx512vl", LEAF7_B, 31, ZMM},
    {"avx512ifma", LEAF7_B, 21, ZMM},
    {"avx512vbmi", LEAF7_C, 1, ZMM},
    {"avx512vbmi2", LEAF7_C, 6, ZMM},
    {"avx512vnni", LEAF7_C, 11, ZMM},
    {"avx512bitalg", LEAF7_C, 12, ZMM},
    {"avx512vpopcntdq", LEAF7_C, 14, ZMM},
    {"avx512bf16", LEAF7_1_A, 5, ZMM},
    {"avx512fp16", LEAF7_D, 23, ZMM},
    {"amx-tile", LEAF7_D, 24, TILES},
    {"amx-int8", LEAF7_D, 25, TILES},
    {"amx-bf16", LEAF7_D, 22, TILES},
};

uint16_t nova_cpu_machine(void)
{
    return EM_X86_64;
}

/* Whether this process may use tiles. The system wants to be asked, as its signal frames grow by 8 KiB,
 * and says no where an alternate stack is too small for them. Asked only when somebody wants to know;
 * asking again changes nothing. */
static bool may_use_tiles(const nova_cpu *cpu)
{
    return !cpu->asks_for_tiles || syscall(SYS_arch_prctl, REQUEST_STATE, TILE_DATA) == 0;
}

static bool saves(const nova_cpu *cpu, unsigned needs)
{
    return needs == PLAIN || (needs == YMM && cpu->saves_ymm) ||
           (needs == ZMM && cpu->saves_zmm) ||
           (needs == TILES && cpu->saves_tiles && may_use_tiles(cpu));
}

void nova_cpu_read(nova_cpu *cpu)
{
    *cpu = (nova_cpu){0};
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
static const struct feature {
    const char *name;
    unsigned char word, bit, needs;
} FEATURES[] = {
    {"neon", CAPABILITIES, 1, PLAIN},     {"fullfp16", CAPABILITIES, 10, PLAIN},
    {"dotprod", CAPABILITIES, 20, PLAIN}, {"lse", CAPABILITIES, 8, PLAIN},
    {"aes", CAPABILITIES, 3, PLAIN},      {"sha2", CAPABILITIES, 6, PLAIN},
    {"crc", CAPABILITIES, 7, PLAIN},      {"bf16", CAPABILITIES_2, 14, PLAIN},
    {"i8mm", CAPABILITIES_2, 13, PLAIN},
};

uint16_t nova_cpu_machine(void)
{
    return EM_AARCH64;
}

static bool saves(const nova_cpu *cpu, unsigned needs)
{
    (void)cpu;
    return needs == PLAIN;
}

void nova_cpu_read(nova_cpu *cpu)
{
    *cpu = (nova_cpu){0};
    cpu->words[CAPABILITIES] = (uint32_t)getauxval(AT_HWCAP);
    cpu->words[CAPABILITIES_2] = (uint32_t)getauxval(AT_HWCAP2);
}

#else
#error "Nova runs on x86-64 and AArch64"
#endif

bool nova_cpu_has(const nova_cpu *cpu, const char *feature)
{
    for (size_t i = 0; i < sizeof FEATURES / sizeof *FEATURES; i++)
        if (strcmp(FEATURES[i].name, feature) == 0)
            return cpu->words[FEATURES[i].word] >> FEATURES[i].bit & 1 &&
                   saves(cpu, FEATURES[i].needs);
    return false;
}

const char *nova_cpu_feature(size_t i)
{
    return i < sizeof FEATURES / sizeof *FEATURES ? FEATURES[i].name : NULL;
}
