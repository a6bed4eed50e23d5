/* Callees: `.nova` files among the constants of a program, which a control kernel of the construct
 * NOVA_CALL runs (nova/tables.h has its operands). */
#ifndef NOVA_EXEC_CALLEE_H
#define NOVA_EXEC_CALLEE_H

#include "nova/error.h"
#include "nova/program.h"
#include "exec/control.h"

typedef struct nova_callee nova_callee;

/* Opens the file at `data` for a launch of `tables`: checks it as nova_file_view does, chooses a
 * variant for this CPU and compares its signature with the operands of the launch. Params that the
 * launch does not pass have values in the file. The bytes stay the caller's and must outlive the
 * callee; the caller owns *callee. */
nova_status nova_callee_open(const nova_tables *tables, const nova_launch_record *launch,
                             const void *data, size_t size, nova_callee **callee,
                             nova_error *error);

/* NULL is fine. Not during a run. */
void nova_callee_close(nova_callee *callee);

/* Whether a run of it is short, and so on the calling thread. Pure. */
bool nova_callee_is_inline(const nova_callee *callee);

/* Runs it with the operands of the launch, until `watch` stops it. Thread-safe if concurrent runs
 * share no buffer that the launch writes. */
nova_status nova_callee_run(const nova_callee *callee, const nova_launch_record *launch,
                            void *const *operands, const nova_watch *watch);

#endif
