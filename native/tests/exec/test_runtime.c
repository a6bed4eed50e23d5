/* The runtime without Python: images, programs and the pool, meant for ASan and UBSan. */
#include <string.h>
#include <unistd.h>

#include "../support/block.h"
#include "../support/check.h"
#include "nova.h"

/* --- status ----------------------------------------------------------------------------------- */

static void test_status_texts(void)
{
    for (int i = NOVA_OK; i <= NOVA_REFUSED; i++) {
        CHECK(strcmp(nova_status_text((nova_status)i), "unknown status") != 0);
        for (int k = NOVA_OK; k < i; k++)
            CHECK(strcmp(nova_status_text((nova_status)i), nova_status_text((nova_status)k)) != 0);
    }
    CHECK(strcmp(nova_status_text((nova_status)99), "unknown status") == 0);
}

/* --- images ----------------------------------------------------------------------------------- */

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

/* --- programs --------------------------------------------------------------------------------- */

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

static const float constant[8] = {1, 2, 3, 4, 5, 6, 7, 8};
static _Alignas(64) unsigned char block[BLOCK_SIZE];

/* Checks and binds; constants may lie anywhere, as only the image knows. */
static nova_status make(const parts *parts, const nova_image *image, nova_program **program)
{
    const nova_tables_limits limits = {
        .argument_count = 1, .output_count = 1, .constants_size = UINT64_MAX};
    nova_tables tables;
    nova_error error = {0};
    *program = NULL;
    CHECK(nova_tables_check(block, write_block(parts, block), &limits, &tables, &error) == NOVA_OK);
    nova_status status = nova_program_create(&tables, image, CONSTANTS, program, &error);
    CHECK((status == NOVA_OK) == (*program != NULL));
    CHECK(error.status == status && (status == NOVA_OK || error.text[0] != '\0'));
    return status;
}

/* t = x + constant; y = t + x, with a launch of no tiles between. */
static void test_program(void)
{
    const nova_kernel functions[] = {add};
    nova_image *image = make_image(functions, 1, constant, sizeof constant);
    const nova_buffer buffers[] = {
        {NOVA_ARGUMENT, 0, 0, 32},
        {NOVA_CONSTANT, 0, 0, 32},
        {NOVA_WORKSPACE, 0, 64, 32},
        {NOVA_OUTPUT, 0, 0, 32},
    };
    const nova_kernel_record kernels[] = {{.code = 0, .grid = 8}, {.code = 0, .grid = 0}};
    const nova_launch_record launches[] = {{0, 0, 3, 0}, {1, 3, 0, 0}, {0, 3, 3, 0}};
    const uint32_t operands[] = {0, 1, 2, 2, 0, 3};
    const parts parts = {buffers, 4, kernels, 2, launches, 3, operands, 6, 128, 0};
    nova_program *program;
    CHECK(make(&parts, image, &program) == NOVA_OK);
    CHECK(nova_program_tables(program)->header->launch_count == 3);
    CHECK(nova_program_workspace_size(program) == 128);

    float x[8] = {10, 10, 10, 10, 10, 10, 10, 10}, y[8];
    _Alignas(64) char workspace[128];
    void *const inputs[] = {x}, *const results[] = {y};
    CHECK(nova_program_run(program, inputs, results, workspace, NULL) == NOVA_OK);
    for (int i = 0; i < 8; i++)
        CHECK(y[i] == 20 + constant[i]);
    CHECK(nova_program_run(NULL, inputs, results, workspace, NULL) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_program_run(program, NULL, results, workspace, NULL) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_program_run(program, inputs, NULL, workspace, NULL) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_program_run(program, inputs, results, NULL, NULL) == NOVA_INVALID_ARGUMENT);
    nova_program_destroy(program);
    nova_program_destroy(NULL);
    nova_image_destroy(image);
}

/* With many operands their pointers are after the planned workspace. */
static void test_many_operands(void)
{
    enum { COUNT = 1000 };
    const nova_kernel functions[] = {check_pointers};
    nova_image *image = make_image(functions, 1, NULL, 0);
    const nova_buffer buffer = {NOVA_WORKSPACE, 0, 0, 0};
    const nova_kernel_record kernel = {.code = 0, .grid = COUNT};
    const nova_launch_record launch = {0, 0, COUNT, 0};
    const uint32_t operands[COUNT] = {0};
    for (uint64_t planned = 0; planned < 200; planned += 67) {
        const parts parts = {&buffer, 1, &kernel, 1, &launch, 1, operands, COUNT, planned, 0};
        nova_program *program;
        nova_pool *pool;
        void *workspace;
        CHECK(make(&parts, image, &program) == NOVA_OK);
        uint64_t size = nova_program_workspace_size(program);
        CHECK(size >= planned + COUNT * sizeof(void *));
        CHECK(nova_pool_create(size, &pool) == NOVA_OK);
        CHECK(nova_pool_take(pool, &workspace) == NOVA_OK);
        CHECK(nova_program_run(program, NULL, NULL, workspace, NULL) == NOVA_OK);
        nova_pool_give(pool, workspace);
        nova_pool_destroy(pool);
        nova_program_destroy(program);
    }
    nova_image_destroy(image);
}

static void test_program_refusals(void)
{
    const nova_kernel functions[] = {add};
    nova_image *image = make_image(functions, 1, constant, sizeof constant);
    nova_program *program;
    const uint64_t outside[] = {CODE_SIZE, CONSTANTS, UINT64_MAX};
    for (int i = 0; i < 3; i++) {
        const nova_kernel_record kernel = {.code = outside[i], .grid = 1};
        CHECK(make(&(parts){.kernels = &kernel, .kernel_count = 1}, image, &program) ==
              NOVA_OUT_OF_RANGE);
    }
    const nova_buffer beyond = {NOVA_CONSTANT, 0, 0, sizeof constant + 1};
    CHECK(make(&(parts){.buffers = &beyond, .buffer_count = 1}, image, &program) ==
          NOVA_OUT_OF_RANGE);

    nova_tables_header header = {.workspace_size = UINT64_MAX};
    const nova_tables huge = {.header = &header}, empty = {0};
    CHECK(nova_program_create(&huge, image, 0, &program, NULL) == NOVA_OVERFLOW);
    CHECK(nova_program_create(&empty, image, 0, &program, NULL) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_program_create(NULL, image, 0, &program, NULL) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_program_create(&huge, NULL, 0, &program, NULL) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_program_create(&huge, image, 0, NULL, NULL) == NOVA_INVALID_ARGUMENT);
    const nova_buffer wraps = {NOVA_CONSTANT, 0, UINT64_MAX, 2};
    header = (nova_tables_header){.buffer_count = 1};
    const nova_tables wrapping = {.header = &header, .buffers = &wraps};
    CHECK(nova_program_create(&wrapping, image, 0, &program, NULL) == NOVA_OVERFLOW);
    nova_image_destroy(image);
}

/* --- tensors ---------------------------------------------------------------------------------- */

static const int64_t eight[] = {8};

static nova_tensor_info tensor(const int64_t *shape, int32_t rank, int64_t element_size)
{
    return (nova_tensor_info){
        .shape = shape, .rank = rank, .element_size = element_size, .alias = -1};
}

static nova_status check_one(nova_tensor_info tensor, int64_t *nbytes)
{
    nova_tensor_info copy = tensor;
    nova_status status = nova_tensors_check(&tensor, 1, NULL, 0, NULL);
    CHECK(nova_tensors_check(NULL, 0, &copy, 1, NULL) == status);
    CHECK(copy.nbytes == tensor.nbytes);
    if (nbytes != NULL)
        *nbytes = tensor.nbytes;
    return status;
}

static void test_tensors(void)
{
    const int64_t negative[] = {-1}, huge[] = {INT64_MAX, 2}, empty[] = {3, 0},
                  zero_huge[] = {0, INT64_MAX, 2};
    int64_t nbytes;
    CHECK(check_one(tensor(eight, 1, 4), &nbytes) == NOVA_OK && nbytes == 32);
    CHECK(check_one(tensor(NULL, 0, 8), &nbytes) == NOVA_OK && nbytes == 8);
    CHECK(check_one(tensor(empty, 2, 8), &nbytes) == NOVA_OK && nbytes == 0);
    CHECK(check_one(tensor(negative, 1, 4), NULL) == NOVA_INVALID_ARGUMENT);
    CHECK(check_one(tensor(NULL, 1, 4), NULL) == NOVA_INVALID_ARGUMENT);
    CHECK(check_one(tensor(eight, 1, 0), NULL) == NOVA_INVALID_ARGUMENT);
    CHECK(check_one(tensor(eight, -1, 4), NULL) == NOVA_INVALID_ARGUMENT);
    CHECK(check_one(tensor(eight, NOVA_MAX_RANK + 1, 4), NULL) == NOVA_INVALID_ARGUMENT);
    CHECK(check_one(tensor(huge, 2, 4), NULL) == NOVA_OVERFLOW);
    CHECK(check_one(tensor(zero_huge, 3, 4), NULL) == NOVA_OVERFLOW);

    nova_tensor_info argument = tensor(eight, 1, 4), output = tensor(eight, 1, 4);
    output.alias = 0;
    CHECK(nova_tensors_check(&argument, 1, &output, 1, NULL) == NOVA_INVALID_ARGUMENT);
    argument.donated = 1;
    CHECK(nova_tensors_check(&argument, 1, &output, 1, NULL) == NOVA_OK);
    argument.element_size = 8;
    CHECK(nova_tensors_check(&argument, 1, &output, 1, NULL) == NOVA_INVALID_ARGUMENT);
    argument = tensor(empty, 2, 4);
    argument.donated = 1;
    CHECK(nova_tensors_check(&argument, 1, &output, 1, NULL) == NOVA_INVALID_ARGUMENT);
    argument = tensor(eight, 1, 4);
    argument.donated = 2;
    CHECK(nova_tensors_check(&argument, 1, NULL, 0, NULL) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_tensors_check(NULL, 0, &argument, 1, NULL) == NOVA_INVALID_ARGUMENT);
    argument.donated = 1;
    output.alias = 1;
    CHECK(nova_tensors_check(&argument, 1, &output, 1, NULL) == NOVA_OUT_OF_RANGE);
    output.alias = -2;
    CHECK(nova_tensors_check(&argument, 1, &output, 1, NULL) == NOVA_OUT_OF_RANGE);
    CHECK(nova_tensors_check(&output, 1, NULL, 0, NULL) == NOVA_INVALID_ARGUMENT);
}

/* --- recycled memory -------------------------------------------------------------------------- */

static void test_recycled_memory(void)
{
    void *first, *again, *other;
    CHECK(nova_memory_reuse(100000, &first) == NOVA_OK && (uintptr_t)first % 4096 == 0);
    memset(first, 1, 100000);
    CHECK(nova_memory_reuse(100000, &other) == NOVA_OK && other != first);
    nova_memory_recycle(first);
    /* A similar size gets it, a larger one does not. */
    CHECK(nova_memory_reuse(110000, &again) == NOVA_OK && again == first);
    nova_memory_recycle(again);
    CHECK(nova_memory_reuse(5 << 20, &again) == NOVA_OK && again != first);
    CHECK((uintptr_t)again % (2 << 20) == 0);
    memset(again, 2, 5 << 20);
    nova_memory_recycle(again);
    nova_memory_recycle(other);
    /* More than are cached, and one that is too large for it. */
    void *blocks[20];
    for (int i = 0; i < 20; i++)
        CHECK(nova_memory_reuse((uint64_t)(i + 1) << 14, &blocks[i]) == NOVA_OK);
    for (int i = 0; i < 20; i++) {
        memset(blocks[i], i, (size_t)(i + 1) << 14);
        nova_memory_recycle(blocks[i]);
    }
    CHECK(nova_memory_reuse((UINT64_C(64) << 20) + 1, &first) == NOVA_OK);
    nova_memory_recycle(first);
    CHECK(nova_memory_reuse(0, &first) == NOVA_OK && first == NULL);
    CHECK(nova_memory_reuse(UINT64_MAX, &first) == NOVA_OVERFLOW);
    nova_memory_recycle(NULL);
    /* Pools for different sizes share it. */
    nova_pool *pools[2];
    for (int i = 0; i < 2; i++) {
        CHECK(nova_pool_create(70000 + (uint64_t)i, &pools[i]) == NOVA_OK);
        nova_pool_share(pools[i]);
    }
    CHECK(nova_pool_take(pools[0], &first) == NOVA_OK);
    nova_pool_give(pools[0], first);
    CHECK(nova_pool_take(pools[1], &again) == NOVA_OK && again == first);
    nova_pool_give(pools[1], again);
    nova_pool_destroy(pools[0]);
    nova_pool_destroy(pools[1]);
}

/* --- pool ------------------------------------------------------------------------------------- */

static void test_pool(void)
{
    const struct {
        uint64_t size, alignment;
    } cases[] = {{1, 64}, {100, 64}, {5 << 20, 2 << 20}};
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
    test_tensors();
    test_recycled_memory();
    test_pool();
    return 0;
}
