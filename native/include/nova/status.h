/* Status codes: the result of every fallible function of the runtime. */
#ifndef NOVA_STATUS_H
#define NOVA_STATUS_H

typedef enum nova_status {
    NOVA_OK = 0,
    NOVA_INVALID_ARGUMENT = 1, /* a NULL pointer, or a value that means nothing */
    NOVA_OUT_OF_RANGE = 2,     /* an index, offset or address outside of its table or file */
    NOVA_OVERFLOW = 3,         /* a size that does not fit into 64 bits */
    NOVA_BAD_PROTECTION = 4,   /* writable and executable at once, or a page with two protections */
    NOVA_OUT_OF_MEMORY = 5,    /* the system has no memory left, or not in one piece */
    NOVA_SYSTEM_ERROR = 6,     /* the system refused a call; errno says why */
} nova_status;

/* One line of English for a status. The text is static: never free it. Thread-safe. */
const char *nova_status_text(nova_status status);

#endif
