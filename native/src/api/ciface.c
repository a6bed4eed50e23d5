#include "nova/ciface.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "nova/tensor.h"
#include "base/strided.h"

enum { ALIGNMENT = 64 };

/* The fixed part of a memref descriptor; sizes and strides follow. */
typedef struct {
    void *allocated;
    void *aligned;
    int64_t offset;
    int64_t extents[];
} descriptor;

/* An argument of one call. */
typedef struct {
    nova_strided array;
    char *scratch; /* dense copy, or NULL when the array itself is used */
} argument;

/* One call; `block` holds everything below it that is not the caller's. */
typedef struct {
    nova_model *model;
    size_t argument_count;
    size_t output_count;
    char *block;
    argument *arguments;
    void **inputs;  /* as nova_run takes them */
    void **outputs; /* the same; NULL for those that are a donated argument */
    void **results; /* fresh memory, owned here until the result takes it over */
} call;

/* --- state of the process --------------------------------------------------------------------- */

static _Atomic(nova_model *) ciface_enclosing_model;
static pthread_mutex_t ciface_failure_mutex = PTHREAD_MUTEX_INITIALIZER;
/* guarded by ciface_failure_mutex; status NOVA_OK: there is none */
static nova_error ciface_failure;

static void ciface_remember(const nova_error *error)
{
    pthread_mutex_lock(&ciface_failure_mutex);
    ciface_failure = *error;
    pthread_mutex_unlock(&ciface_failure_mutex);
}

nova_status nova_last_error(nova_error *error)
{
    pthread_mutex_lock(&ciface_failure_mutex);
    nova_status status = ciface_failure.status;
    if (status != NOVA_OK && error != NULL)
        *error = ciface_failure;
    ciface_failure.status = NOVA_OK;
    pthread_mutex_unlock(&ciface_failure_mutex);
    return status;
}

/* The model of this file. Several threads may open it concurrently; the first to store its model
 * wins, the others close theirs. */
static nova_status ciface_open_enclosing(nova_model **model, nova_error *error)
{
    *model = atomic_load_explicit(&ciface_enclosing_model, memory_order_acquire);
    if (*model != NULL)
        return NOVA_OK;
    nova_status status = nova_open(NULL, model, error);
    if (status != NOVA_OK)
        return status;
    nova_model *other = NULL;
    if (!atomic_compare_exchange_strong_explicit(&ciface_enclosing_model, &other, *model,
                                                 memory_order_acq_rel, memory_order_acquire)) {
        nova_close(*model);
        *model = other;
    }
    return NOVA_OK;
}

/* --- arguments -------------------------------------------------------------------------------- */

static size_t ciface_round_up(size_t size)
{
    return (size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
}

static nova_status ciface_read_argument(const nova_tensor_info *tensor, const descriptor *from,
                                        size_t index, nova_strided *array, nova_error *error)
{
    *array = (nova_strided){.rank = tensor->rank, .element_size = tensor->element_size};
    if (from == NULL)
        return NOVA_OK; /* nova_run knows whether the file has a value for it */
    array->sizes = tensor->rank > 0 ? from->extents : NULL;
    array->strides = tensor->rank > 0 ? from->extents + tensor->rank : NULL;
    for (int32_t axis = 0; axis < tensor->rank; axis++)
        if (array->sizes[axis] != tensor->shape[axis])
            return nova_fail(error, NOVA_INVALID_ARGUMENT, "",
                             "argument %zu (%s): size %lld of axis %d is not %lld", index,
                             tensor->name, (long long)array->sizes[axis], (int)axis,
                             (long long)tensor->shape[axis]);
    if (from->aligned == NULL && tensor->nbytes > 0)
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "", "argument %zu (%s) is NULL", index,
                         tensor->name);
    if (tensor->nbytes > 0)
        array->data = (char *)from->aligned + from->offset * tensor->element_size;
    if (tensor->donated && nova_strided_repeats(array))
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "",
                         "argument %zu (%s) is updated in place and has a stride of 0", index,
                         tensor->name);
    return NOVA_OK;
}

/* Takes one block for the lists of a call and the scratch memory of its arguments. */
static nova_status ciface_begin(call *call, void *const *descriptors, nova_error *error)
{
    size_t count = call->argument_count;
    size_t pointers = ciface_round_up((count + 2 * call->output_count) * sizeof(void *));
    size_t lists = pointers + ciface_round_up(count * sizeof(argument));
    size_t total = lists + ALIGNMENT; /* never empty */
    for (size_t i = 0; i < count; i++) {
        const nova_tensor_info *tensor = nova_argument(call->model, i);
        nova_strided array;
        nova_status status = ciface_read_argument(tensor, descriptors[i], i, &array, error);
        if (status != NOVA_OK)
            return status;
        if (array.data != NULL && !nova_strided_is_dense(&array))
            total += ciface_round_up((size_t)tensor->nbytes);
    }
    call->block = aligned_alloc(ALIGNMENT, total);
    if (call->block == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no scratch memory of %zu bytes", total);
    memset(call->block, 0, lists);
    call->inputs = (void **)(void *)call->block;
    call->outputs = call->inputs + count;
    call->results = call->outputs + call->output_count;
    call->arguments = (argument *)(void *)(call->block + pointers);

    char *scratch = call->block + lists;
    for (size_t i = 0; i < count; i++) {
        const nova_tensor_info *tensor = nova_argument(call->model, i);
        argument *argument = &call->arguments[i];
        /* checked above */
        (void)ciface_read_argument(tensor, descriptors[i], i, &argument->array, NULL);
        call->inputs[i] = argument->array.data;
        if (argument->array.data == NULL || nova_strided_is_dense(&argument->array))
            continue;
        argument->scratch = scratch;
        call->inputs[i] = scratch;
        nova_strided_gather(&argument->array, scratch);
        scratch += ciface_round_up((size_t)tensor->nbytes);
    }
    return NOVA_OK;
}

/* --- results ---------------------------------------------------------------------------------- */

static nova_status ciface_make_results(call *call, nova_error *error)
{
    for (size_t i = 0; i < call->output_count; i++) {
        const nova_tensor_info *tensor = nova_output(call->model, i);
        size_t nbytes = tensor->nbytes > 0 ? (size_t)tensor->nbytes : 1;
        call->results[i] = aligned_alloc(ALIGNMENT, ciface_round_up(nbytes));
        if (call->results[i] == NULL)
            return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for output %zu (%s)", i,
                             tensor->name);
        call->outputs[i] = tensor->alias < 0 ? call->results[i] : NULL;
    }
    return NOVA_OK;
}

/* Copies updated strided arguments back, and copies the arguments that are results. */
static void ciface_finish_arguments(call *call)
{
    for (size_t i = 0; i < call->argument_count; i++) {
        const argument *argument = &call->arguments[i];
        if (argument->scratch != NULL && nova_argument(call->model, i)->donated)
            nova_strided_scatter(&argument->array, argument->scratch);
    }
    for (size_t i = 0; i < call->output_count; i++) {
        const nova_tensor_info *tensor = nova_output(call->model, i);
        if (tensor->alias >= 0 && tensor->nbytes > 0)
            memcpy(call->results[i], call->inputs[tensor->alias], (size_t)tensor->nbytes);
    }
}

/* Hands the results out. */
static void ciface_fill_descriptors(call *call, void *result)
{
    int64_t *cursor = result;
    for (size_t i = 0; i < call->output_count; i++) {
        const nova_tensor_info *tensor = nova_output(call->model, i);
        descriptor *out = (descriptor *)(void *)cursor;
        out->allocated = out->aligned = call->results[i];
        out->offset = 0;
        call->results[i] = NULL;
        int64_t stride = 1;
        for (int32_t axis = tensor->rank - 1; axis >= 0; axis--) {
            out->extents[axis] = tensor->shape[axis];
            out->extents[tensor->rank + axis] = stride;
            /* An empty array may have strides that overflow 64 bits: they are never used. */
            if (__builtin_mul_overflow(stride, tensor->shape[axis], &stride))
                stride = 0;
        }
        cursor = out->extents + 2 * tensor->rank;
    }
}

static void ciface_end(call *call)
{
    for (size_t i = 0; call->results != NULL && i < call->output_count; i++)
        free(call->results[i]);
    free(call->block);
}

/* --- the entry -------------------------------------------------------------------------------- */

/* The model for the sizes of the descriptors, if the model has symbolic ones. */
static nova_status ciface_open_sizes(nova_model **model, void *const *descriptors, size_t count,
                                     nova_error *error)
{
    size_t total = 0, at = 0;
    bool is_symbolic = false;
    for (size_t i = 0; i < count; i++) {
        const nova_tensor_info *tensor = nova_argument(*model, i);
        total += (size_t)tensor->rank;
        is_symbolic |= tensor->nbytes < 0;
    }
    if (!is_symbolic)
        return NOVA_OK;
    int64_t *extents = calloc(total + 1, sizeof *extents);
    if (extents == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for %zu sizes", total);
    for (size_t i = 0; i < count; i++) {
        const nova_tensor_info *tensor = nova_argument(*model, i);
        const descriptor *from = descriptors[i];
        for (int32_t axis = 0; axis < tensor->rank; axis++)
            extents[at++] = from != NULL ? from->extents[axis] : tensor->shape[axis];
    }
    nova_status status = nova_open_sizes(*model, extents, model, error);
    free(extents);
    return status;
}

static nova_status ciface_run_model(nova_model *model, void *result, void *const *descriptors,
                                    nova_error *error);

static nova_status ciface_run(void *result, void *const *descriptors, size_t count,
                              nova_error *error)
{
    nova_model *model;
    nova_status status = ciface_open_enclosing(&model, error);
    if (status != NOVA_OK)
        return status;
    size_t arguments = nova_argument_count(model), outputs = nova_output_count(model);
    if (count != arguments || (descriptors == NULL && count > 0))
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "", "%zu descriptors for %zu arguments",
                         descriptors == NULL ? (size_t)0 : count, arguments);
    if (result == NULL && outputs > 0)
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "",
                         "the pointer to the descriptors of the %zu results is NULL", outputs);
    nova_model *sized = model;
    status = ciface_open_sizes(&sized, descriptors, count, error);
    if (status != NOVA_OK)
        return status;
    status = ciface_run_model(sized, result, descriptors, error);
    if (sized != model)
        nova_close(sized);
    return status;
}

static nova_status ciface_run_model(nova_model *model, void *result, void *const *descriptors,
                                    nova_error *error)
{
    call call = {.model = model};
    call.argument_count = nova_argument_count(call.model);
    call.output_count = nova_output_count(call.model);
    nova_status status = ciface_begin(&call, descriptors, error);
    if (status == NOVA_OK)
        status = ciface_make_results(&call, error);
    if (status == NOVA_OK)
        status = nova_run(call.model, call.inputs, call.outputs, NULL, error);
    if (status == NOVA_OK) {
        ciface_finish_arguments(&call);
        ciface_fill_descriptors(&call, result);
    }
    ciface_end(&call);
    return status;
}

void nova_ciface(void *result, void *const *descriptors, size_t count)
{
    nova_error error;
    if (ciface_run(result, descriptors, count, &error) != NOVA_OK)
        ciface_remember(&error);
}
