/* Programs that run as tasks: results from many concurrent threads, no allocation in repeated runs,
 * errors with their task, and graphs created from launches. Built with malloc wrapped. */
#include <pthread.h>

#include "../support/allocations.h"
#include "../support/check.h"
#include "nova.h"
#include "../support/tiled.h"

enum { THREADS = 8, ROUNDS = 300 };

static nova_program *program;
static nova_pool *pool;

static int32_t refuse(void *const *buffers, int64_t begin, int64_t end)
{
    const int64_t *x = buffers[0];
    for (int64_t i = 4 * begin; i < 4 * end; i++)
        if (x[i] < 0)
            return (int32_t)x[i];
    plus_one(buffers, begin, end);
    return 0;
}

static void run_once(int64_t start)
{
    run_tiled(program, pool, start);
}

static void *work(void *number)
{
    for (int64_t round = 0; round < ROUNDS; round++)
        run_once(*(int *)number * ROUNDS + round);
    return NULL;
}

static void test_threads(void)
{
    pthread_t threads[THREADS];
    int numbers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, work, &numbers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

static void test_steady_state(void)
{
    for (int i = 0; i < 10; i++)
        run_once(i);
    size_t before = atomic_load(&allocations);
    for (int i = 0; i < ROUNDS; i++)
        run_once(i);
    CHECK(atomic_load(&allocations) == before);
}

static void test_more_threads_later(void)
{
    CHECK(nova_workers_configure(&(nova_workers_options){.count = 1}) == NOVA_OK);
    run_once(1);
    CHECK(nova_workers_configure(&(nova_workers_options){.count = 6}) == NOVA_OK);
    nova_execution *execution;
    CHECK(nova_execution_take(program, 0, &execution) == NOVA_OK);
    CHECK(execution->places == 6);
    CHECK(nova_execution_workers(execution, 2) == 2 && nova_execution_workers(execution, 0) == 6);
    nova_execution_give(execution);
    nova_execution *again;
    CHECK(nova_execution_take(program, 0, &again) == NOVA_OK && again == execution);
    nova_execution_give(again);
    CHECK(nova_execution_take(program, 64, &again) == NOVA_OK && again != execution);
    nova_execution_give(again);
    run_once(2);
}

static void test_errors(void)
{
    nova_image *image;
    nova_kernel code;
    nova_reporting_kernel reporting = refuse;
    memcpy(&code, &reporting, sizeof code);
    nova_program *failing = make_tiled(code, NOVA_REPORTS, &image);
    CHECK(!nova_program_is_inline(failing));
    int64_t x[SIZE] = {0}, y[SIZE], workspace[SIZE + 8];
    void *aligned = (void *)(((uintptr_t)workspace + 63) & ~(uintptr_t)63);
    void *const inputs[] = {x}, *const outputs[] = {y};
    nova_error error;
    CHECK(nova_program_run(failing, inputs, outputs, aligned, &error) == NOVA_OK && y[0] == 1);
    x[21] = -3;
    CHECK(nova_program_run(failing, inputs, outputs, aligned, &error) == NOVA_TASK_REPORTED);
    CHECK(strstr(error.text, "tiles 5 to 6 of 16 reported error -3") != NULL);
    CHECK(nova_program_run(failing, NULL, outputs, aligned, &error) == NOVA_INVALID_ARGUMENT);
    x[21] = 3;
    CHECK(nova_program_run(failing, inputs, outputs, aligned, &error) == NOVA_OK);
    nova_program_destroy(failing);
    nova_image_destroy(image);
}

static void *work_with_scratch(void *shared)
{
    nova_pool *private_pool;
    CHECK(nova_pool_create(nova_program_workspace_size(shared), &private_pool) == NOVA_OK);
    for (int64_t round = 0; round < ROUNDS; round++)
        run_tiled(shared, private_pool, round);
    nova_pool_destroy(private_pool);
    return NULL;
}

/* Each worker slot of each run has a private buffer, also in concurrent runs. */
static void test_scratch(void)
{
    nova_image *image;
    nova_program *created = make_tiled(as_kernel(plus_one_by_scratch), NOVA_TAKES_SCRATCH, &image);
    CHECK(!nova_program_is_inline(created));
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, work_with_scratch, created) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    nova_program_destroy(created);
    nova_image_destroy(image);
}

/* An inline run has it in its workspace, after the planned bytes. */
static void test_inline_scratch(void)
{
    static _Alignas(64) unsigned char block[BLOCK_SIZE];
    const nova_kernel functions[] = {as_kernel(plus_one_by_scratch)};
    nova_image *image = make_image(functions, 1, NULL, 0);
    const nova_kernel_record kernel = {.grid = TILES, .core = NOVA_MATRIX | NOVA_TAKES_SCRATCH};
    const nova_buffer buffers[] = {{NOVA_ARGUMENT, 0, 0, 8 * SIZE}, {NOVA_OUTPUT, 0, 0, 8 * SIZE}};
    const nova_launch_record launch = {0, 0, 2, 0};
    const uint32_t operands[] = {0, 1};
    const nova_tables_limits limits = {.argument_count = 1, .output_count = 1};
    const parts parts = {buffers, 2, &kernel, 1, &launch, 1, operands, 2, 0, SCRATCH};
    nova_tables tables;
    nova_program *created;
    CHECK(nova_tables_check(block, write_block(&parts, block), &limits, &tables, NULL) == NOVA_OK);
    CHECK(nova_program_create(&tables, image, 0, &created, NULL) == NOVA_OK);
    CHECK(nova_program_is_inline(created) && nova_program_workspace_size(created) >= SCRATCH);
    int64_t x[SIZE] = {41}, y[SIZE];
    void *const inputs[] = {x}, *const outputs[] = {y};
    void *workspace;
    CHECK(nova_memory_take(nova_program_workspace_size(created), &workspace) == NOVA_OK);
    CHECK(nova_program_run(created, inputs, outputs, workspace, NULL) == NOVA_OK && y[0] == 42);
    free(workspace);
    nova_execution *execution; /* the same program as tasks, when it is watched */
    CHECK(nova_execution_take(created, 0, &execution) == NOVA_OK);
    x[0] = 1;
    CHECK(nova_execution_bind(execution, inputs, outputs, block) == NOVA_OK);
    CHECK(nova_instance_run(execution->instance, nova_execution_task, execution, NULL, NULL) ==
          NOVA_OK);
    CHECK(y[0] == 2);
    nova_execution_give(execution);
    nova_program_destroy(created);
    nova_image_destroy(image);
}

static void test_launches_without_tasks(void)
{
    static _Alignas(64) unsigned char block[BLOCK_SIZE];
    const nova_kernel functions[] = {plus_one};
    nova_image *image = make_image(functions, 1, NULL, 0);
    const nova_kernel_record kernel = {.code = 0, .grid = TILES};
    const nova_buffer buffers[] = {{NOVA_ARGUMENT, 0, 0, 8 * SIZE}};
    const nova_launch_record launches[] = {{0, 0, 2, 0}, {0, 2, 2, 0}, {0, 4, 2, 0}};
    const uint32_t operands[] = {0, 0, 0, 0, 0, 0};
    const nova_tables_limits limits = {.argument_count = 1};
    for (uint32_t count = 0; count <= 3; count += 3) {
        const parts parts = {buffers, 1, &kernel, 1, launches, count, operands, 2 * count, 0, 0};
        nova_tables tables;
        nova_program *chain;
        const nova_graph *graph;
        size_t size = write_block(&parts, block);
        CHECK(nova_tables_check(block, size, &limits, &tables, NULL) == NOVA_OK);
        CHECK(nova_program_create(&tables, image, 0, &chain, NULL) == NOVA_OK);
        CHECK(nova_program_is_inline(chain));
        CHECK(nova_program_graph(chain, &graph) == NOVA_OK);
        nova_graph_facts facts = nova_graph_get_facts(graph);
        CHECK(facts.task_count == (count > 0 ? count : 1) && facts.width == 1);
        int64_t x[SIZE] = {0};
        void *const inputs[] = {x};
        nova_execution *execution;
        CHECK(nova_execution_take(chain, 0, &execution) == NOVA_OK);
        CHECK(nova_execution_bind(execution, NULL, NULL, NULL) == NOVA_INVALID_ARGUMENT);
        CHECK(nova_execution_bind(execution, inputs, NULL, NULL) == NOVA_OK);
        CHECK(nova_instance_run(execution->instance, nova_execution_task, execution, NULL, NULL) ==
              NOVA_OK);
        CHECK(x[0] == count);
        nova_execution_give(execution);
        char text[64];
        nova_program_describe(chain, 99, text, sizeof text);
        CHECK(strcmp(text, "task 99") == 0);
        nova_program_destroy(chain);
    }
    nova_image_destroy(image);
}

int main(void)
{
    nova_image *image;
    CHECK(nova_workers_configure(&(nova_workers_options){.count = 4}) == NOVA_OK);
    program = make_tiled(plus_one, 0, &image);
    CHECK(!nova_program_is_inline(program));
    CHECK(nova_pool_create(nova_program_workspace_size(program), &pool) == NOVA_OK);
    test_threads();
    test_steady_state();
    test_more_threads_later();
    test_errors();
    test_scratch();
    test_inline_scratch();
    test_launches_without_tasks();
    nova_pool_destroy(pool);
    nova_program_destroy(program);
    nova_image_destroy(image);
    nova_workers_shutdown();
    return 0;
}
