/* Loops and branches: a control kernel runs regions, which are programs (nova/tables.h has the
 * operands). */
#ifndef NOVA_EXEC_CONTROL_H
#define NOVA_EXEC_CONTROL_H

#include "nova/program.h"

/* How a loop learns that it has to stop. */
typedef struct nova_watch {
    nova_status (*check)(void *context); /* NOVA_OK: it goes on */
    void *context;
    unsigned worker_limit; /* threads of a region; 0: those of the pool */
} nova_watch;

/* Runs a launch of a control kernel of `program` to its end, on this thread and, for regions that
 * are worth it, on those of the pool. `scratch` is that of this thread. The last operand is the
 * buffer of the kernel itself: a header, one pointer for each argument and output of a region, the
 * second buffer of each carry, and the workspace of the regions, in this order and 64-byte aligned.
 * By one thread. */
nova_status nova_control_run(const nova_program *program, const nova_launch_record *launch,
                             const nova_control_record *control, void *const *operands,
                             void *scratch, const nova_watch *watch);

#endif
