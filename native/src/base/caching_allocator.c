/* A caching allocator for result blocks, with free lists by size class (as in jemalloc and
 * PyTorch). One lock guards all state; memory is unmapped outside of it.
 *
 * A trimming thread unmaps blocks that were idle for too long. It starts when a block becomes idle,
 * sleeps until the oldest block expires, and ends with the last idle block: an idle process has no
 * thread left. */
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
    /* Header of a block, before the page-aligned bytes of the user. It takes one page of the
     * largest base page size that systems use, and lies at the end of that page. */
    LEAD = 64 << 10,
    HUGE_PAGE = 2 << 20,
    LEAST_SHIFT = 15,                 /* the smallest class has 32 KiB */
    CLASSES = 8 * (47 - LEAST_SHIFT), /* up to all of the address space */
};

static const uint64_t CACHE_DEFAULT_LIMIT = UINT64_C(1) << 30;
static const uint64_t CACHE_DEFAULT_KEEP_NS = UINT64_C(5000000000);

typedef struct block {
    size_t size; /* bytes that the user sees; the mapping begins LEAD before them */
    unsigned class;
    uint64_t idle_since_ns;
    struct block *newer, *older;             /* in the list of all idle blocks */
    struct block *class_newer, *class_older; /* in the list of its size class */
} block;

static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t cache_fork_once = PTHREAD_ONCE_INIT;
/* Guarded by `cache_lock`: */
static block *cache_newest, *cache_oldest;
static block *cache_warm[CLASSES]; /* the newest idle block of each class */
static nova_blocks_info cache_info;
static uint64_t cache_keep_ns;
static bool cache_configured, cache_trimming;
/* Counts configurations; the thread that trims sleeps on it. */
static _Atomic uint32_t cache_changes;

/* --- fork ------------------------------------------------------------------------------------- */

static void cache_before_fork(void)
{
    pthread_mutex_lock(&cache_lock);
}

static void cache_after_fork(void)
{
    pthread_mutex_unlock(&cache_lock);
}

/* The child owns a copy of the blocks, but has no trimming thread. */
static void cache_in_child(void)
{
    cache_trimming = false;
    pthread_mutex_unlock(&cache_lock);
}

static void cache_register_fork(void)
{
    (void)pthread_atfork(cache_before_fork, cache_after_fork, cache_in_child);
}

static void cache_enter(void)
{
    pthread_once(&cache_fork_once, cache_register_fork);
    pthread_mutex_lock(&cache_lock);
    if (!cache_configured) {
        cache_info.limit = CACHE_DEFAULT_LIMIT;
        cache_keep_ns = CACHE_DEFAULT_KEEP_NS;
        cache_configured = true;
    }
}

/* --- sizes and memory ------------------------------------------------------------------------- */

/* The class of the smallest blocks that have `size` bytes; CLASSES when there is none. */
static unsigned cache_find_class(size_t size)
{
    if (size <= (size_t)1 << LEAST_SHIFT)
        return 0;
    size_t last = size - 1;
    unsigned shift = 63u - (unsigned)__builtin_clzl(last);
    /* The three bits after the leading one select the eighth of the power of two. */
    size_t class = 8 * (size_t)(shift - LEAST_SHIFT) + ((last >> (shift - 3)) & 7) + 1;
    return class < CLASSES ? (unsigned)class : CLASSES;
}

static size_t cache_class_size(unsigned class)
{
    return (size_t)(8 + class % 8) << (LEAST_SHIFT - 3 + class / 8);
}

static char *cache_data_of(const block *b)
{
    return (char *)(uintptr_t)(b + 1);
}

static block *cache_block_of(const void *data)
{
    return (block *)(uintptr_t)data - 1;
}

static block *cache_map(unsigned class)
{
    size_t size = cache_class_size(class), slack = size >= HUGE_PAGE ? HUGE_PAGE : 0;
    char *memory =
        mmap(NULL, LEAD + size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    if (slack > 0) {
        size_t before = -(uintptr_t)(memory + LEAD) & (HUGE_PAGE - 1);
        if (before > 0)
            (void)munmap(memory, before);
        (void)munmap(memory + before + LEAD + size, slack - before);
        memory += before;
        /* only a hint: small pages work as well */
        (void)madvise(memory + LEAD, size, MADV_HUGEPAGE);
    }
    block *created = cache_block_of(memory + LEAD);
    created->size = size;
    created->class = class;
    return created;
}

/* Gives a list that is linked by `older` back to the system; without the lock. */
static void cache_unmap(block *list)
{
    while (list != NULL) {
        block *next = list->older;
        (void)munmap(cache_data_of(list) - LEAD, LEAD + list->size);
        list = next;
    }
}

/* --- idle blocks; `cache_lock` is held -------------------------------------------------------- */

static void cache_link_block(block *b)
{
    b->older = cache_newest;
    b->newer = NULL;
    *(cache_newest != NULL ? &cache_newest->newer : &cache_oldest) = b;
    cache_newest = b;
    b->class_older = cache_warm[b->class];
    b->class_newer = NULL;
    if (b->class_older != NULL)
        b->class_older->class_newer = b;
    cache_warm[b->class] = b;
    cache_info.idle_bytes += b->size;
    cache_info.idle_count++;
}

static void cache_unlink_block(block *b)
{
    *(b->newer != NULL ? &b->newer->older : &cache_newest) = b->older;
    *(b->older != NULL ? &b->older->newer : &cache_oldest) = b->newer;
    *(b->class_newer != NULL ? &b->class_newer->class_older : &cache_warm[b->class]) =
        b->class_older;
    if (b->class_older != NULL)
        b->class_older->class_newer = b->class_newer;
    cache_info.idle_bytes -= b->size;
    cache_info.idle_count--;
}

/* Takes out blocks that are idle since `since_ns` or longer, and the oldest above `limit` bytes: a
 * list for `cache_unmap`. */
static block *cache_evict(uint64_t since_ns, uint64_t limit)
{
    block *list = NULL;
    while (cache_oldest != NULL &&
           (cache_info.idle_bytes > limit || cache_oldest->idle_since_ns <= since_ns)) {
        block *b = cache_oldest;
        cache_unlink_block(b);
        b->older = list;
        list = b;
    }
    return list;
}

/* --- the thread that trims -------------------------------------------------------------------- */

static void *cache_trim(void *unused)
{
    (void)unused;
    cache_enter();
    for (;;) {
        uint64_t now = nova_clock_ns();
        block *list = cache_evict(now > cache_keep_ns ? now - cache_keep_ns : 0, cache_info.limit);
        bool is_empty = cache_oldest == NULL;
        uint64_t due_ns = is_empty ? 0 : cache_oldest->idle_since_ns + cache_keep_ns;
        uint32_t version = atomic_load(&cache_changes);
        if (is_empty)
            cache_trimming = false;
        pthread_mutex_unlock(&cache_lock);
        cache_unmap(list);
        if (is_empty)
            return NULL;
        nova_futex_wait(&cache_changes, version, due_ns);
        cache_enter();
    }
}

/* Starts the trimming thread; without it, idle blocks stay below the limit but never expire. */
static void cache_start_trimming(void)
{
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0)
        return;
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    /* Signals are delivered to the threads of the application. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    cache_trimming = pthread_create(&thread, &attributes, cache_trim, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

/* --- the interface ---------------------------------------------------------------------------- */

void *nova_blocks_take(size_t size)
{
    unsigned class = cache_find_class(size);
    if (class == CLASSES)
        return NULL;
    cache_enter();
    block *b = cache_warm[class];
    if (b != NULL) {
        cache_unlink_block(b);
        cache_info.reused++;
    } else {
        pthread_mutex_unlock(&cache_lock);
        b = cache_map(class);
        if (b == NULL) { /* idle blocks may hold the missing memory */
            nova_blocks_clear();
            b = cache_map(class);
        }
        if (b == NULL)
            return NULL;
        cache_enter();
        cache_info.mapped++;
    }
    cache_info.live_bytes += b->size;
    cache_info.live_count++;
    pthread_mutex_unlock(&cache_lock);
    return cache_data_of(b);
}

void nova_blocks_give(void *data)
{
    if (data == NULL)
        return;
    block *b = cache_block_of(data), *list = NULL;
    uint64_t now = nova_clock_ns();
    cache_enter();
    cache_info.live_bytes -= b->size;
    cache_info.live_count--;
    if (b->size > cache_info.limit) {
        b->older = NULL;
        list = b;
    } else {
        b->idle_since_ns = now;
        cache_link_block(b);
        list = cache_evict(0, cache_info.limit);
        if (!cache_trimming)
            cache_start_trimming();
    }
    pthread_mutex_unlock(&cache_lock);
    cache_unmap(list);
}

size_t nova_blocks_capacity(const void *data)
{
    return cache_block_of(data)->size;
}

void nova_blocks_configure(uint64_t limit, uint64_t keep)
{
    cache_enter();
    cache_info.limit = limit;
    cache_keep_ns = keep;
    block *list = cache_evict(0, limit);
    atomic_fetch_add(&cache_changes, 1);
    pthread_mutex_unlock(&cache_lock);
    nova_futex_wake(&cache_changes, 1);
    cache_unmap(list);
}

void nova_blocks_clear(void)
{
    cache_enter();
    block *list = cache_evict(UINT64_MAX, 0);
    pthread_mutex_unlock(&cache_lock);
    cache_unmap(list);
}

nova_blocks_info nova_blocks_get_info(void)
{
    cache_enter();
    nova_blocks_info now = cache_info;
    pthread_mutex_unlock(&cache_lock);
    return now;
}
