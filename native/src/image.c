#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include "nova/image.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct nova_image {
    char *mapping; /* where `low` lies; NULL when no segment has any bytes */
    uint64_t low;  /* page-aligned vaddr of the first segment */
    uint64_t span;
    size_t segment_count;
    nova_segment segments[];
};

static uint64_t page_floor(uint64_t value, uint64_t page)
{
    return value & ~(page - 1);
}

/* Callers have checked that value + page does not overflow. */
static uint64_t page_ceil(uint64_t value, uint64_t page)
{
    return page_floor(value + page - 1, page);
}

static nova_status check_segment(const nova_segment *segment, size_t size, uint64_t page)
{
    const uint32_t known = NOVA_EXECUTE | NOVA_WRITE | NOVA_READ;
    if (segment->flags & ~known || segment->file_size > segment->mem_size)
        return NOVA_INVALID_ARGUMENT;
    if (segment->flags & NOVA_WRITE && segment->flags & NOVA_EXECUTE)
        return NOVA_BAD_PROTECTION;
    if (segment->file_offset > size || segment->file_size > size - segment->file_offset)
        return NOVA_OUT_OF_RANGE;
    if (segment->mem_size > UINT64_MAX - page ||
        segment->vaddr > UINT64_MAX - page - segment->mem_size)
        return NOVA_OVERFLOW;
    return NOVA_OK;
}

/* Bytes must not overlap, and a page can only have one protection. */
static nova_status check_pair(const nova_segment *a, const nova_segment *b, uint64_t page)
{
    if (a->mem_size == 0 || b->mem_size == 0)
        return NOVA_OK;
    if (a->vaddr < b->vaddr + b->mem_size && b->vaddr < a->vaddr + a->mem_size)
        return NOVA_INVALID_ARGUMENT;
    bool share_a_page =
        page_floor(a->vaddr, page) < page_ceil(b->vaddr + b->mem_size, page) &&
        page_floor(b->vaddr, page) < page_ceil(a->vaddr + a->mem_size, page);
    return share_a_page && a->flags != b->flags ? NOVA_BAD_PROTECTION : NOVA_OK;
}

static nova_status check_segments(const nova_segment *segments, size_t count, size_t size,
                                  uint64_t page)
{
    for (size_t i = 0; i < count; i++) {
        nova_status status = check_segment(&segments[i], size, page);
        for (size_t k = 0; status == NOVA_OK && k < i; k++)
            status = check_pair(&segments[i], &segments[k], page);
        if (status != NOVA_OK)
            return status;
    }
    return NOVA_OK;
}

static nova_status from_errno(void)
{
    return errno == ENOMEM ? NOVA_OUT_OF_MEMORY : NOVA_SYSTEM_ERROR;
}

/* Copies while everything is writable and nothing executable, then closes page by page. */
static nova_status fill(nova_image *image, const char *data, uint64_t page)
{
    for (size_t i = 0; i < image->segment_count; i++) {
        const nova_segment *segment = &image->segments[i];
        if (segment->file_size > 0)
            memcpy(image->mapping + (segment->vaddr - image->low), data + segment->file_offset,
                   segment->file_size);
    }
    /* Not readable where no segment is, so that a stray pointer faults. */
    if (mprotect(image->mapping, image->span, PROT_NONE) != 0)
        return from_errno();
    for (size_t i = 0; i < image->segment_count; i++) {
        const nova_segment *segment = &image->segments[i];
        if (segment->mem_size == 0)
            continue;
        uint64_t begin = page_floor(segment->vaddr, page) - image->low;
        uint64_t end = page_ceil(segment->vaddr + segment->mem_size, page) - image->low;
        int protection = (segment->flags & NOVA_READ ? PROT_READ : 0) |
                         (segment->flags & NOVA_WRITE ? PROT_WRITE : 0) |
                         (segment->flags & NOVA_EXECUTE ? PROT_EXEC : 0);
        if (mprotect(image->mapping + begin, end - begin, protection) != 0)
            return from_errno();
        if (segment->flags & NOVA_EXECUTE && segment->flags & NOVA_READ)
            __builtin___clear_cache(image->mapping + begin, image->mapping + end);
    }
    return NOVA_OK;
}

nova_status nova_image_create(const void *data, size_t size, const nova_segment *segments,
                              size_t segment_count, nova_image **image)
{
    if (image == NULL || (data == NULL && size > 0) || (segments == NULL && segment_count > 0))
        return NOVA_INVALID_ARGUMENT;
    if (segment_count > UINT16_MAX)
        return NOVA_OUT_OF_RANGE;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    nova_status status = check_segments(segments, segment_count, size, page);
    if (status != NOVA_OK)
        return status;

    uint64_t low = UINT64_MAX, high = 0;
    for (size_t i = 0; i < segment_count; i++) {
        if (segments[i].mem_size == 0)
            continue;
        uint64_t begin = page_floor(segments[i].vaddr, page);
        uint64_t end = page_ceil(segments[i].vaddr + segments[i].mem_size, page);
        low = begin < low ? begin : low;
        high = end > high ? end : high;
    }
    if (high == 0)
        low = 0;
    if (high - low > SIZE_MAX / 2)
        return NOVA_OUT_OF_MEMORY;

    nova_image *made = malloc(sizeof *made + segment_count * sizeof *segments);
    if (made == NULL)
        return NOVA_OUT_OF_MEMORY;
    *made = (nova_image){.low = low, .span = high - low, .segment_count = segment_count};
    if (segment_count > 0)
        memcpy(made->segments, segments, segment_count * sizeof *segments);
    if (made->span > 0) {
        void *mapping = mmap(NULL, made->span, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mapping == MAP_FAILED) {
            status = from_errno();
            free(made);
            return status;
        }
        made->mapping = mapping;
        status = fill(made, data, page);
        if (status != NOVA_OK) {
            nova_image_destroy(made);
            return status;
        }
    }
    *image = made;
    return NOVA_OK;
}

void nova_image_destroy(nova_image *image)
{
    if (image == NULL)
        return;
    if (image->mapping != NULL)
        munmap(image->mapping, image->span);
    free(image);
}

uintptr_t nova_image_base(const nova_image *image)
{
    return (uintptr_t)image->mapping - (uintptr_t)image->low;
}

nova_status nova_image_find(const nova_image *image, uint64_t vaddr, uint64_t size, uint32_t flags,
                            void **address)
{
    if (image == NULL || address == NULL)
        return NOVA_INVALID_ARGUMENT;
    for (size_t i = 0; i < image->segment_count; i++) {
        const nova_segment *segment = &image->segments[i];
        if (segment->mem_size == 0 || vaddr < segment->vaddr ||
            vaddr - segment->vaddr > segment->mem_size ||
            size > segment->mem_size - (vaddr - segment->vaddr))
            continue;
        if ((segment->flags & flags) != flags)
            continue;
        *address = image->mapping + (vaddr - image->low);
        return NOVA_OK;
    }
    return NOVA_OUT_OF_RANGE;
}
