/* wgmma: matmuls of a warpgroup, from shared memory. */
#ifndef NOVA_GPUSIM_ASYNC_WGMMA_H
#define NOVA_GPUSIM_ASYNC_WGMMA_H

#include "gpusim/memory/bulk_access.h"

/* Bytes of the k of one wgmma, whatever its type: two chunks of 16. */
enum { WGMMA_ROWS = 64, WGMMA_K_BYTES = 32, WGMMA_MOST_COLUMNS = 256, WGMMA_MOST_K = 32 };

/* A matrix in shared memory, by its descriptor. */
typedef struct {
    uint64_t start, leading, stride;
    uint32_t base, swizzle; /* swizzle: permuted bits, 0, 1, 3 or 7 */
    uint32_t span;          /* bytes of a swizzled row */
    uint32_t outer, chunks; /* rows of chunks of 16 bytes: m or n by k, or k by m or n */
    int transposed;
} sim_matrix;

sim_matrix sim_read_descriptor(uint64_t descriptor, uint32_t rows, uint32_t elements_of_chunk,
                               int transposed);
/* The shared address of a chunk. */
uint64_t sim_matrix_chunk(const sim_matrix *matrix, uint32_t outer, uint32_t chunk);

/* d = a * b (+ d) of a wgmma, in the registers of the four warps. */
void sim_wgmma_compute(sim_block *block, sim_warp *warps, const sim_wgmma *operation);

#endif
