/* Executable images: machine code and its data, copied from a file into protected memory.
 *
 * No page of an image is ever writable and executable at the same time. */
#ifndef NOVA_IMAGE_H
#define NOVA_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nova/status.h"

/* Protection bits, with the values of ELF's p_flags. */
enum { NOVA_EXECUTE = 1, NOVA_WRITE = 2, NOVA_READ = 4 };

/* One loadable piece of a file; the bytes from file_size up to mem_size are zero. */
typedef struct nova_segment {
    uint64_t file_offset;
    uint64_t file_size;
    uint64_t vaddr;
    uint64_t mem_size;
    uint32_t flags;
} nova_segment;

/* Eight bytes that are stored before the protections are set. */
typedef struct nova_relocation {
    uint64_t vaddr;
    uint64_t value;
    bool relative; /* the image's base is added */
} nova_relocation;

/* The parts of an image, owned by the caller. */
typedef struct nova_image_source {
    const void *data;
    size_t size;
    int fd; /* a sealed memfd of the same bytes, or -1 */
    const nova_segment *segments;
    size_t segment_count;
    const nova_relocation *relocations; /* into writable segments */
    size_t relocation_count;
    uint64_t relro_vaddr; /* part of a writable segment that is read-only after relocation */
    uint64_t relro_size;
} nova_image_source;

typedef struct nova_image nova_image;

/* Maps copies of the segments of `data`; the caller owns `data` and *image. Thread-safe. */
nova_status nova_image_create(const void *data, size_t size, const nova_segment *segments,
                              size_t segment_count, nova_image **image);

/* The same with relocations. Full pages of read-only segments are mapped from `fd` if vaddr and
 * file offset allow it, so that they share memory. Thread-safe. */
nova_status nova_image_create_from(const nova_image_source *source, nova_image **image);

/* An image over segments that others have mapped at `base` and keep mapped. Thread-safe. */
nova_status nova_image_adopt(const void *base, const nova_segment *segments, size_t segment_count,
                             nova_image **image);

/* Unmaps; no pointer into the image may be used any more. NULL is fine. Not while others use it. */
void nova_image_destroy(nova_image *image);

/* The address that vaddr 0 has, or would have, in this process. Thread-safe. */
uintptr_t nova_image_base(const nova_image *image);

/* Finds `size` bytes at `vaddr` inside of one segment that has all of `flags`; *address stays owned
 * by the image. Thread-safe. */
nova_status nova_image_find(const nova_image *image, uint64_t vaddr, uint64_t size, uint32_t flags,
                            void **address);

#endif
