/*
 * Kernels that may begin early: while the one before them in a stream still runs (programmatic
 * dependent launch, devices of compute capability 9.0).
 *
 * A kernel that follows another one starts some 0.6 us after its end: blocks are handed out, code
 * and parameters fetched. With an early start the device does that beside the end of the one
 * before. It is allowed for a kernel that waits before it does anything, and of that nobody but us
 * can be sure: so the two instructions are put at the beginning of each entry, in the PTX that
 * NVRTC makes, before any other:
 *
 *   griddepcontrol.wait                what came before is over, and all that it wrote is seen here
 *   griddepcontrol.launch_dependents   what comes next may be handed out as soon as all blocks of
 *                                      this kernel got here
 *
 * The second one only in a grid that leaves most of the device free (DEVICE_EARLY_THREADS_MAX):
 * blocks that wait take room, from this kernel's own last blocks and from other streams. Without it
 * what comes next is handed out when this kernel's last block has ended, which is still before a
 * full edge would begin it. (An H200, kernels of 2 us in one block 2339 -> 2082 ns, of 1024 blocks
 * of 256 threads 3170 -> 2910, 3010 if they let the next one wait; and a short kernel in another
 * stream beside chains of 1056 blocks 2.6 us, 3.6 if they do.)
 *
 * docs/ordering.md says why the order of launches stays what it was. The edited text goes through
 * nvJitLink, which makes of PTX what NVRTC makes of it, without the driver; with no such library
 * the kernel is what it was, and begins when its turn comes. What was edited has a variable by
 * which a loaded module is recognised (DEVICE_EARLY_MARK), so an image says it of itself, from a
 * cache too.
 *
 * WHAT STAYS AS IT IS: code that calls functions where NVRTC's does not. nvJitLink makes of PTX a
 * part of a program, in which the slow ways of divisions and roots, which NVRTC puts where they are
 * needed, are functions (B&S of bench/graphs, all in fp64, took 3 % longer). Texts that say
 * griddepcontrol themselves; options that are for the part of the compiler behind PTX, which
 * nvJitLink would have to be told.
 */
#include "kernels/code_int.h"

#include <ctype.h>
#include <dlfcn.h>
#include <elf.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"

#define INPUT_PTX 2 /* NVJITLINK_INPUT_PTX */

static const char mark[] = "\n.visible .global .align 4 .u32 " DEVICE_EARLY_MARK " = 1;\n";
#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)
#define LIMIT    TEXT(DEVICE_EARLY_THREADS_MAX)
/*
 * How many threads it has (a product that wraps around only says early or not) is worked out while
 * it waits.
 */
static const char begin[] = "\n"
                            "\t{\n"
                            "\t.reg .pred %plearly;\n"
                            "\t.reg .u32 %plg<3>, %plb<3>;\n"
                            "\t.reg .u64 %pln, %plm;\n"
                            "\tmov.u32 %plg0, %nctaid.x;\n"
                            "\tmov.u32 %plg1, %nctaid.y;\n"
                            "\tmov.u32 %plg2, %nctaid.z;\n"
                            "\tmov.u32 %plb0, %ntid.x;\n"
                            "\tmov.u32 %plb1, %ntid.y;\n"
                            "\tmov.u32 %plb2, %ntid.z;\n"
                            "\tmul.lo.u32 %plb0, %plb0, %plb1;\n"
                            "\tmul.lo.u32 %plb0, %plb0, %plb2;\n"
                            "\tmul.wide.u32 %pln, %plg0, %plb0;\n"
                            "\tmul.wide.u32 %plm, %plg1, %plg2;\n"
                            "\tmul.lo.u64 %pln, %pln, %plm;\n"
                            "\tsetp.le.u64 %plearly, %pln, " LIMIT ";\n"
                            "\tgriddepcontrol.wait;\n"
                            "\t@%plearly griddepcontrol.launch_dependents;\n"
                            "\t}";

/* ----------------------------------------------------------------------------- the text */

/* Options of the compiler up to PTX; each is one word. */
static bool option_known(const char *option, size_t length)
{
    static const char *const heads[] = {"-D",
                                        "-U",
                                        "-I",
                                        "--define-macro=",
                                        "--undefine-macro=",
                                        "--include-path=",
                                        "--std=",
                                        "-std=",
                                        "--use_fast_math",
                                        "-use_fast_math",
                                        "--fmad=",
                                        "-fmad="};

    for (size_t i = 0; i < PL_COUNT(heads); i++) {
        size_t head = strlen(heads[i]);

        /* "-D" alone takes the next word, which would be looked at by itself. */
        if (length >= head && strncmp(option, heads[i], head) == 0 &&
            (head > 2 || length > head)) {
            return true;
        }
    }
    return false;
}

bool code_early_options(const char *options)
{
    const char *at = options;

    while (*at != '\0') {
        size_t length;

        at += strspn(at, " \t\n");
        length = strcspn(at, " \t\n");
        if (length > 0 && !option_known(at, length)) {
            return false;
        }
        at += length;
    }
    return true;
}

static bool word_at(const char *text, const char *at, const char *word)
{
    size_t length = strlen(word);

    return strncmp(at, word, length) == 0 && isspace((unsigned char)at[length]) &&
           (at == text || isspace((unsigned char)at[-1]));
}

/*
 * Behind the brace that opens the body of the entry at `at`; NULL: a declaration, or what NVRTC
 * does not write: a comment or a text in which there may be a brace.
 */
static const char *entry_body(const char *at)
{
    const char *end = at + strcspn(at, "{};/\"");

    return *end == '{' ? end + 1 : NULL;
}

char *code_early_ptx(const char *ptx)
{
    const char *head = strstr(ptx, ".address_size");
    const char *at   = head != NULL ? strchr(head, '\n') : NULL;
    struct pl_str out;
    uint32_t entries = 0;
    char *text;

    if (at == NULL || strstr(ptx, "griddepcontrol") != NULL ||
        strstr(ptx, DEVICE_EARLY_MARK) != NULL) {
        return NULL;
    }
    if (strstr(ptx, ".entry") != NULL && strstr(ptx, ".entry") < at) {
        return NULL; /* not as NVRTC writes it */
    }
    pl_str_init(&out);
    pl_str_append(&out, "%.*s%s", (int)(at - ptx), ptx, mark);
    for (const char *entry; (entry = strstr(at, ".entry")) != NULL;) {
        const char *body = word_at(ptx, entry, ".entry") ? entry_body(entry) : NULL;

        if (body == NULL) {
            entries = 0;
            break;
        }
        pl_str_append(&out, "%.*s%s", (int)(body - at), at, begin);
        at = body;
        entries++;
    }
    pl_str_append(&out, "%s", at);
    text = entries > 0 && !out.failed ? pl_strdup(pl_str_text(&out)) : NULL;
    pl_str_finish(&out);
    return text;
}

/* -------------------------------------------------------------------------- the library */

typedef struct jit_link *jit_link_t;

/* Declared here, as NVRTC's functions are. All give 0 for success. */
static struct {
    void *library;
    unsigned major, minor;
    int (*create)(jit_link_t *link, uint32_t option_count, const char **options);
    int (*destroy)(jit_link_t *link);
    int (*add)(jit_link_t link, int kind, const void *data, size_t bytes, const char *name);
    int (*complete)(jit_link_t link);
    int (*cubin_bytes)(jit_link_t link, size_t *bytes);
    int (*cubin)(jit_link_t link, void *cubin);
    int (*version)(unsigned *major, unsigned *minor);
} jit;
static pthread_once_t jit_once = PTHREAD_ONCE_INIT;
static const char *jit_root; /* where NVRTC was found; NULL: where the loader looks */

static bool jit_try(const char *root, const char *version)
{
    const struct {
        void *member;
        const char *name;
    } functions[] = {
        {&jit.create, "nvJitLinkCreate"},
        {&jit.destroy, "nvJitLinkDestroy"},
        {&jit.add, "nvJitLinkAddData"},
        {&jit.complete, "nvJitLinkComplete"},
        {&jit.cubin_bytes, "nvJitLinkGetLinkedCubinSize"},
        {&jit.cubin, "nvJitLinkGetLinkedCubin"},
        {&jit.version, "nvJitLinkVersion"},
    };
    char path[512];
    void *library;
    bool whole = true;

    (void)snprintf(path, sizeof(path), "%.400s%slibnvJitLink.so.%s",
                   root != NULL ? root : "", root != NULL ? "/lib64/" : "", version);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return false;
    }
    for (size_t i = 0; i < PL_COUNT(functions); i++) {
        void *symbol = dlsym(library, functions[i].name);

        whole &= symbol != NULL;
        memcpy(functions[i].member, &symbol, sizeof(symbol));
    }
    if (!whole || jit.version(&jit.major, &jit.minor) != 0) {
        (void)dlclose(library); /* nothing of it was used */
        return false;
    }
    jit.library = library;
    return true;
}

static void jit_open(void)
{
    if (!code_toolkit_search(jit_root, jit_try)) {
        pl_info("kernels", "libnvJitLink.so.13 or .12 not found: kernels of source text "
                           "begin when the one before them has ended");
    }
}

bool code_early_ready(const char *root, unsigned *out_major, unsigned *out_minor)
{
    jit_root = root;
    (void)pthread_once(&jit_once, jit_open); /* fails only for a bad control */
    *out_major = jit.major;
    *out_minor = jit.minor;
    return jit.library != NULL;
}

/* PTX of a newer NVRTC is refused, and other things are: then the kernel stays what it was. */
static bool link_cubin(jit_link_t link, const char *ptx, void **out_image,
                       size_t *out_bytes)
{
    size_t bytes = 0;
    void *image;

    if (jit.add(link, INPUT_PTX, ptx, strlen(ptx) + 1, "plasmon") != 0 ||
        jit.complete(link) != 0 || jit.cubin_bytes(link, &bytes) != 0 || bytes == 0) {
        return false;
    }
    image = pl_alloc(bytes + 1);
    if (image == NULL || jit.cubin(link, image) != 0) {
        pl_free(image);
        return false;
    }
    *out_image = image;
    *out_bytes = bytes;
    return true;
}

uint32_t code_early_functions(const void *image, size_t bytes)
{
    static const char text[] = ".text.";
    const char *base         = image;
    Elf64_Ehdr head;
    Elf64_Shdr names, section;
    uint32_t count = 0;

    if (bytes < sizeof(head)) {
        return 0;
    }
    memcpy(&head, image, sizeof(head));
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_shstrndx >= head.e_shnum ||
        head.e_shentsize != sizeof(section) || head.e_shoff > bytes ||
        (uint64_t)head.e_shnum * sizeof(section) > bytes - head.e_shoff) {
        return 0;
    }
    memcpy(&names, base + head.e_shoff + head.e_shstrndx * sizeof(section), sizeof(names));
    for (uint32_t i = 0; i < head.e_shnum; i++) {
        uint64_t at;

        memcpy(&section, base + head.e_shoff + i * sizeof(section), sizeof(section));
        at = names.sh_offset + section.sh_name;
        if (names.sh_offset <= bytes && at <= bytes && sizeof(text) <= bytes - at) {
            count += strncmp(base + at, text, sizeof(text) - 1) == 0;
        }
    }
    return count;
}

bool code_early_image(const char *ptx, unsigned arch, const void *given, size_t given_bytes,
                      void **out_image, size_t *out_bytes)
{
    char option[24];
    const char *options[] = {option, "-O3"};
    jit_link_t link       = NULL;
    char *text            = code_early_ptx(ptx);
    bool made             = false;

    (void)snprintf(option, sizeof(option), "-arch=sm_%u", arch);
    if (text != NULL && jit.create(&link, PL_COUNT(options), options) == 0) {
        made = link_cubin(link, text, out_image, out_bytes);
        (void)jit.destroy(&link); /* nothing more to do with it */
    }
    pl_free(text);
    if (made && code_early_functions(*out_image, *out_bytes) !=
                    code_early_functions(given, given_bytes)) {
        pl_free(*out_image);
        made = false;
    }
    return made;
}
