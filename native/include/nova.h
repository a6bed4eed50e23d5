/* The Nova runtime: the C API to run compiled programs.
 *
 * Depends on libc and pthreads only. Every function that can fail returns a nova_status and has
 * no effect when it fails; none aborts the process or prints. Start with nova/model.h. */
#ifndef NOVA_H
#define NOVA_H

#include "nova/ciface.h"
#include "nova/device.h"
#include "nova/driver.h"
#include "nova/error.h"
#include "nova/execution.h"
#include "nova/file.h"
#include "nova/image.h"
#include "nova/model.h"
#include "nova/program.h"
#include "nova/scheduler.h"
#include "nova/status.h"
#include "nova/symbolic.h"
#include "nova/tables.h"
#include "nova/task_plan.h"
#include "nova/tensor.h"
#include "nova/workspace.h"

#endif
