/* The device runtime over a libcuda for tests, whose path is the argument: results, threads,
 * faults, leaks. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/check.h"
#include "nova/device.h"

enum { SIZE = 96, THREADS = 4, RUNS = 40 };

static void (*fail)(const char *name, long n, int result);
static void (*reset)(void);

/* y = 6 x: two launches of `scale` into a workspace, and one of `add`. */
static struct {
    nova_tables_header header;
    nova_buffer buffers[4];
    nova_kernel_record kernels[2];
    nova_launch_record launches[3];
    uint32_t operands[8]; /* the last one is padding */
    nova_device_launch devices[2];
    char strings[12];
} block = {
    .header = {.magic = NOVA_TABLES_DEVICE_MAGIC,
               .workspace_size = 1024,
               .buffer_count = 4,
               .kernel_count = 2,
               .launch_count = 3,
               .operand_count = 7,
               .string_size = 11},
    .buffers = {{.kind = NOVA_ARGUMENT, .nbytes = 4 * SIZE},
                {.kind = NOVA_OUTPUT, .nbytes = 4 * SIZE},
                {.kind = NOVA_WORKSPACE, .nbytes = 4 * SIZE},
                {.kind = NOVA_WORKSPACE, .value = 512, .nbytes = 4 * SIZE}},
    .kernels = {{.core = NOVA_DEVICE, .symbol = 1}, {.core = NOVA_DEVICE, .symbol = 7}},
    .launches = {{0, 0, 2, 1}, {0, 2, 2, 1}, {1, 4, 3, 2}},
    .operands = {0, 2, 2, 3, 2, 3, 1},
    .devices = {{{3, 1, 1}, {32, 1, 1}, 0, 0}, {{3, 1, 1}, {32, 1, 1}, 0, 0}},
    .strings = "\0scale\0add",
};

static const char PTX[] = ".entry scale .entry add";

static nova_status make(nova_device *device, nova_device_program **program, nova_error *error)
{
    static const int64_t shape[] = {SIZE};
    static const int64_t nbytes[] = {4 * SIZE};
    const nova_tables_limits limits = {
        .argument_count = 1, .output_count = 1, .argument_nbytes = nbytes, .output_nbytes = nbytes};
    const nova_tensor_info tensor = {.name = "x",
                                     .dtype = "f32",
                                     .shape = shape,
                                     .rank = 1,
                                     .element_size = 4,
                                     .nbytes = 4 * SIZE,
                                     .alias = -1};
    const nova_device_code code = {.arch = "sm_80", .data = PTX, .size = sizeof PTX - 1};
    nova_tables tables;
    block.header.size = offsetof(__typeof__(block), strings) + block.header.string_size;
    CHECK(nova_tables_check(&block, block.header.size, &limits, &tables, error) == NOVA_OK);
    const nova_device_source source = {.tables = &tables,
                                       .code = &code,
                                       .arguments = &tensor,
                                       .outputs = &tensor,
                                       .argument_count = 1,
                                       .output_count = 1};
    return nova_device_program_create(device, &source, program, error);
}

static void run_host(nova_device_program *program, float first)
{
    float x[SIZE], y[SIZE];
    nova_error error;
    for (int i = 0; i < SIZE; i++)
        x[i] = first + (float)i, y[i] = 0;
    const nova_device_value argument = {.host = x}, output = {.host = y};
    CHECK(nova_device_program_run(program, &argument, &output, &NOVA_RUN_ON(NOVA_OWN_STREAM),
                                  &error) == NOVA_OK);
    for (int i = 0; i < SIZE; i++)
        CHECK(y[i] == 6 * x[i]);
}

/* Arrays on the device, taken and released by many threads. */
static void run_device(nova_device *device, nova_device_program *program, float first)
{
    float x[SIZE], y[SIZE];
    nova_device_block *in, *out;
    nova_error error;
    void *stream = nova_device_stream(device);
    for (int i = 0; i < SIZE; i++)
        x[i] = first + (float)i;
    CHECK(nova_device_take(device, sizeof x, stream, &in, &error) == NOVA_OK);
    CHECK(nova_device_take(device, sizeof y, stream, &out, &error) == NOVA_OK);
    CHECK(nova_device_upload(device, in->address, x, sizeof x, stream, &error) == NOVA_OK);
    const nova_device_value argument = {.address = in->address}, output = {.address = out->address};
    CHECK(nova_device_program_run(program, &argument, &output, &NOVA_RUN_ON(stream), &error) ==
          NOVA_OK);
    CHECK(nova_device_download(device, y, out->address, sizeof y, stream, &error) == NOVA_OK);
    for (int i = 0; i < SIZE; i++)
        CHECK(y[i] == 6 * x[i]);
    nova_device_give(device, in);
    nova_device_give(device, out);
}

/* A traced run: three kernels in their order between a copy in and a copy out, all within the
 * run. */
static void run_traced(nova_device *device, nova_device_program *program, bool is_read)
{
    static const uint32_t span_types[] = {NOVA_SPAN_COPY_IN, NOVA_SPAN_KERNEL, NOVA_SPAN_KERNEL,
                                          NOVA_SPAN_KERNEL, NOVA_SPAN_COPY_OUT};
    float x[SIZE] = {1}, y[SIZE];
    nova_error error;
    nova_device_trace *trace;
    nova_device_timeline timeline, again;
    const nova_device_value argument = {.host = x}, output = {.host = y};
    CHECK(nova_device_trace_create(device, &trace, &error) == NOVA_OK);
    const nova_device_run_options options = {.stream = NOVA_OWN_STREAM, .trace = trace};
    CHECK(nova_device_program_run(program, &argument, &output, &options, &error) == NOVA_OK);
    CHECK(y[0] == 6 * x[0]);
    if (is_read) {
        nova_device_trace_read(trace, &timeline);
        nova_device_trace_read(trace, &again);
        CHECK(timeline.spans == again.spans && timeline.span_count == again.span_count);
        CHECK(timeline.lost == 0 && timeline.value_count == 2);
        CHECK(timeline.values[0] == 0 && timeline.values[1] == 1);
        uint64_t on_device = 0, on_host = 0, last_end = 0;
        uint32_t launch = 0;
        for (size_t i = 0; i < timeline.span_count; i++) {
            const nova_span *span = &timeline.spans[i];
            CHECK(timeline.start_ns <= span->start_ns && span->start_ns <= span->end_ns);
            CHECK(span->end_ns <= timeline.end_ns);
            if (span->kind >= NOVA_SPAN_ENQUEUE) {
                on_host += span->end_ns - span->start_ns;
                continue;
            }
            CHECK(on_device < 5 && span->kind == span_types[on_device++]);
            CHECK(span->start_ns >= last_end);
            last_end = span->end_ns;
            if (span->kind == NOVA_SPAN_KERNEL)
                CHECK(span->launch == launch++);
            else
                CHECK(span->launch == NOVA_NO_LAUNCH && span->count == 1 &&
                      span->bytes >= 4 * SIZE);
        }
        CHECK(on_device == 5 && on_host > 0 && on_host <= timeline.end_ns - timeline.start_ns);
    }
    nova_device_trace_destroy(trace);
}

/* A run of values on the device: it does not wait, but for its mark. */
static void run_marked(nova_device *device, nova_device_program *program)
{
    nova_device_block *in, *out;
    nova_error error;
    nova_device_trace *trace;
    nova_device_timeline timeline;
    void *stream = nova_device_stream(device), *event;
    CHECK(nova_device_take(device, 4 * SIZE, stream, &in, &error) == NOVA_OK);
    CHECK(nova_device_take(device, 4 * SIZE, stream, &out, &error) == NOVA_OK);
    CHECK(nova_device_trace_create(device, &trace, &error) == NOVA_OK);
    const nova_device_value argument = {.address = in->address}, output = {.address = out->address};
    for (int waits = 0; waits < 2; waits++) {
        const nova_device_run_options options = {
            .stream = stream, .trace = waits ? trace : NULL, .waits = waits};
        CHECK(nova_device_program_run(program, &argument, &output, &options, &error) == NOVA_OK);
    }
    CHECK(nova_device_mark(device, stream, &event, &error) == NOVA_OK);
    CHECK(nova_device_await(device, event, &error) == NOVA_OK);
    nova_device_trace_read(trace, &timeline);
    CHECK(timeline.lost == 0 && timeline.value_count == 0);
    CHECK(timeline.spans[timeline.span_count - 1].kind == NOVA_SPAN_WAIT);
    nova_device_trace_destroy(trace);
    nova_device_give(device, in);
    nova_device_give(device, out);
}

typedef struct {
    nova_device *device;
    nova_device_program *program;
    int number;
} worker;

static void *work(void *context)
{
    const worker *worker_context = context;
    for (int i = 0; i < RUNS; i++) {
        run_host(worker_context->program, (float)(worker_context->number * RUNS + i));
        run_device(worker_context->device, worker_context->program,
                   (float)(worker_context->number * RUNS + i));
        run_traced(worker_context->device, worker_context->program, i % 4 != 0);
        run_marked(worker_context->device, worker_context->program);
    }
    return NULL;
}

static void test_threads(nova_driver *driver)
{
    nova_device *device;
    nova_device_program *program;
    nova_error error;
    CHECK(nova_device_open(driver, 0, &device, &error) == NOVA_OK);
    CHECK(make(device, &program, &error) == NOVA_OK);
    pthread_t threads[THREADS];
    worker workers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){device, program, i};
        CHECK(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(nova_device_program_counts(program).runs == 5 * THREADS * RUNS);
    nova_device_program_destroy(program);
    nova_device_close(device);
}

/* A trace never fails a run: spans without events are lost. */
static void test_lost(nova_driver *driver)
{
    nova_device *device;
    nova_device_program *program;
    nova_device_trace *trace;
    nova_device_timeline timeline;
    nova_error error;
    float x[SIZE] = {1}, y[SIZE];
    const nova_device_value argument = {.host = x}, output = {.host = y};
    CHECK(nova_device_open(driver, 0, &device, &error) == NOVA_OK);
    CHECK(make(device, &program, &error) == NOVA_OK);
    run_host(program, 0);
    CHECK(nova_device_trace_create(NULL, &trace, &error) == NOVA_INVALID_ARGUMENT);
    fail("cuEventCreate", 1, 999);
    CHECK(nova_device_trace_create(device, &trace, &error) == NOVA_DEVICE_CALL);
    fail("cuEventCreate", 0, 0);
    CHECK(nova_device_trace_create(device, &trace, &error) == NOVA_OK);
    const nova_device_run_options options = {.stream = NOVA_OWN_STREAM, .trace = trace};
    fail("cuEventCreate", 3, 999); /* the first kernel has none for its begin */
    CHECK(nova_device_program_run(program, &argument, &output, &options, &error) == NOVA_OK);
    CHECK(y[0] == 6);
    fail("cuEventCreate", 0, 0);
    nova_device_trace_read(trace, &timeline);
    CHECK(timeline.lost == 4);
    nova_device_trace_destroy(trace);
    CHECK(nova_device_trace_create(device, &trace, &error) == NOVA_OK);
    const nova_device_run_options second = {.stream = NOVA_OWN_STREAM, .trace = trace};
    CHECK(nova_device_program_run(program, &argument, &output, &second, &error) == NOVA_OK);
    fail("cuEventElapsedTime", 1, 999);
    nova_device_trace_read(trace, &timeline);
    CHECK(timeline.lost == 5);
    nova_device_trace_destroy(trace);
    nova_device_program_destroy(program);
    nova_device_close(device);
    reset();
}

static void test_fault(nova_driver *driver)
{
    nova_device *device;
    nova_device_program *program;
    nova_error error;
    float x[SIZE] = {0}, y[SIZE];
    const nova_device_value argument = {.host = x}, output = {.host = y};
    CHECK(nova_device_open(driver, 0, &device, &error) == NOVA_OK);
    CHECK(make(device, &program, &error) == NOVA_OK);
    run_host(program, 0);
    fail("cuStreamSynchronize", 1, 700);
    for (int i = 0; i < 3; i++) {
        CHECK(nova_device_program_run(program, &argument, &output, &NOVA_RUN_ON(NOVA_OWN_STREAM),
                                      &error) == NOVA_DEVICE_FAULT);
        CHECK(strstr(error.text, "an illegal memory access") != NULL);
    }
    nova_device_trace *trace;
    void *event;
    CHECK(nova_device_trace_create(device, &trace, &error) == NOVA_DEVICE_FAULT);
    CHECK(nova_device_mark(device, NULL, &event, &error) == NOVA_DEVICE_FAULT);
    nova_device_program_destroy(program);
    nova_device_close(device);
    reset();
}

static void test_misuse(nova_driver *driver)
{
    nova_device *device;
    nova_device_program *program;
    nova_error error;
    CHECK(nova_device_open(driver, 7, &device, &error) == NOVA_WRONG_DEVICE);
    CHECK(nova_device_open(NULL, 0, &device, &error) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_device_open(driver, 0, &device, &error) == NOVA_OK);
    CHECK(nova_device_program_create(device, NULL, &program, &error) == NOVA_INVALID_ARGUMENT);
    CHECK(make(device, &program, &error) == NOVA_OK);
    const nova_device_value empty = {0};
    CHECK(nova_device_program_run(program, &empty, &empty, &NOVA_RUN_ON(NOVA_OWN_STREAM), &error) ==
          NOVA_INVALID_ARGUMENT);
    CHECK(nova_device_program_run(program, NULL, &empty, &NOVA_RUN_ON(NOVA_OWN_STREAM), &error) ==
          NOVA_INVALID_ARGUMENT);
    run_host(program, 1);
    nova_device_block *block;
    CHECK(nova_device_take(device, UINT64_MAX, NULL, &block, &error) == NOVA_DEVICE_MEMORY);
    CHECK(nova_device_take(device, UINT64_C(1) << 40, NULL, &block, &error) == NOVA_DEVICE_MEMORY);
    nova_device_program_destroy(program);
    nova_device_close(device);
}

int main(int count, char **words)
{
    nova_driver *driver;
    nova_error error;
    CHECK(count == 2);
    void *library = dlopen(words[1], RTLD_NOW);
    CHECK(library != NULL);
    *(void **)&fail = dlsym(library, "fake_fail");
    *(void **)&reset = dlsym(library, "fake_reset");
    CHECK(nova_cuda_open("/no/such/library", &driver, &error) == NOVA_NO_DRIVER);
    CHECK(nova_cuda_open(words[1], &driver, &error) == NOVA_OK);
    test_threads(driver);
    test_misuse(driver);
    test_lost(driver);
    test_fault(driver);
    nova_cuda_close(driver);
    return 0;
}
