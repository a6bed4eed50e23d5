/* nova_open and nova_run for models on a GPU. Included by model.c only. */
#ifndef NOVA_API_MODEL_DEVICE_H
#define NOVA_API_MODEL_DEVICE_H

#include "nova/device.h"
#include "nova/error.h"
#include "nova/file.h"
#include "nova/tensor.h"

typedef struct nova_model_device nova_model_device;

/* Loads the code of a file for a GPU, and the values of its params; *variant is the one that runs.
 * The caller owns *device; the file must outlive it. Thread-safe. */
nova_status nova_model_device_open(const nova_file *file, int number, size_t *variant,
                                   nova_model_device **device, nova_error *error);

/* A model for sizes: it has the program of `source`, and shares the device, code and weights of
 * `parent`, which must outlive it. The caller owns *device. Thread-safe. */
nova_status nova_model_device_share(const nova_model_device *parent,
                                    const nova_device_source *source, nova_model_device **device,
                                    nova_error *error);

/* NULL is fine. */
void nova_model_device_close(nova_model_device *device);

/* nova_run and nova_run_on of a model on a GPU. Thread-safe. */
nova_status nova_model_device_run_host(nova_model_device *device, void *const *arguments,
                                       void *const *outputs, nova_error *error);
nova_status nova_model_device_run(nova_model_device *device, const nova_device_value *arguments,
                                  const nova_device_value *outputs, void *stream,
                                  nova_error *error);

#endif
