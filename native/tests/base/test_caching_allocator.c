/* The store of result blocks: sizes, reuse, limits, age, threads and fork. */
#define _DEFAULT_SOURCE /* usleep */

#include "base/caching_allocator.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support/check.h"

enum { THREADS = 8, ROUNDS = 400, HELD = 4 };

static const uint64_t SECOND = UINT64_C(1000000000);

static void test_sizes(void)
{
    for (unsigned shift = 0; shift < 24; shift++)
        for (long change = -65; change <= 65; change += 13) {
            long expected = (1L << shift) + change;
            if (expected < 1)
                continue;
            size_t size = (size_t)expected;
            char *block = nova_blocks_take(size);
            CHECK(block != NULL && (uintptr_t)block % (size < 2 << 20 ? 4 << 10 : 2 << 20) == 0);
            size_t capacity = nova_blocks_capacity(block);
            CHECK(capacity >= size && (capacity <= size + size / 8 || capacity == 1 << 15));
            block[0] = block[size - 1] = 1;
            nova_blocks_give(block);
        }
    CHECK(nova_blocks_take(SIZE_MAX) == NULL);
    CHECK(nova_blocks_take((size_t)1 << 46) == NULL); /* more than the system has */
    nova_blocks_give(NULL);
    nova_blocks_clear();
    CHECK(nova_blocks_get_info().idle_bytes == 0 && nova_blocks_get_info().live_count == 0);
}

static void test_reuse(void)
{
    uint64_t mapped = nova_blocks_get_info().mapped;
    char *first = nova_blocks_take(3 << 20), *second = nova_blocks_take(3 << 20);
    CHECK(first != second);
    nova_blocks_give(first);
    nova_blocks_give(second);
    CHECK(nova_blocks_take(3 << 20) == second); /* the newest: it is in the caches */
    CHECK(nova_blocks_take((3 << 20) - 5000) == first);
    nova_blocks_info info = nova_blocks_get_info();
    CHECK(info.mapped == mapped + 2 && info.live_count == 2 && info.idle_count == 0);
    nova_blocks_give(first);
    nova_blocks_give(second);
}

static void test_limit(void)
{
    nova_blocks_configure(5 << 20, 60 * SECOND);
    void *blocks[8];
    for (int i = 0; i < 8; i++)
        CHECK((blocks[i] = nova_blocks_take(1 << 20)) != NULL);
    for (int i = 0; i < 8; i++)
        nova_blocks_give(blocks[i]);
    nova_blocks_info info = nova_blocks_get_info();
    CHECK(info.idle_count == 5 && info.idle_bytes <= info.limit);
    CHECK(nova_blocks_take(1 << 20) == blocks[7]); /* the oldest was evicted */
    nova_blocks_give(blocks[7]);
    nova_blocks_give(nova_blocks_take(6 << 20)); /* too large, and no reason to drop the others */
    CHECK(nova_blocks_get_info().idle_count == 5);
    nova_blocks_configure(0, 60 * SECOND);
    CHECK(nova_blocks_get_info().idle_count == 0);
    nova_blocks_give(nova_blocks_take(1 << 20));
    CHECK(nova_blocks_get_info().idle_count == 0);
}

static void await_empty(void)
{
    for (int i = 0; i < 10000 && nova_blocks_get_info().idle_count > 0; i++)
        usleep(1000);
    CHECK(nova_blocks_get_info().idle_count == 0);
}

static void test_age(void)
{
    for (int i = 0; i < 3; i++) { /* the trimming thread ends, and is created again */
        nova_blocks_configure(64 << 20, 1000 * SECOND);
        nova_blocks_give(nova_blocks_take(1 << 20));
        CHECK(nova_blocks_get_info().idle_count == 1);
        nova_blocks_configure(64 << 20, SECOND / 50);
        await_empty();
    }
    nova_blocks_configure(64 << 20, 1000 * SECOND);
    nova_blocks_give(nova_blocks_take(1 << 20));
    usleep(20000);
    CHECK(nova_blocks_get_info().idle_count == 1);
    nova_blocks_configure(64 << 20, 0); /* also for idle blocks */
    await_empty();
}

static void *work(void *argument)
{
    unsigned char number = *(unsigned char *)argument;
    unsigned char *held[HELD] = {NULL};
    size_t sizes[HELD] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        int i = round % HELD;
        if (held[i] != NULL)
            CHECK(held[i][0] == number && held[i][sizes[i] - 1] == number);
        nova_blocks_give(held[i]);
        sizes[i] = (size_t)(1 + (round * 7 + number) % 9) << 15;
        CHECK((held[i] = nova_blocks_take(sizes[i])) != NULL);
        memset(held[i], number, sizes[i]);
        if (round % 100 == 99)
            nova_blocks_configure((uint64_t)(round % 3) << 19, SECOND / 1000);
        if (round % 64 == 63)
            nova_blocks_clear();
    }
    for (int i = 0; i < HELD; i++)
        nova_blocks_give(held[i]);
    return NULL;
}

static void test_threads(void)
{
    pthread_t threads[THREADS];
    unsigned char numbers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = (unsigned char)(i + 1);
        CHECK(pthread_create(&threads[i], NULL, work, &numbers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(nova_blocks_get_info().live_count == 0 && nova_blocks_get_info().live_bytes == 0);
}

/* The child has the blocks, and no trimming thread: it creates one. Not for TSan, which has no
 * threads in the child of a process with threads. */
static void test_fork(void)
{
#ifdef __SANITIZE_THREAD__
    return;
#endif
    nova_blocks_configure(64 << 20, SECOND / 50);
    char *held = nova_blocks_take(1 << 20);
    strcpy(held, "parent");
    nova_blocks_give(nova_blocks_take(1 << 20));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        bool same = strcmp(held, "parent") == 0;
        strcpy(held, "child");
        nova_blocks_give(held);
        for (int i = 0; i < 5000 && nova_blocks_get_info().idle_count > 0; i++)
            usleep(1000);
        _exit(same && nova_blocks_get_info().idle_count == 0 ? 0 : 1);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(strcmp(held, "parent") == 0);
    nova_blocks_give(held);
    await_empty();
}

int main(void)
{
    test_sizes();
    test_reuse();
    test_limit();
    test_age();
    test_threads();
    test_fork();
    return 0;
}
