/* Launches of the simulator: their view of memory, and the report of a fault. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpusim/driver/driver_state.h"

/* The text of a line of the PTX, truncated. */
static void launch_copy_line(const module *in, uint32_t number, char *text, size_t size)
{
    const char *line = in->text, *end = in->text + in->text_size;
    for (uint32_t i = 1; i < number && line < end; i++) {
        const char *next = memchr(line, '\n', (size_t)(end - line));
        line = next != NULL ? next + 1 : end;
    }
    const char *stop = line < end ? memchr(line, '\n', (size_t)(end - line)) : NULL;
    (void)snprintf(text, size, "%.*s", (int)((stop != NULL ? stop : end) - line), line);
}

/* Remembers a fault, its line, and the operand that is nearest to where it happened. */
static void launch_remember(simulator *s, const function *f, const sim_fault *fault,
                            const sim_range *ranges, uint32_t number)
{
    nova_sim_report *report = &s->report;
    uint64_t best = UINT64_MAX;
    *report = (nova_sim_report){.fault = *fault};
    for (uint32_t i = 0; i < number; i++) {
        uint64_t start = ranges[i].start, end = start + ranges[i].size, at = fault->address;
        uint64_t away = at < start ? start - at : at >= end ? at - end + 1 : 0;
        if (away < best) {
            best = away;
            report->near_address = start;
            report->near_size = ranges[i].size;
        }
    }
    (void)snprintf(report->kernel, sizeof report->kernel, "%s", f->name);
    launch_copy_line(f->of, fault->line, report->line, sizeof report->line);
    s->has_report = true;
}

/* A launch sees its buffers far apart, wherever they are: an access past the end of one buffer
 * never hits another one. Addresses keep their offset in a page, and so their alignment. A
 * cooperative launch reads addresses from memory: it sees its buffers where they are. */
enum { PAGE = 4096 };
#define SPACING (UINT64_C(1) << 36)

static bool launch_is_unfinished(const simulator *s, const nova_device_range *range)
{
    for (uint32_t i = 0; i < s->unfinished_count; i++) {
        const nova_device_range *written = &s->unfinished[i];
        if (written->address < range->address + range->size &&
            range->address < written->address + written->size)
            return true;
    }
    return false;
}

/* A launch that is not dependent starts after the end of all before it. Those after it that are
 * may start before it ends. */
static int launch_note_writes(simulator *s, const work *w, const _Atomic uint8_t *is_written)
{
    const nova_device_range *allowed = (const void *)(w->data + w->argument_count);
    if (!w->is_dependent)
        s->unfinished_count = 0;
    nova_device_range *grown = realloc(
        s->unfinished, (s->unfinished_count + w->range_count + UINT64_C(1)) * sizeof *grown);
    if (grown == NULL)
        return SIM_NO_MEMORY;
    s->unfinished = grown;
    for (uint32_t i = 0; i < w->range_count; i++)
        if (atomic_load_explicit(&is_written[i], memory_order_relaxed))
            s->unfinished[s->unfinished_count++] = allowed[i];
    return SIM_OK;
}

static int launch_find_ranges(const simulator *s, const work *w, sim_range *ranges,
                              _Atomic uint8_t *is_written)
{
    const nova_device_range *allowed = (const void *)(w->data + w->argument_count);
    uint64_t end = 0;
    for (uint32_t i = 0; i < w->range_count; i++) {
        const block *in = sim_find_block(s, allowed[i].address, allowed[i].size);
        if (in == NULL)
            return SIM_BAD_ADDRESS;
        uint64_t start = w->is_cooperative
                             ? allowed[i].address
                             : (end + SPACING) / PAGE * PAGE + allowed[i].address % PAGE;
        ranges[i] =
            (sim_range){.start = start,
                        .size = allowed[i].size,
                        .state = in->state + (allowed[i].address - in->address),
                        .read_only = allowed[i].is_read_only,
                        .moved = allowed[i].address - start,
                        .unfinished = w->is_dependent && launch_is_unfinished(s, &allowed[i]),
                        .is_written = &is_written[i]};
        end = start + allowed[i].size;
    }
    return SIM_OK;
}

/* The address at which a launch sees a device address. */
static uint64_t launch_fault_location(const sim_range *ranges, uint32_t count, uint64_t address)
{
    for (uint32_t i = 0; i < count; i++)
        if (address - (ranges[i].start + ranges[i].moved) < ranges[i].size)
            return address - ranges[i].moved;
    return address;
}

static int launch_run(simulator *s, const work *w, const sim_range *ranges,
                      const uint64_t *arguments)
{
    const uint32_t *cluster = w->function->cluster;
    const sim_launch launch = {
        .ranges = ranges,
        .range_count = w->range_count,
        .params = (const void *)arguments,
        .param_bytes = w->argument_count * (uint32_t)sizeof *arguments,
        .grid = {w->shape.grid[0], w->shape.grid[1], w->shape.grid[2]},
        .block = {w->shape.block[0], w->shape.block[1], w->shape.block[2]},
        .cluster = {cluster[0] ? cluster[0] : 1, cluster[1] ? cluster[1] : 1,
                    cluster[2] ? cluster[2] : 1},
        .dynamic_shared = w->shape.shared,
        .most_steps = MOST_STEPS,
        .check_races = 1,
        .is_cooperative = w->is_cooperative,
        .schedule = w->function->of->schedule,
    };
    sim_fault fault;
    if (!nova_sim_run(&w->function->kernel, &launch, &fault))
        return SIM_OK;
    launch_remember(s, w->function, &fault, ranges, w->range_count);
    return SIM_FAULT;
}

int sim_launch_now(simulator *s, const work *w)
{
    sim_range *ranges = calloc(w->range_count + 1, sizeof *ranges);
    uint64_t *arguments = calloc(w->argument_count + 1, sizeof *arguments);
    /* Buffers that a launch may write are often only read: what it has written counts. */
    _Atomic uint8_t *is_written = calloc(w->range_count + 1, sizeof *is_written);
    int result = ranges == NULL || arguments == NULL || is_written == NULL
                     ? SIM_NO_MEMORY
                     : launch_find_ranges(s, w, ranges, is_written);
    for (uint32_t i = 0; result == SIM_OK && i < w->argument_count; i++)
        arguments[i] = launch_fault_location(ranges, w->range_count, w->data[i]);
    if (result == SIM_OK)
        result = launch_run(s, w, ranges, arguments);
    if (result == SIM_OK)
        result = launch_note_writes(s, w, is_written);
    free(is_written);
    free(arguments);
    free(ranges);
    return result;
}
