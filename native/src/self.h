/* Where the code of this runtime comes from: a .nova file that was mapped by dlopen, or not. */
#ifndef NOVA_SELF_H
#define NOVA_SELF_H

#include <stdbool.h>

#include "nova/file.h"

/* Fills *mapped for the .nova file that holds this code; false where it is in none (libnova.a, the
 * Python extension). Two sources define it: self.c and no_self.c. Thread-safe. */
bool nova_self(nova_mapped *mapped);

#endif
