/* One program and one pool used by several threads concurrently, meant for TSan. */
#include <pthread.h>

#include "../support/block.h"
#include "../support/check.h"
#include "nova.h"

enum { THREADS = 8, ROUNDS = 2000, SIZE = 64 };

static nova_program *program;
static nova_pool *pool;

/* Writes through the workspace, so that a shared block shows as a race and as a wrong result. */
static void copy_plus_one(void *const *buffers, int64_t begin, int64_t end)
{
    const int64_t *x = buffers[0];
    int64_t *y = buffers[1];
    for (int64_t i = begin; i < end; i++)
        y[i] = x[i] + 1;
}

static void *work(void *number)
{
    int64_t x[SIZE], y[SIZE];
    void *const inputs[] = {x}, *const outputs[] = {y};
    for (int64_t round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < SIZE; i++)
            x[i] = *(int *)number * ROUNDS + round + i;
        void *workspace;
        CHECK(nova_pool_take(pool, &workspace) == NOVA_OK);
        CHECK(nova_program_run(program, inputs, outputs, workspace, NULL) == NOVA_OK);
        nova_pool_give(pool, workspace);
        for (int i = 0; i < SIZE; i++)
            CHECK(y[i] == x[i] + 2);
    }
    return NULL;
}

int main(void)
{
    static _Alignas(64) unsigned char block[BLOCK_SIZE];
    const nova_kernel functions[] = {copy_plus_one};
    nova_image *image = make_image(functions, 1, NULL, 0);
    const nova_buffer buffers[] = {{NOVA_ARGUMENT, 0, 0, 8 * SIZE},
                                   {NOVA_WORKSPACE, 0, 0, 8 * SIZE},
                                   {NOVA_OUTPUT, 0, 0, 8 * SIZE}};
    const nova_kernel_record kernel = {.code = 0, .grid = SIZE};
    const nova_launch_record launches[] = {{0, 0, 2, 0}, {0, 2, 2, 0}};
    const uint32_t operands[] = {0, 1, 1, 2};
    const parts parts = {buffers, 3, &kernel, 1, launches, 2, operands, 4, 8 * SIZE, 0};
    const nova_tables_limits limits = {.argument_count = 1, .output_count = 1};
    nova_tables tables;
    CHECK(nova_tables_check(block, write_block(&parts, block), &limits, &tables, NULL) == NOVA_OK);
    CHECK(nova_program_create(&tables, image, 0, &program, NULL) == NOVA_OK);
    CHECK(nova_pool_create(nova_program_workspace_size(program), &pool) == NOVA_OK);
    pthread_t threads[THREADS];
    int numbers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, work, &numbers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    nova_pool_destroy(pool);
    nova_program_destroy(program);
    nova_image_destroy(image);
    return 0;
}
