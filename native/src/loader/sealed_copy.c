/* Copies the bytes of a file into immutable memory. */
#define _GNU_SOURCE /* memfd_create, strerror_r */

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/reader.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif

/* From this size on a file is stored in a memfd, whose pages images share. Below it copying is as
 * fast, and a process with many small programs needs no file descriptors. */
enum { SHARE_SIZE = 1 << 20 };

#define MOST_BYTES (UINT64_C(1) << 40)

/* Keeps errno for the caller. */
static nova_status sealed_system_error(nova_error *error, const char *action)
{
    int number = errno;
    char text[128];
    (void)nova_fail(error, number == ENOMEM ? NOVA_OUT_OF_MEMORY : NOVA_SYSTEM_ERROR, "open-failed",
                    "%s: %s", action, strerror_r(number, text, sizeof text));
    errno = number;
    return number == ENOMEM ? NOVA_OUT_OF_MEMORY : NOVA_SYSTEM_ERROR;
}

static nova_status sealed_read_all(int source, char *memory, uint64_t size, nova_error *error)
{
    for (uint64_t offset = 0; offset < size;) {
        ssize_t count = pread(source, memory + offset, (size_t)(size - offset), (off_t)offset);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return sealed_system_error(error, "the file cannot be read");
        if (count == 0)
            return REFUSE(error, "open-size", "the file became shorter while it was read");
        offset += (uint64_t)count;
    }
    return NOVA_OK;
}

/* A memfd of `size` bytes; -1 if the system has none. */
static int sealed_make_memfd(uint64_t size)
{
    int fd = memfd_create("nova", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
        fd = memfd_create("nova", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && ftruncate(fd, (off_t)size) != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

/* Fills the memfd and seals it; sealing requires that the writable mapping is unmapped first. The
 * flag tells whether the memfd failed: plain memory is used then. */
static nova_status sealed_copy_to_memfd(nova_copy *copy, int source, bool *unusable,
                                        nova_error *error)
{
    size_t size = (size_t)copy->size;
    *unusable = true;
    copy->fd = sealed_make_memfd(size);
    void *memory = copy->fd < 0 ? MAP_FAILED
                                : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, copy->fd, 0);
    if (memory == MAP_FAILED)
        return NOVA_SYSTEM_ERROR;
    nova_status status = sealed_read_all(source, memory, size, error);
    (void)munmap(memory, size);
    *unusable = status == NOVA_OK;
    if (status != NOVA_OK)
        return status;
    if (fcntl(copy->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) != 0)
        return NOVA_SYSTEM_ERROR;
    memory = mmap(NULL, size, PROT_READ, MAP_PRIVATE, copy->fd, 0);
    if (memory == MAP_FAILED)
        return NOVA_SYSTEM_ERROR;
    copy->data = memory;
    return NOVA_OK;
}

/* Memory of this process alone, read-only. */
static nova_status sealed_copy_to_memory(nova_copy *copy, int source, const void *data,
                                         nova_error *error)
{
    size_t size = (size_t)copy->size;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return sealed_system_error(error, "no memory for the file");
    nova_status status = NOVA_OK;
    if (data != NULL)
        memcpy(memory, data, size);
    else
        status = sealed_read_all(source, memory, size, error);
    if (status == NOVA_OK && mprotect(memory, size, PROT_READ) != 0)
        status = sealed_system_error(error, "the file's memory cannot be protected");
    if (status != NOVA_OK) {
        (void)munmap(memory, size);
        return status;
    }
    copy->data = memory;
    return NOVA_OK;
}

static nova_status sealed_copy_file(nova_copy *copy, int source, nova_error *error)
{
    struct stat info;
    if (fstat(source, &info) != 0)
        return sealed_system_error(error, "the file cannot be inspected");
    if (!S_ISREG(info.st_mode))
        return REFUSE(error, "open-kind", "not a regular file");
    if (info.st_size <= 0)
        return REFUSE(error, "open-empty", "the file is empty");
    if ((uint64_t)info.st_size > MOST_BYTES)
        return REFUSE(error, "open-size", "%lld bytes are too many", (long long)info.st_size);
    copy->size = (uint64_t)info.st_size;
    bool unusable = true;
    nova_status status = NOVA_SYSTEM_ERROR;
    if (info.st_size >= SHARE_SIZE) {
        char magic[SELFMAG]; /* a foreign file of many gigabytes is not copied */
        status = sealed_read_all(source, magic, sizeof magic, error);
        if (status == NOVA_OK && memcmp(magic, ELFMAG, sizeof magic) != 0)
            status = REFUSE(error, "elf-magic", "not an ELF file");
        if (status != NOVA_OK)
            return status;
        status = sealed_copy_to_memfd(copy, source, &unusable, error);
    }
    if (status != NOVA_OK && unusable) {
        if (copy->fd >= 0)
            (void)close(copy->fd);
        copy->fd = -1;
        status = sealed_copy_to_memory(copy, source, NULL, error);
    }
    return status;
}

nova_status nova_copy_path(nova_copy *copy, const char *path, nova_error *error)
{
    int source;
    do
        source = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    while (source < 0 && errno == EINTR);
    if (source < 0 && errno == ELOOP)
        return REFUSE(error, "open-link", "a cycle of symbolic links");
    if (source < 0 && errno == ENXIO)
        return REFUSE(error, "open-kind", "not a regular file");
    if (source < 0)
        return sealed_system_error(error, "the file cannot be opened");
    nova_status status = sealed_copy_file(copy, source, error);
    int number = errno;
    (void)close(source);
    errno = number;
    return status;
}

nova_status nova_copy_memory(nova_copy *copy, const void *data, size_t size, nova_error *error)
{
    copy->size = size;
    return sealed_copy_to_memory(copy, -1, data, error);
}

void nova_copy_free(nova_copy *copy)
{
    if (copy->data != NULL)
        (void)munmap(copy->data, (size_t)copy->size);
    if (copy->fd >= 0)
        (void)close(copy->fd);
}
