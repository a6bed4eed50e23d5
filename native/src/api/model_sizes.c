/* Models for the sizes of a call: a bounded cache in a model with symbolic sizes.
 *
 * Such a model shares file, code and weights with the one it belongs to, and has tables, program,
 * signature and workspaces for its sizes. Those that are not open stay until there are more
 * than MOST_MODELS; then the least recently used are freed. */
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "api/model_state.h"

enum { MOST_MODELS = 64 };

typedef struct entry {
    nova_model model; /* first: a model for sizes is its entry */
    struct entry *next;
    uint64_t used;  /* when it was opened last */
    size_t holders; /* how often it is open */
    int64_t *dims;
    void *tables;
    nova_tensor_info *tensors; /* arguments, then outputs */
    int64_t *extents;
} entry;

struct nova_sized_models {
    pthread_mutex_t mutex; /* guards what follows */
    entry *first;
    size_t count;
    uint64_t clock;
    nova_tensor_info *tensors; /* the signature with -1 for symbolic sizes */
    int64_t *extents;
};

/* --- signatures ------------------------------------------------------------------------------- */

/* Copies of the arguments and outputs of a file, with the extents of `values`, those of all
 * expressions; -1 for symbolic ones if it is NULL. */
static nova_status sized_copy_signature(const nova_model *model, const int64_t *values,
                                        nova_tensor_info **tensors, int64_t **extents,
                                        nova_error *error)
{
    const nova_symbolic *symbolic = &model->variant->symbolic;
    size_t arguments = model->argument_count, count = arguments + model->output_count;
    *tensors = calloc(count + 1, sizeof **tensors);
    *extents = calloc((size_t)symbolic->header->extent_count + 1, sizeof **extents);
    if (*tensors == NULL || *extents == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the signature");
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        nova_tensor_info *tensor = &(*tensors)[i];
        *tensor = i < arguments ? nova_file_arguments(model->file)[i]
                                : nova_file_outputs(model->file)[i - arguments];
        tensor->shape = *extents + at;
        for (int32_t k = 0; k < tensor->rank; k++, at++) {
            int64_t extent = symbolic->extents[at];
            (*extents)[at] = extent >= 0 ? extent : values != NULL ? values[~extent] : -1;
        }
        if (values == NULL)
            tensor->nbytes = -1;
    }
    return values == NULL ? NOVA_OK
                          : nova_tensors_check(*tensors, arguments, *tensors + arguments,
                                               model->output_count, error);
}

nova_status nova_sized_create(nova_model *model, nova_error *error)
{
    nova_sized_models *sized = calloc(1, sizeof *sized);
    if (sized == NULL || pthread_mutex_init(&sized->mutex, NULL) != 0) {
        free(sized);
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for models of sizes");
    }
    model->sized = sized;
    nova_status status = sized_copy_signature(model, NULL, &sized->tensors, &sized->extents, error);
    if (status == NOVA_OK) {
        model->arguments = sized->tensors;
        model->outputs = sized->tensors + model->argument_count;
    }
    return status;
}

/* --- making a model --------------------------------------------------------------------------- */

static void sized_free(entry *entry)
{
    nova_model_device_close(entry->model.device);
    nova_pool_destroy(entry->model.pool);
    nova_program_destroy(entry->model.program);
    free(entry->tables);
    free(entry->tensors);
    free(entry->extents);
    free(entry->dims);
    free(entry);
}

static nova_status sized_check_tables(const entry *entry, const void *block, size_t size,
                                      nova_tables *tables, nova_error *error)
{
    const nova_model *model = &entry->model;
    size_t arguments = model->argument_count, count = arguments + model->output_count;
    int64_t *nbytes = calloc(count + 1, sizeof *nbytes);
    unsigned char *donated = calloc(count + 1, 1);
    nova_status status = NOVA_OUT_OF_MEMORY;
    if (nbytes != NULL && donated != NULL) {
        for (size_t i = 0; i < count; i++) {
            nbytes[i] = entry->tensors[i].nbytes;
            donated[i] = entry->tensors[i].donated != 0;
        }
        const nova_tables_limits limits = {.argument_count = arguments,
                                           .output_count = model->output_count,
                                           .argument_nbytes = nbytes,
                                           .output_nbytes = nbytes + arguments,
                                           .constants_size = model->variant->constants_size,
                                           .argument_donated = donated};
        status = nova_tables_check(block, size, &limits, tables, error);
    }
    free(nbytes);
    free(donated);
    return status;
}

/* The tables for sizes: those of code for them, or those of the code for all sizes, which become
 * the entry's. */
static nova_status sized_find_tables(const nova_variant *variant, entry *entry, const int64_t *dims,
                                     const int64_t *values, const void **block, size_t *size,
                                     nova_error *error)
{
    uint32_t number = nova_specialized_find(&variant->specialized, dims);
    if (variant->specialized.header != NULL && number < variant->specialized.header->count) {
        *block = nova_specialized_tables(&variant->specialized, number, size);
        return NOVA_OK;
    }
    nova_status status = nova_symbolic_instantiate(&variant->symbolic, &variant->tables, values,
                                                   &entry->tables, error);
    *block = entry->tables;
    *size = (size_t)variant->symbolic.header->tables_size;
    return status;
}

/* The program of an entry on the device of its parent. */
static nova_status sized_share_device(const nova_model *parent, entry *entry,
                                      const nova_tables *tables, const int64_t *values,
                                      nova_error *error)
{
    const nova_device_source source = {
        .tables = tables,
        .sizes = values,
        .size_count = parent->variant->symbolic.header->value_count,
        .arguments = entry->model.arguments,
        .outputs = entry->model.outputs,
        .argument_count = parent->argument_count,
        .output_count = parent->output_count,
    };
    return nova_model_device_share(parent->device, &source, &entry->model.device, error);
}

/* Everything but the dims; *entry is valid to free in any case. */
static nova_status sized_prepare(nova_model *parent, entry *entry, const int64_t *dims,
                                 const int64_t *values, nova_error *error)
{
    const nova_variant *variant = parent->variant;
    nova_tables tables;
    entry->model = (nova_model){.image = parent->image,
                                .variant = variant,
                                .argument_count = parent->argument_count,
                                .output_count = parent->output_count,
                                .weights = parent->weights,
                                .pid = parent->pid,
                                .parent = parent};
    nova_status status =
        sized_copy_signature(parent, values, &entry->tensors, &entry->extents, error);
    entry->model.arguments = entry->tensors;
    entry->model.outputs = entry->tensors + parent->argument_count;
    const void *block;
    size_t size;
    if (status == NOVA_OK)
        status = sized_find_tables(variant, entry, dims, values, &block, &size, error);
    if (status == NOVA_OK)
        status = sized_check_tables(entry, block, size, &tables, error);
    if (status == NOVA_OK && parent->device != NULL)
        return sized_share_device(parent, entry, &tables, values, error);
    if (status == NOVA_OK)
        status = nova_program_create(&tables, parent->image, variant->constants_vaddr,
                                     &entry->model.program, error);
    if (status == NOVA_OK)
        status = nova_program_set_sizes(entry->model.program, values,
                                        variant->symbolic.header->value_count, error);
    if (status == NOVA_OK)
        status = nova_model_make_pool(&entry->model, error);
    nova_pool_share(entry->model.pool);
    return status;
}

/* A new entry; *dims becomes its own. */
static nova_status sized_make(nova_model *parent, int64_t **dims, entry **made, nova_error *error)
{
    const nova_symbolic *symbolic = &parent->variant->symbolic;
    int64_t *values = calloc((size_t)symbolic->header->expression_count + 1, sizeof *values);
    entry *created = calloc(1, sizeof *created);
    if (values == NULL || created == NULL) {
        free(values);
        free(created);
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for a model of sizes");
    }
    nova_status status = nova_symbolic_evaluate(symbolic, *dims, values, error);
    if (status == NOVA_OK)
        status = sized_prepare(parent, created, *dims, values, error);
    free(values);
    if (status != NOVA_OK) {
        sized_free(created);
        return status;
    }
    created->dims = *dims;
    *dims = NULL;
    *made = created;
    return NOVA_OK;
}

/* --- the cache -------------------------------------------------------------------------------- */

static entry *sized_find(const nova_sized_models *sized, const int64_t *dims, size_t size)
{
    entry *found = sized->first;
    while (found != NULL && memcmp(found->dims, dims, size) != 0)
        found = found->next;
    return found;
}

/* Takes the least recently used entry that is not open out of the list; NULL if there is
 * none. */
static entry *sized_evict(nova_sized_models *sized)
{
    entry **oldest = NULL;
    for (entry **at = &sized->first; *at != NULL; at = &(*at)->next)
        if ((*at)->holders == 0 && (oldest == NULL || (*at)->used < (*oldest)->used))
            oldest = at;
    if (oldest == NULL)
        return NULL;
    entry *evicted = *oldest;
    *oldest = evicted->next;
    sized->count--;
    return evicted;
}

nova_status nova_open_sizes(nova_model *model, const int64_t *extents, nova_model **sized,
                            nova_error *error)
{
    if (model == NULL || sized == NULL || model->sized == NULL)
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "",
                         "the model has no symbolic sizes, or a pointer is missing");
    nova_sized_models *models = model->sized;
    const nova_symbolic *symbolic = &model->variant->symbolic;
    size_t size = symbolic->header->dim_count * sizeof(int64_t);
    int64_t *dims = malloc(size + 1);
    if (dims == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the sizes");
    nova_status status = nova_symbolic_bind(symbolic, extents, dims, error);
    if (status != NOVA_OK) {
        free(dims);
        return status;
    }
    pthread_mutex_lock(&models->mutex);
    entry *found = sized_find(models, dims, size), *evicted = NULL;
    if (found == NULL) {
        status = sized_make(model, &dims, &found, error);
        if (status == NOVA_OK) {
            evicted = models->count >= MOST_MODELS ? sized_evict(models) : NULL;
            found->next = models->first;
            models->first = found;
            models->count++;
        }
    }
    if (status == NOVA_OK) {
        found->used = ++models->clock;
        found->holders++;
        *sized = &found->model;
    }
    pthread_mutex_unlock(&models->mutex);
    if (evicted != NULL)
        sized_free(evicted);
    free(dims);
    return status;
}

void nova_sized_close(nova_model *model)
{
    nova_sized_models *models = model->parent->sized;
    pthread_mutex_lock(&models->mutex);
    ((entry *)(void *)model)->holders--;
    pthread_mutex_unlock(&models->mutex);
}

void nova_sized_destroy(nova_sized_models *sized)
{
    if (sized == NULL)
        return;
    while (sized->first != NULL) {
        entry *entry = sized->first;
        sized->first = entry->next;
        sized_free(entry);
    }
    pthread_mutex_destroy(&sized->mutex);
    free(sized->tensors);
    free(sized->extents);
    free(sized);
}
