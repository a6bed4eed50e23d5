/* The simulated GPU behind the table of driver calls: memory of the host, streams that are queues.
 *
 * Nothing runs when it is enqueued. A stream runs when somebody waits for it, and only as far as that needs: work
 * of another stream runs when an event orders it before. So a program that relies on an order which nothing
 * guarantees reads what is not there yet. One lock guards all of it: the launches themselves take the time. */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim_driver.h"

/* Numbers that the table's calls give. */
enum { SIM_OK, SIM_NO_MEMORY, SIM_FAULT, SIM_BAD_CODE, SIM_NO_KERNEL, SIM_BAD_LAUNCH, SIM_BAD_ADDRESS };

enum { ALIGNMENT = 256, MOST_SHARED = 227 << 10 };
#define MOST_STEPS UINT64_C(200000000)

typedef struct block {
    uint64_t address, size;
    uint8_t *state; /* one byte each: whether it was written */
    struct block *next;
} block;

typedef struct module module;

typedef struct {
    const module *of;
    const char *name;
    sim_kernel kernel;
    uint32_t param_bytes, most_threads;
    uint32_t required[3];
} function;

struct module {
    char *image;
    const char *text; /* the PTX, for its lines */
    uint64_t text_size;
    uint32_t count;
    function functions[];
};

typedef struct event event;
typedef struct stream stream;

typedef enum { COPY_IN, COPY_OUT, COPY_WITHIN, FORGET, RECORD, WAIT, LAUNCH } what;

/* One thing to do; a launch has its arguments and ranges behind it. */
typedef struct work {
    struct work *next;
    what what;
    uint64_t to, from, size, ticket;
    void *host;
    event *event;
    stream *recorded; /* of a wait: where its event was recorded when it was asked for */
    const function *function;
    nova_device_launch shape;
    uint32_t argument_count, range_count;
    uint64_t data[];
} work;

struct stream {
    work *first, *last;
    stream *next;
};

/* `ticket` counts how often it was recorded, the last time in the stream `in`. */
struct event {
    uint64_t ticket;
    stream *in;
};

/* Launches as a list that is enqueued again and again. */
typedef struct {
    uint32_t count;
    work *calls[];
} graph;

typedef struct {
    nova_driver driver; /* first: callers have a pointer to it */
    pthread_mutex_t mutex;
    block *blocks;
    stream *streams;
    stream usual; /* the one that is NULL */
    nova_sim_report report; /* of the last launch that failed */
    bool has_report;
    char why[160];
} simulator;

static simulator *of(nova_driver *driver)
{
    return (simulator *)driver;
}

/* --- what numbers mean ------------------------------------------------------------------------ */

static nova_status classify(nova_driver *driver, int result)
{
    (void)driver;
    switch (result) {
    case SIM_NO_MEMORY:
        return NOVA_DEVICE_MEMORY;
    case SIM_FAULT:
        return NOVA_SIMULATED_FAULT;
    case SIM_BAD_CODE:
    case SIM_NO_KERNEL:
        return NOVA_DEVICE_CODE;
    }
    return NOVA_DEVICE_CALL;
}

static void explain(nova_driver *driver, int result, char *text, size_t size)
{
    static const char *const words[] = {
        [SIM_NO_MEMORY] = "this machine has no memory left for the simulation",
        [SIM_BAD_CODE] = "this is no code for the simulator",
        [SIM_NO_KERNEL] = "it is not in the code",
        [SIM_BAD_ADDRESS] = "an address that is in no block",
    };
    simulator *s = of(driver);
    pthread_mutex_lock(&s->mutex);
    if (result == SIM_BAD_LAUNCH)
        (void)snprintf(text, size, "%s", s->why);
    else if (result == SIM_FAULT)
        (void)snprintf(text, size, "kernel %s, line %u of the PTX", s->report.kernel, s->report.fault.line);
    else
        (void)snprintf(text, size, "%s", words[result]);
    pthread_mutex_unlock(&s->mutex);
}

/* --- devices and contexts: there is one of each ------------------------------------------------ */

static int count(nova_driver *driver, int *number)
{
    (void)driver;
    *number = 1;
    return SIM_OK;
}

static int describe(nova_driver *driver, int ordinal, nova_device_info *info)
{
    (void)driver, (void)ordinal;
    *info = (nova_device_info){.name = "the simulator", .major = 9, .multiprocessors = 1, .memory = UINT64_C(1) << 40};
    return SIM_OK;
}

static int memory_left(nova_driver *driver, uint64_t *bytes)
{
    (void)driver;
    *bytes = 0;
    return SIM_OK;
}

static int context_open(nova_driver *driver, int ordinal, void **context)
{
    (void)ordinal;
    *context = driver;
    return SIM_OK;
}

static void context_close(nova_driver *driver, int ordinal, void *context)
{
    (void)driver, (void)ordinal, (void)context;
}

static int enter(nova_driver *driver, void *context)
{
    (void)driver, (void)context;
    return SIM_OK;
}

static void leave(nova_driver *driver)
{
    (void)driver;
}

/* --- code ------------------------------------------------------------------------------------- */

/* As nova/runtime/sim_image.py packs it: this header, a row for each kernel, and what they point to. */
typedef struct {
    char magic[8];
    uint64_t count, text, text_size;
} image_header;

typedef struct {
    uint64_t name, code, length, operands, operand_count, constants, constant_count;
    uint32_t register_words, shared_bytes, local_bytes, param_bytes, most_threads, required[3];
} image_row;

static bool fits(uint64_t size, uint64_t at, uint64_t number, uint64_t each)
{
    return at % 8 == 0 && at <= size && number <= (size - at) / each;
}

static bool read_row(const char *image, uint64_t size, const image_row *row, function *made)
{
    if (!fits(size, row->code, row->length, sizeof(sim_instruction)) || row->length == 0 ||
        !fits(size, row->operands, row->operand_count, sizeof(sim_operand)) ||
        !fits(size, row->constants, row->constant_count, sizeof(uint64_t)) || row->name >= size)
        return false;
    made->name = image + row->name;
    made->kernel = (sim_kernel){
        .code = (const void *)(image + row->code),
        .length = (uint32_t)row->length,
        .operands = (const void *)(image + row->operands),
        .constants = (const void *)(image + row->constants),
        .constant_count = (uint32_t)row->constant_count,
        .register_words = row->register_words,
        .shared_bytes = row->shared_bytes,
        .local_bytes = row->local_bytes,
    };
    made->param_bytes = row->param_bytes;
    made->most_threads = row->most_threads;
    memcpy(made->required, row->required, sizeof made->required);
    return true;
}

static int drain_all(simulator *s);

static void module_unload(nova_driver *driver, void *given)
{
    simulator *s = of(driver);
    module *made = given;
    pthread_mutex_lock(&s->mutex);
    (void)drain_all(s); /* launches may still be of it */
    pthread_mutex_unlock(&s->mutex);
    free(made->image);
    free(made);
}

static int module_load(nova_driver *driver, const void *image, size_t size, uint32_t kind, char *log, size_t log_size,
                       void **loaded)
{
    (void)kind, (void)log_size;
    *log = '\0';
    const image_header *header = image;
    if (size < sizeof *header || memcmp(header->magic, "NOVASIM1", 8) != 0 ||
        !fits(size, sizeof *header, header->count, sizeof(image_row)) || !fits(size, header->text, header->text_size, 1))
        return SIM_BAD_CODE;
    module *made = calloc(1, sizeof *made + header->count * sizeof(function));
    char *copy = malloc(size + 1);
    if (made == NULL || copy == NULL) {
        free(made);
        free(copy);
        return SIM_NO_MEMORY;
    }
    memcpy(copy, image, size);
    copy[size] = '\0';
    made->image = copy;
    made->text = copy + header->text;
    made->text_size = header->text_size;
    made->count = (uint32_t)header->count;
    const image_row *rows = (const void *)(copy + sizeof *header);
    for (uint32_t i = 0; i < made->count; i++) {
        made->functions[i].of = made;
        if (!read_row(copy, size, &rows[i], &made->functions[i])) {
            module_unload(driver, made);
            return SIM_BAD_CODE;
        }
    }
    *loaded = made;
    return SIM_OK;
}

static int function_find(nova_driver *driver, void *given, const char *name, void **found)
{
    (void)driver;
    module *in = given;
    for (uint32_t i = 0; i < in->count; i++)
        if (strcmp(in->functions[i].name, name) == 0) {
            *found = &in->functions[i];
            return SIM_OK;
        }
    return SIM_NO_KERNEL;
}

static int function_allow_shared(nova_driver *driver, void *given, uint32_t bytes)
{
    (void)driver, (void)given, (void)bytes;
    return SIM_OK;
}

/* --- memory ----------------------------------------------------------------------------------- */

static int memory_take(nova_driver *driver, uint64_t size, uint64_t *address)
{
    simulator *s = of(driver);
    block *made = calloc(1, sizeof *made);
    void *memory = aligned_alloc(ALIGNMENT, (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    uint8_t *state = calloc(size + 1, 1);
    if (made == NULL || memory == NULL || state == NULL) {
        free(made);
        free(memory);
        free(state);
        return SIM_NO_MEMORY;
    }
    memset(memory, 0xa5, size);
    *made = (block){.address = (uintptr_t)memory, .size = size, .state = state};
    pthread_mutex_lock(&s->mutex);
    made->next = s->blocks;
    s->blocks = made;
    pthread_mutex_unlock(&s->mutex);
    *address = made->address;
    return SIM_OK;
}

/* The block that holds all of these bytes, or NULL. */
static block *find_block(const simulator *s, uint64_t address, uint64_t size)
{
    for (block *b = s->blocks; b != NULL; b = b->next)
        if (address - b->address <= b->size && size <= b->size - (address - b->address))
            return b;
    return NULL;
}

static int drain(simulator *s, stream *in, const event *until, uint64_t ticket);
static bool is_recorded(const stream *in, const event *of, uint64_t ticket);

static int drain_all(simulator *s)
{
    int result = drain(s, &s->usual, NULL, 0);
    for (stream *in = s->streams; in != NULL; in = in->next) {
        int other = drain(s, in, NULL, 0);
        result = result != SIM_OK ? result : other;
    }
    return result;
}

static void memory_free(nova_driver *driver, uint64_t address)
{
    simulator *s = of(driver);
    pthread_mutex_lock(&s->mutex);
    (void)drain_all(s);
    for (block **at = &s->blocks; *at != NULL; at = &(*at)->next)
        if ((*at)->address == address) {
            block *gone = *at;
            *at = gone->next;
            free((void *)(uintptr_t)gone->address);
            free(gone->state);
            free(gone);
            break;
        }
    pthread_mutex_unlock(&s->mutex);
}

static int pinned_take(nova_driver *driver, uint64_t size, void **memory)
{
    (void)driver;
    *memory = malloc(size);
    return *memory != NULL ? SIM_OK : SIM_NO_MEMORY;
}

static void pinned_free(nova_driver *driver, void *memory)
{
    simulator *s = of(driver);
    pthread_mutex_lock(&s->mutex);
    (void)drain_all(s); /* a copy may still name it */
    pthread_mutex_unlock(&s->mutex);
    free(memory);
}

/* --- running what was enqueued ---------------------------------------------------------------- */

/* The bytes of a copy, checked; marks them as written where they go to. */
static int copy(simulator *s, const work *w)
{
    block *to = w->what == COPY_OUT ? NULL : find_block(s, w->to, w->size);
    block *from = w->what == COPY_IN ? NULL : find_block(s, w->from, w->size);
    if ((w->what != COPY_OUT && to == NULL) || (w->what != COPY_IN && from == NULL))
        return SIM_BAD_ADDRESS;
    void *target = w->what == COPY_OUT ? w->host : (void *)(uintptr_t)w->to;
    const void *source = w->what == COPY_IN ? w->host : (const void *)(uintptr_t)w->from;
    memmove(target, source, w->size);
    if (to != NULL && from != NULL)
        memmove(to->state + (w->to - to->address), from->state + (w->from - from->address), w->size);
    else if (to != NULL)
        memset(to->state + (w->to - to->address), 1, w->size);
    return SIM_OK;
}

/* The text of a line of the PTX, cut to what there is room for. */
static void copy_line(const module *in, uint32_t number, char *text, size_t size)
{
    const char *line = in->text, *end = in->text + in->text_size;
    for (uint32_t i = 1; i < number && line < end; i++) {
        const char *next = memchr(line, '\n', (size_t)(end - line));
        line = next != NULL ? next + 1 : end;
    }
    const char *stop = line < end ? memchr(line, '\n', (size_t)(end - line)) : NULL;
    (void)snprintf(text, size, "%.*s", (int)((stop != NULL ? stop : end) - line), line);
}

/* Remembers a fault, its line, and the operand that is nearest to where it happened. */
static void remember(simulator *s, const function *f, const sim_fault *fault, const sim_range *ranges, uint32_t number)
{
    nova_sim_report *report = &s->report;
    uint64_t best = UINT64_MAX;
    *report = (nova_sim_report){.fault = *fault};
    for (uint32_t i = 0; i < number; i++) {
        uint64_t start = ranges[i].start, end = start + ranges[i].size, at = fault->address;
        uint64_t away = at < start ? start - at : at >= end ? at - end + 1 : 0;
        if (away < best) {
            best = away;
            report->near_address = start;
            report->near_size = ranges[i].size;
        }
    }
    (void)snprintf(report->kernel, sizeof report->kernel, "%s", f->name);
    copy_line(f->of, fault->line, report->line, sizeof report->line);
    s->has_report = true;
}

static int launch_now(simulator *s, const work *w)
{
    const nova_device_range *given = (const void *)(w->data + w->argument_count);
    sim_range *ranges = calloc(w->range_count + 1, sizeof *ranges);
    if (ranges == NULL)
        return SIM_NO_MEMORY;
    for (uint32_t i = 0; i < w->range_count; i++) {
        block *in = find_block(s, given[i].address, given[i].size);
        if (in == NULL) {
            free(ranges);
            return SIM_BAD_ADDRESS;
        }
        ranges[i] = (sim_range){.start = given[i].address,
                                .size = given[i].size,
                                .state = in->state + (given[i].address - in->address),
                                .read_only = given[i].is_read_only};
    }
    const sim_launch launch = {
        .ranges = ranges,
        .range_count = w->range_count,
        .params = (const void *)w->data,
        .param_bytes = w->argument_count * (uint32_t)sizeof *w->data,
        .grid = {w->shape.grid[0], w->shape.grid[1], w->shape.grid[2]},
        .block = {w->shape.block[0], w->shape.block[1], w->shape.block[2]},
        .dynamic_shared = w->shape.shared,
        .most_steps = MOST_STEPS,
        .check_races = 1,
    };
    sim_fault fault;
    int failed = nova_sim_run(&w->function->kernel, &launch, &fault);
    if (failed)
        remember(s, w->function, &fault, ranges, w->range_count);
    free(ranges);
    return failed ? SIM_FAULT : SIM_OK;
}

static int do_work(simulator *s, const work *w)
{
    block *in;
    switch (w->what) {
    case LAUNCH:
        return launch_now(s, w);
    case WAIT:
        return is_recorded(w->recorded, w->event, w->ticket) ? SIM_OK
                                                             : drain(s, w->recorded, w->event, w->ticket);
    case RECORD:
        return SIM_OK; /* it is no more in its stream */
    case FORGET:
        in = find_block(s, w->to, w->size);
        if (in != NULL)
            memset(in->state + (w->to - in->address), 0, w->size);
        return in != NULL ? SIM_OK : SIM_BAD_ADDRESS;
    default:
        return copy(s, w);
    }
}

/* Whether a stream has come to where `of` was recorded with `ticket`. An event may be recorded anew, also in another
 * stream, before that. */
static bool is_recorded(const stream *in, const event *of, uint64_t ticket)
{
    for (const work *w = in != NULL ? in->first : NULL; w != NULL; w = w->next)
        if (w->what == RECORD && w->event == of && w->ticket == ticket)
            return false;
    return true;
}

/* Runs a stream, up to where `until` was recorded with `ticket` (NULL: to its end). After a failure the rest is
 * dropped; what was recorded in it counts as done, so that others do not wait for ever. */
static int drain(simulator *s, stream *in, const event *until, uint64_t ticket)
{
    int result = SIM_OK;
    while (in->first != NULL && (result != SIM_OK || until == NULL || !is_recorded(in, until, ticket))) {
        work *w = in->first;
        in->first = w->next;
        if (in->first == NULL)
            in->last = NULL;
        if (result == SIM_OK || w->what == RECORD) {
            int own = do_work(s, w);
            result = result != SIM_OK ? result : own;
        }
        free(w);
    }
    return result;
}

/* --- enqueueing ------------------------------------------------------------------------------- */

static stream *stream_of(simulator *s, void *handle)
{
    return handle != NULL ? handle : &s->usual;
}

static int push(simulator *s, void *handle, work *w)
{
    if (w == NULL)
        return SIM_NO_MEMORY;
    pthread_mutex_lock(&s->mutex);
    stream *in = stream_of(s, handle);
    if (w->what == RECORD) {
        w->ticket = ++w->event->ticket;
        w->event->in = in;
    } else if (w->what == WAIT) {
        w->ticket = w->event->ticket;
        w->recorded = w->event->in;
    }
    w->next = NULL;
    if (in->last != NULL)
        in->last->next = w;
    else
        in->first = w;
    in->last = w;
    pthread_mutex_unlock(&s->mutex);
    return SIM_OK;
}

static work *make_work(work given, size_t words)
{
    work *made = malloc(sizeof *made + words * sizeof made->data[0]);
    if (made != NULL)
        *made = given;
    return made;
}

static int copy_in(nova_driver *driver, uint64_t to, const void *from, uint64_t size, void *stream)
{
    work w = {.what = COPY_IN, .to = to, .host = (void *)(uintptr_t)from, .size = size};
    return push(of(driver), stream, make_work(w, 0));
}

static int copy_out(nova_driver *driver, void *to, uint64_t from, uint64_t size, void *stream)
{
    return push(of(driver), stream, make_work((work){.what = COPY_OUT, .host = to, .from = from, .size = size}, 0));
}

static int copy_within(nova_driver *driver, uint64_t to, uint64_t from, uint64_t size, void *stream)
{
    return push(of(driver), stream, make_work((work){.what = COPY_WITHIN, .to = to, .from = from, .size = size}, 0));
}

static int memory_forget(nova_driver *driver, uint64_t address, uint64_t size, void *stream)
{
    return push(of(driver), stream, make_work((work){.what = FORGET, .to = address, .size = size}, 0));
}

/* What the driver of a GPU would refuse. */
static int check_launch(simulator *s, const nova_kernel_call *call)
{
    const function *f = call->function;
    const uint32_t *grid = call->shape->grid, *size = call->shape->block;
    uint64_t threads = (uint64_t)size[0] * size[1] * size[2], blocks = (uint64_t)grid[0] * grid[1] * grid[2];
    const char *wrong = NULL;
    if (threads == 0 || threads > 1024 || (f->most_threads != 0 && threads > f->most_threads))
        wrong = "has more threads than it was compiled for";
    else if (f->required[0] != 0 && memcmp(f->required, size, sizeof f->required) != 0)
        wrong = "has another block than it was compiled for";
    else if (blocks == 0 || blocks >= MOST_BLOCKS)
        wrong = "has more blocks than the simulator can run";
    else if (call->shape->shared > MOST_SHARED - f->kernel.shared_bytes)
        wrong = "has more shared memory than a block can get";
    else if (call->argument_count * sizeof *call->arguments != f->param_bytes)
        wrong = "is given other arguments than it takes";
    if (wrong == NULL)
        return SIM_OK;
    pthread_mutex_lock(&s->mutex);
    (void)snprintf(s->why, sizeof s->why, "kernel %.80s %s", f->name, wrong);
    pthread_mutex_unlock(&s->mutex);
    return SIM_BAD_LAUNCH;
}

static work *make_launch(const nova_kernel_call *call)
{
    size_t words = sizeof(nova_device_range) / sizeof(uint64_t);
    work *made = make_work((work){.what = LAUNCH,
                                  .function = call->function,
                                  .shape = *call->shape,
                                  .argument_count = call->argument_count,
                                  .range_count = call->range_count},
                           call->argument_count + call->range_count * words);
    if (made == NULL)
        return NULL;
    memcpy(made->data, call->arguments, call->argument_count * sizeof *call->arguments);
    memcpy(made->data + call->argument_count, call->ranges, call->range_count * sizeof *call->ranges);
    return made;
}

static int launch(nova_driver *driver, const nova_kernel_call *call, void *stream)
{
    int result = check_launch(of(driver), call);
    return result != SIM_OK ? result : push(of(driver), stream, make_launch(call));
}

static void graph_destroy(nova_driver *driver, void *given)
{
    (void)driver;
    graph *made = given;
    for (uint32_t i = 0; i < made->count; i++)
        free(made->calls[i]);
    free(made);
}

static int graph_create(nova_driver *driver, const nova_kernel_call *calls, uint32_t number, void **created)
{
    graph *made = calloc(1, sizeof *made + number * sizeof made->calls[0]);
    int result = made == NULL ? SIM_NO_MEMORY : SIM_OK;
    for (uint32_t i = 0; result == SIM_OK && i < number; i++) {
        result = check_launch(of(driver), &calls[i]);
        made->calls[i] = result == SIM_OK ? make_launch(&calls[i]) : NULL;
        if (result == SIM_OK && made->calls[i] == NULL)
            result = SIM_NO_MEMORY;
        made->count = i + 1;
    }
    if (result == SIM_OK)
        *created = made;
    else if (made != NULL)
        graph_destroy(driver, made);
    return result;
}

static int graph_update(nova_driver *driver, void *given, uint32_t index, const nova_kernel_call *call)
{
    (void)driver;
    graph *in = given;
    work *made = make_launch(call);
    if (made == NULL)
        return SIM_NO_MEMORY;
    free(in->calls[index]);
    in->calls[index] = made;
    return SIM_OK;
}

static int graph_launch(nova_driver *driver, void *given, void *stream)
{
    const graph *in = given;
    int result = SIM_OK;
    for (uint32_t i = 0; result == SIM_OK && i < in->count; i++) {
        const work *w = in->calls[i];
        size_t words = w->argument_count + w->range_count * (sizeof(nova_device_range) / sizeof(uint64_t));
        work *made = make_work(*w, words);
        if (made != NULL)
            memcpy(made->data, w->data, words * sizeof w->data[0]);
        result = push(of(driver), stream, made);
    }
    return result;
}

/* --- streams and events ----------------------------------------------------------------------- */

static int stream_create(nova_driver *driver, void **created)
{
    simulator *s = of(driver);
    stream *made = calloc(1, sizeof *made);
    if (made == NULL)
        return SIM_NO_MEMORY;
    pthread_mutex_lock(&s->mutex);
    made->next = s->streams;
    s->streams = made;
    pthread_mutex_unlock(&s->mutex);
    *created = made;
    return SIM_OK;
}

/* Its handle stays valid, as blocks and events may name it: all streams are freed with the driver. */
static void stream_destroy(nova_driver *driver, void *handle)
{
    simulator *s = of(driver);
    pthread_mutex_lock(&s->mutex);
    (void)drain(s, stream_of(s, handle), NULL, 0);
    pthread_mutex_unlock(&s->mutex);
}

static int stream_synchronize(nova_driver *driver, void *handle)
{
    simulator *s = of(driver);
    pthread_mutex_lock(&s->mutex);
    int result = drain(s, stream_of(s, handle), NULL, 0);
    pthread_mutex_unlock(&s->mutex);
    return result;
}

static int stream_wait(nova_driver *driver, void *handle, void *given)
{
    return push(of(driver), handle, make_work((work){.what = WAIT, .event = given}, 0));
}

static int event_create(nova_driver *driver, bool timed, void **created)
{
    (void)driver, (void)timed;
    *created = calloc(1, sizeof(event));
    return *created != NULL ? SIM_OK : SIM_NO_MEMORY;
}

static void event_destroy(nova_driver *driver, void *given)
{
    simulator *s = of(driver);
    pthread_mutex_lock(&s->mutex);
    (void)drain_all(s); /* something may wait for it */
    pthread_mutex_unlock(&s->mutex);
    free(given);
}

static int event_record(nova_driver *driver, void *given, void *handle)
{
    return push(of(driver), handle, make_work((work){.what = RECORD, .event = given}, 0));
}

static int event_synchronize(nova_driver *driver, void *given)
{
    simulator *s = of(driver);
    event *e = given;
    pthread_mutex_lock(&s->mutex);
    int result = is_recorded(e->in, e, e->ticket) ? SIM_OK : drain(s, e->in, e, e->ticket);
    pthread_mutex_unlock(&s->mutex);
    return result;
}

static int event_elapsed(nova_driver *driver, void *from, void *to, float *milliseconds)
{
    (void)driver, (void)from, (void)to;
    *milliseconds = 0; /* time means nothing here */
    return SIM_OK;
}

/* --- opening ---------------------------------------------------------------------------------- */

static const nova_driver TABLE = {
    .name = "sim",
    .checks_ranges = true,
    .classify = classify,
    .explain = explain,
    .count = count,
    .describe = describe,
    .memory_left = memory_left,
    .context_open = context_open,
    .context_close = context_close,
    .enter = enter,
    .leave = leave,
    .module_load = module_load,
    .module_unload = module_unload,
    .function_find = function_find,
    .function_allow_shared = function_allow_shared,
    .memory_take = memory_take,
    .memory_free = memory_free,
    .memory_forget = memory_forget,
    .pinned_take = pinned_take,
    .pinned_free = pinned_free,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_synchronize = stream_synchronize,
    .stream_wait = stream_wait,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_synchronize = event_synchronize,
    .event_elapsed = event_elapsed,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .copy_within = copy_within,
    .launch = launch,
    .graph_create = graph_create,
    .graph_destroy = graph_destroy,
    .graph_update = graph_update,
    .graph_launch = graph_launch,
};

nova_status nova_sim_open(nova_driver **driver, nova_error *error)
{
    simulator *made = calloc(1, sizeof *made);
    if (made == NULL || pthread_mutex_init(&made->mutex, NULL) != 0) {
        free(made);
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the simulator");
    }
    made->driver = TABLE;
    *driver = &made->driver;
    return NOVA_OK;
}

void nova_sim_close(nova_driver *driver)
{
    simulator *s = of(driver);
    if (s == NULL)
        return;
    (void)drain_all(s);
    while (s->streams != NULL) {
        stream *gone = s->streams;
        s->streams = gone->next;
        free(gone);
    }
    pthread_mutex_destroy(&s->mutex);
    free(s);
}

bool nova_sim_last_fault(nova_driver *driver, nova_sim_report *report)
{
    simulator *s = of(driver);
    pthread_mutex_lock(&s->mutex);
    bool found = s->has_report;
    if (found)
        *report = s->report;
    pthread_mutex_unlock(&s->mutex);
    return found;
}
