/*
 * Texts in what is shown: names and labels that clients, workers and stores gave, failures in the
 * words of a function. An answer to `plasmon status` and the like is a table on somebody's
 * terminal, so what would begin another line is a space there, and what would tell the terminal
 * what to do is question marks.
 */
#include <stdbool.h>
#include <string.h>

#include "base/text.h"
#include "wire/wire_int.h"

static void text_clean(char *text)
{
    size_t length = strlen(text), at;

    while ((at = pl_text_control(text, length)) < length) {
        bool two = (unsigned char)text[at] == 0xc2;

        if (two) {
            text[at++] = '?';
        }
        text[at] = text[at] == '\n' || text[at] == '\t' ? ' ' : '?';
        text += at + 1;
        length -= at + 1;
    }
}

/* One of a field's values. */
static void value_clean(const ProtobufCFieldDescriptor *field, void *value)
{
    if (value == NULL) {
        return;
    }
    if (field->type == PROTOBUF_C_TYPE_STRING) {
        /* the default, which is not ours, is empty: nothing is written */
        text_clean(value);
    } else {
        wire_texts_clean(value);
    }
}

void wire_texts_clean(ProtobufCMessage *message)
{
    const ProtobufCMessageDescriptor *type = message->descriptor;

    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];
        void **values = (void **)(void *)((char *)message + field->offset);
        size_t count  = 1;

        if (field->type != PROTOBUF_C_TYPE_STRING &&
            field->type != PROTOBUF_C_TYPE_MESSAGE) {
            continue;
        }
        if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0 &&
            *(uint32_t *)(void *)((char *)message + field->quantifier_offset) !=
                field->id) {
            continue;
        }
        if (field->label == PROTOBUF_C_LABEL_REPEATED) {
            count  = *(size_t *)(void *)((char *)message + field->quantifier_offset);
            values = *values;
        }
        for (size_t k = 0; k < count; k++) {
            value_clean(field, values[k]);
        }
    }
}
