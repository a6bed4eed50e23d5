/* The simulated GPU as a driver; only in the extension module, not in the runtime inside .nova
 * files.
 *
 * It runs code that nova/gpusim/image.py has decoded from PTX. */
#ifndef NOVA_GPUSIM_DRIVER_SIM_DRIVER_H
#define NOVA_GPUSIM_DRIVER_SIM_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

#include "nova/driver.h"
#include "gpusim/sim.h"

/* Number of simulated GPUs of a driver. They share no state: objects of one are refused by the
 * others. */
enum { NOVA_SIM_DEVICES = 4 };

/* What the last launch that failed did wrong. */
typedef struct nova_sim_report {
    sim_fault fault;
    char kernel[128];
    char line[256];        /* of the PTX */
    uint64_t near_address; /* the operand that is nearest to a bad address */
    uint64_t near_size;
} nova_sim_report;

/* Simulated GPUs; the caller owns *driver. Thread-safe. */
nova_status nova_sim_open(nova_driver **driver, nova_error *error);

/* Not while anything of it is in use. NULL is fine. */
void nova_sim_close(nova_driver *driver);

/* False when no launch of that GPU has failed yet. Thread-safe. */
bool nova_sim_last_fault(nova_driver *driver, int ordinal, nova_sim_report *report);

#endif
