/*
 * A library under the name of another that has nothing of it, as one that is too old: see
 * test_cuda_absent.c.
 */
__attribute__((visibility("default"))) int cuDriverGetVersion(int *out);
__attribute__((visibility("default"))) int cuDriverGetVersion(int *out)
{
    *out = 11040;
    return 0;
}
