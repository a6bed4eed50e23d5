/* Every order of the protocol of persistent kernels: the code of
 * nova/codegen/gpu/persistent/kernel.py in C, with a thread for each resident block. Three
 * launches: the second reads what the first has written, the third overwrites it. Two repetitions:
 * the first launch of the second one waits for the third of the first one. Then the counters are 0
 * for the next launch.
 *
 * The second program has rows of single tiles, and a list of rows for each block
 * (persistent/lists.py): a tile of the second launch waits for one tile of the first, which another
 * block runs, and the third launch for a counter that both tiles of the second add to.
 *
 * The third program is a loop (persistent/flow.py): a task of each iteration decides whether there
 * is another one, and all blocks read the condition. One block has no task in the body, so the
 * other could be an iteration ahead of it.
 *
 * The fourth are the numbers that blocks take (persistent/places.py): each number once.
 *
 * Arguments plant a bug that the model must find: no-wait (a row does not wait), early (a row is
 * signalled before its tasks have run), no-previous (blocks start the next repetition without a
 * wait), backward (a row waits for a later one: deadlock), no-reset (counters stay). Those of
 * tiles: other-tile (a tile waits for another one than it reads), too-few (a wait for one of the
 * tasks of a shared counter), next-early (the first launch does not wait for the repetition
 * before), list-order (lists are not in the order of the table: deadlock). Those of the loop:
 * overwrite (the condition is written before all blocks have read it), no-join (blocks decide
 * before the tasks of the body have run), no-visits (waits do not count iterations). That of
 * places: no-claim (a block takes a number that is taken). */
#include "explore.h"

enum { ROWS = 3, TASKS = 2, BLOCKS = 2, REPEATS = 2 };

typedef struct {
    uint32_t first_block;
    int awaited;  /* row, or -1 */
    int previous; /* row of the repetition before it, or -1 */
} row;

static row rows[ROWS];
static bool signals_early, resets;
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
    if (in->previous >= 0)
        await(&counters[in->previous], TASKS * repeat);
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
    for (uint32_t repeat = 0; repeat < REPEATS; repeat++)
        for (uint32_t number = 0; number < ROWS; number++)
            run_row(block, number, repeat);
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

/* --- tiles ------------------------------------------------------------------------------------ */

enum { FIRST_TILE, SECOND_TILE = FIRST_TILE + TASKS, LAST_TILE = SECOND_TILE + TASKS, TILE_ROWS };
enum { BOTH = TASKS, LAST_COUNTER, TILE_COUNTERS };

static const uint32_t lists[BLOCKS][3] = {{FIRST_TILE, SECOND_TILE + 1, LAST_TILE},
                                          {FIRST_TILE + 1, SECOND_TILE, TILE_ROWS}};
static const uint32_t wrong_lists[BLOCKS][3] = {{SECOND_TILE + 1, FIRST_TILE, LAST_TILE},
                                                {SECOND_TILE, FIRST_TILE + 1, TILE_ROWS}};
static bool waits_for_other_tile, waits_for_few, waits_for_previous, has_wrong_lists;
static _Atomic uint32_t tile_counters[TILE_COUNTERS + 1];
static _Atomic uint32_t first_cells[TASKS], second_cells[TASKS];

static void run_tile(uint32_t number, uint32_t repeat)
{
    uint32_t written = repeat + 1, counter = BOTH, tile = number % TASKS;
    if (number < SECOND_TILE) {
        if (waits_for_previous)
            await(&tile_counters[LAST_COUNTER], repeat);
        atomic_store_explicit(&first_cells[tile], written, memory_order_relaxed);
        counter = tile;
    } else if (number < LAST_TILE) {
        await(&tile_counters[waits_for_other_tile ? 1 - tile : tile], written);
        uint32_t value = atomic_load_explicit(&first_cells[tile], memory_order_relaxed);
        explore_check(value == written);
        atomic_store_explicit(&second_cells[tile], value, memory_order_relaxed);
    } else {
        await(&tile_counters[BOTH], (waits_for_few ? 1 : TASKS) * written);
        for (uint32_t i = 0; i < TASKS; i++)
            explore_check(atomic_load_explicit(&second_cells[i], memory_order_relaxed) == written);
        counter = LAST_COUNTER;
    }
    atomic_fetch_add_explicit(&tile_counters[counter], 1, memory_order_release);
}

static void run_tile_block(void *argument)
{
    uint32_t block = (uint32_t)(uintptr_t)argument;
    for (uint32_t repeat = 0; repeat < REPEATS; repeat++)
        for (uint32_t i = 0; i < 3; i++) {
            uint32_t number = (has_wrong_lists ? wrong_lists : lists)[block][i];
            if (number < TILE_ROWS)
                run_tile(number, repeat);
        }
    uint32_t gone =
        atomic_fetch_add_explicit(&tile_counters[TILE_COUNTERS], 1, memory_order_acq_rel);
    for (uint32_t i = 0; gone + 1 == BLOCKS && i < TILE_COUNTERS + 1; i++)
        atomic_store_explicit(&tile_counters[i], 0, memory_order_relaxed);
}

static void launch_tiles(void)
{
    int threads[BLOCKS];
    memset((void *)tile_counters, 0, sizeof tile_counters);
    memset((void *)first_cells, 0, sizeof first_cells);
    memset((void *)second_cells, 0, sizeof second_cells);
    for (uintptr_t i = 0; i < BLOCKS; i++)
        threads[i] = explore_start(run_tile_block, (void *)i);
    for (int i = 0; i < BLOCKS; i++)
        explore_join(threads[i]);
    for (int i = 0; i < TILE_COUNTERS + 1; i++)
        explore_check(atomic_load_explicit(&tile_counters[i], memory_order_relaxed) == 0);
}

/* --- a loop ----------------------------------------------------------------------------------- */

enum { FIRST, DECISION, WORK, CONDITION, LAST, LOOP_ROWS, TRIPS = 2 };

static bool awaits_readers, joins, counts_visits;
static _Atomic uint32_t loop_counters[LOOP_ROWS + 1];
static _Atomic uint32_t condition, worked;

static void loop_signal(uint32_t number)
{
    atomic_fetch_add_explicit(&loop_counters[number], 1, memory_order_release);
}

/* The body: the first block works, and then computes the condition. */
static void loop_body(uint32_t block, uint32_t visits)
{
    uint32_t needed = counts_visits ? visits : 1;
    if (block == 0) {
        uint32_t before = atomic_load_explicit(&worked, memory_order_relaxed);
        explore_check(before + 1 == visits);
        atomic_store_explicit(&worked, visits, memory_order_relaxed);
        loop_signal(WORK);
        await(&loop_counters[WORK], needed);
        if (awaits_readers)
            await(&loop_counters[DECISION], BLOCKS * needed);
        atomic_store_explicit(&condition, visits < TRIPS, memory_order_relaxed);
        loop_signal(CONDITION);
    }
    if (joins) /* all rows of the segment: this one has waited for the others */
        await(&loop_counters[CONDITION], needed);
}

static void run_loop_block(void *argument)
{
    uint32_t block = (uint32_t)(uintptr_t)argument, visits = 0;
    if (block == 1) {
        atomic_store_explicit(&condition, 1, memory_order_relaxed);
        loop_signal(FIRST);
    }
    await(&loop_counters[FIRST], 1);
    for (;;) {
        uint32_t goes_on = atomic_load_explicit(&condition, memory_order_relaxed);
        loop_signal(DECISION);
        if (goes_on == 0)
            break;
        loop_body(block, ++visits);
    }
    explore_check(visits == TRIPS);
    if (block == 1) { /* a task after the loop */
        explore_check(atomic_load_explicit(&worked, memory_order_relaxed) == TRIPS);
        loop_signal(LAST);
    }
    uint32_t gone = atomic_fetch_add_explicit(&loop_counters[LOOP_ROWS], 1, memory_order_acq_rel);
    for (uint32_t i = 0; gone + 1 == BLOCKS && i < LOOP_ROWS + 1; i++)
        atomic_store_explicit(&loop_counters[i], 0, memory_order_relaxed);
}

static void launch_loop(void)
{
    int threads[BLOCKS];
    memset((void *)loop_counters, 0, sizeof loop_counters);
    atomic_store_explicit(&condition, 0, memory_order_relaxed);
    atomic_store_explicit(&worked, 0, memory_order_relaxed);
    for (uintptr_t i = 0; i < BLOCKS; i++)
        threads[i] = explore_start(run_loop_block, (void *)i);
    for (int i = 0; i < BLOCKS; i++)
        explore_join(threads[i]);
    for (int i = 0; i < LOOP_ROWS + 1; i++)
        explore_check(atomic_load_explicit(&loop_counters[i], memory_order_relaxed) == 0);
}

/* --- places ----------------------------------------------------------------------------------- */

enum { PLACES = 3, PROCESSORS = 2 };

/* Two blocks on the first processor; the number of the third one's is too large. */
static const uint32_t processors[PLACES] = {0, 0, 5};
static bool claims_places;
static _Atomic uint32_t arrivals[PROCESSORS], claims[PLACES], holders[PLACES];

static void run_placed_block(void *argument)
{
    uint32_t on = processors[(uintptr_t)argument], place = PLACES, next = 0, free_place = 0;
    if (on < PROCESSORS)
        place = on + PROCESSORS * atomic_fetch_add_explicit(&arrivals[on], 1, memory_order_relaxed);
    if (place >= PLACES)
        place = next++;
    while (!atomic_compare_exchange_strong_explicit(&claims[place], &free_place, 1,
                                                    memory_order_relaxed, memory_order_relaxed) &&
           claims_places) {
        place = next++;
        free_place = 0;
        explore_check(place < PLACES);
    }
    explore_check(atomic_fetch_add_explicit(&holders[place], 1, memory_order_relaxed) == 0);
}

static void launch_placed(void)
{
    int threads[PLACES];
    memset((void *)arrivals, 0, sizeof arrivals);
    memset((void *)claims, 0, sizeof claims);
    memset((void *)holders, 0, sizeof holders);
    for (uintptr_t i = 0; i < PLACES; i++)
        threads[i] = explore_start(run_placed_block, (void *)i);
    for (int i = 0; i < PLACES; i++)
        explore_join(threads[i]);
}

int main(int count, char **arguments)
{
    const char *bug = count > 1 ? arguments[1] : "";
    rows[0] = (row){.awaited = strcmp(bug, "backward") == 0 ? 1 : -1,
                    .previous = strcmp(bug, "no-previous") == 0 ? -1 : 2};
    rows[1] =
        (row){.first_block = 1, .awaited = strcmp(bug, "no-wait") == 0 ? -1 : 0, .previous = -1};
    rows[2] = (row){.first_block = 1, .awaited = 1, .previous = -1};
    signals_early = strcmp(bug, "early") == 0;
    resets = strcmp(bug, "no-reset") != 0;
    const explore_options options = {
        .name = "persistent kernel", .body = launch, .bound = 2, .store_buffers = false};
    const explore_options loop_options = {
        .name = "loop of a persistent kernel", .body = launch_loop, .bound = 3};
    awaits_readers = strcmp(bug, "overwrite") != 0;
    joins = strcmp(bug, "no-join") != 0;
    counts_visits = strcmp(bug, "no-visits") != 0;
    const explore_options tile_options = {
        .name = "tiles of a persistent kernel", .body = launch_tiles, .bound = 3};
    waits_for_other_tile = strcmp(bug, "other-tile") == 0;
    waits_for_few = strcmp(bug, "too-few") == 0;
    waits_for_previous = strcmp(bug, "next-early") != 0;
    has_wrong_lists = strcmp(bug, "list-order") == 0;
    bool is_of_tiles =
        waits_for_other_tile || waits_for_few || !waits_for_previous || has_wrong_lists;
    bool is_of_loop = !awaits_readers || !joins || !counts_visits;
    const explore_options place_options = {
        .name = "places of blocks", .body = launch_placed, .bound = 3};
    claims_places = strcmp(bug, "no-claim") != 0;
    if (*bug != '\0')
        return explore_expect(!claims_places ? &place_options
                              : is_of_loop   ? &loop_options
                              : is_of_tiles  ? &tile_options
                                             : &options,
                              true);
    return explore_expect(&options, false) | explore_expect(&tile_options, false) |
           explore_expect(&loop_options, false) | explore_expect(&place_options, false);
}
