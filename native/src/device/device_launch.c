/* The launches of a run. The first run of an execution launches kernel by kernel. From the second on they are
 * one graph; other pointers than last time change the graph's launches, which costs much less than a new
 * one. A program with kernels of the host (device_mixed.c) always goes launch by launch, and so does a run that is
 * traced. */
#include <stdlib.h>
#include <string.h>

#include "device_run.h"

static uint64_t operand_address(const nova_device_run *r, const nova_buffer *buffer)
{
    const nova_device_program *program = r->program;
    const uint64_t *slots = r->execution->slots;
    size_t outputs = program->argument_count;
    switch (buffer->kind) {
    case NOVA_ARGUMENT:
        return slots[buffer->value];
    case NOVA_OUTPUT:
        return slots[outputs + buffer->value];
    case NOVA_WORKSPACE:
        return slots[outputs + program->output_count] + buffer->value;
    default:
        return program->constants->address + buffer->value;
    }
}

static int by_address(const void *a, const void *b)
{
    uint64_t x = ((const nova_device_range *)a)->address;
    uint64_t y = ((const nova_device_range *)b)->address;
    return x < y ? -1 : x > y;
}

/* The memory of a launch, sorted, with what overlaps as one. Operands that it only reads stand before the
 * others; constants are read whatever else is known. */
static uint32_t find_ranges(const nova_device_run *r, const nova_launch_record *launch,
                            nova_device_range *ranges)
{
    const nova_tables *tables = &r->program->tables;
    for (uint32_t k = 0; k < launch->operand_count; k++) {
        uint32_t operand = launch->first_operand + k;
        const nova_buffer *buffer = &tables->buffers[tables->operands[operand]];
        ranges[k] = (nova_device_range){
            .address = r->execution->pointers[operand],
            .size = buffer->nbytes,
            .is_read_only = k < launch->reads || buffer->kind == NOVA_CONSTANT,
        };
    }
    qsort(ranges, launch->operand_count, sizeof *ranges, by_address);
    uint32_t count = 0;
    for (uint32_t k = 0; k < launch->operand_count; k++) {
        nova_device_range *last = count > 0 ? &ranges[count - 1] : NULL;
        if (last != NULL && ranges[k].address < last->address + last->size) {
            uint64_t end = ranges[k].address + ranges[k].size;
            if (end > last->address + last->size)
                last->size = end - last->address;
            last->is_read_only &= ranges[k].is_read_only;
        } else if (ranges[k].size > 0) {
            ranges[count++] = ranges[k];
        }
    }
    return count;
}

/* All launches with the pointers of this run. */
static void bind(nova_device_run *r)
{
    const nova_tables *tables = &r->program->tables;
    nova_device_execution *execution = r->execution;
    bool checks = r->device->driver->checks_ranges;
    for (uint32_t i = 0; i < tables->header->operand_count; i++)
        execution->pointers[i] = operand_address(r, &tables->buffers[tables->operands[i]]);
    for (uint32_t i = 0; i < r->program->launch_count; i++) {
        const nova_launch_record *launch = &tables->launches[r->program->launches[i]];
        nova_device_range *ranges = execution->ranges + launch->first_operand;
        execution->calls[i] = (nova_kernel_call){
            .function = r->program->functions[launch->kernel],
            .shape = &tables->devices[launch->kernel],
            .arguments = execution->pointers + launch->first_operand,
            .argument_count = launch->operand_count,
            .ranges = ranges,
            .range_count = checks ? find_ranges(r, launch, ranges) : 0,
        };
    }
}

static size_t slots_size(const nova_device_run *r)
{
    return (r->program->argument_count + r->program->output_count + 1) *
           sizeof *r->execution->slots;
}

/* The graph for these slots, or NULL. */
static nova_device_graph *find_graph(const nova_device_run *r)
{
    nova_device_execution *execution = r->execution;
    for (unsigned i = 0; i < execution->graph_count; i++)
        if (memcmp(execution->graphs[i].slots, execution->slots, slots_size(r)) == 0)
            return &execution->graphs[i];
    return NULL;
}

static nova_status make_graph(nova_device_run *r, nova_device_graph **graph)
{
    nova_device_execution *execution = r->execution;
    nova_driver *driver = r->device->driver;
    size_t pointers = r->program->tables.header->operand_count * sizeof *execution->pointers;
    nova_device_graph made = {.slots = malloc(slots_size(r)), .pointers = malloc(pointers + 8)};
    nova_status status = NOVA_OK;
    if (made.slots == NULL || made.pointers == NULL)
        status = nova_fail(r->error, NOVA_OUT_OF_MEMORY, "", "no memory for a graph");
    if (status == NOVA_OK)
        status = nova_run_check(r,
                       driver->graph_create(driver, execution->calls, r->program->launch_count,
                                            &made.graph),
                       "the launches cannot be made into a graph");
    if (status != NOVA_OK) {
        free(made.slots);
        free(made.pointers);
        return status;
    }
    memcpy(made.slots, execution->slots, slots_size(r));
    memcpy(made.pointers, execution->pointers, pointers);
    *graph = &execution->graphs[execution->graph_count++];
    **graph = made;
    r->counts.graphs++;
    return NOVA_OK;
}

/* Gives the graph that was not used for the longest time the pointers of this run. */
static nova_status update_graph(nova_device_run *r, nova_device_graph **graph)
{
    nova_device_execution *execution = r->execution;
    nova_driver *driver = r->device->driver;
    nova_device_graph *oldest = &execution->graphs[0];
    for (unsigned i = 1; i < execution->graph_count; i++)
        if (execution->graphs[i].used < oldest->used)
            oldest = &execution->graphs[i];
    /* Until all launches are changed, the graph is of no use to anybody. */
    memset(oldest->slots, 0xff, slots_size(r));
    for (uint32_t i = 0; i < r->program->launch_count; i++) {
        const nova_kernel_call *call = &execution->calls[i];
        size_t first = (size_t)(call->arguments - execution->pointers);
        size_t size = call->argument_count * sizeof *call->arguments;
        if (memcmp(oldest->pointers + first, call->arguments, size) == 0)
            continue;
        nova_status status = nova_run_check(r, driver->graph_update(driver, oldest->graph, i, call),
                                   "the graph cannot be changed");
        if (status != NOVA_OK)
            return status;
        memcpy(oldest->pointers + first, call->arguments, size);
        r->counts.graph_updates++;
    }
    memcpy(oldest->slots, execution->slots, slots_size(r));
    *graph = oldest;
    return NOVA_OK;
}

static nova_status launch_each(nova_device_run *r)
{
    nova_driver *driver = r->device->driver;
    int result = 0;
    for (uint32_t i = 0; result == 0 && i < r->program->launch_count; i++)
        result = driver->launch(driver, &r->execution->calls[i], r->stream);
    r->counts.launches += r->program->launch_count;
    return nova_run_check(r, result, "a kernel cannot be launched");
}

/* The same with an event before and behind each. */
static nova_status launch_traced(nova_device_run *r)
{
    nova_driver *driver = r->device->driver;
    int result = 0;
    for (uint32_t i = 0; result == 0 && i < r->program->launch_count; i++) {
        nova_trace_begin(r->trace, NOVA_SPAN_KERNEL, r->program->launches[i], 0, r->stream);
        result = driver->launch(driver, &r->execution->calls[i], r->stream);
        nova_trace_end(r->trace, r->stream);
    }
    r->counts.launches += r->program->launch_count;
    return nova_run_check(r, result, "a kernel cannot be launched");
}

nova_status nova_run_launch(nova_device_run *r)
{
    nova_device_execution *execution = r->execution;
    if (r->program->mixture.is_mixed) {
        bind(r);
        r->counts.launches += r->program->launch_count;
        return nova_run_mixed(r);
    }
    if (r->trace != NULL) {
        bind(r);
        return launch_traced(r);
    }
    nova_device_graph *graph = find_graph(r);
    nova_status status = NOVA_OK;
    if (graph == NULL) {
        bind(r);
        /* A graph of one launch gains nothing, and one that is never used again costs. */
        if (r->program->launch_count < 2 || execution->runs == 0)
            return launch_each(r);
        status = execution->graph_count < NOVA_DEVICE_GRAPHS ? make_graph(r, &graph)
                                                             : update_graph(r, &graph);
    }
    if (status != NOVA_OK)
        return status;
    graph->used = execution->runs;
    r->counts.graph_launches++;
    return nova_run_check(r, r->device->driver->graph_launch(r->device->driver, graph->graph, r->stream),
                 "the graph cannot be launched");
}
