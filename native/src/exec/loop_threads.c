#include "exec/loop_threads.h"

/* Iterations before the first trial, of a trial (the first does not count), and between trials. */
enum { THREADS_BEGINNING = 8, THREADS_TRIAL = 5, THREADS_LEAST = 64, THREADS_MOST = 2048 };

/* A mode must save more than this part of the time: measurements vary. */
static const double THREADS_GAIN = 0.97;

/* The weight of an iteration in a mean, and how much longer than the mean it counts at most. */
static const double THREADS_WEIGHT = 0.125, THREADS_OUTLIER = 16;

/* Nanoseconds of an iteration from which it always runs on all threads: waking them is cheap. */
static const double THREADS_LONG = 2e6;

static void threads_begin(nova_loop_threads *threads, bool alone, bool is_trial, uint32_t count)
{
    threads->alone = alone;
    threads->is_trial = is_trial;
    threads->is_first = true;
    threads->left = count;
    if (is_trial)
        threads->mean_ns[!alone] = 0;
}

bool nova_loop_threads_alone(nova_loop_threads *threads)
{
    if (threads->interval == 0) {
        threads->interval = THREADS_LEAST;
        threads_begin(threads, false, false, THREADS_BEGINNING);
    }
    return threads->alone;
}

static void threads_end_trial(nova_loop_threads *threads)
{
    bool alone = threads->alone;
    if (threads->mean_ns[!alone] < THREADS_GAIN * threads->mean_ns[alone]) {
        threads->interval = THREADS_LEAST;
    } else {
        alone = !alone;
        if (threads->interval < THREADS_MOST)
            threads->interval *= 2;
    }
    threads_begin(threads, alone, false, threads->interval);
}

void nova_loop_threads_record(nova_loop_threads *threads, uint64_t ns)
{
    if (threads->is_first) {
        threads->is_first = false;
    } else {
        double *mean = &threads->mean_ns[!threads->alone], time = (double)ns;
        if (*mean > 0 && time > THREADS_OUTLIER * *mean)
            time = THREADS_OUTLIER * *mean;
        *mean += (time - *mean) * (*mean > 0 ? THREADS_WEIGHT : 1);
    }
    if (--threads->left > 0)
        return;
    if (threads->is_trial)
        threads_end_trial(threads);
    else if (!threads->alone && threads->mean_ns[1] > THREADS_LONG)
        threads->left = threads->interval;
    else
        threads_begin(threads, !threads->alone, true, THREADS_TRIAL);
}
