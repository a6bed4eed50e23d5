"""The ELF-64 records and numbers that the linker and the reader share.

Nothing comes in; every `elf_*` module takes its structs and constants from here. Names
follow the System V ABI, so that `readelf` output and this file use the same words.
"""

from __future__ import annotations

from struct import Struct

PAGE = 4096
MAGIC = b"\x7fELF"
IDENT = MAGIC + bytes([2, 1, 1]) + bytes(9)  # 64-bit, little endian, version 1, System V

EHDR = Struct("<16sHHIQQQIHHHHHH")
SHDR = Struct("<IIQQQQIIQQ")
PHDR = Struct("<IIQQQQQQ")
SYM = Struct("<IBBHQQ")
RELA = Struct("<QQq")
DYN = Struct("<qQ")

ET_REL, ET_DYN = 1, 3
EM_X86_64, EM_AARCH64 = 62, 183

SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_HASH, SHT_DYNAMIC = 1, 2, 3, 4, 5, 6
SHT_NOTE, SHT_NOBITS, SHT_REL, SHT_DYNSYM = 7, 8, 9, 11
SHT_INIT_ARRAY, SHT_FINI_ARRAY, SHT_PREINIT_ARRAY = 14, 15, 16
SHT_X86_64_UNWIND = 0x70000001
SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR, SHF_INFO_LINK, SHF_TLS = 1, 2, 4, 0x40, 0x400

SHN_UNDEF, SHN_LORESERVE, SHN_ABS, SHN_COMMON = 0, 0xFF00, 0xFFF1, 0xFFF2

STB_LOCAL, STB_GLOBAL, STB_WEAK = 0, 1, 2
STT_NOTYPE, STT_OBJECT, STT_FUNC, STT_SECTION, STT_FILE = 0, 1, 2, 3, 4
STT_TLS, STT_GNU_IFUNC = 6, 10

PT_LOAD, PT_DYNAMIC, PT_PHDR = 1, 2, 6
PT_GNU_STACK, PT_GNU_RELRO = 0x6474E551, 0x6474E552
PF_X, PF_W, PF_R = 1, 2, 4

DT_NULL, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELASZ, DT_RELAENT = 0, 4, 5, 6, 7, 8, 9
DT_STRSZ, DT_SYMENT, DT_RELACOUNT = 10, 11, 0x6FFFFFF9

R_NONE, R_64, R_PC32, R_PLT32, R_RELATIVE, R_GOTPCREL, R_PC64 = 0, 1, 2, 4, 8, 9, 24
R_GOTPCRELX, R_REX_GOTPCRELX, R_CODE_4_GOTPCRELX = 41, 42, 43
R_32, R_32S = 10, 11

RELOCATION_NAMES = {
    R_NONE: "R_X86_64_NONE",
    R_64: "R_X86_64_64",
    R_PC32: "R_X86_64_PC32",
    3: "R_X86_64_GOT32",
    R_PLT32: "R_X86_64_PLT32",
    R_GOTPCREL: "R_X86_64_GOTPCREL",
    R_32: "R_X86_64_32",
    R_32S: "R_X86_64_32S",
    19: "R_X86_64_TLSGD",
    20: "R_X86_64_TLSLD",
    22: "R_X86_64_GOTTPOFF",
    23: "R_X86_64_TPOFF32",
    R_PC64: "R_X86_64_PC64",
    25: "R_X86_64_GOTOFF64",
    26: "R_X86_64_GOTPC32",
    R_GOTPCRELX: "R_X86_64_GOTPCRELX",
    R_REX_GOTPCRELX: "R_X86_64_REX_GOTPCRELX",
    R_CODE_4_GOTPCRELX: "R_X86_64_CODE_4_GOTPCRELX",
}


def align_up(value: int, alignment: int) -> int:
    """The least multiple of `alignment` (a power of two) that is at least `value`."""
    return (value + alignment - 1) & -alignment


def cut_string(table: bytes, offset: int) -> bytes | None:
    """The zero-terminated string at `offset` of a string table; None when it has no end."""
    if offset >= len(table):
        return None
    end = table.find(b"\0", offset)
    return None if end < 0 else table[offset:end]
