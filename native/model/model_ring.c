/* Every order of the protocol of rings: the host of native/src/gpu/persistent/persistent_ring.c and
 * the kernel of nova/codegen/gpu/persistent/ring.py in C, with a thread for the host and one for
 * each resident block. The first block moves inputs from pinned memory to the device and publishes
 * them, both blocks run a task on them, and the last row moves what they have written to pinned
 * memory and tells the host. There are more repetitions than slots.
 *
 * The second program is a server (nova/runtime/ring.py): two threads call it, each fills a slot
 * and reads its results. Its device is one thread.
 *
 * Arguments plant a bug that the model must find. Of the host: early-filled (it tells before the
 * slot is filled), no-slot-wait (it fills a slot whose repetition is not complete), late-read (it
 * fills a slot before it has read the results), close-few (the word of the end has a smaller number
 * than was told before). Of the kernel: early-publish (before the inputs are moved), direct (a
 * block reads the word of the host itself), early-done (before the results are moved). Of the
 * server: free-early (a slot is free before its results are read), out-of-order (a call takes its
 * number without the lock). */
#include "explore.h"

enum { SLOTS = 2, BATCHES = 3, BLOCKS = 2, CALLERS = 2 };
#define CLOSED UINT32_C(0x80000000)
#define NUMBER (CLOSED - 1)

static const char *bug = "";

static bool has_bug(const char *name)
{
    return strcmp(bug, name) == 0;
}

/* Pinned memory. */
static _Atomic uint32_t filled, done, host_inputs[SLOTS], host_results[SLOTS];
/* Memory of the device. */
static _Atomic uint32_t published, row, inputs[SLOTS], cells[SLOTS][BLOCKS];

static uint32_t read_word(_Atomic uint32_t *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}

static void await(_Atomic uint32_t *word, uint32_t needed)
{
    while (read_word(word) < needed)
        explore_relax();
}

static uint32_t get(_Atomic uint32_t *value)
{
    return atomic_load_explicit(value, memory_order_relaxed);
}

static void set(_Atomic uint32_t *value, uint32_t to)
{
    atomic_store_explicit(value, to, memory_order_relaxed);
}

/* --- the kernel ------------------------------------------------------------------------------- */

/* Waits for the data of a repetition; the number of those that are known from then on. */
static uint32_t await_data(uint32_t block, uint32_t step)
{
    _Atomic uint32_t *word = block == 0 || has_bug("direct") ? &filled : &published;
    uint32_t read;
    while ((read = read_word(word), (read & NUMBER) <= step && (read & CLOSED) == 0))
        explore_relax();
    if (block == 0 && has_bug("early-publish"))
        atomic_store_explicit(&published, read, memory_order_release);
    for (uint32_t i = step; block == 0 && i < (read & NUMBER); i++)
        set(&inputs[i % SLOTS], get(&host_inputs[i % SLOTS]));
    if (block == 0)
        atomic_store_explicit(&published, read, memory_order_release);
    return read & NUMBER;
}

static void run_step(uint32_t block, uint32_t step)
{
    uint32_t slot = step % SLOTS, epoch = step + 1;
    await(&row, BLOCKS * step);
    set(&cells[slot][block], get(&inputs[slot]) + block);
    atomic_fetch_add_explicit(&row, 1, memory_order_release);
    if (block == 0)
        return;
    await(&row, BLOCKS * epoch); /* the last row */
    if (has_bug("early-done"))
        atomic_store_explicit(&done, epoch, memory_order_release);
    set(&host_results[slot], get(&cells[slot][0]) + get(&cells[slot][1]));
    atomic_store_explicit(&done, epoch, memory_order_release);
}

static void run_block(void *argument)
{
    uint32_t block = (uint32_t)(uintptr_t)argument, known = 0;
    for (uint32_t step = 0;; step++) {
        if (step >= known)
            known = await_data(block, step);
        if (step >= known)
            return;
        run_step(block, step);
    }
}

static void clear(void)
{
    _Atomic uint32_t *const words[] = {&filled, &done, &published, &row};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        atomic_init(words[i], 0);
    memset((void *)host_inputs, 0, sizeof host_inputs);
    memset((void *)host_results, 0, sizeof host_results);
    memset((void *)inputs, 0, sizeof inputs);
    memset((void *)cells, 0, sizeof cells);
}

static void start_blocks(int *threads)
{
    clear();
    for (uintptr_t i = 0; i < BLOCKS; i++)
        threads[i] = explore_start(run_block, (void *)i);
}

/* --- batches of an iterable ------------------------------------------------------------------- */

static uint32_t value_of(uint32_t number)
{
    return 10 * (number + 1);
}

static void check_results(uint32_t number)
{
    explore_check(get(&host_results[number % SLOTS]) == 2 * value_of(number) + 1);
}

static void tell(uint32_t word)
{
    atomic_store_explicit(&filled, word, memory_order_release);
}

static void fill(uint32_t number)
{
    if (has_bug("early-filled"))
        tell(number + 1);
    set(&host_inputs[number % SLOTS], value_of(number));
    tell(number + 1);
}

static void run_batches(void)
{
    int threads[BLOCKS];
    uint32_t next = 0; /* whose results are read next */
    start_blocks(threads);
    for (uint32_t i = 0; i < BATCHES; i++) {
        bool is_late = has_bug("late-read");
        if (i - next >= SLOTS && !has_bug("no-slot-wait"))
            await(&done, next + 1);
        if (i - next >= SLOTS && !is_late && !has_bug("no-slot-wait"))
            check_results(next++);
        fill(i);
    }
    tell((has_bug("close-few") ? BATCHES - 1 : BATCHES) | CLOSED);
    for (; next < BATCHES; next++) {
        await(&done, next + 1);
        check_results(next);
    }
    for (int i = 0; i < BLOCKS; i++)
        explore_join(threads[i]);
    explore_check(get(&done) == BATCHES);
}

/* An iterable without batches, or one that fails at once. */
static void run_no_batch(void)
{
    int threads[BLOCKS];
    start_blocks(threads);
    tell(CLOSED);
    for (int i = 0; i < BLOCKS; i++)
        explore_join(threads[i]);
    explore_check(get(&done) == 0);
}

/* --- a server --------------------------------------------------------------------------------- */

static pthread_mutex_t lock;
/* The mutex guards the numbers of calls and whether the results of a slot are unread. */
static uint32_t pushed;
static bool unread[SLOTS];

/* All blocks as one. */
static void answer(void *unused)
{
    (void)unused;
    for (uint32_t step = 0;; step++) {
        uint32_t read;
        while ((read = read_word(&filled), (read & NUMBER) <= step && (read & CLOSED) == 0))
            explore_relax();
        if ((read & NUMBER) <= step)
            return;
        set(&host_results[step % SLOTS], 2 * get(&host_inputs[step % SLOTS]) + 1);
        atomic_store_explicit(&done, step + 1, memory_order_release);
    }
}

static uint32_t push(void)
{
    uint32_t number;
    if (has_bug("out-of-order")) {
        number = pushed++;
        explore_relax();
        fill(number);
        return number;
    }
    for (;; explore_relax()) { /* as a condition variable, whose waits may end for no reason */
        explore_lock(&lock);
        number = pushed;
        if (!unread[number % SLOTS])
            break;
        explore_unlock(&lock);
    }
    unread[number % SLOTS] = !has_bug("free-early");
    pushed++;
    fill(number);
    explore_unlock(&lock);
    return number;
}

static void call(void *argument)
{
    for (uint32_t i = 0; i < (argument == NULL ? 2 : 1); i++) {
        uint32_t number = push();
        await(&done, number + 1);
        check_results(number);
        explore_lock(&lock);
        unread[number % SLOTS] = false;
        explore_unlock(&lock);
    }
}

static void serve(void)
{
    int callers[CALLERS];
    pushed = 0;
    memset(unread, 0, sizeof unread);
    clear();
    int device = explore_start(answer, NULL);
    for (uintptr_t i = 0; i < CALLERS; i++)
        callers[i] = explore_start(call, (void *)i);
    for (int i = 0; i < CALLERS; i++)
        explore_join(callers[i]);
    tell(pushed | CLOSED);
    explore_join(device);
    explore_check(get(&done) == BATCHES);
}

int main(int count, char **arguments)
{
    bug = count > 1 ? arguments[1] : "";
    const explore_options batches = {.name = "batches of a ring", .body = run_batches, .bound = 1};
    const explore_options none = {
        .name = "a ring without batches", .body = run_no_batch, .bound = 3};
    const explore_options server = {.name = "calls of a server", .body = serve, .bound = 1};
    if (*bug != '\0')
        return explore_expect(has_bug("free-early") || has_bug("out-of-order") ? &server : &batches,
                              true);
    return explore_expect(&batches, false) | explore_expect(&none, false) |
           explore_expect(&server, false);
}
