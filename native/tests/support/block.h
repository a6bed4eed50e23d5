/* Blocks of tables for the tests, and an image over the functions of the test itself. */
#ifndef NOVA_TESTS_BLOCK_H
#define NOVA_TESTS_BLOCK_H

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "nova.h"

enum { BLOCK_SIZE = 16384, CODE_SIZE = 16 };

typedef struct {
    const nova_buffer *buffers;
    uint32_t buffer_count;
    const nova_kernel_record *kernels;
    uint32_t kernel_count;
    const nova_launch_record *launches;
    uint32_t launch_count;
    const uint32_t *operands;
    uint32_t operand_count;
    uint64_t workspace_size;
    uint32_t scratch_size;
} parts;

/* Appends an array and pads it to a multiple of 8. */
static inline size_t append(unsigned char *block, size_t at, const void *from, size_t size)
{
    CHECK(at + size + 8 <= BLOCK_SIZE);
    if (size > 0)
        memcpy(block + at, from, size);
    return (at + size + 7) & ~(size_t)7;
}

typedef struct {
    const nova_task *tasks;
    uint32_t task_count;
    const uint32_t *successors;
    uint32_t successor_count;
} graph_parts;

/* Writes a block to 8-byte aligned memory of BLOCK_SIZE bytes; returns its size. */
static inline size_t write_graph_block(const parts *parts, const graph_parts *graph,
                                       unsigned char *block)
{
    memset(block, 0, BLOCK_SIZE);
    size_t at = sizeof(nova_tables_header);
    at = append(block, at, parts->buffers, parts->buffer_count * sizeof *parts->buffers);
    at = append(block, at, parts->kernels, parts->kernel_count * sizeof *parts->kernels);
    at = append(block, at, parts->launches, parts->launch_count * sizeof *parts->launches);
    at = append(block, at, parts->operands, parts->operand_count * sizeof *parts->operands);
    at = append(block, at, graph->tasks, graph->task_count * sizeof *graph->tasks);
    at = append(block, at, graph->successors, graph->successor_count * sizeof *graph->successors);
    nova_tables_header header = {
        .size = at + 1, /* and one string, the empty one */
        .workspace_size = parts->workspace_size,
        .buffer_count = parts->buffer_count,
        .kernel_count = parts->kernel_count,
        .launch_count = parts->launch_count,
        .operand_count = parts->operand_count,
        .task_count = graph->task_count,
        .successor_count = graph->successor_count,
        .string_size = 1,
        .scratch_size = parts->scratch_size,
    };
    memcpy(header.magic, NOVA_TABLES_MAGIC, sizeof header.magic);
    memcpy(block, &header, sizeof header);
    return header.size;
}

/* The same without tasks: the launches run in order. */
static inline size_t write_block(const parts *parts, unsigned char *block)
{
    const graph_parts none = {NULL, 0, NULL, 0};
    return write_graph_block(parts, &none, block);
}

/* Machine code of CODE_SIZE bytes that jumps to `function`. */
static inline void write_jump(unsigned char *code, nova_kernel function)
{
#if defined(__x86_64__)
    const unsigned char jump[] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};
    memcpy(code, jump, sizeof jump); /* movabs rax, function; jmp rax */
    memcpy(code + 2, &function, sizeof function);
#elif defined(__aarch64__)
    const uint32_t jump[] = {0x58000050, 0xd61f0200}; /* ldr x16, function; br x16 */
    memcpy(code, jump, sizeof jump);
    memcpy(code + 8, &function, sizeof function);
#endif
}

/* An image with a jump to functions[i] at vaddr i * CODE_SIZE, and `constants` at CONSTANTS. */
enum { CONSTANTS = 1 << 16 };

static inline nova_image *make_image(const nova_kernel *functions, size_t count,
                                     const void *constants, size_t constants_size)
{
    unsigned char data[4096];
    size_t code_size = count * CODE_SIZE;
    CHECK(code_size + constants_size <= sizeof data);
    for (size_t i = 0; i < count; i++)
        write_jump(data + i * CODE_SIZE, functions[i]);
    if (constants_size > 0)
        memcpy(data + code_size, constants, constants_size);
    const nova_segment segments[] = {
        {0, code_size, 0, code_size, NOVA_READ | NOVA_EXECUTE},
        {code_size, constants_size, CONSTANTS, constants_size, NOVA_READ},
    };
    nova_image *image;
    CHECK(nova_image_create(data, code_size + constants_size, segments, 2, &image) == NOVA_OK);
    return image;
}

#endif
