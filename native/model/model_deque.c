/* Every order of one owner and two thieves on the real deque, with x86's store buffers, and of
 * two writers and a reader on the host queue. With the argument "weak", sequentially consistent
 * stores are made weak: a task is taken twice or lost, and the model must find it. */
#include "explore.h"

#include "scheduler/work_stealing_deque.h"

enum { TASKS = 3, THIEVES = 2 };

static nova_deque deque;
static nova_host_queue host;
static _Atomic uint32_t entries[TASKS];
static uint32_t take_count[TASKS]; /* plain: threads are coroutines */

static void take(uint32_t task)
{
    if (task == NOVA_NO_TASK)
        return;
    explore_check(task < TASKS);
    take_count[task]++;
    explore_check(take_count[task] == 1);
}

static void steal(void *argument)
{
    (void)argument;
    take(nova_deque_steal(&deque));
}

/* The owner's script: a letter an operation, P publishes one task, B two at once, O pops. */
static const char *script;
static int thieves;

static void reset(void)
{
    memset(&deque, 0, sizeof deque);
    memset(&host, 0, sizeof host);
    memset((void *)entries, 0, sizeof entries);
    memset(take_count, 0, sizeof take_count);
    deque.tasks = host.entries = entries;
}

static void own(void)
{
    reset();
    int thief[THIEVES];
    for (int i = 0; i < thieves; i++)
        thief[i] = explore_start(steal, NULL);
    uint32_t task = 0;
    for (const char *operation = script; *operation != 0; operation++) {
        if (*operation == 'O') {
            take(nova_deque_pop(&deque));
            continue;
        }
        int64_t end = nova_deque_end(&deque);
        for (int count = *operation == 'B' ? 2 : 1; count > 0; count--)
            nova_deque_write(&deque, end++, task++);
        nova_deque_publish(&deque, end);
    }
    for (int i = 0; i < thieves; i++)
        explore_join(thief[i]);
    /* Tasks that no thread took must still be in the deque. */
    for (uint32_t left; (left = nova_deque_pop(&deque)) != NOVA_NO_TASK;)
        take(left);
    for (uint32_t i = 0; i < task; i++)
        explore_check(take_count[i] == 1);
}

static void push_host(void *argument)
{
    nova_host_queue_push(&host, *(uint32_t *)argument);
}

static void read_host(void)
{
    reset();
    static uint32_t tasks[] = {0, 1};
    int first = explore_start(push_host, &tasks[0]), second = explore_start(push_host, &tasks[1]);
    for (int i = 0; i < 3; i++)
        take(nova_host_queue_pop(&host));
    explore_join(first);
    explore_join(second);
    while (nova_host_queue_has_task(&host))
        take(nova_host_queue_pop(&host));
    explore_check(take_count[0] == 1 && take_count[1] == 1);
}

int main(int count, char **arguments)
{
    bool weak = count > 1 && strcmp(arguments[1], "weak") == 0;
    static const struct {
        const char *script;
        int thieves;
        bool fails_weak; /* two thieves get both tasks while the owner pops one of them */
    } scripts[] = {{"PO", 1, false},   {"PO", 2, false},   {"BO", 1, false},
                   {"BOO", 1, false},  {"BO", 2, true},    {"BOO", 2, true},
                   {"POPO", 1, false}, {"BPOO", 1, false}, {"POPO", 2, false}};
    int wrong = 0;
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        script = scripts[i].script;
        thieves = scripts[i].thieves;
        explore_options options = {
            .name = script, .body = own, .bound = -1, .store_buffers = true, .weak_stores = weak};
        wrong += explore_expect(&options, weak && scripts[i].fails_weak);
    }
    explore_options options = {
        .name = "host queue", .body = read_host, .bound = -1, .store_buffers = true};
    wrong += explore_expect(&options, false);
    return wrong != 0;
}
