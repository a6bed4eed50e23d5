#include "api/model_device.h"

#include <pthread.h>
#include <stdlib.h>

#include "nova/device.h"

/* Models with at most this many arguments and outputs keep their values on the stack. */
enum { STACK_VALUES = 64, MOST_DEVICES = 64 };

struct nova_model_device {
    nova_device *device;
    nova_device_program *program;
    nova_image *image; /* code of the host; NULL when all is the device's */
    /* values of params that are in the file; NULL when there are none */
    nova_device_block *weights;
    const nova_tensor_info *arguments;
    const nova_tensor_info *outputs;
    size_t argument_count, output_count;
    bool is_shared; /* all but the program is that of another model */
};

/* --- devices of the process ------------------------------------------------------------------- */

/* Opened once and cached: opening a context takes a tenth of a second, and all models of a GPU
 * share its memory pool. Closing the last model closes all devices, so that the file with this code
 * can be unloaded. */
static pthread_mutex_t model_device_mutex = PTHREAD_MUTEX_INITIALIZER;
static nova_driver *model_device_driver;
static nova_device *model_device_devices[MOST_DEVICES];
static size_t model_device_users;

static void model_device_close_all(void)
{
    for (int i = 0; i < MOST_DEVICES; i++) {
        nova_device_close(model_device_devices[i]);
        model_device_devices[i] = NULL;
    }
    nova_cuda_close(model_device_driver);
    model_device_driver = NULL;
}

static nova_status model_device_take(int number, nova_device **device, nova_error *error)
{
    if (number >= MOST_DEVICES)
        return nova_fail(error, NOVA_WRONG_DEVICE, "", "there is no GPU %d", number);
    pthread_mutex_lock(&model_device_mutex);
    nova_status status =
        model_device_driver != NULL ? NOVA_OK : nova_cuda_open(NULL, &model_device_driver, error);
    if (status == NOVA_OK && model_device_devices[number] == NULL)
        status =
            nova_device_open(model_device_driver, number, &model_device_devices[number], error);
    if (status == NOVA_OK) {
        *device = model_device_devices[number];
        model_device_users++;
    } else if (model_device_users == 0) {
        model_device_close_all();
    }
    pthread_mutex_unlock(&model_device_mutex);
    return status;
}

static void model_device_give(void)
{
    pthread_mutex_lock(&model_device_mutex);
    if (--model_device_users == 0)
        model_device_close_all();
    pthread_mutex_unlock(&model_device_mutex);
}

/* --- opening ---------------------------------------------------------------------------------- */

static nova_status model_device_choose(const nova_file *file, const nova_device *device,
                                       const nova_device_code **code, size_t *variant,
                                       nova_error *error)
{
    size_t count;
    const nova_device_code *images = nova_file_devices(file, &count);
    const nova_device_info *info = nova_device_describe(device);
    size_t image = nova_device_choose(images, count, info->major, info->minor);
    if (image < count)
        *variant = nova_file_device_variant(file, &images[image]);
    if (image == count || *variant == nova_file_variant_count(file))
        return nova_fail(error, NOVA_UNSUPPORTED, "",
                         "no code in the file is for %s, of compute "
                         "capability %d.%d",
                         info->name, info->major, info->minor);
    *code = &images[image];
    return NOVA_OK;
}

static nova_status model_device_load_program(nova_model_device *created, const nova_file *file,
                                             const nova_device_code *code, size_t variant,
                                             nova_error *error)
{
    const nova_variant *chosen = &nova_file_variants(file)[variant];
    const void *constants = NULL;
    size_t size;
    if (chosen->constants_size > 0) {
        (void)nova_file_section(file, ".nova.const", &constants, &size);
        constants = (const char *)constants +
                    (chosen->constants_vaddr - nova_file_section_vaddr(file, ".nova.const"));
    }
    for (uint32_t i = 0; created->image == NULL && i < chosen->tables.header->kernel_count; i++)
        if (nova_kernel_is_linked(&chosen->tables.kernels[i])) {
            nova_status status = nova_file_load(file, variant, &created->image, error);
            if (status != NOVA_OK)
                return status;
        }
    /* A program with symbolic sizes has the code that those for sizes share; it does not run. */
    size_t sizes = chosen->symbolic.header != NULL ? chosen->symbolic.header->value_count : 0;
    int64_t *zeros = calloc(sizes + 1, sizeof *zeros);
    if (zeros == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the model");
    const nova_device_source source = {
        .tables = &chosen->tables,
        .code = code,
        .image = created->image,
        .constants = constants,
        .constants_size = chosen->constants_size,
        .sizes = zeros,
        .size_count = sizes,
        .arguments = created->arguments,
        .outputs = created->outputs,
        .argument_count = created->argument_count,
        .output_count = created->output_count,
    };
    nova_status status =
        nova_device_program_create(created->device, &source, &created->program, error);
    free(zeros);
    return status;
}

/* All values in one block, as they lie in the file. */
static nova_status model_device_load_weights(nova_model_device *created, const nova_file *file,
                                             nova_error *error)
{
    const void *weights;
    size_t size;
    if (!nova_file_section(file, ".nova.weights", &weights, &size) || size == 0)
        return NOVA_OK;
    void *stream = nova_device_stream(created->device);
    nova_status status = nova_device_take(created->device, size, stream, &created->weights, error);
    if (status == NOVA_OK)
        status = nova_device_upload(created->device, created->weights->address, weights, size,
                                    stream, error);
    return status == NOVA_OK ? nova_device_synchronize(created->device, stream, error) : status;
}

nova_status nova_model_device_open(const nova_file *file, int number, size_t *variant,
                                   nova_model_device **device, nova_error *error)
{
    nova_model_device *created = calloc(1, sizeof *created);
    if (created == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the model");
    created->arguments = nova_file_arguments(file);
    created->outputs = nova_file_outputs(file);
    created->argument_count = nova_file_argument_count(file);
    created->output_count = nova_file_output_count(file);
    const nova_device_code *code = NULL;
    nova_status status = model_device_take(number, &created->device, error);
    if (status == NOVA_OK)
        status = model_device_choose(file, created->device, &code, variant, error);
    if (status == NOVA_OK)
        status = model_device_load_program(created, file, code, *variant, error);
    if (status == NOVA_OK)
        status = model_device_load_weights(created, file, error);
    if (status != NOVA_OK)
        nova_model_device_close(created);
    else
        *device = created;
    return status;
}

void nova_model_device_close(nova_model_device *device)
{
    if (device == NULL)
        return;
    if (device->is_shared) {
        nova_device_program_destroy(device->program);
        free(device);
        return;
    }
    if (device->device != NULL) {
        nova_device_program_destroy(device->program);
        nova_device_give(device->device, device->weights);
        model_device_give();
    }
    nova_image_destroy(device->image);
    free(device);
}

nova_status nova_model_device_share(const nova_model_device *parent,
                                    const nova_device_source *source, nova_model_device **device,
                                    nova_error *error)
{
    nova_model_device *created = calloc(1, sizeof *created);
    if (created == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the model");
    *created = *parent;
    created->is_shared = true;
    created->program = NULL;
    created->arguments = source->arguments;
    created->outputs = source->outputs;
    nova_device_source shared = *source;
    shared.shares = parent->program;
    nova_status status =
        nova_device_program_create(created->device, &shared, &created->program, error);
    if (status != NOVA_OK)
        nova_model_device_close(created);
    else
        *device = created;
    return status;
}

/* --- running ---------------------------------------------------------------------------------- */

/* A param that was not given is the one in the file; an output that is a donated argument is
 * that. */
static nova_status model_device_complete(const nova_model_device *device, nova_device_value *values,
                                         nova_error *error)
{
    nova_device_value *outputs = values + device->argument_count;
    for (size_t i = 0; i < device->argument_count; i++) {
        const nova_tensor_info *tensor = &device->arguments[i];
        if (values[i].address != 0 || values[i].host != NULL || tensor->nbytes == 0)
            continue;
        if (tensor->weight == NOVA_NO_WEIGHT || device->weights == NULL)
            return nova_fail(error, NOVA_INVALID_ARGUMENT, "", "argument %zu (%s) is NULL", i,
                             tensor->name);
        if (tensor->donated)
            return nova_fail(error, NOVA_INVALID_ARGUMENT, "",
                             "argument %zu (%s) is updated in place and cannot stay in the file: "
                             "give a copy of its value",
                             i, tensor->name);
        values[i].address = device->weights->address + tensor->weight;
    }
    for (size_t i = 0; i < device->output_count; i++) {
        const nova_tensor_info *tensor = &device->outputs[i];
        if (tensor->alias < 0)
            continue;
        const nova_device_value *argument = &values[tensor->alias];
        if ((outputs[i].address != 0 && outputs[i].address != argument->address) ||
            (outputs[i].host != NULL && outputs[i].host != argument->host))
            return nova_fail(error, NOVA_INVALID_ARGUMENT, "",
                             "output %zu (%s) is argument %lld: give that pointer or NULL", i,
                             tensor->name, (long long)tensor->alias);
        outputs[i] = *argument;
    }
    return NOVA_OK;
}

/* Runs with values that this function may change. */
static nova_status model_device_run(nova_model_device *device, nova_device_value *values,
                                    void *stream, nova_error *error)
{
    nova_status status = model_device_complete(device, values, error);
    if (status != NOVA_OK)
        return status;
    return nova_device_program_run(device->program, values, values + device->argument_count,
                                   &NOVA_RUN_ON(stream), error);
}

/* The values of a call: `from` returns the i-th argument, then the outputs. */
typedef nova_device_value value_at(const void *arguments, const void *outputs, size_t index,
                                   size_t argument_count);

static nova_status model_device_run_values(nova_model_device *device, value_at *from,
                                           const void *arguments, const void *outputs, void *stream,
                                           nova_error *error)
{
    size_t count = device->argument_count + device->output_count;
    nova_device_value on_stack[STACK_VALUES], *values = on_stack;
    if (count > STACK_VALUES) {
        values = malloc(count * sizeof *values);
        if (values == NULL)
            return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for a run");
    }
    for (size_t i = 0; i < count; i++)
        values[i] = from(arguments, outputs, i, device->argument_count);
    nova_status status = model_device_run(device, values, stream, error);
    if (values != on_stack)
        free(values);
    return status;
}

static nova_device_value model_device_host_value(const void *arguments, const void *outputs,
                                                 size_t index, size_t argument_count)
{
    void *const *list = index < argument_count ? arguments : outputs;
    return (nova_device_value){.host =
                                   list[index < argument_count ? index : index - argument_count]};
}

static nova_device_value model_device_caller_value(const void *arguments, const void *outputs,
                                                   size_t index, size_t argument_count)
{
    const nova_device_value *list = index < argument_count ? arguments : outputs;
    return list[index < argument_count ? index : index - argument_count];
}

nova_status nova_model_device_run_host(nova_model_device *device, void *const *arguments,
                                       void *const *outputs, nova_error *error)
{
    return model_device_run_values(device, model_device_host_value, arguments, outputs,
                                   NOVA_OWN_STREAM, error);
}

nova_status nova_model_device_run(nova_model_device *device, const nova_device_value *arguments,
                                  const nova_device_value *outputs, void *stream, nova_error *error)
{
    return model_device_run_values(device, model_device_caller_value, arguments, outputs, stream,
                                   error);
}
