/* run_file MODEL.nova: checks, maps and runs a file through the C API, as a program with libnova.a
 * does. Reads the values of all arguments that the file does not have from stdin, one after the
 * other, and writes all outputs to stdout. */
#include <stdio.h>
#include <string.h>

#include "../support/check.h"
#include "nova.h"

static void *read_values(const nova_tensor_info *tensor)
{
    size_t nbytes = (size_t)tensor->nbytes;
    void *values = malloc(nbytes + 1);
    CHECK(values != NULL && fread(values, 1, nbytes, stdin) == nbytes);
    return values;
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    nova_model *model;
    nova_error error;
    if (nova_open(argv[1], &model, &error) != NOVA_OK) {
        fprintf(stderr, "%s: %s\n", error.check, error.text);
        return 2;
    }
    size_t inputs = nova_argument_count(model), results = nova_output_count(model);
    void **arguments = calloc(inputs + 1, sizeof *arguments);
    void **outputs = calloc(results + 1, sizeof *outputs);
    CHECK(arguments != NULL && outputs != NULL);
    for (size_t i = 0; i < inputs; i++)
        if (nova_argument(model, i)->weight == NOVA_NO_WEIGHT)
            arguments[i] = read_values(nova_argument(model, i));
    for (size_t i = 0; i < results; i++) {
        CHECK(nova_output(model, i)->alias < 0);
        CHECK((outputs[i] = malloc((size_t)nova_output(model, i)->nbytes + 1)) != NULL);
    }
    if (nova_run(model, arguments, outputs, NULL, &error) != NOVA_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 3;
    }
    for (size_t i = 0; i < results; i++) {
        fwrite(outputs[i], 1, (size_t)nova_output(model, i)->nbytes, stdout);
        free(outputs[i]);
    }
    for (size_t i = 0; i < inputs; i++)
        free(arguments[i]);
    free(arguments);
    free(outputs);
    nova_close(model);
    return 0;
}
