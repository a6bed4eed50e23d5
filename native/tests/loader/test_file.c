/* The reader of .nova files under ASan and UBSan: its parts by themselves, then whole files.
 *
 *     test_file [LIST]
 *
 * Each line of LIST is a check and the path of a file that it must refuse; "sound" means none. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "loader/reader.h"
#include "../support/check.h"

/* --- errors, arena ---------------------------------------------------------------------------- */

static void test_errors(void)
{
    nova_error error;
    CHECK(nova_fail(NULL, NOVA_REFUSED, "a", "b") == NOVA_REFUSED);
    CHECK(nova_fail(&error, NOVA_OVERFLOW, "some-check", "%d\n\xff%s", 7, "x") == NOVA_OVERFLOW);
    CHECK(error.status == NOVA_OVERFLOW && strcmp(error.check, "some-check") == 0);
    CHECK(strcmp(error.text, "7??x") == 0);
    char longer[1000];
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    nova_fail(&error, NOVA_REFUSED, longer, "%s", longer);
    CHECK(strlen(error.check) == sizeof error.check - 1);
    CHECK(strlen(error.text) == sizeof error.text - 1);
}

static void test_arena(void)
{
    nova_arena arena = {NULL};
    const uint64_t sizes[] = {0, 1, 7, 8, 9, 1000, 16 << 10, 100000};
    for (int round = 0; round < 20; round++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            unsigned char *memory = nova_arena_take(&arena, sizes[i], 1);
            CHECK(memory != NULL && (uintptr_t)memory % 8 == 0);
            for (uint64_t k = 0; k < sizes[i]; k++)
                CHECK(memory[k] == 0);
            memset(memory, 0xff, sizes[i]);
        }
    CHECK(nova_arena_take(&arena, UINT64_MAX, 8) == NULL);
    CHECK(nova_arena_take(&arena, UINT64_MAX / 8, 8) == NULL);
    nova_arena_free(&arena);
    nova_arena_free(&arena);
}

/* --- SHA-256 ---------------------------------------------------------------------------------- */

static void check_digest(const char *text, size_t repeat, const char *expected)
{
    size_t length = strlen(text), size = length * repeat;
    char *data = malloc(size + 1);
    for (size_t i = 0; i < repeat; i++)
        memcpy(data + i * length, text, length);
    nova_sha256_blocks *const ways[] = {nova_sha256_portable, nova_sha256_choose()};
    for (int way = 0; way < 2; way++) {
        unsigned char digest[32];
        char hex[65];
        nova_sha256(ways[way], data, size, digest);
        for (int i = 0; i < 32; i++)
            snprintf(hex + 2 * i, 3, "%02x", digest[i]);
        CHECK(strcmp(hex, expected) == 0);
    }
    free(data);
}

static void test_sha256(void)
{
    check_digest("", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check_digest("abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check_digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
                 "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    check_digest("a", 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    /* Every length around the blocks: both implementations agree. */
    unsigned char data[300], first[32], second[32];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 7);
    for (size_t size = 0; size <= sizeof data; size++) {
        unsigned char *exact = malloc(size + (size == 0));
        memcpy(exact, data, size);
        nova_sha256(nova_sha256_portable, exact, size, first);
        nova_sha256(nova_sha256_choose(), exact, size, second);
        CHECK(memcmp(first, second, sizeof first) == 0);
        free(exact);
    }
}

/* --- JSON ------------------------------------------------------------------------------------- */

static nova_status check_json(const char *text, size_t size)
{
    char *exact = malloc(size + (size == 0)); /* without a NUL after it */
    memcpy(exact, text, size);
    nova_error error;
    nova_status status = nova_json_check(exact, size, &error);
    CHECK(status == NOVA_OK || strcmp(error.check, "manifest-json") == 0);
    free(exact);
    return status;
}

static void test_json_check(void)
{
    const char *const sound[] = {
        "{}",
        "{\"a\":[]}",
        "{\"a\":[{},[],{\"b\":1}],\"b\":\"\"}",
        "{\"\":-1,\"a\":0,\"b\":9223372036854775807,\"c\":-9223372036854775807}",
        "{\"a\":true,\"b\":false}",
        "{\"a\":\"\\\"\\\\\\b\\f\\n\\r\\t/\\u0001\\u007f\\u00fc\\uffff\\ud83d\\ude00\"}",
        "{\"\\u00fc\":1,\"\\ud83d\\ude00\":2}",
        "{\"a\":[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]}",
    };
    for (size_t i = 0; i < sizeof sound / sizeof *sound; i++) {
        size_t size = strlen(sound[i]);
        CHECK(check_json(sound[i], size) == NOVA_OK);
        for (size_t cut = 0; cut < size; cut++)
            CHECK(check_json(sound[i], cut) == NOVA_REFUSED);
    }
    const char *const broken[] = {
        "",
        "1",
        "[]",
        "\"a\"",
        " {}",
        "{} ",
        "{\"a\" :1}",
        "{\"a\":1,}",
        "{,}",
        "{\"a\"}",
        "{a:1}",
        "{\"a\":[1,]}",
        "{\"a\":[,1]}",
        "{\"a\":[1}",
        "{\"a\":{]}",
        "{\"a\":1]",
        "{\"a\":+1}",
        "{\"a\":-}",
        "{\"a\":00}",
        "{\"a\":-0}",
        "{\"a\":1.0}",
        "{\"a\":1e1}",
        "{\"a\":9223372036854775808}",
        "{\"a\":10000000000000000000}",
        "{\"a\":tru}",
        "{\"a\":True}",
        "{\"a\":null}",
        "{\"b\":1,\"a\":1}",
        "{\"a\":1,\"a\":1}",
        "{\"aa\":1,\"a\":1}",
        "{\"\\ud83d\\ude00\":1,\"\\u00fc\":2}",
        "{\"a\":\"\\x41\"}",
        "{\"a\":\"\\u0041\"}",
        "{\"a\":\"\\u000a\"}",
        "{\"a\":\"\\u0000\"}",
        "{\"a\":\"\\u00FC\"}",
        "{\"a\":\"\\ud83d\"}",
        "{\"a\":\"\\ude00\"}",
        "{\"a\":\"\\ud83dx\"}",
        "{\"a\":\"\\ud83d\\u0041\"}",
        "{\"a\":\"\\/\"}",
        "{\"a\":\"\t\"}",
        "{\"a\":\"\x7f\"}",
        "{\"a\":\"\xc3\xbc\"}",
        "{\"a\":[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]}",
    };
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
        CHECK(check_json(broken[i], strlen(broken[i])) == NOVA_REFUSED);
    CHECK(check_json("{\"a\":\"\0\"}", 9) == NOVA_REFUSED);
}

static void test_json_walk(void)
{
    const char text[] =
        "{\"a\":[1,-2,[3]],\"b\":{\"x\":\"\\u00fc\\u20ac\\ud83d\\ude00\\n\"},\"c\":true}";
    CHECK(check_json(text, sizeof text - 1) == NOVA_OK);
    nova_json json = {text};
    CHECK(nova_json_kind(json) == '{' && nova_json_count(json) == 3);
    nova_json_enter(&json);
    CHECK(nova_json_more(&json) && !nova_json_key_is(&json, "b") && nova_json_key_is(&json, "a"));
    CHECK(nova_json_kind(json) == '[' && nova_json_count(json) == 3);
    nova_json_enter(&json);
    CHECK(nova_json_more(&json) && nova_json_number(&json) == 1);
    CHECK(nova_json_more(&json) && nova_json_kind(json) == '0' && nova_json_number(&json) == -2);
    CHECK(nova_json_more(&json));
    nova_json_skip(&json);
    CHECK(!nova_json_more(&json) && nova_json_more(&json));
    CHECK(nova_json_key_is(&json, "b"));
    nova_json_enter(&json);
    CHECK(nova_json_more(&json));
    nova_json_key(&json);
    CHECK(nova_json_kind(json) == '"');
    char *string = malloc(nova_json_capacity(json));
    nova_json_string(&json, string);
    CHECK(strcmp(string, "\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80\n") == 0);
    free(string);
    CHECK(!nova_json_more(&json) && nova_json_more(&json) && nova_json_key_is(&json, "c"));
    CHECK(nova_json_kind(json) == 't' && nova_json_flag(&json) && !nova_json_more(&json));
    CHECK(*json.at == '\0');
}

/* --- CPU, imports ----------------------------------------------------------------------------- */

static void test_cpu(void)
{
    nova_cpu cpu;
    nova_cpu_read(&cpu);
    CHECK(nova_cpu_machine() != 0);
    CHECK(!nova_cpu_has(&cpu, "") && !nova_cpu_has(&cpu, "avx9000"));
    /* A system that saves no vector registers has none of their features. The level is none that
     * the environment holds this process to. */
    nova_cpu bare = {.level = UCHAR_MAX};
    memset(bare.words, 0xff, sizeof bare.words);
    for (size_t i = 0; nova_cpu_feature(i) != NULL; i++) {
        const char *name = nova_cpu_feature(i);
        if (strncmp(name, "avx", 3) == 0 || strncmp(name, "amx", 3) == 0)
            CHECK(!nova_cpu_has(&bare, name));
    }
    bare.saves_ymm = bare.saves_zmm = bare.saves_tiles = true;
    for (size_t i = 0; nova_cpu_feature(i) != NULL; i++)
        CHECK(nova_cpu_has(&bare, nova_cpu_feature(i)));
    bare.level = 0; /* held to less than any feature belongs to */
    for (size_t i = 0; nova_cpu_feature(i) != NULL; i++)
        CHECK(!nova_cpu_has(&bare, nova_cpu_feature(i)));
}

static void test_imports(void)
{
    size_t count = 0;
    for (; nova_import_name(count) != NULL; count++)
        CHECK(nova_import_allowed(nova_import_name(count)));
    CHECK(count > 10);
    CHECK(!nova_import_allowed("") && !nova_import_allowed("system") && !nova_import_allowed("~"));
    CHECK(!nova_import_allowed("memcpyx") && !nova_import_allowed("memcp"));
}

/* --- images ----------------------------------------------------------------------------------- */

static void test_image_relocations(void)
{
    static const char data[8192] = "text";
    const nova_segment segments[] = {{0, 4096, 0, 4096, NOVA_READ},
                                     {4096, 4096, 65536, 65536, NOVA_READ | NOVA_WRITE}};
    const nova_relocation relocations[] = {{65536, 5, true}, {65544, 9, false}};
    nova_image_source source = {.data = data,
                                .size = sizeof data,
                                .fd = -1,
                                .segments = segments,
                                .segment_count = 2,
                                .relocations = relocations,
                                .relocation_count = 2,
                                .relro_vaddr = 65536,
                                .relro_size = 65536};
    nova_image *image;
    void *at;
    uint64_t words[2];
    CHECK(nova_image_create_from(&source, &image) == NOVA_OK);
    CHECK(nova_image_find(image, 65536, sizeof words, NOVA_READ, &at) == NOVA_OK);
    memcpy(words, at, sizeof words);
    CHECK(words[0] == nova_image_base(image) + 5 && words[1] == 9);
    nova_image *adopted;
    CHECK(nova_image_adopt((void *)nova_image_base(image), segments, 2, &adopted) == NOVA_OK);
    void *same;
    CHECK(nova_image_find(adopted, 65536, 16, NOVA_READ, &same) == NOVA_OK && same == at);
    nova_image_destroy(adopted); /* which leaves the mapping alone */
    CHECK(memcmp(at, words, sizeof words) == 0);
    nova_image_destroy(image);

    const nova_relocation outside[] = {{0, 0, false}, {131068, 0, false}, {UINT64_MAX, 0, false}};
    source.relocation_count = 1;
    for (int i = 0; i < 3; i++) {
        source.relocations = &outside[i];
        CHECK(nova_image_create_from(&source, &image) == NOVA_OUT_OF_RANGE);
    }
    source.relocation_count = 0;
    source.relro_vaddr = 0;
    CHECK(nova_image_create_from(&source, &image) == NOVA_OUT_OF_RANGE);
    CHECK(nova_image_create_from(NULL, &image) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_image_adopt(NULL, NULL, 0, &image) == NOVA_INVALID_ARGUMENT);
}

/* --- tables ----------------------------------------------------------------------------------- */

static void test_tables_arguments(void)
{
    _Alignas(8) static const char zeros[128];
    const nova_tables_limits limits = {0};
    nova_tables tables;
    CHECK(nova_tables_check(NULL, 64, &limits, &tables, NULL) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_tables_check(zeros, 64, NULL, &tables, NULL) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_tables_check(zeros, 64, &limits, NULL, NULL) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_tables_check(zeros + 1, 64, &limits, &tables, NULL) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_tables_check(zeros, 64, &limits, &tables, NULL) == NOVA_REFUSED);
}

/* Every word of a sound block, replaced by numbers at the edges: refused or accepted, never read
 * outside of. */
static void damage_tables(const nova_file *file)
{
    static const uint32_t numbers[] = {0, 1, 2, 63, 64, INT32_MAX, UINT32_MAX};
    const nova_tables *sound = &nova_file_variants(file)->tables;
    size_t size = sound->header->size, arguments = nova_file_argument_count(file);
    size_t outputs = nova_file_output_count(file);
    const nova_tables_limits limits = {.argument_count = arguments,
                                       .output_count = outputs,
                                       .constants_size = nova_file_variants(file)->constants_size};
    char *block = malloc(size);
    for (size_t at = 0; at + 4 <= size; at += 4)
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
            memcpy(block, sound->header, size);
            memcpy(block + at, &numbers[i], 4);
            nova_tables tables;
            nova_error error;
            nova_status status = nova_tables_check(block, size, &limits, &tables, &error);
            CHECK(status == NOVA_OK || strncmp(error.check, "tables-", 7) == 0);
        }
    free(block);
}

/* --- whole files ------------------------------------------------------------------------------ */

static char *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL && fseek(file, 0, SEEK_END) == 0);
    *size = (size_t)ftell(file);
    rewind(file);
    char *data = malloc(*size + 9);
    CHECK(data != NULL && fread(data + 8, 1, *size, file) == *size);
    fclose(file);
    return data;
}

static void check_sound(const nova_file *file)
{
    size_t variant;
    nova_error error;
    nova_image *image;
    CHECK(nova_file_choose(file, &variant, &error) == NOVA_OK);
    CHECK(nova_file_load(file, variant, &image, &error) == NOVA_OK);
    const nova_variant *row = &nova_file_variants(file)[variant];
    for (uint32_t i = 0; i < row->tables.header->kernel_count; i++) {
        void *code;
        CHECK(nova_image_find(image, row->tables.kernels[i].code, 1, NOVA_EXECUTE, &code) ==
              NOVA_OK);
    }
    /* The image is laid out as dlopen maps it, so that it can replace one. */
    nova_mapped mapped = {.start = (void *)nova_image_base(image)};
    const char *const names[] = {".nova.manifest", ".nova.tables", ".nova.const", ".nova.weights",
                                 ".nova.device"};
    const void *parts[5] = {NULL};
    size_t sizes[5] = {0};
    for (int i = 0; i < 5; i++) {
        const void *data;
        if (nova_file_section(file, names[i], &data, &sizes[i]))
            parts[i] = (const char *)mapped.start + nova_file_section_vaddr(file, names[i]);
    }
    mapped.manifest = parts[0], mapped.manifest_size = sizes[0];
    mapped.tables = parts[1], mapped.tables_size = sizes[1];
    mapped.constants = parts[2], mapped.constants_size = sizes[2];
    mapped.weights = parts[3], mapped.weights_size = sizes[3];
    mapped.device = parts[4], mapped.device_size = sizes[4];
    nova_file *adopted;
    nova_image *again;
    CHECK(nova_file_adopt(&mapped, &adopted, &error) == NOVA_OK);
    CHECK(nova_file_variants(adopted)[variant].constants_vaddr == row->constants_vaddr);
    CHECK(nova_file_argument_count(adopted) == nova_file_argument_count(file));
    CHECK(nova_file_load(adopted, variant, &again, &error) == NOVA_OK);
    CHECK(nova_image_base(again) == nova_image_base(image));
    nova_image_destroy(again);
    nova_file_close(adopted);
    CHECK(nova_file_load(file, nova_file_variant_count(file), &again, &error) ==
          NOVA_INVALID_ARGUMENT);
    nova_image_destroy(image);
    mapped.tables_size = 0;
    CHECK(nova_file_adopt(&mapped, &adopted, &error) == NOVA_REFUSED);
    damage_tables(file);
}

static void check_file(const char *check, const char *path)
{
    bool sound = strcmp(check, "sound") == 0;
    size_t size;
    char *data = read_file(path, &size);
    nova_file *file;
    nova_error error;
    nova_status status = nova_file_open(path, &file, &error);
    if (sound != (status == NOVA_OK) || (!sound && strcmp(error.check, check) != 0))
        fprintf(stderr, "%s: %s: %s\n", path, error.check, error.text);
    CHECK(sound ? status == NOVA_OK : strcmp(error.check, check) == 0);
    if (sound) {
        check_sound(file);
        nova_file_close(file);
    }
    /* In memory at its exact size, on an even and on an odd address. */
    for (int shift = 0; shift < 2; shift++) {
        char *exact = malloc(size + (size_t)shift + (size == 0));
        memcpy(exact + shift, data + 8, size);
        status = nova_file_view(exact + shift, size, &file, &error);
        CHECK(sound ? status == NOVA_OK : strcmp(error.check, check) == 0);
        if (sound) {
            check_sound(file);
            nova_file_close(file);
        }
        free(exact);
    }
    CHECK(nova_file_open(path, &file, NULL) == status);
    if (sound)
        nova_file_close(file);
    free(data);
}

static void test_file_arguments(void)
{
    nova_file *file;
    nova_error error;
    CHECK(nova_file_open(NULL, &file, &error) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_file_open("x", NULL, &error) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_file_view(NULL, 1, &file, &error) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_file_adopt(NULL, &file, &error) == NOVA_INVALID_ARGUMENT);
    CHECK(nova_file_open("/no/such/file", &file, &error) == NOVA_SYSTEM_ERROR);
    CHECK(strcmp(error.check, "open-failed") == 0 && strstr(error.text, "No such file") != NULL);
    nova_file_close(NULL);
}

int main(int argc, char **argv)
{
    test_errors();
    test_arena();
    test_sha256();
    test_json_check();
    test_json_walk();
    test_cpu();
    test_imports();
    test_image_relocations();
    test_tables_arguments();
    test_file_arguments();
    int count = 0;
    if (argc > 1) {
        char line[1024], check[64], path[900];
        FILE *list = fopen(argv[1], "r");
        CHECK(list != NULL);
        for (; fgets(line, sizeof line, list) != NULL; count++) {
            CHECK(sscanf(line, "%63s %899[^\n]", check, path) == 2);
            check_file(check, path);
        }
        fclose(list);
    }
    printf("%d files\n", count);
    return 0;
}
