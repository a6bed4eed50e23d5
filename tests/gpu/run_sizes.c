/* A program in C: opens a .nova with symbolic sizes on a device, and runs it for several of them.
 *
 * run_sizes FILE DEVICE: the file is the one of any length of device_samples.py. */
#include <dlfcn.h>
#include <stdio.h>

#include "nova.h"

#define GET(name) __typeof__(name) *p_##name = (__typeof__(name) *)(uintptr_t)dlsym(library, #name)

enum { MOST = 128 };

int main(int count, char **words)
{
    (void)count;
    void *library = dlopen(words[1], RTLD_NOW);
    if (library == NULL) {
        (void)fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    GET(nova_open_on);
    GET(nova_open_sizes);
    GET(nova_argument);
    GET(nova_run);
    GET(nova_close);
    nova_model *model, *sized;
    nova_error error;
    float x[MOST], y[MOST];
    for (int i = 0; i < MOST; i++)
        x[i] = (float)i, y[i] = -1;
    nova_status status = p_nova_open_on(NULL, words[2], &model, &error);
    if (status == NOVA_OK &&
        p_nova_run(model, (void *[]){x}, (void *[]){y}, NULL, &error) != NOVA_OK)
        (void)printf("%s\n", error.text);
    const int64_t sizes[] = {5, 64, 5, 100};
    for (int i = 0; i < 4 && status == NOVA_OK; i++) {
        status = p_nova_open_sizes(model, &sizes[i], &sized, &error);
        if (status != NOVA_OK)
            break;
        status = p_nova_run(sized, (void *[]){x}, (void *[]){y}, NULL, &error);
        if (status == NOVA_OK)
            (void)printf("%lld %g %g\n", (long long)p_nova_argument(sized, 0)->shape[0],
                         (double)y[sizes[i] - 1], (double)y[sizes[i]]);
        p_nova_close(sized);
    }
    if (status != NOVA_OK) {
        (void)printf("%d %s\n", (int)status, error.text);
        return 1;
    }
    const int64_t outside = 5000;
    if (p_nova_open_sizes(model, &outside, &sized, &error) != NOVA_OK)
        (void)printf("%s\n", error.text);
    p_nova_close(model);
    return 0;
}
