/* The part of nova_tables_check that reads the tilings of kernels; tables.c calls it. */
#ifndef NOVA_LOADER_TABLES_TILINGS_H
#define NOVA_LOADER_TABLES_TILINGS_H

#include "nova/tables.h"

/* Finds the tilings at *position of a block of `limit` bytes, and moves it after them. */
nova_status nova_tilings_find(nova_tables *tables, const char *block, uint64_t limit,
                              uint64_t *position, nova_error *error);

/* Refuses tilings that do not match their kernels, or that touch bytes outside of an operand. The
 * interfaces of the block have been found, and the kernels checked. Thread-safe. */
nova_status nova_tilings_check(const nova_tables *tables, nova_error *error);

#endif
