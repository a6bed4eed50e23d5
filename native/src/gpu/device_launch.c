/* The launches of a run. The first run of an execution launches kernel by kernel. Later runs launch
 * one CUDA graph, or one for each device step of a hybrid program (hybrid_run.c); other pointers
 * than those of the last run update the nodes of the graph, which costs far less than a new graph.
 * A traced run launches kernel by kernel. Loops written by hand wait for their conditions: the body
 * is enqueued once an iteration. Control kernels are graphs of their own from the first run on
 * (device_control.c), which are created again for other pointers. */
#include <stdlib.h>
#include <string.h>

#include "gpu/control/device_control.h"

uint64_t nova_run_address(const nova_device_run *r, const nova_buffer *buffer)
{
    const nova_device_program *program = r->program;
    const uint64_t *slots = r->execution->slots;
    size_t outputs = program->argument_count;
    switch (buffer->kind) {
    case NOVA_ARGUMENT:
        return slots[buffer->value];
    case NOVA_OUTPUT:
        return slots[outputs + buffer->value];
    case NOVA_OUTPUT_PART:
        return slots[outputs + buffer->output] + buffer->value;
    case NOVA_WORKSPACE:
        return slots[outputs + program->output_count] + buffer->value;
    case NOVA_SIZES: /* passed by value */
        return (uint64_t)program->sizes[buffer->value / sizeof *program->sizes];
    default:
        return program->code->constants->address + buffer->value;
    }
}

static int launch_by_address(const void *a, const void *b)
{
    uint64_t x = ((const nova_device_range *)a)->address;
    uint64_t y = ((const nova_device_range *)b)->address;
    return x < y ? -1 : x > y;
}

/* Read-only operands precede the others; constants are always read-only. */
uint32_t nova_launch_find_ranges(const nova_tables *tables, const nova_launch_record *launch,
                                 const uint64_t *pointers, nova_device_range *ranges)
{
    for (uint32_t k = 0; k < launch->operand_count; k++) {
        uint32_t operand = launch->first_operand + k;
        const nova_buffer *buffer = &tables->buffers[tables->operands[operand]];
        ranges[k] = (nova_device_range){
            .address = pointers[k],
            .size = buffer->kind == NOVA_SIZES ? 0 : buffer->nbytes,
            .is_read_only = k < launch->reads || buffer->kind == NOVA_CONSTANT,
        };
    }
    return nova_ranges_merge(ranges, launch->operand_count);
}

uint32_t nova_ranges_merge(nova_device_range *ranges, uint32_t all)
{
    qsort(ranges, all, sizeof *ranges, launch_by_address);
    uint32_t count = 0;
    for (uint32_t k = 0; k < all; k++) {
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

/* Encodes the tensor maps of a launch whose operand has moved since the last run. */
static int launch_encode_maps(const nova_device_run *r, const nova_launch_record *launch,
                              nova_encoded_map *encoded, uint64_t *addresses)
{
    nova_driver *driver = r->device->driver;
    const nova_tables *tables = &r->program->tables;
    const uint64_t *pointers = r->execution->pointers + launch->first_operand;
    uint32_t first = r->program->first_maps[launch->kernel];
    int result = 0;
    for (uint32_t i = 0; result == 0 && i < tables->devices[launch->kernel].tensor_map_count; i++) {
        const nova_tensor_map *map = &tables->tensor_maps[first + i];
        uint64_t address = pointers[map->operand];
        if (addresses[i] != address)
            result = driver->tensor_map_encode(driver, map, address, &encoded[i]);
        addresses[i] = result == 0 ? address : 0;
    }
    return result;
}

/* All launches with the pointers of this run. */
static nova_status launch_bind(nova_device_run *r)
{
    const nova_tables *tables = &r->program->tables;
    nova_device_execution *execution = r->execution;
    bool checks = r->device->driver->checks_ranges;
    uint32_t map = 0;
    int result = 0;
    for (uint32_t i = 0; i < tables->header->operand_count; i++)
        execution->pointers[i] = nova_run_address(r, &tables->buffers[tables->operands[i]]);
    for (uint32_t i = 0; result == 0 && i < r->program->launch_count; i++) {
        const nova_launch_record *launch = &tables->launches[r->program->launches[i]];
        nova_device_range *ranges = execution->ranges + launch->first_operand;
        execution->calls[i] = (nova_kernel_call){
            .function = r->program->functions[launch->kernel],
            .shape = &tables->devices[launch->kernel],
            .arguments = execution->pointers + launch->first_operand,
            .maps = execution->maps + map,
            .argument_count = launch->operand_count,
            .least_shared = r->program->edges.least_shared[launch->kernel],
            .ranges = ranges,
            .range_count =
                checks ? nova_launch_find_ranges(
                             tables, launch, execution->pointers + launch->first_operand, ranges)
                       : 0,
        };
        result =
            launch_encode_maps(r, launch, execution->maps + map, execution->map_addresses + map);
        map += tables->devices[launch->kernel].tensor_map_count;
    }
    return nova_run_check(r, result, "a tensor map cannot be encoded");
}

/* The graph for these slots, or NULL. */
static nova_device_graph *launch_find_graph(const nova_device_run *r)
{
    nova_device_execution *execution = r->execution;
    for (unsigned i = 0; i < execution->graph_count; i++)
        if (memcmp(execution->graphs[i].slots, execution->slots, nova_slots_size(r->program)) == 0)
            return &execution->graphs[i];
    return NULL;
}

void nova_graph_free(const nova_device_program *program, nova_device_graph *graph)
{
    nova_driver *driver = program->device->driver;
    for (uint32_t i = 0; graph->graphs != NULL && i < program->device_count; i++)
        if (graph->graphs[i] != NULL)
            driver->graph_destroy(driver, graph->graphs[i]);
    for (uint32_t i = 0; graph->flows != NULL && i < program->control_count; i++)
        if (graph->flows[i] != NULL)
            driver->flow_destroy(driver, graph->flows[i]);
    free(graph->graphs);
    free(graph->flows);
    free(graph->slots);
    free(graph->pointers);
}

/* Replaces the flows of a graph by ones with the pointers of this run. */
static nova_status launch_make_flows(nova_device_run *r, const nova_device_graph *graph)
{
    nova_driver *driver = r->device->driver;
    nova_status status = NOVA_OK;
    for (uint32_t i = 0; status == NOVA_OK && i < r->program->step_count; i++) {
        const nova_device_step *step = &r->program->steps[i];
        if (step->type != NOVA_CONTROL_STEP || r->program->loops == NOVA_LOOPS_HOST)
            continue;
        void **flow = &graph->flows[step->number];
        if (*flow != NULL)
            driver->flow_destroy(driver, *flow);
        *flow = NULL;
        status = nova_control_make_flow(r, step, flow);
    }
    return status;
}

static nova_status launch_make_graph(nova_device_run *r, nova_device_graph **graph)
{
    nova_device_execution *execution = r->execution;
    nova_driver *driver = r->device->driver;
    size_t pointers = r->program->tables.header->operand_count * sizeof *execution->pointers;
    nova_device_graph created = {
        .graphs = calloc(r->program->device_count + 1, sizeof *created.graphs),
        .flows = calloc(r->program->control_count + 1, sizeof *created.flows),
        .slots = malloc(nova_slots_size(r->program)),
        .pointers = malloc(pointers + 8)};
    nova_status status = NOVA_OK;
    if (created.graphs == NULL || created.flows == NULL || created.slots == NULL ||
        created.pointers == NULL)
        status = nova_fail(r->error, NOVA_OUT_OF_MEMORY, "", "no memory for a graph");
    for (uint32_t i = 0; status == NOVA_OK && i < r->program->step_count; i++) {
        const nova_device_step *step = &r->program->steps[i];
        if (!step->has_graph)
            continue;
        const nova_graph_edges *edges = &r->program->edges;
        const uint32_t *start = &edges->starts[step->number];
        int result = driver->graph_create(driver, execution->calls + step->first, step->count,
                                          edges->items + start[0], start[1] - start[0],
                                          &created.graphs[step->number]);
        status = nova_run_check(r, result, "the launches cannot be made into a graph");
        r->counts.graphs += status == NOVA_OK;
    }
    if (status == NOVA_OK)
        status = launch_make_flows(r, &created);
    if (status != NOVA_OK) {
        nova_graph_free(r->program, &created);
        return status;
    }
    memcpy(created.slots, execution->slots, nova_slots_size(r->program));
    memcpy(created.pointers, execution->pointers, pointers);
    *graph = &execution->graphs[execution->graph_count++];
    **graph = created;
    return NOVA_OK;
}

/* Gives a launch of a graph the pointers of this run. */
static nova_status launch_update(nova_device_run *r, const nova_device_graph *graph,
                                 const nova_device_step *step, uint32_t index)
{
    nova_driver *driver = r->device->driver;
    const nova_kernel_call *call = &r->execution->calls[step->first + index];
    const nova_launch_record *launch = nova_step_launch(r->program, step, index);
    uint64_t *last = graph->pointers + launch->first_operand;
    const uint64_t *pointers = r->execution->pointers + launch->first_operand;
    size_t size = launch->operand_count * sizeof *pointers;
    if (memcmp(last, pointers, size) == 0)
        return NOVA_OK;
    nova_status status =
        nova_run_check(r, driver->graph_update(driver, graph->graphs[step->number], index, call),
                       "the graph cannot be changed");
    if (status != NOVA_OK)
        return status;
    memcpy(last, pointers, size);
    r->counts.graph_updates++;
    return NOVA_OK;
}

/* Gives the graph that was not used for the longest time the pointers of this run. */
static nova_status launch_update_graph(nova_device_run *r, nova_device_graph **graph)
{
    nova_device_execution *execution = r->execution;
    nova_device_graph *oldest = &execution->graphs[0];
    for (unsigned i = 1; i < execution->graph_count; i++)
        if (execution->graphs[i].used < oldest->used)
            oldest = &execution->graphs[i];
    /* The graph is invalid until all launches are updated. */
    memset(oldest->slots, 0xff, nova_slots_size(r->program));
    for (uint32_t i = 0; i < r->program->step_count; i++) {
        const nova_device_step *step = &r->program->steps[i];
        for (uint32_t k = 0; step->has_graph && k < step->count; k++) {
            nova_status status = launch_update(r, oldest, step, k);
            if (status != NOVA_OK)
                return status;
        }
    }
    nova_status status = launch_make_flows(r, oldest);
    if (status != NOVA_OK)
        return status;
    memcpy(oldest->slots, execution->slots, nova_slots_size(r->program));
    *graph = oldest;
    return NOVA_OK;
}

/* The kernels of a step: by their graph, where there is one by now. */
static nova_status launch_step(nova_device_run *r, const nova_device_graph *graph,
                               const nova_device_step *step)
{
    nova_driver *driver = r->device->driver;
    if (graph != NULL && step->has_graph && r->trace == NULL) {
        r->counts.graph_launches++;
        return nova_run_check(r,
                              driver->graph_launch(driver, graph->graphs[step->number], r->stream),
                              "the graph cannot be launched");
    }
    int result = 0;
    for (uint32_t i = step->first; result == 0 && i < step->first + step->count; i++) {
        nova_trace_begin(r->trace, NOVA_SPAN_KERNEL, r->program->launches[i], 0, r->stream);
        result = driver->launch(driver, &r->execution->calls[i], r->stream);
        nova_trace_end(r->trace, r->stream);
    }
    r->counts.launches += step->count;
    return nova_run_check(r, result, "a kernel cannot be launched");
}

/* Finds or makes the graph for the pointers of this run; NULL where launches go one by one. */
static nova_status launch_prepare_graph(nova_device_run *r, nova_device_graph **graph)
{
    nova_device_execution *execution = r->execution;
    bool has_flows = r->program->control_count > 0 && r->program->loops != NOVA_LOOPS_HOST;
    *graph = r->trace == NULL || has_flows ? launch_find_graph(r) : NULL;
    nova_status status = NOVA_OK;
    if (*graph == NULL) {
        status = launch_bind(r);
        /* One that is never used again costs. */
        bool is_worth = r->program->has_graphs && execution->runs > 0 && r->trace == NULL;
        if (status != NOVA_OK || (!has_flows && !is_worth))
            return status;
        status = execution->graph_count < NOVA_DEVICE_GRAPHS ? launch_make_graph(r, graph)
                                                             : launch_update_graph(r, graph);
    } else if (r->program->has_single || r->trace != NULL) {
        status = launch_bind(r);
    }
    if (status == NOVA_OK)
        (*graph)->used = execution->runs;
    return status;
}

/* Whether the body of a loop is to run (again): the one value that a run waits for. */
static nova_status launch_read_condition(nova_device_run *r, const nova_device_step *loop,
                                         bool *holds)
{
    nova_driver *driver = r->device->driver;
    const nova_launch_record *launch = nova_step_launch(r->program, loop, 0);
    const nova_buffer *buffer = nova_operand(r->program, launch, 0);
    unsigned char byte = 0;
    nova_trace_begin(r->trace, NOVA_SPAN_COPY_OUT, r->program->launches[loop->first], sizeof byte,
                     r->stream);
    int result =
        driver->copy_out(driver, &byte, nova_run_address(r, buffer), sizeof byte, r->stream);
    nova_trace_end(r->trace, r->stream);
    nova_trace_host(r->trace, NOVA_SPAN_WAIT);
    if (result == 0)
        result = driver->stream_synchronize(driver, r->stream);
    nova_trace_host(r->trace, NOVA_SPAN_ENQUEUE);
    *holds = byte != 0;
    return nova_run_check(r, result, "the condition of a loop cannot be read");
}

/* Steps [from, to), of a program or of the body of a loop. */
static nova_status launch_run_steps(nova_device_run *r, nova_device_graph *graph, uint32_t from,
                                    uint32_t to)
{
    nova_status status = NOVA_OK;
    for (uint32_t i = from; status == NOVA_OK && i < to; i++) {
        const nova_device_step *step = &r->program->steps[i];
        if (step->type == NOVA_DEVICE_STEP)
            status = launch_step(r, graph, step);
        else if (step->type == NOVA_COPY_STEP)
            status = nova_run_copies(r, step);
        else if (step->type == NOVA_HOST_STEP)
            status = nova_run_host_region(r, step);
        else if (step->type == NOVA_CONTROL_STEP)
            status = nova_run_control(r, graph, step);
        else {
            bool holds = false;
            status = launch_read_condition(r, step, &holds);
            while (status == NOVA_OK && holds) {
                status = launch_run_steps(r, graph, i + 1, step->end);
                if (status == NOVA_OK)
                    status = launch_read_condition(r, step, &holds);
            }
            i = step->end - 1;
        }
    }
    return status;
}

nova_status nova_run_launch(nova_device_run *r)
{
    if (r->program->persistent != NULL)
        return nova_run_persistent(r);
    nova_device_graph *graph;
    nova_status status = launch_prepare_graph(r, &graph);
    if (status == NOVA_OK)
        status = launch_run_steps(r, graph, 0, r->program->step_count);
    nova_error ignored;
    nova_status left = nova_run_leave_host_shadow(r, status == NOVA_OK ? r->error : &ignored);
    return status != NOVA_OK ? status : left;
}
