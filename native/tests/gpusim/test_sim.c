/* The simulated GPU under sanitizers: launches that Python has recorded give the same here, one by
 * one and in several threads; lane functions for newer CPUs give what the plain ones give.
 *
 * The file (tests/gpusim/test_sim_sanitized.py writes it) is a row of launches: a `header`, then
 * code, operands, constants, params, and for each range of memory its address, size, whether it has
 * a state, and the bytes before and after. */
#include "gpusim/sim.h"

#include <pthread.h>
#include <string.h>

#include "../support/check.h"
#include "gpusim/isa/lanes.h"

enum { THREADS = 4, ROUNDS = 64 };

typedef struct {
    uint64_t code, operands, constants, params, ranges; /* numbers of records, bytes or ranges */
    uint32_t sizes[4], grid[3], block[3], cluster[3], dynamic, check_races, schedule;
    uint32_t kind, line, thread[3], is_cooperative;
    uint64_t most_steps, steps;
} header;

typedef struct {
    uint8_t *bytes;
    size_t size, at;
} reader;

static const void *take(reader *r, size_t bytes)
{
    CHECK(r->size - r->at >= bytes);
    const void *place = r->bytes + r->at;
    r->at += (bytes + 7) / 8 * 8;
    return place;
}

static void *copy_of(const void *bytes, size_t size)
{
    void *copy = malloc(size + !size);
    CHECK(copy != NULL);
    memcpy(copy, bytes, size);
    return copy;
}

typedef struct {
    uint64_t address, size, has_state, read_only;
} range_header;

static int by_start(const void *a, const void *b)
{
    uint64_t x = ((const sim_range *)a)->start, y = ((const sim_range *)b)->start;
    return (x > y) - (x < y);
}

/* Runs the launch at the reader, and compares with the recorded results. */
static void replay(reader *r)
{
    const header *h = take(r, sizeof *h);
    sim_kernel kernel = {.length = (uint32_t)h->code, .constant_count = (uint32_t)h->constants};
    kernel.code = take(r, h->code * sizeof(sim_instruction));
    kernel.operands = take(r, h->operands * sizeof(sim_operand));
    kernel.constants = take(r, h->constants * sizeof(uint64_t));
    kernel.register_words = h->sizes[0], kernel.shared_bytes = h->sizes[1],
    kernel.local_bytes = h->sizes[2], kernel.thread_registers = h->sizes[3];
    uint8_t *params = copy_of(take(r, h->params), h->params);
    sim_range ranges[8];
    const uint8_t *after[8];
    uint64_t starts[8], sizes[8];
    CHECK(h->ranges <= 8);
    for (uint64_t i = 0; i < h->ranges; i++) {
        const range_header *header = take(r, sizeof *header);
        sim_range range = {.size = header->size, .read_only = header->read_only};
        uint8_t *memory = aligned_alloc(256, (header->size + 511) / 256 * 256);
        CHECK(memory != NULL);
        memcpy(memory, take(r, header->size), header->size);
        if (header->has_state)
            range.state = copy_of(take(r, header->size), header->size);
        range.start = (uint64_t)(uintptr_t)memory;
        after[i] = take(r, header->size);
        starts[i] = range.start, sizes[i] = range.size;
        ranges[i] = range;
        for (size_t at = 0; at + 8 <= h->params; at += 8) /* pointers, where the memory is now */
            if (memcmp(params + at, &header->address, 8) == 0)
                memcpy(params + at, &range.start, 8);
    }
    qsort(ranges, h->ranges, sizeof *ranges, by_start);
    uint64_t steps = 0;
    sim_launch launch = {.ranges = ranges, .range_count = (uint32_t)h->ranges, .params = params};
    launch.param_bytes = (uint32_t)h->params, launch.dynamic_shared = h->dynamic,
    launch.most_steps = h->most_steps;
    launch.check_races = (uint8_t)h->check_races, launch.steps = &steps;
    memcpy(launch.grid, h->grid, sizeof launch.grid);
    memcpy(launch.block, h->block, sizeof launch.block);
    memcpy(launch.cluster, h->cluster, sizeof launch.cluster);
    launch.schedule = h->schedule;
    launch.is_cooperative = (uint8_t)h->is_cooperative;
    sim_fault fault;
    int failed = nova_sim_run(&kernel, &launch, &fault);
    CHECK(failed == (h->kind != FAULT_NONE) && fault.kind == h->kind && fault.line == h->line);
    CHECK(memcmp(fault.thread, h->thread, sizeof h->thread) == 0 && steps == h->steps);
    for (uint64_t i = 0; i < h->ranges; i++)
        CHECK(memcmp((void *)(uintptr_t)starts[i], after[i], sizes[i]) == 0);
    for (uint64_t i = 0; i < h->ranges; i++) {
        free((void *)(uintptr_t)ranges[i].start);
        free(ranges[i].state);
    }
    free(params);
}

static void *replay_all(void *header)
{
    reader r = *(const reader *)header;
    while (r.at < r.size)
        replay(&r);
    return NULL;
}

static void test_threads(reader *r)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, replay_all, r) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

#if defined __x86_64__
static uint64_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 16 ^ *state << 24;
}

/* Random bits, also of numbers that are not far from one, and of few values. */
static uint64_t draw(uint64_t *state, uint8_t width)
{
    uint64_t bits = next(state), kind = next(state) % 4;
    if (kind == 0)
        bits %= 40;
    else if (kind == 1)
        bits = (bits & 0x807fffff807fffffu) | 0x3f0000003f000000u;
    return width == 64 ? bits : width == 16 ? bits & 0xffff : bits & 0xffffffffu;
}

static void compare_rows(const lane_row *plain, const lane_row *newer)
{
    uint64_t state = 1, a[LANES], b[LANES], words[4][LANES];
    for (; plain->facts.name != NULL; plain++, newer++) {
        CHECK(strcmp(plain->facts.name, newer->facts.name) == 0);
        const void *in[4] = {words[0], words[1], words[2], words[3]};
        for (int round = 0; round < ROUNDS; round++) {
            for (int i = 0; i < 4; i++)
                for (int lane = 0; lane < LANES; lane++) {
                    uint64_t value = draw(&state, plain->facts.in[i]);
                    if (plain->facts.in[i] == 64)
                        words[i][lane] = value;
                    else
                        ((uint32_t *)words[i])[lane] = (uint32_t)value;
                }
            memset(a, 0, sizeof a), memset(b, 0, sizeof b);
            plain->function(a, in);
            newer->function(b, in);
            if (memcmp(a, b, sizeof a) != 0)
                fprintf(stderr, "%s differs\n", plain->facts.name);
            CHECK(memcmp(a, b, sizeof a) == 0);
        }
    }
    CHECK(newer->facts.name == NULL);
}

static void test_lanes(void)
{
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return;
    compare_rows(NOVA_SIM_INTEGERS, NOVA_SIM_INTEGERS_V3);
    compare_rows(NOVA_SIM_FLOATS, NOVA_SIM_FLOATS_V3);
    compare_rows(NOVA_SIM_HALVES, NOVA_SIM_HALVES_V3);
}
#else
static void test_lanes(void)
{
}
#endif

int main(int count, char **arguments)
{
    CHECK(count == 2);
    FILE *file = fopen(arguments[1], "rb");
    CHECK(file != NULL);
    fseek(file, 0, SEEK_END);
    reader r = {.size = (size_t)ftell(file)};
    rewind(file);
    r.bytes = aligned_alloc(8, (r.size + 7) / 8 * 8);
    CHECK(r.bytes != NULL && fread(r.bytes, 1, r.size, file) == r.size && r.size > 0);
    fclose(file);
    test_lanes();
    replay_all(&r);
    test_threads(&r);
    free(r.bytes);
    return 0;
}
