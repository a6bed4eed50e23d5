/* Launches of control kernels; included by the files of this folder only. */
#ifndef NOVA_GPU_CONTROL_CALL_H
#define NOVA_GPU_CONTROL_CALL_H

#include "gpu/control/device_control.h"

/* Where the parts of a run of a control kernel go. */
typedef struct {
    nova_device_run *r;
    nova_flow_builder *builder; /* NULL: the stream of the run */
    void *body;                 /* of the builder's flow */
    uint32_t launch;            /* of the program's tables */
    bool is_dependent;          /* whether launches of a flow start before those before them end */
    uint64_t selector;          /* of the switches whose branch is known here; 0: of none */
    uint32_t selected, count;   /* that branch, and the branches that they have */
} control_sink;

/* The addresses that the buffers of a block of tables refer to. */
typedef struct {
    const nova_device_region *region;
    const uint64_t *arguments, *outputs;
    uint64_t workspace;
} control_frame;

/* device_control.c: a launch of a control kernel; where a buffer is; an error. */
nova_status nova_control_run_call(const control_sink *sink, const control_frame *frame,
                                  const nova_launch_record *launch);
uint64_t nova_control_address(const control_sink *sink, const control_frame *frame,
                              const nova_buffer *buffer);
nova_status nova_control_no_memory(const control_sink *sink);

/* A switch inside of a loop whose selector is a constant of the loop. */
typedef struct {
    uint32_t operand; /* of the loop: the selector */
    uint32_t count;   /* of branches; 0: there is none */
} control_switch;

/* unswitch_loops.c: the first such switch of the body of a loop, if it is to be around the loop. */
control_switch nova_control_find_switch(const control_sink *sink, const nova_tables *tables,
                                        const nova_control_record *control);

/* Adds the switch, with the loop in each of its branches. */
nova_status nova_control_unswitch(const control_sink *sink, const control_frame *frame,
                                  const nova_launch_record *launch, control_switch constant);

#endif
