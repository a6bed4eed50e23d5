#include "loader/reader.h"

/* Sorted. The linker (nova/artifact) reads the names from here. They are bound without a
 * version, which selects the oldest: a function with a changed meaning (pthread_cond_*) must not
 * be listed. */
static const char *const IMPORTS_NAMES[] = {
    "__errno_location",
    "aligned_alloc",
    "calloc",
    "clock_gettime",
    "close",
    "dlerror",
    "dlopen",
    "dlsym",
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
};

enum { COUNT = sizeof IMPORTS_NAMES / sizeof *IMPORTS_NAMES };

bool nova_import_allowed(const char *name)
{
    size_t low = 0, high = COUNT;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strcmp(name, IMPORTS_NAMES[middle]);
        if (order == 0)
            return true;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return false;
}

const char *nova_import_name(size_t i)
{
    return i < COUNT ? IMPORTS_NAMES[i] : NULL;
}
