/* How many threads run an iteration of a loop: the better of one and all, by measured times.
 *
 * The tasks of a short iteration are a few dozen microseconds long. Whether a second thread
 * shortens them depends on the machine at this time: a thread that has lost its core to another
 * process delays every iteration. So a loop measures both. It runs a number of iterations in the
 * better mode so far, then a few in the other mode, and compares the means; the trials become rare
 * while they do not change the mode. All modes give the same bits. */
#ifndef NOVA_EXEC_LOOP_THREADS_H
#define NOVA_EXEC_LOOP_THREADS_H

#include <stdbool.h>
#include <stdint.h>

/* The state of one loop. All zero: nothing has been measured. */
typedef struct nova_loop_threads {
    double mean_ns[2]; /* of iterations on one thread, and on all; 0: not measured */
    uint32_t left;     /* iterations until the mode changes */
    uint32_t interval; /* iterations between two trials */
    bool alone;        /* the mode of this iteration: on the calling thread */
    bool is_trial;
    bool is_first; /* the first iteration of a mode: threads wake up, it does not count */
} nova_loop_threads;

/* Whether the next iteration runs on the calling thread alone. By one thread. */
bool nova_loop_threads_alone(nova_loop_threads *threads);

/* Records the time of an iteration in the mode that nova_loop_threads_alone gave. By one thread. */
void nova_loop_threads_record(nova_loop_threads *threads, uint64_t ns);

#endif
