/* B&S for CPU devices. */
#include <math.h>
#include <stdint.h>

static double normal_cdf(double x)
{
    return 0.5 * erfc(-0.70710678118654752440 * x);
}

void bs_price(double *out, const double *in, int64_t n, double rate, double volatility,
              double years, double strike)
{
    for (int64_t i = 0; i < n; i++) {
        double x      = in[i];
        double spread = volatility * sqrt(years);
        double d1 =
            (log(x / strike) + (rate + 0.5 * volatility * volatility) * years) / spread;

        out[i] = x * normal_cdf(d1) - strike * exp(-rate * years) * normal_cdf(d1 - spread);
    }
}
