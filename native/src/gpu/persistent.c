/* Persistent execution: the launches of a program as tasks of one resident kernel, which
 * `link-persistent-kernel` made (nova/passes/gpu). This file plans its table of launches at load
 * time, and binds it to the pointers of a run: rows, waits, arguments and counters are one block of
 * device memory. The kernel leaves the counters at 0. */
#include <stdlib.h>
#include <string.h>

#include "gpu/device_run.h"
#include "nova/task_plan.h"

static const char PERSISTENT_SYMBOL[] = "nova_persistent";

/* As the kernel reads them. */
typedef struct {
    uint32_t kernel;      /* its number in the tables: the case of the kernel's switch */
    uint32_t task_count;  /* blocks of the launch */
    uint32_t first_block; /* resident block that runs task 0; the others follow it */
    uint32_t first_argument;
    uint32_t first_wait, wait_count;
    uint32_t unused[2];
} persistent_row;

typedef struct {
    uint32_t row, count; /* tasks of that row which must have run */
} persistent_wait;

/* An argument of a launch: a pointer, or the value of a size. In each repetition of the program it
 * moves on by the stride. */
typedef struct {
    uint64_t value, stride;
} persistent_argument;

struct nova_persistent_plan {
    uint32_t kernel, blocks; /* number in the tables; of the resident launch */
    uint32_t row_count, wait_count;
    persistent_row *rows;
    persistent_wait *waits;
    /* bytes of the tables on the device, and where their parts begin; rows are first */
    uint64_t size, waits_at, arguments_at, counters_at;
};

/* The tables on the device for one set of slots. */
typedef struct {
    uint64_t *slots;
    nova_device_block *block;
    uint64_t used; /* number of the run that used it last */
} persistent_binding;

struct nova_persistent_state {
    nova_double_buffer *buffer;
    char *image; /* of the tables, on the host */
    nova_device_range *ranges;
    uint32_t binding_count;
    persistent_binding bindings[NOVA_DEVICE_GRAPHS];
};

/* --- the plan --------------------------------------------------------------------------------- */

/* The kernel of persistent execution in the tables, or their number of kernels. */
static uint32_t persistent_find_kernel(const nova_tables *tables)
{
    uint32_t count = tables->header->kernel_count, i = count;
    while (i-- > 0)
        if (strcmp(tables->strings + tables->kernels[i].symbol, PERSISTENT_SYMBOL) == 0)
            return i;
    return count;
}

static bool persistent_is_written(const nova_launch_record *launch, const nova_buffer *buffer,
                                  uint32_t operand)
{
    return operand >= launch->reads && buffer->kind != NOVA_CONSTANT;
}

/* The row of a launch of the tables; rows are in ascending order of launches. */
static uint32_t persistent_row_of(const nova_device_program *program, uint32_t launch)
{
    uint32_t low = 0, high = program->launch_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (program->launches[middle] < launch)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The waits of all rows: for the launches that they depend on by the task table, one task a launch;
 * without such a table each row waits for the one before it. */
static void persistent_add_waits(const nova_device_program *program, nova_persistent_plan *plan,
                                 const nova_task_plan *tasks)
{
    for (uint32_t row = 0; row < plan->row_count; row++) {
        persistent_row *added = &plan->rows[row];
        added->first_wait = plan->wait_count;
        for (uint32_t t = 0; t < tasks->task_count; t++) {
            const nova_task *earlier = &tasks->tasks[t];
            uint32_t from = persistent_row_of(program, earlier->launch);
            for (uint32_t k = 0; from < row && k < earlier->successor_count; k++)
                if (tasks->tasks[tasks->successors[earlier->first_successor + k]].launch ==
                    program->launches[row])
                    plan->waits[plan->wait_count++] =
                        (persistent_wait){from, plan->rows[from].task_count};
        }
        if (tasks->task_count == 0 && row > 0)
            plan->waits[plan->wait_count++] =
                (persistent_wait){row - 1, plan->rows[row - 1].task_count};
        added->wait_count = plan->wait_count - added->first_wait;
    }
}

static nova_status persistent_fill(const nova_device_program *program, nova_persistent_plan *plan,
                                   nova_error *error)
{
    const nova_tables *tables = &program->tables;
    nova_task_plan tasks = {0};
    if (!nova_graph_has_aliases(program) &&
        nova_task_plan_create_device(tables, 1, &tasks) != NOVA_OK)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the program");
    plan->waits = calloc((size_t)plan->row_count + tasks.successor_count, sizeof *plan->waits);
    if (plan->waits == NULL) {
        nova_task_plan_free(&tasks);
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the program");
    }
    uint32_t next = 0;
    for (uint32_t i = 0; i < plan->row_count; i++) {
        const nova_launch_record *launch = &tables->launches[program->launches[i]];
        const nova_device_launch *shape = &tables->devices[launch->kernel];
        plan->rows[i] = (persistent_row){.kernel = launch->kernel,
                                         .task_count = shape->grid[0],
                                         .first_block = next,
                                         .first_argument = launch->first_operand};
        /* The next row begins where this one ends: rows that are independent run concurrently. */
        next = (uint32_t)(((uint64_t)next + shape->grid[0]) % plan->blocks);
    }
    persistent_add_waits(program, plan, &tasks);
    nova_task_plan_free(&tasks);
    plan->waits_at = plan->row_count * sizeof *plan->rows;
    plan->arguments_at = (plan->waits_at + plan->wait_count * sizeof *plan->waits + 15) / 16 * 16;
    plan->counters_at =
        plan->arguments_at + tables->header->operand_count * sizeof(persistent_argument);
    plan->size = plan->counters_at + (plan->row_count + UINT64_C(2)) * sizeof(uint32_t);
    return NOVA_OK;
}

nova_status nova_persistent_prepare(nova_device_program *program, nova_error *error)
{
    const nova_tables *tables = &program->tables;
    uint32_t kernel = persistent_find_kernel(tables), rows = program->launch_count;
    if (rows == 0 || kernel == tables->header->kernel_count)
        return program->repeats == 1 || rows == 0
                   ? NOVA_OK
                   : nova_fail(error, NOVA_INVALID_ARGUMENT, "",
                               "a program without a persistent kernel cannot be repeated");
    if (program->step_count != 1 || program->steps[0].type != NOVA_DEVICE_STEP)
        return nova_fail(error, NOVA_REFUSED, "tables-persistent",
                         "a persistent kernel in a program with host kernels or loops");
    for (uint32_t i = 0; i < rows; i++) {
        const nova_launch_record *launch = &tables->launches[program->launches[i]];
        const nova_device_launch *shape = &tables->devices[launch->kernel];
        if (launch->kernel == kernel || shape->tensor_map_count > 0 || shape->grid[1] != 1 ||
            shape->grid[2] != 1 || shape->block[0] > tables->devices[kernel].block[0])
            return nova_fail(error, NOVA_REFUSED, "tables-persistent",
                             "launch %u cannot be tasks of the persistent kernel",
                             program->launches[i]);
    }
    nova_persistent_plan *plan = calloc(1, sizeof *plan);
    program->persistent = plan;
    if (plan == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the program");
    plan->kernel = kernel;
    plan->row_count = rows;
    plan->rows = calloc(rows, sizeof *plan->rows);
    if (plan->rows == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the program");
    nova_driver *driver = program->device->driver;
    const nova_device_launch *shape = &tables->devices[kernel];
    int result = driver->function_resident(driver, program->functions[kernel], shape->block[0],
                                           shape->shared, &plan->blocks);
    nova_status status =
        nova_device_check(program->device, result,
                          "the device cannot run the persistent kernel of the program", error);
    return status == NOVA_OK ? persistent_fill(program, plan, error) : status;
}

void nova_persistent_free(nova_persistent_plan *plan)
{
    if (plan == NULL)
        return;
    free(plan->rows);
    free(plan->waits);
    free(plan);
}

/* --- bindings --------------------------------------------------------------------------------- */

void nova_persistent_free_state(nova_device *device, nova_persistent_state *state)
{
    if (state == NULL)
        return;
    for (uint32_t i = 0; i < state->binding_count; i++) {
        nova_device_give(device, state->bindings[i].block);
        free(state->bindings[i].slots);
    }
    if (state->buffer != NULL)
        nova_double_buffer_give(device, state->buffer);
    free(state->image);
    free(state->ranges);
    free(state);
}

static size_t persistent_slots_size(const nova_device_program *program)
{
    return (program->argument_count + program->output_count + 1) * sizeof(uint64_t);
}

static nova_status persistent_make_state(nova_device_run *r)
{
    const nova_persistent_plan *plan = r->program->persistent;
    nova_persistent_state *state = calloc(1, sizeof *state);
    r->execution->persistent = state;
    if (state == NULL)
        return nova_fail(r->error, NOVA_OUT_OF_MEMORY, "", "no memory for a run");
    state->image = calloc(1, plan->size);
    state->ranges = calloc(r->program->tables.header->operand_count + 1, sizeof *state->ranges);
    if (state->image == NULL || state->ranges == NULL)
        return nova_fail(r->error, NOVA_OUT_OF_MEMORY, "", "no memory for a run");
    return nova_double_buffer_take(r->device, &state->buffer, r->error);
}

/* A binding that no run uses by now: a new one, or the one that was not used for the longest. */
static nova_status persistent_choose(nova_device_run *r, persistent_binding **binding)
{
    nova_persistent_state *state = r->execution->persistent;
    if (state->binding_count < NOVA_DEVICE_GRAPHS) {
        persistent_binding *created = &state->bindings[state->binding_count];
        created->slots = malloc(persistent_slots_size(r->program));
        if (created->slots == NULL)
            return nova_fail(r->error, NOVA_OUT_OF_MEMORY, "", "no memory for a run");
        nova_status status = nova_device_take_inside(r->device, r->program->persistent->size,
                                                     r->stream, &created->block, r->error);
        if (status != NOVA_OK) {
            free(created->slots);
            created->slots = NULL;
            return status;
        }
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
    size_t slot = buffer->value;
    if (buffer->kind == NOVA_OUTPUT && program->alias[slot] >= 0)
        slot = (size_t)program->alias[slot];
    else if (buffer->kind == NOVA_OUTPUT)
        return (uint64_t)program->nbytes[program->argument_count + slot] / program->repeats;
    else if (buffer->kind != NOVA_ARGUMENT)
        return 0;
    return slot < program->stacked_count ? (uint64_t)program->nbytes[slot] / program->repeats : 0;
}

static nova_status persistent_upload(nova_device_run *r, persistent_binding *binding)
{
    const nova_persistent_plan *plan = r->program->persistent;
    const nova_tables *tables = &r->program->tables;
    nova_persistent_state *state = r->execution->persistent;
    persistent_argument *arguments = (void *)(state->image + plan->arguments_at);
    memset(binding->slots, 0xff, persistent_slots_size(r->program)); /* invalid until it succeeds */
    for (uint32_t i = 0; i < tables->header->operand_count; i++) {
        const nova_buffer *buffer = &tables->buffers[tables->operands[i]];
        arguments[i] = (persistent_argument){
            nova_run_address(r, buffer),
            r->program->repeats > 1 ? persistent_stride(r->program, buffer) : 0};
    }
    memcpy(state->image, plan->rows, plan->waits_at);
    memcpy(state->image + plan->waits_at, plan->waits, plan->wait_count * sizeof *plan->waits);
    memset(state->image + plan->counters_at, 0, plan->size - plan->counters_at);
    nova_status status =
        nova_double_buffer_upload(r->device, state->buffer, binding->block->address, state->image,
                                  plan->size, r->stream, r->error);
    if (status == NOVA_OK)
        memcpy(binding->slots, r->execution->slots, persistent_slots_size(r->program));
    return status;
}

static nova_status persistent_bind(nova_device_run *r, persistent_binding **binding)
{
    nova_status status = NOVA_OK;
    if (r->execution->persistent == NULL)
        status = persistent_make_state(r);
    nova_persistent_state *state = r->execution->persistent;
    for (uint32_t i = 0; status == NOVA_OK && i < state->binding_count; i++)
        if (memcmp(state->bindings[i].slots, r->execution->slots,
                   persistent_slots_size(r->program)) == 0) {
            *binding = &state->bindings[i];
            return NOVA_OK;
        }
    if (status == NOVA_OK)
        status = persistent_choose(r, binding);
    return status == NOVA_OK ? persistent_upload(r, *binding) : status;
}

/* --- runs ------------------------------------------------------------------------------------- */

/* The memory that the tasks may access: all operands, and the tables. */
static uint32_t persistent_find_ranges(const nova_device_run *r, const persistent_binding *binding)
{
    const nova_tables *tables = &r->program->tables;
    nova_device_range *ranges = r->execution->persistent->ranges;
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
    ranges[count++] = (nova_device_range){.address = binding->block->address,
                                          .size = r->program->persistent->size};
    return nova_ranges_merge(ranges, count);
}

nova_status nova_run_persistent(nova_device_run *r)
{
    nova_driver *driver = r->device->driver;
    const nova_persistent_plan *plan = r->program->persistent;
    persistent_binding *binding = NULL;
    nova_status status = persistent_bind(r, &binding);
    if (status != NOVA_OK)
        return status;
    binding->used = r->execution->runs;
    nova_device_launch shape = r->program->tables.devices[plan->kernel];
    shape.grid[0] = plan->blocks;
    uint64_t tables = binding->block->address;
    const uint64_t arguments[] = {tables,
                                  tables + plan->arguments_at,
                                  tables + plan->waits_at,
                                  tables + plan->counters_at,
                                  plan->row_count,
                                  r->program->repeats};
    const nova_kernel_call call = {
        .function = r->program->functions[plan->kernel],
        .shape = &shape,
        .arguments = arguments,
        .argument_count = sizeof arguments / sizeof *arguments,
        .ranges = r->execution->persistent->ranges,
        .range_count = driver->checks_ranges ? persistent_find_ranges(r, binding) : 0,
        .is_cooperative = true,
    };
    r->counts.launches++;
    return nova_run_check(r, driver->launch(driver, &call, r->stream),
                          "the persistent kernel cannot be launched");
}
