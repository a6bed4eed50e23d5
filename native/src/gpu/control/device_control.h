/* Loops and branches of programs on a device; included by the files of this folder only. */
#ifndef NOVA_GPU_DEVICE_CONTROL_H
#define NOVA_GPU_DEVICE_CONTROL_H

#include "gpu/device_run.h"

/* device_regions.c: loads the regions of a program, and decides who decides its loops. No effect
 * without any. */
nova_status nova_control_prepare(nova_device_program *program, const nova_device_source *source,
                                 nova_error *error);
void nova_control_free(nova_device_program *program);

/* Whether a loop with a fixed number of iterations becomes straight-line launches of a flow. */
bool nova_control_is_unrolled(const nova_device_program *program, const nova_tables *tables,
                              const nova_control_record *control);

/* device_control.c: the flow of a control step, with the pointers of this run. */
nova_status nova_control_make_flow(nova_device_run *r, const nova_device_step *step, void **flow);

/* Enqueues a control step: its flow of `graph`; or, if the host decides, its launches. */
nova_status nova_run_control(nova_device_run *r, const nova_device_graph *graph,
                             const nova_device_step *step);

#endif
