/*
 * Two-dimensional .npy files (NumPy's format, versions 1.0, 2.0 and 3.0): float32 or float64,
 * little-endian, C order.
 *
 *   "\x93NUMPY", major, minor, header length (2 bytes in version 1.0, 4 later), header, data
 *
 * The header is the text of a Python dict with the keys descr, fortran_order and shape. A file
 * comes from outside: each of these is checked before it is used, and what is refused is refused
 * with the file's name, what is wrong and what to do about it.
 *
 * Threads: one file, one thread.
 */
#ifndef EXAMPLES_NPY_H
#define EXAMPLES_NPY_H

#include <stddef.h>
#include <stdint.h>

enum { NPY_TEXT_BYTES = 512 };

struct npy {
    size_t element_bytes; /* 4: float32; 8: float64 */
    int64_t rows;
    int64_t columns;
    const void *data; /* npy_open: mapped; rows x columns elements */

    void *mapping; /* private */
    size_t mapping_bytes;
    int fd;
};

/* Map a file for reading. Returns 0, or -1 with why in `error`. Ends with npy_close(). */
int npy_open(const char *path, struct npy *out_file, char error[NPY_TEXT_BYTES]);
/* Make a file of this shape, filled with zeros, for npy_write_box(). Overwrites. 0, or -1 with why. */
int npy_create(const char *path, size_t element_bytes, int64_t rows, int64_t columns,
               struct npy *out_file, char error[NPY_TEXT_BYTES]);
/*
 * Write count rows x columns elements, dense in memory, to the box that begins at (row, column). 0,
 * or -1 with why.
 */
int npy_write_box(const struct npy *file, int64_t row, int64_t column, int64_t rows,
                  int64_t columns, const void *data, char error[NPY_TEXT_BYTES]);
/* 0, or -1 when what was written did not reach the file (a full disk). */
int npy_close(struct npy *file, char error[NPY_TEXT_BYTES]);

/*
 * The checks on their own, on bytes in memory (`length` of them there, `file_bytes` in the whole
 * file). *out_offset: of the data.
 */
int npy_parse(const char *path, const void *bytes, size_t length, uint64_t file_bytes,
              struct npy *out_file, size_t *out_offset, char error[NPY_TEXT_BYTES]);

#endif
