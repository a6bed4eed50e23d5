/* Checks of the dynamic section, symbols and relocations: they may not run code or name other
 * files. */
#define _POSIX_C_SOURCE 200809L /* strnlen */

#include <elf.h>
#include <inttypes.h>

#include "loader/reader.h"

enum { MOST_NAME = 4096 };

/* The tables that the dynamic section points at are located by their sections; both must agree, so
 * that the checked tables are those that the dynamic linker would use. */
typedef struct {
    nova_bytes file;
    const nova_elf *elf;
    nova_arena *arena;
    nova_error *error;
    const nova_section *hash, *symbols, *strings, *relocations; /* the last one may be NULL */
    uint64_t symbol_count, relocation_count;
    uint32_t *imported; /* by symbol: whether it is an import */
} reader;

static nova_status dynamic_out_of_memory(const reader *r)
{
    return nova_fail(r->error, NOVA_OUT_OF_MEMORY, "", "no memory for the symbols");
}

static const char *dynamic_string_at(const reader *r, uint64_t offset)
{
    return offset < r->strings->size ? (const char *)r->file.data + r->strings->offset + offset
                                     : NULL;
}

/* --- the dynamic section ---------------------------------------------------------------------- */

static nova_status dynamic_find_table(const reader *r, const char *name, uint32_t type,
                                      uint64_t entry, const nova_section **table)
{
    *table = nova_elf_section(r->elf, name);
    if (*table == NULL || (*table)->kind != type || !((*table)->flags & SHF_ALLOC) ||
        (*table)->size == 0 || (*table)->size % entry != 0)
        return REFUSE(r->error, "dynamic-tables",
                      "section %s is missing, or is not a table of its kind", name);
    return NOVA_OK;
}

static nova_status dynamic_find_tables(reader *r)
{
    const nova_section *dynamic;
    nova_status status =
        dynamic_find_table(r, ".dynamic", SHT_DYNAMIC, sizeof(Elf64_Dyn), &dynamic);
    if (status == NOVA_OK &&
        (dynamic->offset != r->elf->dynamic_offset || dynamic->size != r->elf->dynamic_size))
        status = REFUSE(r->error, "dynamic-tables", "header and section .dynamic do not agree");
    if (status == NOVA_OK)
        status = dynamic_find_table(r, ".hash", SHT_HASH, sizeof(uint32_t), &r->hash);
    if (status == NOVA_OK)
        status = dynamic_find_table(r, ".dynsym", SHT_DYNSYM, sizeof(Elf64_Sym), &r->symbols);
    if (status == NOVA_OK)
        status = dynamic_find_table(r, ".dynstr", SHT_STRTAB, 1, &r->strings);
    if (status == NOVA_OK && nova_elf_section(r->elf, ".rela.dyn") != NULL)
        status = dynamic_find_table(r, ".rela.dyn", SHT_RELA, sizeof(Elf64_Rela), &r->relocations);
    if (status != NOVA_OK)
        return status;
    if (*dynamic_string_at(r, r->strings->size - 1) != '\0')
        return REFUSE(r->error, "symbol-name", "the names have no end");
    r->symbol_count = r->symbols->size / sizeof(Elf64_Sym);
    r->relocation_count = r->relocations ? r->relocations->size / sizeof(Elf64_Rela) : 0;
    return NOVA_OK;
}

/* What a tag of the dynamic section must say; `is_known` is false for tags that Nova does not
 * write. */
static bool dynamic_expected_value(const reader *r, int64_t tag, uint64_t value, bool *is_known)
{
    *is_known = true;
    switch (tag) {
    case DT_HASH:
        return value == r->hash->vaddr;
    case DT_STRTAB:
        return value == r->strings->vaddr;
    case DT_SYMTAB:
        return value == r->symbols->vaddr;
    case DT_STRSZ:
        return value == r->strings->size;
    case DT_SYMENT:
        return value == sizeof(Elf64_Sym);
    case DT_RELA:
        return r->relocations != NULL && value == r->relocations->vaddr;
    case DT_RELASZ:
        return r->relocations != NULL && value == r->relocations->size;
    case DT_RELAENT:
        return value == sizeof(Elf64_Rela);
    case DT_RELACOUNT: /* dynamic_read_relocations checks the types */
        return value <= r->relocation_count;
    case DT_BIND_NOW:
        return true;
    case DT_FLAGS:
        return (value & ~(uint64_t)(DF_BIND_NOW | DF_SYMBOLIC)) == 0;
    case DT_FLAGS_1:
        return (value & ~(uint64_t)(DF_1_NOW | DF_1_NODELETE)) == 0;
    case DT_SONAME:
        return dynamic_string_at(r, value) != NULL;
    case DT_NEEDED:
        return dynamic_string_at(r, value) != NULL &&
               strcmp(dynamic_string_at(r, value), "libc.so.6") == 0;
    default:
        *is_known = false;
        return false;
    }
}

static const char *dynamic_check_name(int64_t tag, bool is_known)
{
    switch (tag) {
    case DT_NEEDED:
        return "dynamic-needed";
    case DT_RPATH:
    case DT_RUNPATH:
        return "dynamic-runpath";
    case DT_INIT:
    case DT_FINI:
    case DT_INIT_ARRAY:
    case DT_FINI_ARRAY:
    case DT_PREINIT_ARRAY:
    case DT_INIT_ARRAYSZ:
    case DT_FINI_ARRAYSZ:
    case DT_PREINIT_ARRAYSZ:
        return "dynamic-initializer";
    default:
        return is_known ? "dynamic-tables" : "dynamic-tag";
    }
}

static nova_status dynamic_check(const reader *r, uint64_t *relative)
{
    enum { MOST_ENTRIES = 64 };
    static const int64_t needed[] = {DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT};
    static const int64_t with_relocations[] = {DT_RELA, DT_RELASZ, DT_RELAENT};
    int64_t tags[MOST_ENTRIES];
    size_t count = 0;
    uint64_t rows = r->elf->dynamic_size / sizeof(Elf64_Dyn);
    *relative = 0;
    for (uint64_t i = 0;; i++) {
        Elf64_Dyn row;
        if (i == rows || count == MOST_ENTRIES)
            return REFUSE(r->error, "dynamic-tables", "the dynamic section has no end");
        memcpy(&row, r->file.data + r->elf->dynamic_offset + i * sizeof row, sizeof row);
        if (row.d_tag == DT_NULL)
            break;
        bool is_known, right = dynamic_expected_value(r, row.d_tag, row.d_un.d_val, &is_known);
        for (size_t k = 0; k < count; k++)
            right = right && tags[k] != row.d_tag;
        if (!right)
            return REFUSE(r->error, dynamic_check_name(row.d_tag, is_known),
                          "entry %" PRIu64 " of the dynamic section: tag %#" PRIx64
                          " with value %#" PRIx64,
                          i, (uint64_t)row.d_tag, (uint64_t)row.d_un.d_val);
        tags[count++] = row.d_tag;
        if (row.d_tag == DT_RELACOUNT)
            *relative = row.d_un.d_val;
    }
    size_t table_count = 0, expected = 5 + (r->relocations != NULL ? 3 : 0);
    for (size_t k = 0; k < count; k++) {
        for (size_t i = 0; i < 5; i++)
            table_count += tags[k] == needed[i];
        for (size_t i = 0; r->relocations != NULL && i < 3; i++)
            table_count += tags[k] == with_relocations[i];
    }
    if (table_count != expected)
        return REFUSE(r->error, "dynamic-tables", "the dynamic section does not name all tables");
    return NOVA_OK;
}

/* --- symbols ---------------------------------------------------------------------------------- */

static bool dynamic_is_loaded(const nova_elf *elf, uint64_t vaddr, uint64_t size)
{
    for (size_t i = 0; i < elf->segment_count; i++) {
        const nova_segment *segment = &elf->segments[i];
        if (vaddr >= segment->vaddr && nova_fits(vaddr - segment->vaddr, size, segment->mem_size))
            return true;
    }
    return false;
}

static nova_status dynamic_check_symbol(reader *r, uint64_t index, const Elf64_Sym *row,
                                        const char **name)
{
    unsigned type = ELF64_ST_TYPE(row->st_info), bind = ELF64_ST_BIND(row->st_info);
    *name = dynamic_string_at(r, row->st_name);
    if (*name == NULL || **name == '\0' || strnlen(*name, MOST_NAME) == MOST_NAME)
        return REFUSE(r->error, "symbol-name", "symbol %" PRIu64 " has no name of its own", index);
    if ((type != STT_NOTYPE && type != STT_OBJECT && type != STT_FUNC) ||
        (bind != STB_GLOBAL && bind != STB_WEAK))
        return REFUSE(r->error, "symbol-kind", "symbol %.80s has kind %u and binding %u", *name,
                      type, bind);
    if (row->st_shndx == SHN_UNDEF) {
        if (!nova_import_allowed(*name))
            return REFUSE(r->error, "symbol-import", "function %.80s may not be imported", *name);
        return NOVA_OK;
    }
    if (row->st_shndx > r->elf->section_count ||
        !dynamic_is_loaded(r->elf, row->st_value, row->st_size))
        return REFUSE(r->error, "symbol-address", "symbol %.80s at %#" PRIx64 " is not loaded",
                      *name, (uint64_t)row->st_value);
    return NOVA_OK;
}

static nova_status dynamic_read_symbols(reader *r, nova_dynamic *dynamic)
{
    nova_symbol *symbols = nova_arena_take(r->arena, r->symbol_count, sizeof *symbols);
    const char **imports = nova_arena_take(r->arena, r->symbol_count, sizeof *imports);
    r->imported = nova_arena_take(r->arena, r->symbol_count, sizeof *r->imported);
    uint64_t named = 0; /* bytes of names so far */
    if (symbols == NULL || imports == NULL || r->imported == NULL)
        return dynamic_out_of_memory(r);
    for (uint64_t i = 0; i < r->symbol_count; i++) {
        Elf64_Sym row;
        const char *name;
        memcpy(&row, r->file.data + r->symbols->offset + i * sizeof row, sizeof row);
        if (i == 0) {
            static const Elf64_Sym empty;
            if (memcmp(&row, &empty, sizeof row) != 0)
                return REFUSE(r->error, "symbol-table", "the first symbol is not empty");
            continue;
        }
        nova_status status = dynamic_check_symbol(r, i, &row, &name);
        if (status != NOVA_OK)
            return status;
        /* Who copies all names takes no more memory than the file has. */
        named += strlen(name) + 1;
        if (named > r->strings->size)
            return REFUSE(r->error, "symbol-name", "symbol %" PRIu64 " shares its name", i);
        if (row.st_shndx == SHN_UNDEF) {
            imports[dynamic->import_count++] = name;
            r->imported[i] = 1;
        } else {
            symbols[dynamic->symbol_count++] = (nova_symbol){name, row.st_value};
        }
    }
    dynamic->symbols = symbols;
    dynamic->imports = imports;
    return NOVA_OK;
}

static uint32_t dynamic_hash_word(const reader *r, uint64_t index)
{
    uint32_t word;
    memcpy(&word, r->file.data + r->hash->offset + index * sizeof word, sizeof word);
    return word;
}

/* The chains of the hash table must stay inside and end: else a lookup would read on, or hang. */
static nova_status dynamic_check_hash(const reader *r)
{
    uint64_t words = r->hash->size / sizeof(uint32_t);
    uint64_t buckets = words >= 2 ? dynamic_hash_word(r, 0) : 0,
             chains = words >= 2 ? dynamic_hash_word(r, 1) : 0;
    if (buckets == 0 || chains != r->symbol_count || words != 2 + buckets + chains)
        return REFUSE(r->error, "symbol-hash", "the hash table has another size");
    uint64_t steps = 0;
    for (uint64_t i = 0; i < buckets; i++) {
        for (uint64_t at = dynamic_hash_word(r, 2 + i); at != 0;
             at = dynamic_hash_word(r, 2 + buckets + at))
            if (at >= chains || ++steps >= chains)
                return REFUSE(r->error, "symbol-hash", "a chain of the hash table has no end");
    }
    return NOVA_OK;
}

/* --- relocations ------------------------------------------------------------------------------ */

static nova_status dynamic_read_relocations(const reader *r, uint64_t relative,
                                            nova_dynamic *dynamic)
{
    bool x86 = r->elf->machine == EM_X86_64;
    const uint32_t relative_type = x86 ? R_X86_64_RELATIVE : R_AARCH64_RELATIVE;
    const uint32_t slot_kinds[] = {x86 ? R_X86_64_GLOB_DAT : R_AARCH64_GLOB_DAT,
                                   x86 ? R_X86_64_JUMP_SLOT : R_AARCH64_JUMP_SLOT};
    const nova_segment *last = &r->elf->segments[r->elf->segment_count - 1];
    nova_relocation *list = nova_arena_take(r->arena, r->relocation_count, sizeof *list);
    if (list == NULL)
        return dynamic_out_of_memory(r);
    for (uint64_t i = 0; i < r->relocation_count; i++) {
        Elf64_Rela row;
        memcpy(&row, r->file.data + r->relocations->offset + i * sizeof row, sizeof row);
        uint64_t symbol = ELF64_R_SYM(row.r_info);
        uint32_t type = (uint32_t)ELF64_R_TYPE(row.r_info);
        bool is_relative = type == relative_type;
        if ((!is_relative && (i < relative || (type != slot_kinds[0] && type != slot_kinds[1]))))
            return REFUSE(r->error, "relocation-kind", "relocation %" PRIu64 " is of kind %u", i,
                          type);
        if (nova_elf_segment(r->elf, row.r_offset, sizeof(uint64_t), PF_W) == NULL)
            return REFUSE(r->error, "relocation-place",
                          "relocation %" PRIu64 " writes at %#" PRIx64, i, (uint64_t)row.r_offset);
        if (is_relative) {
            if (symbol != 0 || (uint64_t)row.r_addend > last->vaddr + last->mem_size)
                return REFUSE(r->error, "relocation-target",
                              "relocation %" PRIu64 " points at %#" PRIx64, i,
                              (uint64_t)row.r_addend);
            list[dynamic->relocation_count++] =
                (nova_relocation){row.r_offset, (uint64_t)row.r_addend, true};
        } else if (symbol >= r->symbol_count || !r->imported[symbol] || row.r_addend != 0) {
            return REFUSE(r->error, "relocation-target",
                          "relocation %" PRIu64 " names symbol %" PRIu64 ", which is not an import",
                          i, symbol);
        }
    }
    dynamic->relocations = list;
    return NOVA_OK;
}

nova_status nova_dynamic_check(nova_bytes file, const nova_elf *elf, nova_arena *arena,
                               nova_dynamic *dynamic, nova_error *error)
{
    reader r = {.file = file, .elf = elf, .arena = arena, .error = error};
    uint64_t relative;
    *dynamic = (nova_dynamic){0};
    nova_status status = dynamic_find_tables(&r);
    if (status == NOVA_OK)
        status = dynamic_check(&r, &relative);
    if (status == NOVA_OK)
        status = dynamic_read_symbols(&r, dynamic);
    if (status == NOVA_OK)
        status = dynamic_check_hash(&r);
    if (status == NOVA_OK)
        status = dynamic_read_relocations(&r, relative, dynamic);
    return status;
}
