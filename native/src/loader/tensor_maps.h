/* The tensor maps of a block of tables. */
#ifndef NOVA_LOADER_TENSOR_MAPS_H
#define NOVA_LOADER_TENSOR_MAPS_H

#include "nova/tables.h"

/* Sets tables->tensor_maps to the maps at *position, after the devices of the block, and moves
 * *position behind them; NULL when no kernel has any. */
nova_status nova_tensor_maps_find(nova_tables *tables, const char *block, uint64_t limit,
                                  uint64_t *position, nova_error *error);

/* Refuses maps that the copy engine cannot use, and maps of memory outside of their operand. The
 * launches have been checked. Thread-safe. */
nova_status nova_tensor_maps_check(const nova_tables *tables, nova_error *error);

#endif
