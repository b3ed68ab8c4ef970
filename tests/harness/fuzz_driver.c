/*
 * A fuzzer's main() for compilers without libFuzzer, with the same arguments and the same entry point:
 *
 *   fuzzer [-runs=N] [-seed=S] [-artifact_prefix=P] folder...
 *
 * It tries each file of the folders, then N inputs grown from them by random changes. That finds
 * less than libFuzzer, which sees coverage; it is there so that every build, also with gcc, tries
 * hostile input.
 *
 * Input number i depends on the seed, i and the files alone. The inputs are tried in a forked child
 * that counts in shared memory; when it dies, the parent makes the fatal input once more and writes
 * it to a file, whatever killed the child.
 */
#include "test.h"

#include "base/vec.h"

#include <dirent.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define INPUT_MAX 65536

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct file {
    uint8_t *bytes;
    size_t count;
};

struct input {
    uint8_t bytes[INPUT_MAX];
    size_t count;
};

struct fuzzer {
    uint64_t runs;
    uint64_t seed;
    const char *prefix;  /* of the file that a fatal input goes to */
    struct pl_vec files; /* struct file */
    struct input input;  /* the one being tried */
};

static struct fuzzer fuzzer;

static void load_file(const char *folder, const char *name)
{
    char path[4096];
    struct file *file;
    FILE *stream;

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    stream = fopen(path, "rb");
    file   = pl_vec_push(&fuzzer.files);
    if (stream == NULL || file == NULL) {
        perror(path);
        exit(2);
    }
    file->bytes = malloc(INPUT_MAX);
    if (file->bytes == NULL) {
        perror(path);
        exit(2);
    }
    file->count = fread(file->bytes, 1, INPUT_MAX, stream);
    (void)fclose(stream);
}

/* In the order of names, so that a seed means the same on every machine. */
static void load_folder(const char *folder)
{
    struct dirent **entries;
    int count = scandir(folder, &entries, NULL, alphasort);

    if (count < 0) {
        perror(folder);
        exit(2);
    }
    for (int i = 0; i < count; i++) {
        if (entries[i]->d_name[0] != '.') {
            load_file(folder, entries[i]->d_name);
        }
        free(entries[i]);
    }
    free(entries);
}

static size_t below(uint64_t *rng, size_t limit)
{
    return limit > 0 ? (size_t)(test_random(rng) % limit) : 0;
}

/* Numbers that length and count checks get wrong. */
static uint64_t interesting(uint64_t *rng)
{
    static const uint64_t numbers[] = {0,
                                       1,
                                       0x7f,
                                       0x80,
                                       0xff,
                                       0x7fff,
                                       0xffff,
                                       0x7fffffff,
                                       0x80000000,
                                       0xffffffff,
                                       0x7fffffffffffffff,
                                       UINT64_MAX};

    return numbers[below(rng, sizeof(numbers) / sizeof(numbers[0]))] + below(rng, 3) - 1;
}

static void overwrite_number(struct input *input, uint64_t *rng)
{
    uint64_t number = interesting(rng);
    size_t width    = (size_t)1 << below(rng, 4);

    if (input->count >= width) {
        memcpy(input->bytes + below(rng, input->count - width + 1), &number, width);
    }
}

/* Put `count` bytes of `from` at a random place, moving the rest up. */
static void insert(struct input *input, uint64_t *rng, const uint8_t *from, size_t count)
{
    size_t at = below(rng, input->count + 1);

    if (input->count + count <= INPUT_MAX) {
        memmove(input->bytes + at + count, input->bytes + at, input->count - at);
        memcpy(input->bytes + at, from, count);
        input->count += count;
    }
}

static void insert_part_of_a_file(struct input *input, uint64_t *rng)
{
    if (fuzzer.files.count > 0) {
        const struct file *file = pl_vec_at(&fuzzer.files, below(rng, fuzzer.files.count));
        size_t start            = below(rng, file->count);

        insert(input, rng, file->bytes + start, below(rng, file->count - start + 1));
    }
}

static void insert_random(struct input *input, uint64_t *rng)
{
    uint8_t bytes[16];
    size_t count = 1 + below(rng, sizeof(bytes));

    for (size_t i = 0; i < count; i++) {
        bytes[i] = (uint8_t)test_random(rng);
    }
    insert(input, rng, bytes, count);
}

static void cut(struct input *input, uint64_t *rng)
{
    size_t at    = below(rng, input->count);
    size_t count = below(rng, input->count - at + 1);

    memmove(input->bytes + at, input->bytes + at + count, input->count - at - count);
    input->count -= count;
}

static void change(struct input *input, uint64_t *rng)
{
    switch (below(rng, 7)) {
    case 0:
        if (input->count > 0) {
            input->bytes[below(rng, input->count)] ^= (uint8_t)(1u << below(rng, 8));
        }
        break;
    case 1:
        if (input->count > 0) {
            input->bytes[below(rng, input->count)] = (uint8_t)test_random(rng);
        }
        break;
    case 2:
        overwrite_number(input, rng);
        break;
    case 3:
        insert_part_of_a_file(input, rng);
        break;
    case 4:
        insert_random(input, rng);
        break;
    case 5:
        input->count = below(rng, input->count + 1);
        break;
    default:
        cut(input, rng);
    }
}

/* Input number `run` into fuzzer.input: first the files as they are, then changed ones. */
static void make_input(uint64_t run)
{
    uint64_t rng        = fuzzer.seed ^ (run * 0x9e3779b97f4a7c15u);
    struct input *input = &fuzzer.input;
    const size_t files  = fuzzer.files.count;
    const int unchanged = run < files;
    const size_t chosen = unchanged ? (size_t)run : below(&rng, files);

    input->count = 0;
    if (files > 0) {
        const struct file *file = pl_vec_at(&fuzzer.files, chosen);

        memcpy(input->bytes, file->bytes, file->count);
        input->count = file->count;
    }
    if (!unchanged) {
        for (size_t changes = 1 + below(&rng, 8); changes > 0; changes--) {
            change(input, &rng);
        }
    }
}

/* A copy of exactly the input's size, so that the address sanitizer sees a read beyond it. */
static void try_input(void)
{
    uint8_t *copy = malloc(fuzzer.input.count > 0 ? fuzzer.input.count : 1);

    if (copy == NULL) {
        abort();
    }
    memcpy(copy, fuzzer.input.bytes, fuzzer.input.count);
    (void)LLVMFuzzerTestOneInput(copy, fuzzer.input.count); /* its answer is reserved */
    free(copy);
}

static void write_fatal_input(uint64_t run)
{
    char path[4096];
    FILE *stream;

    make_input(run);
    (void)snprintf(path, sizeof(path), "%scrash-%llu-%llu", fuzzer.prefix,
                   (unsigned long long)fuzzer.seed, (unsigned long long)run);
    stream = fopen(path, "wb");
    if (stream == NULL ||
        fwrite(fuzzer.input.bytes, 1, fuzzer.input.count, stream) != fuzzer.input.count ||
        fclose(stream) != 0) {
        perror(path);
        return;
    }
    fprintf(stderr, "fuzz: input %llu of seed %llu is fatal; %zu bytes are in %s\n",
            (unsigned long long)run, (unsigned long long)fuzzer.seed, fuzzer.input.count,
            path);
}

static int run_all(void)
{
    uint64_t total = fuzzer.runs + fuzzer.files.count;
    _Atomic uint64_t *run;
    int status;
    pid_t pid;

    run =
        mmap(NULL, sizeof(*run), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run == MAP_FAILED) {
        perror("mmap");
        return 2;
    }
    (void)fflush(NULL);
    pid = fork();
    if (pid == 0) {
        for (*run = 0; *run < total; (*run)++) {
            make_input(*run);
            try_input();
        }
        exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid) {
        perror("fork");
        return 2;
    }

    if (status != 0) {
        write_fatal_input(*run < total ? *run : total - 1);
        return 1;
    }
    printf("fuzz: %llu inputs from %zu files, seed %llu\n", (unsigned long long)total,
           fuzzer.files.count, (unsigned long long)fuzzer.seed);
    return 0;
}

int main(int argc, char **argv)
{
    fuzzer.files  = PL_VEC_INIT(struct file);
    fuzzer.runs   = 20000;
    fuzzer.seed   = (uint64_t)time(NULL);
    fuzzer.prefix = "";

    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "-runs=", 6) == 0) {
            fuzzer.runs = strtoull(argv[i] + 6, NULL, 10);
        } else if (strncmp(argv[i], "-seed=", 6) == 0) {
            fuzzer.seed = strtoull(argv[i] + 6, NULL, 10);
        } else if (strncmp(argv[i], "-artifact_prefix=", 17) == 0) {
            fuzzer.prefix = argv[i] + 17;
        } else if (argv[i][0] != '-') {
            load_folder(argv[i]);
        }
    }
    return run_all();
}
