/* Canonical JSON: keys sorted and different, no spaces, ASCII, integers only, nothing nested
 * deeply.
 *
 * nova_json_check looks at a whole text, an object, once; the other functions walk a text that it
 * has accepted and therefore cannot fail. manifest.c is the only caller. */
#ifndef NOVA_LOADER_JSON_H
#define NOVA_LOADER_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nova/error.h"

/* A place in a checked text. */
typedef struct nova_json {
    const char *at;
} nova_json;

/* Thread-safe, as all below. The text needs no NUL at its end. */
nova_status nova_json_check(const char *text, size_t size, nova_error *error);

/* What the value here is: '{', '[', '"', '0' (any number) or 't' (true or false). */
char nova_json_kind(nova_json json);

/* Steps over the value here. */
void nova_json_skip(nova_json *json);

/* Steps into the list or object here. Then `more` says whether there is another element and steps
 * to it, or says no and steps out. */
void nova_json_enter(nova_json *json);
bool nova_json_more(nova_json *json);

/* How many elements the list or object here has; takes time linear in its length. */
size_t nova_json_count(nova_json json);

/* Steps over the key and colon here. With a name: only when it is the key; else nothing happens. */
void nova_json_key(nova_json *json);
bool nova_json_key_is(nova_json *json, const char *name);

/* Bytes that the string here needs at most, with its NUL. */
size_t nova_json_capacity(nova_json json);

/* Steps over the string here and writes it as UTF-8 with a NUL, which is its only one. */
void nova_json_string(nova_json *json, char *text);

int64_t nova_json_number(nova_json *json);
bool nova_json_flag(nova_json *json);

#endif
