/* Flows of the simulated driver: loops and branches over copies, and calls that a GPU would refuse
 * or that it could not survive. */
#include <string.h>

#include "../support/check.h"
#include "gpusim/driver/sim_driver.h"

enum { ROWS = 5, BYTES = 4096 };

static nova_driver *driver;
static uint64_t memory; /* of the device */

static void upload(uint64_t offset, const void *from, uint64_t size)
{
    CHECK(driver->copy_in(driver, memory + offset, from, size, NULL) == 0);
    CHECK(driver->stream_synchronize(driver, NULL) == 0);
}

static void download(uint64_t offset, void *to, uint64_t size)
{
    CHECK(driver->copy_out(driver, to, memory + offset, size, NULL) == 0);
    CHECK(driver->stream_synchronize(driver, NULL) == 0);
}

static void create(void **flow, void **body)
{
    CHECK(driver->flow_is_supported(driver));
    CHECK(driver->flow_create(driver, flow, body) == 0);
}

/* Ends, launches and destroys a flow; returns what waiting for it gives. */
static int finish(void *flow, void *body)
{
    CHECK(driver->flow_end_body(driver, body) == 0);
    CHECK(driver->flow_finish(driver, flow) == 0);
    CHECK(driver->flow_launch(driver, flow, NULL) == 0);
    int result = driver->stream_synchronize(driver, NULL);
    driver->flow_destroy(driver, flow);
    return result;
}

static void check_refused(int result, const char *words)
{
    char text[256] = "";
    CHECK(result != 0);
    driver->explain(driver, result, text, sizeof text);
    CHECK(strstr(text, words) != NULL);
}

/* ys[i] = xs[ROWS - 1 - i] with slices, forwards and in reverse. */
static void test_positions(bool is_reverse)
{
    const uint32_t xs[ROWS] = {10, 11, 12, 13, 14};
    uint32_t ys[ROWS];
    int64_t last = -1;
    upload(0, xs, sizeof xs);
    const nova_flow_copy load = {memory + 512, memory, 4, 0, 4};
    const nova_flow_copy store = {memory + 1024, memory + 512, 4, 4, 0};
    const nova_flow_loop loop = {.position = memory + 2048,
                                 .length = ROWS,
                                 .is_reverse = is_reverse,
                                 .loads = &load,
                                 .load_count = 1,
                                 .stores = &store,
                                 .store_count = 1};
    void *flow, *body, *inner;
    create(&flow, &body);
    CHECK(driver->flow_add_loop(driver, body, &loop, &inner) == 0);
    CHECK(driver->flow_end_body(driver, inner) == 0);
    CHECK(finish(flow, body) == 0);
    download(1024, ys, sizeof ys);
    CHECK(memcmp(xs, ys, sizeof xs) == 0);
    download(2048, &last, sizeof last);
    CHECK(last == (is_reverse ? 0 : ROWS - 1));
}

/* A condition that an iteration copies from what is 0; one that is 0 before. */
static void test_conditions(unsigned char first, uint32_t expected)
{
    const uint32_t one = 1, zero = 0;
    uint32_t result;
    upload(0, &first, 1);
    upload(64, &zero, 4);
    upload(128, &one, 4);
    upload(192, &zero, 4);
    const nova_flow_copy enter = {memory + 256, memory, 1, 0, 0};
    const nova_flow_copy stores[] = {{memory + 192, memory + 128, 4, 0, 0},
                                     {memory + 256, memory + 64, 1, 0, 0}};
    const nova_flow_loop loop = {.condition = memory + 256,
                                 .enters = &enter,
                                 .enter_count = 1,
                                 .stores = stores,
                                 .store_count = 2};
    void *flow, *body, *inner;
    create(&flow, &body);
    CHECK(driver->flow_add_loop(driver, body, &loop, &inner) == 0);
    CHECK(driver->flow_end_body(driver, inner) == 0);
    CHECK(finish(flow, body) == 0);
    download(192, &result, 4);
    CHECK(result == expected);
}

static void test_branches(int64_t selector, uint32_t expected)
{
    const uint32_t values[3] = {7, 8, 9};
    uint32_t result;
    upload(0, &selector, sizeof selector);
    upload(64, values, sizeof values);
    void *flow, *body, *branches[3];
    create(&flow, &body);
    CHECK(driver->flow_add_switch(driver, body, memory, 8, 3, branches) == 0);
    for (uint32_t i = 0; i < 3; i++) {
        const nova_flow_copy copy = {memory + 128, memory + 64 + 4 * i, 4, 0, 0};
        CHECK(driver->flow_add_copies(driver, branches[i], &copy, 1) == 0);
        CHECK(driver->flow_end_body(driver, branches[i]) == 0);
    }
    CHECK(finish(flow, body) == 0);
    download(128, &result, 4);
    CHECK(result == expected);
}

static void test_misuse(void)
{
    void *flow, *body, *branches[1];
    const nova_flow_copy overlapping[] = {{memory, memory + 64, 16, 0, 0},
                                          {memory + 8, memory + 128, 16, 0, 0}};
    create(&flow, &body);
    check_refused(driver->flow_add_copies(driver, body, overlapping, 2), "overlap");
    check_refused(driver->flow_add_switch(driver, body, memory, 4, 1, branches), "selector");
    check_refused(driver->flow_finish(driver, flow), "before its body has ended");
    CHECK(driver->flow_add_switch(driver, body, memory, 8, 1, branches) == 0);
    check_refused(driver->flow_end_body(driver, body), "before one inside");
    CHECK(driver->flow_end_body(driver, branches[0]) == 0);
    check_refused(driver->flow_end_body(driver, branches[0]), "twice");
    check_refused(driver->flow_add_copies(driver, branches[0], overlapping, 1), "has ended");
    CHECK(driver->flow_end_body(driver, body) == 0);
    check_refused(driver->flow_launch(driver, flow, NULL), "before it is finished");
    driver->flow_destroy(driver, flow);
}

/* Faults that only the run shows: a condition that nothing wrote, an address outside, no end. */
static void test_faults(void)
{
    const unsigned char one = 1;
    void *flow, *body, *inner;
    CHECK(driver->memory_forget(driver, memory, BYTES, NULL) == 0);
    nova_flow_loop loop = {.condition = memory + 256};
    create(&flow, &body);
    CHECK(driver->flow_add_loop(driver, body, &loop, &inner) == 0);
    CHECK(driver->flow_end_body(driver, inner) == 0);
    check_refused(finish(flow, body), "nothing has written");
    const nova_flow_copy outside = {memory + BYTES - 8, memory, 16, 0, 0};
    create(&flow, &body);
    CHECK(driver->flow_add_copies(driver, body, &outside, 1) == 0);
    check_refused(finish(flow, body), "in no block");
    upload(256, &one, 1);
    create(&flow, &body);
    CHECK(driver->flow_add_loop(driver, body, &loop, &inner) == 0);
    CHECK(driver->flow_end_body(driver, inner) == 0);
    check_refused(finish(flow, body), "does not end");
}

int main(void)
{
    nova_error error;
    void *context;
    CHECK(nova_sim_open(&driver, &error) == NOVA_OK);
    CHECK(driver->context_open(driver, 0, &context) == 0 && driver->enter(driver, context) == 0);
    CHECK(driver->memory_take(driver, BYTES, &memory) == 0);
    test_positions(false);
    test_positions(true);
    test_conditions(1, 1);
    test_conditions(0, 0);
    test_branches(-4, 7);
    test_branches(1, 8);
    test_branches(99, 9);
    test_misuse();
    test_faults();
    driver->memory_free(driver, memory);
    driver->leave(driver);
    nova_sim_close(driver);
    return 0;
}
