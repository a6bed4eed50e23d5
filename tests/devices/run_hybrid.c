/* A program in C that runs the file of hybrid_samples.py on a device: y = 18 x, and a negative x is
 * an error.
 *
 * run_hybrid FILE DEVICE: by the runtime inside of the file, or, when built with LINKED, by the one
 * in libnova.a. What cannot be opened or goes wrong is printed, with its status. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "nova.h"

#ifdef LINKED
#define GET(name) p_##name = name
#else
#define GET(name) p_##name = (__typeof__(name) *)(uintptr_t)dlsym(library, #name)
#endif

enum { SIZE = 96, THREADS = 4, RUNS = 20 };

static __typeof__(nova_open_on) *p_nova_open_on;
static __typeof__(nova_run) *p_nova_run;
static __typeof__(nova_run_on) *p_nova_run_on;
static __typeof__(nova_close) *p_nova_close;
static __typeof__(nova_target) *p_nova_target;

static void report(nova_status status, const nova_error *error)
{
    (void)printf("%d %s\n", (int)status, error->text);
}

static void fill(float *x, float first)
{
    for (int i = 0; i < SIZE; i++)
        x[i] = first + (float)i;
}

static int is_right(const float *x, const float *y)
{
    int right = 1;
    for (int i = 0; i < SIZE; i++)
        right &= y[i] == 18 * x[i];
    return right;
}

static void *work(void *model)
{
    float x[SIZE], y[SIZE];
    nova_error error;
    int right = 1;
    for (int run = 0; run < RUNS; run++) {
        fill(x, (float)run);
        right &= p_nova_run(model, (void *[]){x}, (void *[]){y}, NULL, &error) == NOVA_OK &&
                 is_right(x, y);
    }
    return (void *)(intptr_t)right;
}

static void run_threads(nova_model *model)
{
    pthread_t threads[THREADS];
    int right = 1;
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, model) != 0)
            exit(3);
    for (int i = 0; i < THREADS; i++) {
        void *result;
        (void)pthread_join(threads[i], &result);
        right &= result != NULL;
    }
    (void)printf("threads %s\n", right ? "right" : "wrong");
}

static void run_once(nova_model *model, float first)
{
    float x[SIZE], y[SIZE];
    nova_error error;
    fill(x, first);
    nova_status status = p_nova_run(model, (void *[]){x}, (void *[]){y}, NULL, &error);
    if (status != NOVA_OK)
        report(status, &error);
    else
        (void)printf("%s %s\n", p_nova_target(model), is_right(x, y) ? "right" : "wrong");
}

static void run_values(nova_model *model)
{
    float x[SIZE], y[SIZE];
    nova_error error;
    fill(x, 5);
    const nova_device_value argument = {.host = x}, output = {.host = y}, nothing = {0};
    nova_status status = p_nova_run_on(model, &argument, &output, NULL, &error);
    (void)printf("values %s\n", status == NOVA_OK && is_right(x, y) ? "right" : "wrong");
    status = p_nova_run_on(model, &nothing, &output, NULL, &error);
    report(status, &error);
}

int main(int count, char **words)
{
    if (count != 3)
        return 2;
#ifdef LINKED
    const char *path = words[1];
#else
    const char *path = NULL;
    void *library = dlopen(words[1], RTLD_NOW);
    if (library == NULL) {
        (void)fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
#endif
    GET(nova_open_on);
    GET(nova_run);
    GET(nova_run_on);
    GET(nova_close);
    GET(nova_target);
    for (int time = 0; time < 2; time++) { /* also behind the last one that was closed */
        nova_model *model;
        nova_error error;
        nova_status status = p_nova_open_on(path, words[2], &model, &error);
        if (status != NOVA_OK) {
            report(status, &error);
            return 1;
        }
        for (int run = 0; run < 3; run++)
            run_once(model, (float)run);
        run_once(model, -7); /* x[0] to x[6] are negative */
        run_once(model, 3);
        run_values(model);
        run_threads(model);
        p_nova_close(model);
    }
    return 0;
}
