/* The manifest against its schema (docs/nova-format.md): keys are sorted, so fields have an
 * order. */
#include <elf.h>
#include <inttypes.h>

#include "base/json.h"
#include "loader/reader.h"

/* Version 3 adds variants for devices, version 4 the interfaces of kernels; the fields of version 2
 * are unchanged. */
enum { OLDEST_VERSION = 2, FORMAT_VERSION = 5, MOST_VARIANTS = 64, ALIGNMENT = 64 };

static const struct {
    const char *name;
    int64_t size;
} MANIFEST_DTYPES[] = {
    {"f64", 8},  {"f32", 4},       {"f16", 2},         {"bf16", 2},   {"i64", 8},   {"i32", 4},
    {"i16", 2},  {"i8", 1},        {"u64", 8},         {"u32", 4},    {"u16", 2},   {"u8", 1},
    {"bool", 1}, {"complex64", 8}, {"complex128", 16}, {"f8e4m3", 1}, {"f8e5m2", 1}};

typedef struct {
    nova_json json;
    nova_arena *arena;
    const nova_manifest_limits *limits;
    nova_error *error;
    const char *list; /* the field is one of element `index` of this list; NULL: of the manifest */
    size_t index;
} reader;

/* --- values ----------------------------------------------------------------------------------- */

static nova_status manifest_refuse(const reader *r, const char *check, const char *field,
                                   const char *message)
{
    if (r->list == NULL)
        return REFUSE(r->error, check, "%s %s", field, message);
    return REFUSE(r->error, check, "%s[%zu].%s %s", r->list, r->index, field, message);
}

static nova_status manifest_out_of_memory(const reader *r)
{
    return nova_fail(r->error, NOVA_OUT_OF_MEMORY, "", "no memory for the manifest");
}

/* Advances to the value of the next field, which must be `name` and of this type. */
static nova_status manifest_read_field(reader *r, const char *name, char type)
{
    if (!nova_json_more(&r->json) || !nova_json_key_is(&r->json, name))
        return manifest_refuse(r, "manifest-fields", name,
                               "is missing, or an unknown field precedes it");
    if (nova_json_kind(r->json) != type)
        return manifest_refuse(r, "manifest-type", name,
                               type == '{'   ? "is not an object"
                               : type == '[' ? "is not a list"
                               : type == '"' ? "is not a string"
                               : type == '0' ? "is not an integer"
                                             : "is not true or false");
    return NOVA_OK;
}

static nova_status manifest_end_record(reader *r)
{
    if (nova_json_more(&r->json))
        return manifest_refuse(r, "manifest-fields", "the last field",
                               "is followed by an unknown one");
    return NOVA_OK;
}

static nova_status manifest_read_text(reader *r, const char *name, const char **text)
{
    nova_status status = manifest_read_field(r, name, '"');
    if (status != NOVA_OK)
        return status;
    char *copy = nova_arena_take(r->arena, nova_json_capacity(r->json), 1);
    if (copy == NULL)
        return manifest_out_of_memory(r);
    nova_json_string(&r->json, copy);
    *text = copy;
    return NOVA_OK;
}

/* One of the words (NULL at the end); its index. */
static nova_status manifest_read_word(reader *r, const char *name, const char *const *words,
                                      uint32_t *index)
{
    const char *text;
    nova_status status = manifest_read_text(r, name, &text);
    if (status != NOVA_OK)
        return status;
    for (*index = 0; words[*index] != NULL; ++*index)
        if (strcmp(words[*index], text) == 0)
            return NOVA_OK;
    return manifest_refuse(r, "manifest-word", name, "is a word that this version does not know");
}

static nova_status manifest_read_number(reader *r, const char *name, int64_t least, int64_t *value)
{
    nova_status status = manifest_read_field(r, name, '0');
    if (status != NOVA_OK)
        return status;
    *value = nova_json_number(&r->json);
    return *value < least ? manifest_refuse(r, "manifest-range", name, "is too small") : NOVA_OK;
}

/* Texts by name, for people and for the cache: not interpreted here. */
static nova_status manifest_read_texts(reader *r, const char *name)
{
    nova_status status = manifest_read_field(r, name, '{');
    if (status != NOVA_OK)
        return status;
    for (nova_json_enter(&r->json); nova_json_more(&r->json); nova_json_skip(&r->json)) {
        nova_json_key(&r->json);
        if (nova_json_kind(r->json) != '"')
            return manifest_refuse(r, "manifest-type", name, "holds something other than strings");
    }
    return NOVA_OK;
}

static nova_status manifest_read_numbers(reader *r, const char *name, const int64_t **numbers,
                                         size_t *count)
{
    nova_status status = manifest_read_field(r, name, '[');
    if (status != NOVA_OK)
        return status;
    *count = nova_json_count(r->json);
    int64_t *list = nova_arena_take(r->arena, *count, sizeof *list);
    if (list == NULL)
        return manifest_out_of_memory(r);
    *numbers = list;
    for (nova_json_enter(&r->json); nova_json_more(&r->json); list++) {
        if (nova_json_kind(r->json) != '0')
            return manifest_refuse(r, "manifest-type", name, "holds something other than integers");
        *list = nova_json_number(&r->json);
        if (*list < 0)
            return manifest_refuse(r, "manifest-range", name, "holds a number below zero");
    }
    return NOVA_OK;
}

static nova_status manifest_check_range(reader *r, const char *name, uint64_t offset, uint64_t size,
                                        uint64_t limit)
{
    if (offset % ALIGNMENT != 0)
        return manifest_refuse(r, "manifest-alignment", name, "does not start at a multiple of 64");
    if (!nova_fits(offset, size, limit))
        return manifest_refuse(r, "manifest-range", name, "reaches outside of its section");
    return NOVA_OK;
}

static nova_status manifest_read_range(reader *r, const char *name, uint64_t limit,
                                       nova_range *range)
{
    const int64_t *numbers;
    size_t count;
    nova_status status = manifest_read_numbers(r, name, &numbers, &count);
    if (status != NOVA_OK)
        return status;
    if (count != 2)
        return manifest_refuse(r, "manifest-type", name, "is not an offset and a size");
    *range = (nova_range){(uint64_t)numbers[0], (uint64_t)numbers[1]};
    return manifest_check_range(r, name, range->offset, range->size, limit);
}

/* --- lists of records ------------------------------------------------------------------------- */

typedef nova_status read_record(reader *r, void *record, void *context);

/* A list of objects; `records` (may be NULL) gets `size` zeroed bytes for each. */
static nova_status manifest_read_list(reader *r, const char *name, size_t size, read_record *read,
                                      void *context, void **records, size_t *count)
{
    nova_status status = manifest_read_field(r, name, '[');
    if (status != NOVA_OK)
        return status;
    *count = nova_json_count(r->json);
    char *record = nova_arena_take(r->arena, *count, size);
    if (record == NULL)
        return manifest_out_of_memory(r);
    *records = record;
    r->list = name;
    nova_json_enter(&r->json);
    for (r->index = 0; nova_json_more(&r->json); r->index++, record += size) {
        if (nova_json_kind(r->json) != '{')
            return REFUSE(r->error, "manifest-type", "%s[%zu] is not an object", name, r->index);
        nova_json_enter(&r->json);
        status = read(r, record, context);
        if (status == NOVA_OK)
            status = manifest_end_record(r);
        if (status != NOVA_OK)
            return status;
    }
    r->list = NULL;
    return NOVA_OK;
}

static nova_status manifest_read_tensor(reader *r, void *record, void *context)
{
    static const char *const ROLES[] = {"input", "param", "output", NULL};
    nova_tensor_info *tensor = record;
    const bool *is_output = context;
    size_t rank;
    nova_status status = manifest_read_number(r, "alias", -1, &tensor->alias);
    if (status == NOVA_OK)
        status = manifest_read_field(r, "donated", 't');
    if (status == NOVA_OK) {
        tensor->donated = nova_json_flag(&r->json);
        status = manifest_read_text(r, "dtype", &tensor->dtype);
    }
    if (status == NOVA_OK)
        status = manifest_read_text(r, "name", &tensor->name);
    if (status == NOVA_OK)
        status = manifest_read_word(r, "role", ROLES, &tensor->role);
    if (status == NOVA_OK)
        status = manifest_read_numbers(r, "shape", &tensor->shape, &rank);
    if (status != NOVA_OK)
        return status;
    for (size_t i = 0; i < sizeof MANIFEST_DTYPES / sizeof *MANIFEST_DTYPES; i++)
        if (strcmp(MANIFEST_DTYPES[i].name, tensor->dtype) == 0)
            tensor->element_size = MANIFEST_DTYPES[i].size;
    if (tensor->element_size == 0)
        return manifest_refuse(r, "manifest-word", "dtype",
                               "is a type that this version does not know");
    if (*is_output != (tensor->role == NOVA_RESULT))
        return manifest_refuse(r, "manifest-role", "role", "is not in this list");
    if (r->index > 0 && tensor->role < tensor[-1].role)
        return manifest_refuse(r, "manifest-role", "role", "is an input after a param");
    if (rank > NOVA_MAX_RANK)
        return manifest_refuse(r, "manifest-shape", "shape", "has more than 64 axes");
    tensor->rank = (int32_t)rank;
    tensor->weight = NOVA_NO_WEIGHT;
    return NOVA_OK;
}

static nova_status manifest_read_features(reader *r, nova_variant *variant)
{
    nova_status status = manifest_read_field(r, "features", '[');
    if (status != NOVA_OK)
        return status;
    variant->feature_count = nova_json_count(r->json);
    const char **features = nova_arena_take(r->arena, variant->feature_count, sizeof *features);
    if (features == NULL)
        return manifest_out_of_memory(r);
    variant->features = features;
    nova_json_enter(&r->json);
    for (size_t i = 0; nova_json_more(&r->json); i++) {
        if (nova_json_kind(r->json) != '"')
            return manifest_refuse(r, "manifest-type", "features",
                                   "holds something other than strings");
        char *text = nova_arena_take(r->arena, nova_json_capacity(r->json), 1);
        if (text == NULL)
            return manifest_out_of_memory(r);
        nova_json_string(&r->json, text);
        features[i] = text;
        if (*text == '\0')
            return manifest_refuse(r, "manifest-word", "features", "holds a name that is empty");
        if (i > 0 && strcmp(features[i - 1], text) >= 0)
            return manifest_refuse(r, "manifest-order", "features", "are not sorted");
    }
    return NOVA_OK;
}

static nova_status manifest_read_variant(reader *r, void *record, void *context)
{
    nova_manifest *manifest = context;
    nova_variant *variant = record;
    if (r->index >= MOST_VARIANTS)
        return REFUSE(r->error, "manifest-variants", "more than %d variants", MOST_VARIANTS);
    nova_range *tables = &manifest->tables[r->index], *constants = &manifest->constants[r->index];
    nova_status status = manifest_read_range(r, "constants", r->limits->constants_size, constants);
    if (status == NOVA_OK)
        status = manifest_read_text(r, "cpu", &variant->cpu);
    if (status == NOVA_OK)
        status = manifest_read_features(r, variant);
    if (status == NOVA_OK)
        status = manifest_read_texts(r, "options");
    if (status == NOVA_OK)
        status = manifest_read_range(r, "tables", r->limits->tables_size, tables);
    if (status == NOVA_OK)
        status = manifest_read_text(r, "target", &variant->target);
    return status;
}

/* Where the values of params are. */
typedef struct {
    nova_manifest *manifest;
    unsigned char *has_value; /* one a param */
    bool embedded;
    uint64_t end; /* of the last value */
} weights_state;

static nova_status manifest_read_weight(reader *r, void *record, void *context)
{
    (void)record;
    weights_state *state = context;
    int64_t arg, nbytes, offset;
    nova_status status = manifest_read_number(r, "arg", 0, &arg);
    if (status == NOVA_OK)
        status = manifest_read_number(r, "nbytes", 0, &nbytes);
    if (status == NOVA_OK)
        status = manifest_read_number(r, "offset", 0, &offset);
    if (status != NOVA_OK)
        return status;
    if ((uint64_t)arg >= state->manifest->argument_count ||
        state->manifest->arguments[arg].role != NOVA_PARAM || state->has_value[arg])
        return manifest_refuse(r, "manifest-weights", "arg",
                               "is not a param, or has a value already");
    nova_tensor_info *tensor = &state->manifest->arguments[arg];
    if (nbytes != tensor->nbytes)
        return manifest_refuse(r, "manifest-weights", "nbytes", "is not the size of the param");
    if ((uint64_t)offset < state->end)
        return manifest_refuse(r, "manifest-weights", "offset", "overlaps the value before it");
    state->has_value[arg] = 1;
    state->end = (uint64_t)offset + (uint64_t)nbytes; /* both are below 2^63 */
    if (!state->embedded)
        return NOVA_OK;
    tensor->weight = (uint64_t)offset;
    return manifest_check_range(r, "offset", (uint64_t)offset, (uint64_t)nbytes,
                                r->limits->weights_size);
}

static nova_status manifest_read_weights(reader *r, nova_manifest *manifest)
{
    static const char *const KINDS[] = {"none", "embedded", "external", NULL};
    uint32_t type;
    const char *digest;
    void *records;
    size_t count;
    weights_state state = {.manifest = manifest};
    nova_status status = manifest_read_field(r, "weights", '{');
    if (status != NOVA_OK)
        return status;
    nova_json_enter(&r->json);
    status = manifest_read_word(r, "kind", KINDS, &type);
    if (status == NOVA_OK)
        status = manifest_read_text(r, "sha256", &digest);
    if (status != NOVA_OK)
        return status;
    size_t length = strlen(digest);
    if (strspn(digest, "0123456789abcdef") != length || (length != 0 && length != 64) ||
        (type == 2 && length == 0))
        return manifest_refuse(r, "manifest-weights", "sha256", "is not 64 hexadecimal digits");
    state.embedded = type == 1;
    state.has_value = nova_arena_take(r->arena, manifest->argument_count, 1);
    if (state.has_value == NULL)
        return manifest_out_of_memory(r);
    status = manifest_read_list(r, "tensors", 0, manifest_read_weight, &state, &records, &count);
    if (status == NOVA_OK && type == 0 && count > 0)
        return manifest_refuse(r, "manifest-weights", "tensors",
                               "are there, but the kind is \"none\"");
    return status == NOVA_OK ? manifest_end_record(r) : status;
}

static nova_status manifest_read_device(reader *r, void *record, void *context)
{
    (void)context;
    static const char *const KINDS[] = {"ptx", "cubin", NULL};
    nova_device_code *code = record;
    int64_t offset, size;
    nova_status status = manifest_read_text(r, "arch", &code->arch);
    if (status == NOVA_OK)
        status = manifest_read_word(r, "kind", KINDS, &code->kind);
    if (status == NOVA_OK)
        status = manifest_read_number(r, "offset", 0, &offset);
    if (status == NOVA_OK)
        status = manifest_read_number(r, "size", 0, &size);
    if (status == NOVA_OK)
        status = manifest_check_range(r, "offset", (uint64_t)offset, (uint64_t)size,
                                      r->limits->device_size);
    if (status != NOVA_OK)
        return status;
    code->data = (const char *)r->limits->device + offset;
    code->size = (uint64_t)size;
    return NOVA_OK;
}

/* Every variant for a device has code for it. */
static nova_status manifest_check_devices(const reader *r, const nova_manifest *manifest)
{
    for (size_t i = 0; i < manifest->variant_count; i++) {
        const nova_variant *variant = &manifest->variants[i];
        bool has_code = !nova_variant_is_device(variant);
        for (size_t k = 0; !has_code && k < manifest->device_count; k++)
            has_code = strcmp(manifest->devices[k].arch, variant->cpu) == 0;
        if (!has_code)
            return REFUSE(r->error, "manifest-devices",
                          "variants[%zu] is for %.40s, and no device "
                          "image is",
                          i, variant->cpu);
    }
    return NOVA_OK;
}

/* --- the whole -------------------------------------------------------------------------------- */

/* Before the fields: another version may well have others. */
static nova_status manifest_check_version(reader r)
{
    int64_t version = -1;
    const char *producer = "an unknown program";
    for (nova_json_enter(&r.json); nova_json_more(&r.json); nova_json_skip(&r.json)) {
        if (nova_json_key_is(&r.json, "format_version")) {
            if (nova_json_kind(r.json) == '0') {
                nova_json number = r.json;
                version = nova_json_number(&number);
            }
        } else if (nova_json_key_is(&r.json, "producer")) {
            if (nova_json_kind(r.json) == '"') {
                nova_json string = r.json;
                char *text = nova_arena_take(r.arena, nova_json_capacity(r.json), 1);
                if (text == NULL)
                    return manifest_out_of_memory(&r);
                nova_json_string(&string, text);
                producer = text;
            }
        } else {
            nova_json_key(&r.json);
        }
    }
    if (version < 0)
        return manifest_refuse(&r, "manifest-fields", "format_version", "is missing or no version");
    if (version < OLDEST_VERSION || version > FORMAT_VERSION)
        return REFUSE(r.error, "format-version",
                      "the file has version %" PRId64 " (written by %.80s), this reader knows %d "
                      "to %d",
                      version, producer, OLDEST_VERSION, FORMAT_VERSION);
    return NOVA_OK;
}

static nova_status manifest_read(reader *r, nova_manifest *manifest)
{
    static const char *const ARCHES[] = {"x86_64", "aarch64", NULL};
    const uint16_t machines[] = {EM_X86_64, EM_AARCH64};
    const char *text;
    uint32_t arch;
    void *records;
    bool is_output = false;
    nova_json_enter(&r->json);
    nova_status status = manifest_read_word(r, "arch", ARCHES, &arch);
    if (status == NOVA_OK && machines[arch] != r->limits->machine)
        return manifest_refuse(r, "manifest-arch", "arch", "is not the machine of the ELF header");
    if (status == NOVA_OK)
        status = manifest_read_list(r, "args", sizeof(nova_tensor_info), manifest_read_tensor,
                                    &is_output, &records, &manifest->argument_count);
    if (status != NOVA_OK)
        return status;
    manifest->arguments = records;
    status = manifest_read_list(r, "devices", sizeof(nova_device_code), manifest_read_device, NULL,
                                &records, &manifest->device_count);
    manifest->devices = records;
    if (status == NOVA_OK)
        status = manifest_read_number(r, "format_version", 0, &manifest->version);
    if (status == NOVA_OK)
        status = manifest_read_texts(r, "key");
    is_output = true;
    if (status == NOVA_OK)
        status = manifest_read_list(r, "outputs", sizeof(nova_tensor_info), manifest_read_tensor,
                                    &is_output, &records, &manifest->output_count);
    if (status != NOVA_OK)
        return status;
    manifest->outputs = records;
    status = nova_tensors_check(manifest->arguments, manifest->argument_count, manifest->outputs,
                                manifest->output_count, r->error);
    if (status != NOVA_OK) { /* for this caller it is the file's mistake */
        if (r->error != NULL)
            r->error->status = NOVA_REFUSED;
        return NOVA_REFUSED;
    }
    status = manifest_read_text(r, "producer", &text);
    if (status == NOVA_OK)
        status = manifest_read_text(r, "source", &text);
    manifest->tables = nova_arena_take(r->arena, MOST_VARIANTS, sizeof(nova_range));
    manifest->constants = nova_arena_take(r->arena, MOST_VARIANTS, sizeof(nova_range));
    if (manifest->tables == NULL || manifest->constants == NULL)
        return manifest_out_of_memory(r);
    if (status == NOVA_OK)
        status = manifest_read_list(r, "variants", sizeof(nova_variant), manifest_read_variant,
                                    manifest, &records, &manifest->variant_count);
    if (status != NOVA_OK)
        return status;
    manifest->variants = records;
    if (manifest->variant_count == 0)
        return manifest_refuse(r, "manifest-variants", "variants", "is empty");
    /* Each has a separate block: otherwise a small file could refer to 64 times its tables. */
    for (size_t i = 1; i < manifest->variant_count; i++) {
        const nova_range *before = &manifest->tables[i - 1];
        if (manifest->tables[i].offset < before->offset + before->size)
            return REFUSE(r->error, "manifest-order",
                          "the tables of variant %zu do not follow those before them", i);
    }
    status = manifest_check_devices(r, manifest);
    if (status == NOVA_OK)
        status = manifest_read_weights(r, manifest);
    return status == NOVA_OK ? manifest_end_record(r) : status;
}

nova_status nova_manifest_read(const void *text, size_t size, const nova_manifest_limits *limits,
                               nova_arena *arena, nova_manifest *manifest, nova_error *error)
{
    nova_status status = nova_json_check(text, size, error);
    reader r = {.json = {text}, .arena = arena, .limits = limits, .error = error};
    if (status == NOVA_OK)
        status = manifest_check_version(r);
    return status == NOVA_OK ? manifest_read(&r, manifest) : status;
}
