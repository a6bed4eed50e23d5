#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include "nova/image.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Segments are compared with each other, so their number is bounded. */
enum { MOST_SEGMENTS = 1024 };

struct nova_image {
    char *mapping; /* the address of `low`; NULL if no segment has any bytes */
    bool adopted;  /* not unmapped by this image */
    uint64_t low;  /* page-aligned vaddr of the first segment */
    uint64_t span;
    size_t segment_count;
    nova_segment segments[];
};

static uint64_t image_page_floor(uint64_t value, uint64_t page)
{
    return value & ~(page - 1);
}

/* Callers have checked that value + page does not overflow. */
static uint64_t image_page_ceil(uint64_t value, uint64_t page)
{
    return image_page_floor(value + page - 1, page);
}

static nova_status image_check_segment(const nova_segment *segment, size_t size, uint64_t page)
{
    const uint32_t known_flags = NOVA_EXECUTE | NOVA_WRITE | NOVA_READ;
    if (segment->flags & ~known_flags || segment->file_size > segment->mem_size)
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
static nova_status image_check_pair(const nova_segment *a, const nova_segment *b, uint64_t page)
{
    if (a->mem_size == 0 || b->mem_size == 0)
        return NOVA_OK;
    if (a->vaddr < b->vaddr + b->mem_size && b->vaddr < a->vaddr + a->mem_size)
        return NOVA_INVALID_ARGUMENT;
    bool share_a_page =
        image_page_floor(a->vaddr, page) < image_page_ceil(b->vaddr + b->mem_size, page) &&
        image_page_floor(b->vaddr, page) < image_page_ceil(a->vaddr + a->mem_size, page);
    return share_a_page && a->flags != b->flags ? NOVA_BAD_PROTECTION : NOVA_OK;
}

static nova_status image_check_segments(const nova_segment *segments, size_t count, size_t size,
                                        uint64_t page)
{
    for (size_t i = 0; i < count; i++) {
        nova_status status = image_check_segment(&segments[i], size, page);
        for (size_t k = 0; status == NOVA_OK && k < i; k++)
            status = image_check_pair(&segments[i], &segments[k], page);
        if (status != NOVA_OK)
            return status;
    }
    return NOVA_OK;
}

static nova_status image_from_errno(void)
{
    return errno == ENOMEM ? NOVA_OUT_OF_MEMORY : NOVA_SYSTEM_ERROR;
}

static nova_status image_protect(nova_image *image, uint64_t begin, uint64_t end, int protection)
{
    if (begin < end &&
        mprotect(image->mapping + (begin - image->low), end - begin, protection) != 0)
        return image_from_errno();
    return NOVA_OK;
}

/* How many bytes of a segment, from its start, can be pages of the file itself. */
static uint64_t image_shared_size(const nova_image_source *source, const nova_segment *segment,
                                  uint64_t page)
{
    if (source->fd < 0 || segment->flags != NOVA_READ || segment->vaddr % page != 0 ||
        segment->file_offset % page != 0)
        return 0;
    return image_page_floor(segment->file_size, page);
}

/* Copies the bytes of all segments while no page is executable. */
static nova_status image_fill(nova_image *image, const nova_image_source *source, uint64_t page)
{
    /* All before the first copy: two segments may share a page. */
    for (size_t i = 0; i < image->segment_count; i++) {
        const nova_segment *segment = &image->segments[i];
        uint64_t shared = image_shared_size(source, segment, page);
        if (shared > 0 &&
            mmap(image->mapping + (segment->vaddr - image->low), shared, PROT_READ,
                 MAP_PRIVATE | MAP_FIXED, source->fd, (off_t)segment->file_offset) == MAP_FAILED)
            return image_from_errno();
        nova_status status = NOVA_OK;
        if (segment->mem_size > shared)
            status = image_protect(image, image_page_floor(segment->vaddr + shared, page),
                                   image_page_ceil(segment->vaddr + segment->mem_size, page),
                                   PROT_READ | PROT_WRITE);
        if (status != NOVA_OK)
            return status;
    }
    for (size_t i = 0; i < image->segment_count; i++) {
        const nova_segment *segment = &image->segments[i];
        uint64_t shared = image_shared_size(source, segment, page);
        if (segment->file_size > shared)
            memcpy(image->mapping + (segment->vaddr - image->low) + shared,
                   (const char *)source->data + segment->file_offset + shared,
                   segment->file_size - shared);
    }
    return NOVA_OK;
}

static nova_status image_relocate(nova_image *image, const nova_image_source *source)
{
    for (size_t i = 0; i < source->relocation_count; i++) {
        const nova_relocation *relocation = &source->relocations[i];
        uint64_t value = relocation->value + (relocation->relative ? nova_image_base(image) : 0);
        void *address;
        nova_status status =
            nova_image_find(image, relocation->vaddr, sizeof value, NOVA_WRITE, &address);
        if (status != NOVA_OK)
            return status;
        memcpy(address, &value, sizeof value);
    }
    return NOVA_OK;
}

/* Makes the processor fetch the instructions that were stored. On AArch64 the builtin would be a
 * call into the compiler's library, which the runtime inside of a file does not have. */
static void image_publish_code(char *begin, char *end)
{
#if defined(__aarch64__)
    uint64_t sizes;
    __asm__ volatile("mrs %0, ctr_el0" : "=r"(sizes));
    uintptr_t data_line = (uintptr_t)4 << (sizes >> 16 & 15);
    uintptr_t code_line = (uintptr_t)4 << (sizes & 15);
    for (uintptr_t at = (uintptr_t)begin & ~(data_line - 1); at < (uintptr_t)end; at += data_line)
        __asm__ volatile("dc cvau, %0" : : "r"(at) : "memory");
    __asm__ volatile("dsb ish" : : : "memory");
    for (uintptr_t at = (uintptr_t)begin & ~(code_line - 1); at < (uintptr_t)end; at += code_line)
        __asm__ volatile("ic ivau, %0" : : "r"(at) : "memory");
    __asm__ volatile("dsb ish\n\tisb" : : : "memory");
#else
    __builtin___clear_cache(begin, end);
#endif
}

/* The last step. What no segment covers was never readable, so that a stray pointer faults. */
static nova_status image_close_pages(nova_image *image, const nova_image_source *source,
                                     uint64_t page)
{
    for (size_t i = 0; i < image->segment_count; i++) {
        const nova_segment *segment = &image->segments[i];
        if (segment->mem_size == 0)
            continue;
        uint64_t begin = image_page_floor(segment->vaddr, page);
        uint64_t end = image_page_ceil(segment->vaddr + segment->mem_size, page);
        int protection = (segment->flags & NOVA_READ ? PROT_READ : 0) |
                         (segment->flags & NOVA_WRITE ? PROT_WRITE : 0) |
                         (segment->flags & NOVA_EXECUTE ? PROT_EXEC : 0);
        nova_status status = image_protect(image, begin, end, protection);
        if (status != NOVA_OK)
            return status;
        if (segment->flags & NOVA_EXECUTE && segment->flags & NOVA_READ)
            image_publish_code(image->mapping + (begin - image->low),
                               image->mapping + (end - image->low));
    }
    if (source->relro_size == 0)
        return NOVA_OK;
    void *address;
    nova_status status =
        nova_image_find(image, source->relro_vaddr, source->relro_size, NOVA_WRITE, &address);
    if (status != NOVA_OK)
        return status;
    /* Like the dynamic linker: the last page only when all of it is meant. */
    return image_protect(image, image_page_floor(source->relro_vaddr, page),
                         image_page_floor(source->relro_vaddr + source->relro_size, page),
                         PROT_READ);
}

static nova_status image_map(nova_image *image, const nova_image_source *source, uint64_t page)
{
    void *mapping = mmap(NULL, image->span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED)
        return image_from_errno();
    image->mapping = mapping;
    nova_status status = image_fill(image, source, page);
    if (status == NOVA_OK)
        status = image_relocate(image, source);
    return status == NOVA_OK ? image_close_pages(image, source, page) : status;
}

static nova_status image_make(const nova_segment *segments, size_t count, nova_image **image)
{
    nova_image *created = malloc(sizeof *created + count * sizeof *segments);
    if (created == NULL)
        return NOVA_OUT_OF_MEMORY;
    *created = (nova_image){.segment_count = count};
    if (count > 0)
        memcpy(created->segments, segments, count * sizeof *segments);
    *image = created;
    return NOVA_OK;
}

nova_status nova_image_create_from(const nova_image_source *source, nova_image **image)
{
    if (image == NULL || source == NULL || (source->data == NULL && source->size > 0) ||
        (source->segments == NULL && source->segment_count > 0) ||
        (source->relocations == NULL && source->relocation_count > 0))
        return NOVA_INVALID_ARGUMENT;
    if (source->segment_count > MOST_SEGMENTS)
        return NOVA_OUT_OF_RANGE;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const nova_segment *segments = source->segments;
    nova_status status = image_check_segments(segments, source->segment_count, source->size, page);
    if (status != NOVA_OK)
        return status;

    uint64_t low = UINT64_MAX, high = 0;
    for (size_t i = 0; i < source->segment_count; i++) {
        if (segments[i].mem_size == 0)
            continue;
        uint64_t begin = image_page_floor(segments[i].vaddr, page);
        uint64_t end = image_page_ceil(segments[i].vaddr + segments[i].mem_size, page);
        low = begin < low ? begin : low;
        high = end > high ? end : high;
    }
    if (high == 0)
        low = 0;
    if (high - low > SIZE_MAX / 2)
        return NOVA_OUT_OF_MEMORY;

    nova_image *created;
    status = image_make(segments, source->segment_count, &created);
    if (status != NOVA_OK)
        return status;
    created->low = low;
    created->span = high - low;
    status = created->span > 0 ? image_map(created, source, page) : image_relocate(created, source);
    if (status != NOVA_OK) {
        nova_image_destroy(created);
        return status;
    }
    *image = created;
    return NOVA_OK;
}

nova_status nova_image_create(const void *data, size_t size, const nova_segment *segments,
                              size_t segment_count, nova_image **image)
{
    const nova_image_source source = {
        .data = data, .size = size, .fd = -1, .segments = segments, .segment_count = segment_count};
    return nova_image_create_from(&source, image);
}

nova_status nova_image_adopt(const void *base, const nova_segment *segments, size_t segment_count,
                             nova_image **image)
{
    if (base == NULL || image == NULL || (segments == NULL && segment_count > 0))
        return NOVA_INVALID_ARGUMENT;
    nova_status status = image_make(segments, segment_count, image);
    if (status != NOVA_OK)
        return status;
    (*image)->mapping = (char *)(uintptr_t)base;
    (*image)->adopted = true;
    return NOVA_OK;
}

void nova_image_destroy(nova_image *image)
{
    if (image == NULL)
        return;
    if (image->mapping != NULL && !image->adopted)
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
