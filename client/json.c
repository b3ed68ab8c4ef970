#include "client/json.h"

void json_next(struct pl_str *out)
{
    char last = out->length > 0 ? out->text[out->length - 1] : '{';

    if (last != '{' && last != '[') {
        pl_str_append(out, ",");
    }
}

void json_text(struct pl_str *out, const char *name, const char *value)
{
    json_next(out);
    pl_str_append(out, "\"%s\":", name);
    pl_str_append_json(out, value != NULL ? value : "");
}

void json_number(struct pl_str *out, const char *name, uint64_t value)
{
    json_next(out);
    pl_str_append(out, "\"%s\":%llu", name, (unsigned long long)value);
}

void json_flag(struct pl_str *out, const char *name, bool value)
{
    json_next(out);
    pl_str_append(out, "\"%s\":%s", name, value ? "true" : "false");
}

void json_id(struct pl_str *out, const char *name, uint64_t value)
{
    json_next(out);
    pl_str_append(out, "\"%s\":\"%016llx\"", name, (unsigned long long)value);
}

void json_open(struct pl_str *out, const char *name, char bracket)
{
    json_next(out);
    pl_str_append(out, "\"%s\":%c", name, bracket);
}
