/* A node's memories beside the ridge learners: the logistic one, the bridge, and the blend of all.
 *
 * edge_opid/node/logistic.py, scoreboard.py and memories.py are the specification, and say why.
 * As in time_layer.h: float64, the four operations and sqrt, every sum from the first item to the
 * last, so that C and NumPy agree to the bit.
 */
#define FADING 0.95
#define SQUARINGS 2
#define VOICES 4 /* long, lately, logistic, bridge: whom the blend weighs */

typedef struct {
    double *weights, *squares; /* sensors x classes */
    const int *places;         /* of each column: its sensor's row */
    const double *knots;       /* of each column: what it counts for in its sensor's value */
    double *values;            /* working space: one for each sensor */
    Py_ssize_t sensors, classes, width;
    double step;
} logistic_t;

/* From columns to one value a sensor. */
static void straighten(const logistic_t *m, const float *x) {
    for (Py_ssize_t i = 0; i < m->sensors; i++) m->values[i] = 0;
    for (Py_ssize_t j = 0; j < m->width; j++) m->values[m->places[j]] += m->knots[j] * x[j];
}

/* The classes' probabilities, from the values that `straighten` left. */
static void logistic_scores(const logistic_t *m, double *said) {
    for (Py_ssize_t k = 0; k < m->classes; k++) said[k] = 0;
    for (Py_ssize_t i = 0; i < m->sensors; i++)
        for (Py_ssize_t k = 0; k < m->classes; k++)
            said[k] += m->values[i] * m->weights[i * m->classes + k];
    make_likely(said, m->classes);
}

/* A step of AdaGrad down the log-loss of what was said. */
static void logistic_learn(const logistic_t *m, const double *said, Py_ssize_t label) {
    double *weight = m->weights, *square = m->squares;
    for (Py_ssize_t i = 0; i < m->sensors; i++)
        for (Py_ssize_t k = 0; k < m->classes; k++, weight++, square++) {
            const double error = k == label ? said[k] - 1 : said[k];
            const double gradient = m->values[i] * error;
            *square += gradient * gradient;
            *weight -= m->step * gradient / (1 + sqrt(*square));
        }
}

/* x W, rounded to float32 as a model's scores are. */
static void bridge_scores(const float *W, const float *x, Py_ssize_t width, Py_ssize_t classes,
                          double *said) {
    for (Py_ssize_t k = 0; k < classes; k++) said[k] = 0;
    for (Py_ssize_t i = 0; i < width; i++)
        for (Py_ssize_t k = 0; k < classes; k++) said[k] += (double)x[i] * W[i * classes + k];
    for (Py_ssize_t k = 0; k < classes; k++) said[k] = (float)said[k];
}

/* What each voice said of an instance, now that its class is known. errors: pairs of sum, count. */
static void blend_record(double *errors, const double *said, int voices, Py_ssize_t classes,
                         Py_ssize_t label) {
    for (int voice = 0; voice < voices; voice++, said += classes, errors += 2) {
        double off = 0;
        for (Py_ssize_t k = 0; k < classes; k++) {
            const double each = said[k] - (k == label);
            off += each * each;
        }
        errors[0] = FADING * errors[0] + off;
        errors[1] = FADING * errors[1] + 1;
    }
}

/* The weighted mean of what was said (float32, voices x classes); no record counts as the best. */
static void blend_of(const double *errors, const float *said, int voices, Py_ssize_t classes,
                     int ordered, double *room, float *blended) {
    const int squarings = ordered ? 0 : SQUARINGS;
    double best = HUGE_VAL, total = 0;
    for (int voice = 0; voice < voices; voice++)
        if (errors[2 * voice + 1] > 0) {
            const double mean = errors[2 * voice] / errors[2 * voice + 1];
            if (mean < best) best = mean;
        }
    if (best == HUGE_VAL) best = 1;
    if (best < 1e-9) best = 1e-9;
    for (Py_ssize_t k = 0; k < classes; k++) room[k] = 0;
    for (int voice = 0; voice < voices; voice++) {
        const double count = errors[2 * voice + 1];
        const double mean = count > 0 ? errors[2 * voice] / count : best;
        double weight = best / (mean > best ? mean : best);
        for (int i = 0; i < squarings; i++) weight *= weight;
        total += weight;
        for (Py_ssize_t k = 0; k < classes; k++) room[k] += weight * said[voice * classes + k];
    }
    for (Py_ssize_t k = 0; k < classes; k++) blended[k] = (float)(room[k] / total);
}

static Py_ssize_t largest_score(const float *scores, Py_ssize_t n) {
    Py_ssize_t best = 0;
    for (Py_ssize_t i = 1; i < n; i++)
        if (scores[i] > scores[best]) best = i;
    return best;
}
