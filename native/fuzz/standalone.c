/* Drives the fuzz target without libFuzzer: simple mutations of the given files, no coverage.
 *
 *     fuzz_file ITERATIONS SEED FILE...
 *
 * Prints how many inputs were read. The same arguments give the same inputs. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_FILES = 64, MOST_GROWTH = 4096 };

typedef struct {
    uint8_t *data;
    size_t size;
} input;

static uint64_t state;

static uint64_t draw(uint64_t below) /* xorshift64 */
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return below > 0 ? state % below : 0;
}

static input read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
        perror(path);
        exit(2);
    }
    long size = ftell(file);
    rewind(file);
    input read = {malloc((size_t)size + 1), (size_t)size};
    if (read.data == NULL || fread(read.data, 1, read.size, file) != read.size) {
        perror(path);
        exit(2);
    }
    fclose(file);
    return read;
}

/* Boundary values of fields in headers and tables. */
static uint64_t interesting(void)
{
    static const uint64_t numbers[] = {0,
                                       1,
                                       2,
                                       3,
                                       7,
                                       8,
                                       16,
                                       24,
                                       48,
                                       63,
                                       64,
                                       4095,
                                       4096,
                                       65535,
                                       UINT32_MAX,
                                       INT32_MAX,
                                       UINT64_MAX,
                                       INT64_MAX,
                                       UINT64_MAX - 7,
                                       UINT64_C(1) << 63,
                                       UINT64_C(1) << 40};
    uint64_t number = numbers[draw(sizeof numbers / sizeof *numbers)];
    return draw(4) == 0 ? number + draw(16) : number;
}

/* An offset that is likely to matter: headers, tables and the end of the file. */
static size_t place(const input *it)
{
    switch (draw(4)) {
    case 0:
        return draw(it->size < 2048 ? it->size : 2048);
    case 1:
        return it->size - 1 - draw(it->size < 2048 ? it->size : 2048);
    default:
        return draw(it->size);
    }
}

static void mutate(input *it, const input *other)
{
    size_t at = place(it), step = (size_t)1 << draw(4), length = it->size - at;
    uint64_t word = interesting();
    switch (draw(8)) {
    case 0:
        it->data[at] ^= (uint8_t)(1u << draw(8));
        break;
    case 1:
        it->data[at] = (uint8_t)draw(256);
        break;
    case 2: /* one number, at an aligned offset */
        at -= at % step;
        memcpy(it->data + at, &word, step < it->size - at ? step : it->size - at);
        break;
    case 3: /* one number, a little larger or smaller */
        at -= at % 8;
        if (it->size - at >= 8) {
            memcpy(&word, it->data + at, 8);
            word += draw(2) == 0 ? draw(65) : -draw(65);
            memcpy(it->data + at, &word, 8);
        }
        break;
    case 4:
        it->size = at > 0 ? at : 1;
        break;
    case 5: { /* bytes of the same or of another file */
        size_t from = draw(other->size), count = draw(256);
        count = count < length ? count : length;
        count = count < other->size - from ? count : other->size - from;
        memmove(it->data + at, other->data + from, count);
        break;
    }
    case 6: /* bytes duplicated: the following ones move */
        if (it->size < SIZE_MAX / 2 && length > step) {
            size_t count = draw(length < MOST_GROWTH / 8 ? length : MOST_GROWTH / 8);
            memmove(it->data + at + count, it->data + at, length);
            it->size += count;
        }
        break;
    default: /* bytes left out */
        if (length > step && it->size > step + 1) {
            memmove(it->data + at, it->data + at + step, length - step);
            it->size -= step;
        }
    }
}

int main(int argc, char **argv)
{
    if (argc < 4 || argc > MOST_FILES + 3) {
        fprintf(stderr, "usage: %s ITERATIONS SEED FILE...\n", argv[0]);
        return 2;
    }
    long iterations = strtol(argv[1], NULL, 10);
    state = strtoull(argv[2], NULL, 10) * UINT64_C(0x9e3779b97f4a7c15) + 1;
    size_t count = (size_t)argc - 3;
    input files[MOST_FILES];
    for (size_t i = 0; i < count; i++) {
        files[i] = read_file(argv[i + 3]);
        LLVMFuzzerTestOneInput(files[i].data, files[i].size);
    }
    for (long n = 0; n < iterations; n++) {
        const input *seed = &files[draw(count)], *other = &files[draw(count)];
        input scratch = {malloc(seed->size + MOST_GROWTH), seed->size};
        if (scratch.data == NULL || seed->size == 0)
            return 2;
        memcpy(scratch.data, seed->data, seed->size);
        for (uint64_t k = 1 + draw(4); k > 0; k--)
            mutate(&scratch, other);
        uint8_t *exact = malloc(scratch.size);
        if (exact == NULL)
            return 2;
        memcpy(exact, scratch.data, scratch.size);
        LLVMFuzzerTestOneInput(exact, scratch.size);
        free(exact);
        free(scratch.data);
    }
    for (size_t i = 0; i < count; i++)
        free(files[i].data);
    printf("%ld\n", iterations);
    return 0;
}
