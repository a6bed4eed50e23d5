/* Code of a program: one module of the driver, or several that threads load concurrently. The
 * driver compiles PTX when it loads a module, on one thread: large PTX of many kernels is cut into
 * modules of some kernels each, with the directives before the first kernel in front. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/cuda/cuda_state.h"
#include "nova/file.h"

enum { MOST_MODULES = 16, LEAST_BYTES = 48 * 1024, LOG_SIZE = 1024 };

typedef struct {
    int count;
    void *modules[MOST_MODULES];
} cuda_code;

/* One module to load; `text` ends with a NUL if it is PTX. */
typedef struct {
    cuda *driver;
    void *context; /* NULL in the thread of the caller, which is in it */
    char *text;
    size_t size;
    void *module;
    int result;
    char log[LOG_SIZE];
} module_load;

static void *load_module(void *argument)
{
    module_load *load = argument;
    int options[] = {JIT_ERROR_LOG, JIT_ERROR_LOG_SIZE};
    void *values[] = {load->log, (void *)(uintptr_t)LOG_SIZE};
    void *previous;
    load->result = load->context == NULL ? 0 : load->driver->context_push(load->context);
    if (load->result != 0)
        return NULL;
    load->result = load->driver->module_load(&load->module, load->text, 2, options, values);
    load->log[LOG_SIZE - 1] = '\0';
    if (load->context != NULL)
        (void)load->driver->context_pop(&previous);
    return NULL;
}

/* --- cutting PTX ------------------------------------------------------------------------------ */

static const char ENTRY[] = "\n.visible .entry ";

/* The first place of `words` in `text`, or NULL. */
static const char *find_words(const char *text, const char *words)
{
    size_t length = strlen(words);
    for (; *text != '\0'; text++)
        if (*text == *words && strncmp(text, words, length) == 0)
            return text;
    return NULL;
}

/* The next kernel after `from`, or NULL. */
static const char *next_entry(const char *from)
{
    return find_words(from, ENTRY);
}

/* Whether a module has only kernels, and shared memory: nothing that several modules would share.
 */
static bool has_only_kernels(const char *text)
{
    static const char *const others[] = {".func",     "\n.global",         "\n.visible .global",
                                         "\n.const",  "\n.visible .const", "\n.weak",
                                         "\n.common", "\n.alias"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (find_words(text, others[i]) != NULL)
            return false;
    return true;
}

/* The number of modules for a text of `size` bytes. */
static int module_count(const char *text, size_t size, const cuda *c)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    size_t count = size / LEAST_BYTES;
    if (count > MOST_MODULES)
        count = MOST_MODULES;
    if (cores < (long)count)
        count = cores < 1 ? 1 : (size_t)cores;
    return count < 2 || c->context_current == NULL || !has_only_kernels(text) ? 1 : (int)count;
}

/* Give each kernel of `text` to the module with the fewest bytes so far; false without memory. */
static bool distribute_kernels(const char *text, size_t size, module_load *loads, int count)
{
    const char *first = next_entry(text);
    size_t header = first == NULL ? size : (size_t)(first - text);
    for (int i = 0; i < count; i++) {
        loads[i].text = malloc(size + 1);
        if (loads[i].text == NULL)
            return false;
        memcpy(loads[i].text, text, header);
        loads[i].size = header;
    }
    while (first != NULL) {
        const char *next = next_entry(first + 1);
        size_t length = (next == NULL ? size : (size_t)(next - text)) - (size_t)(first - text);
        module_load *least = loads;
        for (int i = 1; i < count; i++)
            if (loads[i].size < least->size)
                least = loads + i;
        memcpy(least->text + least->size, first, length);
        least->size += length;
        first = next;
    }
    for (int i = 0; i < count; i++)
        loads[i].text[loads[i].size] = '\0';
    return true;
}

/* --- the table of the driver ------------------------------------------------------------------ */

/* Load all modules, each in its thread; the first result that is not 0, with its log. */
static int load_modules(cuda *c, module_load *loads, int count, char *log, size_t log_size)
{
    pthread_t threads[MOST_MODULES];
    bool started[MOST_MODULES] = {false};
    void *context = NULL;
    int result = count == 1 ? 0 : c->context_current(&context);
    if (result != 0)
        return result;
    for (int i = 0; i < count; i++)
        loads[i].driver = c;
    for (int i = 1; i < count; i++) {
        loads[i].context = context;
        started[i] = pthread_create(&threads[i], NULL, load_module, &loads[i]) == 0;
        if (!started[i])
            loads[i].context = NULL;
    }
    for (int i = 0; i < count; i++)
        if (!started[i])
            (void)load_module(&loads[i]);
    for (int i = 1; i < count; i++)
        if (started[i])
            (void)pthread_join(threads[i], NULL);
    for (int i = 0; i < count && result == 0; i++) {
        result = loads[i].result;
        if (result != 0)
            (void)snprintf(log, log_size, "%s", loads[i].log);
    }
    return result;
}

int nova_cuda_module_load(nova_driver *driver, const void *image, size_t size, uint32_t kind,
                          char *log, size_t log_size, void **module)
{
    cuda *c = cuda_context_of(driver);
    *log = '\0';
    cuda_code *code = calloc(1, sizeof *code);
    module_load *loads = calloc(MOST_MODULES, sizeof *loads);
    char *text = malloc(size + 1);
    int result = OUT_OF_MEMORY;
    if (code != NULL && loads != NULL && text != NULL) {
        memcpy(text, image, size);
        text[size] = '\0'; /* the driver reads PTX up to the NUL */
        code->count = kind == NOVA_PTX ? module_count(text, size, c) : 1;
        if (code->count == 1) {
            loads[0].text = text;
            text = NULL;
            result = 0;
        } else if (distribute_kernels(text, size, loads, code->count)) {
            result = 0;
        }
    }
    if (result == 0)
        result = load_modules(c, loads, code->count, log, log_size);
    for (int i = 0; code != NULL && loads != NULL && i < code->count; i++) {
        code->modules[i] = loads[i].module;
        free(loads[i].text);
    }
    free(loads);
    free(text);
    if (result == 0)
        *module = code;
    else if (code != NULL)
        nova_cuda_module_unload(driver, code);
    return result;
}

void nova_cuda_module_unload(nova_driver *driver, void *module)
{
    cuda_code *code = module;
    for (int i = 0; i < code->count; i++)
        if (code->modules[i] != NULL)
            (void)cuda_context_of(driver)->module_unload(code->modules[i]);
    free(code);
}

int nova_cuda_function_find(nova_driver *driver, void *module, const char *name, void **function)
{
    const cuda_code *code = module;
    int result = NOT_FOUND;
    for (int i = 0; i < code->count && result == NOT_FOUND; i++)
        result = cuda_context_of(driver)->module_function(function, code->modules[i], name);
    return result;
}
