/* The time layer's steps: edge_opid/node/time_layer.py in C, to the same bits.
 *
 * The Python file is the specification, and says why anything here is so. Both use the four
 * operations, sqrt and frexp in float64, every sum from the first item to the last, and no other
 * call of a C library: so they agree to the bit, on every CPU.
 *
 * The state is one array of doubles, owned by Python (`compiled_time_layer.py` has the same order);
 * whole numbers in it are below 2^53. Evidence is another, of 5 classes + 5 doubles.
 */
#define FEATURES 5
#define PREDICTORS 9
#define KNOTS 11
#define AGES 24
#define AGE_MS 512.0

enum { VOICE_MODEL, VOICE_LABEL, VOICE_ALL };

static const double SURE[KNOTS] = {0.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0};

typedef struct {
    double weights[FEATURES], squares[FEATURES];
    struct {
        double known, t, squares; /* known: 0 until a label has spoken of this predictor */
    } sharpness[PREDICTORS];
    struct {
        double count, right;
    } record[KNOTS];
    struct {
        double won, lost;
    } against[2];
    double kept_count, kept_more, kept_could;
    double label, label_ms, learned, learned_ms; /* learned: 0 until the first label */
    double seen, time_ms, rhythm_ms;
    double followed, spread, follows, lingers;
    double labels, since;
} fixed_t;

#define FIXED ((Py_ssize_t)(sizeof(fixed_t) / sizeof(double)))
#define PER_CLASS (6 + 2 * AGES)

typedef struct {
    fixed_t *fixed;
    double *frequency, *then, *belief, *mean, *off, *before, *held; /* held: classes x AGES x 2 */
    Py_ssize_t classes;
} layer_t;

typedef struct {
    double *scores, *now, *past, *then, *said;
    double *noise, *label, *age_ms, *stays, *time_ms;
} evidence_t;

static layer_t layer_of(double *numbers, Py_ssize_t classes) {
    double *rest = numbers + FIXED;
    return (layer_t){(fixed_t *)numbers,  rest,
                     rest + classes,      rest + 2 * classes,
                     rest + 3 * classes,  rest + 4 * classes,
                     rest + 5 * classes,  rest + 6 * classes,
                     classes};
}

static evidence_t evidence_of(double *numbers, Py_ssize_t classes) {
    double *rest = numbers + 5 * classes;
    return (evidence_t){numbers,
                        numbers + classes,
                        numbers + 2 * classes,
                        numbers + 3 * classes,
                        numbers + 4 * classes,
                        rest,
                        rest + 1,
                        rest + 2,
                        rest + 3,
                        rest + 4};
}

/* ---- what the parts share ----------------------------------------------------------------- */

static double within(double value, double low, double high) {
    const double raised = value > low ? value : low; /* NaN becomes the low end, as in Python */
    return raised < high ? raised : high;
}

static double added(const double *values, Py_ssize_t n) {
    double total = 0;
    for (Py_ssize_t i = 0; i < n; i++) total += values[i];
    return total;
}

static double inner_product(const double *a, const double *b, Py_ssize_t n) {
    double total = 0;
    for (Py_ssize_t i = 0; i < n; i++) total += a[i] * b[i];
    return total;
}

static Py_ssize_t largest(const double *values, Py_ssize_t n) {
    Py_ssize_t best = 0;
    for (Py_ssize_t i = 1; i < n; i++)
        if (values[i] > values[best]) best = i;
    return best;
}

#define HALVINGS 10
#define SLICES 1024.0

/* Probabilities in proportion to exp(score), in place; exp(s) is (1 + s/2^10)^(2^10). */
static void make_likely(double *scores, Py_ssize_t n) {
    const double best = scores[largest(scores, n)];
    for (Py_ssize_t i = 0; i < n; i++) {
        double power = 1 + (scores[i] - best) / SLICES;
        if (power < 0) power = 0;
        for (int k = 0; k < HALVINGS; k++) power *= power;
        scores[i] = power;
    }
    const double total = added(scores, n);
    for (Py_ssize_t i = 0; i < n; i++) scores[i] /= total;
}

static double logarithm(double x) {
    int power;
    const double part = frexp(x, &power), ratio = (part - 0.75) / (part + 0.75);
    const double square = ratio * ratio;
    double found = 0;
    for (int odd = 17; odd > 0; odd -= 2) found = found * square + 1.0 / odd;
    return 2 * ratio * found + power * 0.6931471805599453 - 0.28768207245178096;
}

/* Where an age lies among the ages of the record: about its logarithm to the base of 2. */
static double octave(double age_ms) {
    int power;
    const double part = frexp((age_ms > AGE_MS ? age_ms : AGE_MS) / AGE_MS, &power);
    const double place = power + 2 * part - 2;
    return place < AGES - 1.0 ? place : AGES - 1.0;
}

/* ---- predicting ---------------------------------------------------------------------------- */

static double order_of_scores(const fixed_t *s) {
    if (s->spread < 1e-12) return 0;
    const double known = s->followed / (s->followed + 20.0);
    return within((known * s->follows / s->spread - 0.3) / (0.5 - 0.3), 0, 1);
}

static double noise_of_scores(const fixed_t *s) {
    if (s->spread < 1e-12 || s->lingers <= 0) return 0;
    const double noise = 1 - s->follows * s->follows / (s->lingers * s->spread);
    return within((noise - 0.01) / (0.05 - 0.01), 0, 1);
}

static double order_of_labels(const fixed_t *s) {
    if (s->kept_more <= 0 || s->kept_could <= 0) return 0;
    return within(s->kept_more / s->kept_could - 2 / sqrt(s->kept_count), 0, 1);
}

static double order_trusted(const fixed_t *s) {
    const double by_scores = order_of_scores(s), by_labels = order_of_labels(s);
    return by_labels > by_scores ? by_labels : by_scores;
}

static double still_holds(const layer_t *m, Py_ssize_t label, double age_ms) {
    const double share = m->frequency[label] / added(m->frequency, m->classes);
    const double place = octave(age_ms);
    const int low = (int)place - 3, first = low > 0 ? low : 0;
    const int end = (int)place + 5 < AGES ? (int)place + 5 : AGES;
    double count = 3.0, held = 3.0 * share;
    for (int knot = first; knot < end; knot++) {
        const double *age = m->held + (label * AGES + knot) * 2;
        const double near = 1 / (1 + 0.3 * (knot - place) * (knot - place));
        count += near * near * age[0];
        held += near * near * age[1];
    }
    if (!(share < 1)) return 0;
    const double more = (held / count - share) / (1 - share);
    return more > 0 ? more : 0;
}

static void believed_before(const layer_t *m, double time_ms, double *logits) {
    const fixed_t *s = m->fixed;
    const double passed = s->rhythm_ms != 0 ? fabs(time_ms - s->time_ms) / s->rhythm_ms : 1.0;
    const double kept = 1 / (1 + 0.2 * passed), even = (1 - kept) / (double)m->classes;
    for (Py_ssize_t k = 0; k < m->classes; k++) logits[k] = logarithm(kept * m->belief[k] + even);
    const double middle = added(logits, m->classes) / (double)m->classes;
    for (Py_ssize_t k = 0; k < m->classes; k++) logits[k] -= middle;
}

static double odds(const layer_t *m, const evidence_t *e) {
    const double stays = *e->stays, left = 1 - stays;
    const double share = m->frequency[(Py_ssize_t)*e->label] / added(m->frequency, m->classes);
    return logarithm((1 - stays + stays / share) / (left > 1e-3 ? left : 1e-3));
}

static void found_by(int voice, const layer_t *m, const evidence_t *e, double *found) {
    const Py_ssize_t label = (Py_ssize_t)*e->label;
    if (voice == VOICE_LABEL) {
        const double total = added(m->frequency, m->classes);
        for (Py_ssize_t k = 0; k < m->classes; k++)
            found[k] = (1 - *e->stays) * m->frequency[k] / total;
        found[label] += *e->stays;
        return;
    }
    const double *w = m->fixed->weights;
    const double mine = w[0] + w[3] * *e->stays, before = w[1] * *e->noise, there = w[4] * *e->stays;
    for (Py_ssize_t k = 0; k < m->classes; k++)
        found[k] = voice == VOICE_MODEL
                       ? e->now[k]
                       : mine * e->now[k] + before * e->past[k] + there * e->then[k];
    if (voice == VOICE_ALL && label >= 0) found[label] += w[2] * odds(m, e);
    make_likely(found, m->classes);
}

static int label_speaks(const evidence_t *e) { return *e->label >= 0 && *e->stays > 0; }

static int leader(const layer_t *m, const evidence_t *e) {
    int found = VOICE_ALL;
    double most = 0;
    for (int voice = VOICE_MODEL; voice <= (label_speaks(e) ? VOICE_LABEL : VOICE_MODEL); voice++) {
        const double won = m->fixed->against[voice].won, lost = m->fixed->against[voice].lost;
        if (won - lost > most && won - lost > 1.0 * (1 + sqrt(won + lost))) {
            found = voice;
            most = won - lost;
        }
    }
    return found;
}

/* All that is known of an instance whose scores are in the evidence already. Changes no state. */
static void collect_evidence(const layer_t *m, evidence_t *e, int predictor, double time_ms) {
    const fixed_t *s = m->fixed;
    const double t = s->sharpness[predictor].known != 0 ? s->sharpness[predictor].t : 4.0;
    const double middle = added(e->scores, m->classes) / (double)m->classes;
    const double order = order_of_scores(s);
    for (Py_ssize_t k = 0; k < m->classes; k++) e->now[k] = t * (e->scores[k] - middle);
    *e->label = s->label;
    *e->age_ms = fabs(time_ms - s->label_ms);
    *e->stays = 0;
    if (s->label >= 0) {
        const double trusted = order_trusted(s);
        if (trusted != 0) *e->stays = trusted * still_holds(m, (Py_ssize_t)s->label, *e->age_ms);
    }
    *e->noise = order * noise_of_scores(s);
    *e->time_ms = time_ms;
    believed_before(m, time_ms, e->past);
    memcpy(e->then, m->then, (size_t)m->classes * sizeof(double));
    found_by(leader(m, e), m, e, e->said);
}

/* The knot above a confidence, and how far from the one below it lies. */
static int knot_above(double sure, double *share) {
    int place = 0;
    while (place < KNOTS && !(sure < SURE[place])) place++;
    if (place > KNOTS - 1) place = KNOTS - 1;
    if (place < 1) place = 1; /* no probability is below 0 */
    *share = (sure - SURE[place - 1]) / (SURE[place] - SURE[place - 1]);
    return place;
}

static double confidence(const fixed_t *s, double sure) {
    double share, found = 0;
    const int place = knot_above(sure, &share);
    for (int side = 0; side < 2; side++) {
        const int knot = place - 1 + side;
        const double weight = side ? share : 1 - share;
        found += weight * (s->record[knot].right + 30.0 * sure) / (s->record[knot].count + 30.0);
    }
    return found;
}

/* The probabilities, as surely as such ones were right. They choose the class. */
static void correct(const layer_t *m, const double *found, double *told) {
    const Py_ssize_t winner = largest(found, m->classes);
    const double top = found[winner], sure = confidence(m->fixed, top);
    const double rest = top < 1 ? (1 - sure) / (1 - top) : 0.0;
    for (Py_ssize_t k = 0; k < m->classes; k++) told[k] = rest * found[k];
    told[winner] = top < 1 ? sure : 1.0;
    if (!(told[largest(told, m->classes)] == told[winner]))
        memcpy(told, found, (size_t)m->classes * sizeof(double));
}

/* ---- readings ------------------------------------------------------------------------------ */

static void go_on_from(layer_t *m, const evidence_t *e, int looked) {
    fixed_t *s = m->fixed;
    if (s->seen != 0) {
        const double away = fabs(*e->time_ms - s->time_ms), most = 4 * s->rhythm_ms + 1;
        const double passed = most < away ? most : away;
        const double rate = 1 / s->seen > 0.05 ? 1 / s->seen : 0.05;
        s->rhythm_ms += rate * (passed - s->rhythm_ms);
    }
    s->seen += 1;
    s->time_ms = *e->time_ms;
    for (Py_ssize_t k = 0; k < m->classes; k++) m->belief[k] = e->now[k] + e->past[k];
    make_likely(m->belief, m->classes);
    if (!looked) return;
    const double young = 1 / (s->followed + 1), rate = young > 0.005 ? young : 0.005;
    const double few = (double)m->classes / (s->labels + (double)m->classes);
    const double soon = 1 / (s->since + 1), cube = few * few * few, shift = cube < soon ? cube : soon;
    const double level = shift > rate ? shift : rate;
    double spread = 0, next_to = 0, after_next = 0;
    for (Py_ssize_t k = 0; k < m->classes; k++) {
        m->mean[k] += level * (e->now[k] - m->mean[k]);
        const double off = e->now[k] - m->mean[k];
        spread += off * off;
        next_to += off * m->off[k];
        after_next += off * m->before[k];
        m->before[k] = m->off[k];
        m->off[k] = off;
    }
    s->spread += rate * (spread - s->spread);
    s->follows += rate * (next_to - s->follows);
    s->lingers += rate * (after_next - s->lingers);
    s->followed += 1;
    s->since += 1;
}

/* ---- labels -------------------------------------------------------------------------------- */

static double newness(fixed_t *s, const evidence_t *e) {
    const double known = s->learned, before = s->learned_ms;
    s->learned = 1;
    s->learned_ms = *e->time_ms;
    if (known == 0 || *e->label < 0 || *e->age_ms == 0) return 1;
    const double share = fabs(*e->time_ms - before) / *e->age_ms;
    return share < 1 ? share : 1;
}

static void take_down(fixed_t *s, const double *said, Py_ssize_t classes, Py_ssize_t truth,
                      double counts) {
    const Py_ssize_t winner = largest(said, classes);
    const double faded = 1 - (1 - 0.9995) * counts;
    double share;
    for (int knot = 0; knot < KNOTS; knot++) {
        s->record[knot].count *= faded;
        s->record[knot].right *= faded;
    }
    const int place = knot_above(said[winner], &share);
    for (int side = 0; side < 2; side++) {
        const double weight = counts * (side ? share : 1 - share);
        s->record[place - 1 + side].count += weight;
        s->record[place - 1 + side].right += weight * (winner == truth);
    }
}

/* Who was right; leaves in `found` what all evidence together says. */
static void judge(layer_t *m, const evidence_t *e, Py_ssize_t truth, double new, double *found) {
    const int voices = label_speaks(e) ? 2 : 1;
    int hit[2] = {0, 0};
    for (int voice = 0; voice < voices; voice++) {
        found_by(voice, m, e, found);
        hit[voice] = largest(found, m->classes) == truth;
    }
    found_by(VOICE_ALL, m, e, found);
    const int all_right = largest(found, m->classes) == truth;
    for (int voice = 0; voice < voices; voice++) {
        const double won = m->fixed->against[voice].won + new * (hit[voice] && !all_right);
        const double lost = m->fixed->against[voice].lost + new * (all_right && !hit[voice]);
        m->fixed->against[voice].won = 0.9995 * won;
        m->fixed->against[voice].lost = 0.9995 * lost;
    }
}

/* A step down the slope of the log-loss; `off` is what all evidence said, and is used up. */
static void move_weights(layer_t *m, const evidence_t *e, Py_ssize_t truth, double new, double *off) {
    for (Py_ssize_t k = 0; k < m->classes; k++) off[k] = -off[k];
    off[truth] += 1;
    const double mine = inner_product(e->now, off, m->classes);
    const double past = inner_product(e->past, off, m->classes);
    const double there = inner_product(e->then, off, m->classes);
    const Py_ssize_t label = (Py_ssize_t)*e->label;
    const double by_label = label >= 0 ? off[label] * odds(m, e) : 0.0;
    const double slopes[FEATURES] = {mine, *e->noise * past, by_label, *e->stays * mine,
                                     *e->stays * there};
    for (int place = 0; place < FEATURES; place++) {
        double *square = m->fixed->squares + place, *weight = m->fixed->weights + place;
        const double step = new * slopes[place];
        *square += step * slopes[place];
        *weight = within(*weight + 0.1 * step / (1 + sqrt(*square)), -3, 3);
    }
}

static void sharpen(fixed_t *s, int predictor, const double *scores, Py_ssize_t classes,
                    Py_ssize_t truth, double counts, double *likely) {
    if (s->sharpness[predictor].known == 0) {
        s->sharpness[predictor].known = 1;
        s->sharpness[predictor].t = 4.0;
        s->sharpness[predictor].squares = 0;
    }
    double *t = &s->sharpness[predictor].t, *squares = &s->sharpness[predictor].squares;
    for (Py_ssize_t k = 0; k < classes; k++) likely[k] = *t * scores[k];
    make_likely(likely, classes);
    const double slope = scores[truth] - inner_product(likely, scores, classes);
    const double step = counts * slope;
    *squares += step * slope;
    *t = within(*t + 2 * step / sqrt(1 + *squares), 1, 50);
}

/* One more look back at a label, shared by the two ages around its own. */
static void count_stay(layer_t *m, const evidence_t *e, Py_ssize_t truth, double new) {
    const Py_ssize_t label = (Py_ssize_t)*e->label;
    const int held = truth == label;
    const double place = octave(*e->age_ms), faded = 1 - (1 - 0.999) * new;
    const int low = (int)place < AGES - 2 ? (int)place : AGES - 2;
    double *ages = m->held + label * AGES * 2;
    for (int i = 0; i < 2 * AGES; i++) ages[i] *= faded;
    const double share = place - low;
    for (int side = 0; side < 2; side++) {
        const double weight = new * (side ? share : 1 - share);
        ages[2 * (low + side)] += weight;
        ages[2 * (low + side) + 1] += weight * held;
    }
    const double expected = m->frequency[label] / added(m->frequency, m->classes);
    m->fixed->kept_count += new;
    m->fixed->kept_more += new * (held - expected);
    m->fixed->kept_could += new * (1 - expected);
}

/* The class of an instance is known, now or late. `room` has a place for each class. */
static void learn_truth(layer_t *m, const evidence_t *e, int predictor, Py_ssize_t truth,
                        double *room) {
    fixed_t *s = m->fixed;
    const double new = newness(s, e), counts = 1 - order_trusted(s) * (1 - new);
    take_down(s, e->said, m->classes, truth, counts);
    judge(m, e, truth, new, room);
    move_weights(m, e, truth, new, room);
    sharpen(s, predictor, e->scores, m->classes, truth, counts, room);
    if (*e->label >= 0) count_stay(m, e, truth, new);
    for (Py_ssize_t k = 0; k < m->classes; k++) m->frequency[k] *= 0.999;
    m->frequency[truth] += 1;
    s->labels += 1;
    s->since = 0;
    if (s->label < 0 || fabs(s->time_ms - *e->time_ms) <= fabs(s->time_ms - s->label_ms)) {
        s->label = (double)truth;
        s->label_ms = *e->time_ms;
        memcpy(room, e->now, (size_t)m->classes * sizeof(double));
        make_likely(room, m->classes);
        for (Py_ssize_t k = 0; k < m->classes; k++) m->then[k] = (1 - room[truth]) * e->now[k];
    }
}
