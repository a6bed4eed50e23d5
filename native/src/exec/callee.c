#include "exec/callee.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "exec/program.h"
#include "nova/file.h"

#define REFUSE(error, ...) nova_fail((error), NOVA_REFUSED, "tables-call", __VA_ARGS__)

struct nova_callee {
    nova_file *file;
    nova_image *image;
    nova_program *program;
    const char *weights; /* of the file; NULL: it has none */
};

static uint64_t callee_operand_size(const nova_tables *tables, const nova_launch_record *launch,
                                    uint32_t operand)
{
    return tables->buffers[tables->operands[launch->first_operand + operand]].nbytes;
}

/* Bytes of the pointers to the arguments, at the start of the last operand of a launch. */
static uint64_t callee_pointers_size(const nova_callee *callee)
{
    return (nova_file_argument_count(callee->file) * sizeof(void *) + 63) & ~UINT64_C(63);
}

/* --- opening ---------------------------------------------------------------------------------- */

/* Compares the signature with the operands: the file, arguments, results, and the buffer of the
 * kernel itself. */
static nova_status callee_check_signature(const nova_callee *callee, const nova_tables *tables,
                                          const nova_launch_record *launch, nova_error *error)
{
    const nova_tensor_info *arguments = nova_file_arguments(callee->file);
    const nova_tensor_info *outputs = nova_file_outputs(callee->file);
    size_t argument_count = nova_file_argument_count(callee->file);
    size_t output_count = nova_file_output_count(callee->file);
    uint32_t passed = launch->reads - 1, results = launch->operand_count - launch->reads - 1;
    if (passed > argument_count || results != output_count)
        return REFUSE(error, "a file of %zu arguments and %zu outputs is called with %u and %u",
                      argument_count, output_count, passed, results);
    for (size_t i = 0; i < argument_count; i++) {
        if (arguments[i].donated != 0)
            return REFUSE(error, "the called file writes into its argument '%s'",
                          arguments[i].name);
        if (i >= passed && (arguments[i].weight == NOVA_NO_WEIGHT || callee->weights == NULL))
            return REFUSE(error, "the call passes no '%s', and the file has no value for it",
                          arguments[i].name);
        uint64_t size = i < passed ? callee_operand_size(tables, launch, 1 + (uint32_t)i)
                                   : (uint64_t)arguments[i].nbytes;
        if (size != (uint64_t)arguments[i].nbytes)
            return REFUSE(error, "the call passes %" PRIu64 " bytes for '%s', which has %" PRId64,
                          size, arguments[i].name, arguments[i].nbytes);
    }
    for (size_t i = 0; i < output_count; i++) {
        uint64_t size = callee_operand_size(tables, launch, launch->reads + (uint32_t)i);
        if (outputs[i].alias >= 0 || size != (uint64_t)outputs[i].nbytes)
            return REFUSE(error, "result '%s' of the called file has another size",
                          outputs[i].name);
    }
    return NOVA_OK;
}

static nova_status callee_prepare(nova_callee *callee, const nova_tables *tables,
                                  const nova_launch_record *launch, const void *data, size_t size,
                                  nova_error *error)
{
    size_t number = 0, weights_size;
    const void *weights;
    nova_status status = nova_file_view(data, size, &callee->file, error);
    if (status == NOVA_OK)
        status = nova_file_choose(callee->file, &number, error);
    if (status != NOVA_OK)
        return status;
    const nova_variant *variant = &nova_file_variants(callee->file)[number];
    if (variant->symbolic.header != NULL)
        return REFUSE(error, "the called file has symbolic sizes");
    if (nova_file_section(callee->file, ".nova.weights", &weights, &weights_size))
        callee->weights = weights;
    status = callee_check_signature(callee, tables, launch, error);
    if (status == NOVA_OK)
        status = nova_file_load(callee->file, number, &callee->image, error);
    if (status == NOVA_OK)
        status = nova_program_create(&variant->tables, callee->image, variant->constants_vaddr,
                                     &callee->program, error);
    if (status != NOVA_OK)
        return status;
    uint64_t memory = callee_operand_size(tables, launch, launch->operand_count - 1);
    uint64_t pointers = callee_pointers_size(callee);
    if (memory < pointers || memory - pointers < nova_program_workspace_size(callee->program))
        return REFUSE(error, "%" PRIu64 " bytes are too few for a called file", memory);
    return NOVA_OK;
}

nova_status nova_callee_open(const nova_tables *tables, const nova_launch_record *launch,
                             const void *data, size_t size, nova_callee **callee, nova_error *error)
{
    nova_callee *created = calloc(1, sizeof *created);
    if (created == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for a called file");
    nova_error inner;
    nova_status status = callee_prepare(created, tables, launch, data, size, &inner);
    if (status != NOVA_OK) {
        nova_callee_close(created);
        return status == NOVA_OUT_OF_MEMORY
                   ? nova_fail(error, status, "", "%s", inner.text)
                   : REFUSE(error, "the called file cannot run here: %s", inner.text);
    }
    *callee = created;
    return NOVA_OK;
}

void nova_callee_close(nova_callee *callee)
{
    if (callee == NULL)
        return;
    nova_program_destroy(callee->program);
    nova_image_destroy(callee->image);
    nova_file_close(callee->file);
    free(callee);
}

/* --- running ---------------------------------------------------------------------------------- */

bool nova_callee_is_inline(const nova_callee *callee)
{
    return callee->program->is_inline;
}

/* The nova_poll of a run: its owner is the watch of the caller. */
static nova_status callee_poll(void *context)
{
    const nova_watch *watch = context;
    return watch->check(watch->context);
}

nova_status nova_callee_run(const nova_callee *callee, const nova_launch_record *launch,
                            void *const *operands, const nova_watch *watch)
{
    const nova_tensor_info *tensors = nova_file_arguments(callee->file);
    size_t count = nova_file_argument_count(callee->file), passed = launch->reads - 1;
    char *memory = operands[launch->operand_count - 1];
    void **arguments = (void **)(void *)memory;
    memcpy(arguments, operands + 1, passed * sizeof *arguments);
    for (size_t i = passed; i < count; i++)
        arguments[i] = (void *)(uintptr_t)(callee->weights + tensors[i].weight);
    const nova_program_options options = {
        .workers = watch->worker_limit,
        .poll = callee_poll,
        .owner = (void *)(uintptr_t)watch,
    };
    return nova_program_run_by(callee->program, arguments, operands + launch->reads,
                               memory + callee_pointers_size(callee), &options, NULL);
}
