/* Any bytes as a .npy file: refused with a reason, or its elements lie inside of the file. */
#include <stdlib.h>
#include <string.h>

#include "examples/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Abort, also in a build without assertions. */
static void want(int condition)
{
    if (!condition) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char error[NPY_TEXT_BYTES] = "";
    struct npy file;
    size_t offset;

    if (npy_parse("a.npy", data, size, size, &file, &offset, error) != 0) {
        want(error[0] != '\0' && memchr(error, '\0', sizeof(error)) != NULL);
        return 0;
    }
    want(file.element_bytes == 4 || file.element_bytes == 8);
    want(file.rows >= 0 && file.columns >= 0 && offset <= size);
    want(file.rows == 0 || file.columns == 0 ||
         (uint64_t)file.columns <=
             (size - offset) / file.element_bytes / (uint64_t)file.rows);
    return 0;
}
