#include "exec/control.h"

#include <string.h>

#include "exec/loop_threads.h"
#include "exec/program.h"

/* Iterations of an inline region between two checks whether the run goes on: such a region takes
 * less than NOVA_INLINE_COST nanoseconds. */
enum { INLINE_ITERATIONS = 16 };

/* The beginning of the buffer of a control kernel. */
typedef struct {
    int64_t position;
    uint8_t condition;
} control_header;

/* --- regions ---------------------------------------------------------------------------------- */

/* A region that runs once or more. */
typedef struct {
    nova_program *program;
    nova_execution *execution; /* NULL: it is inline */
    const nova_watch *watch;
    void *workspace;
    void *scratch;
    nova_run_options options;
    nova_loop_threads threads;
    unsigned workers; /* that the region is worth */
} control_region;

/* The nova_poll of the execution of a region: its owner is the watch of the loop. */
static nova_status control_poll(void *context)
{
    const nova_watch *watch = ((nova_execution *)context)->owner;
    return watch->check(watch->context);
}

static nova_status control_begin(control_region *region)
{
    region->execution = NULL;
    if (region->program->is_inline)
        return NOVA_OK;
    nova_status status = nova_execution_take(region->program, 0, &region->execution);
    if (status != NOVA_OK)
        return status;
    region->execution->owner = (void *)(uintptr_t)region->watch;
    region->options = (nova_run_options){
        .workers = nova_execution_workers(region->execution, region->watch->worker_limit),
        .poll = control_poll,
    };
    region->workers = region->options.workers;
    pthread_mutex_lock(&region->program->mutex);
    region->threads = region->program->loop_threads;
    pthread_mutex_unlock(&region->program->mutex);
    return NOVA_OK;
}

static void control_end(control_region *region)
{
    if (region->execution == NULL)
        return;
    pthread_mutex_lock(&region->program->mutex);
    region->program->loop_threads = region->threads;
    pthread_mutex_unlock(&region->program->mutex);
    nova_execution_give(region->execution);
}

static nova_status control_call(control_region *region, void *const *arguments,
                                void *const *outputs)
{
    if (region->execution == NULL)
        return nova_program_run_region(region->program, arguments, outputs, region->workspace,
                                       region->scratch, region->watch);
    nova_program_bind(region->program, arguments, outputs, region->workspace,
                      region->execution->pointers);
    return nova_instance_run(region->execution->instance, nova_execution_task, region->execution,
                             &region->options, NULL);
}

/* An iteration: control_call on as many threads as it is worth. */
static nova_status control_iterate(control_region *region, void *const *arguments,
                                   void *const *outputs)
{
    if (region->execution == NULL || region->workers == 1)
        return control_call(region, arguments, outputs);
    bool alone = nova_loop_threads_alone(&region->threads);
    region->options.workers = alone ? 1 : region->workers;
    uint64_t start = nova_clock_ns();
    nova_status status = control_call(region, arguments, outputs);
    nova_loop_threads_record(&region->threads, nova_clock_ns() - start);
    return status;
}

/* Whether a loop goes on after `iteration`. */
static nova_status control_check(const control_region *region, int64_t iteration)
{
    if (region->execution == NULL && iteration % INLINE_ITERATIONS != 0)
        return NOVA_OK;
    return region->watch->check(region->watch->context);
}

/* --- loops ------------------------------------------------------------------------------------ */

typedef struct {
    const nova_tables *tables;
    const nova_launch_record *launch;
    const nova_control_record *control;
    void *const *operands;
    control_header *header;
    void **arguments; /* of the region */
    void **outputs;
    char *second; /* the second buffers of the carries that are not updated in place */
    const nova_program *region;
} control_loop;

static uint64_t control_size(const control_loop *loop, uint32_t operand)
{
    return loop->tables->buffers[loop->tables->operands[loop->launch->first_operand + operand]]
        .nbytes;
}

/* Whether the region updates a carry in place. */
static bool control_in_place(const control_loop *loop, uint32_t carry)
{
    const nova_program *region = loop->region;
    return carry >= region->output_count || region->has_output[carry] == 0;
}

/* The end of the second buffers. */
static char *control_second_end(const control_loop *loop)
{
    char *end = loop->second;
    for (uint32_t i = 0; i < loop->control->carries; i++)
        if (!control_in_place(loop, i))
            end += (control_size(loop, loop->launch->reads + i) + 63) & ~UINT64_C(63);
    return end;
}

/* Carries that the region updates in place are in their results from here on. */
static void control_start(control_loop *loop, uint32_t first_carry)
{
    for (uint32_t i = 0; i < loop->control->carries; i++) {
        uint32_t result = loop->launch->reads + i;
        if (!control_in_place(loop, i))
            continue;
        if (loop->arguments[first_carry + i] != loop->operands[result])
            memcpy(loop->operands[result], loop->arguments[first_carry + i],
                   control_size(loop, result));
        loop->arguments[first_carry + i] = loop->outputs[i] = loop->operands[result];
    }
}

/* The carries of the next iteration are written to their results if `is_last`, or an even number of
 * iterations before the last; else to their second buffers. */
static void control_place_carries(control_loop *loop, bool is_last)
{
    char *second = loop->second;
    for (uint32_t i = 0; i < loop->control->carries; i++) {
        uint32_t result = loop->launch->reads + i;
        if (control_in_place(loop, i))
            continue;
        loop->outputs[i] = is_last ? loop->operands[result] : (void *)second;
        second += (control_size(loop, result) + 63) & ~UINT64_C(63);
    }
}

/* The outputs of an iteration are the carries of the next. */
static void control_advance(control_loop *loop, uint32_t first_carry)
{
    for (uint32_t i = 0; i < loop->control->carries; i++)
        loop->arguments[first_carry + i] = loop->outputs[i];
}

/* Copies carries that are not in the buffers of the results there. */
static void control_finish(const control_loop *loop, uint32_t first_carry)
{
    for (uint32_t i = 0; i < loop->control->carries; i++) {
        uint32_t result = loop->launch->reads + i;
        if (loop->arguments[first_carry + i] != loop->operands[result])
            memcpy(loop->operands[result], loop->arguments[first_carry + i],
                   control_size(loop, result));
    }
}

static nova_status control_run_while(control_loop *loop, control_region *region)
{
    const nova_control_record *control = loop->control;
    uint32_t arguments = control->constants + control->carries;
    memcpy(loop->arguments, loop->operands + 1, arguments * sizeof *loop->arguments);
    loop->outputs = loop->arguments + arguments;
    loop->outputs[control->carries] = &loop->header->condition;
    loop->header->condition = *(const uint8_t *)loop->operands[0];
    control_start(loop, control->constants);
    nova_status status = NOVA_OK;
    for (int64_t i = 0; status == NOVA_OK && loop->header->condition != 0; i++) {
        status = control_check(region, i);
        if (status != NOVA_OK)
            break;
        control_place_carries(loop, i % 2 == 0);
        status = control_iterate(region, loop->arguments, loop->outputs);
        control_advance(loop, control->constants);
    }
    if (status == NOVA_OK)
        control_finish(loop, control->constants);
    return status;
}

/* The slices of xs and ys at a position. */
static void control_place_slices(control_loop *loop, int64_t position)
{
    const nova_control_record *control = loop->control;
    uint32_t reads = loop->launch->reads, results = loop->launch->operand_count - reads - 1;
    for (uint32_t i = control->constants + control->carries; i < reads; i++)
        loop->arguments[1 + i] = (char *)loop->operands[i] + control_size(loop, i) /
                                                                 (uint64_t)control->length *
                                                                 (uint64_t)position;
    for (uint32_t i = control->carries; i < results; i++)
        loop->outputs[i] = (char *)loop->operands[reads + i] + control_size(loop, reads + i) /
                                                                   (uint64_t)control->length *
                                                                   (uint64_t)position;
}

static nova_status control_run_for(control_loop *loop, control_region *region)
{
    const nova_control_record *control = loop->control;
    uint32_t reads = loop->launch->reads, first_carry = 1 + control->constants;
    loop->arguments[0] = &loop->header->position;
    memcpy(loop->arguments + 1, loop->operands, reads * sizeof *loop->arguments);
    loop->outputs = loop->arguments + 1 + reads;
    control_start(loop, first_carry);
    nova_status status = NOVA_OK;
    for (int64_t i = 0; status == NOVA_OK && i < control->length; i++) {
        status = control_check(region, i);
        if (status != NOVA_OK)
            break;
        int64_t position = control->reverse ? control->length - 1 - i : i;
        loop->header->position = position;
        control_place_carries(loop, (control->length - 1 - i) % 2 == 0);
        control_place_slices(loop, position);
        status = control_iterate(region, loop->arguments, loop->outputs);
        control_advance(loop, first_carry);
    }
    if (status == NOVA_OK && control->length == 0)
        control_finish(loop, first_carry);
    return status;
}

/* --- the kernel ------------------------------------------------------------------------------- */

/* The branch that a selector chooses: the first or the last for one out of range. */
static uint32_t control_choose(const void *selector, uint64_t size, uint32_t count)
{
    int64_t index = *(const uint8_t *)selector;
    if (size == sizeof index)
        memcpy(&index, selector, sizeof index);
    if (index < 0)
        return 0;
    return index < (int64_t)count ? (uint32_t)index : count - 1;
}

nova_status nova_control_run(const nova_program *program, const nova_launch_record *launch,
                             const nova_control_record *control, void *const *operands,
                             void *scratch, const nova_watch *watch)
{
    if (control->construct == NOVA_CALL)
        return nova_callee_run(program->kernels[launch->kernel].callee, launch, operands, watch);
    char *own = operands[launch->operand_count - 1];
    control_loop loop = {
        .tables = &program->tables,
        .launch = launch,
        .control = control,
        .operands = operands,
        .header = (control_header *)(void *)own,
        .arguments = (void **)(void *)(own + 64),
    };
    const uint32_t *regions = program->tables.container.regions + control->first_region;
    uint32_t chosen = 0;
    if (control->construct == NOVA_SWITCH)
        chosen = control_choose(operands[0], control_size(&loop, 0), control->region_count);
    loop.region = program->regions[regions[chosen]];
    char *workspace = own + 64;
    if (control->construct != NOVA_SWITCH) {
        loop.second = workspace + (((launch->operand_count + UINT64_C(1)) * sizeof(void *) + 63) &
                                   ~UINT64_C(63));
        workspace = control_second_end(&loop);
    }
    control_region region = {
        .program = program->regions[regions[chosen]],
        .watch = watch,
        .workspace = workspace,
        .scratch = scratch,
    };
    nova_status status = control_begin(&region);
    if (status != NOVA_OK)
        return status;
    if (control->construct == NOVA_SWITCH)
        status = control_call(&region, operands + 1, operands + launch->reads);
    else if (control->construct == NOVA_LOOP_WHILE)
        status = control_run_while(&loop, &region);
    else
        status = control_run_for(&loop, &region);
    control_end(&region);
    return status;
}
