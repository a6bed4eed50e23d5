/* Flows of the CUDA driver: graphs with conditional nodes (CUDA 12.4).
 *
 * A loop is a WHILE node. The kernel `begin` before it and the kernel `next` at the end of its body
 * set its condition, and copy carries and slices; copies that are large for one block are kernels
 * of their own. A branch is a SWITCH node (CUDA 12.8), or one IF node for each branch, after
 * kernels that set their conditions. */
#include <stdlib.h>
#include <string.h>

#include "gpu/cuda/cuda_flow_code.h"
#include "gpu/cuda/cuda_state.h"

enum { CONDITIONAL_VERSION = 12040, SWITCH_VERSION = 12080, DEPENDENT_MAJOR = 9 };
enum { NODE_CONDITIONAL = 13, CONDITION_IF = 0, CONDITION_WHILE = 1, CONDITION_SWITCH = 2 };
enum { FLOW_OUT_OF_MEMORY = 2, FLOW_NOT_SUPPORTED = 801 };

/* Threads of the kernels of flows; bytes that one block copies well. */
enum { WARP = 32, THREADS = 256, MOST_SMALL = 16 << 10, MOST_COPY_BLOCKS = 512 };

typedef struct cuda_flow cuda_flow;

typedef struct cuda_body {
    cuda_flow *of;
    void *graph;
    void *last;             /* its last node */
    bool is_launch;         /* whether that is a launch of the program */
    bool starts_dependents; /* whether it is one that lets the node after it start early */
    struct cuda_body *next;
    /* of a loop: its node's condition, and its copies, which `loop` names */
    uint64_t handle;
    nova_flow_loop loop;
    nova_flow_copy *copies;
} cuda_body;

struct cuda_flow {
    void *graph, *exec;
    void *context;
    const cuda_flow_code *code;
    cuda_body *bodies;
};

/* --- code ------------------------------------------------------------------------------------- */

static bool flow_load_code(cuda *c, void *context, cuda_flow_code *code)
{
    static const char *const names[CUDA_FLOW_KERNELS] = {
        [CUDA_FLOW_BEGIN] = "nova_flow_begin",
        [CUDA_FLOW_NEXT] = "nova_flow_next",
        [CUDA_FLOW_COPY] = "nova_flow_copy",
        [CUDA_FLOW_SELECT] = "nova_flow_select",
    };
    void *module;
    int device = 0, major = 0;
    code->context = context;
    code->waits = c->context_device(&device) == 0 &&
                  c->device_attribute(&major, ATTRIBUTE_MAJOR, device) == 0 &&
                  major >= DEPENDENT_MAJOR;
    const char *text = code->waits ? nova_cuda_waiting_flow_code : nova_cuda_flow_code;
    int result = c->module_load(&module, text, 0, NULL, NULL);
    for (int i = 0; result == 0 && i < CUDA_FLOW_KERNELS; i++)
        result = c->module_function(&code->functions[i], module, names[i]);
    code->is_loaded = result == 0;
    return code->is_loaded;
}

/* The kernels of flows in the current context, which are loaded once; NULL: it cannot have them. */
static const cuda_flow_code *flow_code_of(cuda *c)
{
    void *context = NULL;
    if (c->version < CONDITIONAL_VERSION || c->context_current == NULL ||
        c->condition_create == NULL || c->graph_add_node == NULL ||
        c->context_current(&context) != 0 || context == NULL)
        return NULL;
    cuda_flow_code *code = NULL;
    pthread_mutex_lock(&c->mutex);
    for (int i = 0; code == NULL && i < c->flow_code_count; i++)
        if (c->flow_codes[i].context == context)
            code = &c->flow_codes[i];
    if (code == NULL && c->flow_code_count < CUDA_MOST_CONTEXTS) {
        code = &c->flow_codes[c->flow_code_count++];
        (void)flow_load_code(c, context, code);
    }
    pthread_mutex_unlock(&c->mutex);
    return code != NULL && code->is_loaded ? code : NULL;
}

bool nova_cuda_flow_is_supported(nova_driver *driver)
{
    return flow_code_of(cuda_context_of(driver)) != NULL;
}

/* --- nodes ------------------------------------------------------------------------------------ */

/* Adds a kernel after the last node. After a launch of the program the edge may be programmatic:
 * the kernel waits by itself for all of the chain before it, because each of its launches ends
 * after its own wait. A launch after a kernel of the flow itself has a full edge. */
static int flow_add_kernel(cuda *c, cuda_body *body, const nova_kernel_call *call)
{
    packed parameters;
    node_params params;
    void *node;
    bool is_early = call->is_dependent && body->is_launch && c->graph_add_edges != NULL;
    bool waits = body->last != NULL && !is_early;
    int result = cuda_params_of(call, &parameters, &params);
    if (result == 0)
        result = c->graph_add(&node, body->graph, waits ? &body->last : NULL, waits, &params);
    if (result == 0 && is_early) {
        const edge_data data = {.from_port = PORT_PROGRAMMATIC, .type = EDGE_PROGRAMMATIC};
        result = c->graph_add_edges(body->graph, &body->last, &node, &data, 1);
    }
    if (result == 0)
        body->last = node;
    return result;
}

/* Whether one warp makes the copies of `begin` or `next` as fast as more. */
static bool flow_fits(const uint64_t *words)
{
    for (uint64_t i = 0; i < words[5] + words[6]; i++)
        if (words[7 + 5 * i + 2] > WARP * UINT64_C(16))
            return false;
    return true;
}

/* A kernel of the flow itself. */
static int flow_add_own(cuda *c, cuda_body *body, int kernel, const uint64_t *words, uint32_t count,
                        uint32_t width, uint32_t rows)
{
    bool is_small = kernel == CUDA_FLOW_SELECT || (kernel != CUDA_FLOW_COPY && flow_fits(words));
    const nova_device_launch shape = {.grid = {width, rows, 1},
                                      .block = {is_small ? WARP : THREADS, 1, 1}};
    const nova_kernel_call call = {.function = body->of->code->functions[kernel],
                                   .shape = &shape,
                                   .arguments = words,
                                   .argument_count = count,
                                   .is_dependent =
                                       body->of->code->waits && body->starts_dependents};
    int result = flow_add_kernel(c, body, &call);
    body->is_launch = body->starts_dependents = false;
    return result;
}

static void flow_pack_copy(uint64_t *words, const nova_flow_copy *copy)
{
    words[0] = copy->to;
    words[1] = copy->from;
    words[2] = copy->size;
    words[3] = (uint64_t)copy->to_stride;
    words[4] = (uint64_t)copy->from_stride;
}

/* Whether `next` or `begin` makes a copy, and not a kernel with more blocks. */
static bool flow_is_small(const nova_flow_copy *copy, uint32_t *room)
{
    if (copy->size > MOST_SMALL || *room == 0)
        return false;
    --*room;
    return true;
}

/* Kernels with the copies for which there is no `room`; NULL: all of them. */
static int flow_add_large(cuda *c, cuda_body *body, uint64_t position, const nova_flow_copy *copies,
                          uint32_t count, uint32_t *room)
{
    uint64_t words[NOVA_FLOW_COPY_WORDS] = {position}, largest = 0;
    uint32_t rows = 0;
    int result = 0;
    for (uint32_t i = 0; result == 0 && i <= count; i++) {
        if (i < count && (room == NULL || !flow_is_small(&copies[i], room))) {
            flow_pack_copy(words + 1 + 5 * rows++, &copies[i]);
            largest = copies[i].size > largest ? copies[i].size : largest;
        }
        if (rows == NOVA_FLOW_COPIES || (i == count && rows > 0)) {
            uint64_t blocks = largest / (UINT64_C(64) * THREADS) + 1;
            result =
                flow_add_own(c, body, CUDA_FLOW_COPY, words, NOVA_FLOW_COPY_WORDS,
                             blocks < MOST_COPY_BLOCKS ? (uint32_t)blocks : MOST_COPY_BLOCKS, rows);
            rows = 0;
            largest = 0;
        }
    }
    return result;
}

/* The words of `begin` or `next`, with the copies that are small. Both lists share the room. */
static void flow_fill_words(uint64_t *words, const nova_flow_loop *loop, uint64_t handle,
                            int64_t number, const nova_flow_copy *before, uint32_t before_count)
{
    uint32_t room = NOVA_FLOW_COPIES / 2;
    words[0] = handle;
    words[1] = loop->condition;
    words[2] = loop->condition != 0 ? 0 : loop->position;
    words[3] = (uint64_t)number;
    words[4] = (uint64_t)loop->length;
    words[5] = words[6] = 0;
    for (uint32_t i = 0; i < before_count; i++)
        if (flow_is_small(&before[i], &room))
            flow_pack_copy(words + 7 + 5 * words[5]++, &before[i]);
    room = NOVA_FLOW_COPIES / 2;
    for (uint32_t i = 0; i < loop->load_count; i++)
        if (flow_is_small(&loop->loads[i], &room))
            flow_pack_copy(words + 7 + 5 * (words[5] + words[6]++), &loop->loads[i]);
}

static int flow_add_conditional(cuda *c, cuda_body *body, uint64_t handle, int type, unsigned count,
                                void ***graphs)
{
    conditional_params params = {
        .type = NODE_CONDITIONAL,
        .node = {.handle = handle, .type = type, .count = count, .context = body->of->context}};
    void *node;
    int result = c->graph_add_node(&node, body->graph, body->last != NULL ? &body->last : NULL,
                                   body->last != NULL, &params);
    if (result != 0)
        return result;
    body->last = node;
    body->is_launch = body->starts_dependents = false;
    *graphs = params.node.graphs;
    return 0;
}

static int flow_add_body(cuda_flow *to, void *graph, cuda_body **created)
{
    cuda_body *body = calloc(1, sizeof *body);
    if (body == NULL)
        return FLOW_OUT_OF_MEMORY;
    *body = (cuda_body){.of = to, .graph = graph, .next = to->bodies};
    to->bodies = body;
    *created = body;
    return 0;
}

static int flow_create_condition(cuda *c, const cuda_body *body, uint64_t *handle)
{
    return c->condition_create(handle, body->graph, body->of->context, 0, 0);
}

/* --- calls of the table ----------------------------------------------------------------------- */

int nova_cuda_flow_create(nova_driver *driver, void **created, void **body)
{
    cuda *c = cuda_context_of(driver);
    cuda_flow *object = calloc(1, sizeof *object);
    if (object == NULL)
        return FLOW_OUT_OF_MEMORY;
    object->code = flow_code_of(c);
    int result = object->code != NULL ? c->graph_create(&object->graph, 0) : FLOW_NOT_SUPPORTED;
    cuda_body *first = NULL;
    if (result == 0) {
        object->context = object->code->context;
        result = flow_add_body(object, object->graph, &first);
    }
    if (result != 0) {
        nova_cuda_flow_destroy(driver, object);
        return result;
    }
    *created = object;
    *body = first;
    return 0;
}

int nova_cuda_flow_add_launch(nova_driver *driver, void *handle, const nova_kernel_call *call)
{
    cuda_body *body = handle;
    int result = flow_add_kernel(cuda_context_of(driver), body, call);
    body->is_launch = true;
    body->starts_dependents = call->is_dependent;
    return result;
}

int nova_cuda_flow_add_copies(nova_driver *driver, void *handle, const nova_flow_copy *copies,
                              uint32_t count)
{
    return flow_add_large(cuda_context_of(driver), handle, 0, copies, count, NULL);
}

/* The copies of a loop, for the end of its body. */
static int flow_keep_loop(cuda_body *body, const nova_flow_loop *loop)
{
    uint64_t loads = loop->load_count, stores = loop->store_count;
    body->copies = malloc((loads + stores + 1) * sizeof *body->copies);
    if (body->copies == NULL)
        return FLOW_OUT_OF_MEMORY;
    memcpy(body->copies, loop->loads, loads * sizeof *body->copies);
    memcpy(body->copies + loads, loop->stores, stores * sizeof *body->copies);
    body->loop = *loop;
    body->loop.loads = body->copies;
    body->loop.stores = body->copies + loads;
    return 0;
}

int nova_cuda_flow_add_loop(nova_driver *driver, void *handle, const nova_flow_loop *loop,
                            void **inner)
{
    cuda *c = cuda_context_of(driver);
    cuda_body *body = handle, *created = NULL;
    uint64_t words[NOVA_FLOW_LOOP_WORDS] = {0}, condition = 0;
    uint32_t room = NOVA_FLOW_COPIES / 2;
    int result = flow_create_condition(c, body, &condition);
    if (result == 0)
        result = flow_add_large(c, body, 0, loop->enters, loop->enter_count, &room);
    flow_fill_words(words, loop, condition, loop->is_reverse ? loop->length - 1 : 0, loop->enters,
                    loop->enter_count);
    if (result == 0)
        result = flow_add_own(c, body, CUDA_FLOW_BEGIN, words, NOVA_FLOW_LOOP_WORDS, 1, 1);
    void **graphs;
    if (result == 0)
        result = flow_add_conditional(c, body, condition, CONDITION_WHILE, 1, &graphs);
    if (result == 0)
        result = flow_add_body(body->of, graphs[0], &created);
    if (result == 0)
        result = flow_keep_loop(created, loop);
    if (result != 0)
        return result;
    created->handle = condition;
    *inner = created;
    room = NOVA_FLOW_COPIES / 2;
    return flow_add_large(c, created, loop->position, loop->loads, loop->load_count, &room);
}

int nova_cuda_flow_add_switch(nova_driver *driver, void *handle, uint64_t selector, uint64_t size,
                              uint32_t count, void **branches)
{
    cuda *c = cuda_context_of(driver);
    cuda_body *body = handle;
    bool has_switch = c->version >= SWITCH_VERSION;
    uint32_t nodes = has_switch ? 1 : count;
    uint64_t *conditions = calloc(nodes + UINT64_C(1), sizeof *conditions);
    int result = conditions == NULL ? FLOW_OUT_OF_MEMORY : 0;
    for (uint32_t i = 0; result == 0 && i < nodes; i++) {
        result = flow_create_condition(c, body, &conditions[i]);
        const uint64_t words[NOVA_FLOW_SELECT_WORDS] = {conditions[i], selector, size, count,
                                                        has_switch ? UINT64_MAX : i};
        if (result == 0)
            result = flow_add_own(c, body, CUDA_FLOW_SELECT, words, NOVA_FLOW_SELECT_WORDS, 1, 1);
    }
    for (uint32_t i = 0; result == 0 && i < nodes; i++) {
        void **graphs;
        result = flow_add_conditional(c, body, conditions[i],
                                      has_switch ? CONDITION_SWITCH : CONDITION_IF,
                                      has_switch ? count : 1, &graphs);
        for (uint32_t k = 0; result == 0 && k < (has_switch ? count : 1); k++) {
            cuda_body *created = NULL;
            result = flow_add_body(body->of, graphs[k], &created);
            branches[has_switch ? k : i] = created;
        }
    }
    free(conditions);
    return result;
}

int nova_cuda_flow_end_body(nova_driver *driver, void *handle)
{
    cuda *c = cuda_context_of(driver);
    cuda_body *body = handle;
    const nova_flow_loop *loop = &body->loop;
    if (body->copies == NULL)
        return 0; /* not that of a loop */
    uint64_t words[NOVA_FLOW_LOOP_WORDS] = {0};
    uint32_t room = NOVA_FLOW_COPIES / 2;
    int result = flow_add_large(c, body, loop->position, loop->stores, loop->store_count, &room);
    flow_fill_words(words, loop, body->handle, loop->is_reverse ? -1 : 1, loop->stores,
                    loop->store_count);
    if (result == 0)
        result = flow_add_own(c, body, CUDA_FLOW_NEXT, words, NOVA_FLOW_LOOP_WORDS, 1, 1);
    return result;
}

int nova_cuda_flow_finish(nova_driver *driver, void *handle)
{
    cuda_flow *object = handle;
    return cuda_context_of(driver)->graph_instantiate(&object->exec, object->graph, 0);
}

int nova_cuda_flow_launch(nova_driver *driver, void *handle, void *stream)
{
    return cuda_context_of(driver)->graph_launch(((cuda_flow *)handle)->exec, stream);
}

void nova_cuda_flow_destroy(nova_driver *driver, void *handle)
{
    cuda_flow *object = handle;
    if (object->exec != NULL)
        (void)cuda_context_of(driver)->exec_destroy(object->exec);
    if (object->graph != NULL)
        (void)cuda_context_of(driver)->graph_destroy(object->graph);
    while (object->bodies != NULL) {
        cuda_body *gone = object->bodies;
        object->bodies = gone->next;
        free(gone->copies);
        free(gone);
    }
    free(object);
}
