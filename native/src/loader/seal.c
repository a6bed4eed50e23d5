/* The seal at the end of a file: every byte before it is under one of its hashes. */
#include <inttypes.h>

#include "loader/reader.h"

typedef struct {
    uint64_t offset, size;
    unsigned char digest[32];
} record;

typedef struct {
    unsigned char digest[32];
    uint64_t records_size, signature_size;
    char magic[8];
} ending;

_Static_assert(sizeof(record) == 48 && sizeof(ending) == 56, "as in docs/nova-format.md");

enum { SIGNATURE_SIZE = 96 };

/* Sections of Nova are separate regions: a region may not contain a section and other bytes. */
static bool seal_splits_section(const nova_elf *elf, uint64_t begin, uint64_t end)
{
    for (size_t i = 0; i < elf->section_count; i++) {
        const nova_section *section = &elf->sections[i];
        if (section->size == 0 || strncmp(section->name, ".nova.", 6) != 0)
            continue;
        uint64_t section_end = section->offset + section->size;
        if (begin < section_end && section->offset < end &&
            (begin != section->offset || end != section_end))
            return true;
    }
    return false;
}

static nova_status seal_check_regions(nova_bytes file, const nova_elf *elf, uint64_t end,
                                      uint64_t count, nova_sha256_blocks *blocks, nova_error *error)
{
    uint64_t position = 0;
    for (uint64_t i = 0; i < count; i++) {
        record region;
        unsigned char digest[32];
        memcpy(&region, file.data + end + i * sizeof region, sizeof region);
        if (region.offset != position || region.size == 0 ||
            !nova_fits(region.offset, region.size, end))
            return REFUSE(error, "seal-cover", "the hashes leave out bytes from %" PRIu64,
                          position);
        position += region.size;
        if (seal_splits_section(elf, region.offset, position))
            return REFUSE(error, "seal-cover", "a section of Nova shares its hash with others");
        nova_sha256(blocks, file.data + region.offset, (size_t)region.size, digest);
        if (memcmp(digest, region.digest, sizeof digest) != 0)
            return REFUSE(error, "seal-region", "SHA-256 mismatch in bytes %" PRIu64 " to %" PRIu64,
                          region.offset, position);
    }
    if (position != end)
        return REFUSE(error, "seal-cover", "the hashes leave out bytes from %" PRIu64, position);
    return NOVA_OK;
}

nova_status nova_seal_check(nova_bytes file, const nova_elf *elf, nova_seal *seal,
                            nova_error *error)
{
    ending end;
    if (file.size < sizeof end)
        return REFUSE(error, "seal-magic", "the file is too short to have a seal");
    memcpy(&end, file.data + file.size - sizeof end, sizeof end);
    if (memcmp(end.magic, "NOVAEND2", sizeof end.magic) != 0)
        return REFUSE(error, "seal-magic", "not a Nova file, or a truncated one");
    uint64_t length = file.size - sizeof end;
    if ((end.signature_size != 0 && end.signature_size != SIGNATURE_SIZE) ||
        end.signature_size > length || end.records_size > length - end.signature_size ||
        end.records_size % sizeof(record) != 0)
        return REFUSE(error, "seal-size", "%" PRIu64 " bytes of hashes in a file of %" PRIu64,
                      end.records_size, file.size);
    uint64_t start = length - end.signature_size - end.records_size;
    if (start < elf->end)
        return REFUSE(error, "seal-size", "a part of the ELF file reaches into the seal");

    nova_sha256_blocks *blocks = nova_sha256_choose();
    unsigned char digest[32];
    nova_sha256(blocks, file.data + start, (size_t)end.records_size, digest);
    if (memcmp(digest, end.digest, sizeof digest) != 0)
        return REFUSE(error, "seal-hash", "the table of hashes is damaged");
    seal->digest = file.data + file.size - sizeof end;
    seal->signature = end.signature_size != 0 ? file.data + start + end.records_size : NULL;
    return seal_check_regions(file, elf, start, end.records_size / sizeof(record), blocks, error);
}
