/* A program whose graph never ends: the run reports a stall, with the states of all tasks, and the
 * pool keeps working. Such tables are refused; so the graph of a valid program is replaced by a
 * broken one. */
#include "exec/program.h"
#include "../support/check.h"
#include "nova.h"
#include "../support/tiled.h"

enum { TASKS = 2 * TILES + 1, STUCK = TASKS - 3 };

/* Task STUCK waits for one task more than name it. */
static void break_graph(nova_program *program)
{
    const nova_tables *tables = nova_program_tables(program);
    static nova_task tasks[TASKS];
    CHECK(tables->header->task_count == TASKS);
    memcpy(tasks, tables->tasks, sizeof tasks);
    tasks[STUCK].waits++;
    const nova_graph_tables parts = {.tasks = tasks,
                                     .successors = tables->successors,
                                     .task_count = TASKS,
                                     .successor_count = tables->header->successor_count};
    nova_prepared *broken = calloc(1, sizeof *broken);
    CHECK(broken != NULL);
    CHECK(nova_graph_create(&parts, 0, &broken->graph) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_graph_create(&parts, NOVA_GRAPH_MAY_STALL, &broken->graph) == NOVA_OK);
    broken->planned = 4;
    broken->is_fixed = true;
    broken->tasks = (nova_task_plan){.tasks = tasks,
                                     .successors = (uint32_t *)(uintptr_t)tables->successors,
                                     .task_count = TASKS,
                                     .successor_count = tables->header->successor_count};
    CHECK(atomic_load(&program->prepared) == NULL);
    atomic_store(&program->prepared, broken); /* the program frees it */
}

static void check_states(const nova_execution *execution)
{
    uint8_t states[TASKS];
    CHECK(nova_instance_states(execution->instance, states) == NOVA_OK);
    for (int i = 0; i < TASKS; i++)
        CHECK(states[i] == (i == STUCK ? NOVA_TASK_WAITING : NOVA_TASK_DONE));
}

static void test_stall(nova_program *broken, bool submitted)
{
    _Alignas(64) int64_t x[SIZE] = {0}, y[SIZE], workspace[SIZE];
    void *const inputs[] = {x}, *const outputs[] = {y};
    nova_execution *execution;
    nova_run_result result = {0};
    nova_error error;
    CHECK(nova_program_run(broken, inputs, outputs, workspace, &error) == NOVA_STALLED);
    CHECK(strstr(error.text, "1 of 33 tasks, the first is kernel") != NULL);
    CHECK(strstr(error.text, "tiles 13 to 14 of 16") != NULL);
    CHECK(nova_execution_take(broken, 0, &execution) == NOVA_OK);
    CHECK(nova_execution_bind(execution, inputs, outputs, workspace) == NOVA_OK);
    const nova_run_options options = {.workers = nova_execution_workers(execution, 0)};
    if (submitted) {
        CHECK(nova_instance_submit(execution->instance, nova_execution_task, execution, &options,
                                   NULL) == NOVA_OK);
        CHECK(nova_instance_wait(execution->instance, UINT64_MAX, &result) == NOVA_STALLED);
    } else {
        CHECK(nova_instance_run(execution->instance, nova_execution_task, execution, &options,
                                &result) == NOVA_STALLED);
    }
    CHECK(result.status == NOVA_STALLED && result.task == NOVA_NO_TASK);
    check_states(execution);
    nova_execution_give(execution);
}

int main(void)
{
    nova_image *images[2];
    nova_program *good = make_tiled(plus_one, 0, &images[0]);
    nova_program *broken = make_tiled(plus_one, 0, &images[1]);
    nova_pool *pool;
    CHECK(nova_pool_create(nova_program_workspace_size(good), &pool) == NOVA_OK);
    break_graph(broken);
    /* Not 1: one thread runs the tasks in order and does not read the counters. */
    for (unsigned count = 2; count <= 4; count++) {
        CHECK(nova_workers_configure(&(nova_workers_options){.count = count}) == NOVA_OK);
        for (int round = 0; round < 20; round++) {
            test_stall(broken, round % 2);
            run_tiled(good, pool, round);
        }
    }
    nova_pool_destroy(pool);
    nova_program_destroy(broken);
    nova_program_destroy(good);
    nova_image_destroy(images[0]);
    nova_image_destroy(images[1]);
    nova_workers_shutdown();
    return 0;
}
