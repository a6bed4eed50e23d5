/* The .nova file that encloses this runtime, if dlopen mapped one. */
#ifndef NOVA_API_ENCLOSING_FILE_H
#define NOVA_API_ENCLOSING_FILE_H

#include <stdbool.h>

#include "nova/file.h"

/* Fills *mapped for the .nova file that holds this code; false where it is in none (libnova.a, the
 * Python extension). Two sources define it: enclosing_file.c and enclosing_file_none.c.
 * Thread-safe. */
bool nova_enclosing_file(nova_mapped *mapped);

#endif
