#include "explore.h"

#include <ucontext.h>

enum {
    MOST_THREADS = 6,
    MOST_STEPS = 4000, /* an execution that takes more does not end */
    STACK = 256 * 1024,
    ARENA = 1 << 20,
    MOST_FREED = 64,
    BUFFER = 16,
};

/* What a thread is about to do; an actor beyond MOST_THREADS drains a store buffer. */
typedef struct access {
    const volatile void *address; /* NULL: no shared access */
    bool writes;
    bool needs_drained; /* waits until the store buffer of the thread is empty */
    bool locks;         /* waits for the mutex at the address */
    int joins;          /* waits for the end of this thread, or -1 */
} access;

typedef struct pending_store {
    volatile void *address;
    size_t size;
    uint64_t value;
} pending_store;

typedef struct thread {
    ucontext_t context;
    char *stack;
    void (*body)(void *);
    void *argument, *local;
    bool started, ended, relaxed;
    const volatile void *sleeps_on;
    access next;
    pending_store buffer[BUFFER];
    int buffered;
} thread;

/* One choice of an execution: the thread that ran, and those that were tried there before. */
typedef struct step {
    int actor;
    uint32_t tried;
    uint32_t allowed; /* all that may be tried */
} step;

static explore_options options;
static thread threads[MOST_THREADS];
static ucontext_t scheduler;
static int current, thread_count;
static step path[MOST_STEPS];
static int depth, path_length;
static const char *failure;
static char *arena;
static size_t arena_used;
static struct {
    const char *begin, *end;
} freed[MOST_FREED];
static int freed_count;

/* --- memory ----------------------------------------------------------------------------------- */

void *explore_allocate(size_t size)
{
    /* The size precedes the block, for explore_free. */
    size_t begin = ((arena_used + 63) & ~(size_t)63) + 64;
    if (begin + size > ARENA) {
        explore_fail("the arena is full");
        return NULL;
    }
    arena_used = begin + size;
    memcpy(arena + begin - sizeof size, &size, sizeof size);
    memset(arena + begin, 0, size);
    return arena + begin;
}

/* The block is not used again in this order; every access is checked against it. */
void explore_free(void *memory)
{
    if (memory == NULL)
        return;
    if (freed_count == MOST_FREED) {
        explore_fail("too many blocks were freed");
        return;
    }
    size_t size;
    memcpy(&size, (char *)memory - sizeof size, sizeof size);
    freed[freed_count].begin = memory;
    freed[freed_count++].end = (char *)memory + size;
}

static uint64_t read_memory(const volatile void *address, size_t size)
{
    for (int i = 0; i < freed_count; i++)
        if ((const volatile char *)address >= freed[i].begin &&
            (const volatile char *)address < freed[i].end)
            explore_fail("access to freed memory");
    return size == 8   ? *(const volatile uint64_t *)address
           : size == 4 ? *(const volatile uint32_t *)address
                       : *(const volatile uint8_t *)address;
}

static void write_memory(volatile void *address, size_t size, uint64_t value)
{
    (void)read_memory(address, size);
    if (size == 8)
        *(volatile uint64_t *)address = value;
    else if (size == 4)
        *(volatile uint32_t *)address = (uint32_t)value;
    else
        *(volatile uint8_t *)address = (uint8_t)value;
}

/* --- threads ---------------------------------------------------------------------------------- */

/* Stops the running thread before `next`; returns when it is chosen to go on. */
static void stop_before(access next)
{
    threads[current].next = next;
    swapcontext(&threads[current].context, &scheduler);
}

static void touch(const volatile void *address, bool writes, bool needs_drained)
{
    stop_before((access){address, writes, needs_drained && options.store_buffers, false, -1});
}

void explore_fail(const char *message)
{
    if (failure == NULL)
        failure = message;
    threads[current].ended = true;
    swapcontext(&threads[current].context, &scheduler); /* never chosen again */
}

static void enter_thread(int index)
{
    threads[index].body(threads[index].argument);
    /* Its end is an event that others wait for. */
    touch(&threads[index].ended, true, true);
    threads[index].ended = true;
    swapcontext(&threads[index].context, &scheduler);
}

int explore_start(void (*body)(void *), void *argument)
{
    if (thread_count == MOST_THREADS)
        explore_fail("too many threads");
    int index = thread_count++;
    thread *created = &threads[index];
    char *stack = created->stack != NULL ? created->stack : malloc(STACK);
    *created = (thread){.stack = stack, .body = body, .argument = argument, .next = {.joins = -1}};
    getcontext(&created->context);
    created->context.uc_stack.ss_sp = stack;
    created->context.uc_stack.ss_size = STACK;
    makecontext(&created->context, (void (*)(void))enter_thread, 1, index);
    return index;
}

void explore_join(int thread)
{
    stop_before((access){&threads[thread].ended, false, options.store_buffers, false, thread});
}

void *explore_get_local(void)
{
    return threads[current].local;
}

void explore_set_local(const void *value)
{
    threads[current].local = (void *)(uintptr_t)value;
}

/* --- accesses --------------------------------------------------------------------------------- */

uint64_t explore_load(const volatile void *address, size_t size, int order)
{
    (void)order; /* loads are never late on x86 */
    touch(address, false, false);
    thread *self = &threads[current];
    for (int i = self->buffered; i-- > 0;)
        if (self->buffer[i].address == address)
            return self->buffer[i].value;
    return read_memory(address, size);
}

void explore_store(volatile void *address, size_t size, uint64_t value, int order)
{
    bool strong = order == memory_order_seq_cst && !options.weak_stores;
    if (!options.store_buffers || strong) {
        touch(address, true, true);
        write_memory(address, size, value);
        return;
    }
    thread *self = &threads[current];
    if (self->buffered == BUFFER)
        touch(NULL, false, true);
    self->buffer[self->buffered++] = (pending_store){address, size, value};
}

uint64_t explore_exchange(volatile void *address, size_t size, uint64_t value)
{
    touch(address, true, true);
    uint64_t before = read_memory(address, size);
    write_memory(address, size, value);
    return before;
}

uint64_t explore_add(volatile void *address, size_t size, uint64_t value)
{
    touch(address, true, true);
    uint64_t before = read_memory(address, size);
    write_memory(address, size, before + value);
    return before;
}

uint64_t explore_or(volatile void *address, size_t size, uint64_t value)
{
    touch(address, true, true);
    uint64_t before = read_memory(address, size);
    write_memory(address, size, before | value);
    return before;
}

bool explore_compare_exchange(volatile void *address, size_t size, void *expected, uint64_t value)
{
    touch(address, true, true);
    uint64_t before = read_memory(address, size);
    if (before == read_memory(expected, size)) {
        write_memory(address, size, value);
        return true;
    }
    write_memory(expected, size, before);
    return false;
}

void explore_lock(void *mutex)
{
    stop_before((access){mutex, true, options.store_buffers, true, -1});
    write_memory(mutex, 4, 1);
}

void explore_unlock(void *mutex)
{
    touch(mutex, true, true);
    write_memory(mutex, 4, 0);
}

void explore_wait(volatile void *word, uint32_t value)
{
    touch(word, true, true); /* a wake-up that comes first is lost: the order matters */
    if (read_memory(word, 4) != value)
        return;
    threads[current].sleeps_on = word;
    touch(word, false, false);
}

void explore_wake(volatile void *word, int count)
{
    touch(word, true, true); /* only an address: it may have been freed */
    for (int i = 0; i < thread_count && count > 0; i++)
        if (threads[i].sleeps_on == word) {
            threads[i].sleeps_on = NULL;
            count--;
        }
}

/* A thread that spins is not chosen again before something was written, unless all spin: then each
 * has its turn. */
void explore_relax(void)
{
    threads[current].relaxed = true;
    touch(NULL, false, false);
}

/* --- the search ------------------------------------------------------------------------------- */

/* What an actor does next; actors from MOST_THREADS on drain the buffers of threads. */
static access next_of(int actor)
{
    if (actor < MOST_THREADS)
        return threads[actor].next;
    return (access){threads[actor - MOST_THREADS].buffer[0].address, true, false, false, -1};
}

static bool can_go_on(int actor)
{
    if (actor >= MOST_THREADS)
        return threads[actor - MOST_THREADS].buffered > 0;
    const thread *thread = &threads[actor];
    if (actor >= thread_count || thread->ended || thread->sleeps_on != NULL)
        return false;
    if (thread->next.needs_drained && thread->buffered > 0)
        return false;
    if (thread->next.locks && *(const volatile uint32_t *)thread->next.address != 0)
        return false;
    return thread->next.joins < 0 || threads[thread->next.joins].ended;
}

static bool independent(access a, access b)
{
    return a.address == NULL || b.address == NULL || a.address != b.address ||
           (!a.writes && !b.writes);
}

static uint32_t enabled_actors(void)
{
    uint32_t all = 0, eager = 0;
    for (int actor = 0; actor < 2 * MOST_THREADS; actor++)
        if (can_go_on(actor)) {
            all |= 1u << actor;
            if (actor >= MOST_THREADS || !threads[actor].relaxed)
                eager |= 1u << actor;
        }
    if (eager != 0 || all == 0)
        return all == 0 ? 0 : eager;
    for (int i = 0; i < thread_count; i++)
        threads[i].relaxed = false;
    uint32_t others = all & ~(1u << current);
    return others != 0 ? others : all;
}

static void wake_spinning(int writer)
{
    for (int i = 0; i < thread_count; i++)
        if (i != writer)
            threads[i].relaxed = false;
}

static void go_on(int actor)
{
    if (actor >= MOST_THREADS) {
        thread *thread = &threads[actor - MOST_THREADS];
        pending_store store = thread->buffer[0];
        thread->buffered--;
        memmove(thread->buffer, thread->buffer + 1, (size_t)thread->buffered * sizeof store);
        write_memory(store.address, store.size, store.value);
        wake_spinning(-1);
        return;
    }
    if (next_of(actor).writes)
        wake_spinning(actor);
    current = actor;
    swapcontext(&scheduler, &threads[actor].context);
}

/* The first actor of a new step: the one that ran before, if it can; else any that is allowed. */
static int choose(uint32_t allowed, int before)
{
    if (before >= 0 && (allowed & 1u << before))
        return before;
    return __builtin_ctz(allowed);
}

static void run_body(void *argument)
{
    (void)argument;
    options.body();
}

static bool all_ended(void)
{
    for (int i = 0; i < thread_count; i++)
        if (!threads[i].ended || threads[i].buffered > 0)
            return false;
    return true;
}

/* One execution along `path`, extended where it ends. */
static void execute(void)
{
    thread_count = depth = 0;
    arena_used = 0;
    freed_count = 0;
    int before = -1, switches = 0;
    uint32_t asleep = 0; /* actors whose next access was tried already in an order like this one */
    explore_start(run_body, NULL);
    while (failure == NULL && !all_ended()) {
        uint32_t enabled = enabled_actors();
        if (enabled == 0) {
            failure = "deadlock: no thread can go on";
            return;
        }
        if (depth == MOST_STEPS) {
            failure = "no end";
            return;
        }
        step *step = &path[depth];
        uint32_t allowed = enabled;
        if (options.bound < 0)
            allowed &= ~asleep;
        else if (switches >= options.bound && before >= 0 && (enabled & 1u << before))
            allowed = 1u << before;
        if (depth == path_length) {
            if (allowed == 0)
                return; /* every order from here on was explored */
            *step = (struct step){choose(allowed, before), 0, allowed};
            path_length++;
        }
        depth++;
        if (before >= 0 && step->actor != before && (enabled & 1u << before) &&
            step->actor < MOST_THREADS)
            switches++;
        access chosen = next_of(step->actor);
        uint32_t excluded = asleep | step->tried;
        asleep = 0;
        for (int actor = 0; actor < 2 * MOST_THREADS; actor++)
            if ((excluded & 1u << actor) && actor != step->actor &&
                independent(next_of(actor), chosen))
                asleep |= 1u << actor;
        before = step->actor < MOST_THREADS ? step->actor : before;
        go_on(step->actor);
    }
}

/* Takes the next alternative of the last step that has one; false when all were tried. */
static bool backtrack(void)
{
    while (path_length > 0) {
        step *step = &path[path_length - 1];
        uint32_t tried = step->tried | 1u << step->actor;
        uint32_t untried = step->allowed & ~tried;
        if (untried != 0) {
            step->actor = __builtin_ctz(untried);
            step->tried = tried;
            return true;
        }
        path_length--;
    }
    return false;
}

const char *explore(const explore_options *requested)
{
    options = *requested;
    failure = NULL;
    path_length = 0;
    arena = arena != NULL ? arena : aligned_alloc(64, ARENA);
    uint64_t executions = 0;
    do {
        execute();
        executions++;
    } while (failure == NULL && backtrack() && executions != options.most);
    bool cut = failure == NULL && path_length > 0;
    printf("%s: %llu orders%s%s%s\n", options.name, (unsigned long long)executions,
           cut ? ", and more that were not tried" : "", failure != NULL ? ", failed: " : "",
           failure != NULL ? failure : "");
    if (failure != NULL) {
        /* Threads are digits; letters drain the store buffers of threads 0, 1, ... */
        printf("  order: ");
        for (int i = 0; i < depth; i++)
            putchar(path[i].actor < MOST_THREADS ? '0' + path[i].actor
                                                 : 'a' + path[i].actor - MOST_THREADS);
        putchar('\n');
    }
    fflush(stdout);
    return failure;
}

int explore_expect(const explore_options *requested, bool expected)
{
    return (explore(requested) != NULL) == expected ? 0 : 1;
}
