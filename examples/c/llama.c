/* Writes tokens with a language model: no Python, no Nova, nothing but the C library.
 *
 *     llama MODEL.nova COUNT TEMPERATURE TOKEN...
 *
 * The model is a file of examples/llama.py. The prompt is the TOKENs, as numbers; the program
 * prints up to COUNT tokens that follow. All of the loop is inside of the file: this program calls
 * it once. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nova/model.h"

enum { ARGUMENTS = 8 };

/* The inputs of the program, in order. */
static const char *const names[ARGUMENTS] = {"tokens", "length", "limit", "temperature",
                                             "top_k",  "top_p",  "seed",  "stop"};

static void fail(const char *subject, const char *why)
{
    fprintf(stderr, "llama: %s: %s\n", subject, why);
    exit(1);
}

static void find(void *library, const char *name, void *function)
{
    void *address = dlsym(library, name);
    if (address == NULL)
        fail(name, "the file has no such function");
    memcpy(function, &address, sizeof address); /* ISO C has no cast for this */
}

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    if (memory == NULL)
        fail("memory", "there is none left");
    return memory;
}

int main(int argc, char **argv)
{
    if (argc < 5)
        fail("usage", "llama MODEL.nova COUNT TEMPERATURE TOKEN...");
    if (strchr(argv[1], '/') == NULL)
        fail(argv[1], "write a path, such as ./llama.nova");
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        fail(argv[1], dlerror());
    __typeof__(nova_open) *open;
    __typeof__(nova_close) *close;
    __typeof__(nova_argument_count) *argument_count;
    __typeof__(nova_argument) *argument;
    __typeof__(nova_run) *run;
    find(library, "nova_open", &open);
    find(library, "nova_close", &close);
    find(library, "nova_argument_count", &argument_count);
    find(library, "nova_argument", &argument);
    find(library, "nova_run", &run);

    nova_model *model;
    nova_error error;
    if (open(NULL, &model, &error) != NOVA_OK) /* NULL: the file that the function is in */
        fail(argv[1], error.text);
    if (argument_count(model) < ARGUMENTS)
        fail(argv[1], "it is not a generator of examples/llama.py");
    for (size_t i = 0; i < ARGUMENTS; i++)
        if (strcmp(argument(model, i)->name, names[i]) != 0)
            fail(argument(model, i)->name, "it is not an input of examples/llama.py");
    int64_t context = argument(model, 0)->shape[0], length = argc - 4;
    if (length >= context)
        fail("the prompt", "it is longer than the model's context");

    int64_t *tokens = allocate((size_t)context, sizeof *tokens);
    int64_t *written = allocate((size_t)context, sizeof *written);
    for (int64_t i = 0; i < length; i++)
        tokens[i] = strtoll(argv[4 + i], NULL, 10);
    int64_t limit = length + strtoll(argv[2], NULL, 10), end = 0;
    int64_t top_k = 0, seed = 0, stop = -1;
    float temperature = strtof(argv[3], NULL), top_p = 1;
    /* The other arguments are weights: the file has their values. */
    void **arguments = allocate(argument_count(model), sizeof *arguments);
    void *inputs[ARGUMENTS] = {tokens, &length, &limit, &temperature, &top_k, &top_p, &seed, &stop};
    memcpy(arguments, inputs, sizeof inputs);
    void *outputs[] = {written, &end};
    if (run(model, arguments, outputs, NULL, &error) != NOVA_OK)
        fail("run", error.text);
    for (int64_t i = length; i < end; i++)
        printf("%lld%s", (long long)written[i], i + 1 < end ? " " : "\n");
    free(arguments);
    free(written);
    free(tokens);
    close(model);
    return 0;
}
