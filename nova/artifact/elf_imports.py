"""The names that the runtime inside of a file may use without defining them.

`elf_read` and `elf_symbols` ask here. Everything else that is undefined is a `CodegenError`.
"""

from __future__ import annotations

# Functions of the C library. The reader (native/src/imports.c) refuses a file that names another,
# and a test compares the lists. Names are bound without a version, which gives the oldest one: a
# function whose meaning changed since then must not be here.
IMPORTS = frozenset(
    (
        "__errno_location",
        "aligned_alloc",
        "calloc",
        "clock_gettime",
        "close",
        "fcntl",
        "free",
        "fstat",
        "ftruncate",
        "getauxval",
        "getenv",
        "getpid",
        "madvise",
        "malloc",
        "memchr",
        "memcmp",
        "memcpy",
        "memfd_create",
        "memmove",
        "memset",
        "mmap",
        "mprotect",
        "munmap",
        "nanosleep",
        "open",
        "posix_memalign",
        "pread",
        "pthread_create",
        "pthread_getspecific",
        "pthread_join",
        "pthread_key_create",
        "pthread_mutex_destroy",
        "pthread_mutex_init",
        "pthread_mutex_lock",
        "pthread_mutex_unlock",
        "pthread_once",
        "pthread_setspecific",
        "pthread_sigmask",
        "qsort",
        "realloc",
        "sched_yield",
        "sigfillset",
        "snprintf",
        "strchr",
        "strcmp",
        "strerror_r",
        "strlen",
        "strncmp",
        "strnlen",
        "strspn",
        "syscall",
        "sysconf",
        "vsnprintf",
    )
)

MARKED_SECTIONS = ("manifest", "tables", "const", "weights", "device")

IMAGE_START = "nova_image_start"

MARKERS = frozenset(
    (
        IMAGE_START,
        *(f"nova_section_{name}_{end}" for name in MARKED_SECTIONS for end in ("begin", "end")),
    )
)
"""What the linker itself defines: the ELF header, and both ends of the sections `.nova.*`, which
are equal (and at the header) when the file has no such section."""
