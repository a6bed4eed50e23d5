/* Arguments and outputs of a program: their types, and which output aliases which argument. */
#ifndef NOVA_TENSOR_H
#define NOVA_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "nova/error.h"
#include "nova/status.h"

enum { NOVA_INPUT = 0, NOVA_PARAM = 1, NOVA_RESULT = 2 };

enum { NOVA_MAX_RANK = 64 };

/* What `weight` is when the file has no value for the tensor. */
#define NOVA_NO_WEIGHT UINT64_MAX

/* One argument or output, dense and in row-major order; the owner documents who frees the
 * pointers. */
typedef struct nova_tensor_info {
    const char *name;
    const char *dtype;    /* "f32", ... */
    const int64_t *shape; /* `rank` extents, each >= 0 */
    int32_t rank;
    uint32_t role;
    int64_t element_size; /* bytes, > 0 */
    int64_t nbytes;
    int64_t alias;    /* outputs: the donated argument that this output is, or -1; else -1 */
    uint32_t donated; /* arguments: 1 when the program writes into it; else 0 */
    uint32_t reserved;
    uint64_t weight; /* params: offset of the value in .nova.weights, or NOVA_NO_WEIGHT */
} nova_tensor_info;

/* An argument or output of a run on a device: there when `address` is not 0, else at `host`. */
typedef struct nova_device_value {
    uint64_t address;
    void *host;
} nova_device_value;

/* Computes `nbytes` of every tensor and checks shapes, donations and aliases; `weight`, `name` and
 * `dtype` are the caller's business. Thread-safe. */
nova_status nova_tensors_check(nova_tensor_info *arguments, size_t argument_count,
                               nova_tensor_info *outputs, size_t output_count, nova_error *error);

#endif
