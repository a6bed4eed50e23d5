/* The plan of a persistent kernel, which `link-persistent-kernel` made (nova/passes/gpu), made
 * once, when a program is loaded: the numbers of its tasks; and, in a program without loops and
 * branches, a row for each launch, and what it waits for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/persistent/persistent.h"

/* The last four are of older files: all rows signal; kernels without rings; each launch has one
 * row, and all blocks visit all rows; loops cannot be stopped. */
static const char CHAINS_SYMBOL[] = "nova_persistent_chains",
                  STOPPED_SYMBOL[] = "nova_persistent_loops",
                  RING_SYMBOL[] = "nova_persistent_ring", LISTS_SYMBOL[] = "nova_persistent_tiles",
                  LAUNCHES_SYMBOL[] = "nova_persistent", FLOW_SYMBOL[] = "nova_persistent_flow";

/* Whether a kernel has this symbol; that of code for some sizes ends in `$` and the sizes. */
static bool plan_has_symbol(const nova_tables *tables, uint32_t kernel, const char *name)
{
    const char *symbol = tables->strings + tables->kernels[kernel].symbol;
    size_t length = strlen(name);
    return strncmp(symbol, name, length) == 0 && (symbol[length] == '\0' || symbol[length] == '$');
}

static bool plan_has_flow(const nova_tables *tables, uint32_t kernel)
{
    return plan_has_symbol(tables, kernel, FLOW_SYMBOL) ||
           plan_has_symbol(tables, kernel, STOPPED_SYMBOL);
}

static bool plan_is_persistent(const nova_tables *tables, uint32_t kernel)
{
    return plan_has_symbol(tables, kernel, CHAINS_SYMBOL) ||
           plan_has_symbol(tables, kernel, RING_SYMBOL) ||
           plan_has_symbol(tables, kernel, LAUNCHES_SYMBOL) ||
           plan_has_symbol(tables, kernel, LISTS_SYMBOL) || plan_has_flow(tables, kernel);
}

/* The kernel of persistent execution in the tables, or their number of kernels. */
static uint32_t plan_find_kernel(const nova_tables *tables)
{
    uint32_t count = tables->header->kernel_count, i = count;
    while (i-- > 0)
        if (plan_is_persistent(tables, i))
            return i;
    return count;
}

bool nova_persistent_has_kernel(const nova_tables *tables)
{
    return plan_find_kernel(tables) < tables->header->kernel_count;
}

/* --- the tables of a program without loops and branches --------------------------------------- */

/* Adds the wait of one counter for another to a row, or counts it if there are no waits yet. The
 * only task of a counter has run if the block that waits has run it: blocks run their rows in
 * order. */
static void plan_add_wait(persistent_tables *tables, persistent_bands *bands, uint32_t waiting,
                          uint32_t counter)
{
    if (bands->only_block[waiting] != PERSISTENT_SEVERAL &&
        bands->only_block[waiting] == bands->only_block[counter])
        return;
    bands->is_awaited[counter] = true;
    if (tables->waits != NULL)
        tables->waits[tables->wait_count] = (persistent_wait){counter, bands->totals[counter]};
    tables->wait_count++;
}

/* Whether none of the first `count` counters waits for this one. */
static bool plan_is_last(const persistent_bands *bands, uint32_t counter, uint32_t count)
{
    for (uint32_t to = counter + 1; to < count; to++)
        if (persistent_order_has(&bands->order, to, counter))
            return false;
    return true;
}

/* Adds the waits of a counter for others, and counts them. One that waits for none in a
 * repetition waits for those of the one before it that nothing waits for: all its rows have run
 * then, and those after this one need not wait for them. */
static void plan_add_waits(const nova_persistent_plan *plan, persistent_tables *tables,
                           persistent_bands *bands, uint32_t counter, bool repeats,
                           uint32_t *current, uint32_t *previous)
{
    uint32_t first = tables->wait_count;
    bool is_first = true;
    for (uint32_t from = 0; from < counter; from++) {
        if (persistent_order_has(&bands->order, counter, from)) {
            plan_add_wait(tables, bands, counter, from);
            is_first = false;
        }
    }
    *current = tables->wait_count - first;
    for (uint32_t last = 0; repeats && is_first && last < plan->waited_count; last++)
        if (plan_is_last(bands, last, plan->waited_count))
            plan_add_wait(tables, bands, counter, last);
    *previous = tables->wait_count - first - *current;
}

/* Writes the waits of all rows, or counts them if there is no memory for them yet; then it is known
 * which counters are awaited. Rows with one counter share its waits. */
static void plan_fill_waits(const nova_persistent_plan *plan, persistent_tables *tables,
                            persistent_bands *bands, bool repeats)
{
    tables->wait_count = 0;
    for (uint32_t counter = 0; counter < bands->counter_count; counter++) {
        uint32_t first = tables->wait_count, current, previous;
        plan_add_waits(plan, tables, bands, counter, repeats, &current, &previous);
        for (uint32_t row = 0; row < tables->row_count; row++) {
            if (bands->bands[row].counter != counter)
                continue;
            persistent_row *filled = &tables->rows[row];
            filled->first_wait = first;
            filled->wait_count = plan->has_lists ? current | previous << 16 : current;
            filled->previous_count = plan->has_lists ? counter : previous;
            if (plan->has_chains && !bands->is_awaited[counter])
                filled->previous_count = PERSISTENT_NO_COUNTER;
        }
    }
}

/* The last band, which has no launch, joins the counters that nothing waits for, if there are many:
 * the rows of the next repetition wait for it alone. With a ring it tells the host in any case, and
 * the next repetition does not wait for it if there are few. Else it is left out. */
static void plan_join_last(nova_persistent_plan *plan, persistent_bands *bands, bool repeats)
{
    enum { MOST_LAST = 32 };
    uint32_t join = --bands->counter_count, last_count = 0;
    bands->band_count--;
    for (uint32_t i = 0; i < join; i++)
        last_count += plan_is_last(bands, i, join);
    plan->waited_count = join;
    bool joins = repeats && last_count > MOST_LAST;
    if (!joins && plan->ring == NULL)
        return;
    for (uint32_t i = 0; i < join; i++)
        if (plan_is_last(bands, i, join))
            persistent_order_add(&bands->order, join, i);
    bands->counter_count++;
    bands->band_count++;
    plan->waited_count += joins;
}

/* The rows that each block has tasks of: where the list of each begins, and the lists. */
static bool plan_make_lists(persistent_tables *tables, uint32_t blocks)
{
    uint64_t count = blocks + UINT64_C(1);
    for (uint32_t row = 0; row < tables->row_count; row++)
        count += tables->rows[row].task_count < blocks ? tables->rows[row].task_count : blocks;
    if (count > UINT32_MAX)
        return false;
    tables->list_count = (uint32_t)count;
    tables->lists = calloc(count, sizeof *tables->lists);
    if (tables->lists == NULL)
        return false;
    uint32_t next = blocks + 1;
    for (uint32_t block = 0; block < blocks; block++) {
        tables->lists[block] = next;
        for (uint32_t row = 0; row < tables->row_count; row++) {
            const persistent_row *of = &tables->rows[row];
            if ((block + blocks - of->first_block) % blocks < of->task_count)
                tables->lists[next++] = row;
        }
    }
    tables->lists[blocks] = next;
    return true;
}

void persistent_lay_out(persistent_tables *tables, uint32_t blocks)
{
    tables->waits_at = tables->row_count * sizeof *tables->rows;
    tables->arguments_at =
        (tables->waits_at + tables->wait_count * sizeof *tables->waits + 15) / 16 * 16;
    tables->counters_at =
        tables->arguments_at + tables->argument_count * sizeof(persistent_argument);
    /* after the counters, in whole words: address and size of the trace; the places of the blocks;
     * then, for each block, the visits of segments; then the lists of rows */
    tables->trace_at =
        tables->counters_at + (tables->counter_count + UINT64_C(3)) / 2 * sizeof(uint64_t);
    tables->places_at = tables->trace_at + 2 * sizeof(uint64_t);
    tables->visits_at =
        tables->places_at + (PERSISTENT_PLACES + (blocks + UINT64_C(3)) / 4 * 4) * sizeof(uint32_t);
    tables->lists_at =
        tables->visits_at + (uint64_t)blocks * tables->segment_count * sizeof(uint32_t);
    tables->ring_at =
        (tables->lists_at + tables->list_count * sizeof *tables->lists + 15) / 16 * 16;
    tables->size = tables->ring_at + tables->ring_size;
}

void persistent_free_tables(persistent_tables *tables)
{
    free(tables->rows);
    free(tables->waits);
    free(tables->arguments);
    free(tables->launches);
    free(tables->lists);
    free(tables->ranges);
    *tables = (persistent_tables){0};
}

/* The block with the fewest tasks: the host is told by it, which takes long. */
static uint32_t plan_find_idle_block(const persistent_tables *tables, uint32_t row_count,
                                     uint32_t blocks)
{
    uint32_t best = 0;
    uint64_t fewest = UINT64_MAX;
    for (uint32_t block = blocks; block-- > 0;) {
        uint64_t count = 0;
        for (uint32_t row = 0; row < row_count; row++) {
            uint32_t first = (block + blocks - tables->rows[row].first_block) % blocks;
            if (first < tables->rows[row].task_count)
                count += (tables->rows[row].task_count - first - 1) / blocks + 1;
        }
        if (count < fewest) {
            fewest = count;
            best = block;
        }
    }
    return best;
}

/* The last counter that a single task waits for, whose only task it can follow on its block: no
 * other one follows it already. Or the number of counters. */
static uint32_t plan_find_chain(const persistent_bands *bands, uint32_t counter)
{
    for (uint32_t from = counter; from-- > 0;)
        if (persistent_order_has(&bands->order, counter, from) && !bands->is_followed[from] &&
            bands->only_block[from] != PERSISTENT_SEVERAL)
            return from;
    return bands->counter_count;
}

/* A row for each band. The next row begins at the block after the last one of the row before it, so
 * rows that are independent run concurrently. Chains of single tasks stay on one block, and wait
 * for nothing. */
static void plan_fill_rows(const nova_device_program *program, const nova_persistent_plan *plan,
                           persistent_tables *filled, persistent_bands *bands)
{
    uint32_t next = 0;
    for (uint32_t i = 0; i < filled->row_count; i++) {
        const persistent_band *band = &bands->bands[i];
        bool is_single = plan->has_chains && bands->totals[band->counter] == 1;
        uint32_t before = is_single ? plan_find_chain(bands, band->counter) : bands->counter_count;
        bool follows = before < bands->counter_count;
        filled->rows[i] =
            (persistent_row){.task_count = band->count,
                             .first_block = follows ? bands->only_block[before] : next,
                             .begin = band->begin};
        if (follows)
            bands->is_followed[before] = true;
        else
            next = (uint32_t)(((uint64_t)next + band->count) % plan->blocks);
        filled->launches[i] = NOVA_NO_LAUNCH;
        filled->rows[i].kernel = PERSISTENT_JOIN;
        if (band->row == program->launch_count) {
            if (plan->ring != NULL) {
                filled->rows[i].kernel = PERSISTENT_SIGNAL;
                filled->rows[i].first_block = plan_find_idle_block(filled, i, plan->blocks);
            }
            bands->only_block[band->counter] =
                is_single ? filled->rows[i].first_block : PERSISTENT_SEVERAL;
            continue;
        }
        bands->only_block[band->counter] =
            is_single ? filled->rows[i].first_block : PERSISTENT_SEVERAL;
        filled->launches[i] = program->launches[band->row];
        const nova_launch_record *launch = &program->tables.launches[filled->launches[i]];
        filled->rows[i].kernel = plan->task_numbers[launch->kernel];
        filled->rows[i].first_argument = launch->first_operand;
    }
}

static bool plan_fill_tables(const nova_device_program *program, nova_persistent_plan *plan,
                             persistent_bands *bands)
{
    persistent_tables *filled = &plan->tables;
    bool repeats = program->repeats > 1;
    plan_join_last(plan, bands, repeats && plan->has_lists);
    filled->ring_size = plan->ring != NULL ? persistent_ring_size(plan->ring) : 0;
    filled->row_count = bands->band_count;
    filled->counter_count = bands->counter_count;
    filled->argument_count = program->tables.header->operand_count;
    filled->rows = calloc(filled->row_count + (size_t)1, sizeof *filled->rows);
    filled->launches = calloc(filled->row_count + (size_t)1, sizeof *filled->launches);
    if (filled->rows == NULL || filled->launches == NULL)
        return false;
    plan_fill_rows(program, plan, filled, bands);
    plan_fill_waits(plan, filled, bands, repeats);
    filled->waits = calloc(filled->wait_count + (size_t)1, sizeof *filled->waits);
    if (filled->waits == NULL || (plan->has_lists && !plan_make_lists(filled, plan->blocks)))
        return false;
    plan_fill_waits(plan, filled, bands, repeats);
    persistent_lay_out(filled, plan->blocks);
    return true;
}

/* No more blocks than there are tasks, with the one that tells the host: others would only start
 * and leave. */
static void plan_limit_blocks(nova_persistent_plan *plan, const persistent_bands *bands)
{
    uint64_t tasks = 0;
    for (uint32_t i = 0; i < bands->band_count; i++)
        tasks += bands->bands[i].count;
    tasks -= plan->ring == NULL && tasks > 1;
    if (tasks < plan->blocks)
        plan->blocks = (uint32_t)tasks;
}

static nova_status plan_fill(const nova_device_program *program, nova_persistent_plan *plan,
                             nova_error *error)
{
    persistent_bands bands;
    bool has_memory = persistent_bands_create(program, plan->has_lists, &bands);
    if (has_memory && plan->has_chains)
        plan_limit_blocks(plan, &bands);
    has_memory = has_memory && plan_fill_tables(program, plan, &bands);
    persistent_bands_free(&bands);
    return has_memory ? NOVA_OK
                      : nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the program");
}

/* --- any program ------------------------------------------------------------------------------ */

/* Refuses kernels that cannot be tasks; a text that was not compiled by Nova may have them. */
static nova_status plan_check_kernels(const nova_tables *tables, uint32_t threads,
                                      nova_error *error)
{
    for (uint32_t i = 0; i < tables->header->launch_count; i++) {
        uint32_t kernel = tables->launches[i].kernel;
        const nova_device_launch *shape = &tables->devices[kernel];
        if (nova_kernel_is_device(&tables->kernels[kernel]) &&
            (plan_is_persistent(tables, kernel) || shape->tensor_map_count > 0 ||
             shape->grid[1] != 1 || shape->grid[2] != 1 || shape->block[0] > threads))
            return nova_fail(error, NOVA_REFUSED, "tables-persistent",
                             "launch %u cannot be tasks of the persistent kernel", i);
    }
    return NOVA_OK;
}

/* Numbers the kernels of the program, then those of its regions, each name once: the pass numbers
 * the tasks in this order. */
static void plan_number_kernels(const nova_device_program *program, nova_persistent_plan *plan,
                                const char **names)
{
    uint32_t *numbers = plan->task_numbers;
    uint32_t regions = nova_tables_region_count(&program->tables);
    for (uint32_t i = 0; i <= regions; i++) {
        const nova_tables *tables = i == 0 ? &program->tables : &program->regions[i - 1].tables;
        if (i > 0)
            program->regions[i - 1].task_numbers = numbers;
        for (uint32_t kernel = 0; kernel < tables->header->kernel_count; kernel++, numbers++) {
            if (!nova_kernel_is_device(&tables->kernels[kernel]) ||
                plan_is_persistent(tables, kernel))
                continue;
            const char *name = tables->strings + tables->kernels[kernel].name;
            for (*numbers = 0; *numbers < plan->task_count; ++*numbers)
                if (strcmp(names[*numbers], name) == 0)
                    break;
            if (*numbers == plan->task_count)
                names[plan->task_count++] = name;
        }
    }
}

static nova_status plan_make_numbers(nova_device_program *program, nova_persistent_plan *plan,
                                     nova_error *error)
{
    uint32_t regions = nova_tables_region_count(&program->tables);
    uint64_t kernels = program->tables.header->kernel_count + UINT64_C(1);
    for (uint32_t i = 0; i < regions; i++)
        kernels += program->regions[i].tables.header->kernel_count;
    const char **names = calloc(kernels, sizeof *names);
    plan->task_numbers = calloc(kernels, sizeof *plan->task_numbers);
    bool has_memory = names != NULL && plan->task_numbers != NULL;
    if (has_memory)
        plan_number_kernels(program, plan, names);
    program->task_numbers = plan->task_numbers;
    free(names);
    return has_memory ? NOVA_OK
                      : nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the program");
}

/* Refuses programs that are not tasks of one kernel: with kernels of the host, or with loops where
 * the kernel has none. */
static nova_status plan_check(const nova_device_program *program, uint32_t kernel,
                              nova_error *error)
{
    bool has_flow = plan_has_flow(&program->tables, kernel);
    for (uint32_t i = 0; i < program->step_count; i++) {
        nova_step_type type = program->steps[i].type;
        if (type != NOVA_DEVICE_STEP &&
            (!has_flow || (type != NOVA_LOOP_STEP && type != NOVA_CONTROL_STEP)))
            return nova_fail(error, NOVA_REFUSED, "tables-persistent",
                             "a persistent kernel in a program with host kernels, or with loops "
                             "that it cannot decide");
    }
    uint32_t threads = program->tables.devices[kernel].block[0];
    nova_status status = plan_check_kernels(&program->tables, threads, error);
    uint32_t regions = nova_tables_region_count(&program->tables);
    for (uint32_t i = 0; status == NOVA_OK && i < regions; i++)
        status = plan_check_kernels(&program->regions[i].tables, threads, error);
    return status;
}

static nova_status plan_make_stops(nova_device *device, nova_persistent_plan *plan,
                                   nova_error *error)
{
    void *words = NULL;
    size_t size = PERSISTENT_STOPS * sizeof *plan->stops;
    nova_status status = nova_device_pin(device, size, &words, error);
    if (status == NOVA_OK)
        memset(words, 0, size);
    plan->stops = words;
    return status;
}

/* Finds how many blocks run at once: those of its launches. */
static nova_status plan_find_blocks(const nova_device_program *program, nova_persistent_plan *plan,
                                    nova_error *error)
{
    nova_driver *driver = program->device->driver;
    const nova_device_launch *shape = &program->tables.devices[plan->kernel];
    void *function = program->functions[plan->kernel];
    nova_function_use use = {0};
    int result = driver->function_use(driver, function, &use);
    if (result == 0)
        result = driver->function_resident(driver, function, shape->block[0], shape->shared,
                                           &plan->blocks, &plan->processors);
    if (result == 0)
        return NOVA_OK;
    char action[240];
    (void)snprintf(action, sizeof action,
                   "the device cannot run the persistent kernel of the program: %u threads of %u "
                   "registers and %u + %u bytes of shared memory do not fit on a multiprocessor",
                   shape->block[0], use.registers, use.shared, shape->shared);
    return nova_device_check(program->device, result, action, error);
}

/* The ring of a program that was asked for one. */
static nova_status plan_make_ring(nova_device_program *program, nova_persistent_plan *plan,
                                  nova_error *error)
{
    if (!plan->takes_ring)
        return nova_fail(error, NOVA_UNSUPPORTED, "",
                         "the persistent kernel takes no data from a ring: the program has loops "
                         "or branches, or was compiled by an older version");
    return persistent_ring_create(program, &plan->ring, error);
}

nova_status nova_persistent_prepare(nova_device_program *program, nova_error *error)
{
    const nova_tables *tables = &program->tables;
    uint32_t kernel = plan_find_kernel(tables);
    if (program->launch_count == 0 || kernel == tables->header->kernel_count)
        return program->repeats == 1 || (program->launch_count == 0 && !program->has_ring)
                   ? NOVA_OK
                   : nova_fail(error, NOVA_INVALID_ARGUMENT, "",
                               "a program without a persistent kernel cannot be repeated");
    nova_status status = plan_check(program, kernel, error);
    if (status != NOVA_OK)
        return status;
    nova_persistent_plan *plan = calloc(1, sizeof *plan);
    program->persistent = plan;
    if (plan == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the program");
    plan->kernel = kernel;
    plan->driver = program->device->driver;
    plan->has_flow = plan_has_flow(tables, kernel);
    plan->has_chains = plan_has_symbol(tables, kernel, CHAINS_SYMBOL);
    plan->takes_ring = plan->has_chains || plan_has_symbol(tables, kernel, RING_SYMBOL);
    plan->has_lists = plan->takes_ring || plan_has_symbol(tables, kernel, LISTS_SYMBOL);
    status = plan_make_numbers(program, plan, error);
    if (status != NOVA_OK)
        return status;
    status = plan_find_blocks(program, plan, error);
    if (status == NOVA_OK && plan_has_symbol(tables, kernel, STOPPED_SYMBOL))
        status = plan_make_stops(program->device, plan, error);
    if (status == NOVA_OK && program->has_ring)
        status = plan_make_ring(program, plan, error);
    return status == NOVA_OK && !plan->has_flow ? plan_fill(program, plan, error) : status;
}

nova_persistent_shape nova_device_program_persistent(const nova_device_program *program)
{
    const nova_persistent_plan *plan = program->persistent;
    if (plan == NULL || plan->has_flow)
        return (nova_persistent_shape){0};
    return (nova_persistent_shape){plan->blocks, plan->tables.row_count, plan->tables.counter_count,
                                   plan->tables.wait_count};
}

void nova_persistent_free(nova_persistent_plan *plan)
{
    if (plan == NULL)
        return;
    persistent_free_tables(&plan->tables);
    persistent_ring_free(plan->ring);
    if (plan->stops != NULL)
        plan->driver->pinned_free(plan->driver, plan->stops);
    free(plan->task_numbers);
    free(plan);
}
