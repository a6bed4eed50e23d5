/* The store of result blocks. A lock guards all of it; nothing slow happens while it is held: memory
 * goes back to the system behind it.
 *
 * A thread takes blocks that are too old. It is made when a block becomes idle, sleeps until the oldest
 * one is due, and ends with the last: a process that is done with large results has no thread left. */
#define _GNU_SOURCE /* madvise, MAP_ANONYMOUS */

#include "base/caching_allocator.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "nova/scheduler.h"
#include "base/futex.h"

enum {
    /* In front of the bytes that the user sees, so that those fill whole pages: a page of the largest
     * size that systems have as their smallest. The header is at its end. */
    LEAD = 64 << 10,
    HUGE_PAGE = 2 << 20,
    LEAST_SHIFT = 15, /* the smallest class has 32 KiB */
    CLASSES = 8 * (47 - LEAST_SHIFT), /* up to all of the address space */
};

static const uint64_t DEFAULT_LIMIT = UINT64_C(1) << 30;
static const uint64_t DEFAULT_KEEP_NS = UINT64_C(5000000000);

typedef struct block {
    size_t size; /* bytes that the user sees; the mapping begins LEAD before them */
    unsigned class;
    uint64_t idle_since_ns;
    struct block *newer, *older;             /* among all idle blocks */
    struct block *class_newer, *class_older; /* among those of the class */
} block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
/* Guarded by `lock`: */
static block *newest, *oldest;
static block *warm[CLASSES]; /* the newest idle block of each class */
static nova_blocks_info info;
static uint64_t keep_ns;
static bool configured, trimming;
/* Counts configurations; the thread that trims sleeps on it. */
static _Atomic uint32_t changes;

/* --- fork ------------------------------------------------------------------------------------- */

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

/* The blocks are the child's own as well; the thread that trims is not there. */
static void in_child(void)
{
    trimming = false;
    pthread_mutex_unlock(&lock);
}

static void register_fork(void)
{
    (void)pthread_atfork(before_fork, after_fork, in_child);
}

static void enter(void)
{
    pthread_once(&fork_once, register_fork);
    pthread_mutex_lock(&lock);
    if (!configured) {
        info.limit = DEFAULT_LIMIT;
        keep_ns = DEFAULT_KEEP_NS;
        configured = true;
    }
}

/* --- sizes and memory -------------------------------------------------------------------------- */

/* The class of the smallest blocks that have `size` bytes; CLASSES when there is none. */
static unsigned find_class(size_t size)
{
    if (size <= (size_t)1 << LEAST_SHIFT)
        return 0;
    size_t last = size - 1;
    unsigned shift = 63u - (unsigned)__builtin_clzl(last);
    /* The three bits behind the first one are the eighth of its power of two. */
    size_t class = 8 * (size_t)(shift - LEAST_SHIFT) + ((last >> (shift - 3)) & 7) + 1;
    return class < CLASSES ? (unsigned)class : CLASSES;
}

static size_t class_size(unsigned class)
{
    return (size_t)(8 + class % 8) << (LEAST_SHIFT - 3 + class / 8);
}

static char *data_of(const block *b)
{
    return (char *)(uintptr_t)(b + 1);
}

static block *block_of(const void *data)
{
    return (block *)(uintptr_t)data - 1;
}

static block *map(unsigned class)
{
    size_t size = class_size(class), slack = size >= HUGE_PAGE ? HUGE_PAGE : 0;
    char *memory = mmap(NULL, LEAD + size + slack, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    if (slack > 0) {
        size_t before = -(uintptr_t)(memory + LEAD) & (HUGE_PAGE - 1);
        if (before > 0)
            (void)munmap(memory, before);
        (void)munmap(memory + before + LEAD + size, slack - before);
        memory += before;
        (void)madvise(memory + LEAD, size, MADV_HUGEPAGE); /* a wish: small pages work as well */
    }
    block *made = block_of(memory + LEAD);
    made->size = size;
    made->class = class;
    return made;
}

/* Gives a list that is linked by `older` back to the system; without the lock. */
static void unmap(block *list)
{
    while (list != NULL) {
        block *next = list->older;
        (void)munmap(data_of(list) - LEAD, LEAD + list->size);
        list = next;
    }
}

/* --- idle blocks; `lock` is held ---------------------------------------------------------------- */

static void link_block(block *b)
{
    b->older = newest;
    b->newer = NULL;
    *(newest != NULL ? &newest->newer : &oldest) = b;
    newest = b;
    b->class_older = warm[b->class];
    b->class_newer = NULL;
    if (b->class_older != NULL)
        b->class_older->class_newer = b;
    warm[b->class] = b;
    info.idle_bytes += b->size;
    info.idle_count++;
}

static void unlink_block(block *b)
{
    *(b->newer != NULL ? &b->newer->older : &newest) = b->older;
    *(b->older != NULL ? &b->older->newer : &oldest) = b->newer;
    *(b->class_newer != NULL ? &b->class_newer->class_older : &warm[b->class]) = b->class_older;
    if (b->class_older != NULL)
        b->class_older->class_newer = b->class_newer;
    info.idle_bytes -= b->size;
    info.idle_count--;
}

/* Takes out blocks that are idle since `since_ns` or longer, and the oldest above `limit` bytes: a
 * list for `unmap`. */
static block *evict(uint64_t since_ns, uint64_t limit)
{
    block *list = NULL;
    while (oldest != NULL && (info.idle_bytes > limit || oldest->idle_since_ns <= since_ns)) {
        block *b = oldest;
        unlink_block(b);
        b->older = list;
        list = b;
    }
    return list;
}

/* --- the thread that trims ---------------------------------------------------------------------- */

static void *trim(void *unused)
{
    (void)unused;
    enter();
    for (;;) {
        uint64_t now = nova_clock_ns();
        block *list = evict(now > keep_ns ? now - keep_ns : 0, info.limit);
        bool done = oldest == NULL;
        uint64_t due_ns = done ? 0 : oldest->idle_since_ns + keep_ns;
        uint32_t seen = atomic_load(&changes);
        if (done)
            trimming = false;
        pthread_mutex_unlock(&lock);
        unmap(list);
        if (done)
            return NULL;
        nova_futex_wait(&changes, seen, due_ns);
        enter();
    }
}

/* Makes the thread; without it, what is idle stays below the limit but is kept for ever. */
static void start_trimming(void)
{
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0)
        return;
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    /* Signals are for the program's own threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    trimming = pthread_create(&thread, &attributes, trim, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

/* --- the interface ------------------------------------------------------------------------------ */

void *nova_blocks_take(size_t size)
{
    unsigned class = find_class(size);
    if (class == CLASSES)
        return NULL;
    enter();
    block *b = warm[class];
    if (b != NULL) {
        unlink_block(b);
        info.reused++;
    } else {
        pthread_mutex_unlock(&lock);
        b = map(class);
        if (b == NULL) { /* what is idle may be what is missing */
            nova_blocks_clear();
            b = map(class);
        }
        if (b == NULL)
            return NULL;
        enter();
        info.mapped++;
    }
    info.live_bytes += b->size;
    info.live_count++;
    pthread_mutex_unlock(&lock);
    return data_of(b);
}

void nova_blocks_give(void *data)
{
    if (data == NULL)
        return;
    block *b = block_of(data), *list = NULL;
    uint64_t now = nova_clock_ns();
    enter();
    info.live_bytes -= b->size;
    info.live_count--;
    if (b->size > info.limit) {
        b->older = NULL;
        list = b;
    } else {
        b->idle_since_ns = now;
        link_block(b);
        list = evict(0, info.limit);
        if (!trimming)
            start_trimming();
    }
    pthread_mutex_unlock(&lock);
    unmap(list);
}

size_t nova_blocks_room(const void *data)
{
    return block_of(data)->size;
}

void nova_blocks_configure(uint64_t limit, uint64_t keep)
{
    enter();
    info.limit = limit;
    keep_ns = keep;
    block *list = evict(0, limit);
    atomic_fetch_add(&changes, 1);
    pthread_mutex_unlock(&lock);
    nova_futex_wake(&changes, 1);
    unmap(list);
}

void nova_blocks_clear(void)
{
    enter();
    block *list = evict(UINT64_MAX, 0);
    pthread_mutex_unlock(&lock);
    unmap(list);
}

nova_blocks_info nova_blocks_get_info(void)
{
    enter();
    nova_blocks_info now = info;
    pthread_mutex_unlock(&lock);
    return now;
}
