/* The parts of nova_tables_check that have files of their own; tables.c calls them. */
#ifndef NOVA_LOADER_TABLES_PARTS_H
#define NOVA_LOADER_TABLES_PARTS_H

#include "nova/tables.h"

/* In the sizes of nova_tables_limits: that of a slice of a loop of no iterations. */
enum { NOVA_ANY_SIZE = -1 };

/* Finds the interfaces at *position of a block of `limit` bytes, and moves it after them. */
nova_status nova_interfaces_find(nova_tables *tables, const char *block, uint64_t limit,
                                 uint64_t *position, nova_error *error);

/* Refuses launches that do not match the code of their kernels, or that read undefined values. The
 * indices of the block have been checked. Thread-safe. */
nova_status nova_tables_check_flow(const nova_tables *tables, const nova_tables_limits *limits,
                                   nova_error *error);

/* Finds the tilings at *position of a block of `limit` bytes, and moves it after them. */
nova_status nova_tilings_find(nova_tables *tables, const char *block, uint64_t limit,
                              uint64_t *position, nova_error *error);

/* Refuses tilings that do not match their kernels, or that touch bytes outside of an operand. The
 * interfaces of the block have been found, and the kernels checked. Thread-safe. */
nova_status nova_tilings_check(const nova_tables *tables, nova_error *error);

/* Sets tables->tensor_maps to the maps at *position, after the devices of the block, and moves
 * *position after them; NULL when no kernel has any. */
nova_status nova_tensor_maps_find(nova_tables *tables, const char *block, uint64_t limit,
                                  uint64_t *position, nova_error *error);

/* Refuses maps that the copy engine cannot use, and maps of memory outside of their operand. The
 * launches have been checked. Thread-safe. */
nova_status nova_tensor_maps_check(const nova_tables *tables, nova_error *error);

/* Finds the arrays of one block of tables; no index in them is checked. */
nova_status nova_tables_find_arrays(const char *block, size_t size, nova_tables *tables,
                                    nova_error *error);

/* nova_tables_check for a block that is not a container; control kernels are not checked. */
nova_status nova_tables_check_one(const void *block, size_t size, const nova_tables_limits *limits,
                                  nova_tables *tables, nova_error *error);

/* Whether a block is a container. Pure. */
bool nova_container_has_magic(const void *block, size_t size);

/* nova_tables_check for a container. *tables is that of the program. */
nova_status nova_container_check(const char *block, size_t size, const nova_tables_limits *limits,
                                 nova_tables *tables, nova_error *error);

#endif
