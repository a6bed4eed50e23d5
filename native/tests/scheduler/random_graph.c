#include "random_graph.h"

#include <string.h>

#include "../support/check.h"

typedef struct edge {
    uint32_t from, to;
} edge;

typedef struct edge_list {
    edge *edges;
    uint32_t count, capacity;
} edge_list;

uint64_t random_next(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint32_t below(uint64_t *state, uint32_t limit)
{
    return (uint32_t)(random_next(state) % limit);
}

static void connect(edge_list *list, uint32_t from, uint32_t to)
{
    if (list->count == list->capacity) {
        list->capacity = list->capacity > 0 ? 2 * list->capacity : 1024;
        list->edges = realloc(list->edges, list->capacity * sizeof *list->edges);
        CHECK(list->edges != NULL);
    }
    list->edges[list->count++] = (edge){from, to};
}

/* Edges among tasks [first, end) of one shape. */
static void add_shape(edge_list *list, uint64_t *state, uint32_t shape, uint32_t first,
                      uint32_t end)
{
    uint32_t count = end - first, width = 1 + below(state, 64);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t task = first + i;
        switch (shape) {
        case 0: /* `width` parallel chains, with occasional links between them */
            if (i >= width)
                connect(list, task - width, task);
            if (i > width && below(state, 8) == 0)
                connect(list, task - width - 1, task);
            break;
        /* layers: each task reads several tasks of the previous layer, sometimes one twice */
        case 1:
            if (i / width > 0)
                for (uint32_t k = below(state, 4) + 1; k > 0; k--)
                    connect(list, first + (i / width - 1) * width + below(state, width), task);
            break;
        case 2: /* barriers: every `width` tasks one that waits for all, and that all wait for */
            if (i % (width + 1) == width)
                for (uint32_t k = 1; k <= width; k++)
                    connect(list, task - k, task);
            else if (i / (width + 1) > 0)
                connect(list, first + i / (width + 1) * (width + 1) - 1, task);
            break;
        case 3: /* a tree, outwards and then inwards */
            if (i > 0 && i <= count / 2)
                connect(list, first + (i - 1) / 2, task);
            else if (i > 0)
                for (uint32_t k = 0; k < 2; k++)
                    connect(list, first + below(state, i), task);
            break;
        case 4: /* long and short edges at random */
            for (uint32_t k = below(state, 5); k > 0 && i > 0; k--)
                connect(list,
                        first + (below(state, 2) ? below(state, i)
                                                 : i - 1 - below(state, i < 9 ? i : 9)),
                        task);
            break;
        default: /* independent tasks */
            break;
        }
    }
}

static void make_edges(edge_list *list, uint64_t *state, uint32_t count)
{
    uint32_t shape = below(state, 8);
    if (shape < 6) {
        add_shape(list, state, shape, 0, count);
        return;
    }
    /* Subgraphs of all shapes, each with a few edges from earlier tasks. */
    for (uint32_t first = 0; first < count;) {
        uint32_t size = 1 + below(state, count / 4 + 1);
        uint32_t end = size < count - first ? first + size : count;
        add_shape(list, state, below(state, 6), first, end);
        for (uint32_t k = below(state, 20); k > 0 && first > 0; k--)
            connect(list, below(state, first), first + below(state, end - first));
        first = end;
    }
}

static void *array(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    CHECK(memory != NULL);
    return memory;
}

/* Sorts the edges by `from` into successors, and by `to` into inputs. */
static void fill_tables(random_graph *graph, const edge_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        CHECK(list->edges[i].from < list->edges[i].to);
        graph->tasks[list->edges[i].from].successor_count++;
        graph->tasks[list->edges[i].to].waits++;
    }
    uint32_t *at = array(graph->task_count, sizeof *at);
    for (uint32_t i = 0, out = 0, in = 0; i < graph->task_count; i++) {
        graph->tasks[i].first_successor = out;
        graph->first_input[i] = in;
        at[i] = in;
        out += graph->tasks[i].successor_count;
        in += graph->tasks[i].waits;
        graph->tasks[i].successor_count = 0;
    }
    graph->first_input[graph->task_count] = list->count;
    for (uint32_t i = 0; i < list->count; i++) {
        nova_task *from = &graph->tasks[list->edges[i].from];
        graph->successors[from->first_successor + from->successor_count++] = list->edges[i].to;
        graph->inputs[at[list->edges[i].to]++] = list->edges[i].from;
    }
    free(at);
}

uint64_t random_graph_value(const random_graph *graph, const uint64_t *values, uint32_t task)
{
    uint64_t state = task;
    for (uint32_t i = graph->first_input[task]; i < graph->first_input[task + 1]; i++) {
        state = state * 31 + values[graph->inputs[i]]; /* the order matters */
        state = random_next(&state);
    }
    return random_next(&state);
}

random_graph *random_graph_make(uint64_t seed, uint32_t most)
{
    uint64_t state = seed * 7919 + 1;
    /* Small graphs find most mistakes, large ones the others. */
    uint32_t size = most;
    for (uint32_t k = below(&state, 5); k > 0 && size > 16; k--)
        size /= 8;
    random_graph *graph = array(1, sizeof *graph);
    graph->task_count = 1 + below(&state, size);
    edge_list list = {NULL, 0, 0};
    make_edges(&list, &state, graph->task_count);
    graph->edge_count = list.count;
    graph->tasks = array(graph->task_count, sizeof *graph->tasks);
    graph->successors = array(list.count, sizeof *graph->successors);
    graph->inputs = array(list.count, sizeof *graph->inputs);
    graph->first_input = array(graph->task_count, sizeof *graph->first_input);
    graph->core = array(graph->task_count, sizeof *graph->core);
    graph->cost = array(graph->task_count, sizeof *graph->cost);
    graph->expected = array(graph->task_count, sizeof *graph->expected);
    fill_tables(graph, &list);
    free(list.edges);
    uint32_t host_share = below(&state, 3) == 0 ? 1 + below(&state, 50) : 0;
    for (uint32_t i = 0; i < graph->task_count; i++) {
        graph->core[i] = (uint8_t)below(&state, 2);
        if (host_share > 0 && below(&state, 100) < host_share)
            graph->core[i] = NOVA_HOST;
        graph->cost[i] = below(&state, 4) == 0 ? 0 : below(&state, 10000);
        graph->expected[i] = random_graph_value(graph, graph->expected, i);
    }
    const nova_graph_tables tables = {
        .tasks = graph->tasks,
        .successors = graph->successors,
        .core = graph->core,
        .cost = graph->cost,
        .task_count = graph->task_count,
        .successor_count = graph->edge_count,
    };
    CHECK(nova_graph_create(&tables, 0, &graph->graph) == NOVA_OK);
    return graph;
}

void random_graph_free(random_graph *graph)
{
    nova_graph_destroy(graph->graph);
    free(graph->tasks);
    free(graph->successors);
    free(graph->inputs);
    free(graph->first_input);
    free(graph->core);
    free(graph->cost);
    free(graph->expected);
    free(graph);
}
