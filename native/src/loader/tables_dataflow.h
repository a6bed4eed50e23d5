/* The part of nova_tables_check that compares launches with kernels; tables.c calls it. */
#ifndef NOVA_LOADER_TABLES_DATAFLOW_H
#define NOVA_LOADER_TABLES_DATAFLOW_H

#include "nova/tables.h"

/* Finds the interfaces at *position of a block of `limit` bytes, and moves it after them. */
nova_status nova_interfaces_find(nova_tables *tables, const char *block, uint64_t limit,
                                 uint64_t *position, nova_error *error);

/* Refuses launches that do not match the code of their kernels, or that read undefined values. The
 * indices of the block have been checked. Thread-safe. */
nova_status nova_tables_check_flow(const nova_tables *tables, const nova_tables_limits *limits,
                                   nova_error *error);

#endif
