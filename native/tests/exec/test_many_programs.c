/* Several programs concurrently, from several threads, called and submitted, and programs whose
 * kernels run other programs: all on the threads of one pool. */
#include <pthread.h>

#include "../support/check.h"
#include "nova.h"
#include "../support/tiled.h"

enum { PROGRAMS = 4, CALLERS = 6, ROUNDS = 40, DEPTH = 3, NESTED_ROUNDS = 6 };

typedef struct {
    nova_program *program;
    nova_image *image;
    nova_pool *pool;
} loaded;

static loaded programs[PROGRAMS];
static loaded levels[DEPTH]; /* a kernel of each runs the one below, in every tile */

static loaded load(nova_kernel first)
{
    loaded created;
    created.program = make_tiled(first, 0, &created.image);
    CHECK(!nova_program_is_inline(created.program));
    CHECK(nova_pool_create(nova_program_workspace_size(created.program), &created.pool) == NOVA_OK);
    return created;
}

static void unload(loaded *it)
{
    nova_pool_destroy(it->pool);
    nova_program_destroy(it->program);
    nova_image_destroy(it->image);
}

/* --- several programs ------------------------------------------------------------------------- */

static void submit_once(loaded *it, int64_t start)
{
    int64_t x[SIZE], y[SIZE];
    void *const inputs[] = {x}, *const outputs[] = {y};
    for (int i = 0; i < SIZE; i++)
        x[i] = start - i;
    void *workspace;
    nova_execution *execution;
    CHECK(nova_pool_take(it->pool, &workspace) == NOVA_OK);
    CHECK(nova_execution_take(it->program, 0, &execution) == NOVA_OK);
    CHECK(nova_execution_bind(execution, inputs, outputs, workspace) == NOVA_OK);
    const nova_run_options options = {.workers = nova_execution_workers(execution, 0),
                                      .policy = (nova_policy)(start % 3)};
    CHECK(nova_instance_submit(execution->instance, nova_execution_task, execution, &options,
                               NULL) == NOVA_OK);
    run_tiled(it->program, it->pool, start); /* while that one is in flight */
    CHECK(nova_instance_wait(execution->instance, UINT64_MAX, NULL) == NOVA_OK);
    nova_execution_give(execution);
    nova_pool_give(it->pool, workspace);
    for (int i = 0; i < SIZE; i++)
        CHECK(y[i] == x[SIZE - 1 - i] + 1);
}

static void *call_all(void *number)
{
    int first = *(int *)number;
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < PROGRAMS; i++) {
            loaded *it = &programs[(first + i) % PROGRAMS];
            if ((first + round) % 2)
                run_tiled(it->program, it->pool, first * ROUNDS + round);
            else
                submit_once(it, first * ROUNDS + round);
        }
    return NULL;
}

/* --- nested ----------------------------------------------------------------------------------- */

static void run_level(int level, int64_t start)
{
    run_tiled(levels[level].program, levels[level].pool, start);
}

static void above_0(void *const *buffers, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++)
        run_level(0, i);
    plus_one(buffers, begin, end);
}

static void above_1(void *const *buffers, int64_t begin, int64_t end)
{
    if (begin % 4 == 0)
        run_level(1, begin);
    plus_one(buffers, begin, end);
}

static void *call_nested(void *number)
{
    for (int round = 0; round < NESTED_ROUNDS; round++)
        run_level(DEPTH - 1, *(int *)number * NESTED_ROUNDS + round);
    return NULL;
}

/*
 *
 *
 *
 *
 * -------------------------------------------------------------------------------------------------
 */

static void in_threads(void *(*work)(void *))
{
    pthread_t threads[CALLERS];
    int numbers[CALLERS];
    for (int i = 0; i < CALLERS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, work, &numbers[i]) == 0);
    }
    for (int i = 0; i < CALLERS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

int main(void)
{
    static const nova_kernel kernels[DEPTH] = {plus_one, above_0, above_1};
    for (int i = 0; i < PROGRAMS; i++)
        programs[i] = load(plus_one);
    for (int i = 0; i < DEPTH; i++)
        levels[i] = load(kernels[i]);
    for (unsigned count = 1; count <= 4; count += 3) {
        CHECK(nova_workers_configure(&(nova_workers_options){.count = count}) == NOVA_OK);
        in_threads(call_all);
        in_threads(call_nested);
    }
    for (int i = 0; i < PROGRAMS; i++)
        unload(&programs[i]);
    for (int i = 0; i < DEPTH; i++)
        unload(&levels[i]);
    nova_workers_shutdown();
    return 0;
}
