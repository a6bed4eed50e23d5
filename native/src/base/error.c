#include "nova/error.h"

#include <stdarg.h>
#include <stdio.h>

nova_status nova_fail(nova_error *error, nova_status status, const char *check, const char *format,
                      ...)
{
    if (error == NULL)
        return status;
    error->status = status;
    (void)snprintf(error->check, sizeof error->check, "%s", check);
    va_list values;
    va_start(values, format);
    (void)vsnprintf(error->text, sizeof error->text, format, values);
    va_end(values);
    /* Names in a damaged file may hold anything; a text is one line of ASCII. */
    for (char *c = error->text; *c != '\0'; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
    return status;
}
