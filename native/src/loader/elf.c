/* Checks of the ELF headers: only the output of Nova's linker is accepted. */
#include <elf.h>
#include <inttypes.h>

#include "loader/reader.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "records are used as they lie in files");

enum {
    PAGE = 4096, /* the smallest that any supported system has */
    MOST_ALIGNMENT = 2 << 20,
    MOST_ZEROS = 1 << 20, /* bytes of a segment that the file does not hold */
    MOST_NAME = 64,       /* of a section: names are compared with each other */
};

const nova_section *nova_elf_section(const nova_elf *elf, const char *name)
{
    for (size_t i = 0; i < elf->section_count; i++)
        if (strcmp(elf->sections[i].name, name) == 0)
            return &elf->sections[i];
    return NULL;
}

const nova_segment *nova_elf_segment(const nova_elf *elf, uint64_t vaddr, uint64_t size,
                                     uint32_t flags)
{
    for (size_t i = 0; i < elf->segment_count; i++) {
        const nova_segment *segment = &elf->segments[i];
        if ((segment->flags & flags) == flags && vaddr >= segment->vaddr &&
            nova_fits(vaddr - segment->vaddr, size, segment->file_size))
            return segment;
    }
    return NULL;
}

static void elf_extend(nova_elf *elf, uint64_t offset, uint64_t size)
{
    elf->end = offset + size > elf->end ? offset + size : elf->end;
}

/* --- the header ------------------------------------------------------------------------------- */

static nova_status elf_read_header(nova_bytes file, Elf64_Ehdr *header, nova_error *error)
{
    static const unsigned char ident[EI_NIDENT] = {
        ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT, ELFOSABI_SYSV};
    if (file.size < sizeof *header)
        return REFUSE(error, "elf-header", "%" PRIu64 " bytes are fewer than an ELF header has",
                      file.size);
    memcpy(header, file.data, sizeof *header);
    if (memcmp(header->e_ident, ident, sizeof ident) != 0)
        return REFUSE(error, "elf-magic", "not a 64-bit little-endian ELF file of System V");
    if (header->e_type != ET_DYN)
        return REFUSE(error, "elf-type", "type %u is not a shared object (3)", header->e_type);
    if (header->e_machine != EM_X86_64 && header->e_machine != EM_AARCH64)
        return REFUSE(error, "elf-machine", "machine %u is neither x86-64 (62) nor AArch64 (183)",
                      header->e_machine);
    if (header->e_version != EV_CURRENT || header->e_entry != 0 || header->e_flags != 0 ||
        header->e_ehsize != sizeof(Elf64_Ehdr) || header->e_phentsize != sizeof(Elf64_Phdr) ||
        header->e_shentsize != sizeof(Elf64_Shdr))
        return REFUSE(error, "elf-header", "a version, entry point, flag or size is not Nova's");
    return NOVA_OK;
}

/* --- segments --------------------------------------------------------------------------------- */

static nova_status elf_check_load(nova_bytes file, const Elf64_Phdr *row, const nova_elf *elf,
                                  nova_error *error)
{
    size_t i = elf->segment_count;
    if (!nova_fits(row->p_offset, row->p_filesz, file.size))
        return REFUSE(error, "segment-bounds", "segment %zu ends after the file", i);
    if (row->p_filesz > row->p_memsz || row->p_memsz - row->p_filesz > MOST_ZEROS)
        return REFUSE(error, "segment-size",
                      "segment %zu has %" PRIu64 " bytes in the file, %" PRIu64 " in memory", i,
                      row->p_filesz, row->p_memsz);
    if (row->p_vaddr != row->p_offset || row->p_paddr != row->p_offset)
        return REFUSE(error, "segment-address", "segment %zu is not loaded at its file offset", i);
    if (row->p_align < PAGE || row->p_align > MOST_ALIGNMENT ||
        (row->p_align & (row->p_align - 1)) != 0 || row->p_vaddr % row->p_align != 0)
        return REFUSE(error, "segment-alignment", "segment %zu does not start at a page", i);
    bool writes = row->p_flags & PF_W;
    if (!(row->p_flags & PF_R) || row->p_flags & ~(uint32_t)(PF_R | PF_W | PF_X) ||
        (writes && row->p_flags & PF_X) || (!writes && row->p_filesz != row->p_memsz))
        return REFUSE(error, "segment-flags", "segment %zu has flags %#x", i, row->p_flags);
    /* Sums cannot wrap: a size in memory is at most that of the file and MOST_ZEROS. */
    const nova_segment *before = i > 0 ? &elf->segments[i - 1] : NULL;
    uint64_t end =
        before ? (before->vaddr + before->mem_size + PAGE - 1) & ~(uint64_t)(PAGE - 1) : 0;
    if (row->p_vaddr < end || (before == NULL && row->p_vaddr != 0))
        return REFUSE(error, "segment-order", "segment %zu overlaps, or leaves address 0 empty", i);
    return NOVA_OK;
}

/* Those that say something about a loaded segment: it has to hold them. */
static nova_status elf_check_inside(const Elf64_Phdr *row, nova_elf *elf, nova_error *error)
{
    bool relro = row->p_type == PT_GNU_RELRO;
    const nova_segment *segment =
        nova_elf_segment(elf, row->p_vaddr, row->p_filesz, relro ? PF_W : PF_R);
    if (segment == NULL || row->p_offset != row->p_vaddr || row->p_memsz < row->p_filesz ||
        !nova_fits(row->p_vaddr - segment->vaddr, row->p_memsz, segment->mem_size))
        return REFUSE(error, "segment-inside", "program header of kind %#x is in no segment",
                      row->p_type);
    if (relro) {
        elf->relro_vaddr = row->p_vaddr;
        elf->relro_size = row->p_memsz;
    } else if (row->p_type == PT_DYNAMIC) {
        elf->dynamic_offset = row->p_offset;
        elf->dynamic_size = row->p_filesz;
    }
    return NOVA_OK;
}

static nova_status elf_read_segments(nova_bytes file, const Elf64_Ehdr *header, nova_elf *elf,
                                     nova_error *error)
{
    static const uint32_t once[] = {PT_DYNAMIC, PT_PHDR, PT_GNU_STACK, PT_GNU_RELRO};
    bool is_present[4] = {false};
    uint64_t size = (uint64_t)header->e_phnum * sizeof(Elf64_Phdr);
    if (header->e_phnum > NOVA_MAX_SEGMENTS || !nova_fits(header->e_phoff, size, file.size))
        return REFUSE(error, "elf-segments", "%u program headers at %#" PRIx64, header->e_phnum,
                      header->e_phoff);
    elf_extend(elf, header->e_phoff, size);
    /* Loaded segments first: other segments may precede those that contain them. */
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < header->e_phnum; i++) {
            Elf64_Phdr row;
            memcpy(&row, file.data + header->e_phoff + i * sizeof row, sizeof row);
            if ((row.p_type == PT_LOAD) != (pass == 0))
                continue;
            nova_status status = NOVA_OK;
            if (pass == 0) {
                status = elf_check_load(file, &row, elf, error);
                if (status != NOVA_OK)
                    return status;
                elf_extend(elf, row.p_offset, row.p_filesz);
                elf->segments[elf->segment_count++] = (nova_segment){
                    row.p_offset, row.p_filesz, row.p_vaddr, row.p_memsz, row.p_flags};
                continue;
            }
            size_t index = 0;
            while (index < 4 && once[index] != row.p_type)
                index++;
            if (index == 4 || is_present[index])
                return REFUSE(error, "segment-kind", "program header %zu of kind %#x", i,
                              row.p_type);
            is_present[index] = true;
            if (row.p_type == PT_GNU_STACK) {
                if (row.p_flags & PF_X || row.p_filesz != 0 || row.p_memsz != 0)
                    status = REFUSE(error, "segment-flags", "the stack would be executable");
            } else {
                status = elf_check_inside(&row, elf, error);
            }
            if (status != NOVA_OK)
                return status;
        }
    }
    if (elf->segment_count == 0 || !is_present[0] || !is_present[2])
        return REFUSE(error, "elf-segments", "no loaded segment, dynamic section or stack header");
    return NOVA_OK;
}

/* --- sections --------------------------------------------------------------------------------- */

static nova_status elf_check_section(nova_bytes file, const nova_elf *elf,
                                     const nova_section *section, const Elf64_Shdr *row,
                                     nova_error *error)
{
    static const uint32_t types[] = {SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB,
                                     SHT_RELA,     SHT_HASH,   SHT_DYNAMIC,
                                     SHT_NOBITS,   SHT_DYNSYM, SHT_X86_64_UNWIND};
    const uint64_t known_flags =
        SHF_ALLOC | SHF_WRITE | SHF_EXECINSTR | SHF_INFO_LINK | SHF_MERGE | SHF_STRINGS;
    const char *name = section->name;
    bool is_nova = strncmp(name, ".nova.", 6) == 0, loaded = section->flags & SHF_ALLOC;
    size_t index = 0;
    while (index < sizeof types / sizeof *types && types[index] != section->kind)
        index++;
    if (index == sizeof types / sizeof *types || (is_nova && section->kind != SHT_PROGBITS))
        return REFUSE(error, "section-kind", "section %.40s is of kind %#x", name, section->kind);
    bool misplaced = is_nova && (section->flags & (SHF_WRITE | SHF_EXECINSTR) ||
                                 loaded == (strcmp(name, ".nova.stages") == 0));
    if (section->flags & ~known_flags || misplaced)
        return REFUSE(error, "section-flags", "section %.40s has flags %#" PRIx64, name,
                      section->flags);
    if (section->kind != SHT_NOBITS && !nova_fits(section->offset, section->size, file.size))
        return REFUSE(error, "section-bounds", "section %.40s ends after the file", name);
    if (is_nova && loaded && section->offset % 64 != 0)
        return REFUSE(error, "section-alignment", "section %.40s is not at a multiple of 64", name);
    if (!loaded)
        return row->sh_addr == 0 && section->kind != SHT_NOBITS
                   ? NOVA_OK
                   : REFUSE(error, "section-segment", "section %.40s has an address", name);
    if (section->kind == SHT_NOBITS) {
        for (size_t i = 0; i < elf->segment_count; i++) {
            const nova_segment *segment = &elf->segments[i];
            if (segment->flags & PF_W && row->sh_addr >= segment->vaddr &&
                nova_fits(row->sh_addr - segment->vaddr, section->size, segment->mem_size))
                return NOVA_OK;
        }
        return REFUSE(error, "section-segment", "section %.40s is in no writable segment", name);
    }
    const nova_segment *segment = nova_elf_segment(elf, row->sh_addr, section->size, PF_R);
    const uint32_t flags = PF_R | (section->flags & SHF_WRITE ? PF_W : 0) |
                           (section->flags & SHF_EXECINSTR ? PF_X : 0);
    if (segment == NULL || row->sh_addr != section->offset || segment->flags != flags)
        return REFUSE(error, "section-segment",
                      "section %.40s is in no segment of its offset and flags", name);
    return NOVA_OK;
}

/* Names are used in place: the table must end with a NUL. */
static nova_status elf_read_names(nova_bytes file, const Elf64_Ehdr *header, nova_bytes *names,
                                  nova_error *error)
{
    Elf64_Shdr row;
    if (header->e_shstrndx == 0 || header->e_shstrndx >= header->e_shnum)
        return REFUSE(error, "section-names", "section %u holds no names", header->e_shstrndx);
    memcpy(&row, file.data + header->e_shoff + header->e_shstrndx * sizeof row, sizeof row);
    if (row.sh_type != SHT_STRTAB || !nova_fits(row.sh_offset, row.sh_size, file.size) ||
        row.sh_size == 0 || file.data[row.sh_offset + row.sh_size - 1] != '\0')
        return REFUSE(error, "section-names", "the names have no bounds or no end");
    *names = (nova_bytes){file.data + row.sh_offset, row.sh_size};
    return NOVA_OK;
}

static nova_status elf_check_overlaps(const Elf64_Ehdr *header, const nova_elf *elf,
                                      nova_error *error)
{
    nova_section parts[NOVA_MAX_SECTIONS + 3] = {
        {.name = "ELF header", .offset = 0, .size = sizeof *header},
        {.name = "program headers",
         .offset = header->e_phoff,
         .size = header->e_phnum * sizeof(Elf64_Phdr)},
        {.name = "section headers",
         .offset = header->e_shoff,
         .size = header->e_shnum * sizeof(Elf64_Shdr)},
    };
    size_t count = 3;
    for (size_t i = 0; i < elf->section_count; i++)
        if (elf->sections[i].kind != SHT_NOBITS && elf->sections[i].size > 0)
            parts[count++] = elf->sections[i];
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < i; k++)
            if (parts[i].offset < parts[k].offset + parts[k].size &&
                parts[k].offset < parts[i].offset + parts[i].size)
                return REFUSE(error, "section-overlap", "%.40s and %.40s overlap", parts[k].name,
                              parts[i].name);
    return NOVA_OK;
}

static nova_status elf_read_sections(nova_bytes file, const Elf64_Ehdr *header, nova_elf *elf,
                                     nova_error *error)
{
    uint64_t size = (uint64_t)header->e_shnum * sizeof(Elf64_Shdr);
    if (header->e_shnum < 1 || header->e_shnum > NOVA_MAX_SECTIONS + 1 ||
        !nova_fits(header->e_shoff, size, file.size))
        return REFUSE(error, "elf-sections",
                      "%u section headers at %#" PRIx64
                      ": the file is truncated, or not a Nova file",
                      header->e_shnum, header->e_shoff);
    elf_extend(elf, header->e_shoff, size);
    nova_bytes names = {NULL, 0};
    nova_status status = elf_read_names(file, header, &names, error);
    for (size_t i = 1; status == NOVA_OK && i < header->e_shnum; i++) {
        Elf64_Shdr row;
        memcpy(&row, file.data + header->e_shoff + i * sizeof row, sizeof row);
        if (row.sh_name >= names.size)
            return REFUSE(error, "section-names", "section %zu has no name", i);
        uint64_t length = names.size - row.sh_name;
        if (memchr(names.data + row.sh_name, '\0', length < MOST_NAME ? length : MOST_NAME) == NULL)
            return REFUSE(error, "section-names", "the name of section %zu is too long", i);
        nova_section *section = &elf->sections[elf->section_count];
        *section = (nova_section){.name = (const char *)names.data + row.sh_name,
                                  .vaddr = row.sh_flags & SHF_ALLOC ? row.sh_addr : 0,
                                  .offset = row.sh_offset,
                                  .size = row.sh_size,
                                  .flags = row.sh_flags,
                                  .kind = row.sh_type};
        if (nova_elf_section(elf, section->name) != NULL)
            return REFUSE(error, "section-names", "two sections are called %.40s", section->name);
        status = elf_check_section(file, elf, section, &row, error);
        if (status == NOVA_OK && section->kind != SHT_NOBITS)
            elf_extend(elf, section->offset, section->size);
        elf->section_count++;
    }
    return status == NOVA_OK ? elf_check_overlaps(header, elf, error) : status;
}

/* --- the whole -------------------------------------------------------------------------------- */

nova_status nova_elf_read_segments(nova_bytes file, nova_elf *elf, nova_error *error)
{
    Elf64_Ehdr header;
    *elf = (nova_elf){0};
    nova_status status = elf_read_header(file, &header, error);
    elf->machine = status == NOVA_OK ? header.e_machine : 0;
    return status == NOVA_OK ? elf_read_segments(file, &header, elf, error) : status;
}

nova_status nova_elf_read(nova_bytes file, nova_elf *elf, nova_error *error)
{
    nova_status status = nova_elf_read_segments(file, elf, error);
    if (status != NOVA_OK)
        return status;
    Elf64_Ehdr header;
    memcpy(&header, file.data, sizeof header);
    status = elf_read_sections(file, &header, elf, error);
    if (status != NOVA_OK)
        return status;
    static const char *const needed[] = {".nova.manifest", ".nova.tables"};
    for (size_t i = 0; i < 2; i++)
        if (nova_elf_section(elf, needed[i]) == NULL)
            return REFUSE(error, "section-missing", "there is no section %s", needed[i]);
    return NOVA_OK;
}
