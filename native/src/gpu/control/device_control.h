/* Loops and branches of programs on a device; and what the rows of a persistent kernel
 * share with them. */
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

/* A launch of a kernel of `region`, which is part of this launch of the program's tables. */
typedef struct {
    const nova_device_region *region;
    uint32_t kernel, launch;
    const nova_kernel_call *call;
} nova_flow_launch;

/* Makes a flow of loops and branches, which the device decides: a graph of the driver, or rows of
 * a persistent kernel. Its calls are those of nova/driver.h, with the same meaning: work is added
 * at the end of a body, and a body is ended after all that it contains. The branches of a switch
 * are filled and ended one after the other. */
typedef struct nova_flow_builder nova_flow_builder;
struct nova_flow_builder {
    bool needs_ranges;    /* whether launches should have the memory ranges that they may access */
    bool hoists_switches; /* whether a switch with a constant selector is put around its loop */
    nova_status (*add_launch)(nova_flow_builder *builder, void *body,
                              const nova_flow_launch *launch);
    nova_status (*add_copies)(nova_flow_builder *builder, void *body, const nova_flow_copy *copies,
                              uint32_t count);
    nova_status (*add_loop)(nova_flow_builder *builder, void *body, const nova_flow_loop *loop,
                            void **inner);
    nova_status (*add_switch)(nova_flow_builder *builder, void *body, uint64_t selector,
                              uint64_t size, uint32_t count, void **branches);
    nova_status (*end_body)(nova_flow_builder *builder, void *body);
};

/* device_control.c: adds a control step to a body, with the pointers of this run; without a builder
 * the host decides, and enqueues its launches. */
nova_status nova_control_run_step(nova_device_run *r, const nova_device_step *step,
                                  nova_flow_builder *builder, void *body, bool is_dependent);

/* Adds all steps of a program without kernels of the host to a body. */
nova_status nova_control_add_program(nova_device_run *r, nova_flow_builder *builder, void *body);

/* device_flow.c: the flow of a control step, with the pointers of this run. */
nova_status nova_control_make_flow(nova_device_run *r, const nova_device_step *step, void **flow);

/* Enqueues a control step: its flow of `graph`; or, if the host decides, its launches. */
nova_status nova_run_control(nova_device_run *r, const nova_device_graph *graph,
                             const nova_device_step *step);

#endif
