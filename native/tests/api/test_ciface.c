/* `_mlir_ciface_main` without the generated part: descriptors in, descriptors out. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include <pthread.h>

#include "../support/mapped.h"
#include "api/enclosing_file.h"

static nova_mapped self;

bool nova_enclosing_file(nova_mapped *mapped)
{
    *mapped = self;
    return true;
}

/* Descriptors of the ranks that the program has. */
typedef struct {
    void *allocated, *aligned;
    int64_t offset;
} memref0;

typedef struct {
    void *allocated, *aligned;
    int64_t offset, sizes[1], strides[1];
} memref1;

typedef struct {
    void *allocated, *aligned;
    int64_t offset, sizes[2], strides[2];
} memref2;

typedef struct {
    void *allocated, *aligned;
    int64_t offset, sizes[3], strides[3];
} memref3;

typedef struct {
    memref3 y;
    memref0 s;
    memref2 d;
    memref2 e;
} results;

typedef struct {
    float x[24];
    double s;
    int32_t d[6];
    memref3 of_x;
    memref0 of_s;
    memref2 of_d, of_e;
} call;

static void fill(call *call)
{
    for (int i = 0; i < 24; i++)
        call->x[i] = (float)i;
    for (int i = 0; i < 6; i++)
        call->d[i] = i + 1;
    call->s = 5;
    call->of_x = (memref3){call->x, call->x, 0, {2, 3, 4}, {12, 4, 1}};
    call->of_s = (memref0){&call->s, &call->s, 0};
    call->of_d = (memref2){call->d, call->d, 0, {2, 3}, {3, 1}};
    call->of_e = (memref2){NULL, NULL, 0, {0, 5}, {5, 1}};
}

/* What the generated `_mlir_ciface_main` does. */
static results enter(call *call, memref1 *w)
{
    results results;
    memset(&results, 0, sizeof results);
    void *const descriptors[] = {&call->of_x, &call->of_s, &call->of_d, &call->of_e, w};
    nova_ciface(&results, descriptors, ARGUMENTS);
    return results;
}

static void release(results *results)
{
    free(results->y.allocated);
    free(results->s.allocated);
    free(results->d.allocated);
    free(results->e.allocated);
}

static bool all_zero(const results *results)
{
    const unsigned char *byte = (const void *)results;
    for (size_t i = 0; i < sizeof *results; i++)
        if (byte[i] != 0)
            return false;
    return true;
}

static void expect_refusal(call *call, memref1 *w, nova_status status, const char *text)
{
    results results = enter(call, w);
    nova_error error = {0};
    CHECK(all_zero(&results));
    CHECK(nova_last_error(&error) == status && error.status == status);
    CHECK(strstr(error.text, text) != NULL);
    CHECK(nova_last_error(&error) == NOVA_OK && error.status == status);
}

/* --- cases ------------------------------------------------------------------------------------ */

static void test_no_cpu(void)
{
    call call;
    fill(&call);
    self = map_file("\"no-such-feature\"");
    expect_refusal(&call, NULL, NOVA_UNSUPPORTED, "no-such-feature");
    self = map_file(""); /* a later call may succeed */
}

static void test_dense(void)
{
    call call;
    fill(&call);
    results results = enter(&call, NULL);
    CHECK(nova_last_error(NULL) == NOVA_OK);
    CHECK(results.y.aligned == results.y.allocated && (uintptr_t)results.y.aligned % 64 == 0);
    CHECK(results.y.offset == 0 && results.y.sizes[0] == 2 && results.y.sizes[2] == 4);
    CHECK(results.y.strides[0] == 12 && results.y.strides[1] == 4 && results.y.strides[2] == 1);
    for (int i = 0; i < 24; i++)
        CHECK(((float *)results.y.aligned)[i] == (float)i + (float)(10 * (i % 4 + 1)));
    /* A donated argument is updated, and its result is a copy. */
    CHECK(call.s == 6 && results.s.aligned != &call.s && *(double *)results.s.aligned == 6);
    CHECK(call.d[5] == 12 && results.d.aligned != call.d);
    CHECK(memcmp(results.d.aligned, call.d, sizeof call.d) == 0);
    CHECK(results.d.sizes[1] == 3 && results.d.strides[0] == 3);
    /* A result without elements still has memory, so that NULL means failure. */
    CHECK(results.e.allocated != NULL && results.e.sizes[0] == 0 && results.e.sizes[1] == 5);
    release(&results);

    float w[] = {1, 2, 3, 4};
    memref1 of_w = {w, w, 0, {4}, {1}};
    results = enter(&call, &of_w);
    CHECK(((float *)results.y.aligned)[23] == 27);
    release(&results);
}

static void test_strided(void)
{
    /* x backwards along the last axis, in steps of two, in the middle of something larger. */
    call call;
    fill(&call);
    float wide[200] = {0};
    for (int a = 0; a < 2; a++)
        for (int b = 0; b < 3; b++)
            for (int c = 0; c < 4; c++)
                wide[100 - 2 * (12 * a + 4 * b + c)] = call.x[12 * a + 4 * b + c];
    call.of_x = (memref3){wide, wide + 10, 90, {2, 3, 4}, {-24, -8, -2}};
    /* d transposed: updated where it is. */
    int32_t columns[] = {1, 4, -1, 2, 5, -1, 3, 6, -1};
    call.of_d = (memref2){columns, columns, 0, {2, 3}, {1, 3}};
    results results = enter(&call, NULL);
    for (int i = 0; i < 24; i++)
        CHECK(((float *)results.y.aligned)[i] == (float)i + (float)(10 * (i % 4 + 1)));
    const int32_t doubled[] = {2, 8, -1, 4, 10, -1, 6, 12, -1}, dense[] = {2, 4, 6, 8, 10, 12};
    CHECK(memcmp(columns, doubled, sizeof columns) == 0);
    CHECK(memcmp(results.d.aligned, dense, sizeof dense) == 0);
    release(&results);

    /* One row for all: a stride of 0 is valid for a read-only argument. */
    fill(&call);
    call.of_x.strides[0] = call.of_x.strides[1] = 0;
    float w[] = {0, -1, 2, -1, 4, -1, 6};
    memref1 of_w = {w, w, 0, {4}, {2}};
    results = enter(&call, &of_w);
    for (int i = 0; i < 24; i++)
        CHECK(((float *)results.y.aligned)[i] == (float)(i % 4) * 3);
    release(&results);

    /* Bytes that are not aligned to the elements. */
    fill(&call);
    char odd[sizeof call.x + 1];
    memcpy(odd + 1, call.x, sizeof call.x);
    call.of_x.aligned = odd + 1;
    char odd_s[sizeof(double) + 1];
    memcpy(odd_s + 1, &call.s, sizeof call.s);
    call.of_s.aligned = odd_s + 1;
    results = enter(&call, NULL);
    CHECK(((float *)results.y.aligned)[23] == 63);
    double s;
    memcpy(&s, odd_s + 1, sizeof s);
    CHECK(s == 6 && *(double *)results.s.aligned == 6);
    release(&results);

    /* The stride of an axis of one element, or of an empty array, is ignored. */
    fill(&call);
    call.of_e.strides[0] = call.of_e.strides[1] = -77;
    results = enter(&call, NULL);
    CHECK(results.y.allocated != NULL);
    release(&results);
}

static void test_refusals(void)
{
    call call;
    fill(&call);
    call.of_x.sizes[1] = 4;
    expect_refusal(&call, NULL, NOVA_INVALID_ARGUMENT, "argument 0 (x): size 4 of axis 1 is not 3");
    fill(&call);
    call.of_d.strides[1] = 0;
    expect_refusal(&call, NULL, NOVA_INVALID_ARGUMENT, "argument 2 (d)");
    fill(&call);
    call.of_s.aligned = NULL;
    expect_refusal(&call, NULL, NOVA_INVALID_ARGUMENT, "argument 1 (s) is NULL");
    CHECK(call.d[5] == 6); /* no kernel ran */

    results results;
    memset(&results, 0, sizeof results);
    void *const descriptors[] = {NULL, &call.of_s, &call.of_d, &call.of_e, NULL};
    nova_error error;
    nova_ciface(&results, descriptors, ARGUMENTS); /* x has no value in the file */
    CHECK(all_zero(&results) && nova_last_error(&error) == NOVA_INVALID_ARGUMENT);
    nova_ciface(&results, descriptors, ARGUMENTS - 1);
    CHECK(all_zero(&results) && nova_last_error(&error) == NOVA_INVALID_ARGUMENT);
    nova_ciface(NULL, descriptors, ARGUMENTS);
    CHECK(nova_last_error(&error) == NOVA_INVALID_ARGUMENT);
}

enum { THREADS = 6, ROUNDS = 200 };

static void *call_often(void *unused)
{
    (void)unused;
    call call;
    fill(&call);
    memref3 dense = call.of_x;
    for (int round = 0; round < ROUNDS; round++) {
        call.of_x = dense;
        bool fails = round % 10 == 9;
        if (round % 2 == 1)
            call.of_x.strides[0] = 0;
        if (fails)
            call.of_x.sizes[0] = 3;
        results results = enter(&call, NULL);
        CHECK((results.y.allocated == NULL) == fails);
        if (!fails)
            CHECK(((float *)results.y.aligned)[23] == (round % 2 == 1 ? 11 : 23) + 40);
        release(&results);
        memset(call.d, 0, sizeof call.d); /* doubled by every round */
    }
    return NULL;
}

/* The first calls of a process may be concurrent. */
static void test_threads(void)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, call_often, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(nova_last_error(NULL) == NOVA_INVALID_ARGUMENT);
}

int main(void)
{
    test_no_cpu();
    test_threads();
    test_dense();
    test_strided();
    test_refusals();
    return 0;
}
