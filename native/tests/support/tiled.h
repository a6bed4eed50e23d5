/* A program of two kernels in tiles, for the tests of runs: y[i] = x[SIZE - 1 - i] + 1. */
#ifndef NOVA_TESTS_TILED_H
#define NOVA_TESTS_TILED_H

#include "block.h"
#include "check.h"
#include "nova.h"

enum { TILES = 16, SIZE = 4 * TILES, SCRATCH = 192 };

static inline void plus_one(void *const *buffers, int64_t begin, int64_t end)
{
    const int64_t *x = buffers[0];
    int64_t *y = buffers[1];
    for (int64_t i = 4 * begin; i < 4 * end; i++)
        y[i] = x[i] + 1;
}

/* The same through scratch memory, so that an area that two threads share shows as a race. */
static inline void plus_one_by_scratch(void *const *buffers, int64_t begin, int64_t end,
                                       void *scratch)
{
    int64_t *t = scratch;
    CHECK((uintptr_t)scratch % 64 == 0);
    for (int64_t tile = begin; tile < end; tile++) {
        for (int i = 0; i < SCRATCH / 8; i++)
            t[i] = tile;
        for (int i = 0; i < 4; i++)
            t[i] = ((const int64_t *)buffers[0])[4 * tile + i] + 1;
        for (int i = 4; i < SCRATCH / 8; i++)
            CHECK(t[i] == tile);
        memcpy((int64_t *)buffers[1] + 4 * tile, t, 4 * sizeof *t);
    }
}

static inline nova_kernel as_kernel(nova_scratch_kernel function)
{
    nova_kernel code;
    memcpy(&code, &function, sizeof code); /* the flag says what it is */
    return code;
}

/* Writes the elements in reverse, so that every tile reads the output of another one. */
static inline void reversed(void *const *buffers, int64_t begin, int64_t end)
{
    const int64_t *x = buffers[0];
    int64_t *y = buffers[1];
    for (int64_t i = 4 * begin; i < 4 * end; i++)
        y[i] = x[SIZE - 1 - i];
}

/* argument -> workspace, join, workspace -> output, in tiles; `first` is the first
 * kernel. The block is there until the process ends. By one thread. */
static inline nova_program *make_tiled(nova_kernel first, uint32_t flags, nova_image **image)
{
    static _Alignas(64) unsigned char blocks[8][BLOCK_SIZE];
    static size_t used;
    CHECK(used < sizeof blocks / sizeof blocks[0]);
    unsigned char *block = blocks[used++];
    const nova_kernel functions[] = {first, reversed};
    *image = make_image(functions, 2, NULL, 0);
    const nova_buffer buffers[] = {{NOVA_ARGUMENT, 0, 0, 8 * SIZE},
                                   {NOVA_WORKSPACE, 0, 0, 8 * SIZE},
                                   {NOVA_OUTPUT, 0, 0, 8 * SIZE}};
    const nova_kernel_record kernels[] = {
        {.code = 0, .grid = TILES, .flops = 10000000, .core = NOVA_VECTOR | flags},
        {.code = CODE_SIZE, .grid = TILES, .flops = 10000000, .core = NOVA_VECTOR}};
    const nova_launch_record launches[] = {{0, 0, 2, 0}, {1, 2, 2, 0}};
    const uint32_t operands[] = {0, 1, 1, 2};
    const parts parts = {
        buffers, 3,        kernels, 2,        launches,
        2,       operands, 4,       8 * SIZE, flags & NOVA_TAKES_SCRATCH ? SCRATCH : 0};
    nova_task tasks[2 * TILES + 1];
    uint32_t successors[2 * TILES];
    for (uint32_t i = 0; i < TILES; i++) {
        tasks[i] = (nova_task){0, 0, i, i + 1, i, 1};
        successors[i] = TILES;
        tasks[TILES + 1 + i] = (nova_task){1, 1, i, i + 1, 2 * TILES, 0};
        successors[TILES + i] = TILES + 1 + i;
    }
    tasks[TILES] = (nova_task){1, TILES, 0, 0, TILES, TILES}; /* the join */
    const graph_parts graph = {tasks, 2 * TILES + 1, successors, 2 * TILES};
    const nova_tables_limits limits = {.argument_count = 1, .output_count = 1};
    nova_tables tables;
    nova_error error;
    size_t size = write_graph_block(&parts, &graph, block);
    if (nova_tables_check(block, size, &limits, &tables, &error) != NOVA_OK)
        fprintf(stderr, "%s\n", error.text);
    nova_program *created;
    CHECK(nova_tables_check(block, size, &limits, &tables, NULL) == NOVA_OK);
    CHECK(nova_program_create(&tables, *image, 0, &created, NULL) == NOVA_OK);
    return created;
}

/* Runs it once, over start, start + 1, ..., and checks the result. Thread-safe. */
static inline void run_tiled(nova_program *program, nova_pool *pool, int64_t start)
{
    int64_t x[SIZE], y[SIZE];
    void *const inputs[] = {x}, *const outputs[] = {y};
    for (int i = 0; i < SIZE; i++)
        x[i] = start + i;
    void *workspace;
    CHECK(nova_pool_take(pool, &workspace) == NOVA_OK);
    CHECK(nova_program_run(program, inputs, outputs, workspace, NULL) == NOVA_OK);
    nova_pool_give(pool, workspace);
    for (int i = 0; i < SIZE; i++)
        CHECK(y[i] == x[SIZE - 1 - i] + 1);
}

#endif
