#include "exec/task_edges.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The cost of starting a task, in edges: the time to decrement this many counters. */
enum { EDGES_JOIN_COSTS = 8 };

/* --- the tasks so far ------------------------------------------------------------------------- */

static nova_status edges_append(nova_task_list *to, const uint32_t *items, size_t count)
{
    if (to->count + count > to->capacity) {
        size_t capacity = 2 * (to->count + count) + 64;
        uint32_t *grown = realloc(to->items, capacity * sizeof *grown);
        if (grown == NULL)
            return NOVA_OUT_OF_MEMORY;
        to->items = grown;
        to->capacity = capacity;
    }
    if (count > 0)
        memcpy(to->items + to->count, items, count * sizeof *items);
    to->count += count;
    return NOVA_OK;
}

static nova_status edges_add_task(nova_task_edges *edges, uint32_t launch, int64_t begin,
                                  int64_t end, const uint32_t *waits, uint32_t wait_count)
{
    if (edges->count == NOVA_MOST_TASKS)
        return NOVA_OUT_OF_RANGE;
    if (edges->count == edges->capacity) {
        uint32_t capacity = 2 * edges->capacity + 256;
        nova_task *tasks = realloc(edges->tasks, capacity * sizeof *tasks);
        edges->tasks = tasks != NULL ? tasks : edges->tasks;
        uint64_t **above = realloc(edges->above, capacity * sizeof *above);
        edges->above = above != NULL ? above : edges->above;
        if (tasks == NULL || above == NULL)
            return NOVA_OUT_OF_MEMORY;
        edges->capacity = capacity;
    }
    uint32_t number = edges->count;
    uint64_t *above = calloc(nova_task_words(number), sizeof *above);
    if (above == NULL)
        return NOVA_OUT_OF_MEMORY;
    above[number / 64] |= UINT64_C(1) << number % 64;
    for (uint32_t i = 0; i < wait_count; i++)
        for (size_t word = 0; word < nova_task_words(waits[i]); word++)
            above[word] |= edges->above[waits[i]][word];
    edges->above[number] = above;
    edges->tasks[number] =
        (nova_task){.launch = launch, .waits = wait_count, .begin = begin, .end = end};
    edges->count++;
    return edges_append(&edges->waits, waits, wait_count);
}

/* --- edges ------------------------------------------------------------------------------------ */

/* Appends the tasks of a set without a successor in it, ascending; `join` replaces the tasks that
 * it joins. `set` has `words` words and is destroyed; `covered` is scratch of the same size. */
static nova_status edges_newest(nova_task_edges *edges, uint64_t *set, uint64_t *covered,
                                size_t words, uint32_t join, nova_task_list *newest)
{
    size_t first = newest->count;
    memset(covered, 0, words * sizeof *covered);
    if (join != NOVA_NO_TASK)
        for (size_t i = 0; i < words && i < nova_task_words(join); i++)
            set[i] &= ~edges->above[join][i];
    for (size_t i = words; i-- > 0;)
        while (set[i] != 0) {
            /* The last one: no task in the set waits for it. */
            uint32_t task = (uint32_t)(64 * i) + 63 - (uint32_t)__builtin_clzll(set[i]);
            nova_status status = edges_append(newest, &task, 1);
            if (status != NOVA_OK)
                return status;
            for (size_t k = 0; k <= i; k++) {
                covered[k] |= edges->above[task][k];
                set[k] &= ~edges->above[task][k];
            }
        }
    for (size_t i = first, k = newest->count; i + 1 < k; i++) { /* they are descending */
        uint32_t swapped = newest->items[i];
        newest->items[i] = newest->items[--k];
        newest->items[k] = swapped;
    }
    bool is_needed = false;
    for (size_t i = 0; join != NOVA_NO_TASK && i < nova_task_words(join); i++) {
        uint64_t own = i == join / 64 ? UINT64_C(1) << join % 64 : 0;
        is_needed |= (edges->above[join][i] & ~own & ~(i < words ? covered[i] : 0)) != 0;
    }
    return is_needed ? edges_append(newest, &join, 1) : NOVA_OK;
}

/* A task without tiles that waits for all of `waits`, if that saves enough edges; else
 * NOVA_NO_TASK. */
static nova_status edges_join(nova_task_edges *edges, uint32_t launch, const uint32_t *waits,
                              uint32_t count, uint32_t followers, uint32_t *join)
{
    *join = NOVA_NO_TASK;
    if ((uint64_t)count * followers <= (uint64_t)count + followers + EDGES_JOIN_COSTS)
        return NOVA_OK;
    /* One that is there: in `joins` each is a task, and where its waits begin. */
    for (size_t i = 0; i < edges->joins.count; i += 2) {
        uint32_t task = edges->joins.items[i];
        const uint32_t *others = edges->waits.items + edges->joins.items[i + 1];
        if (edges->tasks[task].waits == count &&
            memcmp(others, waits, count * sizeof *waits) == 0) {
            *join = task;
            return NOVA_OK;
        }
    }
    const uint32_t row[] = {edges->count, (uint32_t)edges->waits.count};
    *join = edges->count;
    nova_status status = edges_append(&edges->joins, row, 2);
    return status == NOVA_OK ? edges_add_task(edges, launch, 0, 0, waits, count) : status;
}

static bool edges_same(const nova_task_list *newest, const nova_task_group *a, size_t first,
                       size_t last)
{
    return a->last - a->first == last - first &&
           memcmp(newest->items + a->first, newest->items + first,
                  (last - first) * sizeof *newest->items) == 0;
}

/* Groups the tasks by what they wait for: `group_of` each. */
static nova_status edges_group(nova_task_edges *edges, uint64_t *needed, uint64_t *scratch,
                               size_t words, uint32_t count, uint32_t join, nova_task_list *newest,
                               nova_task_group *groups, uint32_t *group_of, uint32_t *group_count)
{
    for (uint32_t task = 0; task < count; task++) {
        const uint64_t *before = task > 0 ? scratch + words : NULL; /* what the last one needed */
        if (before != NULL && memcmp(before, needed + task * words, words * sizeof *needed) == 0) {
            groups[group_of[task] = group_of[task - 1]].followers++;
            continue;
        }
        memcpy(scratch + words, needed + task * words, words * sizeof *needed);
        size_t first = newest->count;
        nova_status status =
            edges_newest(edges, needed + task * words, scratch, words, join, newest);
        if (status != NOVA_OK)
            return status;
        uint32_t i = 0;
        while (i < *group_count && !edges_same(newest, &groups[i], first, newest->count))
            i++;
        if (i == *group_count)
            groups[(*group_count)++] = (nova_task_group){first, newest->count, 0, NOVA_NO_TASK};
        else
            newest->count = first;
        groups[i].followers++;
        group_of[task] = i;
    }
    return NOVA_OK;
}

nova_status nova_task_edges_add(nova_task_edges *edges, uint32_t launch, const int64_t *cuts,
                                uint32_t count, uint64_t *needed, uint64_t *scratch, size_t words,
                                nova_task_group *groups, uint32_t *group_of)
{
    memcpy(scratch + words, needed, words * sizeof *needed); /* what all of them need */
    for (uint32_t task = 1; task < count; task++)
        for (size_t i = 0; i < words; i++)
            scratch[words + i] &= needed[task * words + i];
    nova_task_list newest = {0};
    uint32_t join = NOVA_NO_TASK, group_count = 0;
    nova_status status =
        edges_newest(edges, scratch + words, scratch, words, NOVA_NO_TASK, &newest);
    if (status == NOVA_OK)
        status = edges_join(edges, launch, newest.items, (uint32_t)newest.count, count, &join);
    if (status == NOVA_OK)
        status = edges_group(edges, needed, scratch, words, count, join, &newest, groups, group_of,
                             &group_count);
    for (uint32_t i = 0; status == NOVA_OK && i < group_count; i++)
        status = edges_join(edges, launch, newest.items + groups[i].first,
                            (uint32_t)(groups[i].last - groups[i].first), groups[i].followers,
                            &groups[i].join);
    for (uint32_t task = 0; status == NOVA_OK && task < count; task++) {
        const nova_task_group *of = &groups[group_of[task]];
        bool joined = of->join != NOVA_NO_TASK;
        status = edges_add_task(edges, launch, cuts[task], cuts[task + 1],
                                joined ? &of->join : newest.items + of->first,
                                joined ? 1 : (uint32_t)(of->last - of->first));
    }
    free(newest.items);
    return status;
}

nova_status nova_task_edges_add_after_all(nova_task_edges *edges, uint32_t launch, int64_t tiles)
{
    size_t words = nova_task_words(edges->count);
    uint64_t *all = calloc(2 * words, sizeof *all);
    if (all == NULL)
        return NOVA_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < edges->count; i++)
        all[i / 64] |= UINT64_C(1) << i % 64;
    nova_task_list newest = {0};
    nova_status status = edges_newest(edges, all, all + words, words, NOVA_NO_TASK, &newest);
    if (status == NOVA_OK)
        status = edges_add_task(edges, launch, 0, tiles, newest.items, (uint32_t)newest.count);
    free(newest.items);
    free(all);
    return status;
}

bool nova_task_edges_are_wide(const nova_task_edges *edges)
{
    for (uint32_t i = 0; i < edges->count; i++) {
        uint64_t top = UINT64_MAX >> (63 - i % 64);
        for (uint32_t word = 0; word <= i / 64; word++)
            if (edges->above[i][word] != (word < i / 64 ? UINT64_MAX : top))
                return true;
    }
    return false;
}

void nova_task_edges_free(nova_task_edges *edges)
{
    for (uint32_t i = 0; i < edges->count; i++)
        free(edges->above[i]);
    free(edges->above);
    free(edges->tasks);
    free(edges->waits.items);
    free(edges->joins.items);
}
