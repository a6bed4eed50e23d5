#define _POSIX_C_SOURCE 200809L /* nanosleep */

#include "nova/model.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "api/enclosing_file.h"
#include "api/model_state.h"
#include "nova/scheduler.h"

/* Models with at most this many arguments and outputs keep their pointers on the stack. */
enum { STACK_POINTERS = 64 };

/* --- opening and closing ---------------------------------------------------------------------- */

/* Models that are open: their code must not be unmapped under the pool's threads. */
static atomic_size_t model_open_count;
static atomic_flag model_configured = ATOMIC_FLAG_INIT;

/* The first model of the process sets the number of threads, from NOVA_THREADS. */
static nova_status model_configure_threads(nova_error *error)
{
    const char *text = getenv("NOVA_THREADS");
    if (text == NULL || *text == '\0')
        return NOVA_OK;
    unsigned count = 0;
    const char *c = text;
    for (; *c >= '0' && *c <= '9' && count <= NOVA_MAX_WORKERS; c++)
        count = 10 * count + (unsigned)(*c - '0');
    if (*c != '\0' || count < 1 || count > NOVA_MAX_WORKERS)
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "",
                         "NOVA_THREADS is '%s': it takes a whole number from 1 to %d", text,
                         NOVA_MAX_WORKERS);
    if (atomic_flag_test_and_set(&model_configured))
        return NOVA_OK;
    nova_status status = nova_workers_configure(&(nova_workers_options){.count = count});
    return status == NOVA_OK ? NOVA_OK
                             : nova_fail(error, status, "", "the threads cannot be prepared: %s",
                                         nova_status_text(status));
}

static nova_status model_open_file(const char *path, nova_file **file, nova_error *error)
{
    const char *trusted = getenv("NOVA_TRUSTED_KEYS");
    if (trusted != NULL && *trusted != '\0')
        return nova_fail(error, NOVA_REFUSED, "signature-unchecked",
                         "NOVA_TRUSTED_KEYS is set, and signatures are checked by Python's "
                         "nova.load only");
    if (path != NULL)
        return nova_file_open(path, file, error);
    nova_mapped mapped;
    if (!nova_enclosing_file(&mapped))
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "",
                         "no path is given, and this code is not inside of a .nova file");
    return nova_file_adopt(&mapped, file, error);
}

/* Whether `device`, or the file if that is NULL, selects a GPU; its ordinal. */
static nova_status model_read_device(const nova_file *file, const char *device, bool *is_gpu,
                                     int *number, nova_error *error)
{
    *number = 0;
    *is_gpu = false;
    if (device == NULL) {
        /* CPU variants come first, so a file that starts with one for a device has no other */
        *is_gpu = nova_variant_is_device(&nova_file_variants(file)[0]);
        return NOVA_OK;
    }
    if (strcmp(device, "cpu") == 0)
        return NOVA_OK;
    const char *digit = device + 5;
    *is_gpu = strcmp(device, "cuda") == 0;
    if (strncmp(device, "cuda:", 5) == 0 && *digit != '\0') {
        for (; *digit >= '0' && *digit <= '9' && *number < 1000; digit++)
            *number = 10 * *number + (*digit - '0');
        *is_gpu = *digit == '\0';
    }
    /* The simulator reads PTX by Python. */
    const char *why = strncmp(device, "sim", 3) == 0 ? "is of Python's nova.load: here it is"
                                                     : "is not known: it is";
    return *is_gpu ? NOVA_OK
                   : nova_fail(error, NOVA_INVALID_ARGUMENT, "",
                               "device '%.40s' %s cpu, cuda or cuda:1", device, why);
}

/* The same as below on a GPU: variant, program and weights are there when it returns. */
static nova_status model_prepare_device(nova_model *model, int number, nova_error *error)
{
    size_t variant;
    nova_status status =
        nova_model_device_open(model->file, number, &variant, &model->device, error);
    if (status != NOVA_OK)
        return status;
    model->variant = &nova_file_variants(model->file)[variant];
    return model->variant->symbolic.header != NULL ? nova_sized_create(model, error) : NOVA_OK;
}

/* Everything between a checked file and the first run. */
static nova_status model_prepare(nova_model *model, const char *device, nova_error *error)
{
    size_t variant;
    bool is_gpu;
    int number;
    model->arguments = nova_file_arguments(model->file);
    model->outputs = nova_file_outputs(model->file);
    model->argument_count = nova_file_argument_count(model->file);
    model->output_count = nova_file_output_count(model->file);
    nova_status status = model_read_device(model->file, device, &is_gpu, &number, error);
    if (status != NOVA_OK || is_gpu)
        return status == NOVA_OK ? model_prepare_device(model, number, error) : status;
    status = nova_file_choose(model->file, &variant, error);
    if (status == NOVA_OK)
        status = nova_file_load(model->file, variant, &model->image, error);
    if (status != NOVA_OK)
        return status;
    model->variant = &nova_file_variants(model->file)[variant];
    const void *weights;
    size_t weights_size;
    if (nova_file_section(model->file, ".nova.weights", &weights, &weights_size))
        model->weights = weights;
    if (model->variant->symbolic.header != NULL)
        return nova_sized_create(model, error);
    status = nova_program_create(&model->variant->tables, model->image,
                                 model->variant->constants_vaddr, &model->program, error);
    return status == NOVA_OK ? nova_model_make_pool(model, error) : status;
}

nova_status nova_model_make_pool(nova_model *model, nova_error *error)
{
    size_t count = model->argument_count + model->output_count;
    model->workspace_size = nova_program_workspace_size(model->program);
    model->on_stack = count <= STACK_POINTERS;
    if (!model->on_stack) {
        model->pointers_offset = (model->workspace_size + NOVA_WORKSPACE_ALIGNMENT - 1) &
                                 ~(uint64_t)(NOVA_WORKSPACE_ALIGNMENT - 1);
        model->workspace_size = model->pointers_offset + count * sizeof(void *);
    }
    nova_status status = nova_pool_create(model->workspace_size, &model->pool);
    if (status != NOVA_OK)
        return nova_fail(error, status, "", "a workspace of %llu bytes: %s",
                         (unsigned long long)model->workspace_size, nova_status_text(status));
    return NOVA_OK;
}

nova_status nova_open(const char *path, nova_model **model, nova_error *error)
{
    return nova_open_on(path, NULL, model, error);
}

nova_status nova_open_on(const char *path, const char *device, nova_model **model,
                         nova_error *error)
{
    if (model == NULL)
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "", "the pointer for the model is NULL");
    nova_model *created = calloc(1, sizeof *created);
    if (created == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the model");
    created->pid = getpid();
    atomic_init(&created->runs, 0);
    atomic_fetch_add_explicit(&model_open_count, 1, memory_order_relaxed);
    nova_status status = model_configure_threads(error);
    if (status == NOVA_OK)
        status = model_open_file(path, &created->file, error);
    if (status == NOVA_OK)
        status = model_prepare(created, device, error);
    if (status != NOVA_OK) {
        nova_close(created);
        return status;
    }
    *model = created;
    return NOVA_OK;
}

void nova_close(nova_model *model)
{
    if (model == NULL)
        return;
    /* Closing is rare and runs are short: polling costs a run less than a wake-up. */
    const struct timespec pause = {.tv_nsec = 50000};
    while (atomic_load_explicit(&model->runs, memory_order_acquire) > 0 && getpid() == model->pid)
        (void)nanosleep(&pause, NULL);
    if (model->parent != NULL) {
        nova_sized_close(model);
        return;
    }
    nova_sized_destroy(model->sized);
    nova_model_device_close(model->device);
    nova_pool_destroy(model->pool);
    nova_program_destroy(model->program);
    nova_image_destroy(model->image);
    nova_file_close(model->file);
    free(model);
    if (atomic_fetch_sub_explicit(&model_open_count, 1, memory_order_acq_rel) == 1)
        /* dlclose may unmap this code now; a later run makes new threads */
        nova_workers_shutdown();
}

/* --- looking ---------------------------------------------------------------------------------- */

size_t nova_argument_count(const nova_model *model)
{
    return model != NULL ? model->argument_count : 0;
}

size_t nova_output_count(const nova_model *model)
{
    return model != NULL ? model->output_count : 0;
}

const nova_tensor_info *nova_argument(const nova_model *model, size_t index)
{
    return index < nova_argument_count(model) ? &model->arguments[index] : NULL;
}

const nova_tensor_info *nova_output(const nova_model *model, size_t index)
{
    return index < nova_output_count(model) ? &model->outputs[index] : NULL;
}

const char *nova_target(const nova_model *model)
{
    return model != NULL ? model->variant->target : NULL;
}

uint64_t nova_workspace_size(const nova_model *model)
{
    return model != NULL ? model->workspace_size : 0;
}

/* --- running ---------------------------------------------------------------------------------- */

/* Kernels never see NULL, not even for an array without elements, which they do not touch. */
static void *model_empty_scratch(void)
{
    static const _Alignas(NOVA_WORKSPACE_ALIGNMENT) char scratch[NOVA_WORKSPACE_ALIGNMENT];
    return (void *)(uintptr_t)scratch;
}

static nova_status model_check_pointer(const nova_tensor_info *tensor, const char *label,
                                       size_t index, void **pointer, nova_error *error)
{
    if (*pointer == NULL && tensor->nbytes == 0)
        *pointer = model_empty_scratch();
    if (*pointer == NULL)
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "", "%s %zu (%s) is NULL", label, index,
                         tensor->name);
    if (((uintptr_t)*pointer & ((uintptr_t)tensor->element_size - 1)) != 0) /* a power of two */
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "",
                         "%s %zu (%s) is not aligned to its elements of %lld bytes", label, index,
                         tensor->name, (long long)tensor->element_size);
    return NOVA_OK;
}

/* The pointers of a run: a param that the caller omits is read from the file; an output that
 * aliases a donated argument is that argument. */
static nova_status model_bind(const nova_model *model, void *const *arguments, void *const *outputs,
                              void **pointers, nova_error *error)
{
    for (size_t i = 0; i < model->argument_count; i++) {
        const nova_tensor_info *tensor = &model->arguments[i];
        pointers[i] = arguments[i];
        if (pointers[i] == NULL && tensor->weight != NOVA_NO_WEIGHT && model->weights != NULL) {
            if (tensor->donated)
                return nova_fail(error, NOVA_INVALID_ARGUMENT, "",
                                 "argument %zu (%s) is updated in place and cannot stay in the "
                                 "file: give a copy of its value",
                                 i, tensor->name);
            pointers[i] = (void *)(uintptr_t)(model->weights + tensor->weight);
        }
        nova_status status = model_check_pointer(tensor, "argument", i, &pointers[i], error);
        if (status != NOVA_OK)
            return status;
    }
    void **results = pointers + model->argument_count;
    for (size_t i = 0; i < model->output_count; i++) {
        const nova_tensor_info *tensor = &model->outputs[i];
        results[i] = outputs[i];
        if (tensor->alias >= 0) {
            void *argument = pointers[tensor->alias];
            if (results[i] != NULL && results[i] != argument)
                return nova_fail(error, NOVA_INVALID_ARGUMENT, "",
                                 "output %zu (%s) is argument %lld: give that pointer or NULL", i,
                                 tensor->name, (long long)tensor->alias);
            results[i] = argument;
        }
        nova_status status = model_check_pointer(tensor, "output", i, &results[i], error);
        if (status != NOVA_OK)
            return status;
    }
    return NOVA_OK;
}

static nova_status model_run_in(nova_model *model, void *const *arguments, void *const *outputs,
                                void *workspace, nova_error *error)
{
    void *on_stack[STACK_POINTERS];
    void **pointers =
        model->on_stack ? on_stack : (void **)(void *)((char *)workspace + model->pointers_offset);
    nova_status status = model_bind(model, arguments, outputs, pointers, error);
    if (status != NOVA_OK)
        return status;
    void **results = pointers + model->argument_count;
    return nova_program_run(model->program, pointers, results, workspace, error);
}

static nova_status model_run(nova_model *model, void *const *arguments, void *const *outputs,
                             void *workspace, nova_error *error)
{
    if ((arguments == NULL && model->argument_count > 0) ||
        (outputs == NULL && model->output_count > 0))
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "", "arguments or outputs are missing");
    if (model->sized != NULL)
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "",
                         "the model has symbolic sizes: nova_open_sizes gives one to run");
    if (model->device != NULL)
        return nova_model_device_run_host(model->device, arguments, outputs, error);
    if ((uintptr_t)workspace % NOVA_WORKSPACE_ALIGNMENT != 0)
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "",
                         "the workspace is not aligned to %d bytes", NOVA_WORKSPACE_ALIGNMENT);
    if (workspace != NULL)
        return model_run_in(model, arguments, outputs, workspace, error);
    nova_status status = nova_pool_take(model->pool, &workspace);
    if (status != NOVA_OK)
        return nova_fail(error, status, "", "a workspace of %llu bytes: %s",
                         (unsigned long long)model->workspace_size, nova_status_text(status));
    status = model_run_in(model, arguments, outputs, workspace, error);
    nova_pool_give(model->pool, workspace);
    return status;
}

nova_status nova_run(nova_model *model, void *const *arguments, void *const *outputs,
                     void *workspace, nova_error *error)
{
    if (model == NULL)
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "", "there is no model");
    atomic_fetch_add_explicit(&model->runs, 1, memory_order_relaxed);
    nova_status status = model_run(model, arguments, outputs, workspace, error);
    atomic_fetch_sub_explicit(&model->runs, 1, memory_order_release);
    return status;
}

nova_status nova_run_on(nova_model *model, const nova_device_value *arguments,
                        const nova_device_value *outputs, void *stream, nova_error *error)
{
    if (model == NULL || (arguments == NULL && model->argument_count > 0) ||
        (outputs == NULL && model->output_count > 0))
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "",
                         "model, arguments or outputs are missing");
    if (model->device == NULL)
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "",
                         "the model is on the CPU: run it with nova_run");
    if (model->sized != NULL)
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "",
                         "the model has symbolic sizes: nova_open_sizes gives one to run");
    atomic_fetch_add_explicit(&model->runs, 1, memory_order_relaxed);
    nova_status status = nova_model_device_run(model->device, arguments, outputs, stream, error);
    atomic_fetch_sub_explicit(&model->runs, 1, memory_order_release);
    return status;
}
