/* The shortest program that does something: two matrices, one product. It is the one in the README. */
#include <plasmon/plasmon.h>
#include <stdio.h>

int main(void)
{
    const double a[] = {1, 2, 3, 4}, b[] = {5, 6, 7, 8}, want[] = {19, 22, 43, 50};
    const struct plasmon_shape shape = {PLASMON_F64, 2, {2, 2}};
    const plasmon_scalar_t scalars[] = {
        {.f = 1.0}, {.i = 0}, {.i = 0}}; /* alpha, trans_a, trans_b */
    struct plasmon_client *px = NULL;
    struct plasmon_ref *ra, *rb, *rc;
    double c[4];

    if (plasmon_init(NULL, &px) || plasmon_put(px, a, &shape, NULL, &ra) ||
        plasmon_put(px, b, &shape, NULL, &rb)) {
        goto failed;
    }

    struct plasmon_arg args[] = {{.mode = PLASMON_OUT},
                                 {.mode = PLASMON_IN, .ref = ra},
                                 {.mode = PLASMON_IN, .ref = rb}};
    struct plasmon_call call  = PLASMON_CALL_INIT;
    call.function = "gemm", call.args = args, call.arg_count = 3, call.scalars = scalars,
    call.scalar_count = 3;
    if (plasmon_submit(px, &call, &rc, NULL) ||
        plasmon_get(px, rc, c, sizeof(c), PLASMON_FOREVER)) {
        goto failed;
    }

    printf("%g %g\n%g %g\n", c[0], c[1], c[2], c[3]);
    plasmon_finish(px);
    return c[0] == want[0] && c[1] == want[1] && c[2] == want[2] && c[3] == want[3] ? 0 : 1;

failed:
    fprintf(stderr, "%s\n", plasmon_error(px));
    plasmon_finish(px);
    return 1;
}
