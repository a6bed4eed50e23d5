/* Flows of the simulator: trees of launches, copies, branches and loops, run when a stream gets
 * there. As on a GPU, the host sees nothing of a flow before its end; unlike there, a loop that
 * does not end is reported. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpusim/driver/driver_state.h"

/* Iterations of one loop, after which it counts as endless. */
#define MOST_ITERATIONS INT64_C(1000000)

typedef enum { ITEM_LAUNCH, ITEM_COPIES, ITEM_LOOP, ITEM_SWITCH } item_type;

typedef struct item {
    struct item *next;
    item_type type;
    work *call;
    nova_flow_copy *copies; /* also those of a loop: its enters, loads and stores */
    nova_flow_loop loop;    /* its lists are in `copies` */
    uint32_t copy_count;
    uint64_t selector, selector_size;
    flow_body **bodies;
    uint32_t body_count;
} item;

struct flow_body {
    flow *of;
    item *first, *last;
    bool is_ended;
    flow_body *next; /* of the flow */
};

struct flow {
    const simulator *on;
    flow_body *bodies;
    bool is_finished;
};

/* --- running, with the lock ------------------------------------------------------------------- */

static int flow_refuse(simulator *s, const char *wrong)
{
    (void)snprintf(s->why, sizeof s->why, "%s", wrong);
    return SIM_BAD_LAUNCH;
}

/* Reads a value that kernels have written. */
static int flow_read(simulator *s, uint64_t address, uint64_t size, int64_t *value)
{
    const block *in = sim_find_block(s, address, size);
    if (in == NULL)
        return SIM_BAD_ADDRESS;
    for (uint64_t i = 0; i < size; i++)
        if (in->state[address - in->address + i] == 0)
            return flow_refuse(s, "a loop or branch reads a condition that nothing has written");
    *value = 0;
    memcpy(value, (const void *)(uintptr_t)address, size);
    return SIM_OK;
}

static int flow_write(simulator *s, uint64_t address, int64_t value)
{
    const block *in = sim_find_block(s, address, sizeof value);
    if (in == NULL)
        return SIM_BAD_ADDRESS;
    memcpy((void *)(uintptr_t)address, &value, sizeof value);
    memset(in->state + (address - in->address), 1, sizeof value);
    return SIM_OK;
}

static int flow_copy(simulator *s, const nova_flow_copy *copies, uint32_t count, int64_t position)
{
    for (uint32_t i = 0; i < count; i++) {
        const nova_flow_copy *copy = &copies[i];
        uint64_t to = copy->to + (uint64_t)(copy->to_stride * position);
        uint64_t from = copy->from + (uint64_t)(copy->from_stride * position);
        const block *target = sim_find_block(s, to, copy->size);
        const block *source = sim_find_block(s, from, copy->size);
        if (target == NULL || source == NULL)
            return SIM_BAD_ADDRESS;
        memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, copy->size);
        memcpy(target->state + (to - target->address), source->state + (from - source->address),
               copy->size);
    }
    return SIM_OK;
}

static int flow_run_body(simulator *s, const flow_body *body);

static int flow_run_loop(simulator *s, const item *of)
{
    const nova_flow_loop *loop = &of->loop;
    const nova_flow_copy *loads = of->copies + loop->enter_count;
    const nova_flow_copy *stores = loads + loop->load_count;
    int result = flow_copy(s, of->copies, loop->enter_count, 0);
    for (int64_t i = 0; result == SIM_OK; i++) {
        int64_t position = loop->is_reverse ? loop->length - 1 - i : i, holds = i < loop->length;
        if (loop->condition != 0) {
            position = 0;
            result = flow_read(s, loop->condition, 1, &holds);
        }
        if (result != SIM_OK || holds == 0)
            break;
        if (i == MOST_ITERATIONS)
            return flow_refuse(s, "a loop does not end: it is stopped after 1000000 iterations");
        if (loop->condition == 0)
            result = flow_write(s, loop->position, position);
        if (result == SIM_OK)
            result = flow_copy(s, loads, loop->load_count, position);
        if (result == SIM_OK)
            result = flow_run_body(s, of->bodies[0]);
        if (result == SIM_OK)
            result = flow_copy(s, stores, loop->store_count, position);
    }
    return result;
}

static int flow_run_switch(simulator *s, const item *of)
{
    int64_t selected;
    int result = flow_read(s, of->selector, of->selector_size, &selected);
    if (result != SIM_OK)
        return result;
    int64_t last = (int64_t)of->body_count - 1;
    return flow_run_body(s, of->bodies[selected < 0 ? 0 : selected < last ? selected : last]);
}

static int flow_run_body(simulator *s, const flow_body *body)
{
    int result = SIM_OK;
    for (const item *next = body->first; result == SIM_OK && next != NULL; next = next->next)
        result = next->type == ITEM_LAUNCH   ? sim_launch_now(s, next->call)
                 : next->type == ITEM_COPIES ? flow_copy(s, next->copies, next->copy_count, 0)
                 : next->type == ITEM_LOOP   ? flow_run_loop(s, next)
                                             : flow_run_switch(s, next);
    return result;
}

int sim_flow_now(simulator *s, const flow *in)
{
    return flow_run_body(s, in->bodies);
}

/* --- building --------------------------------------------------------------------------------- */

static int flow_wrong(simulator *s, const char *wrong)
{
    pthread_mutex_lock(&s->mutex);
    int result = flow_refuse(s, wrong);
    pthread_mutex_unlock(&s->mutex);
    return result;
}

static int flow_add_body(flow *to, flow_body **created)
{
    flow_body *body = calloc(1, sizeof *body);
    if (body == NULL)
        return SIM_NO_MEMORY;
    body->of = to;
    /* The first one, which is that of the flow itself, stays first. */
    if (to->bodies != NULL) {
        body->next = to->bodies->next;
        to->bodies->next = body;
    } else {
        to->bodies = body;
    }
    *created = body;
    return SIM_OK;
}

static int flow_add_item(nova_driver *driver, flow_body *body, item contents, item **added)
{
    simulator *s = sim_of(driver);
    if (body->of->on != s)
        return SIM_OTHER_DEVICE;
    if (body->is_ended)
        return flow_wrong(s, "work is added to a part of a flow that has ended");
    item *created = malloc(sizeof *created);
    if (created == NULL)
        return SIM_NO_MEMORY;
    *created = contents;
    if (body->last != NULL)
        body->last->next = created;
    else
        body->first = created;
    body->last = created;
    *added = created;
    return SIM_OK;
}

static bool flow_overlap(const nova_flow_copy *copies, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < count; k++) {
            const nova_flow_copy *a = &copies[i], *b = &copies[k];
            bool shares = a->to < b->from + b->size && b->from < a->to + a->size;
            bool doubles = i < k && a->to < b->to + b->size && b->to < a->to + a->size;
            if (shares || doubles)
                return true;
        }
    return false;
}

bool nova_sim_flow_is_supported(nova_driver *driver)
{
    (void)driver;
    return true;
}

int nova_sim_flow_create(nova_driver *driver, void **created, void **body)
{
    flow *object = calloc(1, sizeof *object);
    if (object == NULL)
        return SIM_NO_MEMORY;
    object->on = sim_of(driver);
    flow_body *first;
    int result = flow_add_body(object, &first);
    if (result != SIM_OK) {
        free(object);
        return result;
    }
    *created = object;
    *body = first;
    return SIM_OK;
}

int nova_sim_flow_add_launch(nova_driver *driver, void *body, const nova_kernel_call *call)
{
    item *added;
    const item *last = ((const flow_body *)body)->last;
    bool is_after_launch = last != NULL && last->type == ITEM_LAUNCH;
    int result = sim_check_launch(sim_of(driver), call);
    if (result == SIM_OK)
        result = flow_add_item(driver, body, (item){.type = ITEM_LAUNCH}, &added);
    if (result != SIM_OK)
        return result;
    added->call = sim_make_launch(call);
    if (added->call == NULL)
        return SIM_NO_MEMORY;
    added->call->is_dependent &= is_after_launch; /* others wait for the end of what is before */
    return SIM_OK;
}

int nova_sim_flow_add_copies(nova_driver *driver, void *body, const nova_flow_copy *copies,
                             uint32_t count)
{
    if (flow_overlap(copies, count))
        return flow_wrong(sim_of(driver), "copies of a flow overlap");
    item *added;
    int result = flow_add_item(driver, body, (item){.type = ITEM_COPIES}, &added);
    if (result != SIM_OK)
        return result;
    added->copies = malloc((count + UINT64_C(1)) * sizeof *copies);
    if (added->copies == NULL)
        return SIM_NO_MEMORY;
    memcpy(added->copies, copies, count * sizeof *copies);
    added->copy_count = count;
    return SIM_OK;
}

static int flow_add_bodies(item *to, flow *of, uint32_t count, void **bodies)
{
    to->bodies = calloc(count + UINT64_C(1), sizeof(flow_body *));
    int result = to->bodies == NULL ? SIM_NO_MEMORY : SIM_OK;
    for (; result == SIM_OK && to->body_count < count; to->body_count++) {
        result = flow_add_body(of, &to->bodies[to->body_count]);
        bodies[to->body_count] = to->bodies[to->body_count];
    }
    return result;
}

/* A list without entries may be NULL. */
static void flow_append(nova_flow_copy *to, const nova_flow_copy *from, uint64_t count)
{
    if (count > 0)
        memcpy(to, from, count * sizeof *to);
}

int nova_sim_flow_add_loop(nova_driver *driver, void *body, const nova_flow_loop *loop,
                           void **inner)
{
    if (flow_overlap(loop->enters, loop->enter_count) ||
        flow_overlap(loop->loads, loop->load_count) ||
        flow_overlap(loop->stores, loop->store_count))
        return flow_wrong(sim_of(driver), "copies of a loop overlap");
    item *added;
    int result = flow_add_item(driver, body, (item){.type = ITEM_LOOP, .loop = *loop}, &added);
    if (result != SIM_OK)
        return result;
    uint64_t enters = loop->enter_count, loads = loop->load_count, stores = loop->store_count;
    added->copies = malloc((enters + loads + stores + 1) * sizeof *added->copies);
    if (added->copies == NULL)
        return SIM_NO_MEMORY;
    flow_append(added->copies, loop->enters, enters);
    flow_append(added->copies + enters, loop->loads, loads);
    flow_append(added->copies + enters + loads, loop->stores, stores);
    return flow_add_bodies(added, ((flow_body *)body)->of, 1, inner);
}

int nova_sim_flow_add_switch(nova_driver *driver, void *body, uint64_t selector, uint64_t size,
                             uint32_t count, void **branches)
{
    if ((size != 1 && size != sizeof(int64_t)) || count == 0)
        return flow_wrong(sim_of(driver), "a branch has a selector of another size, or no branch");
    item *added;
    const item contents = {.type = ITEM_SWITCH, .selector = selector, .selector_size = size};
    int result = flow_add_item(driver, body, contents, &added);
    return result != SIM_OK ? result
                            : flow_add_bodies(added, ((flow_body *)body)->of, count, branches);
}

int nova_sim_flow_end_body(nova_driver *driver, void *handle)
{
    flow_body *body = handle;
    if (body->is_ended)
        return flow_wrong(sim_of(driver), "a part of a flow ends twice");
    for (const item *next = body->first; next != NULL; next = next->next)
        for (uint32_t i = 0; i < next->body_count; i++)
            if (!next->bodies[i]->is_ended)
                return flow_wrong(sim_of(driver), "a part of a flow ends before one inside of it");
    body->is_ended = true;
    return SIM_OK;
}

int nova_sim_flow_finish(nova_driver *driver, void *handle)
{
    flow *object = handle;
    if (!object->bodies->is_ended)
        return flow_wrong(sim_of(driver), "a flow is finished before its body has ended");
    object->is_finished = true;
    return SIM_OK;
}

int nova_sim_flow_launch(nova_driver *driver, void *handle, void *stream)
{
    flow *object = handle;
    if (object->on != sim_of(driver))
        return SIM_OTHER_DEVICE;
    if (!object->is_finished)
        return flow_wrong(sim_of(driver), "a flow is launched before it is finished");
    return sim_push_flow(sim_of(driver), stream, object);
}

void nova_sim_flow_destroy(nova_driver *driver, void *handle)
{
    simulator *s = sim_of(driver);
    flow *object = handle;
    pthread_mutex_lock(&s->mutex);
    (void)sim_drain_all(s); /* a stream may still have it */
    pthread_mutex_unlock(&s->mutex);
    while (object->bodies != NULL) {
        flow_body *body = object->bodies;
        object->bodies = body->next;
        while (body->first != NULL) {
            item *gone = body->first;
            body->first = gone->next;
            free(gone->call);
            free(gone->copies);
            free(gone->bodies);
            free(gone);
        }
        free(body);
    }
    free(object);
}
