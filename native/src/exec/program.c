#include "exec/program.h"

#include <stdlib.h>
#include <string.h>

/* --- making ----------------------------------------------------------------------------------- */

static nova_status program_bind_kernels(nova_program *program, const nova_image *image,
                                        nova_error *error)
{
    for (uint32_t i = 0; i < program->tables.header->kernel_count; i++) {
        const nova_kernel_record *record = &program->tables.kernels[i];
        void *code;
        program->kernels[i] = (nova_bound_kernel){.grid = record->grid};
        if ((record->core & NOVA_CONTROL) != 0) {
            program->kernels[i].control = nova_tables_control(&program->tables, i);
            continue;
        }
        if (!nova_kernel_is_linked(record))
            return nova_fail(error, NOVA_UNSUPPORTED, "tables-code",
                             "kernel %u is for a device, and this program is for a CPU", i);
        if (nova_image_find(image, record->code, 1, NOVA_EXECUTE, &code) != NOVA_OK)
            return nova_fail(error, NOVA_OUT_OF_RANGE, "tables-code",
                             "kernel %u: address %#llx is in no executable segment", i,
                             (unsigned long long)record->code);
        memcpy(&program->kernels[i].code, &code, sizeof code); /* ISO C has no cast for this */
        program->kernels[i].reports = (record->core & NOVA_REPORTS) != 0;
        program->kernels[i].takes_scratch = (record->core & NOVA_TAKES_SCRATCH) != 0;
    }
    return NOVA_OK;
}

static nova_status program_bind_buffers(nova_program *program, const nova_image *image,
                                        uint64_t constants, nova_error *error)
{
    bool has_constants = false;
    uint64_t end = 0; /* of the constants */
    for (uint32_t i = 0; i < program->tables.header->buffer_count; i++) {
        const nova_buffer *buffer = &program->tables.buffers[i];
        program->has_arguments |= buffer->kind == NOVA_ARGUMENT;
        program->has_outputs |= buffer->kind == NOVA_OUTPUT || buffer->kind == NOVA_OUTPUT_PART;
        if (buffer->kind == NOVA_SIZES && buffer->nbytes > program->sizes_size)
            program->sizes_size = buffer->nbytes;
        if (buffer->kind != NOVA_CONSTANT)
            continue;
        has_constants = true;
        uint64_t last;
        if (__builtin_add_overflow(buffer->value, buffer->nbytes, &last))
            return nova_fail(error, NOVA_OVERFLOW, "tables-constants",
                             "buffer %u ends beyond 64 bits", i);
        end = last > end ? last : end;
    }
    void *address = NULL;
    if (has_constants && nova_image_find(image, constants, end, NOVA_READ, &address) != NOVA_OK)
        return nova_fail(error, NOVA_OUT_OF_RANGE, "tables-constants",
                         "%llu bytes of constants at %#llx are in no readable segment",
                         (unsigned long long)end, (unsigned long long)constants);
    program->constants = address;
    return NOVA_OK;
}

/* Opens the files that the program calls. */
static nova_status program_open_callees(nova_program *program, nova_error *error)
{
    const nova_tables *tables = &program->tables;
    nova_status status = NOVA_OK;
    for (uint32_t i = 0; status == NOVA_OK && i < tables->header->launch_count; i++) {
        const nova_launch_record *launch = &tables->launches[i];
        nova_bound_kernel *kernel = &program->kernels[launch->kernel];
        if (kernel->control == NULL || kernel->control->construct != NOVA_CALL)
            continue;
        if (kernel->callee != NULL)
            return nova_fail(error, NOVA_REFUSED, "tables-call", "two launches have kernel %u",
                             launch->kernel);
        const nova_buffer *file = &tables->buffers[tables->operands[launch->first_operand]];
        status = nova_callee_open(tables, launch, program->constants + file->value,
                                  (size_t)file->nbytes, &kernel->callee, error);
    }
    return status;
}

/* Inline runs check no errors and cannot be cancelled: only short programs whose kernels report no
 * errors run inline. */
static bool program_runs_inline(const nova_tables *tables)
{
    double cost = 0;
    for (uint32_t i = 0; i < tables->header->launch_count; i++) {
        const nova_kernel_record *kernel = &tables->kernels[tables->launches[i].kernel];
        if ((kernel->core & (NOVA_REPORTS | NOVA_CONTROL)) || !nova_kernel_is_linked(kernel))
            return false;
        cost += nova_kernel_cost(kernel, 1);
    }
    return cost < (double)NOVA_INLINE_COST;
}

/* A region may run inline if its loops and branches do: a loop checks whether its run goes on. */
static bool program_region_runs_inline(const nova_program *program, nova_program *const *regions)
{
    const nova_tables *tables = &program->tables;
    if (tables->header->operand_count > NOVA_STACK_OPERANDS)
        return false;
    double cost = 0;
    for (uint32_t i = 0; i < tables->header->launch_count; i++) {
        uint32_t number = tables->launches[i].kernel;
        const nova_kernel_record *kernel = &tables->kernels[number];
        cost += nova_kernel_cost(kernel, 1);
        if ((kernel->core & NOVA_REPORTS) != 0)
            return false;
        const nova_control_record *control = nova_tables_control(tables, number);
        const nova_callee *callee = program->kernels[number].callee;
        if (callee != NULL && !nova_callee_is_inline(callee))
            return false;
        for (uint32_t k = 0; control != NULL && k < control->region_count; k++)
            if (!regions[tables->container.regions[control->first_region + k]]->is_inline)
                return false;
    }
    return cost < (double)NOVA_INLINE_COST;
}

static nova_status program_create_one(const nova_tables *tables, const nova_image *image,
                                      uint64_t constants, nova_program **regions, bool is_region,
                                      nova_program **program, nova_error *error);

nova_status nova_program_create(const nova_tables *tables, const nova_image *image,
                                uint64_t constants, nova_program **program, nova_error *error)
{
    if (tables == NULL || tables->header == NULL || image == NULL || program == NULL)
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "", "a pointer is missing");
    uint32_t count = nova_tables_region_count(tables);
    nova_program **regions = count > 0 ? calloc(count, sizeof *regions) : NULL;
    if (count > 0 && regions == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for %u regions", count);
    nova_status status = NOVA_OK;
    /* Regions run those with lower numbers. */
    for (uint32_t i = 0; status == NOVA_OK && i < count; i++) {
        nova_tables region;
        nova_tables_region(tables, i, &region);
        status = program_create_one(&region, image, constants, regions, true, &regions[i], error);
    }
    if (status == NOVA_OK)
        status = program_create_one(tables, image, constants, regions, false, program, error);
    for (uint32_t i = 0; status != NOVA_OK && i < count; i++)
        nova_program_destroy(regions[i]);
    if (status != NOVA_OK)
        free(regions);
    return status;
}

static nova_status program_count_outputs(nova_program *program, nova_error *error)
{
    const nova_tables *tables = &program->tables;
    for (uint32_t i = 0; i < tables->header->buffer_count; i++)
        if (tables->buffers[i].kind == NOVA_OUTPUT &&
            tables->buffers[i].value >= program->output_count)
            program->output_count = tables->buffers[i].value + 1;
    program->has_output = malloc((size_t)program->output_count + 1);
    if (program->has_output == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for a region");
    nova_tables_mark_outputs(tables, program->has_output, program->output_count);
    return NOVA_OK;
}

static nova_status program_create_one(const nova_tables *tables, const nova_image *image,
                                      uint64_t constants, nova_program **regions, bool is_region,
                                      nova_program **program, nova_error *error)
{
    const nova_tables_header *header = tables->header;
    if (header->workspace_size > UINT64_MAX / 4)
        return nova_fail(error, NOVA_OVERFLOW, "tables-workspace", "a workspace of %llu bytes",
                         (unsigned long long)header->workspace_size);
    nova_program *created =
        calloc(1, sizeof *created + header->kernel_count * sizeof created->kernels[0]);
    if (created == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for %u kernels",
                         header->kernel_count);
    *created = (nova_program){
        .tables = *tables,
        .workspace_size = header->workspace_size,
        .is_inline = !is_region && program_runs_inline(tables),
        .regions = regions,
        .is_region = is_region,
    };
    if (pthread_mutex_init(&created->mutex, NULL) != 0) {
        free(created);
        return nova_fail(error, NOVA_SYSTEM_ERROR, "", "no mutex");
    }
    if (created->is_inline && header->operand_count > NOVA_STACK_OPERANDS) {
        created->pointers_offset = (header->workspace_size + 63) & ~UINT64_C(63);
        created->workspace_size = created->pointers_offset + header->operand_count * sizeof(void *);
    }
    if (created->is_inline && header->scratch_size > 0) {
        created->scratch_offset = (created->workspace_size + 63) & ~UINT64_C(63);
        created->workspace_size = created->scratch_offset + header->scratch_size;
    }
    nova_status status = program_bind_kernels(created, image, error);
    if (status == NOVA_OK && is_region)
        status = program_count_outputs(created, error);
    if (status == NOVA_OK)
        status = program_bind_buffers(created, image, constants, error);
    if (status == NOVA_OK)
        status = program_open_callees(created, error);
    if (status != NOVA_OK) {
        created->is_region = true; /* the caller frees the regions */
        nova_program_destroy(created);
        return status;
    }
    if (is_region)
        created->is_inline = program_region_runs_inline(created, regions);
    *program = created;
    return NOVA_OK;
}

nova_status nova_program_set_sizes(nova_program *program, const int64_t *values, size_t count,
                                   nova_error *error)
{
    if (program->sizes != NULL || count > SIZE_MAX / sizeof *values ||
        count * sizeof *values < program->sizes_size)
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "",
                         "%zu sizes for a program that loads %llu bytes of them", count,
                         (unsigned long long)program->sizes_size);
    program->sizes = malloc(count * sizeof *values + 1);
    if (program->sizes == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for %zu sizes", count);
    memcpy(program->sizes, values, count * sizeof *values);
    nova_status status = NOVA_OK;
    uint32_t regions = program->is_region ? 0 : nova_tables_region_count(&program->tables);
    for (uint32_t i = 0; status == NOVA_OK && i < regions; i++)
        status = nova_program_set_sizes(program->regions[i], values, count, error);
    return status;
}

void nova_program_destroy(nova_program *program)
{
    if (program == NULL)
        return;
    nova_execution_destroy(atomic_load_explicit(&program->warm, memory_order_acquire));
    while (program->idle != NULL) {
        nova_execution *execution = program->idle;
        program->idle = execution->next;
        nova_execution_destroy(execution);
    }
    nova_prepared_free(atomic_load_explicit(&program->prepared, memory_order_acquire));
    pthread_mutex_destroy(&program->mutex);
    free(program->sizes);
    free(program->has_output);
    for (uint32_t i = 0; i < program->tables.header->kernel_count; i++)
        nova_callee_close(program->kernels[i].callee);
    if (!program->is_region) {
        for (uint32_t i = 0; i < nova_tables_region_count(&program->tables); i++)
            nova_program_destroy(program->regions[i]);
        free(program->regions);
    }
    free(program);
}

const nova_tables *nova_program_tables(const nova_program *program)
{
    return &program->tables;
}

uint64_t nova_program_workspace_size(const nova_program *program)
{
    return program->workspace_size;
}

bool nova_program_is_inline(const nova_program *program)
{
    return program->is_inline;
}

/* --- running ---------------------------------------------------------------------------------- */

bool nova_program_accepts(const nova_program *program, void *const *arguments, void *const *outputs,
                          const void *workspace)
{
    return program != NULL && (arguments != NULL || !program->has_arguments) &&
           (outputs != NULL || !program->has_outputs) &&
           (program->sizes != NULL || program->sizes_size == 0) &&
           (workspace != NULL || program->workspace_size == 0);
}

void nova_program_bind(const nova_program *program, void *const *arguments, void *const *outputs,
                       void *workspace, void **pointers)
{
    /* Empty buffers in an empty workspace still need an address that is not NULL. */
    static const char empty[64];
    char *base = workspace != NULL ? workspace : (char *)(uintptr_t)empty;
    uint32_t count = program->tables.header->operand_count;
    const nova_buffer *buffers = program->tables.buffers;
    const uint32_t *operands = program->tables.operands;
    for (uint32_t i = 0; i < count; i++) {
        const nova_buffer *buffer = &buffers[operands[i]];
        switch (buffer->kind) {
        case NOVA_ARGUMENT:
            pointers[i] = arguments[buffer->value];
            break;
        case NOVA_OUTPUT:
            pointers[i] = outputs[buffer->value];
            break;
        case NOVA_OUTPUT_PART:
            pointers[i] = (char *)outputs[buffer->output] + buffer->value;
            break;
        case NOVA_WORKSPACE:
            pointers[i] = base + buffer->value;
            break;
        case NOVA_SIZES:
            pointers[i] = program->sizes;
            break;
        default:
            pointers[i] = program->constants + buffer->value;
        }
    }
}

static void program_run_inline(const nova_program *program, void *const *arguments,
                               void *const *outputs, void *workspace)
{
    void *on_stack[NOVA_STACK_OPERANDS];
    void **pointers = program->tables.header->operand_count <= NOVA_STACK_OPERANDS
                          ? on_stack
                          : (void **)(void *)((char *)workspace + program->pointers_offset);
    nova_program_bind(program, arguments, outputs, workspace, pointers);
    const nova_launch_record *launch = program->tables.launches;
    const nova_launch_record *end = launch + program->tables.header->launch_count;
    for (; launch < end; launch++) {
        const nova_bound_kernel *kernel = &program->kernels[launch->kernel];
        if (kernel->grid == 0)
            continue;
        if (kernel->takes_scratch)
            kernel->with_scratch(pointers + launch->first_operand, 0, kernel->grid,
                                 (char *)workspace + program->scratch_offset);
        else
            kernel->code(pointers + launch->first_operand, 0, kernel->grid);
    }
}

nova_status nova_program_run_region(const nova_program *program, void *const *arguments,
                                    void *const *outputs, void *workspace, void *scratch,
                                    const nova_watch *watch)
{
    void *pointers[NOVA_STACK_OPERANDS];
    nova_program_bind(program, arguments, outputs, workspace, pointers);
    const nova_launch_record *launch = program->tables.launches;
    const nova_launch_record *end = launch + program->tables.header->launch_count;
    nova_status status = NOVA_OK;
    for (; status == NOVA_OK && launch < end; launch++) {
        const nova_bound_kernel *kernel = &program->kernels[launch->kernel];
        void *const *operands = pointers + launch->first_operand;
        if (kernel->control != NULL)
            status = nova_control_run(program, launch, kernel->control, operands, scratch, watch);
        else if (kernel->grid == 0)
            continue;
        else if (kernel->takes_scratch)
            kernel->with_scratch(operands, 0, kernel->grid, scratch);
        else
            kernel->code(operands, 0, kernel->grid);
    }
    return status;
}

/* The nova_poll of an execution: calls the poll of its owner. */
static nova_status program_poll_owner(void *context)
{
    const nova_program_options *options = ((nova_execution *)context)->owner;
    return options->poll(options->owner);
}

static nova_status program_run_tasks(nova_program *program, void *const *arguments,
                                     void *const *outputs, void *workspace,
                                     const nova_program_options *requested, nova_error *error)
{
    nova_execution *execution;
    nova_status status = nova_execution_take_for(program, requested->workers, 0, &execution);
    if (status != NOVA_OK)
        return nova_fail(error, status, "", "the run cannot be prepared: %s",
                         nova_status_text(status));
    nova_program_bind(program, arguments, outputs, workspace, execution->pointers);
    nova_program_options held = *requested;
    execution->owner = &held;
    const nova_run_options options = {.workers = nova_execution_workers(execution, held.workers),
                                      .policy = held.policy,
                                      .poll = held.poll != NULL ? program_poll_owner : NULL};
    nova_run_result result = {.task = NOVA_NO_TASK};
    result.status =
        nova_instance_run(execution->instance, nova_execution_task, execution, &options, &result);
    if (result.status != NOVA_OK)
        (void)nova_execution_explain(execution, &result, error);
    status = result.status;
    nova_execution_give(execution);
    return status;
}

nova_status nova_program_run(nova_program *program, void *const *arguments, void *const *outputs,
                             void *workspace, nova_error *error)
{
    return nova_program_run_by(program, arguments, outputs, workspace, &(nova_program_options){0},
                               error);
}

nova_status nova_program_run_by(nova_program *program, void *const *arguments, void *const *outputs,
                                void *workspace, const nova_program_options *options,
                                nova_error *error)
{
    if (!nova_program_accepts(program, arguments, outputs, workspace))
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "", "a pointer is missing");
    if (!program->is_inline)
        return program_run_tasks(program, arguments, outputs, workspace, options, error);
    program_run_inline(program, arguments, outputs, workspace);
    return NOVA_OK;
}
