/*
 * cluster_program [hold]: a user's program against the cluster that PLASMON_ADDRESS names. It
 * multiplies two matrices and says "right", or what went wrong. With `hold` it then waits for the
 * end of its input before it finishes.
 */
#include <plasmon/plasmon.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 64 };

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, plasmon_error(NULL));
    return 1;
}

int main(int argc, char **argv)
{
    static float a[N][N], b[N][N], c[N][N];
    struct plasmon_shape shape = {.dtype = PLASMON_F32, .ndim = 2, .dim = {N, N}};
    struct plasmon_arg args[]  = {
         {.mode = PLASMON_OUT}, {.mode = PLASMON_IN}, {.mode = PLASMON_IN}};
    plasmon_scalar_t scalars[]     = {{.f = 1}, {.i = 0}, {.i = 0}};
    struct plasmon_call call       = PLASMON_CALL_INIT;
    struct plasmon_options options = PLASMON_OPTIONS_INIT;
    struct plasmon_client *client;
    struct plasmon_ref *product;

    for (int i = 0; i < N; i++) {
        for (int j = 0; j < N; j++) {
            a[i][j] = (float)(i + j);
            b[i][j] = i == j ? 2 : 0;
        }
    }
    options.connect_timeout_ms = 5000;
    call.function              = "gemm";
    call.args                  = args;
    call.arg_count             = 3;
    call.scalars               = scalars;
    call.scalar_count          = 3;
    if (getenv("PLASMON_ADDRESS") == NULL) {
        fprintf(stderr, "PLASMON_ADDRESS is not set\n");
        return 2;
    }
    if (plasmon_init(&options, &client) != PLASMON_OK) {
        return fail("init");
    }
    if (plasmon_put(client, a, &shape, NULL, &args[1].ref) != PLASMON_OK ||
        plasmon_put(client, b, &shape, NULL, &args[2].ref) != PLASMON_OK) {
        return fail("put");
    }
    if (plasmon_submit(client, &call, &product, NULL) != PLASMON_OK) {
        return fail("submit");
    }
    if (plasmon_get(client, product, c, sizeof(c), 20000) != PLASMON_OK) {
        return fail("get");
    }
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < N; j++) {
            if (c[i][j] != 2 * a[i][j]) {
                fprintf(stderr, "c[%d][%d] is %g\n", i, j, (double)c[i][j]);
                return 1;
            }
        }
    }
    printf("right\n");
    (void)fflush(stdout);
    if (argc > 1 && strcmp(argv[1], "hold") == 0) {
        while (getchar() != EOF) {
        }
    }
    plasmon_finish(client);
    return 0;
}
