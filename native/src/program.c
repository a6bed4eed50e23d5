#include "nova/program.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Programs with at most this many operands in all keep their pointers on the stack. */
enum { STACK_OPERANDS = 128 };

/* One allocation holds the struct and everything its tables point at. */
struct nova_program {
    nova_program_tables tables;
    size_t operand_count;     /* over all launches, which lie one after the other in `operands` */
    const uint32_t *operands;
    uint64_t pointers_offset; /* in the workspace, behind the planned bytes */
    uint64_t workspace_size;
};

/* --- checking -------------------------------------------------------------------------------- */

static nova_status compute_nbytes(const nova_tensor *tensor, int64_t *nbytes)
{
    if (tensor->rank < 0 || tensor->rank > NOVA_MAX_RANK || tensor->element_size <= 0 ||
        (tensor->shape == NULL && tensor->rank > 0))
        return NOVA_INVALID_ARGUMENT;
    /* Extents of zero are left out: (0, 2**62, 2**62) is refused, as numpy does. */
    int64_t dense = tensor->element_size;
    bool empty = false;
    for (int32_t i = 0; i < tensor->rank; i++) {
        if (tensor->shape[i] < 0)
            return NOVA_INVALID_ARGUMENT;
        if (tensor->shape[i] == 0)
            empty = true;
        else if (__builtin_mul_overflow(dense, tensor->shape[i], &dense))
            return NOVA_OVERFLOW;
    }
    *nbytes = empty ? 0 : dense;
    return NOVA_OK;
}

static nova_status check_tensors(const nova_program_tables *tables, size_t *extents)
{
    int64_t nbytes;
    *extents = 0;
    for (size_t i = 0; i < tables->argument_count; i++) {
        const nova_tensor *tensor = &tables->arguments[i];
        nova_status status = compute_nbytes(tensor, &nbytes);
        if (status != NOVA_OK)
            return status;
        if (tensor->flags & ~(uint32_t)NOVA_DONATED || tensor->alias != -1)
            return NOVA_INVALID_ARGUMENT;
        *extents += (size_t)tensor->rank;
    }
    for (size_t i = 0; i < tables->output_count; i++) {
        const nova_tensor *tensor = &tables->outputs[i];
        nova_status status = compute_nbytes(tensor, &nbytes);
        if (status != NOVA_OK)
            return status;
        if (tensor->flags != 0 || tensor->alias < -1)
            return NOVA_INVALID_ARGUMENT;
        *extents += (size_t)tensor->rank;
        if (tensor->alias < 0)
            continue;
        if ((uint64_t)tensor->alias >= tables->argument_count)
            return NOVA_OUT_OF_RANGE;
        const nova_tensor *target = &tables->arguments[tensor->alias];
        if (!(target->flags & NOVA_DONATED) || target->rank != tensor->rank ||
            target->element_size != tensor->element_size ||
            (tensor->rank > 0 &&
             memcmp(target->shape, tensor->shape, (size_t)tensor->rank * sizeof(int64_t)) != 0))
            return NOVA_INVALID_ARGUMENT;
    }
    return NOVA_OK;
}

static nova_status check_buffers(const nova_program_tables *tables)
{
    for (size_t i = 0; i < tables->buffer_count; i++) {
        const nova_buffer *buffer = &tables->buffers[i];
        bool inside = false;
        switch (buffer->kind) {
        case NOVA_ARGUMENT:
            inside = buffer->value < tables->argument_count;
            break;
        case NOVA_OUTPUT:
            inside = buffer->value < tables->output_count;
            break;
        case NOVA_WORKSPACE:
            /* The end itself is the place of an empty buffer. */
            inside = buffer->value <= tables->workspace_size;
            break;
        case NOVA_CONSTANT:
            inside = buffer->value != 0 && buffer->value <= UINTPTR_MAX;
            break;
        default:
            return NOVA_INVALID_ARGUMENT;
        }
        if (!inside)
            return NOVA_OUT_OF_RANGE;
    }
    return NOVA_OK;
}

static nova_status check_launches(const nova_program_tables *tables, size_t *operands)
{
    *operands = 0;
    for (size_t i = 0; i < tables->launch_count; i++) {
        const nova_launch *launch = &tables->launches[i];
        if (launch->kernel == NULL || launch->grid < 0 ||
            (launch->buffers == NULL && launch->buffer_count > 0))
            return NOVA_INVALID_ARGUMENT;
        for (size_t k = 0; k < launch->buffer_count; k++)
            if (launch->buffers[k] >= tables->buffer_count)
                return NOVA_OUT_OF_RANGE;
        *operands += launch->buffer_count;
    }
    return NOVA_OK;
}

/* --- copying --------------------------------------------------------------------------------- */

/* Hands out pieces of one block; every piece is a multiple of 8 bytes long, so all stay aligned. */
static void *carve(char **cursor, const void *from, size_t count, size_t size)
{
    void *piece = *cursor;
    if (count > 0 && from != NULL)
        memcpy(piece, from, count * size);
    *cursor += (count * size + 7) & ~(size_t)7;
    return piece;
}

static const nova_tensor *carve_tensors(char **cursor, const nova_tensor *from, size_t count)
{
    nova_tensor *tensors = carve(cursor, from, count, sizeof *from);
    for (size_t i = 0; i < count; i++) {
        (void)compute_nbytes(&from[i], &tensors[i].nbytes); /* checked before */
        tensors[i].shape = carve(cursor, from[i].shape, (size_t)from[i].rank, sizeof(int64_t));
    }
    return tensors;
}

nova_status nova_program_create(const nova_program_tables *tables, nova_program **program)
{
    if (tables == NULL || program == NULL ||
        (tables->arguments == NULL && tables->argument_count > 0) ||
        (tables->outputs == NULL && tables->output_count > 0) ||
        (tables->buffers == NULL && tables->buffer_count > 0) ||
        (tables->launches == NULL && tables->launch_count > 0))
        return NOVA_INVALID_ARGUMENT;
    if (tables->workspace_size > UINT64_MAX / 4)
        return NOVA_OVERFLOW;
    size_t extents, operands;
    nova_status status = check_tensors(tables, &extents);
    if (status == NOVA_OK)
        status = check_buffers(tables);
    if (status == NOVA_OK)
        status = check_launches(tables, &operands);
    if (status != NOVA_OK)
        return status;

    /* No sum can overflow: each table already lies in memory, and the copies are as large. */
    size_t bytes = sizeof(nova_program) + extents * sizeof(int64_t) +
                   (tables->argument_count + tables->output_count) * sizeof(nova_tensor) +
                   tables->buffer_count * sizeof(nova_buffer) +
                   tables->launch_count * sizeof(nova_launch) + operands * sizeof(uint32_t) + 8;
    nova_program *made = malloc(bytes);
    if (made == NULL)
        return NOVA_OUT_OF_MEMORY;
    char *cursor = (char *)(made + 1);
    *made = (nova_program){.tables = *tables, .operand_count = operands};
    made->tables.arguments = carve_tensors(&cursor, tables->arguments, tables->argument_count);
    made->tables.outputs = carve_tensors(&cursor, tables->outputs, tables->output_count);
    made->tables.buffers =
        carve(&cursor, tables->buffers, tables->buffer_count, sizeof *tables->buffers);
    nova_launch *launches =
        carve(&cursor, tables->launches, tables->launch_count, sizeof *launches);
    made->tables.launches = launches;
    uint32_t *ids = carve(&cursor, NULL, operands, sizeof *ids);
    made->operands = ids;
    for (size_t i = 0; i < tables->launch_count; i++) {
        launches[i].buffers = ids;
        if (launches[i].buffer_count > 0)
            memcpy(ids, tables->launches[i].buffers, launches[i].buffer_count * sizeof *ids);
        ids += launches[i].buffer_count;
    }
    made->workspace_size = tables->workspace_size;
    if (operands > STACK_OPERANDS) {
        made->pointers_offset = (tables->workspace_size + 63) & ~UINT64_C(63);
        made->workspace_size = made->pointers_offset + operands * sizeof(void *);
    }
    *program = made;
    return NOVA_OK;
}

void nova_program_destroy(nova_program *program)
{
    free(program);
}

const nova_program_tables *nova_program_get_tables(const nova_program *program)
{
    return &program->tables;
}

uint64_t nova_program_workspace_size(const nova_program *program)
{
    return program->workspace_size;
}

/* --- running --------------------------------------------------------------------------------- */

static void *locate(const nova_buffer *buffer, void *const *arguments, void *const *outputs,
                    char *workspace)
{
    switch (buffer->kind) {
    case NOVA_ARGUMENT:
        return arguments[buffer->value];
    case NOVA_OUTPUT:
        return outputs[buffer->value];
    case NOVA_WORKSPACE:
        return workspace + buffer->value;
    case NOVA_CONSTANT:
        break;
    }
    return (void *)(uintptr_t)buffer->value;
}

nova_status nova_program_run(const nova_program *program, void *const *arguments,
                             void *const *outputs, void *workspace)
{
    if (program == NULL || (arguments == NULL && program->tables.argument_count > 0) ||
        (outputs == NULL && program->tables.output_count > 0) ||
        (workspace == NULL && program->workspace_size > 0))
        return NOVA_INVALID_ARGUMENT;

    /* An empty workspace still gives its empty buffers an address that is not NULL. */
    static char nothing[64];
    char *base = workspace != NULL ? workspace : nothing;
    void *on_stack[STACK_OPERANDS];
    void **pointers = program->operand_count <= STACK_OPERANDS
                          ? on_stack
                          : (void **)(void *)(base + program->pointers_offset);
    const nova_buffer *buffers = program->tables.buffers;
    for (size_t i = 0; i < program->operand_count; i++)
        pointers[i] = locate(&buffers[program->operands[i]], arguments, outputs, base);

    const nova_launch *launch = program->tables.launches;
    const nova_launch *end = launch + program->tables.launch_count;
    for (; launch < end; launch++) {
        if (launch->grid > 0)
            launch->kernel(pointers, 0, launch->grid);
        pointers += launch->buffer_count;
    }
    return NOVA_OK;
}
