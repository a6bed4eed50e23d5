#include "exec/task_ranges.h"

#include <stdlib.h>

/* A large machine gets shorter tasks, so that every thread has one: down to this many nanoseconds,
 * where starting a task is still a small part of it. */
static const double RANGES_SHORTEST = 8000;

/* Tasks of a thread, and those of a kernel that takes so long that the last ones would leave most
 * threads of a large machine idle. */
enum { RANGES_TASKS_PER_WORKER = 2, RANGES_TASKS_IF_LONG = 8, RANGES_FEW_WORKERS = 2 };

static const double RANGES_LONG = 10000000;

/* --- cutting ---------------------------------------------------------------------------------- */

static int64_t ranges_tiles_along(const int64_t *words, uint32_t rank, uint32_t dimension)
{
    int64_t grid = words[dimension], tile = words[rank + dimension];
    return (grid + tile - 1) / tile;
}

static uint32_t ranges_count_tasks(int64_t tiles, double cost, double longest, unsigned workers)
{
    double tasks = cost / longest;
    double balanced = (double)RANGES_TASKS_PER_WORKER * workers;
    double finer = (double)RANGES_TASKS_IF_LONG * workers;
    if (workers > RANGES_FEW_WORKERS && cost >= RANGES_LONG * finer)
        balanced = finer;
    double shortest = longest < RANGES_SHORTEST ? longest : RANGES_SHORTEST;
    if (tasks < balanced)
        tasks = cost / shortest < balanced ? cost / shortest : balanced;
    uint32_t most = tiles < NOVA_MOST_KERNEL_TASKS ? (uint32_t)tiles : NOVA_MOST_KERNEL_TASKS;
    uint32_t count = tasks < most ? (uint32_t)tasks : most;
    count += count < tasks && count < most; /* rounded up */
    return count > 0 ? count : 1;
}

/* Tasks of about equal cost: whole rows of tiles where a task has more than one row, so that its
 * footprint is one contiguous range. */
static nova_status ranges_cut(nova_task_ranges *ranges, const int64_t *words, uint32_t rank,
                              double cost, double longest, unsigned workers)
{
    int64_t tiles = 1;
    for (uint32_t i = 0; i < rank; i++)
        tiles *= ranges_tiles_along(words, rank, i);
    ranges->task_count = tiles > 0 ? ranges_count_tasks(tiles, cost, longest, workers) : 0;
    uint32_t tasks = ranges->task_count;
    ranges->cuts = calloc((size_t)tasks + 1, sizeof *ranges->cuts);
    if (ranges->cuts == NULL)
        return NOVA_OUT_OF_MEMORY;
    if (tasks == 0)
        return NOVA_OK;
    int64_t row = tiles; /* the longest run, the last dimensions whole, not longer than a task */
    for (uint32_t i = 0; i < rank && row * tasks > tiles; i++)
        row /= ranges_tiles_along(words, rank, i);
    int64_t rows = tiles / row;
    for (uint32_t i = 0; i <= tasks; i++)
        ranges->cuts[i] = row * (rows * i / tasks);
    return NOVA_OK;
}

/* --- the bytes of tiles ----------------------------------------------------------------------- */

/* A byte range of a tiling: words are the operand and direction, low, high and the strides. */
typedef struct {
    const int64_t *words; /* of the tiling: the grid, then the tile */
    const int64_t *range;
    uint32_t rank;
    int64_t low, high; /* result */
} tile_bounds;

/* Extends the result by tiles `first` to `last` along a dimension. */
static void ranges_shift(const tile_bounds *bounds, uint32_t dimension, int64_t first, int64_t last,
                         int64_t *low, int64_t *high)
{
    int64_t stride = bounds->range[3 + dimension];
    int64_t grid = bounds->words[dimension], tile = bounds->words[bounds->rank + dimension];
    int64_t begin = first * tile, end = (last + 1) * tile;
    end = (end < grid ? end : grid) - 1;
    *low += stride * (stride >= 0 ? begin : end);
    *high += stride * (stride >= 0 ? end : begin);
}

/* Tiles [begin, end) of dimensions from `dimension` on, where those before shift the bytes to
 * [low, high): a row that begins inside, whole rows, and a row that ends inside. */
static void ranges_bound(tile_bounds *bounds, uint32_t dimension, int64_t begin, int64_t end,
                         int64_t low, int64_t high)
{
    for (; dimension < bounds->rank; dimension++) {
        int64_t row = 1;
        for (uint32_t i = dimension + 1; i < bounds->rank; i++)
            row *= ranges_tiles_along(bounds->words, bounds->rank, i);
        int64_t first = begin / row, last = (end - 1) / row;
        int64_t head = begin % row, tail = (end - 1) % row + 1;
        if (first == last) {
            ranges_shift(bounds, dimension, first, last, &low, &high);
            begin = head;
            end = tail;
            continue;
        }
        if (head > 0) {
            int64_t inner_low = low, inner_high = high;
            ranges_shift(bounds, dimension, first, first, &inner_low, &inner_high);
            ranges_bound(bounds, dimension + 1, head, row, inner_low, inner_high);
            first++;
        }
        if (tail < row) {
            int64_t inner_low = low, inner_high = high;
            ranges_shift(bounds, dimension, last, last, &inner_low, &inner_high);
            ranges_bound(bounds, dimension + 1, 0, tail, inner_low, inner_high);
            last--;
        }
        if (first > last)
            return;
        ranges_shift(bounds, dimension, first, last, &low, &high);
        begin = 0;
        end = row;
    }
    bounds->low = low < bounds->low ? low : bounds->low;
    bounds->high = high > bounds->high ? high : bounds->high;
}

/* --- accesses --------------------------------------------------------------------------------- */

/* The bytes of one task, while spans are being found. */
typedef struct {
    int64_t low, high;
    uint32_t task;
} touched;

static int ranges_compare(const void *left, const void *right)
{
    const touched *a = left, *b = right;
    if (a->low != b->low)
        return a->low < b->low ? -1 : 1;
    if (a->high != b->high)
        return a->high < b->high ? -1 : 1;
    return a->task < b->task ? -1 : a->task > b->task;
}

/* One span for each set of tasks that touch the same bytes. */
static nova_status ranges_group(touched *tasks, uint32_t count, nova_task_access *access)
{
    qsort(tasks, count, sizeof *tasks, ranges_compare);
    access->spans = calloc((size_t)count + 1, sizeof *access->spans);
    access->tasks = calloc((size_t)count + 1, sizeof *access->tasks);
    if (access->spans == NULL || access->tasks == NULL)
        return NOVA_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        if (tasks[i].low >= tasks[i].high)
            continue;
        nova_task_span *last = access->spans + access->span_count;
        bool is_new = access->span_count == 0 || last[-1].low != tasks[i].low ||
                      last[-1].high != tasks[i].high;
        if (is_new) {
            *last = (nova_task_span){.low = tasks[i].low, .high = tasks[i].high, .first = i};
            access->span_count++;
        }
        access->tasks[i] = tasks[i].task;
        (is_new ? last : last - 1)->count++;
    }
    return NOVA_OK;
}

/* All byte ranges of one operand and direction, from `range` on; they are adjacent. */
static nova_status ranges_access(const nova_task_ranges *ranges, const int64_t *words,
                                 const int64_t *range, uint32_t range_count, uint32_t rank,
                                 touched *tasks, nova_task_access *access)
{
    for (uint32_t task = 0; task < ranges->task_count; task++) {
        tile_bounds bounds = {.words = words, .rank = rank, .low = INT64_MAX, .high = INT64_MIN};
        for (uint32_t i = 0; i < range_count; i++) {
            bounds.range = range + (size_t)i * (3 + rank);
            ranges_bound(&bounds, 0, ranges->cuts[task], ranges->cuts[task + 1], bounds.range[1],
                         bounds.range[2]);
        }
        tasks[task] = (touched){bounds.low, bounds.high, task};
    }
    access->operand = (uint32_t)(range[0] >> 1);
    access->writes = (range[0] & 1) != 0;
    return ranges_group(tasks, ranges->task_count, access);
}

static nova_status ranges_find_accesses(nova_task_ranges *ranges, const nova_tiling *tiling,
                                        const int64_t *words)
{
    uint32_t rank = tiling->rank, count = tiling->range_count;
    const int64_t *range = words + 2 * (size_t)rank;
    touched *tasks = calloc((size_t)ranges->task_count + 1, sizeof *tasks);
    ranges->accesses = calloc((size_t)count + 1, sizeof *ranges->accesses);
    nova_status status = tasks != NULL && ranges->accesses != NULL ? NOVA_OK : NOVA_OUT_OF_MEMORY;
    for (uint32_t i = 0, last; status == NOVA_OK && i < count; i = last) {
        const int64_t *first = range + (size_t)i * (3 + rank);
        for (last = i + 1; last < count && range[(size_t)last * (3 + rank)] == first[0];)
            last++;
        status = ranges_access(ranges, words, first, last - i, rank, tasks,
                               &ranges->accesses[ranges->access_count]);
        ranges->access_count++;
    }
    free(tasks);
    return status;
}

nova_status nova_task_ranges_create(const nova_tables *tables, uint32_t kernel, double cost,
                                    double longest, unsigned workers, nova_task_ranges *ranges)
{
    const nova_tiling *tiling = &tables->tilings[kernel];
    const int64_t *words = tables->tiling_words + tiling->first_word;
    *ranges = (nova_task_ranges){0};
    nova_status status = ranges_cut(ranges, words, tiling->rank, cost, longest, workers);
    if (status == NOVA_OK && ranges->task_count > 0)
        status = ranges_find_accesses(ranges, tiling, words);
    if (status != NOVA_OK)
        nova_task_ranges_free(ranges);
    return status;
}

void nova_task_ranges_free(nova_task_ranges *ranges)
{
    for (uint32_t i = 0; i < ranges->access_count; i++) {
        free(ranges->accesses[i].spans);
        free(ranges->accesses[i].tasks);
    }
    free(ranges->accesses);
    free(ranges->cuts);
    *ranges = (nova_task_ranges){0};
}
