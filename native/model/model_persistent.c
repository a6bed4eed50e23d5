/* Every order of the protocol of persistent kernels: the code of
 * nova/codegen/gpu/persistent_kernel.py in C, with a thread for each resident block. Three
 * launches: the second reads what the first has written, the third overwrites it. Two repetitions,
 * then the counters are 0 for the next launch.
 *
 * Arguments plant a bug that the model must find: no-wait (a row does not wait), early (a row is
 * signalled before its tasks have run), no-meeting (blocks start the next repetition without the
 * others), backward (a row waits for a later one: deadlock), no-reset (counters stay). */
#include "explore.h"

enum { ROWS = 3, TASKS = 2, BLOCKS = 2, REPEATS = 2 };

typedef struct {
    uint32_t first_block;
    int awaited; /* row, or -1 */
} row;

static row rows[ROWS];
static bool signals_early, meets, resets;
static _Atomic uint32_t counters[ROWS + 2];
/* What a task of the first row writes, the second one reads, and the third one overwrites. */
static _Atomic uint32_t cells[TASKS];

static void run_task(uint32_t number, uint32_t task, uint32_t repeat)
{
    uint32_t written = 10 * repeat + 1;
    if (number == 0)
        atomic_store_explicit(&cells[task], written, memory_order_relaxed);
    else if (number == 1)
        for (uint32_t i = 0; i < TASKS; i++)
            explore_check(atomic_load_explicit(&cells[i], memory_order_relaxed) == written);
    else
        atomic_store_explicit(&cells[task], written + 1, memory_order_relaxed);
}

static void await(_Atomic uint32_t *counter, uint32_t needed)
{
    while (atomic_load_explicit(counter, memory_order_acquire) < needed)
        explore_relax();
}

static void run_row(uint32_t block, uint32_t number, uint32_t repeat)
{
    const row *in = &rows[number];
    uint32_t task = (block + BLOCKS - in->first_block) % BLOCKS, ran = 0;
    if (task >= TASKS)
        return;
    if (in->awaited >= 0)
        await(&counters[in->awaited], TASKS * (repeat + 1));
    for (; task < TASKS; task += BLOCKS) {
        if (signals_early)
            atomic_fetch_add_explicit(&counters[number], 1, memory_order_release);
        run_task(number, task, repeat);
        ran++;
    }
    if (!signals_early)
        atomic_fetch_add_explicit(&counters[number], ran, memory_order_release);
}

static void run_block(void *argument)
{
    uint32_t block = (uint32_t)(uintptr_t)argument;
    for (uint32_t repeat = 0; repeat < REPEATS; repeat++) {
        for (uint32_t number = 0; number < ROWS; number++)
            run_row(block, number, repeat);
        if (!meets || repeat + 1 == REPEATS)
            continue;
        atomic_fetch_add_explicit(&counters[ROWS], 1, memory_order_release);
        await(&counters[ROWS], BLOCKS * (repeat + 1));
    }
    uint32_t gone = atomic_fetch_add_explicit(&counters[ROWS + 1], 1, memory_order_acq_rel);
    for (uint32_t i = 0; resets && gone + 1 == BLOCKS && i < ROWS + 2; i++)
        atomic_store_explicit(&counters[i], 0, memory_order_relaxed);
}

static void launch(void)
{
    int threads[BLOCKS];
    memset((void *)counters, 0, sizeof counters);
    memset((void *)cells, 0, sizeof cells);
    for (uintptr_t i = 0; i < BLOCKS; i++)
        threads[i] = explore_start(run_block, (void *)i);
    for (int i = 0; i < BLOCKS; i++)
        explore_join(threads[i]);
    for (int i = 0; i < ROWS + 2; i++)
        explore_check(atomic_load_explicit(&counters[i], memory_order_relaxed) == 0);
}

int main(int count, char **arguments)
{
    const char *bug = count > 1 ? arguments[1] : "";
    rows[0] = (row){.awaited = strcmp(bug, "backward") == 0 ? 1 : -1};
    rows[1] = (row){.first_block = 1, .awaited = strcmp(bug, "no-wait") == 0 ? -1 : 0};
    rows[2] = (row){.first_block = 1, .awaited = 1};
    signals_early = strcmp(bug, "early") == 0;
    meets = strcmp(bug, "no-meeting") != 0;
    resets = strcmp(bug, "no-reset") != 0;
    const explore_options options = {
        .name = "persistent kernel", .body = launch, .bound = 2, .store_buffers = false};
    return explore_expect(&options, *bug != '\0');
}
