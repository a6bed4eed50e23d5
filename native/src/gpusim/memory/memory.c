/* Loads and stores: every access is checked for bounds, alignment, uninitialized bytes, and
 * races. */
#include "gpusim/memory/races.h"

uint64_t sim_address(const sim_block *block, const sim_warp *warp, const sim_operand *o, int lane)
{
    uint64_t base = 0;
    if (o->kind != OPERAND_NONE)
        base = o->width == 64 ? wide(block, warp, o)[lane] : narrow(block, warp, o)[lane];
    return base + (uint64_t)o->offset;
}

int sim_bad_access(sim_block *block, sim_fault_kind fault_type, const sim_instruction *at,
                   uint32_t thread, sim_space space, uint64_t address, uint32_t bytes,
                   sim_access access)
{
    block->fault->address = address;
    block->fault->bytes = bytes;
    block->fault->space = (uint8_t)space;
    block->fault->writes = access != ACCESS_READ;
    return sim_report(block, fault_type, at, thread);
}

static inline int memory_is_inside(const sim_range *range, uint64_t address, uint32_t bytes)
{
    return address - range->start < range->size && range->size - (address - range->start) >= bytes;
}

const sim_range *sim_find_range(sim_block *block, uint64_t address, uint32_t bytes)
{
    const sim_launch *launch = block->launch;
    if (block->last_range < launch->range_count &&
        memory_is_inside(launch->ranges + block->last_range, address, bytes))
        return launch->ranges + block->last_range;
    uint32_t low = 0, high = launch->range_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (launch->ranges[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0 || !memory_is_inside(launch->ranges + low - 1, address, bytes))
        return NULL;
    block->last_range = low - 1;
    return launch->ranges + low - 1;
}

/* Whether all bytes are initialized, and none is the target of a pending copy. */
static inline int memory_all_written(const uint8_t *state, uint32_t bytes)
{
    uint64_t words[4] = {0x0101010101010101u, 0x0101010101010101u, 0x0101010101010101u,
                         0x0101010101010101u};
    switch (bytes) { /* of a constant size, so that it compiles to one comparison */
    case 1:
        return state[0] == STATE_WRITTEN;
    case 2:
        return memcmp(state, words, 2) == 0;
    case 4:
        return memcmp(state, words, 4) == 0;
    case 8:
        return memcmp(state, words, 8) == 0;
    case 16:
        return memcmp(state, words, 16) == 0;
    default:
        return memcmp(state, words, bytes) == 0;
    }
}

static inline sim_fault_kind memory_check_state(uint8_t *state, uint32_t bytes, sim_access access)
{
    if (memory_all_written(state, bytes))
        return FAULT_NONE;
    for (uint32_t i = 0; i < bytes; i++)
        if (state[i] & (STATE_PENDING | STATE_MBARRIER))
            return state[i] & STATE_PENDING ? FAULT_PENDING_COPY : FAULT_MBARRIER;
    if (access == ACCESS_WRITE) {
        memset(state, STATE_WRITTEN, bytes);
        return FAULT_NONE;
    }
    /* LLVM widens loads of bytes to words, with neighbouring bytes that are unused: a word that is
     * partly initialized is valid. */
    uint32_t part = bytes < 4 ? bytes : 4;
    for (uint32_t first = 0; first < bytes; first += part) {
        int written = 0;
        for (uint32_t i = first; i < first + part; i++)
            written |= state[i] == STATE_WRITTEN;
        if (!written)
            return FAULT_UNINITIALIZED;
    }
    return FAULT_NONE;
}

/* Notes an access, and reports the race that it is part of. */
static inline int memory_check_order(sim_block *block, sim_warp *warp, const sim_instruction *at,
                                     uint32_t thread, sim_space space, sim_shadow *word,
                                     uint64_t address, uint32_t bytes, sim_access access,
                                     const uint8_t *old, const uint8_t *value)
{
    sim_stamp with = 0;
    int strong = access == ACCESS_ATOMIC || (at->flags & ACCESS_STRONG);
    word = find_race(block, warp, thread, space, word, address, bytes, access, strong, old, value,
                     &with);
    return word != NULL &&
           sim_report_race(block, at, thread, space, address, bytes, access, word, with);
}

/* `target` is the block whose shared memory it is. */
static inline uint8_t *memory_reach_shared(sim_block *block, sim_block *target, sim_warp *warp,
                                           const sim_instruction *at, uint32_t thread,
                                           uint64_t address, uint32_t bytes, sim_access access,
                                           const uint8_t *value)
{
    sim_fault_kind fault_type = memory_check_state(target->shared_state + address, bytes, access);
    if (fault_type != FAULT_NONE) {
        if (fault_type == FAULT_PENDING_COPY)
            sim_bulk_name_copier(target, address, bytes);
        sim_bad_access(block, fault_type, at, thread, SPACE_SHARED, address, bytes, access);
        return NULL;
    }
    uint8_t *host = target->shared + address;
    if (block->launch->check_races && memory_check_order(block, warp, at, thread, SPACE_SHARED,
                                                         target->shared_shadow + address / 4,
                                                         address, bytes, access, host, value))
        return NULL;
    return host;
}

static inline uint8_t *memory_reach_global(sim_block *block, sim_warp *warp,
                                           const sim_instruction *at, uint32_t thread,
                                           uint64_t address, uint32_t bytes, sim_access access,
                                           const uint8_t *value)
{
    const sim_range *range = sim_find_range(block, address, bytes);
    sim_fault_kind fault_type = FAULT_NONE;
    if (range == NULL)
        fault_type = FAULT_BOUNDS;
    else if (range->unfinished && !warp->has_waited)
        fault_type = FAULT_EARLY;
    else if (range->read_only && access != ACCESS_READ)
        fault_type = FAULT_READ_ONLY;
    else if (range->state != NULL)
        fault_type = memory_check_state(range->state + (address - range->start), bytes, access);
    if (fault_type != FAULT_NONE) {
        sim_bad_access(block, fault_type, at, thread, SPACE_GLOBAL, address, bytes, access);
        return NULL;
    }
    sim_note_access(range, access);
    uint8_t *host = (uint8_t *)(uintptr_t)(address + range->moved);
    if (block->global_shadow != NULL && !range->read_only) {
        uint64_t word =
            address / 4 - range->start / 4 + block->range_words[range - block->launch->ranges];
        if (memory_check_order(block, warp, at, thread, SPACE_GLOBAL, block->global_shadow + word,
                               address, bytes, access, host, value))
            return NULL;
    }
    return host;
}

static inline sim_space memory_space_of(uint64_t *address)
{
    static const uint8_t windows[4] = {SPACE_GLOBAL, SPACE_SHARED, SPACE_LOCAL, SPACE_PARAM};
    uint64_t window = *address >> WINDOW_SHIFT;
    if (window == 0 || window > 3)
        return SPACE_GLOBAL;
    *address &= WINDOW(1) - 1;
    return windows[window];
}

static inline uint8_t *memory_reach(sim_block *block, sim_warp *warp, const sim_instruction *at,
                                    int lane, sim_space space, uint64_t address, uint32_t bytes,
                                    sim_access access, const uint8_t *value)
{
    uint32_t thread = thread_of(warp, lane);
    if (space == SPACE_GENERIC)
        space = memory_space_of(&address);
    if ((address & (bytes - 1)) != 0) {
        sim_bad_access(block, FAULT_ALIGNMENT, at, thread, space, address, bytes, access);
        return NULL;
    }
    if (space == SPACE_GLOBAL)
        return memory_reach_global(block, warp, at, thread, address, bytes, access, value);
    sim_block *target = block;
    if (space == SPACE_SHARED && address >> CLUSTER_SHIFT != 0) {
        target = sim_reach_rank(block, warp, at, thread, &address);
        if (target == NULL)
            return NULL;
    }
    uint64_t limit = space == SPACE_SHARED  ? block->shared_bytes
                     : space == SPACE_LOCAL ? block->kernel->local_bytes
                                            : block->launch->param_bytes;
    if (address >= limit || limit - address < bytes) {
        sim_bad_access(block, FAULT_BOUNDS, at, thread, space, address, bytes, access);
        return NULL;
    }
    if (space == SPACE_SHARED)
        return memory_reach_shared(block, target, warp, at, thread, address, bytes, access, value);
    if (space == SPACE_LOCAL)
        return block->local + (size_t)thread * block->kernel->local_bytes + address;
    if (access != ACCESS_READ) {
        sim_bad_access(block, FAULT_READ_ONLY, at, thread, space, address, bytes, access);
        return NULL;
    }
    return (uint8_t *)(uintptr_t)block->launch->params + address;
}

uint8_t *sim_reach(sim_block *block, sim_warp *warp, const sim_instruction *at, int lane,
                   sim_space space, uint64_t address, uint32_t bytes, sim_access access,
                   const uint8_t *value)
{
    return memory_reach(block, warp, at, lane, space, address, bytes, access, value);
}

static inline uint64_t memory_read_element(const uint8_t *from, sim_type type, uint32_t size)
{
    uint64_t value = 0;
    memcpy(&value, from, size);
    switch (type) {
    case T_S8:
        return (uint64_t)(int64_t)(int8_t)value;
    case T_S16:
        return (uint64_t)(int64_t)(int16_t)value;
    case T_S32:
        return (uint64_t)(int64_t)(int32_t)value;
    default:
        return value;
    }
}

/* Loads element `number` of each lane into its register. */
static void memory_take_element(const sim_block *block, sim_warp *warp, const sim_instruction *at,
                                uint32_t mask, uint32_t number, const uint8_t *const *from)
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
            put_lane(warp, to, lane, memory_read_element(from[lane] + skipped, at->type, size));
}

/* Addresses of all lanes, as sim_address. */
static void memory_find_addresses(const sim_block *block, const sim_warp *warp,
                                  const sim_operand *o, uint64_t *out)
{
    const uint64_t *wide_base = wide(block, warp, o);
    const uint32_t *narrow_base = narrow(block, warp, o);
    for (int lane = 0; lane < LANES; lane++) {
        uint64_t base = o->kind == OPERAND_NONE ? 0
                        : o->width == 64        ? wide_base[lane]
                                                : narrow_base[lane];
        out[lane] = base + (uint64_t)o->offset;
    }
}

/* A vector with ignored elements: those may be out of bounds. */
static const uint8_t *memory_reach_local(sim_block *block, sim_warp *warp,
                                         const sim_instruction *at, int lane, uint64_t address)
{
    uint32_t size = bytes_of(at->type);
    if ((address & (size * at->count - 1)) != 0) {
        sim_bad_access(block, FAULT_ALIGNMENT, at, thread_of(warp, lane), at->space, address,
                       size * at->count, ACCESS_READ);
        return NULL;
    }
    const uint8_t *start = NULL;
    for (uint32_t i = 0; i < at->count; i++) {
        if (at->ignored >> i & 1)
            continue;
        const uint8_t *host = memory_reach(block, warp, at, lane, at->space, address + i * size,
                                           size, ACCESS_READ, NULL);
        if (host == NULL)
            return NULL;
        start = host - i * size;
    }
    return start;
}

/* The synchronization of the lanes' accesses, in a cooperative launch. */
static int memory_synchronize(const sim_block *block, sim_warp *warp, uint32_t mask,
                              const uint64_t *addresses, uint32_t flags)
{
    for (int lane = 0; flags && lane < LANES; lane++)
        if (mask >> lane & 1 && sim_synchronize(block, warp, addresses[lane], flags))
            return 1;
    return 0;
}

int sim_load(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    uint32_t size = bytes_of(at->type) * at->count;
    const uint8_t *from[LANES];
    uint64_t addresses[LANES];
    memory_find_addresses(block, warp, operand(block, at, at->count), addresses);
    int last = -1, repeats = 0;
    for (int lane = 0; lane < LANES; lane++) {
        if (!(mask >> lane & 1))
            continue;
        /* A value that many lanes read: two readers of a warp say as much as all of them. */
        int is_local = at->space == SPACE_LOCAL ||
                       addresses[lane] >> WINDOW_SHIFT == LOCAL_WINDOW >> WINDOW_SHIFT;
        repeats = last >= 0 && addresses[lane] == addresses[last] && !is_local ? repeats + 1 : 0;
        if (repeats > 1)
            from[lane] = from[last];
        else if (at->ignored != 0 && at->ignored != (1u << at->count) - 1)
            from[lane] = memory_reach_local(block, warp, at, lane, addresses[lane]);
        else
            from[lane] = memory_reach(block, warp, at, lane, at->space, addresses[lane], size,
                                      ACCESS_READ, NULL);
        if (from[lane] == NULL)
            return 1;
        last = lane;
    }
    for (uint32_t i = 0; i < at->count; i++)
        if (!(at->ignored >> i & 1))
            memory_take_element(block, warp, at, mask, i, from);
    if (at->flags & ACCESS_HOST) /* the host is another thread of this process */
        atomic_thread_fence(memory_order_acquire);
    sim_fence(block, at->flags & ACCESS_ACQUIRE);
    return memory_synchronize(block, warp, mask, addresses,
                              at->flags & (ACCESS_ACQUIRE | ACCESS_HOST));
}

int sim_store(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    uint32_t size = bytes_of(at->type), bytes = size * at->count;
    uint64_t addresses[LANES];
    uint8_t values[LANES][32];
    memory_find_addresses(block, warp, operand(block, at, 0), addresses);
    if (at->flags & ACCESS_HOST)
        atomic_thread_fence(memory_order_release);
    sim_fence(block, at->flags & ACCESS_RELEASE);
    if (memory_synchronize(block, warp, mask, addresses,
                           at->flags & (ACCESS_RELEASE | ACCESS_HOST)))
        return 1;
    for (uint32_t i = 0; i < at->count; i++) {
        const sim_operand *o = operand(block, at, 1 + i);
        for (int lane = 0; lane < LANES; lane++) {
            uint64_t value = lane_value(block, warp, o, lane);
            memcpy(values[lane] + i * size, &value, size);
        }
    }
    for (int lane = 0; lane < LANES; lane++) {
        if (!(mask >> lane & 1))
            continue;
        uint8_t *to = memory_reach(block, warp, at, lane, at->space, addresses[lane], bytes,
                                   ACCESS_WRITE, values[lane]);
        if (to == NULL)
            return 1;
        memcpy(to, values[lane], bytes);
    }
    return 0;
}
