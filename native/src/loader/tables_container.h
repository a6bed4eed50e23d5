/* Containers: blocks of tables with regions. tables.c calls this. */
#ifndef NOVA_LOADER_TABLES_CONTAINER_H
#define NOVA_LOADER_TABLES_CONTAINER_H

#include "nova/tables.h"

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
