/* Preloaded into the processes of `run.py --avx2`: the CPUID instruction then names no features
 * beyond AVX2. The kernel makes CPUID fault (on CPUs that can), and the handler gives the CPU's
 * answer without them. What asks the system instead of the CPU, such as readers of /proc/cpuinfo,
 * is told otherwise. */
#define _GNU_SOURCE /* RTLD_NEXT, and REG_RIP and the other registers of a signal's context */

#include <cpuid.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { SET_CPUID = 0x1012 }; /* ARCH_SET_CPUID of asm/prctl.h: 0 makes the instruction fault */

enum {
    /* Leaf 7: the families of AVX-512, and AMX. */
    WIDE_7_0_B = 1u << 16 | 1u << 17 | 1u << 21 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 30,
    WIDE_7_0_C = 1u << 1 | 1u << 6 | 1u << 11 | 1u << 12 | 1u << 14,
    WIDE_7_0_D = 1u << 2 | 1u << 3 | 1u << 8 | 1u << 22 | 1u << 23 | 1u << 24 | 1u << 25,
    /* Its second part: bf16, fp16 in AMX, and what AVX got after AVX2; AVX10. */
    WIDE_7_1_A = 1u << 4 | 1u << 5 | 1u << 21 | 1u << 23,
    WIDE_7_1_D = 1u << 4 | 1u << 5 | 1u << 8 | 1u << 10 | 1u << 19,
};

static void answer(unsigned leaf, unsigned part, unsigned out[4])
{
    __cpuid_count(leaf, part, out[0], out[1], out[2], out[3]);
    if (leaf == 7 && part == 0) {
        out[1] &= ~((unsigned)WIDE_7_0_B | 1u << 31); /* the last one is no int */
        out[2] &= ~(unsigned)WIDE_7_0_C;
        out[3] &= ~(unsigned)WIDE_7_0_D;
    } else if (leaf == 7 && part == 1) {
        out[0] &= ~(unsigned)WIDE_7_1_A;
        out[3] &= ~(unsigned)WIDE_7_1_D;
    }
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)info;
    greg_t *at = ((ucontext_t *)context)->uc_mcontext.gregs;
    const uint8_t *code = (const uint8_t *)at[REG_RIP];
    if (code[0] != 0x0f || code[1] != 0xa2) { /* not CPUID: it faults again, and ends the process */
        signal(number, SIG_DFL);
        return;
    }
    unsigned out[4];
    syscall(SYS_arch_prctl, SET_CPUID, 1);
    answer((unsigned)at[REG_RAX], (unsigned)at[REG_RCX], out);
    syscall(SYS_arch_prctl, SET_CPUID, 0);
    at[REG_RAX] = out[0];
    at[REG_RBX] = out[1];
    at[REG_RCX] = out[2];
    at[REG_RDX] = out[3];
    at[REG_RIP] += 2;
}

/* Compilers catch SIGSEGV to say where they fell: here they do not. */
int sigaction(int number, const struct sigaction *action, struct sigaction *before)
{
    static int (*real)(int, const struct sigaction *, struct sigaction *);
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "sigaction");
    int ours = number == SIGSEGV && action != NULL && action->sa_sigaction != on_fault;
    return real(number, ours ? NULL : action, before);
}

__attribute__((constructor)) static void hide(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    if (sigaction(SIGSEGV, &action, NULL) != 0 || syscall(SYS_arch_prctl, SET_CPUID, 0) != 0) {
        fputs("this machine cannot hide features of its CPU\n", stderr);
        _Exit(3);
    }
}
