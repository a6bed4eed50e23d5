/* Every order of the sleep and wake-up protocols: the eventcount, the futex event and the latch, as
 * they are.
 *
 * The argument "more" allows one more switch in the eventcount. Others plant a bug that the model
 * must find: weak      sequentially consistent stores are made weak: a wake-up is lost no-look   a
 * thread sleeps without looking for work once more: a wake-up is lost outside   a thread closes the
 * latch without being inside: no thread ends the run, or two do */
#include "explore.h"

#include "model_cpu_affinity.h"

#include "scheduler/latch.h"
#include "scheduler/eventcount.c"
#include "scheduler/work_stealing_deque.h"

enum { TASKS = 2 };

static bool looks, closes_inside;

/* --- the eventcount: an owner publishes tasks, threads of the pool take them and sleep ---------
 */

static pthread_mutex_t lock;
static nova_eventcount eventcount;
static nova_sleeper sleepers[2];
static nova_deque deque;
static _Atomic uint32_t entries[TASKS];
static _Atomic uint32_t left;
static uint32_t threads_of_eventcount, calls; /* a call for each task, or one for both */

static void reset_eventcount(void)
{
    memset((void *)&lock, 0, sizeof lock);
    memset(&eventcount, 0, sizeof eventcount);
    memset(sleepers, 0, sizeof sleepers);
    memset(&deque, 0, sizeof deque);
    memset((void *)entries, 0, sizeof entries);
    eventcount.lock = &lock;
    deque.tasks = entries;
    *(uint32_t *)&left = TASKS;
}

static bool take_task(void)
{
    while (nova_deque_count(&deque) > 0)
        if (nova_deque_steal(&deque) != NOVA_NO_TASK)
            return true;
    return false;
}

/* await_run of worker_threads.c, with one check instead of spinning. */
static void wait_in_eventcount(void *argument)
{
    nova_sleeper *self = argument;
    for (;;) {
        nova_eventcount_start_spinning(&eventcount);
        bool has_task = take_task();
        if (has_task) {
            nova_eventcount_stop_spinning(&eventcount);
        } else {
            nova_eventcount_park(&eventcount, self);
            has_task = looks && take_task();
            if (has_task || atomic_load_explicit(&left, memory_order_seq_cst) == 0)
                (void)nova_eventcount_unpark(&eventcount, self);
            else
                nova_eventcount_sleep(self);
        }
        if (has_task && atomic_fetch_sub_explicit(&left, 1, memory_order_seq_cst) == 1)
            nova_eventcount_notify(&eventcount, 2); /* all tasks have run: the others may end */
        else if (has_task && nova_deque_count(&deque) > 0)
            /* the notifier may have counted on this thread for both */
            nova_eventcount_notify(&eventcount, 1);
        if (atomic_load_explicit(&left, memory_order_seq_cst) == 0)
            return;
    }
}

static void publish_to_eventcount(void)
{
    reset_eventcount();
    int thread[2];
    for (uint32_t i = 0; i < threads_of_eventcount; i++)
        thread[i] = explore_start(wait_in_eventcount, &sleepers[i]);
    for (uint32_t task = 0; task < TASKS;) {
        int64_t end = nova_deque_end(&deque);
        for (uint32_t count = calls == 1 ? TASKS : 1; count > 0; count--)
            nova_deque_write(&deque, end++, task++);
        nova_deque_publish(&deque, end);
        nova_eventcount_notify(&eventcount, calls == 1 ? TASKS : 1);
    }
    /* The owner takes no task: every task has to wake a thread. */
    for (uint32_t i = 0; i < threads_of_eventcount; i++)
        explore_join(thread[i]);
    explore_check(*(uint32_t *)&left == 0 && eventcount.list == NULL);
}

/* --- the futex event: the caller sleeps inside a run -------------------------------------------
 */

static nova_futex_event event;
static nova_latch latch;

static void push_and_ring(void *argument)
{
    (void)argument;
    nova_deque_write(&deque, 0, 0);
    nova_deque_publish(&deque, 1);
    nova_futex_event_signal(&event);
    nova_latch_close(&latch);
    nova_futex_event_signal(&event);
}

static void sleep_until_over(void)
{
    reset_eventcount();
    memset(&event, 0, sizeof event);
    *(uint32_t *)&latch.word = 2;
    int other = explore_start(push_and_ring, NULL);
    bool got = false;
    while (!got || !nova_latch_is_closed(&latch)) {
        if (!got && take_task()) {
            got = true;
            continue;
        }
        nova_futex_event_announce(&event);
        if (looks && (nova_deque_count(&deque) > 0 || nova_latch_is_closed(&latch)))
            nova_futex_event_cancel(&event);
        else
            nova_futex_event_wait(&event, UINT64_MAX);
    }
    explore_join(other);
}

/* --- the latch: exactly one thread ends a run, and none is inside then -------------------------
 */

static uint32_t inside, ends; /* plain: threads are coroutines */

static void go_through(void *argument)
{
    bool closer = argument != NULL;
    if (closer && !closes_inside) {
        nova_latch_close(&latch);
        return;
    }
    if (!nova_latch_enter(&latch, 3))
        return;
    explore_check(ends == 0);
    inside++;
    if (closer)
        nova_latch_close(&latch);
    inside--;
    if (nova_latch_leave(&latch)) {
        ends++;
        explore_check(ends == 1 && inside == 0);
    }
}

static void open_latch(void)
{
    memset(&latch, 0, sizeof latch);
    inside = ends = 0;
    int thread[3];
    for (int i = 0; i < 3; i++)
        thread[i] = explore_start(go_through, i < 2 ? &latch : NULL);
    for (int i = 0; i < 3; i++)
        explore_join(thread[i]);
    explore_check(ends == 1);
}

/* Runs one protocol, unless another one's bug is planted. */
static int check(explore_options options, const char *name, void (*body)(void), bool planted,
                 bool skip)
{
    options.name = name;
    options.body = body;
    return skip ? 0 : explore_expect(&options, planted);
}

int main(int count, char **arguments)
{
    const char *argument = count > 1 ? arguments[1] : "";
    bool weak = strcmp(argument, "weak") == 0, blind = strcmp(argument, "no-look") == 0;
    looks = !blind;
    closes_inside = strcmp(argument, "outside") != 0;
    bool planted = weak || blind;
    explore_options all = {.bound = -1, .store_buffers = true, .weak_stores = weak};
    explore_options options = {.bound = strcmp(argument, "more") == 0 ? 3 : 2, .weak_stores = weak};
    int wrong = 0;
    for (threads_of_eventcount = 1; threads_of_eventcount <= 2; threads_of_eventcount++)
        for (calls = 1; calls <= TASKS; calls++) {
            /* Buffers that drain at any time multiply the orders: only where they are few. */
            options.store_buffers = weak || (threads_of_eventcount == 1 && calls == 1);
            wrong += check(options,
                           calls == 1 ? "eventcount, one call" : "eventcount, a call for each task",
                           publish_to_eventcount, planted, !closes_inside);
        }
    wrong += check(all, "futex event", sleep_until_over, planted, !closes_inside);
    wrong += check(all, "latch", open_latch, !closes_inside, planted);
    return wrong != 0;
}
