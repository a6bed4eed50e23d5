/* The runtime without Python: images, programs and the pool, meant for ASan and UBSan. */
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "nova.h"

/* --- status --------------------------------------------------------------------------------- */

static void test_status_texts(void)
{
    for (int i = NOVA_OK; i <= NOVA_SYSTEM_ERROR; i++) {
        CHECK(strcmp(nova_status_text((nova_status)i), "unknown status") != 0);
        for (int k = NOVA_OK; k < i; k++)
            CHECK(strcmp(nova_status_text((nova_status)i), nova_status_text((nova_status)k)) != 0);
    }
    CHECK(strcmp(nova_status_text((nova_status)99), "unknown status") == 0);
}

/* --- images --------------------------------------------------------------------------------- */

static nova_status map_one(const char *data, size_t size, nova_segment segment)
{
    nova_image *image = NULL;
    nova_status status = nova_image_create(data, size, &segment, 1, &image);
    CHECK((status == NOVA_OK) == (image != NULL));
    nova_image_destroy(image);
    return status;
}

static void test_image(void)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const char data[] = "first.second";
    const nova_segment segments[] = {
        {0, 5, 3, 5, NOVA_READ},
        {6, 6, 2 * page, page + 1, NOVA_READ | NOVA_WRITE},
        {0, 0, 9 * page, 0, NOVA_READ | NOVA_EXECUTE},
    };
    nova_image *image;
    CHECK(nova_image_create(data, sizeof data, segments, 3, &image) == NOVA_OK);
    void *at;
    CHECK(nova_image_find(image, 3, 5, NOVA_READ, &at) == NOVA_OK);
    CHECK((uintptr_t)at == nova_image_base(image) + 3 && memcmp(at, "first", 5) == 0);
    CHECK(nova_image_find(image, 8, 0, NOVA_READ, &at) == NOVA_OK);
    CHECK(nova_image_find(image, 3, 6, NOVA_READ, &at) == NOVA_OUT_OF_RANGE);
    CHECK(nova_image_find(image, 2, 1, NOVA_READ, &at) == NOVA_OUT_OF_RANGE);
    CHECK(nova_image_find(image, 4, UINT64_MAX, NOVA_READ, &at) == NOVA_OUT_OF_RANGE);
    CHECK(nova_image_find(image, UINT64_MAX, 1, NOVA_READ, &at) == NOVA_OUT_OF_RANGE);
    CHECK(nova_image_find(image, 3, 1, NOVA_EXECUTE, &at) == NOVA_OUT_OF_RANGE);
    CHECK(nova_image_find(image, 9 * page, 0, 0, &at) == NOVA_OUT_OF_RANGE);
    CHECK(nova_image_find(NULL, 0, 0, 0, &at) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_image_find(image, 3, 0, 0, NULL) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_image_find(image, 2 * page, page + 1, NOVA_WRITE, &at) == NOVA_OK);
    CHECK(memcmp(at, "second\0", 7) == 0 && ((char *)at)[page] == 0);
    ((char *)at)[page] = 1;
    nova_image_destroy(image);
    nova_image_destroy(NULL);

    CHECK(nova_image_create(NULL, 0, NULL, 0, &image) == NOVA_OK);
    nova_image_destroy(image);
    CHECK(nova_image_create(NULL, 1, NULL, 0, &image) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_image_create(data, 1, NULL, 1, &image) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_image_create(data, 1, NULL, 0, NULL) == NOVA_INVALID_ARGUMENT);
}

static void test_image_refusals(void)
{
    const uint64_t top = UINT64_MAX;
    CHECK(map_one("abcd", 4, (nova_segment){0, 4, 0, 4, 4}) == NOVA_OK);
    CHECK(map_one("abcd", 4, (nova_segment){0, 4, 0, 4, 3}) == NOVA_BAD_PROTECTION);
    CHECK(map_one("abcd", 4, (nova_segment){0, 4, 0, 4, 8}) == NOVA_INVALID_ARGUMENT);
    CHECK(map_one("abcd", 4, (nova_segment){0, 4, 0, 3, 4}) == NOVA_INVALID_ARGUMENT);
    CHECK(map_one("abcd", 4, (nova_segment){1, 4, 0, 4, 4}) == NOVA_OUT_OF_RANGE);
    CHECK(map_one("abcd", 4, (nova_segment){top, 1, 0, 4, 4}) == NOVA_OUT_OF_RANGE);
    CHECK(map_one("abcd", 4, (nova_segment){0, 4, top - 2, 4, 4}) == NOVA_OVERFLOW);
    CHECK(map_one("abcd", 4, (nova_segment){0, 4, 0, top, 4}) == NOVA_OVERFLOW);
    CHECK(map_one("abcd", 4, (nova_segment){0, 4, 0, top / 2, 4}) == NOVA_OUT_OF_MEMORY);

    nova_image *image;
    nova_segment pair[] = {{0, 4, 0, 4, 4}, {0, 4, 3, 4, 4}};
    CHECK(nova_image_create("abcd", 4, pair, 2, &image) == NOVA_INVALID_ARGUMENT);
    pair[1] = (nova_segment){0, 4, 64, 4, 6};
    CHECK(nova_image_create("abcd", 4, pair, 2, &image) == NOVA_BAD_PROTECTION);
}

/* --- programs ------------------------------------------------------------------------------- */

static void add(void *const *buffers, int64_t begin, int64_t end)
{
    const float *x = buffers[0], *y = buffers[1];
    float *z = buffers[2];
    for (int64_t i = begin; i < end; i++)
        z[i] = x[i] + y[i];
}

static void check_pointers(void *const *buffers, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++)
        CHECK(buffers[i] != NULL);
}

static const int64_t eight[] = {8};
static const float constant[8] = {1, 2, 3, 4, 5, 6, 7, 8};

/* t = x + constant; y = t + x, with a launch of no tiles between. */
static void test_program(void)
{
    const nova_tensor argument = {eight, 1, NOVA_DONATED, 4, 0, -1};
    const nova_tensor outputs[] = {{eight, 1, 0, 4, 0, -1}, {eight, 1, 0, 4, 0, 0}};
    const nova_buffer buffers[] = {
        {NOVA_ARGUMENT, 0},
        {NOVA_CONSTANT, (uint64_t)(uintptr_t)constant},
        {NOVA_WORKSPACE, 64},
        {NOVA_OUTPUT, 0},
    };
    const uint32_t first[] = {0, 1, 2}, second[] = {2, 0, 3};
    const nova_launch launches[] = {{add, 8, first, 3}, {add, 0, NULL, 0}, {add, 8, second, 3}};
    const nova_program_tables tables = {&argument, 1, outputs, 2, buffers, 4, launches, 3, 128};
    nova_program *program;
    CHECK(nova_program_create(&tables, &program) == NOVA_OK);
    const nova_program_tables *copy = nova_program_get_tables(program);
    CHECK(copy->arguments[0].nbytes == 32 && copy->arguments[0].shape != eight);
    CHECK(copy->outputs[1].alias == 0 && copy->launches[2].buffers[2] == 3);
    CHECK(nova_program_workspace_size(program) == 128);

    float x[8] = {10, 10, 10, 10, 10, 10, 10, 10}, y[8];
    _Alignas(64) char workspace[128];
    void *const inputs[] = {x}, *const results[] = {y, x};
    CHECK(nova_program_run(program, inputs, results, workspace) == NOVA_OK);
    for (int i = 0; i < 8; i++)
        CHECK(y[i] == 20 + constant[i]);
    CHECK(nova_program_run(NULL, inputs, results, workspace) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_program_run(program, NULL, results, workspace) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_program_run(program, inputs, NULL, workspace) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_program_run(program, inputs, results, NULL) == NOVA_INVALID_ARGUMENT);
    nova_program_destroy(program);
    nova_program_destroy(NULL);
}

/* With many operands their pointers live behind the planned workspace. */
static void test_many_operands(void)
{
    enum { COUNT = 1000 };
    const nova_buffer buffer = {NOVA_WORKSPACE, 0};
    uint32_t ids[COUNT] = {0};
    const nova_launch launches[] = {{check_pointers, COUNT, ids, COUNT}};
    for (uint64_t planned = 0; planned < 200; planned += 67) {
        nova_program_tables tables = {.buffers = &buffer,
                                      .buffer_count = 1,
                                      .launches = launches,
                                      .launch_count = 1,
                                      .workspace_size = planned};
        nova_program *program;
        nova_pool *pool;
        void *workspace;
        CHECK(nova_program_create(&tables, &program) == NOVA_OK);
        uint64_t size = nova_program_workspace_size(program);
        CHECK(size >= planned + COUNT * sizeof(void *));
        CHECK(nova_pool_create(size, &pool) == NOVA_OK);
        CHECK(nova_pool_take(pool, &workspace) == NOVA_OK);
        CHECK(nova_program_run(program, NULL, NULL, workspace) == NOVA_OK);
        nova_pool_give(pool, workspace);
        nova_pool_destroy(pool);
        nova_program_destroy(program);
    }
}

static nova_status refuse(nova_program_tables tables)
{
    nova_program *program;
    nova_status status = nova_program_create(&tables, &program);
    CHECK(status != NOVA_OK);
    return status;
}

static void test_program_refusals(void)
{
    const int64_t negative[] = {-1}, huge[] = {INT64_MAX, 2}, zero_huge[] = {0, INT64_MAX, 2};
    const nova_tensor bad[] = {
        {negative, 1, 0, 4, 0, -1}, {NULL, 1, 0, 4, 0, -1},  {eight, 1, 0, 0, 0, -1},
        {eight, -1, 0, 4, 0, -1},   {eight, 65, 0, 4, 0, -1}, {eight, 1, 2, 4, 0, -1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        nova_program_tables as_argument = {.arguments = &bad[i], .argument_count = 1};
        nova_program_tables as_output = {.outputs = &bad[i], .output_count = 1};
        CHECK(refuse(as_argument) == NOVA_INVALID_ARGUMENT);
        CHECK(refuse(as_output) == NOVA_INVALID_ARGUMENT);
    }
    const nova_tensor large[] = {{huge, 2, 0, 4, 0, -1}, {zero_huge, 3, 0, 4, 0, -1}};
    for (int i = 0; i < 2; i++)
        CHECK(refuse((nova_program_tables){.outputs = &large[i], .output_count = 1}) ==
              NOVA_OVERFLOW);

    const nova_tensor fixed = {eight, 1, 0, 4, 0, -1}, wide = {eight, 1, NOVA_DONATED, 8, 0, -1};
    nova_tensor alias = {eight, 1, 0, 4, 0, 0};
    nova_program_tables aliased = {&fixed, 1, &alias, 1, NULL, 0, NULL, 0, 0};
    CHECK(refuse(aliased) == NOVA_INVALID_ARGUMENT);
    aliased.arguments = &wide;
    CHECK(refuse(aliased) == NOVA_INVALID_ARGUMENT);
    alias.alias = 1;
    CHECK(refuse(aliased) == NOVA_OUT_OF_RANGE);
    alias.alias = -2;
    CHECK(refuse(aliased) == NOVA_INVALID_ARGUMENT);

    const nova_buffer outside[] = {
        {NOVA_ARGUMENT, 1}, {NOVA_OUTPUT, 0}, {NOVA_WORKSPACE, 65}, {NOVA_CONSTANT, 0}};
    for (int i = 0; i < 4; i++)
        CHECK(refuse((nova_program_tables){&fixed, 1, NULL, 0, &outside[i], 1, NULL, 0, 64}) ==
              NOVA_OUT_OF_RANGE);
    const nova_buffer unknown = {(nova_buffer_kind)9, 0};
    CHECK(refuse((nova_program_tables){.buffers = &unknown, .buffer_count = 1}) ==
          NOVA_INVALID_ARGUMENT);

    const uint32_t id = 0;
    const nova_launch launches[] = {
        {NULL, 1, NULL, 0}, {add, -1, NULL, 0}, {add, 1, NULL, 1}, {add, 1, &id, 1}};
    for (int i = 0; i < 4; i++)
        CHECK(refuse((nova_program_tables){.launches = &launches[i], .launch_count = 1}) ==
              (i < 3 ? NOVA_INVALID_ARGUMENT : NOVA_OUT_OF_RANGE));
    CHECK(refuse((nova_program_tables){.argument_count = 1}) == NOVA_INVALID_ARGUMENT);
    CHECK(refuse((nova_program_tables){.workspace_size = UINT64_MAX}) == NOVA_OVERFLOW);
    CHECK(nova_program_create(NULL, NULL) == NOVA_INVALID_ARGUMENT);
}

/* --- pool ----------------------------------------------------------------------------------- */

static void test_pool(void)
{
    const struct { uint64_t size, alignment; } cases[] = {{1, 64}, {100, 64}, {5 << 20, 2 << 20}};
    for (int i = 0; i < 3; i++) {
        nova_pool *pool;
        void *blocks[40], *again;
        CHECK(nova_pool_create(cases[i].size, &pool) == NOVA_OK);
        int count = cases[i].size > 1000 ? 3 : 40;
        for (int k = 0; k < count; k++) {
            CHECK(nova_pool_take(pool, &blocks[k]) == NOVA_OK);
            CHECK((uintptr_t)blocks[k] % cases[i].alignment == 0);
            memset(blocks[k], k, cases[i].size);
        }
        for (int k = 0; k < count; k++) {
            CHECK(*(char *)blocks[k] == (char)k);
            nova_pool_give(pool, blocks[k]);
        }
        CHECK(nova_pool_take(pool, &again) == NOVA_OK);
        CHECK(again == blocks[count - 1]);
        nova_pool_give(pool, again);
        nova_pool_give(pool, NULL);
        nova_pool_destroy(pool);
    }
    nova_pool *pool;
    void *block = &pool;
    CHECK(nova_pool_create(0, &pool) == NOVA_OK);
    CHECK(nova_pool_take(pool, &block) == NOVA_OK && block == NULL);
    CHECK(nova_pool_take(pool, NULL) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_pool_take(NULL, &block) == NOVA_INVALID_ARGUMENT);
    nova_pool_give(NULL, block);
    nova_pool_destroy(pool);
    nova_pool_destroy(NULL);
    CHECK(nova_pool_create(UINT64_MAX, &pool) == NOVA_OVERFLOW);
    CHECK(nova_pool_create(1, NULL) == NOVA_INVALID_ARGUMENT);
}

int main(void)
{
    test_status_texts();
    test_image();
    test_image_refusals();
    test_program();
    test_many_operands();
    test_program_refusals();
    test_pool();
    return 0;
}
