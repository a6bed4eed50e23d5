"""The ELF-64 records and constants that are the same on every machine.

All modules of this folder take their structs and constants from here. Names follow the System V
gABI, so that `readelf` output and this file use the same words.
"""

from __future__ import annotations

from struct import Struct

import numpy as np

MAGIC = b"\x7fELF"
IDENT = MAGIC + bytes([2, 1, 1]) + bytes(9)  # 64-bit, little endian, version 1, System V

EHDR = Struct("<16sHHIQQQIHHHHHH")
SHDR = Struct("<IIQQQQIIQQ")
PHDR = Struct("<IIQQQQQQ")
DYN = Struct("<qQ")

# There are thousands of symbols and relocations: they are arrays.
SYM = np.dtype(
    [
        ("name", "<u4"),
        ("info", "u1"),
        ("other", "u1"),
        ("section", "<u2"),
        ("value", "<u8"),
        ("size", "<u8"),
    ]
)
RELA = np.dtype([("offset", "<u8"), ("kind", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])

ET_REL, ET_DYN = 1, 3

SHT_NULL, SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_HASH, SHT_DYNAMIC = range(7)
SHT_NOTE, SHT_NOBITS, SHT_REL, SHT_DYNSYM = 7, 8, 9, 11
SHT_INIT_ARRAY, SHT_FINI_ARRAY, SHT_PREINIT_ARRAY = 14, 15, 16
SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR, SHF_TLS = 1, 2, 4, 0x400

SHN_UNDEF, SHN_LORESERVE, SHN_ABS, SHN_COMMON = 0, 0xFF00, 0xFFF1, 0xFFF2

STB_LOCAL, STB_GLOBAL, STB_WEAK = 0, 1, 2
STT_NOTYPE, STT_OBJECT, STT_FUNC = 0, 1, 2
STT_TLS, STT_GNU_IFUNC = 6, 10
STV_DEFAULT = 0

PT_LOAD, PT_DYNAMIC = 1, 2
PT_GNU_STACK, PT_GNU_RELRO = 0x6474E551, 0x6474E552
PF_X, PF_W, PF_R = 1, 2, 4

DT_NULL, DT_NEEDED, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELASZ, DT_RELAENT = (
    0, 1, 4, 5, 6, 7, 8, 9,
)  # fmt: skip
DT_STRSZ, DT_SYMENT, DT_FLAGS, DT_FLAGS_1, DT_RELACOUNT = 10, 11, 30, 0x6FFFFFFB, 0x6FFFFFF9
DF_BIND_NOW, DF_1_NOW, DF_1_NODELETE = 8, 1, 8


def cut_string(table: bytes, offset: int) -> bytes | None:
    """The NUL-terminated string at `offset` of a string table; None if it is unterminated."""
    if offset >= len(table):
        return None
    end = table.find(b"\0", offset)
    return None if end < 0 else table[offset:end]
