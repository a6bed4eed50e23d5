/* A .nova file as the dynamic linker would have mapped it, made by hand: for the tests of what runs
 * inside of a file. The program, with a kernel per line:
 *
 *     y = x + w           x f32[2,3,4], w f32[4], whose value {10, 20, 30, 40} is in the file
 *     s += 1              s f64[], donated
 *     d = d + d           d i32[2,3], donated
 *     outputs: y, s, d, and e f32[0,5], which nobody writes; e is an argument as well */
#ifndef NOVA_TESTS_MAPPED_H
#define NOVA_TESTS_MAPPED_H

#include <elf.h>
#include <stdatomic.h>

#include "block.h"

enum { ARGUMENTS = 5, OUTPUTS = 4, SCRATCH = 128 };

static inline void add_rows(void *const *buffers, int64_t begin, int64_t end)
{
    const float *x = buffers[0], *w = buffers[1];
    float *t = buffers[2], *y = buffers[3];
    for (int64_t row = begin; row < end; row++)
        for (int i = 0; i < 4; i++) {
            t[4 * row + i] = x[4 * row + i] + w[i]; /* a shared workspace would show */
            y[4 * row + i] = t[4 * row + i];
        }
}

/* A test sets `hold` to keep runs in the middle of their work, and reads `entered`. */
static atomic_bool hold, entered;

static inline void add_one(void *const *buffers, int64_t begin, int64_t end)
{
    (void)begin;
    (void)end;
    atomic_store(&entered, true);
    while (atomic_load(&hold))
        (void)usleep(100);
    *(double *)buffers[0] += 1;
}

static inline void add_self(void *const *buffers, int64_t begin, int64_t end)
{
    int32_t *d = buffers[0];
    for (int64_t i = begin; i < end; i++)
        d[i] += d[i];
}

#if defined(__x86_64__)
#define TEST_ARCH "x86_64"
#define TEST_MACHINE EM_X86_64
#else
#define TEST_ARCH "aarch64"
#define TEST_MACHINE EM_AARCH64
#endif

#define TENSOR(alias, donated, dtype, name, role, shape)                                           \
    "{\"alias\":" alias ",\"donated\":" donated ",\"dtype\":\"" dtype "\",\"name\":\"" name        \
    "\",\"role\":\"" role "\",\"shape\":[" shape "]}"

/* `features` is the inside of a JSON list. */
static inline size_t write_manifest(char *text, size_t size, const char *features,
                                    size_t tables_size)
{
    /* clang-format off */
    int length = snprintf(
        text, size,
        "{\"arch\":\"" TEST_ARCH "\",\"args\":["
        TENSOR("-1", "false", "f32", "x", "input", "2,3,4") ","
        TENSOR("-1", "true", "f64", "s", "input", "") ","
        TENSOR("-1", "true", "i32", "d", "input", "2,3") ","
        TENSOR("-1", "false", "f32", "e", "input", "0,5") ","
        TENSOR("-1", "false", "f32", "w", "param", "4")
        "],\"devices\":[],\"format_version\":2,\"key\":{},\"outputs\":["
        TENSOR("-1", "false", "f32", "y", "output", "2,3,4") ","
        TENSOR("1", "false", "f64", "s", "output", "") ","
        TENSOR("2", "false", "i32", "d", "output", "2,3") ","
        TENSOR("-1", "false", "f32", "e", "output", "0,5")
        "],\"producer\":\"test\",\"source\":\"\",\"variants\":[{\"constants\":[0,0],\"cpu\":\"\","
        "\"features\":[%s],\"options\":{},\"tables\":[0,%zu],\"target\":\"" TEST_ARCH "\"}],"
        "\"weights\":{\"kind\":\"embedded\",\"sha256\":\"\",\"tensors\":[{\"arg\":4,\"nbytes\":16,"
        "\"offset\":0}]}}",
        features, tables_size);
    /* clang-format on */
    CHECK(length > 0 && (size_t)length < size);
    return (size_t)length;
}

static inline size_t write_tables(unsigned char *block, uint64_t code)
{
    const nova_buffer buffers[] = {
        {NOVA_ARGUMENT, 0, 0, 96}, {NOVA_ARGUMENT, 0, 4, 16}, {NOVA_WORKSPACE, 0, 0, 96},
        {NOVA_OUTPUT, 0, 0, 96},   {NOVA_OUTPUT, 0, 1, 8},    {NOVA_ARGUMENT, 0, 2, 24},
    };
    const nova_kernel_record kernels[] = {{.code = code, .grid = 6},
                                          {.code = code + CODE_SIZE, .grid = 1},
                                          {.code = code + 2 * CODE_SIZE, .grid = 6}};
    const nova_launch_record launches[] = {{0, 0, 4, 0}, {1, 4, 1, 0}, {2, 5, 1, 0}};
    const uint32_t operands[] = {0, 1, 2, 3, 4, 5};
    const parts parts = {buffers, 6, kernels, 3, launches, 3, operands, 6, SCRATCH, 0};
    return write_block(&parts, block);
}

/* Pages: header, code, and data. Stays mapped. */
static inline nova_mapped map_file(const char *features)
{
    static const nova_kernel functions[] = {add_rows, add_one, add_self};
    static const float weights[] = {10, 20, 30, 40};
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), data_size = 16 * page;
    unsigned char *file = mmap(NULL, 2 * page + data_size, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(file != MAP_FAILED);
    Elf64_Ehdr header = {
        .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
        .e_type = ET_DYN,
        .e_machine = TEST_MACHINE,
        .e_version = EV_CURRENT,
        .e_phoff = sizeof header,
        .e_ehsize = sizeof header,
        .e_phentsize = sizeof(Elf64_Phdr),
        .e_phnum = 5,
        .e_shentsize = sizeof(Elf64_Shdr)};
    const Elf64_Phdr segments[] = {
        {PT_LOAD, PF_R, 0, 0, 0, page, page, page},
        {PT_LOAD, PF_R | PF_X, page, page, page, page, page, page},
        {PT_LOAD, PF_R, 2 * page, 2 * page, 2 * page, data_size, data_size, page},
        {PT_DYNAMIC, PF_R, 512, 512, 512, 16, 16, 8},
        {PT_GNU_STACK, PF_R | PF_W, 0, 0, 0, 0, 0, 16},
    };
    memcpy(file, &header, sizeof header);
    memcpy(file + sizeof header, segments, sizeof segments);
    for (size_t i = 0; i < 3; i++)
        write_jump(file + page + i * CODE_SIZE, functions[i]);
    unsigned char *tables = file + 2 * page;
    size_t tables_size = write_tables(tables, page);
    unsigned char *values = tables + BLOCK_SIZE;
    memcpy(values, weights, sizeof weights);
    char *manifest = (char *)values + 64;
    size_t manifest_size =
        write_manifest(manifest, data_size - BLOCK_SIZE - 64, features, tables_size);
    CHECK(mprotect(file, 2 * page + data_size, PROT_READ) == 0);
    CHECK(mprotect(file + page, page, PROT_READ | PROT_EXEC) == 0);
    return (nova_mapped){.start = file,
                         .manifest = manifest,
                         .manifest_size = manifest_size,
                         .tables = tables,
                         .tables_size = tables_size,
                         .constants = file,
                         .weights = values,
                         .weights_size = sizeof weights};
}

#endif
