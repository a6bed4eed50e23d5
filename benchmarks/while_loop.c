/* A while loop of Nova against the same loop in C, both with the kernel of a matmul of 256x256.
 *
 *     while_loop LOOP.nova MATMUL.nova TILES ITERATIONS ROUNDS
 *
 * LOOP.nova runs `x = x @ a` ITERATIONS times in a nova.while_loop. MATMUL.nova has kernel_0, the
 * kernel of `x @ a`; the C loop calls it for all its tiles and swaps two buffers. Both run in
 * alternation, ROUNDS times. Prints the least milliseconds of each, in CPU time of the process;
 * fails if results differ.
 * while_loop.py writes both files and builds this program. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nova/model.h"
#include "nova/program.h"

enum { SIZE = 256, SCRATCH = 8 << 20 };

static void fail(const char *subject, const char *reason)
{
    fprintf(stderr, "while_loop: %s: %s\n", subject, reason);
    exit(1);
}

static void find(void *library, const char *name, void *function)
{
    void *address = dlsym(library, name);
    if (address == NULL)
        fail(name, "the file has no such function");
    memcpy(function, &address, sizeof address); /* ISO C has no cast for this */
}

static void *load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        fail(path, dlerror());
    return library;
}

static void *allocate(size_t bytes)
{
    void *memory = aligned_alloc(4096, bytes);
    if (memory == NULL)
        fail("memory", "there is none left");
    memset(memory, 0, bytes);
    return memory;
}

static double milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

int main(int argc, char **argv)
{
    if (argc != 6)
        fail("usage", "while_loop LOOP.nova MATMUL.nova TILES ITERATIONS ROUNDS");
    long tiles = atol(argv[3]), iterations = atol(argv[4]), rounds = atol(argv[5]);
    void *loop = load(argv[1]), *matmul = load(argv[2]);
    __typeof__(nova_open) *open;
    __typeof__(nova_run) *run;
    __typeof__(nova_close) *close;
    nova_scratch_kernel kernel;
    find(loop, "nova_open", &open);
    find(loop, "nova_run", &run);
    find(loop, "nova_close", &close);
    find(matmul, "kernel_0", &kernel);

    size_t bytes = sizeof(float) * SIZE * SIZE;
    float *x = allocate(bytes), *a = allocate(bytes), *result = allocate(bytes);
    float *states[2] = {allocate(bytes), allocate(bytes)};
    void *scratch = allocate(SCRATCH);
    for (size_t i = 0; i < SIZE * SIZE; i++) {
        x[i] = (float)(i % 97) / 97;
        a[i] = (float)(i % 89) / 89 / SIZE * 2;
    }
    nova_model *model;
    nova_error error;
    if (open(NULL, &model, &error) != NOVA_OK)
        fail("open", error.text);
    double least[2] = {1e30, 1e30};
    for (long round = 0; round < rounds; round++) {
        double start = milliseconds();
        if (run(model, (void *[]){x, a}, (void *[]){result}, NULL, &error) != NOVA_OK)
            fail("run", error.text);
        double middle = milliseconds();
        void *buffers[3] = {x, a, states[0]};
        for (long i = 0; i < iterations; i++) {
            kernel(buffers, 0, tiles, scratch);
            buffers[0] = buffers[2];
            buffers[2] = states[(i + 1) % 2];
        }
        double end = milliseconds();
        least[0] = middle - start < least[0] ? middle - start : least[0];
        least[1] = end - middle < least[1] ? end - middle : least[1];
        if (memcmp(buffers[0], result, bytes) != 0)
            fail("results", "the two loops differ");
    }
    close(model);
    printf("%.3f %.3f\n", least[0], least[1]);
    return 0;
}
