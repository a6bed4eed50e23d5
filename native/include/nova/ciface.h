/* MLIR's C interface: the implementation of `_mlir_ciface_main(result *, argument *, ...)`.
 *
 * A memref descriptor of rank n is
 *
 *     struct { T *allocated; T *aligned; int64_t offset; int64_t sizes[n], strides[n]; };
 *
 * with offset and strides in elements; rank 0 has neither sizes nor strides. Several results are
 * one struct of descriptors, in order. A program without results has no first parameter.
 *
 * Arguments: sizes must be those that the program was compiled for, or any that its symbolic sizes
 * allow; strides are free. An
 * array that is not dense, or not aligned to its elements, is copied to scratch memory first, and
 * copied back when the program updates it. A descriptor pointer may be NULL for a param whose value
 * is in the file and that is not donated.
 *
 * Results: each is a new, dense, 64-byte aligned array that the caller releases by
 * free(allocated), also if it is empty, and also if it aliases a donated argument: that argument is
 * updated in place, and the result is a copy of it.
 *
 * Failures (other sizes, a NULL array or result, a CPU that lacks features, no memory) cannot be
 * returned through this interface: all fields of all results are zero then, and nova_last_error has
 * the reason. Only a failed call leaves a result with allocated == NULL.
 *
 * The file's program is opened at the first call and stays open until the process ends. Any
 * number of threads may call concurrently, if no call uses an array that another one writes. */
#ifndef NOVA_CIFACE_H
#define NOVA_CIFACE_H

#include <stddef.h>

#include "nova/error.h"
#include "nova/model.h"

/* Called by the generated `_mlir_ciface_main`, which has zeroed *result; a failed call leaves
 * it so. A NULL result is a failure if the program has results. Takes one
 * descriptor pointer an argument, all owned by the caller. Thread-safe, as above. */
void nova_ciface(void *result, void *const *descriptors, size_t count);

/* The reason of the last failed call of `_mlir_ciface_main`, in any thread: fills *error (NULL is
 * fine), clears the stored error and returns its status; NOVA_OK, and *error unchanged, when no
 * call has failed since. Thread-safe. */
NOVA_API nova_status nova_last_error(nova_error *error);

#endif
