/* The state of a model; internal to api/. */
#ifndef NOVA_API_MODEL_STATE_H
#define NOVA_API_MODEL_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "api/model_device.h"
#include "nova/model.h"
#include "nova/program.h"
#include "nova/workspace.h"

enum { NOVA_WORKSPACE_ALIGNMENT = 64 };

typedef struct nova_sized_models nova_sized_models;

struct nova_model {
    nova_file *file;
    nova_image *image;
    nova_program *program; /* NULL on a device, and with symbolic sizes */
    nova_pool *pool;
    const nova_variant *variant;
    const nova_tensor_info *arguments;
    const nova_tensor_info *outputs;
    size_t argument_count;
    size_t output_count;
    const char *weights;       /* values of params, or NULL */
    nova_model_device *device; /* the device it runs on, or NULL for this CPU */
    bool on_stack;             /* where the pointers of a run are, or else: */
    uint64_t pointers_offset;  /* in the workspace, after the bytes of the program */
    uint64_t workspace_size;
    pid_t pid;                /* of the process that opened it */
    atomic_size_t runs;       /* in flight */
    nova_sized_models *sized; /* of a model with symbolic sizes: those for sizes; or NULL */
    nova_model *parent;       /* of a model for sizes: the one it belongs to; or NULL */
};

/* Sets the pool and the place of a run's pointers of a model whose program is there. */
nova_status nova_model_make_pool(nova_model *model, nova_error *error);

/* The models for sizes of a model whose variant has symbolic ones; -1 is a symbolic size in the
 * shapes of its signature. */
nova_status nova_sized_create(nova_model *model, nova_error *error);

/* NULL is fine. None of its models may be open. */
void nova_sized_destroy(nova_sized_models *sized);

/* Closes a model for sizes, which stays in the cache. */
void nova_sized_close(nova_model *model);

#endif
