/* The number of threads of a loop's iterations follows their times, which this test makes up. */
#include "exec/loop_threads.h"
#include "../support/check.h"

enum { ITERATIONS = 20000 };

/* Iterations on the calling thread, of ITERATIONS that take so many nanoseconds in each mode. */
static unsigned run_loop(nova_loop_threads *threads, uint64_t alone_ns, uint64_t shared_ns)
{
    unsigned alone = 0;
    for (unsigned i = 0; i < ITERATIONS; i++) {
        bool is_alone = nova_loop_threads_alone(threads);
        CHECK(is_alone == nova_loop_threads_alone(threads));
        alone += is_alone;
        nova_loop_threads_record(threads, is_alone ? alone_ns : shared_ns);
    }
    return alone;
}

static void test_better_mode(void)
{
    nova_loop_threads threads = {0};
    CHECK(!nova_loop_threads_alone(&threads)); /* all threads, until something is measured */
    CHECK(run_loop(&threads, 100000, 60000) < ITERATIONS / 100);
    threads = (nova_loop_threads){0};
    CHECK(run_loop(&threads, 60000, 100000) > ITERATIONS - ITERATIONS / 100);
}

static void test_equal_modes(void)
{
    nova_loop_threads threads = {0};
    CHECK(run_loop(&threads, 50000, 50500) < ITERATIONS / 100);
}

/* The machine changes: a mode that has become worse is left. */
static void test_change(void)
{
    nova_loop_threads threads = {0};
    CHECK(run_loop(&threads, 100000, 60000) < ITERATIONS / 100);
    CHECK(run_loop(&threads, 100000, 400000) > ITERATIONS / 2);
    CHECK(run_loop(&threads, 100000, 60000) < ITERATIONS / 2);
}

/* Long iterations never run on one thread. */
static void test_long(void)
{
    nova_loop_threads threads = {0};
    CHECK(run_loop(&threads, 3000000, 5000000) == 0);
}

/* The first iteration of a mode does not count: threads wake up. */
static void test_wake_up(void)
{
    nova_loop_threads threads = {0};
    unsigned alone = 0;
    bool before = true;
    for (unsigned i = 0; i < ITERATIONS; i++) {
        bool is_alone = nova_loop_threads_alone(&threads);
        alone += is_alone;
        nova_loop_threads_record(&threads, is_alone ? 100000 : before ? 1000000 : 60000);
        before = is_alone;
    }
    CHECK(alone < ITERATIONS / 100);
}

int main(void)
{
    test_better_mode();
    test_equal_modes();
    test_change();
    test_long();
    test_wake_up();
    return 0;
}
