/* The dependences of the rows of a persistent kernel, as sets, and their transitive reduction. */
#include <stdlib.h>

#include "gpu/persistent/persistent.h"

bool persistent_order_create(persistent_order *order, uint32_t row_count)
{
    *order = (persistent_order){.row_count = row_count, .words = (row_count + 63) / 64};
    size_t words = (size_t)row_count * order->words + 1;
    order->direct = calloc(words, sizeof *order->direct);
    order->before = calloc(words, sizeof *order->before);
    return order->direct != NULL && order->before != NULL;
}

void persistent_order_free(persistent_order *order)
{
    free(order->direct);
    free(order->before);
}

void persistent_order_add(persistent_order *order, uint32_t row, uint32_t awaited)
{
    order->direct[(size_t)row * order->words + awaited / 64] |= UINT64_C(1) << awaited % 64;
}

bool persistent_order_has(const persistent_order *order, uint32_t row, uint32_t awaited)
{
    return (order->direct[(size_t)row * order->words + awaited / 64] >> awaited % 64 & 1) != 0;
}

void persistent_order_reduce(persistent_order *order)
{
    uint32_t words = order->words;
    for (uint32_t row = 0; row < order->row_count; row++) {
        uint64_t *direct = order->direct + (size_t)row * words;
        uint64_t *before = order->before + (size_t)row * words;
        for (uint32_t from = 0; from < row; from++)
            if (persistent_order_has(order, row, from))
                for (uint32_t w = 0; w < words; w++)
                    before[w] |= order->before[(size_t)from * words + w];
        for (uint32_t w = 0; w < words; w++) {
            direct[w] &= ~before[w];
            before[w] |= direct[w];
        }
    }
}
