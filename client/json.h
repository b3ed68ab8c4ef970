/*
 * Members of JSON objects, as `status --json` and the like are made of. Each puts the comma before
 * itself that it needs.
 */
#ifndef CLIENT_JSON_H
#define CLIENT_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

/* A comma, unless an object or a list has just begun. For elements of lists. */
void json_next(struct pl_str *out);
void json_text(struct pl_str *out, const char *name, const char *value); /* NULL: "" */
void json_number(struct pl_str *out, const char *name, uint64_t value);
void json_flag(struct pl_str *out, const char *name, bool value);
/* 64 bits as a text of 16 digits: readers of JSON have numbers of 53. */
void json_id(struct pl_str *out, const char *name, uint64_t value);
/* The name of a member whose value follows: "{" or "[", which the caller ends. */
void json_open(struct pl_str *out, const char *name, char bracket);

#endif
