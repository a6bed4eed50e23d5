/* Loads, stores and atomics: every access is checked for bounds and alignment, those of shared memory for
 * races between barriers and for bytes that nobody has written. */
#include "numbers.h"
#include "state.h"

static uint32_t bytes_of(sim_type type)
{
    switch (type) {
    case T_B8: case T_U8: case T_S8: return 1;
    case T_B16: case T_U16: case T_S16: case T_F16: case T_BF16: return 2;
    case T_B64: case T_U64: case T_S64: case T_F64: return 8;
    default: return 4;
    }
}

uint64_t sim_address(const sim_block *block, const sim_warp *warp, const sim_operand *o, int lane)
{
    uint64_t base = 0;
    if (o->kind != OPERAND_NONE)
        base = o->width == 64 ? wide(block, warp, o)[lane] : narrow(block, warp, o)[lane];
    return base + (uint64_t)o->offset;
}

static int bad_access(sim_block *block, sim_fault_kind kind, const sim_instruction *at, uint32_t thread, sim_space space,
                      uint64_t address, uint32_t bytes, int writes)
{
    block->fault->address = address;
    block->fault->bytes = bytes;
    block->fault->space = (uint8_t)space;
    block->fault->writes = (uint8_t)writes;
    return sim_report(block, kind, at, thread);
}

static int in_global(sim_block *block, uint64_t address, uint32_t bytes)
{
    const sim_launch *launch = block->launch;
    if (block->last_range < launch->range_count) {
        const sim_range *range = launch->ranges + block->last_range;
        if (address - range->start < range->size && range->size - (address - range->start) >= bytes)
            return 1;
    }
    uint32_t low = 0, high = launch->range_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (launch->ranges[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return 0;
    const sim_range *range = launch->ranges + low - 1;
    block->last_range = low - 1;
    return address - range->start < range->size && range->size - (address - range->start) >= bytes;
}

static void name_thread(const sim_block *block, uint32_t thread, uint32_t *out)
{
    const uint32_t *size = block->launch->block;
    out[0] = thread % size[0];
    out[1] = thread / size[0] % size[1];
    out[2] = thread / size[0] / size[1];
}

/* Whether an access of `thread` is ordered behind one of `other` (thread + 1) in the given epochs. */
static int is_ordered(const sim_block *block, const sim_warp *warp, uint32_t thread, uint32_t other, uint32_t epoch,
                      uint32_t warp_epoch)
{
    if (other == 0 || epoch != block->epoch || other == thread + 1)
        return 1;
    return other != MANY && (other - 1) / LANES == warp->number && warp_epoch != warp->epoch;
}

static int check_shared(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t thread, uint64_t address,
                        uint32_t bytes, int writes)
{
    for (uint32_t i = 0; i < bytes; i++) {
        sim_shadow *byte = block->shadow + address + i;
        sim_fault_kind kind = FAULT_NONE;
        uint32_t other = 0;
        if (byte->pending) {
            kind = FAULT_PENDING_COPY, other = byte->pending;
        } else if (!writes && byte->writer == 0) {
            kind = FAULT_UNINITIALIZED;
        } else if (block->launch->check_races) {
            if (!is_ordered(block, warp, thread, byte->writer, byte->write_epoch, byte->write_warp_epoch))
                kind = FAULT_RACE, other = byte->writer;
            else if (writes && !is_ordered(block, warp, thread, byte->reader, byte->read_epoch, byte->read_warp_epoch))
                kind = FAULT_RACE, other = byte->reader;
        }
        if (kind != FAULT_NONE) {
            if (other != 0 && other != MANY)
                name_thread(block, other - 1, block->fault->other);
            return bad_access(block, kind, at, thread, SPACE_SHARED, address, bytes, writes);
        }
        if (writes) {
            byte->writer = (uint16_t)(thread + 1);
            byte->write_epoch = block->epoch;
            byte->write_warp_epoch = warp->epoch;
        } else {
            int again = byte->read_epoch == block->epoch && byte->reader != 0 && byte->reader != thread + 1;
            /* Readers of one warp count as its first: whoever is in another warp races with all of them. */
            int together = again && byte->reader != MANY && (uint32_t)(byte->reader - 1) / LANES == warp->number;
            byte->reader = again && !together ? MANY : (uint16_t)(thread + 1);
            byte->read_epoch = block->epoch;
            byte->read_warp_epoch = warp->epoch;
        }
    }
    return 0;
}

uint8_t *sim_reach(sim_block *block, sim_warp *warp, const sim_instruction *at, int lane, sim_space space,
                   uint64_t address, uint32_t bytes, int writes)
{
    uint32_t thread = warp->number * LANES + (uint32_t)lane;
    if (space == SPACE_GENERIC) {
        space = address >> 56 == 1 ? SPACE_SHARED : address >> 56 == 2 ? SPACE_LOCAL : SPACE_GLOBAL;
        address &= space == SPACE_GLOBAL ? ~(uint64_t)0 : (SHARED_WINDOW - 1);
    }
    if (address % bytes != 0) {
        bad_access(block, FAULT_ALIGNMENT, at, thread, space, address, bytes, writes);
        return NULL;
    }
    uint64_t room = space == SPACE_SHARED  ? block->shared_bytes
                    : space == SPACE_LOCAL ? block->kernel->local_bytes
                    : space == SPACE_PARAM ? block->launch->param_bytes
                                           : 0;
    int inside = space == SPACE_GLOBAL ? in_global(block, address, bytes) : address < room && room - address >= bytes;
    if (!inside || (space == SPACE_PARAM && writes)) {
        bad_access(block, FAULT_BOUNDS, at, thread, space, address, bytes, writes);
        return NULL;
    }
    switch (space) {
    case SPACE_SHARED:
        return check_shared(block, warp, at, thread, address, bytes, writes) ? NULL : block->shared + address;
    case SPACE_LOCAL: return block->local + (size_t)thread * block->kernel->local_bytes + address;
    case SPACE_PARAM: return (uint8_t *)(uintptr_t)block->launch->params + address;
    default: return (uint8_t *)(uintptr_t)address;
    }
}

static uint64_t read_element(const uint8_t *from, sim_type type)
{
    uint64_t value = 0;
    memcpy(&value, from, bytes_of(type));
    switch (type) {
    case T_S8: return (uint64_t)(int64_t)(int8_t)value;
    case T_S16: return (uint64_t)(int64_t)(int16_t)value;
    case T_S32: return (uint64_t)(int64_t)(int32_t)value;
    default: return value;
    }
}

int sim_load(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    const sim_operand *place = operand(block, at, at->count);
    uint32_t size = bytes_of(at->type);
    for (int lane = 0; lane < LANES; lane++) {
        if (!(mask >> lane & 1))
            continue;
        uint64_t address = sim_address(block, warp, place, lane);
        const uint8_t *from = sim_reach(block, warp, at, lane, at->space, address, size * at->count, 0);
        if (from == NULL)
            return 1;
        for (uint32_t i = 0; i < at->count; i++)
            put_lane(warp, operand(block, at, i), lane, read_element(from + i * size, at->type));
    }
    return 0;
}

int sim_store(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    const sim_operand *place = operand(block, at, 0);
    uint32_t size = bytes_of(at->type);
    for (int lane = 0; lane < LANES; lane++) {
        if (!(mask >> lane & 1))
            continue;
        uint64_t address = sim_address(block, warp, place, lane);
        uint8_t *to = sim_reach(block, warp, at, lane, at->space, address, size * at->count, 1);
        if (to == NULL)
            return 1;
        for (uint32_t i = 0; i < at->count; i++) {
            uint64_t value = lane_value(block, warp, operand(block, at, 1 + i), lane);
            memcpy(to + i * size, &value, size);
        }
    }
    return 0;
}

/* --- atomics ------------------------------------------------------------------------------------- */

enum { A_ADD, A_MIN, A_MAX, A_AND, A_OR, A_XOR, A_EXCH, A_CAS, A_INC, A_DEC };

static uint32_t half_pair(uint32_t old, uint32_t by, uint32_t (*bits)(double), float (*value)(uint32_t))
{
    uint32_t low = bits((double)value(old & 0xffff) + value(by & 0xffff));
    return low | bits((double)value(old >> 16) + value(by >> 16)) << 16;
}

static uint32_t f16_pack(double v) { return f16_bits(v); }
static uint32_t bf16_pack(double v) { return bf16_bits(v); }
static float f16_read(uint32_t b) { return f16_value(b); }
static float bf16_read(uint32_t b) { return bf16_value(b); }

static uint64_t combine(uint32_t operation, sim_type type, uint64_t old, uint64_t by, uint64_t with)
{
    switch (operation) {
    case A_EXCH: return by;
    case A_CAS: return old == by ? with : old;
    case A_AND: return old & by;
    case A_OR: return old | by;
    case A_XOR: return old ^ by;
    case A_INC: return old >= by ? 0 : old + 1;
    case A_DEC: return old == 0 || old > by ? by : old - 1;
    case A_ADD:
        switch (type) {
        case T_F32: return bits_of(f32_of((uint32_t)old) + f32_of((uint32_t)by));
        case T_F64: return bits_of_f64(f64_of(old) + f64_of(by));
        case T_F16: return f16_bits((double)f16_value((uint32_t)old) + f16_value((uint32_t)by));
        case T_BF16: return bf16_bits((double)bf16_value((uint32_t)old) + bf16_value((uint32_t)by));
        case T_F16X2: return half_pair((uint32_t)old, (uint32_t)by, f16_pack, f16_read);
        case T_BF16X2: return half_pair((uint32_t)old, (uint32_t)by, bf16_pack, bf16_read);
        default: return old + by;
        }
    default: {
        int less;
        if (type == T_S32)
            less = (int32_t)by < (int32_t)old;
        else if (type == T_S64)
            less = (int64_t)by < (int64_t)old;
        else
            less = by < old;
        return (operation == A_MIN) == less ? by : old;
    }
    }
}

/* Lanes one after the other, lowest first: an order that the device may choose too. Results, if any, come first. */
int sim_atomic(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    uint32_t size = bytes_of(at->type), base = at->results;
    for (int lane = 0; lane < LANES; lane++) {
        if (!(mask >> lane & 1))
            continue;
        uint64_t address = sim_address(block, warp, operand(block, at, base), lane);
        sim_space space = at->space;
        if (space == SPACE_GENERIC && address >> 56 == 1)
            space = SPACE_SHARED, address &= SHARED_WINDOW - 1;
        uint8_t *place;
        if (space == SPACE_SHARED && address % size == 0 && address + size <= block->shared_bytes) {
            /* Atomics race with nothing atomic; the first access must still find something written. */
            sim_shadow *byte = block->shadow + address;
            if (byte->writer == 0 || byte->pending)
                place = sim_reach(block, warp, at, lane, space, address, size, 0);
            else
                place = block->shared + address;
        } else {
            place = sim_reach(block, warp, at, lane, space, address, size, 1);
        }
        if (place == NULL)
            return 1;
        uint64_t old = 0;
        memcpy(&old, place, size);
        uint64_t by = lane_value(block, warp, operand(block, at, base + 1), lane);
        uint64_t with = at->operands > base + 2 ? lane_value(block, warp, operand(block, at, base + 2), lane) : 0;
        uint64_t kept = size == 8 ? ~(uint64_t)0 : ((uint64_t)1 << 8 * size) - 1;
        uint64_t value = combine(at->detail, at->type, old, by & kept, with & kept);
        memcpy(place, &value, size);
        if (at->results)
            put_lane(warp, operand(block, at, 0), lane, old);
    }
    return 0;
}
