/* The Nova runtime: everything a C program needs to run compiled kernels.
 *
 * Depends on libc and pthreads only. Every function that can fail returns a nova_status and changes
 * nothing when it fails; none aborts the process or prints. */
#ifndef NOVA_H
#define NOVA_H

#include "nova/image.h"
#include "nova/program.h"
#include "nova/status.h"
#include "nova/workspace.h"

#endif
