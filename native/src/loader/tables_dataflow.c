/* Checks that the launches of a block match the interfaces of their kernels, and each other.
 *
 * The code of a kernel accesses all bytes of its operands, for every tile of its grid, which cannot
 * be derived from the code. So a block has an interface for each kernel, and launches with other
 * buffers are refused. Then a forward dataflow analysis follows the launches in order: each value
 * that a launch reads was written before and not overwritten since. The body of a loop runs any
 * number of times: a value that it reads must be defined in the first iteration and in later ones,
 * and after the loop only values that are defined without it are defined. */
#include "loader/tables_parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define REFUSE(error, check, ...) nova_fail((error), NOVA_REFUSED, (check), __VA_ARGS__)

/* Pairs of a write and a buffer that overlaps it: more than any program has, and a second of
 * work. */
#define MOST_OVERLAPS (UINT64_C(1) << 28)

static uint32_t dataflow_core_of(const nova_tables *tables, const nova_launch_record *launch)
{
    return tables->kernels[launch->kernel].core & NOVA_CORE_MASK;
}

/* Whether a launch runs code: copies and loops do not. They only read their one buffer. */
static bool dataflow_runs_code(const nova_tables *tables, const nova_launch_record *launch)
{
    return dataflow_core_of(tables, launch) < NOVA_TO_HOST;
}

/* Whether `reads` of a launch is known: for a device kernel it is not, and is 0. */
static bool dataflow_knows_reads(const nova_tables *tables, const nova_launch_record *launch)
{
    const nova_kernel_record *kernel = &tables->kernels[launch->kernel];
    bool is_known = nova_kernel_is_linked(kernel) || (kernel->core & NOVA_CONTROL) != 0;
    return is_known && launch->reads > 0;
}

/* --- interfaces ------------------------------------------------------------------------------- */

nova_status nova_interfaces_find(nova_tables *tables, const char *block, uint64_t limit,
                                 uint64_t *position, nova_error *error)
{
    uint32_t count = tables->header->kernel_count;
    const nova_interface *rows = (const void *)(block + *position);
    if (*position > limit || (limit - *position) / sizeof *rows < count)
        return REFUSE(error, "tables-size", "the interfaces of %u kernels end after the block",
                      count);
    uint64_t end = *position + (uint64_t)count * sizeof *rows, sizes = 0;
    for (uint32_t i = 0; i < count; i++)
        sizes += rows[i].operand_count;
    if ((limit - end) / sizeof(uint64_t) < sizes)
        return REFUSE(error, "tables-size", "the sizes of %" PRIu64 " operands end after the block",
                      sizes);
    tables->interfaces = rows;
    tables->interface_sizes = (const void *)(block + end);
    *position = end + sizes * sizeof(uint64_t);
    return NOVA_OK;
}

/* Where the sizes of each kernel's operands begin. */
static uint64_t *dataflow_find_sizes(const nova_tables *tables)
{
    uint32_t count = tables->header->kernel_count;
    uint64_t *first = calloc((size_t)count + 1, sizeof *first);
    for (uint32_t i = 0; first != NULL && i < count; i++)
        first[i + 1] = first[i] + tables->interfaces[i].operand_count;
    return first;
}

static nova_status dataflow_check_launch(const nova_tables *tables, uint32_t index,
                                         const uint64_t *sizes, const nova_tables_limits *limits,
                                         nova_error *error)
{
    const nova_launch_record *launch = &tables->launches[index];
    const nova_interface *interface = &tables->interfaces[launch->kernel];
    if (launch->operand_count != interface->operand_count || launch->reads != interface->reads)
        return REFUSE(
            error, "tables-interface",
            "launch %u gives kernel %u %u operands, %u of them to read only; its code takes "
            "%u and %u",
            index, launch->kernel, launch->operand_count, launch->reads, interface->operand_count,
            interface->reads);
    for (uint32_t i = 0; i < launch->operand_count; i++) {
        const nova_buffer *buffer = &tables->buffers[tables->operands[launch->first_operand + i]];
        if (buffer->nbytes != sizes[i])
            return REFUSE(error, "tables-interface",
                          "launch %u: operand %u has %" PRIu64
                          " bytes, the code of kernel %u takes %" PRIu64,
                          index, i, buffer->nbytes, launch->kernel, sizes[i]);
        if (!dataflow_knows_reads(tables, launch) || i < launch->reads)
            continue;
        bool is_read_only = buffer->kind == NOVA_ARGUMENT && limits->argument_donated != NULL &&
                            !limits->argument_donated[buffer->value];
        if (buffer->kind == NOVA_CONSTANT || is_read_only)
            return REFUSE(error, "tables-write", "launch %u writes operand %u, which is %s", index,
                          i, is_read_only ? "an argument that is not donated" : "a constant");
    }
    return NOVA_OK;
}

static nova_status dataflow_check_interfaces(const nova_tables *tables,
                                             const nova_tables_limits *limits, nova_error *error)
{
    for (uint32_t i = 0; i < tables->header->kernel_count; i++) {
        const nova_interface *interface = &tables->interfaces[i];
        if (interface->grid != tables->kernels[i].grid)
            return REFUSE(error, "tables-interface",
                          "kernel %u has %" PRId64 " tiles, its code %" PRId64, i,
                          tables->kernels[i].grid, interface->grid);
        if (interface->symbol != tables->kernels[i].symbol ||
            interface->core != tables->kernels[i].core)
            return REFUSE(error, "tables-interface", "kernel %u has the interface of another", i);
    }
    uint64_t *first = dataflow_find_sizes(tables);
    if (first == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory to check %u kernels",
                         tables->header->kernel_count);
    nova_status status = NOVA_OK;
    for (uint32_t i = 0; status == NOVA_OK && i < tables->header->launch_count; i++)
        if (dataflow_runs_code(tables, &tables->launches[i]))
            status = dataflow_check_launch(
                tables, i, tables->interface_sizes + first[tables->launches[i].kernel], limits,
                error);
    free(first);
    return status;
}

/* --- the order of reads and writes ------------------------------------------------------------ */

/* A buffer of the workspace, or of the memory of an output; in their order, `reach` is the last end
 * up to this one in the same memory. */
typedef struct {
    uint64_t memory, value, reach; /* memory: 0 for the workspace, else 1 + the output */
    uint32_t index;
} placed;

/* The buffers by memory and offset, and the defined values: a byte for each, whether it has the
 * value last written to it; then a byte for each output. A write to an output, which is often one
 * of several, leaves its parts defined: what is read from them later is memory that the program has
 * written. */
typedef struct {
    const nova_tables *tables;
    placed *order;
    uint32_t *rank; /* of each buffer in `order` */
    unsigned char *has, *outputs;
    size_t state; /* bytes of `has` and `outputs`, which follows it */
    uint32_t count;
    uint64_t work;
} flow;

static bool dataflow_is_placed(const nova_buffer *buffer)
{
    return (buffer->kind == NOVA_WORKSPACE || buffer->kind == NOVA_OUTPUT_PART) &&
           buffer->nbytes > 0;
}

static uint64_t dataflow_memory(const nova_buffer *buffer)
{
    return buffer->kind == NOVA_OUTPUT_PART ? UINT64_C(1) + buffer->output : 0;
}

static int dataflow_compare(const void *a, const void *b)
{
    const placed *left = a, *right = b;
    if (left->memory != right->memory)
        return left->memory < right->memory ? -1 : 1;
    return left->value < right->value ? -1 : left->value > right->value;
}

static bool dataflow_sort_buffers(flow *f, uint64_t output_count)
{
    uint32_t buffers = f->tables->header->buffer_count;
    f->order = calloc((size_t)buffers + 1, sizeof *f->order);
    f->rank = calloc((size_t)buffers + 1, sizeof *f->rank);
    f->state = (size_t)buffers + (size_t)output_count;
    f->has = calloc(f->state + 1, 1);
    if (f->order == NULL || f->rank == NULL || f->has == NULL)
        return false;
    f->outputs = f->has + buffers;
    for (uint32_t i = 0; i < buffers; i++)
        if (dataflow_is_placed(&f->tables->buffers[i]))
            f->order[f->count++] = (placed){.memory = dataflow_memory(&f->tables->buffers[i]),
                                            .value = f->tables->buffers[i].value,
                                            .index = i};
    qsort(f->order, f->count, sizeof *f->order, dataflow_compare);
    uint64_t reach = 0;
    for (uint32_t i = 0; i < f->count; i++) {
        const nova_buffer *buffer = &f->tables->buffers[f->order[i].index];
        uint64_t end = buffer->value + buffer->nbytes;
        bool is_first = i == 0 || f->order[i - 1].memory != f->order[i].memory;
        reach = is_first || end > reach ? end : reach;
        f->order[i].reach = reach;
        f->rank[f->order[i].index] = i;
    }
    return true;
}

/* Those that lie in the other, whichever it is, have a value; the others have lost theirs. */
static void dataflow_mark(flow *f, const nova_buffer *written, uint32_t index)
{
    const nova_buffer *other = &f->tables->buffers[index];
    uint64_t begin = written->value, end = begin + written->nbytes;
    uint64_t low = other->value, high = low + other->nbytes;
    if (low >= end || high <= begin)
        return;
    f->has[index] = (low >= begin && high <= end) || (begin >= low && end <= high);
}

static void dataflow_write_placed(flow *f, uint32_t index)
{
    const nova_buffer *written = &f->tables->buffers[index];
    uint64_t end = written->value + written->nbytes, memory = dataflow_memory(written);
    uint32_t at = f->rank[index], i = at;
    for (; i < f->count && f->order[i].memory == memory && f->order[i].value < end; i++, f->work++)
        dataflow_mark(f, written, f->order[i].index);
    for (i = at;
         i > 0 && f->order[i - 1].memory == memory && f->order[i - 1].reach > written->value;
         i--, f->work++)
        dataflow_mark(f, written, f->order[i - 1].index);
}

static bool dataflow_is_ready(const flow *f, uint32_t index)
{
    const nova_buffer *buffer = &f->tables->buffers[index];
    if (buffer->nbytes == 0)
        return true;
    if (dataflow_is_placed(buffer))
        return f->has[index];
    return buffer->kind != NOVA_OUTPUT || f->outputs[buffer->value];
}

static bool dataflow_overlap(const nova_buffer *a, const nova_buffer *b)
{
    bool is_same = a->value == b->value && a->nbytes == b->nbytes;
    if (a->kind == NOVA_OUTPUT && b->kind == NOVA_OUTPUT_PART)
        return a->value == b->output && b->nbytes > 0;
    if (a->kind == NOVA_OUTPUT_PART && b->kind == NOVA_OUTPUT)
        return dataflow_overlap(b, a);
    return dataflow_is_placed(a) && dataflow_is_placed(b) &&
           dataflow_memory(a) == dataflow_memory(b) && !is_same &&
           a->value < b->value + b->nbytes && b->value < a->value + a->nbytes;
}

/* A written buffer is disjoint from all other buffers of the launch, or identical to one. */
static nova_status dataflow_check_operands(flow *f, uint32_t index, nova_error *error)
{
    const nova_tables *tables = f->tables;
    const nova_launch_record *launch = &tables->launches[index];
    if (!dataflow_knows_reads(tables, launch))
        return NOVA_OK;
    const uint32_t *operands = tables->operands + launch->first_operand;
    for (uint32_t i = launch->reads; i < launch->operand_count; i++)
        for (uint32_t k = 0; k < i; k++, f->work++)
            if (dataflow_overlap(&tables->buffers[operands[i]], &tables->buffers[operands[k]]))
                return REFUSE(error, "tables-flow",
                              "launch %u writes operand %u, which overlaps operand %u", index, i,
                              k);
            else if (f->work > MOST_OVERLAPS)
                return REFUSE(error, "tables-flow", "too many operands to compare");
    return NOVA_OK;
}

static nova_status dataflow_check_reads(const flow *f, uint32_t index, uint32_t reads,
                                        nova_error *error)
{
    const uint32_t *operands = f->tables->operands + f->tables->launches[index].first_operand;
    for (uint32_t i = 0; i < reads; i++)
        if (!dataflow_is_ready(f, operands[i]))
            return REFUSE(error, "tables-flow",
                          "launch %u reads buffer %u, which has no value by then", index,
                          operands[i]);
    return NOVA_OK;
}

/* One launch; `checks` is false if only its effect is needed. */
static nova_status dataflow_follow_launch(flow *f, uint32_t index, bool checks, nova_error *error)
{
    const nova_tables *tables = f->tables;
    const nova_launch_record *launch = &tables->launches[index];
    uint32_t reads = dataflow_runs_code(tables, launch) ? launch->reads : launch->operand_count;
    nova_status status = checks ? dataflow_check_operands(f, index, error) : NOVA_OK;
    if (status == NOVA_OK && checks)
        status = dataflow_check_reads(f, index, reads, error);
    for (uint32_t k = reads; status == NOVA_OK && k < launch->operand_count; k++) {
        uint32_t operand = tables->operands[launch->first_operand + k];
        const nova_buffer *buffer = &tables->buffers[operand];
        if (buffer->kind == NOVA_OUTPUT)
            f->outputs[buffer->value] = 1;
        else if (dataflow_is_placed(buffer))
            dataflow_write_placed(f, operand);
    }
    f->work++;
    if (status == NOVA_OK && f->work > MOST_OVERLAPS)
        status = REFUSE(error, "tables-flow", "too many buffers of the workspace overlap");
    return status;
}

static nova_status dataflow_follow_loop(flow *f, uint32_t index, bool checks, nova_error *error);

/* Launches `begin` to `end`. As deep as loops are inside of each other: check_loops has a limit. */
static nova_status dataflow_follow(flow *f, uint64_t begin, uint64_t end, bool checks,
                                   nova_error *error)
{
    const nova_tables *tables = f->tables;
    nova_status status = NOVA_OK;
    for (uint64_t i = begin; status == NOVA_OK && i < end; i++) {
        const nova_launch_record *launch = &tables->launches[i];
        if (dataflow_core_of(tables, launch) != NOVA_WHILE) {
            status = dataflow_follow_launch(f, (uint32_t)i, checks, error);
            continue;
        }
        status = dataflow_follow_loop(f, (uint32_t)i, checks, error);
        i += (uint64_t)tables->kernels[launch->kernel].grid;
    }
    return status;
}

/* The values that are defined whenever the condition is evaluated: those defined before the loop
 * and after its body. Each launch defines a buffer, kills it or neither, independent of the others
 * (a gen/kill analysis). So one walk over the body reaches the fixed point. */
static nova_status dataflow_find_head(flow *f, uint64_t begin, uint64_t end, unsigned char *head,
                                      nova_error *error)
{
    memcpy(head, f->has, f->state);
    nova_status status = dataflow_follow(f, begin, end, false, error);
    for (size_t i = 0; status == NOVA_OK && i < f->state; i++)
        head[i] &= f->has[i];
    memcpy(f->has, head, f->state);
    f->work += f->state;
    return status;
}

static nova_status dataflow_follow_loop(flow *f, uint32_t index, bool checks, nova_error *error)
{
    uint64_t begin = (uint64_t)index + 1;
    uint64_t end = begin + (uint64_t)f->tables->kernels[f->tables->launches[index].kernel].grid;
    unsigned char *head = malloc(f->state + 1);
    if (head == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory to check launch %u", index);
    nova_status status = dataflow_find_head(f, begin, end, head, error);
    if (status == NOVA_OK)
        status = dataflow_follow_launch(f, index, checks, error);
    if (status == NOVA_OK && checks) {
        status = dataflow_follow(f, begin, end, true, error);
        memcpy(f->has, head, f->state);
    }
    free(head);
    return status;
}

static nova_status dataflow_check_outputs(const flow *f, nova_error *error)
{
    const nova_tables *tables = f->tables;
    for (uint32_t i = 0; i < tables->header->buffer_count; i++)
        if (tables->buffers[i].kind == NOVA_OUTPUT && tables->buffers[i].nbytes > 0 &&
            !f->outputs[tables->buffers[i].value])
            return REFUSE(error, "tables-flow",
                          "output %" PRIu64 " has no value after the last launch",
                          tables->buffers[i].value);
    return NOVA_OK;
}

static nova_status dataflow_check_order(const nova_tables *tables, const nova_tables_limits *limits,
                                        nova_error *error)
{
    flow f = {.tables = tables};
    nova_status status =
        dataflow_sort_buffers(&f, limits->output_count)
            ? dataflow_follow(&f, 0, tables->header->launch_count, true, error)
            : nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory to check %u buffers",
                        tables->header->buffer_count);
    if (status == NOVA_OK)
        status = dataflow_check_outputs(&f, error);
    free(f.order);
    free(f.rank);
    free(f.has);
    return status;
}

nova_status nova_tables_check_flow(const nova_tables *tables, const nova_tables_limits *limits,
                                   nova_error *error)
{
    if (tables->interfaces == NULL)
        return NOVA_OK; /* of a Nova before 4: it does not say */
    nova_status status = dataflow_check_interfaces(tables, limits, error);
    return status == NOVA_OK ? dataflow_check_order(tables, limits, error) : status;
}
