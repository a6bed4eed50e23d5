/* A parser of canonical JSON: keys sorted and distinct, no spaces, ASCII, integers only, bounded
 * nesting.
 *
 * nova_json_check validates a text (an object) once; the other functions walk a validated text and
 * cannot fail. manifest.c is the only caller. */
#ifndef NOVA_BASE_JSON_H
#define NOVA_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nova/error.h"

/* A cursor in a validated text. */
typedef struct nova_json {
    const char *at;
} nova_json;

/* Thread-safe, as all below. The text needs no NUL at its end. */
nova_status nova_json_check(const char *text, size_t size, nova_error *error);

/* What the value here is: '{', '[', '"', '0' (any number) or 't' (true or false). */
char nova_json_kind(nova_json json);

/* Steps over the value here. */
void nova_json_skip(nova_json *json);

/* Enters the list or object at the cursor. Then `more` advances to the next element and returns
 * true, or leaves the list or object and returns false. */
void nova_json_enter(nova_json *json);
bool nova_json_more(nova_json *json);

/* How many elements the list or object here has; takes time linear in its length. */
size_t nova_json_count(nova_json json);

/* Advances over the key and colon at the cursor. With a name: only if it is the key, else no
 * effect. */
void nova_json_key(nova_json *json);
bool nova_json_key_is(nova_json *json, const char *name);

/* Bytes that the string here needs at most, with its NUL. */
size_t nova_json_capacity(nova_json json);

/* Steps over the string here and writes it as UTF-8 with a NUL, which is its only one. */
void nova_json_string(nova_json *json, char *text);

int64_t nova_json_number(nova_json *json);
bool nova_json_flag(nova_json *json);

#endif
