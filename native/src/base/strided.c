#include "base/strided.h"

#include <string.h>

bool nova_strided_is_dense(const nova_strided *array)
{
    int64_t expected = 1;
    bool dense = true;
    for (int32_t axis = array->rank - 1; axis >= 0; axis--) {
        int64_t size = array->sizes[axis];
        if (size == 0)
            return true; /* no element is accessed */
        if (size != 1 && array->strides[axis] != expected)
            dense = false;
        expected *= size;
    }
    return dense && (uintptr_t)array->data % (uint64_t)array->element_size == 0;
}

bool nova_strided_repeats(const nova_strided *array)
{
    for (int32_t axis = 0; axis < array->rank; axis++)
        if (array->sizes[axis] > 1 && array->strides[axis] == 0)
            return true;
    return false;
}

/* Copies `count` elements with a stride of `step` bytes; the dense side advances by one element. */
static void strided_copy_row(char *strided, int64_t step, char *dense, int64_t count, int64_t size,
                             bool to_dense)
{
    if (step == size) {
        memcpy(to_dense ? dense : strided, to_dense ? strided : dense, (size_t)(count * size));
        return;
    }
    for (int64_t i = 0; i < count; i++, strided += step, dense += size)
        memcpy(to_dense ? dense : strided, to_dense ? strided : dense, (size_t)size);
}

/* Axis 0 is the outermost; returns where the dense side has got to. The depth of the recursion is
 * the rank, which the caller has limited. */
static char *strided_copy_axes(const nova_strided *array, int32_t axis, char *strided, char *dense,
                               bool to_dense)
{
    int64_t size = array->element_size;
    if (axis == array->rank) {
        strided_copy_row(strided, size, dense, 1, size, to_dense);
        return dense + size;
    }
    int64_t count = array->sizes[axis], step = array->strides[axis] * size;
    if (axis == array->rank - 1) {
        strided_copy_row(strided, step, dense, count, size, to_dense);
        return dense + count * size;
    }
    for (int64_t i = 0; i < count; i++, strided += step)
        dense = strided_copy_axes(array, axis + 1, strided, dense, to_dense);
    return dense;
}

void nova_strided_gather(const nova_strided *array, void *dense)
{
    (void)strided_copy_axes(array, 0, array->data, dense, true);
}

void nova_strided_scatter(const nova_strided *array, const void *dense)
{
    (void)strided_copy_axes(array, 0, array->data, (char *)(uintptr_t)dense, false);
}
