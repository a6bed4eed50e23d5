/* The arithmetic of wgmma: a * b is exact, and summed in f32 in the order of k (in s32 for
 * integers); f16 results are rounded once an instruction. The device sums groups of k with fewer
 * guard bits, in an order that is not documented: results agree to rounding. */
#include "gpusim/async/wgmma.h"

typedef struct {
    float a[WGMMA_ROWS][WGMMA_MOST_K], b[WGMMA_MOST_K][WGMMA_MOST_COLUMNS];
    float sums[WGMMA_ROWS][WGMMA_MOST_COLUMNS];
} wgmma_floats;

static uint32_t wgmma_element_bytes(sim_type type)
{
    return type == T_TF32 ? 4 : type == T_F16 || type == T_BF16 ? 2 : 1;
}

static float wgmma_value(sim_type type, const uint8_t *from)
{
    uint16_t half;
    uint32_t word;
    switch (type) {
    case T_F16:
        memcpy(&half, from, 2);
        return f16_value(half);
    case T_BF16:
        memcpy(&half, from, 2);
        return bf16_value(half);
    case T_TF32:
        memcpy(&word, from, 4);
        return f32_of(word & ~0x1fffu);
    case T_S8:
        return (float)(int8_t)*from;
    case T_U8:
        return (float)*from;
    default:
        return sim_fp8_value(type, *from);
    }
}

/* Elements of a matrix as (row, k); `put` of a and b differ in the order of their indices. */
static void wgmma_read_chunk(const sim_matrix *m, uint32_t outer, uint32_t chunk, uint32_t each,
                             uint32_t element, uint32_t *row, uint32_t *k)
{
    *row = m->transposed ? chunk * each + element : outer;
    *k = m->transposed ? outer : chunk * each + element;
}

static void wgmma_read_shared(const sim_block *block, const sim_matrix *m, sim_type type,
                              float scale, wgmma_floats *data, int is_b)
{
    uint32_t bytes = wgmma_element_bytes(type), each = 16 / bytes;
    for (uint32_t outer = 0; outer < m->outer; outer++)
        for (uint32_t chunk = 0; chunk < m->chunks; chunk++) {
            const uint8_t *from = block->shared + sim_matrix_chunk(m, outer, chunk);
            for (uint32_t i = 0; i < each; i++) {
                uint32_t row, k;
                wgmma_read_chunk(m, outer, chunk, each, i, &row, &k);
                float value = scale * wgmma_value(type, from + i * bytes);
                *(is_b ? &data->b[k][row] : &data->a[row][k]) = value;
            }
        }
}

/* a of registers: four of each lane, as of mma.sync m16. */
static void wgmma_read_registers(const sim_block *block, const sim_warp *warps,
                                 const sim_instruction *at, sim_type type, float scale,
                                 wgmma_floats *data)
{
    uint32_t bytes = wgmma_element_bytes(type), each = 4 / bytes;
    for (uint32_t w = 0; w < 4; w++)
        for (uint32_t part = 0; part < 4; part++) {
            const uint32_t *words =
                narrow(block, warps + w, operand(block, at, at->results + part));
            for (uint32_t lane = 0; lane < LANES; lane++)
                for (uint32_t i = 0; i < each; i++) {
                    uint32_t row = w * 16 + lane / 4 + part % 2 * 8;
                    uint32_t k = (lane % 4 + part / 2 * 4) * each + i;
                    uint8_t word[4];
                    memcpy(word, words + lane, 4);
                    data->a[row][k] = scale * wgmma_value(type, word + i * bytes);
                }
        }
}

/* --- the accumulators: rows lane / 4 and 8 further, two neighbouring columns a lane ------------
 */

static void wgmma_read_sums(const sim_block *block, const sim_warp *warps,
                            const sim_instruction *at, wgmma_floats *data)
{
    for (uint32_t w = 0; w < 4; w++)
        for (uint32_t number = 0; number < at->results; number++) {
            const uint32_t *words = narrow(block, warps + w, operand(block, at, number));
            for (uint32_t lane = 0; lane < LANES; lane++) {
                if (at->type == T_F16) {
                    float *to = data->sums[w * 16 + lane / 4 + number % 2 * 8] + number / 2 * 8 +
                                lane % 4 * 2;
                    to[0] = f16_value(words[lane] & 0xffff), to[1] = f16_value(words[lane] >> 16);
                } else {
                    data->sums[w * 16 + lane / 4 + number / 2 % 2 * 8]
                              [number / 4 * 8 + lane % 4 * 2 + number % 2] = f32_of(words[lane]);
                }
            }
        }
}

static void wgmma_write_sums(const sim_block *block, sim_warp *warps, const sim_instruction *at,
                             const wgmma_floats *data)
{
    for (uint32_t w = 0; w < 4; w++)
        for (uint32_t number = 0; number < at->results; number++) {
            uint32_t values[LANES];
            for (uint32_t lane = 0; lane < LANES; lane++) {
                if (at->type == T_F16) {
                    const float *from = data->sums[w * 16 + lane / 4 + number % 2 * 8] +
                                        number / 2 * 8 + lane % 4 * 2;
                    values[lane] = f16_bits(from[0]) | f16_bits(from[1]) << 16;
                } else {
                    values[lane] = bits_of(data->sums[w * 16 + lane / 4 + number / 2 % 2 * 8]
                                                     [number / 4 * 8 + lane % 4 * 2 + number % 2]);
                }
            }
            put_narrow(warps + w, operand(block, at, number), values, ~0u);
        }
}

static void wgmma_multiply(wgmma_floats *data, uint32_t columns, uint32_t depth)
{
    for (uint32_t row = 0; row < WGMMA_ROWS; row++) {
        float *restrict sums = data->sums[row];
        for (uint32_t k = 0; k < depth; k++) {
            float a = data->a[row][k];
            const float *restrict b = data->b[k];
            for (uint32_t column = 0; column < columns; column++)
                sums[column] += a * b[column];
        }
    }
}

/* s32 sums: a * b of bytes is exact in f32; `sums` holds the bits of the integers. */
static void wgmma_multiply_integers(wgmma_floats *data, uint32_t columns, uint32_t depth,
                                    int saturates)
{
    for (uint32_t row = 0; row < WGMMA_ROWS; row++)
        for (uint32_t column = 0; column < columns; column++) {
            int64_t sum = (int32_t)bits_of(data->sums[row][column]);
            for (uint32_t k = 0; k < depth; k++)
                sum += (int64_t)(data->a[row][k] * data->b[k][column]);
            if (saturates && sum > INT32_MAX)
                sum = INT32_MAX;
            if (saturates && sum < INT32_MIN)
                sum = INT32_MIN;
            data->sums[row][column] = f32_of((uint32_t)sum);
        }
}

void sim_wgmma_compute(sim_block *block, sim_warp *warps, const sim_wgmma *operation)
{
    wgmma_floats data;
    const sim_instruction *at = operation->at;
    sim_type a = at->from, b = at->detail;
    uint32_t columns = at->target, bytes = wgmma_element_bytes(a), depth = WGMMA_K_BYTES / bytes;
    float scale_a = at->flags & WGMMA_NEGATE_A ? -1.0f : 1.0f,
          scale_b = at->flags & WGMMA_NEGATE_B ? -1.0f : 1.0f;
    sim_matrix right = sim_read_descriptor(operation->b, columns, 16 / bytes,
                                           (at->flags & WGMMA_TRANSPOSE_B) != 0);
    if (at->flags & WGMMA_REGISTERS_A) {
        wgmma_read_registers(block, warps, at, a, scale_a, &data);
    } else {
        sim_matrix left = sim_read_descriptor(operation->a, WGMMA_ROWS, 16 / bytes,
                                              (at->flags & WGMMA_TRANSPOSE_A) != 0);
        wgmma_read_shared(block, &left, a, scale_a, &data, 0);
    }
    wgmma_read_shared(block, &right, b, scale_b, &data, 1);
    if (operation->accumulates)
        wgmma_read_sums(block, warps, at, &data);
    else
        memset(data.sums, 0, sizeof data.sums);
    if (at->type == T_S32)
        wgmma_multiply_integers(&data, columns, depth, (at->flags & WGMMA_SATURATE) != 0);
    else
        wgmma_multiply(&data, columns, depth);
    wgmma_write_sums(block, warps, at, &data);
}
