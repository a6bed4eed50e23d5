#include "base/json.h"

#include <string.h>

enum { MOST_DEPTH = 16 };

/* --- characters of strings -------------------------------------------------------------------- */

static int json_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Four digits at `at`; -1 when they are not there. */
static int32_t json_hex_word(const char *at, const char *end)
{
    if (end - at < 4)
        return -1;
    int32_t value = 0;
    for (int i = 0; i < 4; i++) {
        int digit = json_hex_digit(at[i]);
        if (digit < 0)
            return -1;
        value = value << 4 | digit;
    }
    return value;
}

static const char JSON_SHORT_NAMES[] = "\"\\bfnrt", JSON_SHORT_VALUES[] = "\"\\\b\f\n\r\t";

/* The code point of the escape after a backslash, advancing; -1 if it is not canonical: unknown,
 * needless, a lone surrogate or NUL. */
static int32_t json_read_escape(const char **at, const char *end)
{
    if (*at == end)
        return -1;
    char escape = *(*at)++;
    const char *short_name = escape != '\0' ? strchr(JSON_SHORT_NAMES, escape) : NULL;
    if (short_name != NULL)
        return JSON_SHORT_VALUES[short_name - JSON_SHORT_NAMES];
    int32_t value = escape == 'u' ? json_hex_word(*at, end) : -1;
    if (value <= 0)
        return -1;
    *at += 4;
    if (value >= 0xd800 && value < 0xdc00) {
        int32_t low = end - *at >= 2 && (*at)[0] == '\\' && (*at)[1] == 'u'
                          ? json_hex_word(*at + 2, end)
                          : -1;
        if (low < 0xdc00 || low > 0xdfff)
            return -1;
        *at += 6;
        return 0x10000 + ((value - 0xd800) << 10 | (low - 0xdc00));
    }
    if (value >= 0xdc00 && value <= 0xdfff)
        return -1;
    if (value < 0x7f &&
        (value >= ' ' || memchr(JSON_SHORT_VALUES, value, sizeof JSON_SHORT_VALUES - 1)))
        return -1;
    return value;
}

/* The next code point, advancing; 0 at the closing quote, -1 if it is not allowed. */
static int32_t json_read_point(const char **at, const char *end)
{
    if (*at == end || **at < ' ' || **at > '~')
        return -1;
    char c = *(*at)++;
    if (c == '"')
        return 0;
    return c == '\\' ? json_read_escape(at, end) : c;
}

/* --- checking --------------------------------------------------------------------------------- */

typedef struct {
    const char *start, *at, *end;
    nova_error *error;
} checker;

static nova_status json_refuse(const checker *c, const char *message)
{
    return nova_fail(c->error, NOVA_REFUSED, "manifest-json", "byte %zu: %s",
                     (size_t)(c->at - c->start), message);
}

static nova_status json_check_string(checker *c)
{
    if (c->at == c->end || *c->at != '"')
        return json_refuse(c, "a string is missing");
    c->at++;
    for (;;) {
        int32_t point = json_read_point(&c->at, c->end);
        if (point < 0)
            return json_refuse(c, "a string is unterminated or not canonical");
        if (point == 0)
            return NOVA_OK;
    }
}

static nova_status json_check_number(checker *c)
{
    bool negative = *c->at == '-';
    c->at += negative;
    const char *first = c->at;
    uint64_t value = 0;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++) {
        if (c->at - first >= 19)
            return json_refuse(c, "a number does not fit into 63 bits");
        value = value * 10 + (uint64_t)(*c->at - '0');
    }
    if (c->at == first)
        return json_refuse(c, "no value");
    if (value > INT64_MAX)
        return json_refuse(c, "a number does not fit into 63 bits");
    if (*first == '0' && (negative || c->at - first > 1))
        return json_refuse(c, "a number has a needless sign or zero");
    return NOVA_OK;
}

static nova_status json_check_word(checker *c, const char *word)
{
    size_t length = strlen(word);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, word, length) != 0)
        return json_refuse(c, "no value");
    c->at += length;
    return NOVA_OK;
}

/* Whether the first of two checked strings (after their quotes) precedes the second. */
static bool json_is_before(const char *a, const char *b, const char *end)
{
    for (;;) {
        int32_t left = json_read_point(&a, end), right = json_read_point(&b, end);
        if (left != right || left == 0)
            return left < right;
    }
}

static nova_status json_check_key(checker *c, const char **before)
{
    const char *key = c->at + 1;
    nova_status status = json_check_string(c);
    if (status != NOVA_OK)
        return status;
    if (*before != NULL && !json_is_before(*before, key, c->end))
        return json_refuse(c, "keys are not sorted, or one is there twice");
    *before = key;
    if (c->at == c->end || *c->at != ':')
        return json_refuse(c, "a colon is missing");
    c->at++;
    return NOVA_OK;
}

nova_status nova_json_check(const char *text, size_t size, nova_error *error)
{
    checker c = {text, text, text + size, error};
    struct {
        char close;
        const char *key; /* the last one; NULL in a list and before the first */
    } stack[MOST_DEPTH];
    int depth = 0;
    nova_status status = NOVA_OK;
    if (size == 0 || *text != '{')
        return json_refuse(&c, "not an object"); /* in one, something always follows a number */
    for (;;) {
        /* A value. */
        char first = c.at < c.end ? *c.at : '\0';
        if (first == '{' || first == '[') {
            if (depth == MOST_DEPTH)
                return json_refuse(&c, "values are nested too deeply");
            c.at++;
            stack[depth].close = first == '{' ? '}' : ']';
            stack[depth++].key = NULL;
            if (c.at < c.end && *c.at == stack[depth - 1].close) {
                c.at++;
                depth--;
            } else {
                if (first == '{' && (status = json_check_key(&c, &stack[depth - 1].key)) != NOVA_OK)
                    return status;
                continue;
            }
        } else if (first == '"') {
            status = json_check_string(&c);
        } else if (first == 't' || first == 'f') {
            status = json_check_word(&c, first == 't' ? "true" : "false");
        } else if (first == '-' || (first >= '0' && first <= '9')) {
            status = json_check_number(&c);
        } else {
            return json_refuse(&c, "no value");
        }
        if (status != NOVA_OK)
            return status;
        /* What follows it. */
        while (depth > 0 && c.at < c.end && *c.at == stack[depth - 1].close) {
            c.at++;
            depth--;
        }
        if (depth == 0)
            return c.at == c.end ? NOVA_OK : json_refuse(&c, "something follows the value");
        if (c.at == c.end || *c.at != ',')
            return json_refuse(&c, "a comma or the end of a list or object is missing");
        c.at++;
        if (stack[depth - 1].close == '}' &&
            (status = json_check_key(&c, &stack[depth - 1].key)) != NOVA_OK)
            return status;
    }
}

/* --- walking ---------------------------------------------------------------------------------- */

char nova_json_kind(nova_json json)
{
    char c = *json.at;
    if (c == '-' || (c >= '0' && c <= '9'))
        return '0';
    return c == 'f' ? 't' : c;
}

/* After the closing quote; every escape is at least two characters long. */
static const char *json_string_end(const char *at)
{
    for (at++; *at != '"'; at++)
        if (*at == '\\')
            at++;
    return at + 1;
}

void nova_json_skip(nova_json *json)
{
    int depth = 0;
    do {
        switch (nova_json_kind(*json)) {
        case '{':
        case '[':
            depth++;
            json->at++;
            break;
        case '}':
        case ']':
            depth--;
            json->at++;
            break;
        case '"':
            json->at = json_string_end(json->at);
            break;
        case '0':
            (void)nova_json_number(json);
            break;
        case 't':
            (void)nova_json_flag(json);
            break;
        default: /* a comma or colon */
            json->at++;
        }
    } while (depth > 0);
}

void nova_json_enter(nova_json *json)
{
    json->at++;
}

bool nova_json_more(nova_json *json)
{
    bool ends = *json->at == ']' || *json->at == '}';
    json->at += ends || *json->at == ',';
    return !ends;
}

size_t nova_json_count(nova_json json)
{
    bool object = *json.at == '{';
    size_t count = 0;
    for (nova_json_enter(&json); nova_json_more(&json); count++) {
        if (object)
            nova_json_key(&json);
        nova_json_skip(&json);
    }
    return count;
}

void nova_json_key(nova_json *json)
{
    json->at = json_string_end(json->at) + 1;
}

bool nova_json_key_is(nova_json *json, const char *name)
{
    /* Names of fields need no escapes; strncmp stops at the closing quote at the latest. */
    size_t length = strlen(name);
    if (*json->at != '"' || strncmp(json->at + 1, name, length) != 0 || json->at[1 + length] != '"')
        return false;
    json->at += length + 3;
    return true;
}

size_t nova_json_capacity(nova_json json)
{
    return (size_t)(json_string_end(json.at) - json.at);
}

/* An escape takes six characters a code point of up to three bytes, so it never grows. */
void nova_json_string(nova_json *json, char *text)
{
    const char *end = json_string_end(json->at), *at = json->at + 1;
    for (int32_t point; (point = json_read_point(&at, end)) > 0;) {
        if (point < 0x80) {
            *text++ = (char)point;
            continue;
        }
        int more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
        *text++ = (char)((0xff00 >> (more + 1) & 0xff) | point >> 6 * more);
        while (more-- > 0)
            *text++ = (char)(0x80 | (point >> 6 * more & 0x3f));
    }
    *text = '\0';
    json->at = end;
}

int64_t nova_json_number(nova_json *json)
{
    bool negative = *json->at == '-';
    json->at += negative;
    int64_t value = 0;
    for (; *json->at >= '0' && *json->at <= '9'; json->at++)
        value = value * 10 + (*json->at - '0');
    return negative ? -value : value;
}

bool nova_json_flag(nova_json *json)
{
    bool value = *json->at == 't';
    json->at += value ? 4 : 5;
    return value;
}
