/* The C API over a mapped file: opening, the signature, running and refusals. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, setenv */

#include <pthread.h>

#include "../support/mapped.h"
#include "api/enclosing_file.h"

/* The file that this code pretends to be in; none when `start` is NULL. */
static nova_mapped self;

bool nova_enclosing_file(nova_mapped *mapped)
{
    *mapped = self;
    return self.start != NULL;
}

static nova_model *open_model(void)
{
    nova_model *model = NULL;
    nova_error error = {0};
    if (nova_open(NULL, &model, &error) != NOVA_OK)
        fprintf(stderr, "%s: %s\n", error.check, error.text);
    CHECK(model != NULL);
    return model;
}

static void test_open_refusals(void)
{
    nova_model *model = NULL;
    nova_error error;
    self = (nova_mapped){0};
    CHECK(nova_open(NULL, &model, &error) == NOVA_INVALID_ARGUMENT && model == NULL);
    CHECK(strstr(error.text, "not inside of a .nova file") != NULL);
    CHECK(nova_open("/nowhere/at/all.nova", &model, &error) != NOVA_OK);
    CHECK(strncmp(error.check, "open-", 5) == 0);
    CHECK(nova_open(NULL, NULL, NULL) == NOVA_INVALID_ARGUMENT);

    self = map_file("\"no-such-feature\"");
    CHECK(nova_open(NULL, &model, &error) == NOVA_UNSUPPORTED && model == NULL);
    CHECK(strstr(error.text, "no-such-feature") != NULL);

    self = map_file("");
    self.manifest_size--;
    CHECK(nova_open(NULL, &model, &error) == NOVA_REFUSED && model == NULL);

    self = map_file("");
    CHECK(setenv("NOVA_TRUSTED_KEYS", "/keys", 1) == 0);
    CHECK(nova_open(NULL, &model, &error) == NOVA_REFUSED && model == NULL);
    CHECK(strcmp(error.check, "signature-unchecked") == 0);
    CHECK(setenv("NOVA_TRUSTED_KEYS", "", 1) == 0);
    nova_close(open_model());
    nova_close(NULL);
}

static void test_signature(void)
{
    nova_model *model = open_model();
    CHECK(nova_argument_count(model) == ARGUMENTS && nova_output_count(model) == OUTPUTS);
    CHECK(nova_argument(model, ARGUMENTS) == NULL && nova_output(model, OUTPUTS) == NULL);
    const nova_tensor_info *x = nova_argument(model, 0), *w = nova_argument(model, 4);
    CHECK(strcmp(x->name, "x") == 0 && strcmp(x->dtype, "f32") == 0 && x->role == NOVA_INPUT);
    CHECK(x->rank == 3 && x->shape[0] == 2 && x->shape[2] == 4 && x->nbytes == 96);
    CHECK(!x->donated && x->weight == NOVA_NO_WEIGHT && x->alias == -1);
    CHECK(w->role == NOVA_PARAM && w->weight == 0);
    CHECK(nova_argument(model, 1)->donated && nova_argument(model, 1)->rank == 0);
    CHECK(nova_output(model, 2)->alias == 2 && nova_output(model, 3)->nbytes == 0);
    CHECK(strcmp(nova_target(model), TEST_ARCH) == 0);
    CHECK(nova_workspace_size(model) == SCRATCH);
    nova_close(model);
    CHECK(nova_argument_count(NULL) == 0 && nova_output_count(NULL) == 0);
    CHECK(nova_argument(NULL, 0) == NULL && nova_output(NULL, 0) == NULL);
    CHECK(nova_target(NULL) == NULL && nova_workspace_size(NULL) == 0);
}

static void test_run(void)
{
    nova_model *model = open_model();
    nova_error error = {0};
    _Alignas(64) char workspace[SCRATCH];
    float x[24], y[24], w[4] = {1, 2, 3, 4};
    double s = 5;
    int32_t d[6] = {1, 2, 3, 4, 5, 6};
    for (int i = 0; i < 24; i++)
        x[i] = (float)i;
    void *arguments[ARGUMENTS] = {x, &s, d, NULL, NULL};
    void *outputs[OUTPUTS] = {y, NULL, NULL, NULL};
    CHECK(nova_run(model, arguments, outputs, NULL, &error) == NOVA_OK);
    for (int i = 0; i < 24; i++)
        CHECK(y[i] == (float)i + (float)(10 * (i % 4 + 1)));
    CHECK(s == 6 && d[0] == 2 && d[5] == 12);

    /* With a param, a workspace and the outputs of the caller. */
    arguments[4] = w;
    outputs[1] = &s;
    outputs[2] = d;
    CHECK(nova_run(model, arguments, outputs, workspace, NULL) == NOVA_OK);
    CHECK(y[23] == 27 && s == 7 && d[5] == 24);

    char *names[] = {"x", "s", "d"};
    for (int i = 0; i < 3; i++) {
        void *argument = arguments[i];
        arguments[i] = NULL;
        CHECK(nova_run(model, arguments, outputs, NULL, &error) == NOVA_INVALID_ARGUMENT);
        CHECK(strstr(error.text, names[i]) != NULL && strstr(error.text, "NULL") != NULL);
        arguments[i] = argument;
    }
    arguments[0] = (char *)x + 2;
    CHECK(nova_run(model, arguments, outputs, NULL, &error) == NOVA_INVALID_ARGUMENT);
    CHECK(strstr(error.text, "aligned") != NULL);
    arguments[0] = x;
    outputs[1] = x;
    CHECK(nova_run(model, arguments, outputs, NULL, &error) == NOVA_INVALID_ARGUMENT);
    CHECK(strstr(error.text, "is argument 1") != NULL);
    outputs[1] = NULL;
    outputs[0] = NULL;
    CHECK(nova_run(model, arguments, outputs, NULL, &error) == NOVA_INVALID_ARGUMENT);
    outputs[0] = y;
    CHECK(nova_run(model, NULL, outputs, NULL, &error) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_run(model, arguments, NULL, NULL, &error) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_run(model, arguments, outputs, workspace + 8, &error) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_run(NULL, arguments, outputs, NULL, &error) == NOVA_INVALID_ARGUMENT);
    CHECK(s == 7 && d[5] == 24); /* no kernel ran */
    nova_close(model);
}

/* --- threads ---------------------------------------------------------------------------------- */

enum { THREADS = 6, ROUNDS = 500 };

static atomic_int started;

static void *run_often(void *model)
{
    float x[24], y[24];
    double s = 0;
    int32_t d[6] = {0};
    void *const arguments[] = {x, &s, d, NULL, NULL};
    void *const outputs[] = {y, NULL, NULL, NULL};
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 24; i++)
            x[i] = (float)(round + i);
        CHECK(nova_run(model, arguments, outputs, NULL, NULL) == NOVA_OK);
        for (int i = 0; i < 24; i++)
            CHECK(y[i] == x[i] + (float)(10 * (i % 4 + 1)));
        if (round == 0)
            atomic_fetch_add(&started, 1);
    }
    CHECK(s == ROUNDS);
    return NULL;
}

static void test_threads(void)
{
    nova_model *model = open_model();
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, run_often, model) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(atomic_load(&started) == THREADS);
    nova_close(model);
}

static void *run_once(void *model)
{
    float x[24] = {0}, y[24];
    double s = 0;
    int32_t d[6] = {0};
    void *const arguments[] = {x, &s, d, NULL, NULL};
    void *const outputs[] = {y, NULL, NULL, NULL};
    CHECK(nova_run(model, arguments, outputs, NULL, NULL) == NOVA_OK && s == 1);
    return NULL;
}

static atomic_bool closed;

static void *close_model(void *model)
{
    nova_close(model);
    atomic_store(&closed, true);
    return NULL;
}

static void test_close_waits(void)
{
    nova_model *model = open_model();
    pthread_t runner, closer;
    atomic_store(&entered, false);
    atomic_store(&hold, true);
    CHECK(pthread_create(&runner, NULL, run_once, model) == 0);
    while (!atomic_load(&entered))
        (void)usleep(100);
    CHECK(pthread_create(&closer, NULL, close_model, model) == 0);
    (void)usleep(20000);
    CHECK(!atomic_load(&closed));
    atomic_store(&hold, false);
    CHECK(pthread_join(runner, NULL) == 0 && pthread_join(closer, NULL) == 0);
    CHECK(atomic_load(&closed));
}

int main(void)
{
    test_open_refusals();
    test_signature();
    test_run();
    test_threads();
    test_close_waits();
    return 0;
}
