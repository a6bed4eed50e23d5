/* The kernels of flows; included by the files of this folder only. */
#ifndef NOVA_GPU_CUDA_FLOW_CODE_H
#define NOVA_GPU_CUDA_FLOW_CODE_H

/* Words of the parameters of `nova_flow_begin` and `nova_flow_next`, of `nova_flow_copy`, and of
 * `nova_flow_select`; the first two have room for this many copies. */
enum {
    NOVA_FLOW_COPIES = 16,
    NOVA_FLOW_LOOP_WORDS = 7 + 5 * NOVA_FLOW_COPIES,
    NOVA_FLOW_COPY_WORDS = 1 + 5 * NOVA_FLOW_COPIES,
    NOVA_FLOW_SELECT_WORDS = 5
};

/* PTX, which ends with a NUL. The second one is for Hopper and later: its kernels wait by
 * themselves for the launches before them (griddepcontrol.wait). */
extern const char nova_cuda_flow_code[];
extern const char nova_cuda_waiting_flow_code[];

#endif
