/* Strided arrays (MLIR memref descriptors), and copies to and from dense memory. */
#ifndef NOVA_BASE_STRIDED_H
#define NOVA_BASE_STRIDED_H

#include <stdbool.h>
#include <stdint.h>

/* `data` is the first element; strides in elements, of either sign. All owned by the caller. */
typedef struct nova_strided {
    char *data;
    const int64_t *sizes;
    const int64_t *strides;
    int32_t rank;
    int64_t element_size;
} nova_strided;

/* Whether it is dense, row-major and aligned to its elements. Thread-safe. */
bool nova_strided_is_dense(const nova_strided *array);

/* Whether two indices name one element because of a stride of 0. Thread-safe. */
bool nova_strided_repeats(const nova_strided *array);

/* Copies all elements to, or from, a dense array of the same sizes. Thread-safe. */
void nova_strided_gather(const nova_strided *array, void *dense);
void nova_strided_scatter(const nova_strided *array, const void *dense);

#endif
