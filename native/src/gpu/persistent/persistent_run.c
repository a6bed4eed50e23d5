/* Runs of a persistent kernel: the table of launches is bound to the pointers of a run, and the
 * kernel is launched. Rows, waits, arguments and counters are one block of device memory. The
 * kernel leaves the counters at 0. In a program with loops or branches the rows depend on the
 * pointers, and each binding has its own. A traced run also has the times of all tasks. */
#include <stdlib.h>
#include <string.h>

#include "gpu/persistent/persistent.h"

/* The tables on the device for one set of slots. */
typedef struct {
    uint64_t *slots;
    persistent_tables tables; /* of a program with loops or branches; else those of the plan */
    nova_device_block *block;
    uint64_t used; /* number of the run that used it last */
} persistent_binding;

struct nova_persistent_state {
    nova_double_buffer *buffer;
    nova_device_range *ranges;
    uint32_t binding_count;
    persistent_binding bindings[NOVA_DEVICE_GRAPHS];
};

/* --- bindings --------------------------------------------------------------------------------- */

void nova_persistent_free_state(nova_device *device, nova_persistent_state *state)
{
    if (state == NULL)
        return;
    for (uint32_t i = 0; i < state->binding_count; i++) {
        nova_device_give(device, state->bindings[i].block);
        persistent_free_tables(&state->bindings[i].tables);
        free(state->bindings[i].slots);
    }
    if (state->buffer != NULL)
        nova_double_buffer_give(device, state->buffer);
    free(state->ranges);
    free(state);
}

static nova_status persistent_make_state(nova_device_run *r)
{
    nova_persistent_state *state = calloc(1, sizeof *state);
    r->execution->persistent = state;
    if (state == NULL)
        return nova_fail(r->error, NOVA_OUT_OF_MEMORY, "", "no memory for a run");
    state->ranges = calloc(r->program->tables.header->operand_count + 3, sizeof *state->ranges);
    if (state->ranges == NULL)
        return nova_fail(r->error, NOVA_OUT_OF_MEMORY, "", "no memory for a run");
    return nova_double_buffer_take(r->device, &state->buffer, r->error);
}

static const persistent_tables *persistent_tables_of(const nova_device_run *r,
                                                     const persistent_binding *binding)
{
    const nova_persistent_plan *plan = r->program->persistent;
    return plan->has_flow ? &binding->tables : &plan->tables;
}

/* A binding that no run uses by now: a new one, or the one that was not used for the longest. */
static nova_status persistent_choose(nova_device_run *r, persistent_binding **binding)
{
    nova_persistent_state *state = r->execution->persistent;
    if (state->binding_count < NOVA_DEVICE_GRAPHS) {
        persistent_binding *created = &state->bindings[state->binding_count];
        created->slots = malloc(nova_slots_size(r->program));
        if (created->slots == NULL)
            return nova_fail(r->error, NOVA_OUT_OF_MEMORY, "", "no memory for a run");
        state->binding_count++;
        *binding = created;
        return NOVA_OK;
    }
    *binding = &state->bindings[0];
    for (uint32_t i = 1; i < state->binding_count; i++)
        if (state->bindings[i].used < (*binding)->used)
            *binding = &state->bindings[i];
    return NOVA_OK;
}

/* Bytes from the part of a buffer for one repetition to the next: 0 for what all share. */
static uint64_t persistent_stride(const nova_device_program *program, const nova_buffer *buffer)
{
    bool is_part = buffer->kind == NOVA_OUTPUT_PART;
    size_t slot = is_part ? buffer->output : buffer->value;
    bool is_output = is_part || buffer->kind == NOVA_OUTPUT;
    if (is_output && program->alias[slot] >= 0)
        slot = (size_t)program->alias[slot];
    else if (is_output)
        return (uint64_t)program->nbytes[program->argument_count + slot] / program->repeats;
    else if (buffer->kind != NOVA_ARGUMENT)
        return 0;
    return slot < program->stacked_count ? (uint64_t)program->nbytes[slot] / program->repeats : 0;
}

/* Takes memory for the tables, unless the binding has as much. */
static nova_status persistent_take_block(nova_device_run *r, persistent_binding *binding,
                                         uint64_t size)
{
    nova_device_block *old = binding->block;
    if (old != NULL && old->size >= size)
        return NOVA_OK;
    if (old != NULL) {
        old->stream = r->stream; /* after the last run that used it */
        binding->block = NULL;
        nova_device_give(r->device, old);
    }
    return nova_device_take_inside(r->device, size, r->stream, &binding->block, r->error);
}

/* The arguments of a program without loops: the operands of its tables. */
static void persistent_fill_arguments(const nova_device_run *r, persistent_argument *arguments)
{
    const nova_tables *tables = &r->program->tables;
    for (uint32_t i = 0; i < tables->header->operand_count; i++) {
        const nova_buffer *buffer = &tables->buffers[tables->operands[i]];
        arguments[i] = (persistent_argument){
            nova_run_address(r, buffer),
            r->program->repeats > 1 ? persistent_stride(r->program, buffer) : 0};
    }
}

/* Whether adjacent blocks should be on different multiprocessors: where rows have several tasks. */
static bool persistent_spreads(const nova_device_run *r, const persistent_tables *tables)
{
    const nova_persistent_plan *plan = r->program->persistent;
    bool has_several = false;
    for (uint32_t i = 0; i < tables->row_count; i++)
        has_several |=
            tables->rows[i].kernel != PERSISTENT_DECISION && tables->rows[i].task_count > 1;
    return has_several && plan->blocks > plan->processors;
}

static nova_status persistent_upload(nova_device_run *r, persistent_binding *binding)
{
    memset(binding->slots, 0xff, nova_slots_size(r->program)); /* invalid until it succeeds */
    nova_status status = NOVA_OK;
    if (r->program->persistent->has_flow) {
        persistent_free_tables(&binding->tables);
        status = persistent_make_rows(r, &binding->tables);
    }
    const persistent_tables *tables = persistent_tables_of(r, binding);
    if (status == NOVA_OK)
        status = persistent_take_block(r, binding, tables->size);
    if (status != NOVA_OK)
        return status;
    char *image = calloc(1, tables->size);
    if (image == NULL)
        return nova_fail(r->error, NOVA_OUT_OF_MEMORY, "", "no memory for a run");
    persistent_argument *arguments = (void *)(image + tables->arguments_at);
    memcpy(image, tables->rows, tables->waits_at);
    if (tables->wait_count > 0)
        memcpy(image + tables->waits_at, tables->waits, tables->wait_count * sizeof *tables->waits);
    if (tables->arguments == NULL)
        persistent_fill_arguments(r, arguments);
    else
        memcpy(arguments, tables->arguments, tables->argument_count * sizeof *arguments);
    uint32_t *places = (void *)(image + tables->places_at);
    *places = persistent_spreads(r, tables) ? r->program->persistent->processors : 0;
    if (tables->list_count > 0)
        memcpy(image + tables->lists_at, tables->lists, tables->list_count * sizeof *tables->lists);
    if (r->program->persistent->ring != NULL)
        persistent_ring_fill(r->program->persistent->ring, r, image + tables->ring_at);
    status = nova_double_buffer_upload(r->device, r->execution->persistent->buffer,
                                       binding->block->address, image, tables->size, r->stream,
                                       r->error);
    free(image);
    if (status == NOVA_OK)
        memcpy(binding->slots, r->execution->slots, nova_slots_size(r->program));
    return status;
}

static nova_status persistent_bind(nova_device_run *r, persistent_binding **binding)
{
    nova_status status = NOVA_OK;
    if (r->execution->persistent == NULL)
        status = persistent_make_state(r);
    nova_persistent_state *state = r->execution->persistent;
    for (uint32_t i = 0; status == NOVA_OK && i < state->binding_count; i++)
        if (memcmp(state->bindings[i].slots, r->execution->slots, nova_slots_size(r->program)) ==
            0) {
            *binding = &state->bindings[i];
            return NOVA_OK;
        }
    if (status == NOVA_OK)
        status = persistent_choose(r, binding);
    return status == NOVA_OK ? persistent_upload(r, *binding) : status;
}

/* --- runs ------------------------------------------------------------------------------------- */

/* Makes room for the ranges of a run. */
static nova_status persistent_make_ranges(const nova_device_run *r,
                                          const persistent_binding *binding)
{
    nova_device_range **ranges = &r->execution->persistent->ranges;
    uint32_t count = persistent_tables_of(r, binding)->range_count;
    count += persistent_ring_range_count(r->program->persistent->ring);
    nova_device_range *larger = realloc(
        *ranges, (r->program->tables.header->operand_count + count + (size_t)3) * sizeof **ranges);
    if (larger == NULL)
        return nova_fail(r->error, NOVA_OUT_OF_MEMORY, "", "no memory for a run");
    *ranges = larger;
    return NOVA_OK;
}

/* The ranges of a program without loops: those of the operands of its launches. */
static uint32_t persistent_operand_ranges(const nova_device_run *r, nova_device_range *ranges)
{
    const nova_tables *tables = &r->program->tables;
    uint32_t count = 0;
    for (uint32_t i = 0; i < r->program->launch_count; i++) {
        const nova_launch_record *launch = &tables->launches[r->program->launches[i]];
        for (uint32_t k = 0; k < launch->operand_count; k++) {
            const nova_buffer *buffer = nova_operand(r->program, launch, k);
            if (buffer->kind != NOVA_SIZES)
                ranges[count++] = (nova_device_range){
                    .address = nova_run_address(r, buffer),
                    .size = buffer->nbytes +
                            (r->program->repeats - 1) * persistent_stride(r->program, buffer),
                    .is_read_only = !persistent_is_written(launch, buffer, k),
                };
        }
    }
    return count;
}

/* The memory that the tasks may access: all operands, and the tables. */
static uint32_t persistent_find_ranges(const nova_device_run *r, const persistent_binding *binding,
                                       const nova_device_block *trace)
{
    const persistent_tables *tables = persistent_tables_of(r, binding);
    nova_device_range *ranges = r->execution->persistent->ranges;
    uint32_t count = tables->range_count;
    if (tables->ranges != NULL)
        memcpy(ranges, tables->ranges, count * sizeof *ranges);
    else
        count = persistent_operand_ranges(r, ranges);
    ranges[count++] = (nova_device_range){.address = binding->block->address, .size = tables->size};
    if (trace != NULL)
        ranges[count++] = (nova_device_range){.address = trace->address, .size = trace->size};
    const uint32_t *stops = r->program->persistent->stops;
    if (stops != NULL)
        ranges[count++] = (nova_device_range){.address = (uintptr_t)stops,
                                              .size = PERSISTENT_STOPS * sizeof *stops,
                                              .is_read_only = true};
    const nova_persistent_ring *ring = r->program->persistent->ring;
    if (ring != NULL)
        count += persistent_ring_ranges(ring, ranges + count);
    return nova_ranges_merge(ranges, count);
}

/* As the kernel writes it, for each row of each repetition and each block; all 0 without tasks. In
 * a program with loops each block writes its spans one after the other, and the row is in the upper
 * half of the processor. */
typedef struct {
    uint64_t entered, started, ended, processor;
} persistent_span;

enum { MOST_SPANS = 1 << 17 };

/* Adds the tasks of a run to its trace. */
static void persistent_add_spans(const nova_device_run *r, const persistent_tables *tables,
                                 const persistent_span *spans, uint64_t count)
{
    const nova_persistent_plan *plan = r->program->persistent;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t row =
            plan->has_flow ? spans[i].processor >> 32 : i / plan->blocks % tables->row_count;
        if (spans[i].ended == 0 || tables->launches[row] == NOVA_NO_LAUNCH)
            continue;
        const nova_span span = {
            .kind = NOVA_SPAN_TASK,
            .launch = tables->launches[row],
            .first = (uint32_t)spans[i].processor,
            .count = (uint32_t)(i % plan->blocks),
            .bytes = spans[i].started - spans[i].entered,
            .start_ns = spans[i].started,
            .end_ns = spans[i].ended,
        };
        nova_trace_add_task(r->trace, &span);
    }
}

/* Launches the kernel with a trace of `count` spans, and waits for it. */
static nova_status persistent_launch_traced(nova_device_run *r, const nova_kernel_call *call,
                                            const persistent_binding *binding,
                                            const nova_device_block *block, persistent_span *spans,
                                            uint64_t count)
{
    nova_driver *driver = r->device->driver;
    uint64_t at = binding->block->address + persistent_tables_of(r, binding)->trace_at;
    const uint64_t words[2] = {block->address, count}, none[2] = {0, 0};
    int result = driver->copy_in(driver, block->address, spans, count * sizeof *spans, r->stream);
    if (result == 0)
        result = driver->copy_in(driver, at, words, sizeof words, r->stream);
    if (result == 0)
        result = driver->stream_synchronize(driver, r->stream);
    nova_trace_begin(r->trace, NOVA_SPAN_KERNEL, NOVA_NO_LAUNCH, 0, r->stream);
    if (result == 0)
        result = driver->launch(driver, call, r->stream);
    nova_trace_end(r->trace, r->stream);
    if (result == 0)
        result = driver->copy_out(driver, spans, block->address, count * sizeof *spans, r->stream);
    if (result == 0)
        result = driver->copy_in(driver, at, none, sizeof none, r->stream);
    if (result == 0)
        result = driver->stream_synchronize(driver, r->stream);
    return nova_run_check(r, result, "the persistent kernel cannot be traced");
}

static nova_status persistent_trace(nova_device_run *r, nova_kernel_call *call,
                                    const persistent_binding *binding)
{
    const nova_persistent_plan *plan = r->program->persistent;
    const persistent_tables *tables = persistent_tables_of(r, binding);
    uint64_t count = r->program->repeats * tables->row_count * plan->blocks;
    if (count > MOST_SPANS || plan->has_flow)
        count = MOST_SPANS;
    persistent_span *spans = calloc(count, sizeof *spans);
    nova_device_block *block = NULL;
    nova_status status = spans == NULL
                             ? nova_fail(r->error, NOVA_OUT_OF_MEMORY, "", "no memory for a trace")
                             : nova_device_take_inside(r->device, count * sizeof *spans, r->stream,
                                                       &block, r->error);
    if (status == NOVA_OK) {
        if (r->device->driver->checks_ranges)
            call->range_count = persistent_find_ranges(r, binding, block);
        status = persistent_launch_traced(r, call, binding, block, spans, count);
        if (status == NOVA_OK)
            persistent_add_spans(r, tables, spans, count);
        nova_device_give(r->device, block);
    }
    free(spans);
    return status;
}

/* --- stopping --------------------------------------------------------------------------------- */

void nova_device_request_stop(nova_stop_request *request)
{
    __atomic_store_n(&request->is_requested, 1, __ATOMIC_SEQ_CST);
    uint32_t *word = __atomic_load_n(&request->word, __ATOMIC_SEQ_CST);
    if (word != NULL)
        __atomic_store_n(word, request->number, __ATOMIC_SEQ_CST);
}

/* Numbers a run, and lets a request find its word; one that came before is passed on. */
static uint32_t persistent_number_run(const nova_device_run *r)
{
    nova_persistent_plan *plan = r->program->persistent;
    uint32_t number;
    do /* a word is 0 at first */
        number = __atomic_add_fetch(&plan->last_run, 1, __ATOMIC_RELAXED);
    while (number == 0);
    nova_stop_request *request = r->options->stop;
    if (request != NULL && plan->stops != NULL) {
        request->number = number;
        __atomic_store_n(&request->word, &plan->stops[number % PERSISTENT_STOPS], __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&request->is_requested, __ATOMIC_SEQ_CST) != 0)
            nova_device_request_stop(request);
    }
    return number;
}

nova_status nova_run_persistent(nova_device_run *r)
{
    nova_driver *driver = r->device->driver;
    const nova_persistent_plan *plan = r->program->persistent;
    persistent_binding *binding = NULL;
    nova_status status = persistent_bind(r, &binding);
    if (status == NOVA_OK && driver->checks_ranges)
        status = persistent_make_ranges(r, binding);
    if (status == NOVA_OK && plan->ring != NULL)
        status = persistent_ring_start(plan->ring, r);
    if (status != NOVA_OK)
        return status;
    const persistent_tables *tables = persistent_tables_of(r, binding);
    binding->used = r->execution->runs;
    nova_device_launch shape = r->program->tables.devices[plan->kernel];
    shape.grid[0] = plan->blocks;
    uint64_t at = binding->block->address;
    uint32_t number = persistent_number_run(r);
    uint64_t ring = plan->ring != NULL ? at + tables->ring_at : 0;
    /* the last four: of a kernel with decisions, or with lists; and of one that can be stopped, or
     * takes a ring */
    const uint64_t arguments[] = {
        at,
        at + tables->arguments_at,
        at + tables->waits_at,
        at + tables->counters_at,
        tables->row_count,
        plan->ring != NULL ? UINT32_MAX : r->program->repeats,
        at + (plan->has_flow ? tables->visits_at : tables->lists_at),
        plan->has_flow ? tables->segment_count : tables->counter_count,
        plan->takes_ring ? ring : (uintptr_t)(plan->stops + number % PERSISTENT_STOPS),
        number};
    uint32_t argument_count = sizeof arguments / sizeof *arguments;
    if (plan->takes_ring)
        argument_count--;
    else if (plan->stops == NULL)
        argument_count -= plan->has_flow || plan->has_lists ? 2 : 4;
    nova_kernel_call call = {
        .function = r->program->functions[plan->kernel],
        .shape = &shape,
        .arguments = arguments,
        .argument_count = argument_count,
        .ranges = r->execution->persistent->ranges,
        .range_count = driver->checks_ranges ? persistent_find_ranges(r, binding, NULL) : 0,
        .is_cooperative = true,
    };
    r->counts.launches++;
    if (r->trace != NULL)
        return persistent_trace(r, &call, binding);
    return nova_run_check(r, driver->launch(driver, &call, r->stream),
                          "the persistent kernel cannot be launched");
}
