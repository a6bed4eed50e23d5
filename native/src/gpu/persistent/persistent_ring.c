/* The ring of a program whose repetitions get their data while its persistent kernel runs: slots in
 * pinned memory, one for each repetition in turn. nova/codegen/gpu/persistent/ring.py has the part
 * of the device.
 *
 * The host writes the inputs of a slot, then the number of filled slots, with a release; its sign
 * bit says that no more follow. The kernel moves small values between pinned memory and the arrays
 * of the run. The host copies larger inputs to the device itself, on a stream of its own, and the
 * number after them on the same stream: then it is a word on the device. Larger results are copied
 * from the device when the kernel has written that they are complete. */
#include <stdlib.h>
#include <string.h>

#include "gpu/persistent/persistent.h"

enum {
    MOST_MOVED = 8 << 10, /* bytes of a value that the kernel moves */
    CONTROL_BYTES = 256,  /* both words, on lines of their own */
    DONE_AT = 128,
};
#define CLOSED UINT32_C(0x80000000)

typedef struct {
    uint64_t at, size; /* in pinned memory: the parts of all slots; bytes of one part */
    uint64_t address;  /* of the array of the run */
    bool is_moved;     /* by the kernel */
} ring_value;

struct nova_persistent_ring {
    nova_device *device;
    uint32_t slot_count, input_count, value_count;
    uint32_t pushed;         /* slots filled so far */
    bool is_running;         /* from the launch to nova_device_ring_release */
    char *pinned;            /* control words, a word for each slot, then the values */
    nova_device_block *word; /* the number of filled slots on the device; NULL: in pinned memory */
    ring_value values[];     /* inputs, then results */
};

static uint32_t *ring_filled(const nova_persistent_ring *ring)
{
    return (void *)ring->pinned;
}

static uint32_t *ring_done(const nova_persistent_ring *ring)
{
    return (void *)(ring->pinned + DONE_AT);
}

/* The words that are copied to the device, one for each slot and one for the end. */
static uint32_t *ring_words(const nova_persistent_ring *ring)
{
    return (void *)(ring->pinned + CONTROL_BYTES);
}

static uint64_t ring_align(uint64_t size)
{
    return (size + NOVA_DEVICE_ALIGNMENT - 1) & ~(uint64_t)(NOVA_DEVICE_ALIGNMENT - 1);
}

/* --- creating --------------------------------------------------------------------------------- */

/* Lays out the values; the bytes of pinned memory. */
static uint64_t ring_lay_out(nova_persistent_ring *ring, const nova_device_program *program)
{
    uint64_t at = ring_align(CONTROL_BYTES + (ring->slot_count + UINT64_C(1)) * sizeof(uint32_t));
    for (size_t i = 0; i < program->stacked_count + program->output_count; i++) {
        bool is_input = i < program->stacked_count;
        size_t output = i - program->stacked_count;
        if (!is_input && program->alias[output] >= 0)
            continue;
        size_t slot = is_input ? i : program->argument_count + output;
        uint64_t size = (uint64_t)program->nbytes[slot] / ring->slot_count;
        ring->values[ring->value_count++] =
            (ring_value){.at = at, .size = size, .is_moved = size <= MOST_MOVED};
        ring->input_count += is_input;
        at = ring_align(at + size * ring->slot_count);
    }
    return at;
}

nova_status persistent_ring_create(nova_device_program *program, nova_persistent_ring **created,
                                   nova_error *error)
{
    uint64_t slots = program->repeats;
    if (slots < 2 || (slots & (slots - 1)) != 0 || slots > UINT64_C(1) << 16)
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "",
                         "the slots of a ring are a power of two from 2 to 65536, not %llu",
                         (unsigned long long)slots);
    size_t most = program->stacked_count + program->output_count;
    nova_persistent_ring *ring = calloc(1, sizeof *ring + most * sizeof *ring->values);
    *created = ring;
    if (ring == NULL)
        return nova_fail(error, NOVA_OUT_OF_MEMORY, "", "no memory for the program");
    ring->device = program->device;
    ring->slot_count = (uint32_t)slots;
    uint64_t size = ring_lay_out(ring, program);
    void *memory = NULL;
    nova_status status = nova_device_pin(ring->device, size, &memory, error);
    ring->pinned = memory;
    if (status == NOVA_OK)
        memset(ring->pinned, 0, size);
    bool copies = false;
    for (uint32_t i = 0; i < ring->input_count; i++)
        copies |= !ring->values[i].is_moved;
    if (status == NOVA_OK && copies)
        status = nova_device_take_inside(ring->device, sizeof(uint32_t), ring->device->stream,
                                         &ring->word, error);
    return status;
}

void persistent_ring_free(nova_persistent_ring *ring)
{
    if (ring == NULL)
        return;
    nova_driver *driver = ring->device->driver;
    if (ring->pinned != NULL)
        driver->pinned_free(driver, ring->pinned);
    nova_device_give(ring->device, ring->word);
    free(ring);
}

/* --- the launch ------------------------------------------------------------------------------- */

uint64_t persistent_ring_size(const nova_persistent_ring *ring)
{
    return sizeof(persistent_ring_head) + ring->value_count * sizeof(persistent_move);
}

/* The addresses of the values in a run. */
static void ring_find_addresses(nova_persistent_ring *ring, const nova_device_run *r)
{
    const nova_device_program *program = r->program;
    uint32_t value = 0;
    for (size_t i = 0; i < program->stacked_count; i++)
        ring->values[value++].address = r->execution->slots[i];
    for (size_t i = 0; i < program->output_count; i++)
        if (program->alias[i] < 0)
            ring->values[value++].address = r->execution->slots[program->argument_count + i];
}

void persistent_ring_fill(nova_persistent_ring *ring, const nova_device_run *r, void *image)
{
    ring_find_addresses(ring, r);
    persistent_ring_head *head = image;
    persistent_move *moves = (void *)(head + 1);
    uintptr_t pinned = (uintptr_t)ring->pinned;
    *head = (persistent_ring_head){.mask = ring->slot_count - 1,
                                   .filled = ring->word != NULL ? ring->word->address
                                                                : (uintptr_t)ring_filled(ring),
                                   .done = (uintptr_t)ring_done(ring)};
    uint32_t count = 0;
    for (uint32_t i = 0; i < ring->value_count; i++) {
        const ring_value *value = &ring->values[i];
        bool is_input = i < ring->input_count;
        if (!value->is_moved)
            continue;
        moves[count++] = (persistent_move){.from = is_input ? pinned + value->at : value->address,
                                           .to = is_input ? value->address : pinned + value->at,
                                           .size = value->size};
        head->input_count += is_input;
        head->result_count += !is_input;
    }
}

nova_status persistent_ring_start(nova_persistent_ring *ring, nova_device_run *r)
{
    if (__atomic_load_n(&ring->is_running, __ATOMIC_ACQUIRE))
        return nova_fail(r->error, NOVA_INVALID_ARGUMENT, "",
                         "a program with a ring runs once at a time");
    ring->pushed = 0;
    ring_find_addresses(ring, r);
    memset(ring->pinned, 0, CONTROL_BYTES + (ring->slot_count + 1) * sizeof(uint32_t));
    int result = 0;
    if (ring->word != NULL) { /* the stream of copies must not be ahead of it */
        ring->word->stream = r->stream;
        result = r->device->driver->copy_in(r->device->driver, ring->word->address,
                                            ring_filled(ring), sizeof(uint32_t), r->stream);
        if (result == 0)
            result = r->device->driver->stream_synchronize(r->device->driver, r->stream);
    }
    if (result == 0) {
        atomic_fetch_add_explicit(&r->device->resident_count, 1, memory_order_acq_rel);
        __atomic_store_n(&ring->is_running, true, __ATOMIC_RELEASE);
    }
    return nova_run_check(r, result, "the ring cannot be prepared");
}

uint32_t persistent_ring_ranges(const nova_persistent_ring *ring, nova_device_range *ranges)
{
    uint32_t count = 0;
    const ring_value *last = ring->value_count > 0 ? &ring->values[ring->value_count - 1] : NULL;
    ranges[count++] = (nova_device_range){
        .address = (uintptr_t)ring->pinned,
        .size = last != NULL ? last->at + last->size * ring->slot_count : CONTROL_BYTES};
    if (ring->word != NULL)
        ranges[count++] =
            (nova_device_range){.address = ring->word->address, .size = sizeof(uint32_t)};
    for (uint32_t i = 0; i < ring->input_count; i++) /* the kernel writes them */
        ranges[count++] = (nova_device_range){.address = ring->values[i].address,
                                              .size = ring->values[i].size * ring->slot_count};
    return count;
}

uint32_t persistent_ring_range_count(const nova_persistent_ring *ring)
{
    return ring == NULL ? 0 : ring->input_count + 2;
}

/* --- the host --------------------------------------------------------------------------------- */

static nova_persistent_ring *ring_of(const nova_device_program *program)
{
    return program->persistent != NULL ? program->persistent->ring : NULL;
}

/* Tells the kernel: `number` says which word of pinned memory is copied. */
static int ring_tell(const nova_persistent_ring *ring, uint32_t number, uint32_t word)
{
    nova_driver *driver = ring->device->driver;
    if (ring->word == NULL) {
        __atomic_store_n(ring_filled(ring), word, __ATOMIC_RELEASE);
        return 0;
    }
    uint32_t *from = ring_words(ring) + number;
    *from = word;
    return driver->write_concurrently(driver, ring->word->address, from, sizeof word,
                                      ring->device->in);
}

bool nova_device_ring_is_running(const nova_device_program *program)
{
    const nova_persistent_ring *ring = ring_of(program);
    return ring != NULL && __atomic_load_n(&ring->is_running, __ATOMIC_ACQUIRE);
}

uint32_t nova_device_ring_slots(const nova_device_program *program)
{
    const nova_persistent_ring *ring = ring_of(program);
    return ring == NULL ? 0 : ring->slot_count;
}

nova_status nova_device_ring_push(nova_device_program *program, const void *const *inputs,
                                  nova_error *error)
{
    nova_persistent_ring *ring = ring_of(program);
    if (!nova_device_ring_is_running(program))
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "", "the ring does not run");
    nova_status status = nova_device_enter(ring->device, error);
    if (status != NOVA_OK)
        return status;
    nova_driver *driver = ring->device->driver;
    uint32_t slot = ring->pushed % ring->slot_count;
    int result = 0;
    for (uint32_t i = 0; result == 0 && i < ring->input_count; i++) {
        const ring_value *value = &ring->values[i];
        char *part = ring->pinned + value->at + slot * value->size;
        memcpy(part, inputs[i], value->size);
        if (!value->is_moved && value->size > 0)
            result = driver->write_concurrently(driver, value->address + slot * value->size, part,
                                                value->size, ring->device->in);
    }
    if (result == 0)
        result = ring_tell(ring, slot, ring->pushed + 1);
    if (result == 0)
        ring->pushed++;
    status = nova_device_check(ring->device, result, "a copy to the ring", error);
    nova_device_leave(ring->device);
    return status;
}

uint32_t nova_device_ring_done(const nova_device_program *program)
{
    const nova_persistent_ring *ring = ring_of(program);
    return ring == NULL ? 0 : __atomic_load_n(ring_done(ring), __ATOMIC_ACQUIRE);
}

nova_status nova_device_ring_read(nova_device_program *program, uint32_t number,
                                  void *const *results, nova_error *error)
{
    const nova_persistent_ring *ring = ring_of(program);
    if (nova_device_ring_done(program) <= number)
        return nova_fail(error, NOVA_INVALID_ARGUMENT, "", "repetition %u is not complete", number);
    nova_status status = nova_device_enter(ring->device, error);
    if (status != NOVA_OK)
        return status;
    nova_driver *driver = ring->device->driver;
    uint32_t slot = number % ring->slot_count;
    int result = 0;
    for (uint32_t i = ring->input_count; result == 0 && i < ring->value_count; i++) {
        const ring_value *value = &ring->values[i];
        char *part = ring->pinned + value->at + slot * value->size;
        if (!value->is_moved && value->size > 0)
            result = driver->read_concurrently(driver, part, value->address + slot * value->size,
                                               value->size, ring->device->out);
        if (result == 0)
            memcpy(results[i - ring->input_count], part, value->size);
    }
    status = nova_device_check(ring->device, result, "a copy from the ring", error);
    nova_device_leave(ring->device);
    return status;
}

nova_status nova_device_ring_end(nova_device_program *program, nova_error *error)
{
    const nova_persistent_ring *ring = ring_of(program);
    if (!nova_device_ring_is_running(program))
        return NOVA_OK;
    nova_status status = nova_device_enter(ring->device, error);
    if (status != NOVA_OK)
        return status;
    int result = ring_tell(ring, ring->slot_count, ring->pushed | CLOSED);
    status = nova_device_check(ring->device, result, "a copy to the ring", error);
    nova_device_leave(ring->device);
    return status;
}

void nova_device_ring_release(nova_device_program *program)
{
    nova_persistent_ring *ring = ring_of(program);
    if (ring != NULL && __atomic_exchange_n(&ring->is_running, false, __ATOMIC_ACQ_REL))
        atomic_fetch_sub_explicit(&ring->device->resident_count, 1, memory_order_acq_rel);
}
