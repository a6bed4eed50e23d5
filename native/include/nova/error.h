/* Error texts: filled by functions that take a nova_error, which also return a status. */
#ifndef NOVA_ERROR_H
#define NOVA_ERROR_H

#include "nova/status.h"

typedef struct nova_error {
    nova_status status;
    char check[40]; /* the check that failed, such as "seal-hash"; empty for other errors */
    char text[472]; /* one line of English */
} nova_error;

/* Fills *error (NULL is fine), truncating the text, and returns `status`. Thread-safe. */
nova_status nova_fail(nova_error *error, nova_status status, const char *check, const char *format,
                      ...) __attribute__((format(printf, 4, 5)));

#endif
