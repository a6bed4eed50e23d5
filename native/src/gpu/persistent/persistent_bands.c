/* The launches of a program as bands: adjacent tasks that wait for the same tasks of other
 * launches, and that the same tasks wait for. So dependences are those of tiles, where tiles line
 * up. Bands of a launch with the same dependences share a counter. */
#include <stdlib.h>
#include <string.h>

#include "gpu/persistent/persistent.h"
#include "nova/task_plan.h"

/* Most bands of a launch, and of a program: a warp polls 32 counters at once. PERSISTENT_BANDS and
 * PERSISTENT_TASKS of nova/artifact/tile_waits.py are the same. */
enum { MOST_BANDS = 32, MOST_TASKS = 4096 };

/* Sets of tasks: those that each task waits for, and those that wait for it. */
typedef struct {
    const nova_device_program *program;
    nova_task_plan tasks;
    size_t words;
    uint64_t *before, *after;
    uint32_t *counter_of; /* of each task; UINT32_MAX: it has no blocks */
} bands_state;

/* The row of a launch of the tables, or the number of launches: rows are in ascending order. */
static uint32_t bands_row_of(const nova_device_program *program, uint32_t launch)
{
    uint32_t low = 0, high = program->launch_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (program->launches[middle] < launch)
            low = middle + 1;
        else
            high = middle;
    }
    return low < program->launch_count && program->launches[low] == launch ? low
                                                                           : program->launch_count;
}

static uint32_t bands_grid(const nova_device_program *program, uint32_t row)
{
    const nova_launch_record *launch = &program->tables.launches[program->launches[row]];
    return program->tables.devices[launch->kernel].grid[0];
}

/* Whether a task runs blocks: joins, and tasks of launches that do nothing, do not. */
static bool bands_has_blocks(const bands_state *state, uint32_t task)
{
    const nova_task *t = &state->tasks.tasks[task];
    return t->begin < t->end &&
           bands_row_of(state->program, t->launch) < state->program->launch_count;
}

static void bands_unite(uint64_t *set, const uint64_t *other, size_t words)
{
    for (size_t i = 0; i < words; i++)
        set[i] |= other[i];
}

/* Joins are replaced by the tasks that they wait for. */
static void bands_find_sets(const bands_state *state)
{
    size_t words = state->words;
    for (uint32_t t = 0; t < state->tasks.task_count; t++) {
        const nova_task *task = &state->tasks.tasks[t];
        bool has_blocks = bands_has_blocks(state, t);
        for (uint32_t k = 0; k < task->successor_count; k++) {
            uint64_t *before =
                state->before + words * state->tasks.successors[task->first_successor + k];
            if (has_blocks)
                before[t / 64] |= UINT64_C(1) << t % 64;
            else
                bands_unite(before, state->before + words * t, words);
        }
    }
    for (uint32_t t = 0; t < state->tasks.task_count; t++) {
        uint32_t end = bands_has_blocks(state, t) ? t : 0;
        for (uint32_t from = 0; from < end; from++)
            if (state->before[words * t + from / 64] >> from % 64 & 1)
                state->after[words * from + t / 64] |= UINT64_C(1) << t % 64;
    }
}

static bool bands_are_alike(const bands_state *state, uint32_t a, uint32_t b)
{
    size_t words = state->words, size = words * sizeof(uint64_t);
    return memcmp(state->before + words * a, state->before + words * b, size) == 0 &&
           memcmp(state->after + words * a, state->after + words * b, size) == 0;
}

/* Whether the tasks [first, last) of a launch are all of its blocks, in order. */
static bool bands_are_complete(const bands_state *state, uint32_t first, uint32_t last,
                               uint32_t blocks)
{
    int64_t end = 0;
    for (uint32_t t = first; t < last; t++) {
        const nova_task *task = &state->tasks.tasks[t];
        if (task->begin == task->end)
            continue;
        if (task->begin != end)
            return false;
        end = task->end;
    }
    return end == blocks;
}

static void bands_add(persistent_bands *bands, uint32_t row, uint32_t begin, uint32_t count,
                      uint32_t counter)
{
    persistent_band *last = bands->band_count > 0 ? &bands->bands[bands->band_count - 1] : NULL;
    bands->totals[counter] += count;
    if (last != NULL && last->row == row && last->counter == counter &&
        last->begin + last->count == begin)
        last->count += count;
    else
        bands->bands[bands->band_count++] = (persistent_band){row, begin, count, counter};
}

/* The bands of the launch of the tasks [first, last). */
static void bands_cut(const bands_state *state, uint32_t first, uint32_t last,
                      persistent_bands *bands)
{
    uint32_t row = bands_row_of(state->program, state->tasks.tasks[first].launch);
    if (row == state->program->launch_count || bands_grid(state->program, row) == 0)
        return;
    uint32_t blocks = bands_grid(state->program, row), first_counter = bands->counter_count;
    bool is_cut = bands_are_complete(state, first, last, blocks);
    for (uint32_t t = first; t < last; t++) {
        if (!bands_has_blocks(state, t))
            continue;
        uint32_t other = first;
        while (is_cut && other < t &&
               (!bands_has_blocks(state, other) || !bands_are_alike(state, other, t)))
            other++;
        if (!is_cut)
            state->counter_of[t] = first_counter;
        else
            state->counter_of[t] = other < t ? state->counter_of[other] : bands->counter_count++;
        const nova_task *task = &state->tasks.tasks[t];
        if (is_cut)
            bands_add(bands, row, (uint32_t)task->begin, (uint32_t)(task->end - task->begin),
                      state->counter_of[t]);
    }
    if (!is_cut) {
        bands->counter_count = first_counter + 1;
        bands_add(bands, row, 0, blocks, first_counter);
    }
}

static void bands_order(const bands_state *state, persistent_bands *bands)
{
    for (uint32_t t = 0; t < state->tasks.task_count; t++)
        for (uint32_t from = 0; state->counter_of[t] != UINT32_MAX && from < t; from++)
            if (state->before[state->words * t + from / 64] >> from % 64 & 1 &&
                state->counter_of[from] != UINT32_MAX)
                persistent_order_add(&bands->order, state->counter_of[t], state->counter_of[from]);
}

/* The last band, and the order of all counters, without dependences. */
static bool bands_finish(persistent_bands *bands, uint32_t launch_count)
{
    bands_add(bands, launch_count, 0, 1, bands->counter_count++);
    return persistent_order_create(&bands->order, bands->counter_count);
}

static bool bands_of_tasks(bands_state *state, persistent_bands *bands)
{
    uint32_t count = state->tasks.task_count;
    state->words = (count + (size_t)63) / 64;
    state->before = calloc(state->words * count, sizeof *state->before);
    state->after = calloc(state->words * count, sizeof *state->after);
    state->counter_of = malloc(count * sizeof *state->counter_of);
    if (state->before == NULL || state->after == NULL || state->counter_of == NULL)
        return false;
    memset(state->counter_of, 0xff, count * sizeof *state->counter_of);
    bands_find_sets(state);
    for (uint32_t first = 0, last; first < count; first = last) {
        for (last = first; last < count; last++)
            if (state->tasks.tasks[last].launch != state->tasks.tasks[first].launch)
                break;
        bands_cut(state, first, last, bands);
    }
    if (!bands_finish(bands, state->program->launch_count))
        return false;
    bands_order(state, bands);
    return true;
}

/* A band for each launch, which waits for the one before it. */
static bool bands_in_order(const nova_device_program *program, persistent_bands *bands)
{
    for (uint32_t row = 0; row < program->launch_count; row++)
        if (bands_grid(program, row) > 0)
            bands_add(bands, row, 0, bands_grid(program, row), bands->counter_count++);
    if (!bands_finish(bands, program->launch_count))
        return false;
    for (uint32_t i = 1; i + 1 < bands->counter_count; i++)
        persistent_order_add(&bands->order, i, i - 1);
    return true;
}

bool persistent_bands_create(const nova_device_program *program, bool has_tiles,
                             persistent_bands *bands)
{
    bands_state state = {.program = program};
    uint32_t most = MOST_TASKS / (program->launch_count + 1);
    most = !has_tiles || most < 1 ? 1 : most > MOST_BANDS ? MOST_BANDS : most;
    *bands = (persistent_bands){0};
    if (!nova_graph_has_aliases(program) &&
        nova_task_plan_create_device(&program->tables, most, &state.tasks) != NOVA_OK)
        return false;
    size_t room = (size_t)state.tasks.task_count + program->launch_count + 2;
    bands->bands = calloc(room, sizeof *bands->bands);
    bands->totals = calloc(room, sizeof *bands->totals);
    bands->only_block = malloc(room * sizeof *bands->only_block);
    bands->is_followed = calloc(room, sizeof *bands->is_followed);
    bands->is_awaited = calloc(room, sizeof *bands->is_awaited);
    if (bands->only_block != NULL)
        memset(bands->only_block, 0xff, room * sizeof *bands->only_block);
    bool has_memory = bands->bands != NULL && bands->totals != NULL && bands->only_block != NULL &&
                      bands->is_followed != NULL && bands->is_awaited != NULL &&
                      (state.tasks.task_count > 0 ? bands_of_tasks(&state, bands)
                                                  : bands_in_order(program, bands));
    if (has_memory)
        persistent_order_reduce(&bands->order);
    free(state.before);
    free(state.after);
    free(state.counter_of);
    nova_task_plan_free(&state.tasks);
    return has_memory;
}

void persistent_bands_free(persistent_bands *bands)
{
    free(bands->bands);
    free(bands->totals);
    free(bands->only_block);
    free(bands->is_followed);
    free(bands->is_awaited);
    persistent_order_free(&bands->order);
}
