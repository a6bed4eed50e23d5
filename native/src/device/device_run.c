/* A run: values on the host are copied to the device, the launches are enqueued, results are copied back.
 *
 * The first run of an execution launches kernel by kernel. From the second on they are one graph; other
 * pointers than last time change the graph's launches, which costs much less than a new one. A program with
 * kernels of the host (device_mixed.c) always goes launch by launch. */
#include "device_state.h"

#include <stdlib.h>
#include <string.h>

/* Copies of up to this many bytes go through pinned memory of the execution, all in one piece. */
#define MOST_PINNED (UINT64_C(1) << 20)

#define NO_HOME UINT64_MAX

/* Kernels may use accesses of so many bytes on everything. */
enum { ACCESS = 16 };

typedef struct {
    nova_device_program *program;
    nova_device *device;
    nova_device_execution *execution;
    const nova_device_value *arguments;
    const nova_device_value *outputs;
    void *stream;
    nova_error *error;
    /* Of the home: arguments are in [0, inputs_end), what is copied back in [results, size). */
    uint64_t inputs_end, results, size;
    bool has_host_inputs, has_host_results;
    nova_device_counts counts;
} run;

static nova_status check(const run *r, int result, const char *what)
{
    return nova_device_check(r->device, result, what, r->error);
}

/* --- places ----------------------------------------------------------------------------------- */

static void place(run *r, size_t slot)
{
    r->execution->homes[slot] = r->size;
    uint64_t size = (uint64_t)r->program->nbytes[slot];
    r->size += (size + NOVA_DEVICE_ALIGNMENT - 1) & ~(uint64_t)(NOVA_DEVICE_ALIGNMENT - 1);
}

/* Whether kernels cannot use a value where it is. */
static bool needs_home(const nova_device_value *value, int64_t nbytes)
{
    return nbytes > 0 && (value->address == 0 || value->address % ACCESS != 0);
}

/* Gives a place in the home to all that needs one: what only goes in, then what goes in and out, then what
 * only comes out, so that each way is one piece. */
static nova_status find_places(run *r)
{
    const nova_device_program *program = r->program;
    uint64_t *homes = r->execution->homes;
    size_t inputs = program->argument_count;
    for (size_t i = 0; i < inputs + program->output_count; i++)
        homes[i] = NO_HOME;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < inputs; i++) {
            const nova_device_value *value = &r->arguments[i];
            if (program->donated[i] != (pass == 1) || !needs_home(value, program->nbytes[i]))
                continue;
            if (value->address == 0 && value->host == NULL)
                return nova_fail(r->error, NOVA_INVALID_ARGUMENT, "", "argument %zu is NULL", i);
            place(r, i);
            r->has_host_inputs |= value->address == 0;
            r->has_host_results |= value->address == 0 && program->donated[i];
        }
        if (pass == 0)
            r->results = r->size;
    }
    r->inputs_end = r->size;
    for (size_t i = 0; i < program->output_count; i++) {
        const nova_device_value *value = &r->outputs[i];
        if (program->alias[i] >= 0 || !needs_home(value, program->nbytes[inputs + i]))
            continue;
        if (value->address == 0 && value->host == NULL)
            return nova_fail(r->error, NOVA_INVALID_ARGUMENT, "", "output %zu is NULL", i);
        place(r, inputs + i);
        r->has_host_results |= value->address == 0;
    }
    return NOVA_OK;
}

/* Makes the home large enough, and as much pinned memory where that is not too much. */
static nova_status prepare_home(run *r)
{
    nova_device_execution *execution = r->execution;
    nova_driver *driver = r->device->driver;
    if (r->size == 0)
        return NOVA_OK;
    if (execution->home == NULL || execution->home->size < r->size) {
        nova_device_give(r->device, execution->home);
        execution->home = NULL;
        nova_status status =
            nova_device_take_inside(r->device, r->size, r->stream, &execution->home, r->error);
        if (status != NOVA_OK)
            return status;
    }
    execution->home->stream = r->stream;
    if (r->size > MOST_PINNED || execution->pinned_size >= r->size)
        return NOVA_OK;
    if (execution->pinned != NULL)
        driver->pinned_free(driver, execution->pinned);
    execution->pinned = NULL;
    execution->pinned_size = 0;
    void *memory;
    nova_status status = nova_device_pin(r->device, execution->home->size, &memory, r->error);
    if (status == NOVA_OK) {
        execution->pinned = memory;
        execution->pinned_size = execution->home->size;
    }
    return status;
}

static uint64_t address_of(const run *r, const nova_device_value *value, size_t slot)
{
    uint64_t home = r->execution->homes[slot];
    if (home != NO_HOME)
        return r->execution->home->address + home;
    return r->program->nbytes[slot] > 0 ? value->address : r->device->nothing->address;
}

/* What the pointers of a run are made from. */
static void fill_slots(run *r)
{
    const nova_device_program *program = r->program;
    uint64_t *slots = r->execution->slots;
    for (size_t i = 0; i < program->argument_count; i++)
        slots[i] = address_of(r, &r->arguments[i], i);
    for (size_t i = 0; i < program->output_count; i++) {
        size_t slot = program->argument_count + i;
        slots[slot] = program->alias[i] >= 0 ? slots[program->alias[i]]
                                             : address_of(r, &r->outputs[i], slot);
    }
    slots[program->argument_count + program->output_count] =
        r->execution->workspace != NULL ? r->execution->workspace->address : 0;
}

/* --- copies ----------------------------------------------------------------------------------- */

/* Small ones: gathered in pinned memory, and copied at once. */
static nova_status copy_in_small(run *r)
{
    nova_device_execution *execution = r->execution;
    nova_driver *driver = r->device->driver;
    int result = 0;
    if (execution->pinned_is_busy)
        result = driver->event_synchronize(driver, execution->copied);
    execution->pinned_is_busy = false;
    for (size_t i = 0; result == 0 && i < r->program->argument_count; i++)
        if (execution->homes[i] != NO_HOME && r->arguments[i].address == 0)
            memcpy(execution->pinned + execution->homes[i], r->arguments[i].host,
                   (size_t)r->program->nbytes[i]);
    if (result == 0)
        result = driver->copy_in(driver, execution->home->address, execution->pinned,
                                 r->inputs_end, r->stream);
    if (result == 0 && !r->has_host_results) { /* nobody will wait for the run */
        result = driver->event_record(driver, execution->copied, r->stream);
        execution->pinned_is_busy = result == 0;
    }
    return check(r, result, "the arguments cannot be copied to the device");
}

/* Large ones: in pieces, on a stream of their own, while the CPU prepares the next. */
static nova_status copy_in_large(run *r)
{
    nova_device *device = r->device;
    nova_stage *stage;
    /* The home may still be read by the run before this one. */
    nova_status status = nova_device_order_inside(device, r->stream, device->in, r->error);
    if (status == NOVA_OK)
        status = nova_stage_take(device, &stage, r->error);
    if (status != NOVA_OK)
        return status;
    for (size_t i = 0; status == NOVA_OK && i < r->program->argument_count; i++)
        if (r->execution->homes[i] != NO_HOME && r->arguments[i].address == 0)
            status = nova_stage_in(device, stage, r->execution->slots[i], r->arguments[i].host,
                                   (uint64_t)r->program->nbytes[i], device->in, r->error);
    nova_stage_give(device, stage);
    if (status == NOVA_OK)
        status = nova_device_order_inside(device, device->in, r->stream, r->error);
    return status;
}

/* Arguments on the device that are not aligned, to their homes or back. */
static nova_status copy_crooked(run *r, bool back)
{
    nova_driver *driver = r->device->driver;
    int result = 0;
    size_t inputs = r->program->argument_count, outputs = r->program->output_count;
    for (size_t i = 0; result == 0 && i < inputs + outputs; i++) {
        uint64_t theirs = i < inputs ? r->arguments[i].address : r->outputs[i - inputs].address;
        bool is_copied = back ? i >= inputs || r->program->donated[i] : i < inputs;
        if (r->execution->homes[i] == NO_HOME || theirs == 0 || !is_copied)
            continue;
        uint64_t own = r->execution->slots[i], size = (uint64_t)r->program->nbytes[i];
        result = driver->copy_within(driver, back ? theirs : own, back ? own : theirs, size,
                                     r->stream);
    }
    return check(r, result, "an array cannot be copied on the device");
}

static nova_status copy_in(run *r)
{
    nova_status status = NOVA_OK;
    if (r->has_host_inputs)
        status = r->size <= MOST_PINNED ? copy_in_small(r) : copy_in_large(r);
    if (status == NOVA_OK && r->inputs_end > 0)
        status = copy_crooked(r, false);
    return status;
}

/* Where slot `i` goes on the host after a run; NULL: nowhere. */
static void *host_result(const run *r, size_t i)
{
    size_t inputs = r->program->argument_count;
    const nova_device_value *value = i < inputs ? &r->arguments[i] : &r->outputs[i - inputs];
    bool is_result = i >= inputs || r->program->donated[i];
    return is_result && r->execution->homes[i] != NO_HOME && value->address == 0 ? value->host
                                                                                  : NULL;
}

static nova_status copy_out_small(run *r)
{
    nova_device_execution *execution = r->execution;
    nova_driver *driver = r->device->driver;
    int result = driver->copy_out(driver, execution->pinned + r->results,
                                  execution->home->address + r->results, r->size - r->results,
                                  r->stream);
    if (result == 0)
        result = driver->stream_synchronize(driver, r->stream);
    nova_status status = check(r, result, "the results cannot be copied from the device");
    size_t count = r->program->argument_count + r->program->output_count;
    for (size_t i = 0; status == NOVA_OK && i < count; i++) {
        void *host = host_result(r, i);
        if (host != NULL)
            memcpy(host, execution->pinned + execution->homes[i], (size_t)r->program->nbytes[i]);
    }
    return status;
}

static nova_status copy_out_large(run *r)
{
    nova_device *device = r->device;
    nova_stage *stage;
    nova_status status = nova_device_order_inside(device, r->stream, device->out, r->error);
    if (status == NOVA_OK)
        status = nova_stage_take(device, &stage, r->error);
    if (status != NOVA_OK)
        return status;
    size_t count = r->program->argument_count + r->program->output_count;
    for (size_t i = 0; status == NOVA_OK && i < count; i++) {
        void *host = host_result(r, i);
        if (host != NULL)
            status = nova_stage_out(device, stage, host, r->execution->slots[i],
                                    (uint64_t)r->program->nbytes[i], device->out, r->error);
    }
    nova_stage_give(device, stage);
    return status;
}

static nova_status copy_out(run *r)
{
    nova_status status = r->size > 0 ? copy_crooked(r, true) : NOVA_OK;
    if (status == NOVA_OK && r->has_host_results)
        status = r->size <= MOST_PINNED ? copy_out_small(r) : copy_out_large(r);
    return status;
}

/* --- launches --------------------------------------------------------------------------------- */

static uint64_t operand_address(const run *r, const nova_buffer *buffer)
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
static uint32_t find_ranges(const run *r, const nova_launch_record *launch,
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
static void bind(run *r)
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

static size_t slots_size(const run *r)
{
    return (r->program->argument_count + r->program->output_count + 1) *
           sizeof *r->execution->slots;
}

/* The graph for these slots, or NULL. */
static nova_device_graph *find_graph(const run *r)
{
    nova_device_execution *execution = r->execution;
    for (unsigned i = 0; i < execution->graph_count; i++)
        if (memcmp(execution->graphs[i].slots, execution->slots, slots_size(r)) == 0)
            return &execution->graphs[i];
    return NULL;
}

static nova_status make_graph(run *r, nova_device_graph **graph)
{
    nova_device_execution *execution = r->execution;
    nova_driver *driver = r->device->driver;
    size_t pointers = r->program->tables.header->operand_count * sizeof *execution->pointers;
    nova_device_graph made = {.slots = malloc(slots_size(r)), .pointers = malloc(pointers + 8)};
    nova_status status = NOVA_OK;
    if (made.slots == NULL || made.pointers == NULL)
        status = nova_fail(r->error, NOVA_OUT_OF_MEMORY, "", "no memory for a graph");
    if (status == NOVA_OK)
        status = check(r,
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
static nova_status update_graph(run *r, nova_device_graph **graph)
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
        nova_status status = check(r, driver->graph_update(driver, oldest->graph, i, call),
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

static nova_status launch_each(run *r)
{
    nova_driver *driver = r->device->driver;
    int result = 0;
    for (uint32_t i = 0; result == 0 && i < r->program->launch_count; i++)
        result = driver->launch(driver, &r->execution->calls[i], r->stream);
    r->counts.launches += r->program->launch_count;
    return check(r, result, "a kernel cannot be launched");
}

static nova_status launch(run *r)
{
    nova_device_execution *execution = r->execution;
    if (r->program->mixture.is_mixed) {
        bind(r);
        r->counts.launches += r->program->launch_count;
        return nova_device_run_mixed(r->program, execution, r->stream, r->error);
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
    return check(r, r->device->driver->graph_launch(r->device->driver, graph->graph, r->stream),
                 "the graph cannot be launched");
}

/* What the run before left is not this one's: a simulator reports who reads it. */
static nova_status forget(run *r)
{
    nova_driver *driver = r->device->driver;
    const nova_device_block *workspace = r->execution->workspace, *home = r->execution->home;
    int result = 0;
    if (driver->memory_forget == NULL)
        return NOVA_OK;
    if (workspace != NULL)
        result = driver->memory_forget(driver, workspace->address, workspace->size, r->stream);
    if (result == 0 && r->size > 0)
        result = driver->memory_forget(driver, home->address, r->size, r->stream);
    return check(r, result, "the workspace cannot be prepared");
}

/* --- the whole -------------------------------------------------------------------------------- */

static nova_status run_once(run *r)
{
    nova_device_execution *execution = r->execution;
    /* Its workspace and home belong to the run before until that has ended. */
    nova_status status =
        nova_device_order_inside(r->device, execution->last, r->stream, r->error);
    execution->last = r->stream;
    if (execution->workspace != NULL)
        execution->workspace->stream = r->stream;
    if (status == NOVA_OK)
        status = find_places(r);
    if (status == NOVA_OK)
        status = prepare_home(r);
    if (status != NOVA_OK)
        return status;
    fill_slots(r);
    status = forget(r);
    if (status == NOVA_OK)
        status = copy_in(r);
    if (status == NOVA_OK)
        status = launch(r);
    if (status == NOVA_OK)
        status = copy_out(r);
    execution->runs++;
    return status;
}

nova_status nova_device_program_run(nova_device_program *program,
                                    const nova_device_value *arguments,
                                    const nova_device_value *outputs, void *stream,
                                    nova_error *error)
{
    if (program == NULL || (arguments == NULL && program->argument_count > 0) ||
        (outputs == NULL && program->output_count > 0))
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "", "a pointer is missing");
    run r = {.program = program,
             .device = program->device,
             .arguments = arguments,
             .outputs = outputs,
             .error = error,
             .counts = {.runs = 1}};
    nova_status status = nova_device_enter(r.device, error);
    if (status != NOVA_OK)
        return status;
    status = nova_device_execution_take(program, &r.execution, error);
    if (status == NOVA_OK) {
        r.stream = stream == NOVA_OWN_STREAM ? r.execution->stream : stream;
        status = run_once(&r);
        nova_device_execution_give(program, r.execution, &r.counts);
    }
    nova_device_leave(r.device);
    return status;
}
