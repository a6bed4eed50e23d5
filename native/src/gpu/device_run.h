/* One run of a program on a device, as the files that carry it out share it. */
#ifndef NOVA_GPU_DEVICE_RUN_H
#define NOVA_GPU_DEVICE_RUN_H

#include "gpu/device_trace.h"

/* Copies of up to this many bytes go through pinned memory of the execution, all in one piece. */
#define NOVA_MOST_PINNED (UINT64_C(1) << 20)

/* The staging offset of a value that is not staged. */
#define NOVA_NOT_STAGED UINT64_MAX

typedef struct nova_device_run {
    nova_device_program *program;
    nova_device *device;
    nova_device_execution *execution;
    const nova_device_value *arguments;
    const nova_device_value *outputs;
    void *stream;
    const nova_device_run_options *options;
    nova_device_trace *trace; /* NULL: not traced */
    nova_error *error;
    /* Of the staging buffer: arguments are in [0, inputs_end), results in [results, size). */
    uint64_t inputs_end, results, size;
    bool has_host_inputs, has_host_results;
    uint32_t completed_copy_steps; /* copy steps that have completed */
    /* copy steps whose arrays are up to date in the host shadow */
    uint32_t refreshed_copy_steps;
    nova_device_counts counts;
} nova_device_run;

static inline nova_status nova_run_check(const nova_device_run *r, int result, const char *action)
{
    return nova_device_check(r->device, result, action, r->error);
}

/* device_transfer.c: waits until the device has read the pinned memory; copies values that kernels
 * cannot access directly, to the staging buffer and back. nova_run_copy_out returns when the
 * results are on the host. */
nova_status nova_run_free_pinned(nova_device_run *r);
nova_status nova_run_copy_in(nova_device_run *r);
nova_status nova_run_copy_out(nova_device_run *r);

/* device_launch.c: enqueues all launches, with the pointers of the slots of the execution. In a
 * hybrid program, it returns when the last host region has run. */
nova_status nova_run_launch(nova_device_run *r);

/* The memory ranges of a launch with these pointers, sorted, with overlapping ones merged: returns
 * their number. */
uint32_t nova_launch_find_ranges(const nova_tables *tables, const nova_launch_record *launch,
                                 const uint64_t *pointers, nova_device_range *ranges);

/* Sorts ranges and merges overlapping ones: returns their number. */
uint32_t nova_ranges_merge(nova_device_range *ranges, uint32_t count);

/* persistent/persistent_run.c: runs all launches as tasks of the persistent kernel. */
nova_status nova_run_persistent(nova_device_run *r);

/* The address of a buffer on the device, in this run. */
uint64_t nova_run_address(const nova_device_run *r, const nova_buffer *buffer);

/* hybrid_run.c: enqueues copies between device and host; runs a host region while the device
 * executes earlier work. nova_run_leave_host_shadow is called after the last step, also after a
 * failure. */
nova_status nova_run_copies(nova_device_run *r, const nova_device_step *step);
nova_status nova_run_host_region(nova_device_run *r, const nova_device_step *step);
nova_status nova_run_leave_host_shadow(nova_device_run *r, nova_error *error);

#endif
