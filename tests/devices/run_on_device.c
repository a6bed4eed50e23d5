/* A program in C: opens a .nova by the runtime inside of it, on a device, and prints what a run
 * gives.
 *
 * run_on_device FILE DEVICE: x is 0, 1, 2, ...; the file is the training step of
 * device_samples.py. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "nova.h"

#define GET(name) __typeof__(name) *p_##name = (__typeof__(name) *)(uintptr_t)dlsym(library, #name)

enum { SIZE = 96 };

int main(int count, char **words)
{
    (void)count;
    void *library = dlopen(words[1], RTLD_NOW);
    if (library == NULL) {
        (void)fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    GET(nova_open_on);
    GET(nova_run);
    GET(nova_run_on);
    GET(nova_close);
    GET(nova_target);
    GET(nova_workspace_size);
    nova_model *model;
    nova_error error;
    const char *device = strcmp(words[2], "-") == 0 ? NULL : words[2];
    nova_status status = p_nova_open_on(NULL, device, &model, &error);
    if (status != NOVA_OK) {
        (void)printf("%d %s\n", (int)status, error.text);
        return 1;
    }
    float x[SIZE], w[SIZE], y[SIZE];
    for (int i = 0; i < SIZE; i++)
        x[i] = (float)i, w[i] = 1;
    for (int run = 0; run < 3 && status == NOVA_OK; run++)
        status = p_nova_run(model, (void *[]){x, w}, (void *[]){y, NULL}, NULL, &error);
    if (status == NOVA_OK) {
        const nova_device_value arguments[] = {{.host = x}, {.host = w}},
                                outputs[] = {{.host = y}, {0}};
        status = p_nova_run_on(model, arguments, outputs, NULL, &error);
    }
    if (status == NOVA_OK)
        (void)printf("%s %llu %g %g\n", p_nova_target(model),
                     (unsigned long long)p_nova_workspace_size(model), (double)w[5], (double)y[5]);
    else
        (void)printf("%d %s\n", (int)status, error.text);
    if (status == NOVA_OK &&
        p_nova_run(model, (void *[]){x, NULL}, (void *[]){y, NULL}, NULL, &error) != NOVA_OK)
        (void)printf("%s\n", error.text);
    p_nova_close(model);
    return status == NOVA_OK ? 0 : 1;
}
