/*
 * B&S: European calls by Black and Scholes in fp64. Arithmetic, not memory, is what it waits for:
 * one option a thread.
 */
static __device__ double normal_cdf(double x)
{
    return 0.5 * erfc(-0.70710678118654752440 * x);
}

extern "C" __global__ void bs_price(double *out, const double *in, i64 n, double rate,
                                    double volatility, double years, double strike)
{
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n) {
        double x      = in[i];
        double spread = volatility * sqrt(years);
        double d1     = (log(x / strike) + (rate + 0.5 * volatility * volatility) * years) / spread;
        double d2     = d1 - spread;

        out[i] = x * normal_cdf(d1) - strike * exp(-rate * years) * normal_cdf(d2);
    }
}
