/* Programs whose tasks are derived from the tilings of their kernels: for each number of threads,
 * with concurrent first runs, and with damaged tilings. */
#include <pthread.h>

#include "../support/block.h"
#include "../support/check.h"
#include "nova.h"

enum { TILES = 64, SIZE = 4 * TILES, THREADS = 6, RUNS = 30, WORDS = 2 + 2 * 4 };

static void plus_one(void *const *buffers, int64_t begin, int64_t end)
{
    const int64_t *x = buffers[0];
    int64_t *y = buffers[1];
    for (int64_t i = 4 * begin; i < 4 * end; i++)
        y[i] = x[i] + 1;
}

/* Writes the elements in reverse, so that every tile reads the output of another one. */
static void reversed(void *const *buffers, int64_t begin, int64_t end)
{
    const int64_t *x = buffers[0];
    int64_t *y = buffers[1];
    for (int64_t i = 4 * begin; i < 4 * end; i++)
        y[i] = x[SIZE - 1 - i];
}

/* A tile of four elements: it reads them of operand 0, forward or in reverse, and writes them to
 * operand 1. */
static void write_tiling(int64_t *words, bool forward)
{
    const int64_t rows[WORDS] = {
        SIZE, 4, 0, forward ? 0 : 8 * (SIZE - 1), forward ? 8 : 8 * SIZE, forward ? 8 : -8, 3,
        0,    8, 8};
    memcpy(words, rows, sizeof rows);
}

typedef struct {
    nova_tables_header header;
    nova_buffer buffers[3];
    nova_kernel_record kernels[2];
    nova_launch_record launches[2];
    uint32_t operands[4];
    nova_tiling tilings[2];
    uint64_t word_count;
    int64_t words[2 * WORDS];
    nova_interface interfaces[2];
    uint64_t sizes[4];
    char strings[8];
} tiled_block;

static void fill_block(tiled_block *block)
{
    memset(block, 0, sizeof *block);
    memcpy(block->header.magic, NOVA_TABLES_TILED_MAGIC, 8);
    block->header.size = sizeof *block;
    block->header.workspace_size = 8 * SIZE;
    block->header.buffer_count = 3;
    block->header.kernel_count = block->header.launch_count = 2;
    block->header.operand_count = 4;
    block->header.string_size = 8;
    for (uint32_t i = 0; i < 3; i++)
        block->buffers[i] = (nova_buffer){i == 0   ? NOVA_ARGUMENT
                                          : i == 1 ? NOVA_WORKSPACE
                                                   : NOVA_OUTPUT,
                                          0, 0, 8 * SIZE};
    for (uint32_t i = 0; i < 2; i++) {
        block->kernels[i] = (nova_kernel_record){
            .code = i * CODE_SIZE, .grid = TILES, .flops = 800000, .core = NOVA_VECTOR};
        block->launches[i] = (nova_launch_record){i, 2 * i, 2, 1};
        block->operands[2 * i] = i;
        block->operands[2 * i + 1] = i + 1;
        block->tilings[i] =
            (nova_tiling){.first_word = i * WORDS, .rank = 1, .range_count = 2, .task_ns = 50000};
        write_tiling(block->words + i * WORDS, i == 0);
        block->interfaces[i] =
            (nova_interface){.grid = TILES, .reads = 1, .operand_count = 2, .core = NOVA_VECTOR};
        block->sizes[2 * i] = block->sizes[2 * i + 1] = 8 * SIZE;
    }
    block->word_count = 2 * WORDS;
}

static nova_status check_block(const tiled_block *block, nova_tables *tables, nova_error *error)
{
    const nova_tables_limits limits = {.argument_count = 1, .output_count = 1};
    return nova_tables_check(block, sizeof *block, &limits, tables, error);
}

/* --- plans ------------------------------------------------------------------------------------ */

static void test_plans(const nova_tables *tables)
{
    uint32_t before = 0;
    for (unsigned workers = 1; workers <= 128; workers *= 2) {
        nova_task_plan plan;
        CHECK(nova_task_plan_create(tables, workers, NOVA_WORTH_SHARING, &plan) == NOVA_OK);
        uint32_t each = plan.task_count / 2; /* of each kernel */
        CHECK(plan.task_count >= before && plan.successor_count >= each);
        for (uint32_t i = 0; TILES % each == 0 && i < each; i++) /* tiles in reverse: one each */
            CHECK(plan.tasks[i].successor_count == 1 &&
                  plan.successors[plan.tasks[i].first_successor] == plan.task_count - 1 - i);
        before = plan.task_count;
        nova_task_plan_free(&plan);
    }
    CHECK(before == 100); /* of 8 us */
    nova_task_plan plan;
    CHECK(nova_task_plan_create(tables, 4, UINT64_C(1) << 40, &plan) == NOVA_OK);
    CHECK(plan.task_count == 0 && plan.tasks == NULL);
    CHECK(nova_task_plan_create(tables, 0, 0, &plan) == NOVA_INVALID_ARGUMENT);
}

/* --- runs ------------------------------------------------------------------------------------- */

static void run_once(nova_program *program, unsigned workers, int64_t start)
{
    _Alignas(64) int64_t x[SIZE], y[SIZE], workspace[SIZE];
    void *const inputs[] = {x}, *const outputs[] = {y};
    for (int i = 0; i < SIZE; i++)
        x[i] = start + i;
    const nova_program_options options = {.workers = workers};
    CHECK(nova_program_run_by(program, inputs, outputs, workspace, &options, NULL) == NOVA_OK);
    for (int i = 0; i < SIZE; i++)
        CHECK(y[i] == x[SIZE - 1 - i] + 1);
}

static void *run_often(void *program)
{
    for (int i = 0; i < RUNS; i++)
        run_once(program, 1 + (unsigned)i % 5, i);
    return NULL;
}

/* The first runs for a number of threads are concurrent: one plan of each is kept. */
static void test_concurrent_runs(nova_program *program)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, run_often, program) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    const nova_graph *first, *again, *other;
    CHECK(nova_program_graph_for(program, 3, &first) == NOVA_OK);
    CHECK(nova_program_graph_for(program, 3, &again) == NOVA_OK && again == first);
    CHECK(nova_program_graph_for(program, 40, &other) == NOVA_OK && other != first);
    CHECK(nova_graph_get_facts(other).task_count > nova_graph_get_facts(first).task_count);
}

/* --- damage ----------------------------------------------------------------------------------- */

/* Every word of the tilings, with other values: refused, or harmless. */
static void test_damage(void)
{
    static const int64_t VALUES[] = {
        0, 1, -1, 3, 7, 255, -8 * SIZE, INT32_MAX, 1L << 46, INT64_MAX, INT64_MIN, 8 * SIZE + 1};
    static tiled_block block;
    size_t first = offsetof(tiled_block, tilings) / 8, last = offsetof(tiled_block, interfaces) / 8;
    int accepted = 0;
    for (size_t word = first; word < last; word++)
        for (size_t i = 0; i < sizeof VALUES / sizeof VALUES[0]; i++) {
            fill_block(&block);
            memcpy((char *)&block + 8 * word, &VALUES[i], 8);
            nova_tables tables;
            nova_error error;
            if (check_block(&block, &tables, &error) != NOVA_OK) {
                CHECK(strcmp(error.check, "tables-tiling") == 0 ||
                      strcmp(error.check, "tables-size") == 0);
                continue;
            }
            accepted++;
            nova_task_plan plan;
            CHECK(nova_task_plan_create(&tables, 5, 0, &plan) == NOVA_OK);
            nova_task_plan_free(&plan);
        }
    CHECK(accepted > 0);
}

int main(void)
{
    static tiled_block block;
    nova_tables tables;
    nova_error error = {0};
    fill_block(&block);
    if (check_block(&block, &tables, &error) != NOVA_OK)
        fprintf(stderr, "%s\n", error.text);
    CHECK(check_block(&block, &tables, NULL) == NOVA_OK);
    CHECK(nova_workers_configure(&(nova_workers_options){.count = 4}) == NOVA_OK);
    test_plans(&tables);
    const nova_kernel functions[] = {plus_one, reversed};
    nova_image *image = make_image(functions, 2, NULL, 0);
    nova_program *program;
    CHECK(nova_program_create(&tables, image, 0, &program, NULL) == NOVA_OK);
    test_concurrent_runs(program);
    nova_program_destroy(program);
    nova_image_destroy(image);
    test_damage();
    nova_workers_shutdown();
    return 0;
}
