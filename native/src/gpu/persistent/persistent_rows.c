/* The tables of a persistent kernel with loops and branches: a builder of flows that appends rows.
 *
 * Rows form segments. A segment ends with a decision, which waits for all of its rows and says
 * which segment is next (nova/codegen/gpu/persistent/flow.py has its arguments). Inside of a
 * segment a row waits for the rows before it that access the same memory, by the addresses of this
 * run, if one of both writes it; the decision that leads to the segment counts as its first row,
 * because it reads its selector. A loop is a jump to the segment of its decision alone, the body,
 * and a jump back:
 *
 *     rows before, copies, first position; jump HEAD
 *     HEAD: decide BODY or AFTER
 *     BODY: copies of slices, rows, copies back, next position; jump HEAD
 *     AFTER: ... */
#include <stdlib.h>
#include <string.h>

#include "gpu/persistent/persistent.h"

/* Bytes that one task of a copy moves; nova/codegen/gpu/persistent/flow.py has the same number. */
enum { COPY_BYTES = 16 << 10 };

#define NO_ROW UINT32_MAX

/* What a row accesses: a part of the ranges of all rows. */
typedef struct {
    uint32_t first, count;
} row_access;

/* The body of a loop or branch. */
typedef struct rows_body {
    struct rows_body *next; /* of the builder: to be freed */
    uint32_t decision;      /* row that leads to it */
    uint32_t branch, branch_count;
    bool is_loop;
    uint32_t head; /* row of a loop's decision, and its segment */
    uint32_t head_segment;
    nova_flow_loop loop; /* without its lists but `stores` */
    nova_flow_copy *stores;
} rows_body;

typedef struct {
    nova_flow_builder calls;
    nova_device_run *r;
    persistent_tables *tables;
    row_access *accesses; /* of each row */
    uint32_t row_room, wait_room, argument_room, range_room;
    uint32_t first_row; /* of the segment */
    uint32_t entry;     /* decision that leads to the segment; NO_ROW: a jump, or the beginning */
    uint32_t next_block;
    uint32_t launch; /* of the row that is added */
    bool has_memory;
    rows_body *bodies;
} rows_builder;

/* --- arrays ----------------------------------------------------------------------------------- */

/* Makes room for `more` items of `size` bytes; sets `has_memory` where there is none. */
static void *rows_grow(rows_builder *b, void *items, uint32_t count, uint32_t more, uint32_t *room,
                       size_t size)
{
    if (count + more <= *room)
        return items;
    uint32_t larger = 2 * (count + more);
    void *moved = realloc(items, larger * size);
    if (moved == NULL) {
        b->has_memory = false;
        return items;
    }
    *room = larger;
    return moved;
}

static nova_status rows_check(const rows_builder *b)
{
    return b->has_memory ? NOVA_OK
                         : nova_fail(b->r->error, NOVA_OUT_OF_MEMORY, "", "no memory for a loop");
}

/* Bytes from an address in one repetition of the program to that in the next: values with a part
 * for each repetition move on, all others are shared. */
static uint64_t rows_stride(const rows_builder *b, uint64_t address)
{
    const nova_device_program *program = b->r->program;
    const uint64_t *slots = b->r->execution->slots;
    size_t arguments = program->argument_count, values = arguments + program->output_count;
    for (size_t i = 0; program->repeats > 1 && i < values; i++) {
        bool has_parts =
            i < arguments ? i < program->stacked_count : program->alias[i - arguments] < 0;
        uint64_t part = (uint64_t)program->nbytes[i] / program->repeats;
        if (has_parts && address - slots[i] < part)
            return part;
    }
    return 0;
}

static void rows_add_argument(rows_builder *b, uint64_t value, uint64_t stride)
{
    persistent_tables *t = b->tables;
    t->arguments =
        rows_grow(b, t->arguments, t->argument_count, 1, &b->argument_room, sizeof *t->arguments);
    if (b->has_memory)
        t->arguments[t->argument_count++] = (persistent_argument){value, stride};
}

static void rows_add_pointer(rows_builder *b, uint64_t address)
{
    rows_add_argument(b, address, rows_stride(b, address));
}

static void rows_add_range(rows_builder *b, uint64_t address, uint64_t size, bool is_read_only)
{
    persistent_tables *t = b->tables;
    t->ranges = rows_grow(b, t->ranges, t->range_count, 1, &b->range_room, sizeof *t->ranges);
    if (b->has_memory && size > 0)
        t->ranges[t->range_count++] =
            (nova_device_range){.address = address, .size = size, .is_read_only = is_read_only};
}

/* Appends a row; its arguments and ranges are added before it. */
static void rows_add(rows_builder *b, persistent_row row, uint32_t first_range)
{
    persistent_tables *t = b->tables;
    uint32_t room = b->row_room, launch_room = b->row_room, access_room = b->row_room;
    t->rows = rows_grow(b, t->rows, t->row_count, 1, &room, sizeof *t->rows);
    t->launches = rows_grow(b, t->launches, t->row_count, 1, &launch_room, sizeof *t->launches);
    b->accesses = rows_grow(b, b->accesses, t->row_count, 1, &access_room, sizeof *b->accesses);
    if (!b->has_memory)
        return;
    b->row_room = room;
    t->launches[t->row_count] = b->launch;
    b->accesses[t->row_count] = (row_access){first_range, t->range_count - first_range};
    t->rows[t->row_count++] = row;
}

static void rows_add_tasks(rows_builder *b, uint32_t kernel, uint32_t task_count,
                           uint32_t first_argument, uint32_t first_range)
{
    const nova_persistent_plan *plan = b->r->program->persistent;
    rows_add(b,
             (persistent_row){.kernel = kernel,
                              .task_count = task_count,
                              .first_block = b->next_block,
                              .first_argument = first_argument},
             first_range);
    b->next_block = (uint32_t)(((uint64_t)b->next_block + task_count) % plan->blocks);
}

/* --- segments --------------------------------------------------------------------------------- */

/* Whether two rows access the same memory, and one of them writes it. The ranges of a row are few.
 */
static bool rows_conflict(const rows_builder *b, uint32_t one, uint32_t other)
{
    const row_access *x = &b->accesses[one], *y = &b->accesses[other];
    const nova_device_range *ranges = b->tables->ranges;
    for (uint32_t i = x->first; i < x->first + x->count; i++)
        for (uint32_t k = y->first; k < y->first + y->count; k++)
            if (!(ranges[i].is_read_only && ranges[k].is_read_only) &&
                ranges[i].address < ranges[k].address + ranges[k].size &&
                ranges[k].address < ranges[i].address + ranges[i].size)
                return true;
    return false;
}

/* Adds the waits of the rows of the segment that ends with the last row. Row 0 of their order is
 * the decision before the segment. */
static void rows_add_waits(rows_builder *b)
{
    persistent_tables *t = b->tables;
    persistent_order order;
    uint32_t first = b->first_row, count = t->row_count - first + 1;
    b->has_memory &= persistent_order_create(&order, count);
    for (uint32_t to = 1; b->has_memory && to < count; to++) {
        bool is_last = to + 1 == count;
        if (b->entry != NO_ROW && (is_last || rows_conflict(b, b->entry, first + to - 1)))
            persistent_order_add(&order, to, 0);
        for (uint32_t from = 1; from < to; from++)
            if (is_last || rows_conflict(b, first + from - 1, first + to - 1))
                persistent_order_add(&order, to, from);
    }
    if (b->has_memory)
        persistent_order_reduce(&order);
    for (uint32_t to = 1; b->has_memory && to < count; to++) {
        t->waits = rows_grow(b, t->waits, t->wait_count, to, &b->wait_room, sizeof *t->waits);
        persistent_row *row = &t->rows[first + to - 1];
        row->first_wait = t->wait_count;
        for (uint32_t from = 1; b->has_memory && from < to; from++)
            if (persistent_order_has(&order, to, from))
                t->waits[t->wait_count++] =
                    (persistent_wait){first + from - 1, t->rows[first + from - 1].task_count};
        row->wait_count = t->wait_count - row->first_wait;
        if (b->has_memory && persistent_order_has(&order, to, 0)) {
            t->waits[t->wait_count++] =
                (persistent_wait){b->entry, b->r->program->persistent->blocks};
            row->previous_count = 1;
        }
    }
    persistent_order_free(&order);
}

/* Ends the segment with a decision between `count` targets, `scale * selector + offset`; returns
 * its row. A selector of 0 bytes: a jump. */
static uint32_t rows_decide(rows_builder *b, uint64_t selector, uint32_t size, uint32_t count,
                            int64_t scale, int64_t offset)
{
    persistent_tables *t = b->tables;
    uint32_t first_argument = t->argument_count, first_range = t->range_count;
    rows_add_argument(b, selector, size > 0 ? rows_stride(b, selector) : 0);
    rows_add_argument(b, (uint64_t)scale, (uint64_t)offset);
    for (uint32_t i = 0; i < count; i++)
        rows_add_argument(b, 0, 0); /* rows_begin sets them */
    rows_add_range(b, selector, size, true);
    rows_add(b,
             (persistent_row){.kernel = PERSISTENT_DECISION,
                              .task_count = count,
                              .first_block = size,
                              .first_argument = first_argument},
             first_range);
    if (b->has_memory)
        rows_add_waits(b);
    return t->row_count - 1;
}

static uint32_t rows_jump(rows_builder *b)
{
    return rows_decide(b, 0, 0, 1, 0, 0);
}

/* Lets a decision lead to a row. */
static void rows_set_target(const rows_builder *b, uint32_t decision, uint32_t number, uint32_t row,
                            uint32_t segment)
{
    enum { TARGETS = 2 };
    if (b->has_memory)
        b->tables->arguments[b->tables->rows[decision].first_argument + TARGETS + number] =
            (persistent_argument){row, segment};
}

/* Begins a segment with the next row; returns its number. */
static uint32_t rows_begin(rows_builder *b, uint32_t entry)
{
    b->first_row = b->tables->row_count;
    b->entry = entry;
    return b->tables->segment_count++;
}

/* --- the calls of the builder ----------------------------------------------------------------- */

static nova_status rows_add_launch(nova_flow_builder *builder, void *body,
                                   const nova_flow_launch *launch)
{
    rows_builder *b = (rows_builder *)builder;
    const nova_kernel_call *call = launch->call;
    uint32_t first_argument = b->tables->argument_count, first_range = b->tables->range_count;
    (void)body;
    b->launch = launch->launch;
    for (uint32_t i = 0; i < call->argument_count; i++)
        rows_add_pointer(b, call->arguments[i]);
    for (uint32_t i = 0; i < call->range_count; i++)
        rows_add_range(b, call->ranges[i].address, call->ranges[i].size,
                       call->ranges[i].is_read_only);
    rows_add_tasks(b, launch->region->task_numbers[launch->kernel], call->shape->grid[0],
                   first_argument, first_range);
    return rows_check(b);
}

/* Bytes that a copy touches from the address at position 0 on. */
static uint64_t rows_extent(uint64_t size, int64_t stride, int64_t length)
{
    return size + (length > 1 ? (uint64_t)stride * (uint64_t)(length - 1) : 0);
}

/* A row for each copy; in a loop with positions each is at the position. */
static void rows_copy(rows_builder *b, const nova_flow_copy *copies, uint32_t count,
                      const nova_flow_loop *loop)
{
    uint32_t kernel = b->r->program->persistent->task_count;
    for (uint32_t i = 0; i < count; i++) {
        const nova_flow_copy *copy = &copies[i];
        uint32_t first_argument = b->tables->argument_count, first_range = b->tables->range_count;
        bool moves = copy->to_stride != 0 || copy->from_stride != 0;
        int64_t length = loop != NULL ? loop->length : 0;
        uint64_t position = moves && loop != NULL ? loop->position : 0;
        rows_add_pointer(b, copy->to);
        rows_add_pointer(b, copy->from);
        rows_add_argument(b, copy->size, 0);
        rows_add_argument(b, (uint64_t)copy->to_stride, 0);
        rows_add_argument(b, (uint64_t)copy->from_stride, 0);
        rows_add_argument(b, position, 0);
        rows_add_range(b, copy->to, rows_extent(copy->size, copy->to_stride, length), false);
        rows_add_range(b, copy->from, rows_extent(copy->size, copy->from_stride, length), true);
        rows_add_range(b, position, position != 0 ? sizeof(int64_t) : 0, true);
        rows_add_tasks(b, kernel, (uint32_t)((copy->size + COPY_BYTES - 1) / COPY_BYTES),
                       first_argument, first_range);
    }
}

static nova_status rows_add_copies(nova_flow_builder *builder, void *body,
                                   const nova_flow_copy *copies, uint32_t count)
{
    rows_builder *b = (rows_builder *)builder;
    (void)body;
    rows_copy(b, copies, count, NULL);
    return rows_check(b);
}

/* A row that sets the position of a loop, or moves it on. */
static void rows_add_position(rows_builder *b, uint64_t position, bool has_value, int64_t step)
{
    uint32_t first_argument = b->tables->argument_count, first_range = b->tables->range_count;
    rows_add_argument(b, position, 0);
    rows_add_argument(b, has_value, 0);
    rows_add_argument(b, (uint64_t)step, 0);
    rows_add_range(b, position, sizeof(int64_t), false);
    rows_add_tasks(b, b->r->program->persistent->task_count + 1, 1, first_argument, first_range);
}

static rows_body *rows_make_body(rows_builder *b)
{
    rows_body *body = calloc(1, sizeof *body);
    b->has_memory &= body != NULL;
    if (body != NULL) {
        body->next = b->bodies;
        b->bodies = body;
    }
    return body;
}

static nova_status rows_add_loop(nova_flow_builder *builder, void *outer,
                                 const nova_flow_loop *loop, void **inner)
{
    rows_builder *b = (rows_builder *)builder;
    rows_body *body = rows_make_body(b);
    (void)outer;
    if (body == NULL)
        return rows_check(b);
    body->is_loop = true;
    body->loop = *loop;
    body->stores = calloc(loop->store_count + (size_t)1, sizeof *body->stores);
    b->has_memory &= body->stores != NULL;
    if (!b->has_memory)
        return rows_check(b);
    if (loop->store_count > 0)
        memcpy(body->stores, loop->stores, loop->store_count * sizeof *body->stores);
    bool is_while = loop->condition != 0;
    rows_copy(b, loop->enters, loop->enter_count, NULL);
    if (!is_while)
        rows_add_position(b, loop->position, false, loop->is_reverse ? loop->length - 1 : 0);
    uint32_t enter = rows_jump(b);
    body->head_segment = rows_begin(b, NO_ROW);
    body->head = b->tables->row_count;
    rows_set_target(b, enter, 0, body->head, body->head_segment);
    /* Forward positions go on while `length - position` is positive, others while `position + 1`
     * is. */
    body->decision = is_while ? rows_decide(b, loop->condition, 1, 2, 1, 0)
                     : loop->is_reverse
                         ? rows_decide(b, loop->position, sizeof(int64_t), 2, 1, 1)
                         : rows_decide(b, loop->position, sizeof(int64_t), 2, -1, loop->length);
    uint32_t segment = rows_begin(b, body->decision);
    rows_set_target(b, body->decision, 1, b->tables->row_count, segment);
    rows_copy(b, loop->loads, loop->load_count, loop);
    *inner = body;
    return rows_check(b);
}

static void rows_begin_branch(rows_builder *b, const rows_body *body)
{
    uint32_t segment = rows_begin(b, body->decision);
    rows_set_target(b, body->decision, body->branch, b->tables->row_count, segment);
}

static nova_status rows_add_switch(nova_flow_builder *builder, void *outer, uint64_t selector,
                                   uint64_t size, uint32_t count, void **branches)
{
    rows_builder *b = (rows_builder *)builder;
    (void)outer;
    uint32_t decision = rows_decide(b, selector, (uint32_t)size, count, 1, 0);
    for (uint32_t i = 0; b->has_memory && i < count; i++) {
        rows_body *body = branches[i] = rows_make_body(b);
        if (body == NULL)
            break;
        body->decision = decision;
        body->branch = i;
        body->branch_count = count;
        body->head = NO_ROW; /* of the last branch, when it ends: the jumps of all are known */
    }
    if (b->has_memory)
        rows_begin_branch(b, branches[0]);
    return rows_check(b);
}

static void rows_end_loop(rows_builder *b, const rows_body *body)
{
    const nova_flow_loop *loop = &body->loop;
    rows_copy(b, body->stores, loop->store_count, loop);
    if (loop->condition == 0)
        rows_add_position(b, loop->position, true, loop->is_reverse ? -1 : 1);
    rows_set_target(b, rows_jump(b), 0, body->head, body->head_segment);
    uint32_t segment = rows_begin(b, body->decision);
    rows_set_target(b, body->decision, 0, b->tables->row_count, segment);
}

/* Ends a branch; the jumps of all branches lead to the row after the last one. Branches were made
 * in order, so those of the switch are the ones before this in the list. */
static void rows_end_branch(rows_builder *b, rows_body *body)
{
    body->head = rows_jump(b);
    if (!b->has_memory || body->branch + 1 < body->branch_count) {
        for (rows_body *next = b->bodies; b->has_memory && next != NULL; next = next->next)
            if (next->decision == body->decision && next->branch == body->branch + 1 &&
                !next->is_loop)
                rows_begin_branch(b, next);
        return;
    }
    uint32_t segment = rows_begin(b, NO_ROW);
    for (const rows_body *other = b->bodies; other != NULL; other = other->next)
        if (other->decision == body->decision && !other->is_loop)
            rows_set_target(b, other->head, 0, b->tables->row_count, segment);
}

static nova_status rows_end_body(nova_flow_builder *builder, void *ended)
{
    rows_builder *b = (rows_builder *)builder;
    rows_body *body = ended;
    if (body->is_loop)
        rows_end_loop(b, body);
    else
        rows_end_branch(b, body);
    return rows_check(b);
}

/* --- tables ----------------------------------------------------------------------------------- */

/* The ranges of all rows and repetitions, merged: what the kernel may access. */
static void rows_merge_ranges(const rows_builder *b)
{
    persistent_tables *t = b->tables;
    for (uint32_t i = 0; i < t->range_count; i++)
        t->ranges[i].size += (b->r->program->repeats - 1) * rows_stride(b, t->ranges[i].address);
    t->range_count = nova_ranges_merge(t->ranges, t->range_count);
}

nova_status persistent_make_rows(nova_device_run *r, persistent_tables *tables)
{
    rows_builder b = {.calls = {.needs_ranges = true,
                                .add_launch = rows_add_launch,
                                .add_copies = rows_add_copies,
                                .add_loop = rows_add_loop,
                                .add_switch = rows_add_switch,
                                .end_body = rows_end_body},
                      .r = r,
                      .tables = tables,
                      .launch = r->program->launches[0],
                      .has_memory = true};
    (void)rows_begin(&b, NO_ROW);
    nova_status status = nova_control_add_program(r, &b.calls, NULL);
    /* A last jump out of the table: the next repetition begins after all rows of this one, and a
     * segment without rows is not the target of a decision. */
    uint32_t last = rows_jump(&b);
    rows_set_target(&b, last, 0, tables->row_count, rows_begin(&b, NO_ROW));
    if (status == NOVA_OK)
        status = rows_check(&b);
    if (status == NOVA_OK) {
        rows_merge_ranges(&b);
        tables->counter_count = tables->row_count;
        persistent_lay_out(tables, r->program->persistent->blocks);
    } else {
        persistent_free_tables(tables);
    }
    free(b.accesses);
    while (b.bodies != NULL) {
        rows_body *body = b.bodies;
        b.bodies = body->next;
        free(body->stores);
        free(body);
    }
    return status;
}
