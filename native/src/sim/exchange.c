/* shfl, vote, redux: values between the lanes of a warp. */
#include "state.h"

enum { SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_XOR, SHUFFLE_INDEX };
enum { VOTE_ALL, VOTE_ANY, VOTE_UNI, VOTE_BALLOT };
enum { R_ADD, R_MIN, R_MAX, R_AND, R_OR, R_XOR };

/* Operands: d [, p], a, b, c, members. A lane outside of its segment keeps its own value. */
void sim_shuffle(const sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask)
{
    uint32_t first = at->results;
    const uint32_t *a = narrow(block, warp, operand(block, at, first));
    const uint32_t *b = narrow(block, warp, operand(block, at, first + 1));
    const uint32_t *c = narrow(block, warp, operand(block, at, first + 2));
    uint32_t values[LANES], inside = 0;
    for (int lane = 0; lane < LANES; lane++) {
        int by = (int)(b[lane] & 31), clamp = (int)(c[lane] & 31), segment = (int)(c[lane] >> 8 & 31);
        int most = (lane & segment) | (clamp & ~segment), least = lane & segment;
        int from = at->detail == SHUFFLE_UP     ? lane - by
                   : at->detail == SHUFFLE_DOWN ? lane + by
                   : at->detail == SHUFFLE_XOR  ? lane ^ by
                                                : least | (by & ~segment);
        int valid = at->detail == SHUFFLE_UP ? from >= most : from <= most;
        inside |= (uint32_t)valid << lane;
        values[lane] = a[valid ? from & 31 : lane];
    }
    put_narrow(warp, operand(block, at, 0), values, mask);
    if (at->results > 1)
        put_predicate(warp, operand(block, at, 1), inside, mask);
}

void sim_vote(const sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask, uint32_t members)
{
    uint32_t votes = predicate(block, warp, operand(block, at, 1)) & members;
    if (at->detail == VOTE_BALLOT) {
        uint32_t values[LANES];
        for (int lane = 0; lane < LANES; lane++)
            values[lane] = votes;
        put_narrow(warp, operand(block, at, 0), values, mask);
        return;
    }
    int holds = at->detail == VOTE_ALL   ? votes == members
                : at->detail == VOTE_ANY ? votes != 0
                                         : votes == 0 || votes == members;
    put_predicate(warp, operand(block, at, 0), holds ? ~0u : 0, mask);
}

void sim_reduce(const sim_block *block, sim_warp *warp, const sim_instruction *at, uint32_t mask, uint32_t members)
{
    const uint32_t *a = narrow(block, warp, operand(block, at, 1));
    uint32_t total = 0, values[LANES];
    int first = 1;
    for (int lane = 0; lane < LANES; lane++) {
        if (!(members >> lane & 1))
            continue;
        uint32_t value = a[lane];
        int less = at->type == T_S32 ? (int32_t)value < (int32_t)total : value < total;
        switch (first ? 99 : (int)at->detail) {
        case R_ADD: total += value; break;
        case R_MIN: total = less ? value : total; break;
        case R_MAX: total = less ? total : value; break;
        case R_AND: total &= value; break;
        case R_OR: total |= value; break;
        case R_XOR: total ^= value; break;
        default: total = value; break;
        }
        first = 0;
    }
    for (int lane = 0; lane < LANES; lane++)
        values[lane] = total;
    put_narrow(warp, operand(block, at, 0), values, mask);
}
