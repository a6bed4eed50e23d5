/* shfl, vote, redux, match, elect: values between the lanes of a warp. The last operand is the mask
 * of those that take part. */
#include "gpusim/state.h"

enum { SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_XOR, SHUFFLE_INDEX };
enum { VOTE_ALL, VOTE_ANY, VOTE_UNI, VOTE_BALLOT };
enum { R_ADD, R_MIN, R_MAX, R_AND, R_OR, R_XOR };
enum { MATCH_ANY, MATCH_ALL };

/* Operands: d [, p], a, b, c, members. A lane outside of its segment keeps its value; the value of
 * an inactive lane is undefined. */
static int exchange_shuffle(sim_block *block, sim_warp *warp, const sim_instruction *at,
                            uint32_t mask, uint32_t members)
{
    uint32_t first = at->results;
    const uint32_t *a = narrow(block, warp, operand(block, at, first));
    const uint32_t *b = narrow(block, warp, operand(block, at, first + 1));
    const uint32_t *c = narrow(block, warp, operand(block, at, first + 2));
    uint32_t values[LANES], inside = 0;
    for (int lane = 0; lane < LANES; lane++) {
        int by = (int)(b[lane] & 31), clamp = (int)(c[lane] & 31),
            segment = (int)(c[lane] >> 8 & 31);
        int most = (lane & segment) | (clamp & ~segment), least = lane & segment;
        int from = at->detail == SHUFFLE_UP     ? lane - by
                   : at->detail == SHUFFLE_DOWN ? lane + by
                   : at->detail == SHUFFLE_XOR  ? lane ^ by
                                                : least | (by & ~segment);
        int valid = at->detail == SHUFFLE_UP ? from >= most : from <= most;
        from = valid ? from & 31 : lane;
        if (mask >> lane & 1 && !(members & mask & (uint32_t)1 << from)) {
            sim_name_thread(block, thread_of(warp, from), block->fault->other);
            memcpy(block->fault->other_block, block->index, sizeof block->index);
            block->fault->has_other = 1;
            return sim_report(block, FAULT_EXCHANGE, at, thread_of(warp, lane));
        }
        inside |= (uint32_t)valid << lane;
        values[lane] = a[from];
    }
    put_narrow(warp, operand(block, at, 0), values, mask);
    if (at->results > 1)
        put_predicate(warp, operand(block, at, 1), inside, mask);
    return 0;
}

static void exchange_put_all(sim_warp *warp, const sim_operand *to, uint32_t value, uint32_t mask)
{
    uint32_t values[LANES];
    for (int lane = 0; lane < LANES; lane++)
        values[lane] = value;
    put_narrow(warp, to, values, mask);
}

static void exchange_vote(const sim_block *block, sim_warp *warp, const sim_instruction *at,
                          uint32_t mask, uint32_t members)
{
    uint32_t votes = predicate(block, warp, operand(block, at, 1)) & members;
    if (at->detail == VOTE_BALLOT) {
        exchange_put_all(warp, operand(block, at, 0), votes, mask);
        return;
    }
    int holds = at->detail == VOTE_ALL   ? votes == members
                : at->detail == VOTE_ANY ? votes != 0
                                         : votes == 0 || votes == members;
    put_predicate(warp, operand(block, at, 0), holds ? ~0u : 0, mask);
}

static uint32_t exchange_reduced(const sim_instruction *at, uint32_t total, uint32_t value)
{
    int less = at->type == T_S32 ? (int32_t)value < (int32_t)total : value < total;
    switch (at->detail) {
    case R_ADD:
        return total + value;
    case R_MIN:
        return less ? value : total;
    case R_MAX:
        return less ? total : value;
    case R_AND:
        return total & value;
    case R_OR:
        return total | value;
    default:
        return total ^ value;
    }
}

static void exchange_reduce(const sim_block *block, sim_warp *warp, const sim_instruction *at,
                            uint32_t mask, uint32_t members)
{
    const uint32_t *a = narrow(block, warp, operand(block, at, 1));
    int first = lowest(members);
    uint32_t total = a[first];
    for (int lane = first + 1; lane < LANES; lane++)
        if (members >> lane & 1)
            total = exchange_reduced(at, total, a[lane]);
    exchange_put_all(warp, operand(block, at, 0), total, mask);
}

/* match.any: the lanes with an equal value; match.all: all lanes, if all are equal. Operands: d [,
 * p], a, members. */
static void exchange_match(const sim_block *block, sim_warp *warp, const sim_instruction *at,
                           uint32_t mask, uint32_t members)
{
    const sim_operand *a = operand(block, at, at->results);
    uint32_t values[LANES] = {0};
    for (int lane = 0; lane < LANES; lane++)
        for (int other = 0; mask >> lane & 1 && other < LANES; other++)
            if (members >> other & 1 &&
                lane_value(block, warp, a, lane) == lane_value(block, warp, a, other))
                values[lane] |= (uint32_t)1 << other;
    int same = values[lowest(mask)] == members;
    if (at->detail == MATCH_ANY)
        put_narrow(warp, operand(block, at, 0), values, mask);
    else
        exchange_put_all(warp, operand(block, at, 0), same ? members : 0, mask);
    if (at->results > 1)
        put_predicate(warp, operand(block, at, 1), same ? ~0u : 0, mask);
}

static int exchange_full_warp(sim_block *block, sim_warp *warp, const sim_instruction *at,
                              uint32_t mask)
{
    if (mask != ~0u)
        return sim_report(block, FAULT_DIVERGED, at, thread_of(warp, lowest(mask)));
    if (at->op == OP_LOAD_MATRIX)
        return sim_load_matrix(block, warp, at);
    if (at->op == OP_STORE_MATRIX)
        return sim_store_matrix(block, warp, at);
    sim_multiply(block, warp, at);
    return 0;
}

int sim_exchange(sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask,
                 uint32_t members)
{
    members &= warp->live;
    switch (at->op) {
    case OP_SHUFFLE:
        return exchange_shuffle(block, warp, at, mask, members);
    case OP_VOTE:
        exchange_vote(block, warp, at, mask, members);
        return 0;
    case OP_REDUCE:
        exchange_reduce(block, warp, at, mask, members);
        return 0;
    case OP_MATCH:
        exchange_match(block, warp, at, mask, members);
        return 0;
    case OP_ELECT:
        exchange_put_all(warp, operand(block, at, 0), (uint32_t)lowest(members), mask);
        put_predicate(warp, operand(block, at, 1), members & -members, mask);
        return 0;
    case OP_WARP_BARRIER:
        warp->clock++;
        return 0;
    default:
        return exchange_full_warp(block, warp, at, mask);
    }
}
