/* Matrix descriptors of wgmma: where the chunks of a matrix are in shared memory.
 *
 * Without a transpose the k of a row is contiguous (K-major), with it the m or n of a k (MN-major).
 * The layouts are the canonical ones of the PTX ISA, "asynchronous warpgroup level matrix shared
 * memory layout": atoms of 8 rows of one swizzle span, at distances of `stride` and `leading`. */
#include "gpusim/async/wgmma.h"

sim_matrix sim_read_descriptor(uint64_t descriptor, uint32_t rows, uint32_t elements_of_chunk,
                               int transposed)
{
    static const struct {
        uint32_t bits, span;
    } modes[4] = {{0, 16}, {7, 128}, {3, 64}, {1, 32}};
    uint32_t mode = (uint32_t)(descriptor >> 62);
    return (sim_matrix){
        .start = (descriptor & 0x3fff) << 4,
        .leading = (descriptor >> 16 & 0x3fff) << 4,
        .stride = (descriptor >> 32 & 0x3fff) << 4,
        .base = (uint32_t)(descriptor >> 49) & 7,
        .swizzle = modes[mode].bits,
        .span = modes[mode].span,
        .outer = transposed ? WGMMA_K_BYTES / 16 * elements_of_chunk : rows,
        .chunks = transposed ? rows / elements_of_chunk : WGMMA_K_BYTES / 16,
        .transposed = transposed,
    };
}

uint64_t sim_matrix_chunk(const sim_matrix *m, uint32_t outer, uint32_t chunk)
{
    uint32_t group = outer / 8, row = outer % 8, across = m->span / 16;
    uint64_t address = m->start + row * m->span;
    if (m->swizzle == 0)
        address += m->transposed ? chunk * m->stride + group * m->leading
                                 : group * m->stride + chunk * m->leading;
    else
        address += group * m->stride + chunk / across * m->leading + chunk % across * 16;
    return address ^ (((address >> 7) - m->base) & m->swizzle) << 4;
}
