/* ML in fp64: the end of a classifier, and its inputs. */
#include "bench/graphs/ml_reference.h"

#include <math.h>

void graphs_ml_softmax(double *r, int classes)
{
    double most = r[0], sum = 0;

    for (int j = 1; j < classes; j++) {
        most = fmax(most, r[j]);
    }
    for (int j = 0; j < classes; j++) {
        r[j] = exp(r[j] - most);
        sum += r[j];
    }
    for (int j = 0; j < classes; j++) {
        r[j] /= sum;
    }
}

double graphs_ml_winner(const double *r1, const double *r2, int classes, double margin)
{
    double most = -1, second = -1; /* both softmaxes are positive */
    int best = 0;

    for (int c = 0; c < classes; c++) {
        double value = r1[c] + r2[c];

        second = fmax(second, fmin(value, most));
        best   = value > most ? c : best;
        most   = fmax(value, most);
    }
    return most - second > margin ? (double)best : (double)NAN;
}

void graphs_ml_fill_log_likelihood(const struct graphs_graph *graph, uint32_t input,
                                   int64_t classes, int64_t features)
{
    float *value = graphs_data(graph, input);

    graphs_fill_uniform(graph, input, 3, 0.95, 1.05);
    for (int64_t i = 0; i < classes; i++) {
        double sum = 0;

        for (int64_t j = 0; j < features; j++) {
            sum += (double)value[i * features + j];
        }
        for (int64_t j = 0; j < features; j++) {
            value[i * features + j] = (float)log((double)value[i * features + j] / sum);
        }
    }
}
