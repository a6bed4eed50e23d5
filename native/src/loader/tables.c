/* Checks a block of tables once, so that a run can use it without looking. */
#define _POSIX_C_SOURCE 200809L /* strnlen */

#include "nova/tables.h"
#include "loader/tables_parts.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(nova_tables_header) == 64 && sizeof(nova_buffer) == 24 &&
                   sizeof(nova_kernel_record) == 48 && sizeof(nova_launch_record) == 16 &&
                   sizeof(nova_task) == 32 && sizeof(nova_device_launch) == 32 &&
                   sizeof(nova_interface) == 24 && sizeof(nova_tensor_map) == 120 &&
                   sizeof(nova_tiling) == 16,
               "as in docs/nova-format.md");

#define REFUSE(error, check, ...) nova_fail((error), NOVA_REFUSED, (check), __VA_ARGS__)

enum { ALIGNMENT = 64, MOST_STRING = 16 << 10 };

#define MOST_SIZES (UINT64_C(1) << 20)   /* bytes of the values of symbolic sizes */
#define MOST_SCRATCH (UINT32_C(1) << 30) /* of a thread */

/* Above any real size, and far from where sums of addresses could wrap. */
#define MOST_MEMORY (UINT64_C(1) << 46)

/* --- layout ----------------------------------------------------------------------------------- */

/* The next array: `count` records of `size` bytes, then zeros up to a multiple of 8. */
static bool tables_take(const char *block, uint64_t limit, uint64_t *position, uint64_t count,
                        uint64_t size, const void **array)
{
    *array = block + *position;
    uint64_t end = *position + count * size; /* below 2^32 * 48 each: cannot wrap */
    uint64_t padded = (end + 7) & ~UINT64_C(7);
    if (padded > limit)
        return false;
    for (uint64_t i = end; i < padded; i++)
        if (block[i] != 0)
            return false;
    *position = padded;
    return true;
}

nova_status nova_tables_find_arrays(const char *block, size_t size, nova_tables *tables,
                                    nova_error *error)
{
    memset(&tables->container, 0, sizeof tables->container);
    tables->block = 0;
    if (size < sizeof *tables->header)
        return REFUSE(error, "tables-size", "a block of %zu bytes is shorter than its header",
                      size);
    const nova_tables_header *header = tables->header = (const void *)block;
    static const char MAGICS[][9] = {NOVA_TABLES_MAGIC,         NOVA_TABLES_DEVICE_MAGIC,
                                     NOVA_TABLES_CHECKED_MAGIC, NOVA_TABLES_CHECKED_DEVICE_MAGIC,
                                     NOVA_TABLES_TILED_MAGIC,   NOVA_TABLES_TILED_DEVICE_MAGIC,
                                     NOVA_TABLES_TASKS_MAGIC,   NOVA_TABLES_TASKS_DEVICE_MAGIC};
    enum { MAGIC_COUNT = sizeof MAGICS / sizeof MAGICS[0] };
    int index = 0;
    while (index < MAGIC_COUNT && memcmp(header->magic, MAGICS[index], sizeof header->magic) != 0)
        index++;
    bool has_devices = index % 2 == 1, has_interfaces = index >= 2, has_tilings = index >= 4;
    if (index == MAGIC_COUNT)
        return REFUSE(error, "tables-magic", "the block has no magic number");
    if (header->size != size)
        return REFUSE(error, "tables-size", "the header says %" PRIu64 " bytes, the file %zu",
                      header->size, size);
    uint64_t position = sizeof *header;
    const void *arrays[7];
    const struct {
        uint64_t count, size;
    } layout[] = {
        {header->buffer_count, sizeof(nova_buffer)},
        {header->kernel_count, sizeof(nova_kernel_record)},
        {header->launch_count, sizeof(nova_launch_record)},
        {header->operand_count, sizeof(uint32_t)},
        {header->task_count, sizeof(nova_task)},
        {header->successor_count, sizeof(uint32_t)},
        {has_devices ? header->kernel_count : 0, sizeof(nova_device_launch)},
    };
    for (int i = 0; i < 7; i++)
        if (!tables_take(block, size, &position, layout[i].count, layout[i].size, &arrays[i]))
            return REFUSE(error, "tables-size",
                          "array %d ends after the block, or is not padded "
                          "with zeros",
                          i);
    tables->devices = has_devices ? arrays[6] : NULL;
    tables->tilings = NULL;
    tables->tiling_words = NULL;
    tables->tiling_word_count = 0;
    tables->interfaces = NULL;
    tables->interface_sizes = NULL;
    nova_status found = nova_tensor_maps_find(tables, block, size, &position, error);
    if (found != NOVA_OK)
        return found;
    if (has_tilings) {
        nova_status status = nova_tilings_find(tables, block, size, &position, error);
        if (status != NOVA_OK)
            return status;
    }
    if (has_interfaces) {
        nova_status status = nova_interfaces_find(tables, block, size, &position, error);
        if (status != NOVA_OK)
            return status;
    }
    if (size - position != header->string_size)
        return REFUSE(error, "tables-size", "the strings do not fill the remainder of the block");
    tables->buffers = arrays[0];
    tables->kernels = arrays[1];
    tables->launches = arrays[2];
    tables->operands = arrays[3];
    tables->tasks = arrays[4];
    tables->successors = arrays[5];
    tables->strings = block + position;
    return NOVA_OK;
}

/* --- strings ---------------------------------------------------------------------------------- */

/* Bytes of the UTF-8 character at `at`, which has `length` bytes; 0 when there is none. */
static uint64_t tables_character_size(const unsigned char *at, uint64_t length)
{
    if (at[0] < 0x80)
        return 1;
    uint64_t size = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
    if (at[0] < 0xc2 || at[0] > 0xf4 || size > length)
        return 0;
    for (uint64_t i = 1; i < size; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    /* Too long a form, a surrogate, or beyond the last code point. */
    if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f) ||
        (at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] > 0x8f))
        return 0;
    return size;
}

static nova_status tables_check_strings(const nova_tables *tables, nova_error *error)
{
    uint64_t size = tables->header->string_size;
    const char *strings = tables->strings;
    if (size == 0 || strings[0] != '\0' || strings[size - 1] != '\0')
        return REFUSE(error, "tables-strings", "the strings have no beginning or no end");
    for (uint64_t i = 0, step; i < size; i += step) {
        step = tables_character_size((const unsigned char *)strings + i, size - i);
        if (step == 0)
            return REFUSE(error, "tables-strings", "byte %" PRIu64 " is not UTF-8", i);
    }
    return NOVA_OK;
}

static bool tables_is_string(const nova_tables *tables, uint32_t offset)
{
    if (offset >= tables->header->string_size)
        return false;
    const char *text = tables->strings + offset;
    return (offset == 0 || text[-1] == '\0') && strnlen(text, MOST_STRING) < MOST_STRING;
}

/* --- buffers, kernels, launches --------------------------------------------------------------- */

/* A part of an output is inside of it, and so the output has a size that is known. */
static nova_status tables_check_output_part(const nova_buffer *part, uint32_t index,
                                            const nova_tables_limits *limits, nova_error *error)
{
    if (part->output >= limits->output_count)
        return REFUSE(error, "tables-buffer-bounds", "buffer %u is a part of output %u", index,
                      part->output);
    if (part->value % ALIGNMENT != 0)
        return REFUSE(error, "tables-buffer-alignment", "buffer %u starts at %" PRIu64, index,
                      part->value);
    int64_t size = limits->output_nbytes != NULL ? limits->output_nbytes[part->output] : INT64_MAX;
    if (size == NOVA_ANY_SIZE || part->value > (uint64_t)size ||
        part->nbytes > (uint64_t)size - part->value)
        return REFUSE(error, "tables-buffer-bounds",
                      "buffer %u has %" PRIu64 " bytes at %" PRIu64 " of an output of %" PRId64,
                      index, part->nbytes, part->value, size);
    return NOVA_OK;
}

static nova_status tables_check_buffer(const nova_tables *tables, uint32_t index,
                                       const nova_tables_limits *limits, nova_error *error)
{
    const nova_buffer *buffer = &tables->buffers[index];
    if (buffer->kind > NOVA_OUTPUT_PART ||
        (buffer->output != 0 && buffer->kind != NOVA_OUTPUT_PART))
        return REFUSE(error, "tables-buffer-kind", "buffer %u is of kind %u", index, buffer->kind);
    if (buffer->kind == NOVA_OUTPUT_PART)
        return tables_check_output_part(buffer, index, limits, error);
    if (buffer->kind == NOVA_SIZES) {
        bool is_all = buffer->value == 0 && buffer->nbytes <= MOST_SIZES && buffer->nbytes % 8 == 0;
        bool is_one = buffer->value < MOST_SIZES && buffer->value % 8 == 0 && buffer->nbytes == 8;
        return (tables->devices == NULL ? is_all : is_one)
                   ? NOVA_OK
                   : REFUSE(error, "tables-sizes",
                            "buffer %u has %" PRIu64 " bytes of sizes at %" PRIu64, index,
                            buffer->nbytes, buffer->value);
    }
    if (buffer->kind == NOVA_ARGUMENT || buffer->kind == NOVA_OUTPUT) {
        bool output = buffer->kind == NOVA_OUTPUT;
        const int64_t *sizes = output ? limits->output_nbytes : limits->argument_nbytes;
        if (buffer->value >= (output ? limits->output_count : limits->argument_count))
            return REFUSE(error, "tables-buffer-bounds", "buffer %u is %s %" PRIu64, index,
                          output ? "output" : "argument", buffer->value);
        if (sizes != NULL && sizes[buffer->value] != NOVA_ANY_SIZE &&
            (uint64_t)sizes[buffer->value] != buffer->nbytes)
            return REFUSE(error, "tables-buffer-size",
                          "buffer %u has %" PRIu64 " bytes, its tensor %" PRId64, index,
                          buffer->nbytes, sizes[buffer->value]);
        return NOVA_OK;
    }
    uint64_t limit =
        buffer->kind == NOVA_WORKSPACE ? tables->header->workspace_size : limits->constants_size;
    if (buffer->value % ALIGNMENT != 0)
        return REFUSE(error, "tables-buffer-alignment", "buffer %u starts at %" PRIu64, index,
                      buffer->value);
    if (buffer->value > limit || buffer->nbytes > limit - buffer->value)
        return REFUSE(error, "tables-buffer-bounds",
                      "buffer %u has %" PRIu64 " bytes at %" PRIu64 " of %" PRIu64, index,
                      buffer->nbytes, buffer->value, limit);
    return NOVA_OK;
}

/* What every device has; the driver knows whether this one has it as well. */
static nova_status tables_check_device_launch(const nova_tables *tables, uint32_t index,
                                              nova_error *error)
{
    enum { MOST_THREADS = 1024, MOST_DEPTH = 64, MOST_GRID_YZ = 65535, MOST_SHARED = 227 << 10 };
    const nova_kernel_record *kernel = &tables->kernels[index];
    bool is_device = (kernel->core & NOVA_CORE_MASK) == NOVA_DEVICE;
    bool is_linked = nova_kernel_is_linked(kernel);
    bool is_control = (kernel->core & NOVA_CONTROL) != 0;
    if (is_control && is_device != (tables->devices != NULL))
        return REFUSE(error, "tables-control",
                      "kernel %u is a loop or branch of another processor than the block", index);
    is_device &= !is_control; /* it is not launched itself */
    if (tables->devices == NULL)
        return !is_linked && !is_control ? REFUSE(error, "tables-device",
                                                  "kernel %u is for a device, and the block "
                                                  "does not say how to launch it",
                                                  index)
                                         : NOVA_OK;
    if (!is_linked && !is_device && !is_control &&
        (kernel->code != 0 || kernel->core > NOVA_CORE_MASK))
        return REFUSE(error, "tables-device",
                      "kernel %u is a copy or a loop, and has code or flags", index);
    static const nova_device_launch NONE;
    const nova_device_launch *launch = &tables->devices[index];
    if (!is_device)
        return memcmp(launch, &NONE, sizeof NONE) == 0
                   ? NOVA_OK
                   : REFUSE(error, "tables-device",
                            "kernel %u is for no device, and is launched on "
                            "one",
                            index);
    const uint32_t *grid = launch->grid, *block = launch->block;
    for (int axis = 0; axis < 3; axis++)
        if (block[axis] < 1 || block[axis] > MOST_THREADS)
            return REFUSE(error, "tables-device", "kernel %u has %u threads along axis %d", index,
                          block[axis], axis);
    if (block[0] * block[1] * block[2] > MOST_THREADS || block[2] > MOST_DEPTH ||
        grid[0] > INT32_MAX || grid[1] > MOST_GRID_YZ || grid[2] > MOST_GRID_YZ)
        return REFUSE(error, "tables-device", "kernel %u has %ux%ux%u blocks of %ux%ux%u threads",
                      index, grid[0], grid[1], grid[2], block[0], block[1], block[2]);
    if (launch->shared > MOST_SHARED || kernel->code != 0)
        return REFUSE(error, "tables-device",
                      "kernel %u has %u bytes of shared memory, or code in the file", index,
                      launch->shared);
    return NOVA_OK;
}

static nova_status tables_check_kernel(const nova_tables *tables, uint32_t index, nova_error *error)
{
    const nova_kernel_record *kernel = &tables->kernels[index];
    uint32_t flags = kernel->core & ~(uint32_t)NOVA_CORE_MASK;
    bool has_flags = nova_tables_have_device_tasks(tables) && nova_kernel_is_device(kernel);
    if (has_flags)
        flags &= ~(uint32_t)(NOVA_MATRIX_CORES | NOVA_DEPENDENT);
    if (nova_kernel_is_device(kernel) && flags != 0)
        return REFUSE(error, "tables-device", "kernel %u is for a device, and has flags 0x%x",
                      index, flags);
    if ((kernel->core & NOVA_CORE_MASK) > NOVA_WHILE ||
        (flags != 0 && flags != NOVA_REPORTS && flags != NOVA_TAKES_SCRATCH &&
         kernel->core != (NOVA_VECTOR | NOVA_CONTROL) &&
         kernel->core != (NOVA_DEVICE | NOVA_CONTROL)))
        return REFUSE(error, "tables-kernel-core", "kernel %u is for core %u", index, kernel->core);
    if (flags == NOVA_CONTROL && (kernel->grid != 1 || kernel->code != 0))
        return REFUSE(error, "tables-control", "kernel %u is a loop or branch, and has code",
                      index);
    if (flags == NOVA_TAKES_SCRATCH && tables->header->scratch_size == 0)
        return REFUSE(error, "tables-scratch", "kernel %u takes scratch memory, and there is none",
                      index);
    if (kernel->grid < 0)
        return REFUSE(error, "tables-kernel-grid", "kernel %u has %" PRId64 " tiles", index,
                      kernel->grid);
    if (!tables_is_string(tables, kernel->name) || !tables_is_string(tables, kernel->symbol) ||
        !tables_is_string(tables, kernel->location))
        return REFUSE(error, "tables-kernel-strings",
                      "kernel %u has a name, symbol or location "
                      "that is not a string",
                      index);
    return tables_check_device_launch(tables, index, error);
}

/* A copied buffer is writable on both sides. */
static nova_status tables_check_copies(const nova_tables *tables, nova_error *error)
{
    for (uint32_t i = 0; i < tables->header->launch_count; i++) {
        const nova_launch_record *launch = &tables->launches[i];
        if ((tables->kernels[launch->kernel].core & NOVA_CORE_MASK) < NOVA_TO_HOST)
            continue;
        if (launch->operand_count != 1 ||
            tables->buffers[tables->operands[launch->first_operand]].kind == NOVA_CONSTANT)
            return REFUSE(error, "tables-copy",
                          "launch %u copies or tests %u buffers, or a constant", i,
                          launch->operand_count);
    }
    return NOVA_OK;
}

/* In a block for a device, sizes are parameters of device kernels: they have no address. */
static nova_status tables_check_sizes(const nova_tables *tables, nova_error *error)
{
    for (uint32_t i = 0; tables->devices != NULL && i < tables->header->launch_count; i++) {
        const nova_launch_record *launch = &tables->launches[i];
        if (nova_kernel_is_device(&tables->kernels[launch->kernel]))
            continue;
        for (uint32_t k = 0; k < launch->operand_count; k++)
            if (tables->buffers[tables->operands[launch->first_operand + k]].kind == NOVA_SIZES)
                return REFUSE(error, "tables-sizes", "launch %u, not of a device, takes a size", i);
    }
    return NOVA_OK;
}

/* Loops that enclose the current launch: where each begins, and the first launch after it. */
typedef struct {
    uint64_t begin[NOVA_MOST_LOOPS], end[NOVA_MOST_LOOPS];
    uint32_t depth;
    uint64_t active; /* the last launch of a kernel that does anything, or 0 */
} open_loops;

static nova_status tables_begin_loop(const nova_tables *tables, uint32_t index, open_loops *loops,
                                     nova_error *error)
{
    const nova_launch_record *launch = &tables->launches[index];
    int64_t count = tables->kernels[launch->kernel].grid;
    uint64_t limit = loops->depth > 0 ? loops->end[loops->depth - 1] : tables->header->launch_count;
    if (loops->depth == NOVA_MOST_LOOPS || count < 1 || (uint64_t)count > limit - index - 1 ||
        tables->buffers[tables->operands[launch->first_operand]].nbytes != 1)
        return REFUSE(error, "tables-loop",
                      "launch %u is a loop of %" PRId64 " launches, or its "
                      "condition is not a byte",
                      index, count);
    loops->begin[loops->depth] = index;
    loops->end[loops->depth++] = index + 1 + (uint64_t)count;
    return NOVA_OK;
}

/* Ends the loops whose bodies end before launch `index`. A loop with an empty body would not
 * terminate. */
static nova_status tables_end_loops(open_loops *loops, uint64_t index, nova_error *error)
{
    while (loops->depth > 0 && index >= loops->end[loops->depth - 1])
        if (loops->active <= loops->begin[--loops->depth])
            return REFUSE(error, "tables-loop", "launch %" PRIu64 " is a loop that does nothing",
                          loops->begin[loops->depth]);
    return NOVA_OK;
}

/* The condition of a loop is one byte, and its body is inside of the enclosing loop. The body has
 * neither host code nor copies, and a program with loops has no tasks, which run once. */
static nova_status tables_check_loops(const nova_tables *tables, nova_error *error)
{
    const nova_tables_header *header = tables->header;
    open_loops loops = {.depth = 0};
    bool has_loops = false, has_others = header->task_count > 0;
    nova_status status = NOVA_OK;
    for (uint32_t i = 0; status == NOVA_OK && i < header->launch_count; i++) {
        uint32_t kernel = tables->launches[i].kernel;
        uint32_t core = tables->kernels[kernel].core & NOVA_CORE_MASK;
        status = tables_end_loops(&loops, i, error);
        if (core == NOVA_DEVICE) {
            const uint32_t *grid = tables->devices[kernel].grid;
            loops.active = grid[0] != 0 && grid[1] != 0 && grid[2] != 0 ? i : loops.active;
        } else if (core == NOVA_WHILE && status == NOVA_OK) {
            has_loops = true;
            status = tables_begin_loop(tables, i, &loops, error);
        } else {
            has_others = true;
        }
    }
    if (status == NOVA_OK)
        status = tables_end_loops(&loops, header->launch_count, error);
    if (status == NOVA_OK && has_loops && has_others)
        status = REFUSE(error, "tables-loop", "there are loops, and tasks or launches of the host");
    return status;
}

/* Operands are in the order of the launches, each in one launch: so the check is linear. */
static nova_status tables_check_launches(const nova_tables *tables, nova_error *error)
{
    const nova_tables_header *header = tables->header;
    uint64_t operand = 0;
    for (uint32_t i = 0; i < header->launch_count; i++) {
        const nova_launch_record *launch = &tables->launches[i];
        if (launch->kernel >= header->kernel_count)
            return REFUSE(error, "tables-launch-kernel", "launch %u calls kernel %u of %u", i,
                          launch->kernel, header->kernel_count);
        if (launch->first_operand != operand)
            return REFUSE(error, "tables-launch-operands",
                          "launch %u takes operands from %u, not %" PRIu64, i,
                          launch->first_operand, operand);
        if (launch->reads > launch->operand_count)
            return REFUSE(error, "tables-launch-reads", "launch %u only reads %u of %u operands", i,
                          launch->reads, launch->operand_count);
        operand += launch->operand_count;
    }
    if (operand != header->operand_count)
        return REFUSE(error, "tables-launch-operands",
                      "the launches take %" PRIu64 " operands of %u", operand,
                      header->operand_count);
    for (uint32_t i = 0; i < header->operand_count; i++)
        if (tables->operands[i] >= header->buffer_count)
            return REFUSE(error, "tables-operand", "operand %u is buffer %u of %u", i,
                          tables->operands[i], header->buffer_count);
    nova_status status = tables_check_copies(tables, error);
    if (status == NOVA_OK)
        status = tables_check_sizes(tables, error);
    return status == NOVA_OK ? tables_check_loops(tables, error) : status;
}

/* --- tasks ------------------------------------------------------------------------------------ */

/* The tasks of every launch, one launch after the other, cover its tiles in order. Those without
 * tiles only join edges. */
static nova_status tables_check_cover(const nova_tables *tables, nova_error *error)
{
    const nova_tables_header *header = tables->header;
    uint32_t task = 0;
    for (uint32_t launch = 0; launch < header->launch_count; launch++) {
        int64_t grid = tables->kernels[tables->launches[launch].kernel].grid, tile = 0;
        for (; task < header->task_count && tables->tasks[task].launch == launch; task++) {
            const nova_task *row = &tables->tasks[task];
            if (row->begin != tile || row->end < row->begin || row->end > grid)
                return REFUSE(error, "tables-task-range",
                              "task %u has tiles %" PRId64 " to %" PRId64 " of %" PRId64, task,
                              row->begin, row->end, grid);
            tile = row->end;
        }
        if (tile != grid)
            return REFUSE(error, "tables-task-range", "no task has tile %" PRId64 " of launch %u",
                          tile, launch);
    }
    if (task != header->task_count)
        return REFUSE(error, "tables-task-launch", "task %u is of launch %u, out of order", task,
                      tables->tasks[task].launch);
    return NOVA_OK;
}

static nova_status tables_check_successors(const nova_tables *tables, uint32_t *waits,
                                           nova_error *error)
{
    const nova_tables_header *header = tables->header;
    uint64_t first = 0;
    for (uint32_t i = 0; i < header->task_count; i++) {
        const nova_task *task = &tables->tasks[i];
        if (task->first_successor != first ||
            task->successor_count > header->successor_count - first)
            return REFUSE(error, "tables-task-successors",
                          "task %u takes successors from %u, not %" PRIu64, i,
                          task->first_successor, first);
        /* Ascending, and after the task itself: no task is named twice, and there is no cycle. */
        uint32_t before = i;
        for (uint32_t k = 0; k < task->successor_count; k++) {
            uint32_t successor = tables->successors[first + k];
            if (successor <= before || successor >= header->task_count)
                return REFUSE(error, "tables-task-successors", "task %u is followed by task %u", i,
                              successor);
            waits[successor]++;
            before = successor;
        }
        first += task->successor_count;
    }
    if (first != header->successor_count)
        return REFUSE(error, "tables-task-successors",
                      "the tasks have %" PRIu64 " successors of %u", first,
                      header->successor_count);
    for (uint32_t i = 0; i < header->task_count; i++)
        if (tables->tasks[i].waits != waits[i])
            return REFUSE(error, "tables-task-waits", "task %u waits for %u tasks, %u name it", i,
                          tables->tasks[i].waits, waits[i]);
    return NOVA_OK;
}

static nova_status tables_check_tasks(const nova_tables *tables, nova_error *error)
{
    if (tables->header->task_count == 0)
        return tables->header->successor_count == 0
                   ? NOVA_OK
                   : REFUSE(error, "tables-task-successors", "successors without tasks");
    nova_status status = tables_check_cover(tables, error);
    if (status != NOVA_OK)
        return status;
    uint32_t *waits = calloc(tables->header->task_count, sizeof *waits);
    if (waits == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory to check %u tasks",
                         tables->header->task_count);
    status = tables_check_successors(tables, waits, error);
    free(waits);
    return status;
}

nova_status nova_tables_check(const void *block, size_t size, const nova_tables_limits *limits,
                              nova_tables *tables, nova_error *error)
{
    if (block == NULL || limits == NULL || tables == NULL)
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "", "a pointer is missing");
    if ((uintptr_t)block % 8 != 0)
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "", "the tables are not 8-byte aligned");
    if (nova_container_has_magic(block, size))
        return nova_container_check(block, size, limits, tables, error);
    nova_status status = nova_tables_check_one(block, size, limits, tables, error);
    for (uint32_t i = 0; status == NOVA_OK && i < tables->header->kernel_count; i++)
        if ((tables->kernels[i].core & NOVA_CONTROL) != 0)
            status = REFUSE(error, "tables-control", "kernel %u has no regions", i);
    return status;
}

nova_status nova_tables_check_one(const void *block, size_t size, const nova_tables_limits *limits,
                                  nova_tables *tables, nova_error *error)
{
    nova_tables result;
    nova_status status = nova_tables_find_arrays(block, size, &result, error);
    if (status == NOVA_OK)
        status = tables_check_strings(&result, error);
    if (status == NOVA_OK && result.header->workspace_size > MOST_MEMORY)
        status = REFUSE(error, "tables-workspace", "a workspace of %" PRIu64 " bytes",
                        result.header->workspace_size);
    if (status == NOVA_OK && (result.header->scratch_size > MOST_SCRATCH ||
                              result.header->scratch_size % ALIGNMENT != 0))
        status = REFUSE(error, "tables-scratch", "scratch memory of %u bytes",
                        result.header->scratch_size);
    for (uint32_t i = 0; status == NOVA_OK && i < result.header->buffer_count; i++)
        status = tables_check_buffer(&result, i, limits, error);
    for (uint32_t i = 0; status == NOVA_OK && i < result.header->kernel_count; i++)
        status = tables_check_kernel(&result, i, error);
    if (status == NOVA_OK)
        status = tables_check_launches(&result, error);
    if (status == NOVA_OK)
        status = tables_check_tasks(&result, error);
    if (status == NOVA_OK)
        status = nova_tables_check_flow(&result, limits, error);
    if (status == NOVA_OK)
        status = nova_tensor_maps_check(&result, error);
    if (status == NOVA_OK)
        status = nova_tilings_check(&result, error);
    if (status == NOVA_OK)
        *tables = result;
    return status;
}
