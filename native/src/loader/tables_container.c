/* Checks a container, the tables of a program with loops and branches, and finds its regions.
 *
 * The block of the program comes last, and every control kernel runs regions with lower numbers: so
 * no region contains itself. Blocks are checked from the last to the first: the launch of a control
 * kernel, which is checked by then, gives the sizes of the arguments and outputs of its regions. */
#include "loader/tables_parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(nova_container_header) == 32 && sizeof(nova_control_record) == 40 &&
                   sizeof(nova_contained_block) == 16,
               "as in docs/nova-format.md");

#define REFUSE(error, ...) nova_fail((error), NOVA_REFUSED, "tables-control", __VA_ARGS__)

enum { MOST_BLOCKS = 4096, MOST_OPERANDS = 1 << 16 };

bool nova_container_has_magic(const void *block, size_t size)
{
    return size >= 8 && (memcmp(block, NOVA_CONTAINER_MAGIC, 8) == 0 ||
                         memcmp(block, NOVA_IN_PLACE_MAGIC, 8) == 0);
}

/* --- layout ----------------------------------------------------------------------------------- */

static nova_status container_find_arrays(const char *block, size_t size, nova_container *container,
                                         nova_error *error)
{
    const nova_container_header *header = container->header = (const void *)block;
    if (size < sizeof *header || header->size != size || header->reserved != 0)
        return REFUSE(error, "a container of %zu bytes", size);
    if (header->block_count < 1 || header->block_count > MOST_BLOCKS ||
        header->control_count > MOST_BLOCKS || header->region_count > MOST_BLOCKS)
        return REFUSE(error, "%u blocks, %u control kernels, %u regions", header->block_count,
                      header->control_count, header->region_count);
    uint64_t controls = sizeof *header;
    uint64_t regions = controls + header->control_count * sizeof *container->controls;
    uint64_t end = regions + header->region_count * sizeof *container->regions;
    uint64_t blocks = (end + 7) & ~UINT64_C(7);
    if (blocks + header->block_count * sizeof *container->blocks > size)
        return REFUSE(error, "the control kernels end after the container");
    container->controls = (const void *)(block + controls);
    container->regions = (const void *)(block + regions);
    container->blocks = (const void *)(block + blocks);
    uint64_t position = blocks + header->block_count * sizeof *container->blocks;
    for (uint32_t i = 0; i < header->block_count; i++) {
        const nova_contained_block *contained = &container->blocks[i];
        if (contained->offset != position || contained->size > size - position)
            return REFUSE(error, "block %u starts at %" PRIu64, i, contained->offset);
        position = (position + contained->size + 7) & ~UINT64_C(7);
    }
    if (position != size)
        return REFUSE(error, "the blocks end at %" PRIu64 " of %zu", position, size);
    return NOVA_OK;
}

const void *nova_tables_bytes(const nova_tables *tables, uint64_t *size)
{
    const nova_container_header *container = tables->container.header;
    *size = container != NULL ? container->size : tables->header->size;
    return container != NULL ? (const void *)container : (const void *)tables->header;
}

uint32_t nova_tables_region_count(const nova_tables *tables)
{
    return tables->container.header != NULL ? tables->container.header->block_count - 1 : 0;
}

void nova_tables_region(const nova_tables *tables, uint32_t number, nova_tables *region)
{
    const nova_contained_block *contained = &tables->container.blocks[number];
    const char *block = (const char *)tables->container.header + contained->offset;
    (void)nova_tables_find_arrays(block, (size_t)contained->size, region, NULL);
    region->container = tables->container;
    region->block = number;
}

const nova_control_record *nova_tables_control(const nova_tables *tables, uint32_t kernel)
{
    const nova_container *container = &tables->container;
    uint32_t count = container->header != NULL ? container->header->control_count : 0;
    for (uint32_t i = 0; i < count; i++)
        if (container->controls[i].block == tables->block &&
            container->controls[i].kernel == kernel)
            return &container->controls[i];
    return NULL;
}

/* --- operands --------------------------------------------------------------------------------- */

static uint64_t container_operand_size(const nova_tables *tables, const nova_launch_record *launch,
                                       uint32_t operand)
{
    return tables->buffers[tables->operands[launch->first_operand + operand]].nbytes;
}

void nova_tables_mark_outputs(const nova_tables *tables, unsigned char *has_output, uint64_t count)
{
    memset(has_output, 0, (size_t)count);
    for (uint32_t i = 0; i < tables->header->buffer_count; i++)
        if (tables->buffers[i].kind == NOVA_OUTPUT && tables->buffers[i].value < count)
            has_output[tables->buffers[i].value] = 1;
}

/* The carries that the region does not update in place have second buffers. */
static uint64_t container_bookkeeping(const nova_tables *tables, const nova_launch_record *launch,
                                      const nova_control_record *control,
                                      const unsigned char *has_output)
{
    uint64_t size = 64;
    if (control->construct == NOVA_SWITCH || control->construct == NOVA_CALL)
        return size;
    size += ((launch->operand_count + UINT64_C(1)) * sizeof(void *) + 63) & ~UINT64_C(63);
    for (uint32_t i = 0; i < control->carries; i++)
        if (has_output[i] != 0)
            size +=
                (container_operand_size(tables, launch, launch->reads + i) + 63) & ~UINT64_C(63);
    if (control->construct != NOVA_LOOP_FOR || control->length == 0 ||
        (tables->kernels[launch->kernel].core & NOVA_CORE_MASK) != NOVA_DEVICE)
        return size;
    for (uint32_t i = control->constants + control->carries; i + 1 < launch->operand_count; i++)
        if (i < launch->reads || i >= launch->reads + control->carries)
            size += nova_control_slice(tables, launch, control, i);
    return size;
}

uint64_t nova_control_slice(const nova_tables *tables, const nova_launch_record *launch,
                            const nova_control_record *control, uint32_t operand)
{
    uint64_t slice = container_operand_size(tables, launch, operand) / (uint64_t)control->length;
    return (slice + 63) & ~UINT64_C(63);
}

nova_status nova_control_bookkeeping(const nova_tables *tables, const nova_launch_record *launch,
                                     const nova_control_record *control, uint64_t *size)
{
    unsigned char *has_output = calloc(control->carries + UINT64_C(1), 1);
    if (has_output == NULL)
        return NOVA_OUT_OF_MEMORY;
    if (control->carries > 0) {
        nova_tables region;
        nova_tables_region(tables, tables->container.regions[control->first_region], &region);
        nova_tables_mark_outputs(&region, has_output, control->carries);
    }
    *size = container_bookkeeping(tables, launch, control, has_output);
    free(has_output);
    return NOVA_OK;
}

/* The arguments and outputs of the regions of a control kernel. */
typedef struct {
    uint32_t argument_count, output_count;
    int64_t *sizes; /* of the arguments, then of the outputs */
} region_signature;

static nova_status container_slice(uint64_t size, int64_t length, int64_t *slice, nova_error *error)
{
    if (length == 0) { /* the region never runs */
        *slice = NOVA_ANY_SIZE;
        return size == 0 ? NOVA_OK : REFUSE(error, "%" PRIu64 " bytes are not 0 slices", size);
    }
    if (size % (uint64_t)length != 0)
        return REFUSE(error, "%" PRIu64 " bytes are not %" PRId64 " slices", size, length);
    *slice = (int64_t)(size / (uint64_t)length);
    return NOVA_OK;
}

/* Fills the signature of the regions; refuses a launch with other operands. */
static nova_status container_find_signature(const nova_tables *tables,
                                            const nova_launch_record *launch,
                                            const nova_control_record *control,
                                            region_signature *signature, nova_error *error)
{
    uint32_t reads = launch->reads, first = control->construct == NOVA_LOOP_FOR ? 0 : 1;
    if (launch->operand_count > MOST_OPERANDS || reads < first ||
        launch->operand_count < reads + 2 ||
        (control->construct != NOVA_SWITCH &&
         (control->constants > reads - first ||
          control->carries > reads - first - control->constants ||
          control->carries > launch->operand_count - reads - 1)))
        return REFUSE(error, "a control kernel has %u operands", launch->operand_count);
    uint32_t results = launch->operand_count - reads - 1;
    int64_t *sizes = signature->sizes = calloc(launch->operand_count + UINT64_C(2), sizeof *sizes);
    if (sizes == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory to check a region");
    nova_status status = NOVA_OK;
    uint32_t at = 0;
    if (control->construct == NOVA_LOOP_FOR)
        sizes[at++] = sizeof(int64_t);
    for (uint32_t i = first; status == NOVA_OK && i < reads; i++) {
        uint64_t size = container_operand_size(tables, launch, i);
        sizes[at] = (int64_t)size;
        if (control->construct == NOVA_LOOP_FOR && i >= control->constants + control->carries)
            status = container_slice(size, control->length, &sizes[at], error);
        at++;
    }
    signature->argument_count = at;
    for (uint32_t i = 0; status == NOVA_OK && i < results; i++) {
        uint64_t size = container_operand_size(tables, launch, reads + i);
        sizes[at] = (int64_t)size;
        if (control->construct == NOVA_SWITCH)
            ;
        else if (i < control->carries) {
            if (container_operand_size(tables, launch, first + control->constants + i) != size)
                status = REFUSE(error, "a carry has another size than its result");
        } else {
            status = container_slice(size, control->length, &sizes[at], error);
        }
        at++;
    }
    if (control->construct == NOVA_LOOP_WHILE)
        sizes[at++] = 1;
    signature->output_count = at - signature->argument_count;
    return status;
}

/* --- control kernels -------------------------------------------------------------------------- */

static nova_status container_check_control(const nova_tables *tables,
                                           const nova_launch_record *launch,
                                           const nova_control_record *control, nova_error *error)
{
    uint64_t selector = container_operand_size(tables, launch, 0);
    switch (control->construct) {
    case NOVA_SWITCH:
        if (selector != 1 && selector != 8)
            return REFUSE(error, "the selector of a branch has %" PRIu64 " bytes", selector);
        break;
    case NOVA_LOOP_WHILE:
        if (selector != 1 || launch->operand_count - launch->reads - 1 != control->carries ||
            launch->reads != 1 + control->constants + control->carries)
            return REFUSE(error, "a while loop has %u operands", launch->operand_count);
        break;
    default:
        if (control->construct != NOVA_LOOP_FOR || control->length < 0 || control->reverse > 1)
            return REFUSE(error, "control kernel of construct %u, length %" PRId64,
                          control->construct, control->length);
    }
    if (control->region_count < 1 ||
        (control->construct != NOVA_SWITCH && control->region_count > 1))
        return REFUSE(error, "a control kernel has %u regions", control->region_count);
    return NOVA_OK;
}

/* Whether all kernels of a region are for a device, or all for the host. */
static bool container_is_for(const nova_tables *region, bool on_device)
{
    for (uint32_t i = 0; i < region->header->kernel_count; i++) {
        uint32_t core = region->kernels[i].core & NOVA_CORE_MASK;
        if (on_device ? core != NOVA_DEVICE : core >= NOVA_DEVICE)
            return false;
    }
    return true;
}

/* A region writes only those of its arguments that are carries without an output buffer. */
static nova_status container_check_writes(const nova_tables *region,
                                          const nova_control_record *control,
                                          const unsigned char *has_output, nova_error *error)
{
    bool is_loop = control->construct != NOVA_SWITCH;
    uint64_t first = control->constants + (control->construct == NOVA_LOOP_FOR ? UINT64_C(1) : 0);
    for (uint32_t i = 0; i < region->header->launch_count; i++) {
        const nova_launch_record *launch = &region->launches[i];
        if (nova_kernel_is_device(&region->kernels[launch->kernel]))
            continue; /* what it writes is not known */
        for (uint32_t k = launch->reads; k < launch->operand_count; k++) {
            const nova_buffer *buffer =
                &region->buffers[region->operands[launch->first_operand + k]];
            bool is_carry = is_loop && buffer->value >= first &&
                            buffer->value - first < control->carries &&
                            has_output[buffer->value - first] == 0;
            if (buffer->kind == NOVA_ARGUMENT && !is_carry)
                return nova_fail(error, NOVA_REFUSED, "tables-write",
                                 "launch %u of a region writes argument %" PRIu64, i,
                                 buffer->value);
        }
    }
    return NOVA_OK;
}

/* Checks that a region, which is checked as a block, has the memory that it needs. */
static nova_status container_check_memory(const nova_tables *tables,
                                          const nova_launch_record *launch,
                                          const nova_control_record *control,
                                          const nova_tables *region, uint64_t output_count,
                                          nova_error *error)
{
    unsigned char *has_output = malloc((size_t)output_count + 1);
    if (has_output == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory to check a region");
    nova_tables_mark_outputs(region, has_output, output_count);
    nova_status status = container_check_writes(region, control, has_output, error);
    uint64_t own = container_operand_size(tables, launch, launch->operand_count - 1);
    uint64_t used = container_bookkeeping(tables, launch, control, has_output);
    if (status == NOVA_OK && (own < used || own - used < region->header->workspace_size))
        status = REFUSE(error, "%" PRIu64 " bytes are too few for a region of block %u", own,
                        tables->block);
    free(has_output);
    return status;
}

/* Checks a launch that runs a file; the file itself is checked when it is opened. */
static nova_status container_check_call(const nova_tables *tables, const nova_launch_record *launch,
                                        const nova_control_record *control, nova_error *error)
{
    const nova_buffer *file = &tables->buffers[tables->operands[launch->first_operand]];
    if (file->kind != NOVA_CONSTANT || control->region_count != 0 || control->constants != 0 ||
        control->carries != 0 || control->reverse != 0 || control->length != 0 ||
        launch->operand_count < launch->reads + UINT64_C(1))
        return REFUSE(error, "a call has %u operands, %u regions, and its file is not a constant",
                      launch->operand_count, control->region_count);
    return NOVA_OK;
}

/* Checks the regions of a launch of a control kernel. */
static nova_status container_check_regions(const nova_tables *tables,
                                           const nova_launch_record *launch,
                                           const nova_control_record *control,
                                           const nova_tables_limits *limits, uint8_t *checked,
                                           nova_error *error)
{
    /* A loop may depend on nothing but the number of an iteration; all others read operand 0. */
    if (launch->operand_count < 2 || (launch->reads < 1 && control->construct != NOVA_LOOP_FOR))
        return REFUSE(error, "a control kernel has %u operands", launch->operand_count);
    bool on_device = (tables->kernels[launch->kernel].core & NOVA_CORE_MASK) == NOVA_DEVICE;
    if (control->construct == NOVA_CALL && on_device)
        return REFUSE(error, "a kernel of a device calls a file");
    if (control->construct == NOVA_CALL)
        return container_check_call(tables, launch, control, error);
    nova_status status = container_check_control(tables, launch, control, error);
    if (status != NOVA_OK)
        return status;
    region_signature signature = {0};
    status = container_find_signature(tables, launch, control, &signature, error);
    const nova_tables_limits inner = {
        .argument_count = signature.argument_count,
        .output_count = signature.output_count,
        .argument_nbytes = signature.sizes,
        .output_nbytes = signature.sizes + (signature.sizes != NULL ? signature.argument_count : 0),
        .constants_size = limits->constants_size,
    };
    for (uint32_t i = 0; status == NOVA_OK && i < control->region_count; i++) {
        uint32_t number = tables->container.regions[control->first_region + i];
        if (number >= tables->block || checked[number]++ != 0) {
            status = REFUSE(error, "block %u runs region %u, which another one runs", tables->block,
                            number);
            break;
        }
        const nova_contained_block *contained = &tables->container.blocks[number];
        nova_tables region;
        status = nova_tables_check_one((const char *)tables->container.header + contained->offset,
                                       (size_t)contained->size, &inner, &region, error);
        if (status == NOVA_OK && !container_is_for(&region, on_device))
            status = REFUSE(error, "region %u has kernels for another processor", number);
        if (status == NOVA_OK)
            status = container_check_memory(tables, launch, control, &region,
                                            signature.output_count, error);
    }
    free(signature.sizes);
    return status;
}

/* Checks the launches of the control kernels of a block, which is checked itself. */
static nova_status container_check_block(const nova_tables *tables,
                                         const nova_tables_limits *limits, uint8_t *checked,
                                         nova_error *error)
{
    nova_status status = NOVA_OK;
    for (uint32_t i = 0; status == NOVA_OK && i < tables->header->launch_count; i++) {
        const nova_launch_record *launch = &tables->launches[i];
        if ((tables->kernels[launch->kernel].core & NOVA_CONTROL) == 0)
            continue;
        const nova_control_record *control = nova_tables_control(tables, launch->kernel);
        if (control == NULL)
            return REFUSE(error, "kernel %u of block %u has no regions", launch->kernel,
                          tables->block);
        status = container_check_regions(tables, launch, control, limits, checked, error);
    }
    return status;
}

nova_status nova_container_check(const char *block, size_t size, const nova_tables_limits *limits,
                                 nova_tables *tables, nova_error *error)
{
    nova_container container;
    nova_status status = container_find_arrays(block, size, &container, error);
    if (status != NOVA_OK)
        return status;
    uint32_t last = container.header->block_count - 1;
    for (uint32_t i = 0; i < container.header->control_count; i++) {
        const nova_control_record *control = &container.controls[i];
        uint32_t count = container.header->region_count;
        if (control->block > last || control->first_region > count ||
            control->region_count > count - control->first_region)
            return REFUSE(error, "control kernel %u names regions that do not exist", i);
    }
    const nova_contained_block *contained = &container.blocks[last];
    nova_tables result;
    status = nova_tables_check_one(block + contained->offset, (size_t)contained->size, limits,
                                   &result, error);
    uint8_t *checked = calloc(last + UINT64_C(1), 1);
    if (status == NOVA_OK && checked == NULL)
        status = nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory to check %u blocks", last + 1);
    for (uint32_t number = last + 1; status == NOVA_OK && number-- > 0;) {
        nova_tables current = result;
        if (number < last) {
            if (checked[number] == 0) {
                status = REFUSE(error, "no control kernel runs region %u", number);
                break;
            }
            nova_tables whole = {.container = container};
            nova_tables_region(&whole, number, &current);
        }
        current.container = container;
        current.block = number;
        status = container_check_block(&current, limits, checked, error);
    }
    free(checked);
    if (status != NOVA_OK)
        return status;
    *tables = result;
    tables->container = container;
    tables->block = last;
    return NOVA_OK;
}
