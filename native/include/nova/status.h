/* Status codes: the result of every fallible function of the runtime. */
#ifndef NOVA_STATUS_H
#define NOVA_STATUS_H

/* What a .nova file exports; everything else of the runtime inside of it is hidden. */
#define NOVA_API __attribute__((visibility("default")))

typedef enum nova_status {
    NOVA_OK = 0,
    NOVA_INVALID_ARGUMENT = 1, /* a NULL pointer, or an invalid value */
    NOVA_OUT_OF_RANGE = 2,     /* an index, offset or address outside of its table or file */
    NOVA_OVERFLOW = 3,         /* a size that does not fit into 64 bits */
    NOVA_BAD_PROTECTION = 4,   /* writable and executable, or a page with two protections */
    NOVA_OUT_OF_MEMORY = 5,    /* the system has no memory left, or not in one piece */
    NOVA_SYSTEM_ERROR = 6,     /* the system refused a call; see errno */
    NOVA_UNSUPPORTED = 7,      /* code for another CPU or GPU */
    NOVA_REFUSED = 8,          /* a file failed a check */
    /* a run was stopped by its owner, or belongs to the parent process */
    NOVA_CANCELLED = 20,
    NOVA_TIMEOUT = 21,         /* a run took longer than it was allowed to */
    NOVA_STALLED = 22,         /* tasks remain that never become ready */
    NOVA_BUSY = 23,            /* the instance is in a run already */
    NOVA_NOT_FINISHED = 24,    /* the awaited run is still in flight */
    NOVA_TASK_REPORTED = 25,   /* a kernel reported an error */
    NOVA_NO_DRIVER = 40,       /* no driver for GPUs, or one that is too old */
    NOVA_WRONG_DEVICE = 41,    /* no GPU of that number */
    NOVA_DEVICE_MEMORY = 42,   /* the device has no memory left */
    NOVA_DEVICE_CODE = 43,     /* the driver did not take the code */
    NOVA_DEVICE_FAULT = 44,    /* a kernel broke a rule: the device's context is lost */
    NOVA_DEVICE_CALL = 45,     /* the driver refused a call */
    NOVA_SIMULATED_FAULT = 46, /* a kernel broke a rule in the simulator */
} nova_status;

/* One line of English for a status. The text is static: never free it. Thread-safe. */
NOVA_API const char *nova_status_text(nova_status status);

#endif
