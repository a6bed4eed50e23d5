/* The C API: open a .nova file, look at its signature, run it.
 *
 *     nova_model *model;
 *     nova_error error;
 *     if (nova_open("model.nova", &model, &error) != NOVA_OK)
 *         fprintf(stderr, "%s\n", error.text);
 *     nova_run(model, arguments, outputs, NULL, &error);
 *     nova_close(model);
 *
 * These functions and nova_status_text are exported by every .nova file and are in libnova.a. */
#ifndef NOVA_MODEL_H
#define NOVA_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "nova/error.h"
#include "nova/file.h"
#include "nova/status.h"

typedef struct nova_model nova_model;

/* Opens and checks a file and selects the best variant for this CPU. `path` NULL means the file
 * that contains this code, mapped by dlopen. The caller owns *model; *error (NULL is fine) has the
 * reason of a failure. Refuses when NOVA_TRUSTED_KEYS is set: signatures are checked by the Python
 * loader. NOVA_THREADS is the number of threads that runs share, by default one for each core of
 * the process. Thread-safe. */
NOVA_API nova_status nova_open(const char *path, nova_model **model, nova_error *error);

/* The same for a named device: "cpu", "cuda" (the first GPU) or "cuda:1". NULL, as in nova_open, is
 * the CPU where the file has code for it, and the first GPU where it has none. GPUs are reached
 * through the driver of the machine, libcuda.so.1, and opened once for all models. Thread-safe. */
NOVA_API nova_status nova_open_on(const char *path, const char *device, nova_model **model,
                                  nova_error *error);

/* Of a model with symbolic sizes: the model for the sizes of a call, from a cache of bounded size.
 * `extents` are the sizes of the axes of all arguments, one argument after the other; contradicting
 * sizes are an error. Its signature and workspace are those for these sizes. The caller closes it
 * with nova_close, which keeps it in the cache, before `model`. In the signature of `model` a
 * symbolic size is -1, and so is the number of bytes. Thread-safe. */
NOVA_API nova_status nova_open_sizes(nova_model *model, const int64_t *extents, nova_model **sized,
                                     nova_error *error);

/* Waits for runs in flight; none may begin any more. The last one ends the threads of the pool, so
 * that a file can be unloaded. NULL is fine. In a child of fork() it waits for no run of the
 * parent. */
NOVA_API void nova_close(nova_model *model);

/* The signature, owned by the model; NULL for an index out of range. Here and below, a NULL model
 * is valid and empty: the result is 0 or NULL. Thread-safe. */
NOVA_API size_t nova_argument_count(const nova_model *model);
NOVA_API size_t nova_output_count(const nova_model *model);
NOVA_API const nova_tensor_info *nova_argument(const nova_model *model, size_t index);
NOVA_API const nova_tensor_info *nova_output(const nova_model *model, size_t index);

/* The selected target, such as "x86_64-v3". Thread-safe. */
NOVA_API const char *nova_target(const nova_model *model);

/* Bytes of scratch memory that a run needs of its caller: 0 on a device. Thread-safe. */
NOVA_API uint64_t nova_workspace_size(const nova_model *model);

/* Runs once, on this thread and those of the pool. Dense row-major arrays, element-aligned, all
 * owned by the caller; a written array overlaps no other array. arguments[i] may be NULL for a
 * param whose value is in the file and that is not donated, outputs[i] for an output that is a
 * donated argument. `workspace` is 64-byte aligned and of nova_workspace_size bytes, or NULL to
 * take it from the model's pool. Thread-safe if concurrent runs share neither a workspace nor a
 * written array. */
NOVA_API nova_status nova_run(nova_model *model, void *const *arguments, void *const *outputs,
                              void *workspace, nova_error *error);

/* The same for a model on a device, whose values may be on the device already: those are used in
 * place. The run is enqueued to `stream`, a CUstream (NULL: the default one), and the call returns
 * immediately unless a value has to be copied back to the host. The stream must outlive the model:
 * later runs reuse memory of this one in its order. Thread-safe as above. */
NOVA_API nova_status nova_run_on(nova_model *model, const nova_device_value *arguments,
                                 const nova_device_value *outputs, void *stream, nova_error *error);

#endif
