/* The shortest program that does something: two matrices, one product. It is the one in the README. */
#include <plasmon/plasmon.h>
#include <stdio.h>

int main(void)
{
    double a[] = {1, 2, 3, 4}, b[] = {5, 6, 7, 8}, c[4], want[] = {19, 22, 43, 50};
    struct plasmon_shape shape = {PLASMON_F64, 2, {2, 2}};
    plasmon_scalar_t scalars[] = {
        {.f = 1}, {.i = 0}, {.i = 0}}; /* alpha, trans_a, trans_b */
    struct plasmon_arg args[] = {
        {.mode = PLASMON_OUT}, {.mode = PLASMON_IN}, {.mode = PLASMON_IN}};
    struct plasmon_call call  = PLASMON_CALL_INIT;
    struct plasmon_client *px = NULL;
    struct plasmon_ref *product;

    call.function     = "gemm";
    call.args         = args;
    call.arg_count    = 3;
    call.scalars      = scalars;
    call.scalar_count = 3;
    if (plasmon_init(NULL, &px) || plasmon_put(px, a, &shape, NULL, &args[1].ref) ||
        plasmon_put(px, b, &shape, NULL, &args[2].ref) ||
        plasmon_submit(px, &call, &product, NULL) ||
        plasmon_get(px, product, c, sizeof(c), PLASMON_FOREVER)) {
        fprintf(stderr, "%s\n", plasmon_error(px));
        plasmon_finish(px);
        return 1;
    }

    printf("%g %g\n%g %g\n", c[0], c[1], c[2], c[3]);
    plasmon_finish(px);
    return c[0] == want[0] && c[1] == want[1] && c[2] == want[2] && c[3] == want[3] ? 0 : 1;
}
