/* MLIR's C interface: what `_mlir_ciface_main(result *, argument *, ...)` of a .nova file does.
 *
 * A memref descriptor of rank n is
 *
 *     struct { T *allocated; T *aligned; int64_t offset; int64_t sizes[n], strides[n]; };
 *
 * with offset and strides in elements; rank 0 has neither sizes nor strides. Several results are
 * one struct of descriptors, in order. A program without results has no first parameter.
 *
 * Arguments: sizes must be those that the program was compiled for; strides may be anything. What
 * is not dense, or not aligned to its elements, is copied to scratch memory first, and copied back
 * when the program updates it. A descriptor pointer may be NULL for a param whose value is in the
 * file and that is not donated.
 *
 * Results: every one is a fresh, dense, 64-byte aligned array of its own that the caller releases
 * by free(allocated), also one without elements, and also one that is a donated argument: that
 * argument is updated in place, and the result is a copy of it.
 *
 * Failures (other sizes, a NULL where an array or the results belong, a CPU that lacks features, no
 * memory) have no way out through this interface: all fields of all results are zero then, and
 * nova_last_error tells why. Only a failed call leaves a result with allocated == NULL.
 *
 * The file's program is opened at the first call and stays open for the rest of the process. Any
 * number of threads may call at once, as long as nothing that one writes is used by another. */
#ifndef NOVA_CIFACE_H
#define NOVA_CIFACE_H

#include <stddef.h>

#include "nova/error.h"
#include "nova/model.h"

/* Called by the generated `_mlir_ciface_main`, which has set all of *result to zero; it stays so
 * when the call fails. A NULL result is a failure where the program has results. Takes one
 * descriptor pointer an argument, all owned by the caller. Thread-safe, as above. */
void nova_ciface(void *result, void *const *descriptors, size_t count);

/* Why the last call of `_mlir_ciface_main` that failed, in any thread, did so: fills *error (NULL
 * is fine), forgets it and returns its status; NOVA_OK, and *error as it was, when none has failed
 * since the last time. Thread-safe. */
NOVA_API nova_status nova_last_error(nova_error *error);

#endif
