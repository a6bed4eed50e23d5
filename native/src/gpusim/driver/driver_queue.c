/* Streams of the simulator: queues of work, which run when a caller waits for them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nova/scheduler.h"
#include "gpusim/driver/driver_state.h"

/* --- running enqueued work -------------------------------------------------------------------- */

/* The bytes of a copy, checked; marks them as written where they go to. */
static int queue_copy(simulator *s, const work *w)
{
    block *to = w->operation == COPY_OUT ? NULL : sim_find_block(s, w->to, w->size);
    block *from = w->operation == COPY_IN ? NULL : sim_find_block(s, w->from, w->size);
    if ((w->operation != COPY_OUT && to == NULL) || (w->operation != COPY_IN && from == NULL))
        return SIM_BAD_ADDRESS;
    void *target = w->operation == COPY_OUT ? w->host : (void *)(uintptr_t)w->to;
    const void *source = w->operation == COPY_IN ? w->host : (const void *)(uintptr_t)w->from;
    memmove(target, source, w->size);
    if (to != NULL && from != NULL)
        memmove(to->state + (w->to - to->address), from->state + (w->from - from->address),
                w->size);
    else if (to != NULL)
        memset(to->state + (w->to - to->address), 1, w->size);
    return SIM_OK;
}

static int queue_drain(simulator *s, stream *in, const event *until, uint64_t ticket);

/* Whether a stream has reached the point where `of` was recorded with `ticket`. An event may be
 * recorded again, also in another stream, before that. */
static bool queue_is_recorded(const stream *in, const event *of, uint64_t ticket)
{
    for (const work *w = in != NULL ? in->first : NULL; w != NULL; w = w->next)
        if (w->operation == RECORD && w->event == of && w->ticket == ticket)
            return false;
    return true;
}

static int queue_do_work(simulator *s, const work *w)
{
    block *in;
    switch (w->operation) {
    case LAUNCH:
        return sim_launch_now(s, w);
    case FLOW:
        return sim_flow_now(s, w->flow);
    case WAIT:
        return queue_is_recorded(w->recorded, w->event, w->ticket)
                   ? SIM_OK
                   : queue_drain(s, w->recorded, w->event, w->ticket);
    case RECORD:
        w->event->at_ns = nova_clock_ns();
        return SIM_OK; /* it is no longer in its stream */
    case FORGET:
        in = sim_find_block(s, w->to, w->size);
        if (in != NULL)
            memset(in->state + (w->to - in->address), 0, w->size);
        return in != NULL ? SIM_OK : SIM_BAD_ADDRESS;
    default:
        return queue_copy(s, w);
    }
}

/* Runs a stream, up to the point where `until` was recorded with `ticket` (NULL: to its end). After
 * a failure the remaining work is dropped; events recorded in it count as reached, so that other
 * streams do not wait forever. */
static int queue_drain(simulator *s, stream *in, const event *until, uint64_t ticket)
{
    int result = SIM_OK;
    while (in->first != NULL &&
           (result != SIM_OK || until == NULL || !queue_is_recorded(in, until, ticket))) {
        work *w = in->first;
        in->first = w->next;
        if (in->first == NULL)
            in->last = NULL;
        if (result == SIM_OK || w->operation == RECORD) {
            int status = queue_do_work(s, w);
            result = result != SIM_OK ? result : status;
        }
        free(w);
    }
    return result;
}

int sim_drain_all(simulator *s)
{
    int result = queue_drain(s, &s->usual, NULL, 0);
    for (stream *in = s->streams; in != NULL; in = in->next) {
        int other = queue_drain(s, in, NULL, 0);
        result = result != SIM_OK ? result : other;
    }
    return result;
}

/* --- enqueueing ------------------------------------------------------------------------------- */

static stream *queue_stream_of(simulator *s, void *handle)
{
    return handle != NULL ? handle : &s->usual;
}

static int queue_push(simulator *s, void *handle, work *w)
{
    if (w == NULL)
        return SIM_NO_MEMORY;
    stream *in = queue_stream_of(s, handle);
    bool is_same_context = in->on == s && (w->event == NULL || w->event->on == s) &&
                           (w->function == NULL || w->function->of->on == s);
    if (!is_same_context) {
        free(w);
        return SIM_OTHER_DEVICE;
    }
    pthread_mutex_lock(&s->mutex);
    if (w->operation == RECORD) {
        w->ticket = ++w->event->ticket;
        w->event->in = in;
    } else if (w->operation == WAIT) {
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

static work *queue_make_work(work handle, size_t words)
{
    work *object = malloc(sizeof *object + words * sizeof object->data[0]);
    if (object != NULL)
        *object = handle;
    return object;
}

int nova_sim_copy_in(nova_driver *driver, uint64_t to, const void *from, uint64_t size,
                     void *stream)
{
    work w = {.operation = COPY_IN, .to = to, .host = (void *)(uintptr_t)from, .size = size};
    return queue_push(sim_of(driver), stream, queue_make_work(w, 0));
}

int nova_sim_copy_out(nova_driver *driver, void *to, uint64_t from, uint64_t size, void *stream)
{
    return queue_push(
        sim_of(driver), stream,
        queue_make_work((work){.operation = COPY_OUT, .host = to, .from = from, .size = size}, 0));
}

int nova_sim_copy_within(nova_driver *driver, uint64_t to, uint64_t from, uint64_t size,
                         void *stream)
{
    return queue_push(
        sim_of(driver), stream,
        queue_make_work((work){.operation = COPY_WITHIN, .to = to, .from = from, .size = size}, 0));
}

int nova_sim_memory_forget(nova_driver *driver, uint64_t address, uint64_t size, void *stream)
{
    return queue_push(sim_of(driver), stream,
                      queue_make_work((work){.operation = FORGET, .to = address, .size = size}, 0));
}

/* Words of the parameters of a launch: pointers, then tensor maps at their alignment. */
static uint32_t queue_parameter_words(const nova_kernel_call *call)
{
    enum { WORD = sizeof(uint64_t), STEP = _Alignof(nova_encoded_map) / WORD };
    uint32_t maps = call->shape->tensor_map_count;
    if (maps == 0)
        return call->argument_count;
    uint32_t first = (call->argument_count + STEP - 1) / STEP * STEP;
    return first + maps * (uint32_t)(sizeof(nova_encoded_map) / WORD);
}

/* What the driver of a GPU would refuse. */
int sim_check_launch(simulator *s, const nova_kernel_call *call)
{
    const function *f = call->function;
    const uint32_t *grid = call->shape->grid, *size = call->shape->block;
    uint64_t threads = (uint64_t)size[0] * size[1] * size[2],
             blocks = (uint64_t)grid[0] * grid[1] * grid[2];
    const char *wrong = NULL;
    if (threads == 0 || threads > 1024 || (f->most_threads != 0 && threads > f->most_threads))
        wrong = "has more threads than it was compiled for";
    else if (f->required[0] != 0 && memcmp(f->required, size, sizeof f->required) != 0)
        wrong = "has another block than it was compiled for";
    else if (f->cluster[0] != 0 && (grid[0] % f->cluster[0] != 0 || grid[1] % f->cluster[1] != 0 ||
                                    grid[2] % f->cluster[2] != 0))
        wrong = "has a grid that is not a multiple of its clusters";
    else if (blocks == 0 || blocks >= MOST_BLOCKS)
        wrong = "has more blocks than the simulator can run";
    else if (call->is_cooperative && blocks > MOST_RESIDENT)
        wrong = "is cooperative and has more blocks than run at once";
    else if (call->shape->shared > MOST_SHARED - f->kernel.shared_bytes)
        wrong = "has more shared memory than a block can get";
    else if (call->shape->shared + f->kernel.shared_bytes > USUAL_SHARED &&
             call->shape->shared > f->allowed_shared)
        wrong = "has more shared memory than it was allowed";
    else if (threads * f->kernel.thread_registers > PROCESSOR_REGISTERS)
        wrong = "has more registers than a multiprocessor";
    else if (queue_parameter_words(call) * sizeof *call->arguments != f->param_bytes)
        wrong = "is given other arguments than it takes";
    if (wrong == NULL)
        return SIM_OK;
    pthread_mutex_lock(&s->mutex);
    (void)snprintf(s->why, sizeof s->why, "kernel %.80s %s", f->name, wrong);
    pthread_mutex_unlock(&s->mutex);
    return SIM_BAD_LAUNCH;
}

work *sim_make_launch(const nova_kernel_call *call)
{
    size_t words = sizeof(nova_device_range) / sizeof(uint64_t);
    size_t map_words = call->shape->tensor_map_count * sizeof *call->maps / sizeof(uint64_t);
    uint32_t parameters = queue_parameter_words(call);
    work *object = queue_make_work((work){.operation = LAUNCH,
                                          .function = call->function,
                                          .shape = *call->shape,
                                          .is_cooperative = call->is_cooperative,
                                          .is_dependent = call->is_dependent,
                                          .argument_count = parameters,
                                          .range_count = call->range_count},
                                   parameters + call->range_count * words);
    if (object == NULL)
        return NULL;
    memset(object->data, 0, parameters * sizeof *object->data);
    memcpy(object->data, call->arguments, call->argument_count * sizeof *call->arguments);
    if (map_words > 0)
        memcpy(object->data + parameters - map_words, call->maps, map_words * sizeof *object->data);
    memcpy(object->data + parameters, call->ranges, call->range_count * sizeof *call->ranges);
    return object;
}

int nova_sim_launch(nova_driver *driver, const nova_kernel_call *call, void *stream)
{
    int result = sim_check_launch(sim_of(driver), call);
    return result != SIM_OK ? result : queue_push(sim_of(driver), stream, sim_make_launch(call));
}

void nova_sim_graph_destroy(nova_driver *driver, void *handle)
{
    (void)driver;
    graph *object = handle;
    for (uint32_t i = 0; i < object->count; i++)
        free(object->calls[i]);
    free(object->order);
    free(object);
}

/* The order of the launches: the last one of those that wait for nothing else is next, so that
 * dependences without an edge show. */
static int queue_order_graph(const nova_graph_edge *edges, uint32_t edge_count, uint32_t number,
                             uint32_t *order)
{
    uint32_t *waits = calloc((size_t)number + 1, sizeof *waits);
    if (waits == NULL)
        return SIM_NO_MEMORY;
    for (uint32_t i = 0; i < edge_count; i++)
        waits[edges[i].after]++;
    for (uint32_t next = 0; next < number; next++) {
        uint32_t chosen = number - 1;
        while (chosen > 0 && waits[chosen] != 0)
            chosen--;
        order[next] = chosen;
        waits[chosen] = UINT32_MAX;
        for (uint32_t i = 0; i < edge_count; i++)
            waits[edges[i].after] -= edges[i].before == chosen;
    }
    free(waits);
    return SIM_OK;
}

int nova_sim_graph_create(nova_driver *driver, const nova_kernel_call *calls, uint32_t number,
                          const nova_graph_edge *edges, uint32_t edge_count, void **created)
{
    graph *object = calloc(1, sizeof *object + number * sizeof object->calls[0]);
    int result = object == NULL ? SIM_NO_MEMORY : SIM_OK;
    if (object != NULL)
        object->order = calloc((size_t)number + 1, sizeof *object->order);
    if (object != NULL)
        result = object->order == NULL
                     ? SIM_NO_MEMORY
                     : queue_order_graph(edges, edge_count, number, object->order);
    for (uint32_t i = 0; result == SIM_OK && i < number; i++) {
        result = sim_check_launch(sim_of(driver), &calls[i]);
        object->calls[i] = result == SIM_OK ? sim_make_launch(&calls[i]) : NULL;
        if (result == SIM_OK && object->calls[i] == NULL)
            result = SIM_NO_MEMORY;
        object->count = i + 1;
    }
    for (uint32_t i = 0; result == SIM_OK && i < edge_count; i++)
        object->calls[edges[i].after]->is_dependent = edges[i].is_dependent;
    if (result == SIM_OK)
        *created = object;
    else if (object != NULL)
        nova_sim_graph_destroy(driver, object);
    return result;
}

int nova_sim_graph_update(nova_driver *driver, void *handle, uint32_t index,
                          const nova_kernel_call *call)
{
    (void)driver;
    graph *in = handle;
    work *object = sim_make_launch(call);
    if (object == NULL)
        return SIM_NO_MEMORY;
    object->is_dependent = in->calls[index]->is_dependent;
    free(in->calls[index]);
    in->calls[index] = object;
    return SIM_OK;
}

int nova_sim_graph_launch(nova_driver *driver, void *handle, void *stream)
{
    const graph *in = handle;
    int result = SIM_OK;
    for (uint32_t i = 0; result == SIM_OK && i < in->count; i++) {
        const work *w = in->calls[in->order[i]];
        size_t words =
            w->argument_count + w->range_count * (sizeof(nova_device_range) / sizeof(uint64_t));
        work *object = queue_make_work(*w, words);
        if (object != NULL)
            memcpy(object->data, w->data, words * sizeof w->data[0]);
        result = queue_push(sim_of(driver), stream, object);
    }
    return result;
}

int sim_push_flow(simulator *s, void *handle, const flow *pushed)
{
    return queue_push(s, handle, queue_make_work((work){.operation = FLOW, .flow = pushed}, 0));
}

/* --- streams and events ----------------------------------------------------------------------- */

int nova_sim_stream_create(nova_driver *driver, void **created)
{
    simulator *s = sim_of(driver);
    stream *object = calloc(1, sizeof *object);
    if (object == NULL)
        return SIM_NO_MEMORY;
    object->on = s;
    pthread_mutex_lock(&s->mutex);
    object->next = s->streams;
    s->streams = object;
    pthread_mutex_unlock(&s->mutex);
    *created = object;
    return SIM_OK;
}

/* Its handle stays valid, as blocks and events may name it: all streams are freed with the
 * driver. */
void nova_sim_stream_destroy(nova_driver *driver, void *handle)
{
    simulator *s = sim_of(driver);
    pthread_mutex_lock(&s->mutex);
    (void)queue_drain(s, queue_stream_of(s, handle), NULL, 0);
    pthread_mutex_unlock(&s->mutex);
}

int nova_sim_stream_synchronize(nova_driver *driver, void *handle)
{
    simulator *s = sim_of(driver);
    if (queue_stream_of(s, handle)->on != s)
        return SIM_OTHER_DEVICE;
    pthread_mutex_lock(&s->mutex);
    int result = queue_drain(s, queue_stream_of(s, handle), NULL, 0);
    pthread_mutex_unlock(&s->mutex);
    return result;
}

int nova_sim_stream_wait(nova_driver *driver, void *handle, void *event_handle)
{
    return queue_push(sim_of(driver), handle,
                      queue_make_work((work){.operation = WAIT, .event = event_handle}, 0));
}

int nova_sim_event_create(nova_driver *driver, bool timed, void **created)
{
    (void)timed;
    event *object = calloc(1, sizeof *object);
    if (object == NULL)
        return SIM_NO_MEMORY;
    object->on = sim_of(driver);
    *created = object;
    return SIM_OK;
}

void nova_sim_event_destroy(nova_driver *driver, void *handle)
{
    simulator *s = sim_of(driver);
    pthread_mutex_lock(&s->mutex);
    (void)sim_drain_all(s); /* something may wait for it */
    pthread_mutex_unlock(&s->mutex);
    free(handle);
}

int nova_sim_event_record(nova_driver *driver, void *event_handle, void *handle)
{
    return queue_push(sim_of(driver), handle,
                      queue_make_work((work){.operation = RECORD, .event = event_handle}, 0));
}

int nova_sim_event_synchronize(nova_driver *driver, void *handle)
{
    simulator *s = sim_of(driver);
    event *e = handle;
    if (e->on != s)
        return SIM_OTHER_DEVICE;
    pthread_mutex_lock(&s->mutex);
    int result =
        queue_is_recorded(e->in, e, e->ticket) ? SIM_OK : queue_drain(s, e->in, e, e->ticket);
    pthread_mutex_unlock(&s->mutex);
    return result;
}

/* The wall time of the simulation on this machine: unrelated to the time on a GPU. */
int nova_sim_event_elapsed(nova_driver *driver, void *from, void *to, float *milliseconds)
{
    simulator *s = sim_of(driver);
    pthread_mutex_lock(&s->mutex);
    *milliseconds = (float)((double)(int64_t)(((event *)to)->at_ns - ((event *)from)->at_ns) / 1e6);
    pthread_mutex_unlock(&s->mutex);
    return SIM_OK;
}
