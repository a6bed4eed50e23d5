/* Checks a block of symbolic tables, binds dims to the shapes of a call, evaluates expressions. */
#include "nova/symbolic.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(nova_symbolic_header) == 64 && sizeof(nova_dim) == 24 &&
                   sizeof(nova_expression) == 16 && sizeof(nova_size_op) == 16 &&
                   sizeof(nova_patch) == 16,
               "as in docs/nova-format.md");

#define REFUSE(error, check, ...) nova_fail((error), NOVA_REFUSED, (check), __VA_ARGS__)

/* Values on the stack of an expression: more than nested divisions need. */
enum { MOST_DEPTH = 64 };

bool nova_symbolic_matches(const void *block, size_t size)
{
    return size >= sizeof(nova_symbolic_header) && memcmp(block, NOVA_SYMBOLIC_MAGIC, 8) == 0;
}

/* --- checks ----------------------------------------------------------------------------------- */

static nova_status symbolic_find_arrays(const char *block, size_t size, nova_symbolic *symbolic,
                                        nova_error *error)
{
    if ((uintptr_t)block % 8 != 0)
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "", "the block is not 8-byte aligned");
    if (!nova_symbolic_matches(block, size))
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "", "the block is not symbolic");
    const nova_symbolic_header *header = symbolic->header = (const void *)block;
    if (header->size != size)
        return REFUSE(error, "symbolic-size", "the header says %" PRIu64 " bytes, the file %zu",
                      header->size, size);
    const struct {
        uint64_t count, size;
    } layout[] = {
        {header->dim_count, sizeof(nova_dim)},
        {header->expression_count, sizeof(nova_expression)},
        {header->op_count, sizeof(nova_size_op)},
        {header->patch_count, sizeof(nova_patch)},
        {header->extent_count, sizeof(int64_t)},
    };
    const void *arrays[5];
    uint64_t position = sizeof *header;
    for (int i = 0; i < 5; i++) {
        arrays[i] = block + position;
        position += layout[i].count * layout[i].size; /* below 5 * 2^32 * 24: cannot wrap */
        if (position > size)
            return REFUSE(error, "symbolic-size", "array %d ends after the block", i);
    }
    if (header->string_size > size - position || header->tables_offset % 8 != 0 ||
        header->tables_offset < position + header->string_size || header->tables_offset > size ||
        header->tables_size != size - header->tables_offset)
        return REFUSE(error, "symbolic-size",
                      "the strings or the tables do not fit into the block");
    symbolic->dims = arrays[0];
    symbolic->expressions = arrays[1];
    symbolic->ops = arrays[2];
    symbolic->patches = arrays[3];
    symbolic->extents = arrays[4];
    symbolic->strings = block + position;
    symbolic->tables = block + header->tables_offset;
    return NOVA_OK;
}

static bool symbolic_is_string(const nova_symbolic *symbolic, uint32_t offset)
{
    uint32_t size = symbolic->header->string_size;
    return offset < size && memchr(symbolic->strings + offset, '\0', size - offset) != NULL;
}

static nova_status symbolic_check_expression(const nova_symbolic *symbolic, uint32_t index,
                                             nova_error *error)
{
    const nova_symbolic_header *header = symbolic->header;
    const nova_expression *expression = &symbolic->expressions[index];
    if (expression->first > header->op_count ||
        expression->count > header->op_count - expression->first || expression->reserved != 0 ||
        !symbolic_is_string(symbolic, expression->text))
        return REFUSE(error, "symbolic-expression", "expression %u is not in the block", index);
    unsigned depth = 0;
    for (uint32_t i = 0; i < expression->count; i++) {
        const nova_size_op *op = &symbolic->ops[expression->first + i];
        bool pushes = op->code <= NOVA_PUSH_DIM;
        if (op->code > NOVA_MINIMUM || (op->code != NOVA_PUSH && op->value != 0) ||
            (op->code == NOVA_PUSH_DIM ? op->dim >= header->dim_count : op->dim != 0) ||
            (pushes ? depth == MOST_DEPTH : depth < 2))
            return REFUSE(error, "symbolic-expression", "op %u of expression %u is malformed", i,
                          index);
        depth = pushes ? depth + 1 : depth - 1;
    }
    return depth == 1 ? NOVA_OK
                      : REFUSE(error, "symbolic-expression", "expression %u leaves %u values",
                               index, depth);
}

static nova_status symbolic_check_numbers(const nova_symbolic *symbolic, nova_error *error)
{
    const nova_symbolic_header *header = symbolic->header;
    if (header->value_count > header->expression_count ||
        header->argument_extents > header->extent_count || header->dim_count == 0)
        return REFUSE(error, "symbolic-count", "%u values of %u expressions, %u of %u extents",
                      header->value_count, header->expression_count, header->argument_extents,
                      header->extent_count);
    for (uint32_t i = 0; i < header->dim_count; i++) {
        const nova_dim *dim = &symbolic->dims[i];
        if (dim->min < 0 || dim->max < dim->min || dim->reserved != 0 ||
            !symbolic_is_string(symbolic, dim->name))
            return REFUSE(error, "symbolic-dim", "dim %u is from %" PRId64 " to %" PRId64, i,
                          dim->min, dim->max);
    }
    for (uint32_t i = 0; i < header->patch_count; i++) {
        const nova_patch *patch = &symbolic->patches[i];
        /* The magic number and the size of the tables do not depend on sizes. */
        if (patch->offset % 8 != 0 || patch->offset < 16 || header->tables_size < 8 ||
            patch->offset > header->tables_size - 8 || patch->width > NOVA_PATCH_SHORT ||
            patch->expression >= header->expression_count)
            return REFUSE(error, "symbolic-patch", "patch %u is of %" PRIu64 ", by expression %u",
                          i, patch->offset, patch->expression);
    }
    for (uint32_t i = 0; i < header->extent_count; i++) {
        int64_t extent = symbolic->extents[i];
        if (extent < 0 && (uint64_t)~extent >= header->expression_count)
            return REFUSE(error, "symbolic-extent", "extent %u is expression %" PRId64, i, ~extent);
    }
    return NOVA_OK;
}

/* The dim that an extent is, if it is nothing else; dim_count otherwise. */
static uint32_t symbolic_dim_of(const nova_symbolic *symbolic, int64_t extent)
{
    if (extent >= 0)
        return symbolic->header->dim_count;
    const nova_expression *expression = &symbolic->expressions[~extent];
    const nova_size_op *op = &symbolic->ops[expression->first];
    return expression->count == 1 && op->code == NOVA_PUSH_DIM ? op->dim
                                                               : symbolic->header->dim_count;
}

/* The only dim of an extent that has no value (-1) in `dims`, if the extent is linear in it: it has
 * sums and multiplications only, and names the dim once. dim_count otherwise. */
static uint32_t symbolic_linear_in(const nova_symbolic *symbolic, int64_t extent,
                                   const int64_t *dims)
{
    const uint32_t none = symbolic->header->dim_count;
    if (extent >= 0)
        return none;
    const nova_expression *expression = &symbolic->expressions[~extent];
    uint32_t linear = none;
    for (uint32_t i = 0; i < expression->count; i++) {
        const nova_size_op *op = &symbolic->ops[expression->first + i];
        if (op->code > NOVA_MULTIPLY)
            return none;
        if (op->code != NOVA_PUSH_DIM || dims[op->dim] >= 0)
            continue;
        if (linear != none)
            return none;
        linear = op->dim;
    }
    return linear;
}

/* Every dim is an extent of an argument, or the only unknown of one: a call says its size. */
static nova_status symbolic_check_bound(const nova_symbolic *symbolic, nova_error *error)
{
    const uint32_t count = symbolic->header->dim_count;
    int64_t *dims = malloc(count * sizeof(int64_t));
    if (dims == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the sizes");
    for (uint32_t i = 0; i < count; i++)
        dims[i] = -1;
    for (uint32_t i = 0; i < symbolic->header->argument_extents; i++) {
        uint32_t dim = symbolic_dim_of(symbolic, symbolic->extents[i]);
        if (dim < count)
            dims[dim] = 0;
    }
    for (bool progress = true; progress;) {
        progress = false;
        for (uint32_t i = 0; i < symbolic->header->argument_extents; i++) {
            uint32_t dim = symbolic_linear_in(symbolic, symbolic->extents[i], dims);
            if (dim < count) {
                dims[dim] = 0;
                progress = true;
            }
        }
    }
    uint32_t dim = 0;
    while (dim < count && dims[dim] >= 0)
        dim++;
    free(dims);
    return dim == count ? NOVA_OK
                        : REFUSE(error, "symbolic-dim", "no axis of an argument tells dim %u", dim);
}

nova_status nova_symbolic_check(const void *block, size_t size, nova_symbolic *symbolic,
                                nova_error *error)
{
    if (block == NULL || symbolic == NULL)
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "", "a pointer is missing");
    nova_symbolic result;
    nova_status status = symbolic_find_arrays(block, size, &result, error);
    for (uint32_t i = 0; status == NOVA_OK && i < result.header->expression_count; i++)
        status = symbolic_check_expression(&result, i, error);
    if (status == NOVA_OK)
        status = symbolic_check_numbers(&result, error);
    if (status == NOVA_OK)
        status = symbolic_check_bound(&result, error);
    if (status == NOVA_OK)
        *symbolic = result;
    return status;
}

/* --- values ----------------------------------------------------------------------------------- */

/* Combines two values by an op; false if the result does not fit or is not defined. */
static bool symbolic_combine(uint32_t code, int64_t left, int64_t right, int64_t *result)
{
    switch (code) {
    case NOVA_ADD:
        return !__builtin_add_overflow(left, right, result);
    case NOVA_MULTIPLY:
        return !__builtin_mul_overflow(left, right, result);
    case NOVA_FLOOR_DIVIDE:
        if (right <= 0)
            return false;
        *result = left / right - (left % right < 0);
        return true;
    case NOVA_MAXIMUM:
        *result = left > right ? left : right;
        return true;
    default:
        *result = left < right ? left : right;
        return true;
    }
}

static nova_status symbolic_evaluate_one(const nova_symbolic *symbolic, uint32_t index,
                                         const int64_t *dims, int64_t *value, nova_error *error)
{
    const nova_expression *expression = &symbolic->expressions[index];
    int64_t stack[MOST_DEPTH];
    unsigned depth = 0;
    for (uint32_t i = 0; i < expression->count; i++) {
        const nova_size_op *op = &symbolic->ops[expression->first + i];
        if (op->code <= NOVA_PUSH_DIM) {
            stack[depth++] = op->code == NOVA_PUSH ? op->value : dims[op->dim];
            continue;
        }
        depth--;
        if (!symbolic_combine(op->code, stack[depth - 1], stack[depth], &stack[depth - 1]))
            return nova_fail(error, NOVA_OVERFLOW, "",
                             "the size %s does not fit into 64 bits, or divides by zero",
                             symbolic->strings + expression->text);
    }
    *value = stack[0];
    return NOVA_OK;
}

nova_status nova_symbolic_evaluate(const nova_symbolic *symbolic, const int64_t *dims,
                                   int64_t *values, nova_error *error)
{
    for (uint32_t i = 0; i < symbolic->header->dim_count; i++) {
        const nova_dim *dim = &symbolic->dims[i];
        if (dims[i] < dim->min || dims[i] > dim->max)
            return nova_fail(error, NOVA_INVALID_ARGUMENT, "",
                             "%s is %" PRId64 ", the program is for %" PRId64 " to %" PRId64,
                             symbolic->strings + dim->name, dims[i], dim->min, dim->max);
    }
    nova_status status = NOVA_OK;
    for (uint32_t i = 0; status == NOVA_OK && i < symbolic->header->expression_count; i++)
        status = symbolic_evaluate_one(symbolic, i, dims, &values[i], error);
    return status;
}

/* Solves the extents of arguments that have one unknown dim each, in which they are linear. Dims
 * that no extent tells stay -1; the caller checks every extent with the values. */
static nova_status symbolic_solve(const nova_symbolic *symbolic, const int64_t *extents,
                                  int64_t *dims, nova_error *error)
{
    const nova_symbolic_header *header = symbolic->header;
    for (bool progress = true; progress;) {
        progress = false;
        for (uint32_t i = 0; i < header->argument_extents; i++) {
            uint32_t dim = symbolic_linear_in(symbolic, symbolic->extents[i], dims);
            if (dim == header->dim_count)
                continue;
            int64_t values[2], factor, distance;
            for (int64_t point = 0; point < 2; point++) {
                dims[dim] = point;
                nova_status status = symbolic_evaluate_one(
                    symbolic, (uint32_t)~symbolic->extents[i], dims, &values[point], error);
                if (status != NOVA_OK)
                    return status;
            }
            bool overflows = __builtin_sub_overflow(values[1], values[0], &factor) ||
                             __builtin_sub_overflow(extents[i], values[0], &distance);
            /* Without a solution the dim is 0: the check of all extents tells the axis. */
            bool solved = !overflows && factor != 0 && distance != INT64_MIN &&
                          (distance == 0 || (distance > 0) == (factor > 0));
            dims[dim] = solved ? distance / factor : 0;
            progress = true;
        }
    }
    return NOVA_OK;
}

nova_status nova_symbolic_bind(const nova_symbolic *symbolic, const int64_t *extents, int64_t *dims,
                               nova_error *error)
{
    const nova_symbolic_header *header = symbolic->header;
    for (uint32_t i = 0; i < header->dim_count; i++)
        dims[i] = -1;
    for (uint32_t i = 0; i < header->argument_extents; i++) {
        uint32_t dim = symbolic_dim_of(symbolic, symbolic->extents[i]);
        if (dim < header->dim_count && dims[dim] < 0)
            dims[dim] = extents[i];
    }
    nova_status status = symbolic_solve(symbolic, extents, dims, error);
    for (uint32_t i = 0; status == NOVA_OK && i < header->argument_extents; i++) {
        int64_t extent = symbolic->extents[i], expected = extent;
        if (extent < 0)
            status = symbolic_evaluate_one(symbolic, (uint32_t)~extent, dims, &expected, error);
        if (status == NOVA_OK && expected != extents[i])
            status = nova_fail(
                error, NOVA_INVALID_ARGUMENT, "",
                "axis %u of the arguments, counted over all, is %" PRId64 ", and %s is %" PRId64, i,
                extents[i],
                extent < 0 ? symbolic->strings + symbolic->expressions[~extent].text : "its size",
                expected);
    }
    return status;
}
