/* One run of a program on a device, as the files that carry it out share it. */
#ifndef NOVA_GPU_DEVICE_RUN_H
#define NOVA_GPU_DEVICE_RUN_H

#include "gpu/device_trace.h"

/* Copies of up to this many bytes go through pinned memory of the execution, all in one piece. */
#define NOVA_MOST_PINNED (UINT64_C(1) << 20)

/* In place of a place in the home. */
#define NOVA_NOT_STAGED UINT64_MAX

typedef struct nova_device_run {
    nova_device_program *program;
    nova_device *device;
    nova_device_execution *execution;
    const nova_device_value *arguments;
    const nova_device_value *outputs;
    void *stream;
    const nova_device_run_options *options;
    nova_device_trace *trace; /* NULL: nobody looks */
    nova_error *error;
    /* Of the home: arguments are in [0, inputs_end), what is copied back in [results, size). */
    uint64_t inputs_end, results, size;
    bool has_host_inputs, has_host_results;
    uint32_t completed_copy_steps; /* so many steps of copies are known to have ended */
    /* arrays that copies up to this step stand for are in the mirror */
    uint32_t refreshed_copy_steps;
    nova_device_counts counts;
} nova_device_run;

static inline nova_status nova_run_check(const nova_device_run *r, int result, const char *action)
{
    return nova_device_check(r->device, result, action, r->error);
}

/* device_transfer.c: waits until the device has read the pinned memory; copies what is not where
 * kernels can use it, to the home and back. The second returns when results are on the host. */
nova_status nova_run_free_pinned(nova_device_run *r);
nova_status nova_run_copy_in(nova_device_run *r);
nova_status nova_run_copy_out(nova_device_run *r);

/* device_launch.c: enqueues all launches, with the pointers that the slots of the execution give.
 * With kernels of the host among them, it returns when the last of those has run. */
nova_status nova_run_launch(nova_device_run *r);

/* The address of a buffer on the device, in this run. */
uint64_t nova_run_address(const nova_device_run *r, const nova_buffer *buffer);

/* hybrid_run.c: copies between device and host are enqueued; kernels of the host run, while the
 * device does what it was given before. The last is called behind the last step, also when one has
 * failed. */
nova_status nova_run_copies(nova_device_run *r, const nova_device_step *step);
nova_status nova_run_host_region(nova_device_run *r, const nova_device_step *step);
nova_status nova_run_leave_host_shadow(nova_device_run *r, nova_error *error);

#endif
