/* Headers that numpy writes are read; everything else is refused with the file's name and what to do. */
#include "npy.h"

#include <stdlib.h>
#include <unistd.h>

#include "tests/harness/test.h"

/* A .npy file in memory: preamble of version 1.0, the header as given, `data_bytes` zeros. */
struct bytes {
    unsigned char data[70000];
    size_t length;
};

static struct npy file;
static size_t offset;
static char error[NPY_TEXT_BYTES];

static void make(struct bytes *bytes, const char *header, size_t data_bytes)
{
    size_t length = strlen(header);

    memset(bytes, 0, sizeof(*bytes));
    memcpy(bytes->data, "\x93NUMPY\x01\x00", 8);
    bytes->data[8] = (unsigned char)(length & 0xff);
    bytes->data[9] = (unsigned char)(length >> 8);
    memcpy(bytes->data + 10, header, length);
    bytes->length = 10 + length + data_bytes;
}

static int parse(const struct bytes *bytes)
{
    error[0] = '\0';
    return npy_parse("x.npy", bytes->data, bytes->length, bytes->length, &file, &offset,
                     error);
}

#define GOOD "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }  \n"

static void refuse(const char *header, size_t data_bytes, const char *text)
{
    static struct bytes bytes;

    make(&bytes, header, data_bytes);
    ASSERT_EQ(parse(&bytes), -1);
    ASSERT_CONTAINS(error, "x.npy");
    ASSERT_CONTAINS(error, text);
}

TEST(a_header_of_numpy_is_read)
{
    static struct bytes bytes;

    make(&bytes, GOOD, 48);
    ASSERT_EQ(parse(&bytes), 0);
    ASSERT_EQ(file.rows, 2);
    ASSERT_EQ(file.columns, 3);
    ASSERT_EQ(file.element_bytes, 8);
    ASSERT_EQ(offset, bytes.length - 48);

    make(&bytes, "{\"shape\":(1,4),'fortran_order':False,'descr':'<f4'}", 16);
    ASSERT_EQ(parse(&bytes), 0);
    ASSERT_EQ(file.columns, 4);
    ASSERT_EQ(file.element_bytes, 4);
}

TEST(versions_2_and_3_have_a_longer_length)
{
    static struct bytes bytes;

    for (unsigned char version = 2; version <= 3; version++) {
        make(&bytes, GOOD, 50); /* two zeros more: they become part of the length below */
        memmove(bytes.data + 12, bytes.data + 10, strlen(GOOD));
        bytes.data[6]  = version;
        bytes.data[10] = 0;
        bytes.data[11] = 0;
        ASSERT_EQ(parse(&bytes), 0);
        ASSERT_EQ(file.rows, 2);
    }
}

TEST(a_wrong_magic_is_refused)
{
    static struct bytes bytes;

    make(&bytes, GOOD, 48);
    bytes.data[0] = 'P';
    ASSERT_EQ(parse(&bytes), -1);
    ASSERT_CONTAINS(error, "not a .npy file");
}

TEST(an_unknown_version_is_refused)
{
    static struct bytes bytes;

    make(&bytes, GOOD, 48);
    bytes.data[6] = 9;
    ASSERT_EQ(parse(&bytes), -1);
    ASSERT_CONTAINS(error, "version 9.0");
}

TEST(every_truncation_is_refused)
{
    static struct bytes bytes;
    size_t whole;

    make(&bytes, GOOD, 48);
    whole = bytes.length;
    for (bytes.length = 0; bytes.length < whole; bytes.length++) {
        ASSERT_EQ(parse(&bytes), -1);
        ASSERT_CONTAINS(error, "x.npy");
    }
    bytes.length = whole;
    ASSERT_EQ(parse(&bytes), 0);
    bytes.length = whole + 1;
    ASSERT_EQ(parse(&bytes), -1);
}

TEST(other_dtypes_are_refused_with_a_remedy)
{
    refuse("{'descr': '|O', 'fortran_order': False, 'shape': (2, 3), }", 48,
           "Python objects");
    refuse("{'descr': '>f8', 'fortran_order': False, 'shape': (2, 3), }", 48, "astype");
    refuse("{'descr': '<i8', 'fortran_order': False, 'shape': (2, 3), }", 48, "'<i8'");
    refuse("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (2, 3), }", 48,
           "not a simple one");
}

TEST(fortran_order_is_refused_with_a_remedy)
{
    refuse("{'descr': '<f8', 'fortran_order': True, 'shape': (2, 3), }", 48,
           "ascontiguousarray");
}

TEST(shapes_that_are_no_matrix_are_refused)
{
    refuse("{'descr': '<f8', 'fortran_order': False, 'shape': (6,), }", 48, "1 dimensions");
    refuse("{'descr': '<f8', 'fortran_order': False, 'shape': (), }", 8, "0 dimensions");
    refuse("{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2, 3), }", 48,
           "3 dimensions");
    refuse("{'descr': '<f8', 'fortran_order': False, 'shape': (0, 3), }", 0, "empty");
    refuse("{'descr': '<f8', 'fortran_order': False, 'shape': (-2, -3), }", 48,
           "not a number");
    refuse("{'descr': '<f8', 'fortran_order': False, 'shape': 6, }", 48, "not a tuple");
}

TEST(huge_shapes_overflow_nothing)
{
    refuse("{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296), }",
           48, "63 bits");
    refuse("{'descr': '<f8', 'fortran_order': False, 'shape': (9223372036854775807, 1), }",
           48, "63 bits");
    refuse("{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999, 1), }",
           48, "63 bits");
}

TEST(headers_that_are_no_dict_of_ours_are_refused)
{
    refuse("", 48, "not a dict");
    refuse("[]", 48, "not a dict");
    refuse("{'descr': '<f8'", 48, "does not end");
    refuse("{'descr': '<f8', 'fortran_order': False}", 48, "lacks");
    refuse("{'descr': '<f8', 'descr': '<f8', 'fortran_order': False, 'shape': (2, 3)}", 48,
           "once each");
    refuse("{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), 'x': 1}", 48,
           "once each");
    refuse("{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3)} x", 48, "goes on");
    refuse("{'descr': '<f8", 48, "not a simple one");
    refuse("{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3", 48, "does not end");
}

TEST(a_header_longer_than_any_of_a_matrix_is_refused)
{
    static struct bytes bytes;

    make(&bytes, GOOD, 48);
    bytes.data[6]  = 2;
    bytes.data[10] = 0xff;
    bytes.data[11] = 0xff;
    ASSERT_EQ(parse(&bytes), -1);
    ASSERT_CONTAINS(error, "damaged");
}

TEST(what_is_written_is_read_back)
{
    char path[]       = "npy-XXXXXX";
    const float box[] = {1, 2, 3, 4};
    struct npy out;
    int fd = mkstemp(path);

    ASSERT_TRUE(fd >= 0);
    ASSERT_EQ(npy_create(path, 4, 3, 5, &out, error), 0);
    ASSERT_EQ(npy_write_box(&out, 1, 3, 2, 2, box, error), 0);
    ASSERT_EQ(npy_write_box(&out, 2, 3, 2, 2, box, error), -1); /* reaches over the edge */
    ASSERT_EQ(npy_close(&out, error), 0);

    ASSERT_EQ(npy_open(path, &file, error), 0);
    ASSERT_EQ(file.rows, 3);
    ASSERT_EQ(file.columns, 5);
    ASSERT_TRUE(((const float *)file.data)[8] == 1.0f &&
                ((const float *)file.data)[9] == 2.0f);
    ASSERT_TRUE(((const float *)file.data)[13] == 3.0f &&
                ((const float *)file.data)[14] == 4.0f);
    ASSERT_TRUE(((const float *)file.data)[0] == 0.0f);
    ASSERT_EQ(npy_close(&file, error), 0);
    ASSERT_EQ(close(fd), 0);
    ASSERT_EQ(unlink(path), 0);
}

TEST(a_file_that_is_not_there_says_so)
{
    ASSERT_EQ(npy_open("no-such-file.npy", &file, error), -1);
    ASSERT_CONTAINS(error, "No such file");
}

TEST_MAIN()
