#include "nova/tensor.h"

#include <stdbool.h>
#include <string.h>

static nova_status tensor_compute_nbytes(nova_tensor_info *tensor, const char *label, size_t index,
                                         nova_error *error)
{
    if (tensor->rank < 0 || tensor->rank > NOVA_MAX_RANK)
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "manifest-shape", "%s %zu has %d axes",
                         label, index, (int)tensor->rank);
    if (tensor->element_size <= 0 || (tensor->shape == NULL && tensor->rank > 0))
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "manifest-shape",
                         "%s %zu has no element size or no shape", label, index);
    /* Extents of zero are left out: (0, 2**62, 2**62) is refused, as numpy does. */
    int64_t dense = tensor->element_size;
    bool empty = false;
    for (int32_t i = 0; i < tensor->rank; i++) {
        int64_t extent = tensor->shape[i];
        if (extent < 0)
            return nova_fail(error, NOVA_INVALID_ARGUMENT, "manifest-shape",
                             "%s %zu: extent %lld of axis %d", label, index, (long long)extent,
                             (int)i);
        if (extent == 0)
            empty = true;
        else if (__builtin_mul_overflow(dense, extent, &dense))
            return nova_fail(error, NOVA_OVERFLOW, "manifest-shape",
                             "%s %zu is larger than an address space", label, index);
    }
    tensor->nbytes = empty ? 0 : dense;
    return NOVA_OK;
}

static bool tensor_same_array(const nova_tensor_info *a, const nova_tensor_info *b)
{
    return a->rank == b->rank && a->element_size == b->element_size &&
           (a->rank == 0 || memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) == 0);
}

static nova_status tensor_check_alias(const nova_tensor_info *arguments, size_t argument_count,
                                      const nova_tensor_info *output, size_t index,
                                      nova_error *error)
{
    if (output->alias == -1)
        return NOVA_OK;
    if (output->alias < 0 || (uint64_t)output->alias >= argument_count)
        return nova_fail(error, NOVA_OUT_OF_RANGE, "manifest-alias",
                         "output %zu: alias %lld is not an argument", index,
                         (long long)output->alias);
    const nova_tensor_info *target = &arguments[output->alias];
    if (!target->donated || !tensor_same_array(target, output))
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "manifest-alias",
                         "output %zu: argument %lld is not donated, or has another shape or type",
                         index, (long long)output->alias);
    return NOVA_OK;
}

nova_status nova_tensors_check(nova_tensor_info *arguments, size_t argument_count,
                               nova_tensor_info *outputs, size_t output_count, nova_error *error)
{
    for (size_t i = 0; i < argument_count; i++) {
        nova_status status = tensor_compute_nbytes(&arguments[i], "argument", i, error);
        if (status != NOVA_OK)
            return status;
        if (arguments[i].alias != -1 || arguments[i].donated > 1)
            return nova_fail(error, NOVA_INVALID_ARGUMENT, "manifest-alias",
                             "argument %zu has an alias, or is neither donated nor not", i);
    }
    for (size_t i = 0; i < output_count; i++) {
        nova_status status = tensor_compute_nbytes(&outputs[i], "output", i, error);
        if (status == NOVA_OK && outputs[i].donated)
            status = nova_fail(error, NOVA_INVALID_ARGUMENT, "manifest-alias",
                               "output %zu is marked as donated", i);
        if (status == NOVA_OK)
            status = tensor_check_alias(arguments, argument_count, &outputs[i], i, error);
        if (status != NOVA_OK)
            return status;
    }
    return NOVA_OK;
}
