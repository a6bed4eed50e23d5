/* Loads and stores: every access is checked for bounds, alignment, bytes that nobody has written, and races. */
#include "state.h"

uint64_t sim_address(const sim_block *block, const sim_warp *warp, const sim_operand *o, int lane)
{
    uint64_t base = 0;
    if (o->kind != OPERAND_NONE)
        base = o->width == 64 ? wide(block, warp, o)[lane] : narrow(block, warp, o)[lane];
    return base + (uint64_t)o->offset;
}

int sim_bad_access(sim_block *block, sim_fault_kind kind, const sim_instruction *at, uint32_t thread, sim_space space,
                   uint64_t address, uint32_t bytes, sim_access access)
{
    block->fault->address = address;
    block->fault->bytes = bytes;
    block->fault->space = (uint8_t)space;
    block->fault->writes = access != ACCESS_READ;
    return sim_report(block, kind, at, thread);
}

static inline int is_inside(const sim_range *range, uint64_t address, uint32_t bytes)
{
    return address - range->start < range->size && range->size - (address - range->start) >= bytes;
}

static const sim_range *find_range(sim_block *block, uint64_t address, uint32_t bytes)
{
    const sim_launch *launch = block->launch;
    if (block->last_range < launch->range_count && is_inside(launch->ranges + block->last_range, address, bytes))
        return launch->ranges + block->last_range;
    uint32_t low = 0, high = launch->range_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (launch->ranges[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0 || !is_inside(launch->ranges + low - 1, address, bytes))
        return NULL;
    block->last_range = low - 1;
    return launch->ranges + low - 1;
}

/* Bytes that are read must have been written, and none may be the goal of a copy that is on its way. */
static sim_fault_kind check_state(uint8_t *state, uint32_t bytes, sim_access access)
{
    if (access == ACCESS_WRITE) {
        for (uint32_t i = 0; i < bytes; i++)
            if (state[i] & STATE_PENDING)
                return FAULT_PENDING_COPY;
        memset(state, STATE_WRITTEN, bytes);
        return FAULT_NONE;
    }
    for (uint32_t i = 0; i < bytes; i++)
        if (state[i] != STATE_WRITTEN)
            return state[i] & STATE_PENDING ? FAULT_PENDING_COPY : FAULT_UNINITIALIZED;
    return FAULT_NONE;
}

/* The thread whose copy is on its way to a byte of shared memory. */
static void name_copier(sim_block *block, uint64_t address, uint32_t bytes)
{
    for (uint32_t w = 0; w < block->warp_count; w++)
        for (uint32_t i = 0; i < block->warps[w].copy_count; i++) {
            const sim_copy *copy = block->warps[w].copies + i;
            if (copy->at >= address + bytes || address >= copy->at + copy->bytes)
                continue;
            block->fault->has_other = block->fault->other_writes = 1;
            memcpy(block->fault->other_block, block->index, sizeof block->index);
            sim_name_thread(block, w * LANES + copy->lane, block->fault->other);
            return;
        }
}

static uint8_t *reach_shared(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t thread,
                             uint64_t address, uint32_t bytes, sim_access access, const uint8_t *value)
{
    sim_fault_kind kind = check_state(block->shared_state + address, bytes, access);
    if (kind != FAULT_NONE) {
        if (kind == FAULT_PENDING_COPY)
            name_copier(block, address, bytes);
        sim_bad_access(block, kind, at, thread, SPACE_SHARED, address, bytes, access);
        return NULL;
    }
    uint8_t *place = block->shared + address;
    if (block->launch->check_races &&
        sim_check_order(block, warp, at, thread, SPACE_SHARED, block->shared_shadow + address / 4, address, bytes, access,
                        place, value))
        return NULL;
    return place;
}

static uint8_t *reach_global(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t thread,
                             uint64_t address, uint32_t bytes, sim_access access, const uint8_t *value)
{
    const sim_range *range = find_range(block, address, bytes);
    sim_fault_kind kind = FAULT_NONE;
    if (range == NULL)
        kind = FAULT_BOUNDS;
    else if (range->read_only && access != ACCESS_READ)
        kind = FAULT_READ_ONLY;
    else if (range->state != NULL)
        kind = check_state(range->state + (address - range->start), bytes, access);
    if (kind != FAULT_NONE) {
        sim_bad_access(block, kind, at, thread, SPACE_GLOBAL, address, bytes, access);
        return NULL;
    }
    uint8_t *place = (uint8_t *)(uintptr_t)address;
    if (block->global_shadow != NULL && !range->read_only) {
        uint64_t word = address / 4 - range->start / 4 + block->range_words[range - block->launch->ranges];
        if (sim_check_order(block, warp, at, thread, SPACE_GLOBAL, block->global_shadow + word, address, bytes, access,
                            place, value))
            return NULL;
    }
    return place;
}

static inline sim_space space_of(uint64_t *address)
{
    static const uint8_t windows[4] = {SPACE_GLOBAL, SPACE_SHARED, SPACE_LOCAL, SPACE_PARAM};
    uint64_t window = *address >> WINDOW_SHIFT;
    if (window == 0 || window > 3)
        return SPACE_GLOBAL;
    *address &= WINDOW(1) - 1;
    return windows[window];
}

uint8_t *sim_reach(sim_block *block, sim_warp *warp, const sim_instruction *at, int lane, sim_space space,
                   uint64_t address, uint32_t bytes, sim_access access, const uint8_t *value)
{
    uint32_t thread = thread_of(warp, lane);
    if (space == SPACE_GENERIC)
        space = space_of(&address);
    if ((address & (bytes - 1)) != 0) {
        sim_bad_access(block, FAULT_ALIGNMENT, at, thread, space, address, bytes, access);
        return NULL;
    }
    if (space == SPACE_GLOBAL)
        return reach_global(block, warp, at, thread, address, bytes, access, value);
    uint64_t room = space == SPACE_SHARED  ? block->shared_bytes
                    : space == SPACE_LOCAL ? block->kernel->local_bytes
                                           : block->launch->param_bytes;
    if (address >= room || room - address < bytes) {
        sim_bad_access(block, FAULT_BOUNDS, at, thread, space, address, bytes, access);
        return NULL;
    }
    if (space == SPACE_SHARED)
        return reach_shared(block, warp, at, thread, address, bytes, access, value);
    if (space == SPACE_LOCAL)
        return block->local + (size_t)thread * block->kernel->local_bytes + address;
    if (access != ACCESS_READ) {
        sim_bad_access(block, FAULT_READ_ONLY, at, thread, space, address, bytes, access);
        return NULL;
    }
    return (uint8_t *)(uintptr_t)block->launch->params + address;
}

static inline uint64_t read_element(const uint8_t *from, sim_type type, uint32_t size)
{
    uint64_t value = 0;
    memcpy(&value, from, size);
    switch (type) {
    case T_S8: return (uint64_t)(int64_t)(int8_t)value;
    case T_S16: return (uint64_t)(int64_t)(int16_t)value;
    case T_S32: return (uint64_t)(int64_t)(int32_t)value;
    default: return value;
    }
}

/* Element `number` of what each lane reads, into its register. */
static void take_element(const sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask,
                         uint32_t number, const uint8_t *const *from)
{
    const sim_operand *to = operand(block, at, number);
    uint32_t size = bytes_of(at->type), skipped = number * size;
    if (to->kind == OPERAND_REGISTER && to->width == 32 && size == 4) { /* most of them */
        uint32_t *row = warp->registers + (size_t)to->at * LANES;
        for (int lane = 0; lane < LANES; lane++)
            if (mask >> lane & 1)
                memcpy(row + lane, from[lane] + skipped, 4);
        return;
    }
    for (int lane = 0; lane < LANES; lane++)
        if (mask >> lane & 1)
            put_lane(warp, to, lane, read_element(from[lane] + skipped, at->type, size));
}

int sim_load(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    const sim_operand *place = operand(block, at, at->count);
    uint32_t size = bytes_of(at->type) * at->count;
    const uint8_t *from[LANES];
    for (int lane = 0; lane < LANES; lane++) {
        if (!(mask >> lane & 1))
            continue;
        uint64_t address = sim_address(block, warp, place, lane);
        from[lane] = sim_reach(block, warp, at, lane, at->space, address, size, ACCESS_READ, NULL);
        if (from[lane] == NULL)
            return 1;
    }
    for (uint32_t i = 0; i < at->count; i++)
        take_element(block, warp, at, mask, i, from);
    sim_fence(block, at->flags & ACCESS_ACQUIRE);
    return 0;
}

int sim_store(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    const sim_operand *place = operand(block, at, 0);
    uint32_t size = bytes_of(at->type), bytes = size * at->count;
    uint8_t values[32];
    sim_fence(block, at->flags & ACCESS_RELEASE);
    for (int lane = 0; lane < LANES; lane++) {
        if (!(mask >> lane & 1))
            continue;
        for (uint32_t i = 0; i < at->count; i++) {
            uint64_t value = lane_value(block, warp, operand(block, at, 1 + i), lane);
            memcpy(values + i * size, &value, size);
        }
        uint64_t address = sim_address(block, warp, place, lane);
        uint8_t *to = sim_reach(block, warp, at, lane, at->space, address, bytes, ACCESS_WRITE, values);
        if (to == NULL)
            return 1;
        memcpy(to, values, bytes);
    }
    return 0;
}
