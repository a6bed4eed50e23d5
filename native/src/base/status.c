#include "nova/status.h"

const char *nova_status_text(nova_status status)
{
    switch (status) {
    case NOVA_OK:
        return "success";
    case NOVA_INVALID_ARGUMENT:
        return "a pointer is NULL or a value is invalid";
    case NOVA_OUT_OF_RANGE:
        return "an index, offset or address is outside of its table, file or mapping";
    case NOVA_OVERFLOW:
        return "a size does not fit into 64 bits";
    case NOVA_BAD_PROTECTION:
        return "memory would be writable and executable, or a page have two protections";
    case NOVA_OUT_OF_MEMORY:
        return "out of memory";
    case NOVA_SYSTEM_ERROR:
        return "the operating system refused a call";
    case NOVA_UNSUPPORTED:
        return "the code needs another CPU or GPU";
    case NOVA_REFUSED:
        return "the file failed a check";
    case NOVA_CANCELLED:
        return "the run was cancelled";
    case NOVA_TIMEOUT:
        return "the run took longer than its timeout";
    case NOVA_STALLED:
        return "tasks remain that never become ready";
    case NOVA_BUSY:
        return "the instance is running already";
    case NOVA_NOT_FINISHED:
        return "the run has not finished yet";
    case NOVA_TASK_REPORTED:
        return "a kernel reported an error";
    case NOVA_NO_DRIVER:
        return "there is no driver for GPUs";
    case NOVA_WRONG_DEVICE:
        return "there is no such GPU";
    case NOVA_DEVICE_MEMORY:
        return "the device is out of memory";
    case NOVA_DEVICE_CODE:
        return "the driver did not take the code";
    case NOVA_DEVICE_FAULT:
        return "a kernel failed, and the device cannot be used any more";
    case NOVA_DEVICE_CALL:
        return "the driver refused a call";
    case NOVA_SIMULATED_FAULT:
        return "a kernel failed in the simulator";
    }
    return "unknown status";
}
