/* ldmatrix, stmatrix and mma.sync. Sums are formed in f32 (f64 for f64), in the order of k: the
 * device adds in groups that are not documented, so results agree with it to rounding, not to the
 * bit. */
#include "gpusim/state.h"

/* Lane i of each group of eight has the address of row i of matrix i / 8; a lane gets two
 * neighbours of a row, or, transposed, of a column. detail: 1 transposed. */
static uint8_t *mma_reach_row(sim_block *block, sim_warp *warp, const sim_instruction *at,
                              const sim_operand *row_address, int lane, sim_access access,
                              const uint8_t *value)
{
    uint64_t address = sim_address(block, warp, row_address, lane);
    return sim_reach(block, warp, at, lane, at->space, address, 16, access, value);
}

int sim_load_matrix(sim_block *block, sim_warp *warp, const sim_instruction *at)
{
    uint16_t rows[4][8][8];
    const sim_operand *row_address = operand(block, at, at->count);
    for (int number = 0; number < at->count; number++)
        for (int row = 0; row < 8; row++) {
            const uint8_t *from =
                mma_reach_row(block, warp, at, row_address, number * 8 + row, ACCESS_READ, NULL);
            if (from == NULL)
                return 1;
            memcpy(rows[number][row], from, 16);
        }
    for (int number = 0; number < at->count; number++) {
        uint32_t values[LANES];
        for (int lane = 0; lane < LANES; lane++) {
            int i = lane / 4, j = lane % 4 * 2;
            const uint16_t (*m)[8] = rows[number];
            uint32_t low = at->detail ? m[j][i] : m[i][j],
                     high = at->detail ? m[j + 1][i] : m[i][j + 1];
            values[lane] = low | high << 16;
        }
        put_narrow(warp, operand(block, at, (uint32_t)number), values, ~0u);
    }
    return 0;
}

/* stmatrix: the inverse. Operands: address, registers. */
int sim_store_matrix(sim_block *block, sim_warp *warp, const sim_instruction *at)
{
    const sim_operand *row_address = operand(block, at, 0);
    for (int number = 0; number < at->count; number++) {
        const uint32_t *values = narrow(block, warp, operand(block, at, 1 + (uint32_t)number));
        uint16_t m[8][8];
        for (int lane = 0; lane < LANES; lane++)
            for (int part = 0; part < 2; part++) {
                int i = lane / 4, j = lane % 4 * 2 + part;
                *(at->detail ? &m[j][i] : &m[i][j]) = (uint16_t)(values[lane] >> 16 * part);
            }
        for (int row = 0; row < 8; row++) {
            const uint8_t *bytes = (const uint8_t *)m[row];
            uint8_t *to =
                mma_reach_row(block, warp, at, row_address, number * 8 + row, ACCESS_WRITE, bytes);
            if (to == NULL)
                return 1;
            memcpy(to, bytes, 16);
        }
    }
    return 0;
}

/* Element (row or column, k) of a fragment: lanes hold groups of four by quads; `per` elements a
 * register. */
typedef struct {
    int group, quad, part, element; /* lane = group * 4 + quad; register = part */
} fragment_index;

static fragment_index mma_index_a(int row, int k, int per)
{
    fragment_index p = {row % 8, k / per % 4, row / 8 + 2 * (k / (4 * per)), k % per};
    return p;
}

static fragment_index mma_index_b(int k, int column, int per)
{
    fragment_index p = {column, k / per % 4, k / (4 * per), k % per};
    return p;
}

static float mma_narrow_value(sim_type type, uint32_t word, int element)
{
    switch (type) {
    case T_F16:
        return f16_value(word >> (16 * element) & 0xffff);
    case T_BF16:
        return bf16_value(word >> (16 * element) & 0xffff);
    default:
        return f32_of(word & ~0x1fffu); /* tf32: the low bits do not count */
    }
}

static void mma_multiply_f64(const sim_block *block, sim_warp *warp, const sim_instruction *at)
{
    /* m8n8k4: a is row = lane / 4, k = lane % 4; b is k = lane % 4, column = lane / 4; c has two
     * columns a lane. */
    const uint64_t *a = wide(block, warp, operand(block, at, 2)),
                   *b = wide(block, warp, operand(block, at, 3));
    uint64_t out[2][LANES];
    for (int lane = 0; lane < LANES; lane++)
        for (int j = 0; j < 2; j++) {
            int row = lane / 4, column = lane % 4 * 2 + j;
            double total = f64_of(wide(block, warp, operand(block, at, 4 + (uint32_t)j))[lane]);
            for (int k = 0; k < 4; k++)
                total = fma(f64_of(a[row * 4 + k]), f64_of(b[column * 4 + k]), total);
            out[j][lane] = bits_of_f64(total);
        }
    for (uint32_t j = 0; j < 2; j++)
        put_wide(warp, operand(block, at, j), out[j], ~0u);
}

/* m16n8 with `count` steps of k. Operands: d (2 or 4), a, b, c (like d). type is that of d and c,
 * from that of a, b. */
void sim_multiply(const sim_block *block, sim_warp *warp, const sim_instruction *at)
{
    if (at->type == T_F64) {
        mma_multiply_f64(block, warp, at);
        return;
    }
    int depth = at->count, per = at->from == T_TF32 ? 1 : 2;
    uint32_t outs = at->type == T_F32 ? 4 : 2;
    uint32_t a_first = outs, a_count = (uint32_t)(16 * depth / (LANES * per));
    uint32_t b_first = a_first + a_count, b_count = (uint32_t)(8 * depth / (LANES * per)),
             c_first = b_first + b_count;
    float a[16][16], b[16][8], sums[16][8];
    for (int k = 0; k < depth; k++) {
        for (int row = 0; row < 16; row++) {
            fragment_index p = mma_index_a(row, k, per);
            uint32_t word = narrow(
                block, warp, operand(block, at, a_first + (uint32_t)p.part))[p.group * 4 + p.quad];
            a[row][k] = mma_narrow_value(at->from, word, p.element);
        }
        for (int column = 0; column < 8; column++) {
            fragment_index p = mma_index_b(k, column, per);
            uint32_t word = narrow(
                block, warp, operand(block, at, b_first + (uint32_t)p.part))[p.group * 4 + p.quad];
            b[k][column] = mma_narrow_value(at->from, word, p.element);
        }
    }
    for (int row = 0; row < 16; row++)
        for (int column = 0; column < 8; column++) {
            int lane = row % 8 * 4 + column / 2;
            uint32_t part = (uint32_t)(row / 8);
            uint32_t number = outs == 4 ? 2 * part + (uint32_t)column % 2 : part;
            uint32_t word = narrow(block, warp, operand(block, at, c_first + number))[lane];
            sums[row][column] =
                outs == 4 ? f32_of(word) : f16_value(word >> (16 * (column % 2)) & 0xffff);
        }
    for (int row = 0; row < 16; row++)
        for (int k = 0; k < depth; k++)
            for (int column = 0; column < 8; column++)
                sums[row][column] += a[row][k] * b[k][column];
    for (uint32_t number = 0; number < outs; number++) {
        uint32_t values[LANES];
        for (int lane = 0; lane < LANES; lane++) {
            int column = lane % 4 * 2, row = lane / 4 + 8 * (int)(outs == 4 ? number / 2 : number);
            if (outs == 4)
                values[lane] = bits_of(sums[row][column + (int)number % 2]);
            else
                values[lane] = f16_bits(sums[row][column]) | f16_bits(sums[row][column + 1]) << 16;
        }
        put_narrow(warp, operand(block, at, number), values, ~0u);
    }
}
