/* Code for the simulator: kernels as nova/gpusim/image.py has decoded them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpusim/driver/driver_state.h"

/* Packed by nova/gpusim/image.py: this header, a row for each kernel, and the data that they refer
 * to. */
typedef struct {
    char magic[8];
    uint64_t count, text, text_size, schedule;
} image_header;

typedef struct {
    uint64_t name, code, length, operands, operand_count, constants, constant_count;
    uint32_t register_words, shared_bytes, local_bytes, param_bytes, most_threads, required[3];
    uint32_t thread_registers, cluster[3];
} image_row;

static bool code_fits(uint64_t size, uint64_t at, uint64_t number, uint64_t each)
{
    return at % 8 == 0 && at <= size && number <= (size - at) / each;
}

static bool code_read_row(const char *image, uint64_t size, const image_row *row, function *created)
{
    if (!code_fits(size, row->code, row->length, sizeof(sim_instruction)) || row->length == 0 ||
        !code_fits(size, row->operands, row->operand_count, sizeof(sim_operand)) ||
        !code_fits(size, row->constants, row->constant_count, sizeof(uint64_t)) ||
        row->name >= size)
        return false;
    created->name = image + row->name;
    created->kernel = (sim_kernel){
        .code = (const void *)(image + row->code),
        .length = (uint32_t)row->length,
        .operands = (const void *)(image + row->operands),
        .constants = (const void *)(image + row->constants),
        .constant_count = (uint32_t)row->constant_count,
        .register_words = row->register_words,
        .shared_bytes = row->shared_bytes,
        .local_bytes = row->local_bytes,
        .thread_registers = row->thread_registers,
    };
    created->param_bytes = row->param_bytes;
    created->most_threads = row->most_threads;
    memcpy(created->required, row->required, sizeof created->required);
    memcpy(created->cluster, row->cluster, sizeof created->cluster);
    return true;
}

void nova_sim_module_unload(nova_driver *driver, void *handle)
{
    simulator *s = sim_of(driver);
    module *created = handle;
    pthread_mutex_lock(&s->mutex);
    (void)sim_drain_all(s); /* launches may still be of it */
    pthread_mutex_unlock(&s->mutex);
    free(created->image);
    free(created);
}

int nova_sim_module_load(nova_driver *driver, const void *image, size_t size, uint32_t kind,
                         char *log, size_t log_size, void **loaded)
{
    (void)kind, (void)log_size;
    *log = '\0';
    const image_header *header = image;
    if (size < sizeof *header || memcmp(header->magic, "NOVASIM2", 8) != 0 ||
        !code_fits(size, sizeof *header, header->count, sizeof(image_row)) ||
        !code_fits(size, header->text, header->text_size, 1))
        return SIM_BAD_CODE;
    module *created = calloc(1, sizeof *created + header->count * sizeof(function));
    char *copy = malloc(size + 1);
    if (created == NULL || copy == NULL) {
        free(created);
        free(copy);
        return SIM_NO_MEMORY;
    }
    memcpy(copy, image, size);
    copy[size] = '\0';
    created->on = sim_of(driver);
    created->image = copy;
    created->text = copy + header->text;
    created->text_size = header->text_size;
    created->schedule = (uint32_t)header->schedule;
    created->count = (uint32_t)header->count;
    const image_row *rows = (const void *)(copy + sizeof *header);
    for (uint32_t i = 0; i < created->count; i++) {
        created->functions[i].of = created;
        if (!code_read_row(copy, size, &rows[i], &created->functions[i])) {
            nova_sim_module_unload(driver, created);
            return SIM_BAD_CODE;
        }
    }
    *loaded = created;
    return SIM_OK;
}

int nova_sim_function_find(nova_driver *driver, void *handle, const char *name, void **function)
{
    (void)driver;
    module *in = handle;
    for (uint32_t i = 0; i < in->count; i++)
        if (strcmp(in->functions[i].name, name) == 0) {
            *function = &in->functions[i];
            return SIM_OK;
        }
    return SIM_NO_KERNEL;
}

/* Notes why a function cannot run. */
static int code_refuse(simulator *s, const function *f, const char *why, uint32_t bytes)
{
    pthread_mutex_lock(&s->mutex);
    (void)snprintf(s->why, sizeof s->why, "kernel %.60s %s: %u + %u bytes", f->name, why,
                   f->kernel.shared_bytes, bytes);
    pthread_mutex_unlock(&s->mutex);
    return SIM_BAD_LAUNCH;
}

/* Its registers are the most that the bounds of the kernel allow; 0: it has none. */
int nova_sim_function_use(nova_driver *driver, void *handle, nova_function_use *use)
{
    (void)driver;
    const function *f = handle;
    *use = (nova_function_use){f->kernel.thread_registers, f->kernel.shared_bytes};
    return SIM_OK;
}

int nova_sim_function_allow_shared(nova_driver *driver, void *handle, uint32_t bytes)
{
    simulator *s = sim_of(driver);
    function *f = handle;
    if (f->kernel.shared_bytes > MOST_SHARED || bytes > MOST_SHARED - f->kernel.shared_bytes)
        return code_refuse(s, f, "asks for more shared memory than a block can get", bytes);
    pthread_mutex_lock(&s->mutex);
    if (f->allowed_shared < bytes)
        f->allowed_shared = bytes;
    pthread_mutex_unlock(&s->mutex);
    return SIM_OK;
}

/* Few, and not a power of two: the tasks of a launch wrap around. Two are on each multiprocessor,
 * as `%smid` says (block.c). None where a GPU has none:
 * without the shared memory that was allowed, or the registers and threads of a multiprocessor. */
int nova_sim_function_resident(nova_driver *driver, void *handle, uint32_t threads, uint32_t shared,
                               uint32_t *blocks, uint32_t *processors)
{
    simulator *s = sim_of(driver);
    const function *f = handle;
    uint64_t all = (uint64_t)f->kernel.shared_bytes + shared,
             registers = (uint64_t)f->kernel.thread_registers * threads;
    *blocks = 0;
    *processors = 3;
    if (all > USUAL_SHARED && shared > f->allowed_shared)
        return code_refuse(s, f, "was not allowed its shared memory", shared);
    if (all + BLOCK_SHARED > PROCESSOR_SHARED || registers > PROCESSOR_REGISTERS ||
        threads > PROCESSOR_THREADS)
        return code_refuse(s, f, "does not fit on a multiprocessor", shared);
    *blocks = 6;
    return SIM_OK;
}
