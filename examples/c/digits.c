/* Reads hand-written digits with a trained model: no Python, no Nova, nothing but the C library.
 *
 *     digits MODEL.nova IMAGES.f32
 *
 * The model is the file itself: it is loaded like any shared library, and the functions of
 * nova/model.h that run it are inside. IMAGES.f32 holds raw float32 images, one after the other.
 * The program prints the signature, and then the class of every image, one a line. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nova/model.h"

/* The functions that this program uses, as they are in the file. */
typedef struct {
    __typeof__(nova_open) *open;
    __typeof__(nova_close) *close;
    __typeof__(nova_argument_count) *argument_count;
    __typeof__(nova_output_count) *output_count;
    __typeof__(nova_argument) *argument;
    __typeof__(nova_output) *output;
    __typeof__(nova_target) *target;
    __typeof__(nova_workspace_size) *workspace_size;
    __typeof__(nova_run) *run;
} api;

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "digits: %s: %s\n", what, why);
    exit(1);
}

static void find(void *library, const char *name, void *function)
{
    void *address = dlsym(library, name);
    if (address == NULL)
        fail(name, "the file has no such function");
    memcpy(function, &address, sizeof address); /* ISO C has no cast for this */
}

static api load_api(const char *path)
{
    /* A name without a slash would be looked for in the system's folders. */
    if (strchr(path, '/') == NULL)
        fail(path, "write a path, such as ./model.nova");
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        fail(path, dlerror());
    api nova;
    find(library, "nova_open", &nova.open);
    find(library, "nova_close", &nova.close);
    find(library, "nova_argument_count", &nova.argument_count);
    find(library, "nova_output_count", &nova.output_count);
    find(library, "nova_argument", &nova.argument);
    find(library, "nova_output", &nova.output);
    find(library, "nova_target", &nova.target);
    find(library, "nova_workspace_size", &nova.workspace_size);
    find(library, "nova_run", &nova.run);
    return nova;
}

static void print_tensor(const char *kind, const nova_tensor_info *tensor)
{
    printf("%s %s: %s[", kind, tensor->name, tensor->dtype);
    for (int32_t axis = 0; axis < tensor->rank; axis++)
        printf("%s%lld", axis > 0 ? "," : "", (long long)tensor->shape[axis]);
    printf("]%s%s\n", tensor->weight != NOVA_NO_WEIGHT ? ", in the file" : "",
           tensor->donated ? ", updated in place" : "");
}

static void print_signature(const api *nova, const nova_model *model)
{
    static const char *const roles[] = {"input", "param"};
    for (size_t i = 0; i < nova->argument_count(model); i++) {
        const nova_tensor_info *tensor = nova->argument(model, i);
        print_tensor(roles[tensor->role == NOVA_PARAM], tensor);
    }
    for (size_t i = 0; i < nova->output_count(model); i++)
        print_tensor("output", nova->output(model, i));
    printf("code for %s, %llu bytes of workspace\n", nova->target(model),
           (unsigned long long)nova->workspace_size(model));
}

/* The one input; every other argument must have its value in the file. */
static size_t find_input(const api *nova, const nova_model *model)
{
    size_t input = SIZE_MAX;
    for (size_t i = 0; i < nova->argument_count(model); i++) {
        const nova_tensor_info *tensor = nova->argument(model, i);
        if (tensor->weight != NOVA_NO_WEIGHT)
            continue;
        if (input != SIZE_MAX)
            fail(tensor->name, "more than one argument has no value in the file");
        input = i;
    }
    if (input == SIZE_MAX)
        fail("the model", "it has no input");
    return input;
}

static void check_matrix(const nova_tensor_info *tensor)
{
    if (strcmp(tensor->dtype, "f32") != 0 || tensor->rank != 2)
        fail(tensor->name, "it is no matrix of f32");
}

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    if (memory == NULL)
        fail("memory", "there is none left");
    return memory;
}

/* The model was compiled for a number of images at once: the last batch is filled up with zeros. */
static void classify(const api *nova, nova_model *model, FILE *images)
{
    size_t input = find_input(nova, model);
    const nova_tensor_info *in = nova->argument(model, input), *out = nova->output(model, 0);
    check_matrix(in);
    check_matrix(out);
    size_t batch = (size_t)in->shape[0], pixels = (size_t)in->shape[1];
    size_t classes = (size_t)out->shape[1];
    if (out->shape[0] != in->shape[0] || classes == 0 || batch == 0)
        fail(out->name, "it has no row of scores for every image");

    float *values = allocate(batch * pixels, sizeof *values);
    float *scores = allocate(batch * classes, sizeof *scores);
    void **arguments = allocate(nova->argument_count(model), sizeof *arguments);
    void **outputs = allocate(nova->output_count(model), sizeof *outputs);
    arguments[input] = values;
    outputs[0] = scores;
    nova_error error;
    for (size_t count; (count = fread(values, pixels * sizeof *values, batch, images)) > 0;) {
        memset(values + count * pixels, 0, (batch - count) * pixels * sizeof *values);
        if (nova->run(model, arguments, outputs, NULL, &error) != NOVA_OK)
            fail("run", error.text);
        for (size_t row = 0; row < count; row++) {
            const float *score = scores + row * classes;
            size_t best = 0;
            for (size_t i = 1; i < classes; i++)
                best = score[i] > score[best] ? i : best;
            printf("%zu\n", best);
        }
    }
    free(outputs);
    free(arguments);
    free(scores);
    free(values);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        fail("usage", "digits MODEL.nova IMAGES.f32");
    const api nova = load_api(argv[1]);
    FILE *images = fopen(argv[2], "rb");
    if (images == NULL)
        fail(argv[2], "it cannot be read");
    nova_model *model;
    nova_error error;
    if (nova.open(NULL, &model, &error) != NOVA_OK) /* NULL: the file that the function is in */
        fail(argv[1], error.text);
    print_signature(&nova, model);
    classify(&nova, model, images);
    nova.close(model);
    fclose(images);
    return 0;
}
