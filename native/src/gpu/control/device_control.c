/* Loops and branches of a program on a device: control kernels, which run regions.
 *
 * A control launch of the program becomes a flow whose branches and loops the device decides, with
 * the launches of all regions inside: a graph of the driver (device_flow.c), or rows of the table
 * of a persistent kernel. An iteration of a loop reads its carries from the results of the loop and
 * writes second buffers, which are then copied back; slices are copied to and from buffers of one
 * slice. A loop with few iterations, which the tables know, is unrolled instead: each iteration has
 * its own addresses, and nothing is copied.
 *
 * Without flows the host decides: it reads selectors and conditions from the device, and enqueues
 * every iteration. */
#include "gpu/control/control_call.h"

#include <stdlib.h>
#include <string.h>

/* Kernels may use accesses of so many bytes on everything. */
enum { ACCESS = 16 };

/* A launch of a control kernel. */
typedef struct {
    const control_frame *frame;
    const nova_launch_record *launch;
    const nova_control_record *control;
    uint64_t *operands;
    uint64_t *arguments, *outputs;    /* of its regions */
    const nova_device_region *region; /* of a loop */
    uint64_t position, condition;     /* these are parts of its own buffer */
    uint64_t second;
    uint64_t slices, workspace;
} control_call;

static nova_status control_run_block(const control_sink *sink, const control_frame *frame);

nova_status nova_control_no_memory(const control_sink *sink)
{
    return nova_fail(sink->r->error, NOVA_OUT_OF_MEMORY, "", "no memory for a loop");
}

/* --- kernels and copies ----------------------------------------------------------------------- */

uint64_t nova_control_address(const control_sink *sink, const control_frame *frame,
                              const nova_buffer *buffer)
{
    switch (buffer->kind) {
    case NOVA_ARGUMENT:
        return frame->arguments[buffer->value];
    case NOVA_OUTPUT:
        return frame->outputs[buffer->value];
    case NOVA_OUTPUT_PART:
        return frame->outputs[buffer->output] + buffer->value;
    case NOVA_WORKSPACE:
        return frame->workspace + buffer->value;
    case NOVA_SIZES: /* passed by value */
        return (uint64_t)sink->r->program->sizes[buffer->value / sizeof *sink->r->program->sizes];
    default:
        return sink->r->program->code->constants->address + buffer->value;
    }
}

static void control_fill_pointers(const control_sink *sink, const control_frame *frame,
                                  const nova_launch_record *launch, uint64_t *pointers)
{
    const nova_tables *tables = &frame->region->tables;
    for (uint32_t i = 0; i < launch->operand_count; i++)
        pointers[i] = nova_control_address(
            sink, frame, &tables->buffers[tables->operands[launch->first_operand + i]]);
}

/* Enqueues a kernel on the stream of the run. */
static int control_launch(const control_sink *sink, const nova_kernel_call *call)
{
    nova_device_run *r = sink->r;
    nova_driver *driver = r->device->driver;
    nova_trace_begin(r->trace, NOVA_SPAN_KERNEL, sink->launch, 0, r->stream);
    int result = driver->launch(driver, call, r->stream);
    nova_trace_end(r->trace, r->stream);
    r->counts.launches++;
    return result;
}

static nova_status control_add_launch(const control_sink *sink, const control_frame *frame,
                                      const nova_launch_record *launch)
{
    nova_driver *driver = sink->r->device->driver;
    const nova_device_region *region = frame->region;
    const nova_device_launch *shape = &region->tables.devices[launch->kernel];
    if (shape->grid[0] == 0 || shape->grid[1] == 0 || shape->grid[2] == 0)
        return NOVA_OK;
    uint64_t *pointers = calloc(launch->operand_count + UINT64_C(1), sizeof *pointers);
    nova_device_range *ranges = calloc(launch->operand_count + UINT64_C(1), sizeof *ranges);
    uint32_t map_count = shape->tensor_map_count;
    nova_encoded_map *maps =
        aligned_alloc(_Alignof(nova_encoded_map), (map_count + UINT64_C(1)) * sizeof *maps);
    nova_status status = NOVA_OK;
    int result = 0;
    if (pointers == NULL || ranges == NULL || maps == NULL) {
        status = nova_control_no_memory(sink);
    } else {
        control_fill_pointers(sink, frame, launch, pointers);
        const nova_tensor_map *map = region->tables.tensor_maps;
        for (uint32_t i = 0; result == 0 && i < map_count; i++) {
            const nova_tensor_map *layout = &map[region->first_maps[launch->kernel] + i];
            result = driver->tensor_map_encode(driver, layout, pointers[layout->operand], &maps[i]);
        }
        bool has_ranges =
            sink->builder != NULL ? sink->builder->needs_ranges : driver->checks_ranges;
        const nova_kernel_call call = {
            .function = region->functions[launch->kernel],
            .shape = shape,
            .arguments = pointers,
            .maps = maps,
            .argument_count = launch->operand_count,
            .is_dependent = sink->is_dependent &&
                            (region->tables.kernels[launch->kernel].core & NOVA_DEPENDENT) != 0,
            .ranges = ranges,
            .range_count =
                has_ranges ? nova_launch_find_ranges(&region->tables, launch, pointers, ranges) : 0,
        };
        const nova_flow_launch added = {region, launch->kernel, sink->launch, &call};
        if (result == 0 && sink->builder == NULL)
            result = control_launch(sink, &call);
        status = nova_run_check(sink->r, result, "a kernel of a loop cannot be launched");
        if (status == NOVA_OK && sink->builder != NULL)
            status = sink->builder->add_launch(sink->builder, sink->body, &added);
    }
    free(pointers);
    free(ranges);
    free(maps);
    return status;
}

static nova_status control_copy(const control_sink *sink, const nova_flow_copy *copies,
                                uint32_t count)
{
    nova_driver *driver = sink->r->device->driver;
    int result = 0;
    if (sink->builder != NULL)
        return count > 0 ? sink->builder->add_copies(sink->builder, sink->body, copies, count)
                         : NOVA_OK;
    for (uint32_t i = 0; result == 0 && i < count; i++)
        result = driver->copy_within(driver, copies[i].to, copies[i].from, copies[i].size,
                                     sink->r->stream);
    return nova_run_check(sink->r, result, "a value of a loop cannot be copied");
}

/* --- decisions of the host -------------------------------------------------------------------- */

/* Waits for a selector or condition; between two of them the run can be stopped. */
static nova_status control_read(const control_sink *sink, uint64_t address, uint64_t size,
                                int64_t *value)
{
    nova_device_run *r = sink->r;
    nova_driver *driver = r->device->driver;
    const nova_program_options *host = &r->options->host;
    nova_status status = host->poll != NULL ? host->poll(host->owner) : NOVA_OK;
    if (status != NOVA_OK)
        return nova_fail(r->error, status, "", "%s", nova_status_text(status));
    unsigned char bytes[sizeof *value] = {0};
    nova_trace_begin(r->trace, NOVA_SPAN_COPY_OUT, sink->launch, size, r->stream);
    int result = driver->copy_out(driver, bytes, address, size, r->stream);
    nova_trace_end(r->trace, r->stream);
    nova_trace_host(r->trace, NOVA_SPAN_WAIT);
    if (result == 0)
        result = driver->stream_synchronize(driver, r->stream);
    nova_trace_host(r->trace, NOVA_SPAN_ENQUEUE);
    memcpy(value, bytes, sizeof bytes);
    return nova_run_check(r, result, "the condition of a loop or branch cannot be read");
}

/* --- branches --------------------------------------------------------------------------------- */

static control_frame control_region_frame(const control_sink *sink, const control_call *call,
                                          uint32_t number)
{
    const nova_tables *tables = &call->frame->region->tables;
    uint32_t block = tables->container.regions[call->control->first_region + number];
    return (control_frame){
        .region = &sink->r->program->regions[block],
        .arguments = call->arguments,
        .outputs = call->outputs,
        .workspace = call->workspace,
    };
}

static nova_status control_run_switch(const control_sink *sink, control_call *call)
{
    nova_flow_builder *builder = sink->builder;
    const nova_tables *tables = &call->frame->region->tables;
    uint32_t count = call->control->region_count;
    uint64_t size = tables->buffers[tables->operands[call->launch->first_operand]].nbytes;
    call->arguments = call->operands + 1;
    call->outputs = call->operands + call->launch->reads;
    if (builder == NULL) {
        int64_t selected = 0;
        nova_status status = control_read(sink, call->operands[0], size, &selected);
        if (status != NOVA_OK)
            return status;
        uint32_t number = selected < 0                ? 0
                          : selected < (int64_t)count ? (uint32_t)selected
                                                      : count - 1;
        const control_frame frame = control_region_frame(sink, call, number);
        return control_run_block(sink, &frame);
    }
    if (sink->selector == call->operands[0] && sink->count == count) {
        const control_frame frame = control_region_frame(sink, call, sink->selected);
        return control_run_block(sink, &frame);
    }
    void **branches = calloc(count + UINT64_C(1), sizeof *branches);
    if (branches == NULL)
        return nova_control_no_memory(sink);
    nova_status status =
        builder->add_switch(builder, sink->body, call->operands[0], size, count, branches);
    for (uint32_t i = 0; status == NOVA_OK && i < count; i++) {
        const control_frame frame = control_region_frame(sink, call, i);
        control_sink branch = *sink;
        branch.body = branches[i];
        status = control_run_block(&branch, &frame);
        if (status == NOVA_OK)
            status = builder->end_body(builder, branches[i]);
    }
    free(branches);
    return status;
}

/* --- loops ------------------------------------------------------------------------------------ */

static uint64_t control_size(const control_call *call, uint32_t operand)
{
    const nova_tables *tables = &call->frame->region->tables;
    return tables->buffers[tables->operands[call->launch->first_operand + operand]].nbytes;
}

static uint64_t control_second_size(const control_call *call, uint32_t carry)
{
    return call->region->has_output[carry] == 0
               ? 0
               : (control_size(call, call->launch->reads + carry) + 63) & ~UINT64_C(63);
}

/* Carries that the region updates in place are in their results from the first iteration on; lists
 * the copies that this needs. */
static uint32_t control_start(const control_call *call, uint32_t first_carry,
                              nova_flow_copy *copies)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < call->control->carries; i++) {
        uint32_t result = call->launch->reads + i;
        uint64_t *carry = &call->arguments[first_carry + i], size = control_size(call, result);
        if (call->region->has_output[i] != 0)
            continue;
        call->outputs[i] = call->operands[result];
        if (size > 0 && *carry != call->outputs[i])
            copies[count++] =
                (nova_flow_copy){.to = call->outputs[i], .from = *carry, .size = size};
        *carry = call->outputs[i];
    }
    return count;
}

/* Other carries are written to the results, or to their second buffers. */
static void control_place_carries(const control_call *call, bool in_results)
{
    uint64_t second = call->second;
    for (uint32_t i = 0; i < call->control->carries; i++) {
        if (call->region->has_output[i] == 0)
            continue;
        call->outputs[i] = in_results ? call->operands[call->launch->reads + i] : second;
        second += control_second_size(call, i);
    }
}

/* The outputs of an iteration are the carries of the next. */
static void control_advance(const control_call *call, uint32_t first_carry)
{
    for (uint32_t i = 0; i < call->control->carries; i++)
        call->arguments[first_carry + i] = call->outputs[i];
}

/* Copies of the carries from one place to the other; returns their number. */
static uint32_t control_copy_carries(const control_call *call, const uint64_t *to,
                                     const uint64_t *from, nova_flow_copy *copies)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < call->control->carries; i++) {
        uint64_t size = control_size(call, call->launch->reads + i);
        if (size > 0 && to[i] != from[i])
            copies[count++] = (nova_flow_copy){.to = to[i], .from = from[i], .size = size};
    }
    return count;
}

/* The copy of a slice of operand `operand`, at position 0, with its stride; in or out of the loop.
 * `slice` is its buffer. */
static nova_flow_copy control_slice_copy(const control_call *call, uint32_t operand, uint64_t slice)
{
    uint64_t size = control_size(call, operand) / (uint64_t)call->control->length;
    if (operand < call->launch->reads)
        return (nova_flow_copy){.to = slice,
                                .from = call->operands[operand],
                                .size = size,
                                .from_stride = (int64_t)size};
    return (nova_flow_copy){
        .to = call->operands[operand], .from = slice, .size = size, .to_stride = (int64_t)size};
}

/* Gives the region the buffers of one slice of each operand and result of a loop over slices, and
 * lists their copies: `loads` for operands, `stores` for results. With a `position`, slices that
 * are aligned in place need no copy. */
static void control_place_slices(const control_call *call, const int64_t *position,
                                 nova_flow_copy *loads, uint32_t *load_count,
                                 nova_flow_copy *stores, uint32_t *store_count)
{
    const nova_control_record *control = call->control;
    uint32_t reads = call->launch->reads;
    uint64_t slice = call->slices;
    if (control->length == 0)
        return;
    for (uint32_t i = control->constants + control->carries; i + 1 < call->launch->operand_count;
         i++) {
        if (i >= reads && i < reads + control->carries)
            continue;
        nova_flow_copy copy = control_slice_copy(call, i, slice);
        uint64_t *region = i < reads ? &call->arguments[1 + i] : &call->outputs[i - reads];
        *region = slice;
        slice += nova_control_slice(&call->frame->region->tables, call->launch, control, i);
        if (position != NULL) {
            copy.to += (uint64_t)(copy.to_stride * *position);
            copy.from += (uint64_t)(copy.from_stride * *position);
            copy.to_stride = copy.from_stride = 0;
            if (copy.size % ACCESS == 0) {
                *region = i < reads ? copy.from : copy.to;
                continue;
            }
        }
        if (copy.size > 0 && i < reads)
            loads[(*load_count)++] = copy;
        else if (copy.size > 0)
            stores[(*store_count)++] = copy;
    }
}

/* A loop that the device decides. */
static nova_status control_add_loop(const control_sink *sink, control_call *call,
                                    nova_flow_copy *copies)
{
    nova_flow_builder *builder = sink->builder;
    const nova_control_record *control = call->control;
    bool is_while = control->construct == NOVA_LOOP_WHILE;
    uint32_t first_carry = 1 + control->constants;
    const uint64_t *results = call->operands + call->launch->reads;
    nova_flow_copy *loads = copies + call->launch->operand_count;
    nova_flow_copy *stores = loads + call->launch->operand_count;
    nova_flow_loop loop = {.condition = is_while ? call->condition : 0,
                           .position = call->position,
                           .length = control->length,
                           .is_reverse = control->reverse != 0,
                           .enters = copies,
                           .loads = loads,
                           .stores = stores};
    (void)control_start(call, is_while ? control->constants : first_carry, copies);
    control_place_carries(call, false);
    loop.enter_count = control_copy_carries(
        call, results, call->operands + (is_while ? 1 : 0) + control->constants, copies);
    loop.store_count = control_copy_carries(call, results, call->outputs, stores);
    if (is_while)
        copies[loop.enter_count++] =
            (nova_flow_copy){.to = call->condition, .from = call->operands[0], .size = 1};
    else
        control_place_slices(call, NULL, loads, &loop.load_count, stores, &loop.store_count);
    memcpy(call->arguments + (is_while ? control->constants : first_carry), results,
           control->carries * sizeof *results);
    void *inner = NULL;
    nova_status status = builder->add_loop(builder, sink->body, &loop, &inner);
    const control_frame frame = control_region_frame(sink, call, 0);
    control_sink body = *sink;
    body.body = inner;
    if (status == NOVA_OK)
        status = control_run_block(&body, &frame);
    if (status == NOVA_OK)
        status = builder->end_body(builder, inner);
    return status;
}

static nova_status control_run_while(const control_sink *sink, control_call *call,
                                     nova_flow_copy *copies)
{
    const nova_control_record *control = call->control;
    uint32_t arguments = control->constants + control->carries;
    memcpy(call->arguments, call->operands + 1, arguments * sizeof *call->arguments);
    call->outputs = call->arguments + arguments;
    call->outputs[control->carries] = call->condition;
    if (sink->builder != NULL)
        return control_add_loop(sink, call, copies);
    const control_frame frame = control_region_frame(sink, call, 0);
    int64_t holds = 0;
    uint32_t count = control_start(call, control->constants, copies);
    nova_status status = control_copy(sink, copies, count);
    if (status == NOVA_OK)
        status = control_read(sink, call->operands[0], 1, &holds);
    for (bool in_results = true; status == NOVA_OK && holds != 0; in_results = !in_results) {
        control_place_carries(call, in_results);
        status = control_run_block(sink, &frame);
        control_advance(call, control->constants);
        if (status == NOVA_OK)
            status = control_read(sink, call->condition, 1, &holds);
    }
    count = control_copy_carries(call, call->operands + call->launch->reads,
                                 call->arguments + control->constants, copies);
    return status == NOVA_OK ? control_copy(sink, copies, count) : status;
}

/* One iteration of a loop whose position is known now. */
static nova_status control_run_position(const control_sink *sink, control_call *call,
                                        int64_t position, nova_flow_copy *copies)
{
    nova_flow_copy *stores = copies + call->launch->operand_count;
    uint32_t loads = 0, store_count = 0;
    const nova_device_block *positions = sink->r->program->positions;
    if (positions != NULL)
        call->arguments[0] = positions->address + (uint64_t)position * sizeof position;
    control_place_slices(call, &position, copies, &loads, stores, &store_count);
    const control_frame frame = control_region_frame(sink, call, 0);
    nova_status status = control_copy(sink, copies, loads);
    if (status == NOVA_OK)
        status = control_run_block(sink, &frame);
    if (status == NOVA_OK)
        status = control_copy(sink, stores, store_count);
    return status;
}

static nova_status control_run_for(const control_sink *sink, control_call *call,
                                   nova_flow_copy *copies)
{
    const nova_control_record *control = call->control;
    const nova_program_options *host = &sink->r->options->host;
    uint32_t reads = call->launch->reads;
    call->arguments[0] = call->position;
    memcpy(call->arguments + 1, call->operands, reads * sizeof *call->arguments);
    call->outputs = call->arguments + 1 + reads;
    if (sink->builder != NULL && control->length > 0 &&
        !nova_control_is_unrolled(sink->r->program, &call->frame->region->tables, control))
        return control_add_loop(sink, call, copies);
    uint32_t count = control_start(call, 1 + control->constants, copies);
    nova_status status = control_copy(sink, copies, count);
    for (int64_t i = 0; status == NOVA_OK && i < control->length; i++) {
        if (sink->builder == NULL && host->poll != NULL)
            status = host->poll(host->owner);
        if (status != NOVA_OK)
            return nova_fail(sink->r->error, status, "", "%s", nova_status_text(status));
        control_place_carries(call, (control->length - 1 - i) % 2 == 0);
        int64_t position = control->reverse ? control->length - 1 - i : i;
        status = control_run_position(sink, call, position, copies);
        control_advance(call, 1 + control->constants);
    }
    if (status != NOVA_OK || control->length > 0)
        return status;
    count = control_copy_carries(call, call->operands + reads,
                                 call->arguments + 1 + control->constants, copies);
    return control_copy(sink, copies, count);
}

/* --- blocks ----------------------------------------------------------------------------------- */

nova_status nova_control_run_call(const control_sink *sink, const control_frame *frame,
                                  const nova_launch_record *launch)
{
    const nova_tables *tables = &frame->region->tables;
    const nova_control_record *control = nova_tables_control(tables, launch->kernel);
    const control_switch constant = nova_control_find_switch(sink, tables, control);
    if (constant.count > 0)
        return nova_control_unswitch(sink, frame, launch, constant);
    uint64_t operands = launch->operand_count, values = 3 * (operands + 2);
    uint64_t *memory = calloc(values, sizeof *memory);
    nova_flow_copy *copies = calloc(3 * operands + 2, sizeof *copies);
    nova_status status = NOVA_OK;
    uint64_t bookkeeping = 0;
    if (memory == NULL || copies == NULL ||
        nova_control_bookkeeping(tables, launch, control, &bookkeeping) != NOVA_OK) {
        status = nova_control_no_memory(sink);
    } else {
        control_fill_pointers(sink, frame, launch, memory);
        uint64_t own = memory[operands - 1];
        control_call call = {
            .frame = frame,
            .launch = launch,
            .control = control,
            .region = &sink->r->program->regions[tables->container.regions[control->first_region]],
            .operands = memory,
            .arguments = memory + operands,
            .position = own,
            .condition = own + sizeof(int64_t),
            .second = own + 64 + ((operands + 1) * sizeof(void *) + 63) / 64 * 64,
            .workspace = own + bookkeeping,
        };
        call.slices = call.second;
        for (uint32_t i = 0; control->construct != NOVA_SWITCH && i < control->carries; i++)
            call.slices += control_second_size(&call, i);
        status = control->construct == NOVA_SWITCH       ? control_run_switch(sink, &call)
                 : control->construct == NOVA_LOOP_WHILE ? control_run_while(sink, &call, copies)
                                                         : control_run_for(sink, &call, copies);
    }
    free(memory);
    free(copies);
    return status;
}

static nova_status control_run_block(const control_sink *sink, const control_frame *frame)
{
    const nova_tables *tables = &frame->region->tables;
    nova_status status = NOVA_OK;
    for (uint32_t i = 0; status == NOVA_OK && i < tables->header->launch_count; i++) {
        const nova_launch_record *launch = &tables->launches[i];
        status = (tables->kernels[launch->kernel].core & NOVA_CONTROL) != 0
                     ? nova_control_run_call(sink, frame, launch)
                     : control_add_launch(sink, frame, launch);
    }
    return status;
}

/* --- steps ------------------------------------------------------------------------------------ */

/* The frame of the program itself, whose tables are those of `region`. */
static control_frame control_main_frame(const nova_device_run *r, const nova_device_region *region)
{
    const uint64_t *slots = r->execution->slots;
    return (control_frame){
        .region = region,
        .arguments = slots,
        .outputs = slots + r->program->argument_count,
        .workspace = slots[r->program->argument_count + r->program->output_count],
    };
}

nova_status nova_control_run_step(nova_device_run *r, const nova_device_step *step,
                                  nova_flow_builder *builder, void *body, bool is_dependent)
{
    const nova_device_program *program = r->program;
    const nova_device_region region = nova_device_main_region(program);
    const control_frame frame = control_main_frame(r, &region);
    const control_sink sink = {.r = r,
                               .builder = builder,
                               .body = body,
                               .launch = program->launches[step->first],
                               .is_dependent = is_dependent};
    return nova_control_run_call(&sink, &frame, nova_step_launch(program, step, 0));
}

static nova_status control_add_steps(nova_device_run *r, nova_flow_builder *builder, void *body,
                                     uint32_t from, uint32_t to)
{
    const nova_device_program *program = r->program;
    const nova_device_region region = nova_device_main_region(program);
    const control_frame frame = control_main_frame(r, &region);
    nova_status status = NOVA_OK;
    for (uint32_t i = from; status == NOVA_OK && i < to; i++) {
        const nova_device_step *step = &program->steps[i];
        const nova_launch_record *launch = nova_step_launch(program, step, 0);
        nova_flow_loop loop = {0};
        void *inner = NULL;
        control_sink sink = {.r = r, .builder = builder, .body = body};
        switch (step->type) {
        case NOVA_CONTROL_STEP:
            status = nova_control_run_step(r, step, builder, body, false);
            break;
        case NOVA_LOOP_STEP:
            loop.condition = nova_run_address(r, nova_operand(program, launch, 0));
            status = builder->add_loop(builder, body, &loop, &inner);
            if (status == NOVA_OK)
                status = control_add_steps(r, builder, inner, i + 1, step->end);
            if (status == NOVA_OK)
                status = builder->end_body(builder, inner);
            i = step->end - 1;
            break;
        default: /* kernels of the device: others are refused when a program is loaded */
            for (uint32_t k = 0; status == NOVA_OK && k < step->count; k++) {
                sink.launch = program->launches[step->first + k];
                status = control_add_launch(&sink, &frame, nova_step_launch(program, step, k));
            }
        }
    }
    return status;
}

nova_status nova_control_add_program(nova_device_run *r, nova_flow_builder *builder, void *body)
{
    return control_add_steps(r, builder, body, 0, r->program->step_count);
}
