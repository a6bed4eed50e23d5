/* Programs with kernels of the host between those of the device.
 *
 * A run goes through the steps in order. Those of the device and copies are only enqueued, each step of copies with
 * an event behind it. A step of the host waits for the copies that it needs, then its tasks run on the threads of
 * the process, while the device goes on with what it was given before. */
#include <stdlib.h>
#include <string.h>

#include "device_run.h"

/* --- steps ------------------------------------------------------------------------------------ */

static nova_step_kind kind_of(const nova_device_program *program, uint32_t index)
{
    uint32_t core = nova_launch_core(program, &program->tables.launches[program->launches[index]]);
    return core == NOVA_DEVICE ? NOVA_DEVICE_STEP : core > NOVA_DEVICE ? NOVA_COPY_STEP : NOVA_HOST_STEP;
}

/* Whether launch `index` belongs to the step of the one before it. An island is one piece of the tables: launches
 * that do nothing may be inside, if they are of the host as well. */
static bool continues(const nova_device_program *program, uint32_t index)
{
    nova_step_kind kind = kind_of(program, index);
    if (index == 0 || kind_of(program, index - 1) != kind)
        return false;
    for (uint32_t i = program->launches[index - 1] + 1;
         kind == NOVA_HOST_STEP && i < program->launches[index]; i++)
        if (nova_launch_core(program, &program->tables.launches[i]) >= NOVA_DEVICE)
            return false;
    return true;
}

static nova_status make_steps(nova_device_program *program, nova_error *error)
{
    uint32_t numbers[3] = {0};
    program->steps = calloc(program->launch_count + 1, sizeof *program->steps);
    if (program->steps == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the program");
    for (uint32_t i = 0; i < program->launch_count; i++) {
        nova_step_kind kind = kind_of(program, i);
        if (!continues(program, i))
            program->steps[program->step_count++] =
                (nova_device_step){.kind = kind, .first = i, .number = numbers[kind]++};
        program->steps[program->step_count - 1].count++;
    }
    for (uint32_t i = 0; i < program->step_count; i++) {
        const nova_device_step *step = &program->steps[i];
        program->has_graphs |= step->kind == NOVA_DEVICE_STEP && step->count > 1;
        program->has_single |= step->kind == NOVA_DEVICE_STEP && step->count == 1;
    }
    program->device_count = numbers[NOVA_DEVICE_STEP];
    program->mixture.copy_count = numbers[NOVA_COPY_STEP];
    program->mixture.island_count = numbers[NOVA_HOST_STEP];
    return NOVA_OK;
}

/* --- what islands wait for -------------------------------------------------------------------- */

/* Whether a copy and a kernel of the host must not be at work at the same time. */
static bool meet(const nova_device_program *program, const nova_launch_record *copy,
                 const nova_launch_record *launch)
{
    const nova_buffer *moved = nova_operand(program, copy, 0);
    uint64_t from = nova_mirror_offset(program, moved), to = from + moved->nbytes;
    uint32_t first = nova_launch_core(program, copy) == NOVA_TO_HOST ? 0 : launch->reads;
    for (uint32_t k = first; k < launch->operand_count; k++) {
        const nova_buffer *buffer = nova_operand(program, launch, k);
        if (buffer->kind == NOVA_CONSTANT)
            continue;
        uint64_t start = nova_mirror_offset(program, buffer);
        if (start < to && from < start + buffer->nbytes)
            return true;
    }
    return false;
}

static bool any_meet(const nova_device_program *program, const nova_device_step *copies,
                     const nova_device_step *island)
{
    for (uint32_t i = 0; i < copies->count; i++)
        for (uint32_t k = 0; k < island->count; k++)
            if (meet(program, nova_step_launch(program, copies, i),
                     nova_step_launch(program, island, k)))
                return true;
    return false;
}

/* The last copies before an island that use what it uses: those before them have ended as well then. */
static uint32_t find_waits(const nova_device_program *program, const nova_device_step *island)
{
    for (const nova_device_step *step = island; step-- > program->steps;)
        if (step->kind == NOVA_COPY_STEP && any_meet(program, step, island))
            return step->number;
    return NOVA_NO_STEP;
}

nova_status nova_steps_prepare(nova_device_program *program, const nova_device_source *source,
                               nova_error *error)
{
    nova_device_mixture *mixture = &program->mixture;
    nova_status status = make_steps(program, error);
    if (status != NOVA_OK || mixture->copy_count + mixture->island_count == 0)
        return status;
    status = nova_mirror_lay_out(program, source, error);
    mixture->islands = calloc(mixture->island_count + 1, sizeof *mixture->islands);
    if (status == NOVA_OK && mixture->islands == NULL)
        status = nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the program");
    if (status == NOVA_OK && mixture->island_count > 0 && source->image == NULL)
        status = nova_fail(error, NOVA_UNSUPPORTED, "tables-code",
                           "kernels are pinned to the host, and their code is not there");
    for (uint32_t i = 0; status == NOVA_OK && i < program->step_count; i++) {
        const nova_device_step *step = &program->steps[i];
        if (step->kind != NOVA_HOST_STEP)
            continue;
        nova_island *island = &mixture->islands[step->number];
        island->waits = find_waits(program, step);
        status = nova_island_create(program, step, source->image, island, error);
        if (status != NOVA_OK)
            break;
        uint64_t needed = nova_program_workspace_size(island->program);
        mixture->size = needed > mixture->size ? needed : mixture->size;
    }
    return status;
}

void nova_steps_free(nova_device_program *program)
{
    nova_device_mixture *mixture = &program->mixture;
    for (uint32_t i = 0; mixture->islands != NULL && i < mixture->island_count; i++)
        nova_island_free(&mixture->islands[i]);
    free(mixture->islands);
    free(mixture->places);
    free(mixture->constants);
    free(program->steps);
}

/* --- runs ------------------------------------------------------------------------------------- */

/* Waits until nothing of the run before uses the mirror. */
static nova_status take_mirror(nova_device_run *r)
{
    nova_driver *driver = r->device->driver;
    if (!r->execution->mirror_is_busy)
        return NOVA_OK;
    r->execution->mirror_is_busy = false;
    return nova_run_check(r, driver->event_synchronize(driver, r->execution->mirror_free),
                          "the run before cannot be waited for");
}

/* The array of the caller that a copy would bring back from the device; NULL where it is on the device only, or a kernel
 * may have changed it by then. */
static const void *array_at_hand(const nova_device_run *r, const nova_device_step *step,
                                 const nova_launch_record *copy)
{
    const nova_buffer *buffer = nova_operand(r->program, copy, 0);
    if (nova_launch_core(r->program, copy) != NOVA_TO_HOST || buffer->kind != NOVA_ARGUMENT ||
        r->arguments[buffer->value].address != 0)
        return NULL;
    for (uint32_t i = 0; r->program->donated[buffer->value] && i < step->first; i++) {
        const nova_launch_record *launch = &r->program->tables.launches[r->program->launches[i]];
        for (uint32_t k = 0; k < launch->operand_count; k++) {
            const nova_buffer *other = nova_operand(r->program, launch, k);
            if (other->kind != NOVA_WORKSPACE && other->kind != NOVA_CONSTANT &&
                nova_mirror_slot(r->program, other) == buffer->value)
                return NULL;
        }
    }
    return r->arguments[buffer->value].host;
}

static char *place_of(const nova_device_run *r, const nova_buffer *buffer)
{
    return r->execution->mirror + nova_mirror_offset(r->program, buffer);
}

/* Fills the mirror with arrays of the caller, which an island needs and copies before it would have brought: the device
 * has its work by now. */
static nova_status bring_arrays(nova_device_run *r, const nova_device_step *island)
{
    nova_status status = NOVA_OK;
    const nova_device_step *step = r->program->steps + r->brought;
    for (; status == NOVA_OK && step < island; step++)
        for (uint32_t i = 0; step->kind == NOVA_COPY_STEP && i < step->count; i++) {
            const nova_launch_record *launch = nova_step_launch(r->program, step, i);
            const nova_buffer *buffer = nova_operand(r->program, launch, 0);
            const void *given = array_at_hand(r, step, launch);
            if (given == NULL)
                continue;
            status = take_mirror(r);
            if (status != NOVA_OK)
                break;
            memcpy(place_of(r, buffer), given, buffer->nbytes);
        }
    r->brought = (uint32_t)(island - r->program->steps);
    return status;
}

static nova_status copy(nova_device_run *r, const nova_launch_record *launch)
{
    nova_driver *driver = r->device->driver;
    const nova_buffer *buffer = nova_operand(r->program, launch, 0);
    char *here = place_of(r, buffer);
    uint64_t there = nova_run_address(r, buffer);
    bool is_out = nova_launch_core(r->program, launch) == NOVA_TO_HOST;
    nova_trace_begin(r->trace, is_out ? NOVA_SPAN_COPY_OUT : NOVA_SPAN_COPY_IN,
                     (uint32_t)(launch - r->program->tables.launches), buffer->nbytes, r->stream);
    int result = is_out ? driver->copy_out(driver, here, there, buffer->nbytes, r->stream)
                        : driver->copy_in(driver, there, here, buffer->nbytes, r->stream);
    nova_trace_end(r->trace, r->stream);
    return nova_run_check(r, result, "a value cannot be copied between device and host");
}

nova_status nova_run_copies(nova_device_run *r, const nova_device_step *step)
{
    nova_driver *driver = r->device->driver;
    bool is_enqueued = false;
    nova_status status = NOVA_OK;
    for (uint32_t i = 0; status == NOVA_OK && i < step->count; i++) {
        const nova_launch_record *launch = nova_step_launch(r->program, step, i);
        if (array_at_hand(r, step, launch) != NULL)
            continue;
        status = copy(r, launch);
        is_enqueued = true;
    }
    if (status != NOVA_OK)
        return status;
    if (!is_enqueued && r->arrived == step->number) {
        r->arrived++; /* nothing to wait for */
        return NOVA_OK;
    }
    return nova_run_check(r,
                          driver->event_record(driver, r->execution->copies[step->number], r->stream),
                          "copies between device and host cannot be waited for");
}

nova_status nova_run_island(nova_device_run *r, const nova_device_step *step)
{
    nova_driver *driver = r->device->driver;
    const nova_island *island = &r->program->mixture.islands[step->number];
    nova_status status = NOVA_OK;
    if (island->waits != NOVA_NO_STEP && island->waits >= r->arrived) {
        nova_trace_host(r->trace, NOVA_SPAN_WAIT, NOVA_NO_LAUNCH);
        int result = driver->event_synchronize(driver, r->execution->copies[island->waits]);
        status = nova_run_check(r, result, "the device cannot be waited for");
        r->arrived = island->waits + 1;
        r->execution->mirror_is_busy = false; /* this run's stream is behind that of the run before */
    } else {
        status = take_mirror(r);
    }
    if (status == NOVA_OK)
        status = bring_arrays(r, step);
    if (status != NOVA_OK)
        return status;
    nova_trace_host(r->trace, NOVA_SPAN_HOST, r->program->launches[step->first]);
    status = nova_program_run(island->program, island->constants, NULL, r->execution->mirror, r->error);
    nova_trace_host(r->trace, NOVA_SPAN_ENQUEUE, NOVA_NO_LAUNCH);
    return status;
}

nova_status nova_run_leave_mirror(nova_device_run *r, nova_error *error)
{
    nova_device_execution *execution = r->execution;
    nova_driver *driver = r->device->driver;
    if (execution->mirror == NULL)
        return NOVA_OK;
    int result = driver->event_record(driver, execution->mirror_free, r->stream);
    execution->mirror_is_busy = result == 0;
    return nova_device_check(r->device, result, "copies between device and host cannot be waited for",
                             error);
}
