/* The hot steps of the learners, in float32, without any dependency.
 *
 * WoodburyLearner keeps A^-1 = U diag(v) U' (edge_opid/native/packing.py describes the bytes):
 * U is unit upper triangular, float32, stored column by column; v holds D positive doubles.
 * With S = U diag(sqrt v) this is the factor of A^-1 = S S', and learning a reading is the
 * n = 1 Woodbury step of the paper's Proposition 2 applied to that factor.
 *
 * The reading enters A twice, as a = [x; 0] and b = [0; x_survivors], coupled by
 * K = [1+l, -l; -l, 1+l]; the paper's third column sqrt(l)(a - b) is a combination of these
 * two, so its 3x3 inverse is the inverse of a 2x2, M. One pass over the columns of U does all:
 *
 *   e  = [a'U_j, b'U_j]        how much of the reading lies along column j
 *   q  = M^-1 e                M = K^-1 + sum over the columns before j of v e e'
 *   U_j -= G q,  v /= 1 + v e'q
 *   G += v e' U_j (old)        ends as A^-1 [a, b], from which both predictions follow
 *
 * v stays positive whatever rounding does, so A^-1 can be neither indefinite nor NaN.
 * Every sum has a fixed order (eight lanes) and nothing is contracted into fused multiply-adds:
 * all CPUs give the same bits.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "time_layer.h"
#include "memories.h"
#include "layout.h"

#define INTERFACE 6 /* counts the changes that Python has to know of: also in __init__.py */
#define COLUMNS_MOST 100000 /* far above what memory allows: sizes computed from it do not overflow */
#define LANES 8
#define SLAB 32 /* columns are padded to the height of their slab of 32: see packing.py */

typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
#define AT(p) (*(lanes *)(p))
#define AT_CONST(p) (*(const lanes *)(p))
#define INLINE static inline __attribute__((always_inline))

/* Chosen when the module is loaded, by what the CPU has: the install stays portable. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_THIS_CPU __attribute__((target_clones("avx2", "default")))
#else
#define FOR_THIS_CPU
#endif

INLINE size_t padded(size_t n) { return (n + LANES - 1) / LANES * LANES; }

INLINE size_t column_height(size_t j, size_t height) {
    size_t slab_end = (j / SLAB + 1) * SLAB;
    return slab_end < height ? slab_end : height;
}

static size_t packed_size(size_t D) {
    size_t total = 0;
    for (size_t j = 0; j < D; j++) total += column_height(j, padded(D));
    return total;
}

INLINE float dot(const float *p, const float *q, size_t from, size_t to) {
    lanes sum[4] = {{0}, {0}, {0}, {0}};
    size_t i = from;
    for (; i + 4 * LANES <= to; i += 4 * LANES)
        for (size_t k = 0; k < 4; k++)
            sum[k] += AT_CONST(p + i + k * LANES) * AT_CONST(q + i + k * LANES);
    for (; i < to; i += LANES) sum[0] += AT_CONST(p + i) * AT_CONST(q + i);
    const lanes t = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    return ((t[0] + t[4]) + (t[1] + t[5])) + ((t[2] + t[6]) + (t[3] + t[7]));
}

/* One reading, its working space (4 vectors of padded(D), zero where the reading is not). */
typedef struct {
    float *a, *b, *gain_a, *gain_b;
} work_t;

static work_t work_of(float *buffer, size_t D) {
    size_t height = padded(D);
    return (work_t){buffer, buffer + height, buffer + 2 * height, buffer + 3 * height};
}

/* What the step needs of one column: U_j -= s1 g + s2 h, then g += t1 U_j, h += t2 U_j (old). */
typedef struct {
    float s1, s2, t1, t2;
} column_t;

/* M, as far as the columns so far have built it. */
typedef struct {
    double m11, m12, m22;
} inner_t;

INLINE column_t solve_column(inner_t *m, double e1, double e2, double *v, double decay,
                             double ceiling) {
    const double inverse = 1 / (m->m11 * m->m22 - m->m12 * m->m12);
    const double q1 = (m->m22 * e1 - m->m12 * e2) * inverse;
    const double q2 = (m->m11 * e2 - m->m12 * e1) * inverse;
    const double faded = *v / decay, vj = faded < ceiling ? faded : ceiling;
    *v = vj / (1 + vj * (e1 * q1 + e2 * q2));
    m->m11 += vj * e1 * e1;
    m->m12 += vj * e1 * e2;
    m->m22 += vj * e2 * e2;
    return (column_t){(float)q1, (float)q2, (float)(vj * e1), (float)(vj * e2)};
}

/* Updates two neighbouring columns in one sweep, which halves the traffic of the gains. `coupled`
 * and `two` are constants where this is called, and the compiler makes a loop for each. */
INLINE void sweep(float *restrict U, float *restrict V, float *restrict g, float *restrict h,
                  size_t end, column_t c, column_t c2, int coupled, int two) {
    for (size_t i = 0; i < end; i += LANES) {
        lanes u = AT(U + i), x = AT(g + i), y = {0};
        if (coupled) y = AT(h + i);
        AT(U + i) = coupled ? u - (c.s1 * x + c.s2 * y) : u - c.s1 * x;
        x += c.t1 * u;
        if (coupled) y += c.t2 * u;
        if (two) {
            u = AT(V + i);
            AT(V + i) = coupled ? u - (c2.s1 * x + c2.s2 * y) : u - c2.s1 * x;
            x += c2.t1 * u;
            if (coupled) y += c2.t2 * u;
        }
        AT(g + i) = x;
        if (coupled) AT(h + i) = y;
    }
}

/* Adds the reading to A: updates U and v, leaves A^-1 [a, b] (before this reading) in the gains.
 * Rows at and below the diagonal of a column are 1, 0, 0 ... and stay so, because the gains are
 * still zero there: whole groups of lanes can be processed without a remainder. Columns left of d
 * have no part in b, whose gain is still zero there. */
FOR_THIS_CPU
static void absorb(float *restrict U, double *restrict v, work_t w, size_t d, size_t D,
                   double lam, double decay, double ceiling) {
    const size_t height = padded(D), a_end = padded(d), b_start = d / LANES * LANES;
    const int coupled = D > d;
    const double own = coupled ? (1 + lam) / (1 + 2 * lam) : 1.0;
    inner_t m = {own, coupled ? lam / (1 + 2 * lam) : 0.0, own};
    memset(w.gain_a, 0, height * sizeof(float));
    memset(w.gain_b, 0, height * sizeof(float));
    for (size_t j = 0; j < D; j += 2) { /* both columns end in the same group of lanes */
        const size_t end = padded(j + 1), a_stop = end < a_end ? end : a_end;
        const size_t step = column_height(j, height);
        const int two = j + 1 < D;
        float *V = U + step;
        const double e1 = dot(U, w.a, 0, a_stop), f1 = two ? dot(V, w.a, 0, a_stop) : 0.0;
        const double e2 = j >= d ? dot(U, w.b, b_start, end) : 0.0;
        const double f2 = two && j + 1 >= d ? dot(V, w.b, b_start, end) : 0.0;
        const column_t c = solve_column(&m, e1, e2, v + j, decay, ceiling);
        const column_t c2 = two ? solve_column(&m, f1, f2, v + j + 1, decay, ceiling) : c;
        if (!two)
            sweep(U, V, w.gain_a, w.gain_b, end, c, c2, 1, 0);
        else if (j + 1 < d)
            sweep(U, V, w.gain_a, w.gain_b, end, c, c2, 0, 1);
        else
            sweep(U, V, w.gain_a, w.gain_b, end, c, c2, 1, 1);
        U = V + step;
    }
}

/* The gain A^-1 a (or A^-1 b) alone, to the same bits as `absorb` leaves it. */
FOR_THIS_CPU
static void project(const float *restrict U, const double *restrict v, work_t w, size_t d,
                    size_t D, int survivors) {
    const size_t height = padded(D), a_end = padded(d), b_start = d / LANES * LANES;
    const float *restrict x = survivors ? w.b : w.a;
    float *restrict g = survivors ? w.gain_b : w.gain_a;
    memset(g, 0, height * sizeof(float));
    for (size_t j = 0; j < D; U += column_height(j, height), j++) {
        const size_t end = padded(j + 1);
        double e;
        if (survivors) {
            if (j < d) continue;
            e = dot(U, x, b_start, end);
        } else {
            e = dot(U, x, 0, end < a_end ? end : a_end);
        }
        const float t = (float)(v[j] * e);
        for (size_t i = 0; i < end; i += LANES) AT(g + i) += t * AT_CONST(U + i);
    }
}

static void scores_from(const float *gain, const float *B, size_t D, size_t classes,
                        double *scores) {
    for (size_t k = 0; k < classes; k++) scores[k] = 0;
    for (size_t i = 0; i < D; i++)
        for (size_t k = 0; k < classes; k++) scores[k] += (double)gain[i] * B[i * classes + k];
}

#define GRAM_NOISE (8 * FLT_EPSILON) /* of a reading's largest value: also in numpy_twin.py */

/* GramLearner's step: G + x x' on the factor G = L' diag(w) L, L unit upper triangular, packed row
 * by row with w on its diagonal. Row after row takes its share of x and hands on the rest. */
FOR_THIS_CPU
static void add_outer(float *restrict row, float *restrict x, size_t d, double decay) {
    double left = 1, largest = 0; /* the weight with which the rest of x counts */
    for (size_t j = 0; j < d; j++)
        if (fabs(x[j]) > largest) largest = fabs(x[j]);
    const double noise = GRAM_NOISE * largest;
    for (size_t n = d; n > 0; row += n, x++, n--) {
        const double w = decay * row[0], share = x[0], total = w + left * share * share;
        /* Nothing in this column that the ones before do not say, but rounding: not to divide by */
        const int counts = total >= noise * noise && (float)total >= FLT_MIN;
        row[0] = (float)(counts ? total : w);
        if (!counts) continue;
        const float take = (float)(left * share / total), s = x[0];
        left *= w / total;
        for (size_t j = 1; j < n; j++) {
            const float rest = x[j] - s * row[j];
            x[j] = rest;
            row[j] += take * rest;
        }
    }
}

static void add_to_column(float *B, const float *x, size_t rows, size_t classes, size_t label) {
    for (size_t i = 0; i < rows; i++) B[i * classes + label] += x[i];
}

static void scale(float *values, size_t n, double factor) {
    const float f = (float)factor;
    if (factor != 1.0)
        for (size_t i = 0; i < n; i++) values[i] *= f;
}

/* ---- Python's side: buffers in, sizes checked, one number out ---------------------------- */

#define MOST_BUFFERS 10
typedef struct {
    Py_buffer taken[MOST_BUFFERS];
    int count;
} buffers_t;

static void release(buffers_t *all) {
    while (all->count) PyBuffer_Release(&all->taken[--all->count]);
}

/* Where int and long have the same size, as on 32 bits, NumPy has a type for each: an array that was
 * made as the one is the other after it was copied or unpickled. */
static int is_of_type(const char *format, char code) {
    if (!format || !format[0] || format[1]) return 0;
    return format[0] == code || (code == 'i' && format[0] == 'l' && sizeof(long) == sizeof(int));
}

/* Memory of `object`, which must hold exactly `items` of the type `code` (0: any number). */
static void *take(buffers_t *all, PyObject *object, char code, Py_ssize_t *items, int writable) {
    Py_buffer *view = &all->taken[all->count];
    const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object, view, flags) < 0) return NULL;
    all->count++;
    if (!is_of_type(view->format, code)) {
        PyErr_Format(PyExc_TypeError, "expected an array of type '%c'", code);
        return NULL;
    }
    const Py_ssize_t found = view->len / view->itemsize;
    if (*items && *items != found) {
        PyErr_Format(PyExc_ValueError, "expected %zd items of type '%c', got %zd", *items, code,
                     found);
        return NULL;
    }
    *items = found;
    return view->buf;
}

/* Numbers of either float type, as float64. */
typedef struct {
    Py_buffer view;
    int wide; /* float64, and not float32 */
} floats_t;

/* Opens an array of exactly `count` of them; 0 with a Python error, and nothing to release. */
static int open_floats(floats_t *f, PyObject *object, Py_ssize_t count, const char *what) {
    if (PyObject_GetBuffer(object, &f->view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) return 0;
    const char code = f->view.format && !f->view.format[1] ? f->view.format[0] : '?';
    f->wide = code == 'd';
    if ((f->wide || code == 'f') && f->view.len == count * f->view.itemsize) return 1;
    PyErr_Format(PyExc_ValueError, "expected %zd %s of float32 or float64", count, what);
    PyBuffer_Release(&f->view);
    return 0;
}

INLINE double float_at(const floats_t *f, Py_ssize_t i) {
    return f->wide ? ((const double *)f->view.buf)[i] : ((const float *)f->view.buf)[i];
}

/* Copies a reading into `to` as float32. Returns the first value beyond the limit (which NaN and
 * infinities are too), -1 where all are fine, -2 with a Python error. */
static Py_ssize_t copy_reading(PyObject *object, float *to, Py_ssize_t width, double limit) {
    floats_t reading;
    Py_ssize_t bad = -1;
    if (!open_floats(&reading, object, width, "values")) return -2;
    for (Py_ssize_t i = 0; i < width && bad == -1; i++) {
        const double value = float_at(&reading, i);
        if (!(fabs(value) <= limit)) bad = i;
        to[i] = (float)value;
    }
    PyBuffer_Release(&reading.view);
    return bad;
}

static int numbers(PyObject *const *args, int count, double *out) {
    for (int i = 0; i < count; i++) {
        out[i] = PyFloat_AsDouble(args[i]);
        if (out[i] == -1.0 && PyErr_Occurred()) return 0;
    }
    return 1;
}

static int expect(Py_ssize_t got, Py_ssize_t wanted, const char *name) {
    if (got == wanted) return 1;
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, got %zd", name, wanted, got);
    return 0;
}

/* ---- what Python holds for us: arrays checked once, in a capsule --------------------------- */

/* A capsule keeps the buffers of a learner as long as it lives, so that a step does not ask for
 * them again. It can be neither pickled nor copied: whoever is, makes another one of its arrays. */
typedef struct {
    buffers_t buffers;
    PyObject *names; /* of a layout's sensors; NULL elsewhere */
} held_t;

static void *discarded(void *held) {
    if (held) {
        release(&((held_t *)held)->buffers);
        Py_XDECREF(((held_t *)held)->names);
        PyMem_Free(held);
    }
    return NULL;
}

static void let_go(PyObject *capsule) {
    discarded(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)));
}

static PyObject *capsule_of(void *held, const char *name) {
    PyObject *capsule = PyCapsule_New(held, name, let_go);
    return capsule ? capsule : discarded(held);
}

static void *emptied(size_t size) {
    void *held = PyMem_Malloc(size);
    if (!held) return PyErr_NoMemory();
    memset(held, 0, size);
    return held;
}

/* The arrays of a WoodburyLearner, and the settings of its steps. */
#define RIDGE "edge_opid.ridge"
typedef struct {
    held_t held;
    float *U, *B;
    double *v;
    work_t work;
    Py_ssize_t vanishing, surviving, d, D, classes;
    double lam, decay, ceiling, limit;
} ridge_t;

static int take_ridge(ridge_t *s, PyObject *const *args) {
    double option[4];
    s->vanishing = PyLong_AsSsize_t(args[4]);
    s->surviving = PyLong_AsSsize_t(args[5]);
    if (PyErr_Occurred() || !numbers(args + 6, 4, option)) return 0;
    if (s->vanishing < 0 || s->surviving < 1 || s->vanishing > COLUMNS_MOST ||
        s->surviving > COLUMNS_MOST) {
        PyErr_SetString(PyExc_ValueError, "vanishing must be >= 0 and surviving >= 1");
        return 0;
    }
    s->d = s->vanishing + s->surviving;
    s->D = s->vanishing ? s->d + s->surviving : s->d;
    Py_ssize_t n_U = (Py_ssize_t)packed_size((size_t)s->D), n_v = s->D, n_B = 0;
    Py_ssize_t n_work = 4 * (Py_ssize_t)padded((size_t)s->D);
    buffers_t *all = &s->held.buffers;
    float *work;
    if (!(s->U = take(all, args[0], 'f', &n_U, 1)) || !(s->v = take(all, args[1], 'd', &n_v, 1)) ||
        !(s->B = take(all, args[2], 'f', &n_B, 1)) || !(work = take(all, args[3], 'f', &n_work, 1)))
        return 0;
    if (n_B == 0 || n_B % s->D) {
        PyErr_Format(PyExc_ValueError, "B has %zd items, not a multiple of D = %zd", n_B, s->D);
        return 0;
    }
    s->classes = n_B / s->D;
    s->work = work_of(work, (size_t)s->D);
    s->lam = option[0], s->decay = option[1], s->ceiling = option[2], s->limit = option[3];
    return 1;
}

PyDoc_STRVAR(hold_ridge_doc,
"hold_ridge(U, v, B, work, vanishing, surviving, lam, decay, ceiling, limit)\n\n"
"The arrays and settings of a WoodburyLearner, checked, for `learn` and `predict`.");

static PyObject *hold_ridge(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (!expect(count, 10, "hold_ridge")) return NULL;
    ridge_t *s = emptied(sizeof(ridge_t));
    if (!s || !take_ridge(s, args)) return discarded(s);
    return capsule_of(s, RIDGE);
}

/* One Woodbury step with the reading that is in the working space, and what was said before it. */
static void ridge_learn(ridge_t *s, Py_ssize_t label, double *scores, double *survivors) {
    if (s->vanishing)
        memcpy(s->work.b + s->d, s->work.a + s->vanishing, (size_t)s->surviving * sizeof(float));
    absorb(s->U, s->v, s->work, (size_t)s->d, (size_t)s->D, s->lam, s->decay, s->ceiling);
    scale(s->B, (size_t)(s->D * s->classes), s->decay);
    if (scores) scores_from(s->work.gain_a, s->B, (size_t)s->D, (size_t)s->classes, scores);
    if (survivors)
        scores_from(s->vanishing ? s->work.gain_b : s->work.gain_a, s->B, (size_t)s->D,
                    (size_t)s->classes, survivors);
    add_to_column(s->B, s->work.a, (size_t)s->d, (size_t)s->classes, (size_t)label);
    if (s->vanishing)
        add_to_column(s->B + s->d * s->classes, s->work.b + s->d, (size_t)s->surviving,
                      (size_t)s->classes, (size_t)label);
}

/* The scores of one classifier for the reading that is in the working space. */
static void ridge_predict(ridge_t *s, int survivors, double *scores) {
    project(s->U, s->v, s->work, (size_t)s->d, (size_t)s->D, survivors);
    scores_from(survivors ? s->work.gain_b : s->work.gain_a, s->B, (size_t)s->D,
                (size_t)s->classes, scores);
}

static Py_ssize_t place_below(PyObject *object, Py_ssize_t limit, const char *name) {
    const Py_ssize_t place = PyLong_AsSsize_t(object);
    if (place == -1 && PyErr_Occurred()) return -1;
    if (place >= 0 && place < limit) return place;
    PyErr_Format(PyExc_ValueError, "%s must be 0..%zd, got %zd", name, limit - 1, place);
    return -1;
}

PyDoc_STRVAR(learn_doc,
"learn(ridge, x, label, scores)\n\n"
"One Woodbury step. Returns -1, or the index of the first value beyond the limit, in which case\n"
"nothing has changed. `scores` (2 x classes doubles, or None) receives both classifiers'\n"
"predictions for x, made before it is learned.");

static PyObject *learn(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    buffers_t all = {.count = 0};
    double *scores = NULL;
    Py_ssize_t bad = -2;
    ridge_t *s;
    if (!expect(count, 4, "learn") || !(s = PyCapsule_GetPointer(args[0], RIDGE))) goto done;
    const Py_ssize_t label = place_below(args[2], s->classes, "label");
    if (label < 0) goto done;
    if (args[3] != Py_None) {
        Py_ssize_t wanted = 2 * s->classes;
        if (!(scores = take(&all, args[3], 'd', &wanted, 1))) goto done;
    }
    if ((bad = copy_reading(args[1], s->work.a, s->d, s->limit)) != -1) goto done;
    ridge_learn(s, label, scores, scores ? scores + s->classes : NULL);
done:
    release(&all);
    return bad == -2 ? NULL : PyLong_FromSsize_t(bad);
}

PyDoc_STRVAR(predict_doc,
"predict(ridge, x, survivors, scores)\n\n"
"The scores of one classifier (survivors: 0 or 1) for x. Returns as `learn` does.");

static PyObject *predict(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    buffers_t all = {.count = 0};
    double *scores;
    Py_ssize_t bad = -2;
    ridge_t *s;
    if (!expect(count, 4, "predict") || !(s = PyCapsule_GetPointer(args[0], RIDGE))) goto done;
    int second = PyObject_IsTrue(args[2]);
    Py_ssize_t wanted = s->classes;
    if (second < 0 || !(scores = take(&all, args[3], 'd', &wanted, 1))) goto done;
    second = second && s->vanishing;
    bad = second ? copy_reading(args[1], s->work.b + s->d, s->surviving, s->limit)
                 : copy_reading(args[1], s->work.a, s->d, s->limit);
    if (bad == -1) ridge_predict(s, second, scores);
done:
    release(&all);
    return bad == -2 ? NULL : PyLong_FromSsize_t(bad);
}

/* The arrays of a GramLearner. */
#define GRAM "edge_opid.gram"
typedef struct {
    held_t held;
    float *G, *B, *x; /* x: working space */
    Py_ssize_t d, classes;
    double decay, limit;
} gram_t;

PyDoc_STRVAR(hold_gram_doc,
"hold_gram(G, B, work, decay, limit)\n\n"
"The arrays and settings of a GramLearner, checked, for `learn_gram` and `observe`.");

static PyObject *hold_gram(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    double option[2];
    if (!expect(count, 5, "hold_gram") || !numbers(args + 3, 2, option)) return NULL;
    gram_t *s = emptied(sizeof(gram_t));
    if (!s) return NULL;
    buffers_t *all = &s->held.buffers;
    Py_ssize_t d = 0, n_B = 0;
    if (!(s->x = take(all, args[2], 'f', &d, 1))) return discarded(s);
    Py_ssize_t n_G = d <= COLUMNS_MOST ? d * (d + 1) / 2 : -1;
    if (d < 1 || !(s->G = take(all, args[0], 'f', &n_G, 1)) ||
        !(s->B = take(all, args[1], 'f', &n_B, 1)) || n_B < d || n_B % d) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_ValueError, "%zd sums do not fit %zd columns", n_B, d);
        return discarded(s);
    }
    s->d = d, s->classes = n_B / d, s->decay = option[0], s->limit = option[1];
    return capsule_of(s, GRAM);
}

static void gram_learn(gram_t *s, Py_ssize_t label) {
    scale(s->B, (size_t)(s->d * s->classes), s->decay);
    add_to_column(s->B, s->x, (size_t)s->d, (size_t)s->classes, (size_t)label);
    add_outer(s->G, s->x, (size_t)s->d, s->decay); /* uses up x */
}

PyDoc_STRVAR(learn_gram_doc,
"learn_gram(gram, x, label)\n\n"
"G += x x' on the packed factor of G, and B[:, label] += x. Returns as `learn` does.");

static PyObject *learn_gram(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    gram_t *s;
    if (!expect(count, 3, "learn_gram") || !(s = PyCapsule_GetPointer(args[0], GRAM))) return NULL;
    const Py_ssize_t label = place_below(args[2], s->classes, "label");
    if (label < 0) return NULL;
    const Py_ssize_t bad = copy_reading(args[1], s->x, s->d, s->limit);
    if (bad == -1) gram_learn(s, label);
    return bad == -2 ? NULL : PyLong_FromSsize_t(bad);
}

/* ---- a node's memories ---------------------------------------------------------------------- */

#define LOGISTIC "edge_opid.logistic"
typedef struct {
    held_t held;
    logistic_t memory;
} held_logistic_t;

PyDoc_STRVAR(hold_logistic_doc,
"hold_logistic(weights, squares, places, knots, values, step)\n\n"
"The arrays of a LogisticMemory, and how columns become its sensors' values.");

static PyObject *hold_logistic(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (!expect(count, 6, "hold_logistic")) return NULL;
    held_logistic_t *s = emptied(sizeof(held_logistic_t));
    if (!s) return NULL;
    logistic_t *m = &s->memory;
    buffers_t *all = &s->held.buffers;
    Py_ssize_t n_weights = 0;
    if (!numbers(args + 5, 1, &m->step) ||
        !(m->values = take(all, args[4], 'd', &m->sensors, 1)) ||
        !(m->weights = take(all, args[0], 'd', &n_weights, 1)) || n_weights == 0 ||
        !(m->squares = take(all, args[1], 'd', &n_weights, 1)) ||
        !(m->places = take(all, args[2], 'i', &m->width, 0)) || m->width == 0 ||
        !(m->knots = take(all, args[3], 'd', &m->width, 0)) || m->sensors == 0 ||
        n_weights % m->sensors) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_ValueError, "%zd weights do not fit %zd sensors", n_weights,
                         m->sensors);
        return discarded(s);
    }
    m->classes = n_weights / m->sensors;
    for (Py_ssize_t j = 0; j < m->width; j++)
        if (m->places[j] < 0 || m->places[j] >= m->sensors) {
            PyErr_Format(PyExc_ValueError, "column %zd belongs to sensor %d of %zd", j,
                         m->places[j], m->sensors);
            return discarded(s);
        }
    return capsule_of(s, LOGISTIC);
}

/* All memories of one node, whose shapes must agree, and the buffers of this call. */
typedef struct {
    buffers_t all;
    ridge_t *ridge[2]; /* long, lately */
    logistic_t *logistic;
    double *errors;      /* of the blend: a pair for each voice */
    const float *bridge; /* or NULL */
    Py_ssize_t d, classes;
    int voices;
} memories_t;

static int take_memories(memories_t *m, PyObject *const *args) {
    held_logistic_t *logistic;
    Py_ssize_t n_errors = 2 * VOICES;
    if (!(m->ridge[0] = PyCapsule_GetPointer(args[0], RIDGE)) ||
        !(m->ridge[1] = PyCapsule_GetPointer(args[1], RIDGE)) ||
        !(logistic = PyCapsule_GetPointer(args[2], LOGISTIC)) ||
        !(m->errors = take(&m->all, args[3], 'd', &n_errors, 1)))
        return 0;
    m->logistic = &logistic->memory;
    m->d = m->ridge[0]->d, m->classes = m->ridge[0]->classes;
    Py_ssize_t n_bridge = m->d * m->classes;
    m->bridge = NULL, m->voices = VOICES - 1;
    if (args[4] != Py_None) {
        if (!(m->bridge = take(&m->all, args[4], 'f', &n_bridge, 0))) return 0;
        m->voices = VOICES;
    }
    if (m->ridge[1]->d == m->d && m->ridge[1]->classes == m->classes &&
        m->logistic->width == m->d && m->logistic->classes == m->classes)
        return 1;
    PyErr_SetString(PyExc_ValueError, "the memories are not of the same columns and classes");
    return 0;
}

/* The reading into every ridge's working space; as `copy_reading`. */
static Py_ssize_t read_columns(memories_t *m, PyObject *x) {
    const Py_ssize_t bad = copy_reading(x, m->ridge[0]->work.a, m->d, m->ridge[0]->limit);
    if (bad == -1)
        memcpy(m->ridge[1]->work.a, m->ridge[0]->work.a, (size_t)m->d * sizeof(float));
    return bad;
}

static PyObject *winners(const float *rows, int count, Py_ssize_t classes) {
    PyObject *found = PyTuple_New(count);
    for (int row = 0; found && row < count; row++) {
        PyObject *winner = PyLong_FromSsize_t(largest_score(rows + row * classes, classes));
        if (!winner || PyTuple_SetItem(found, row, winner) < 0) Py_CLEAR(found);
    }
    return found;
}

PyDoc_STRVAR(guess_doc,
"guess(long, lately, logistic, errors, bridge, x, scores, room, ordered)\n\n"
"What the memories say of x: float32 rows for all together, long, lately, logistic and, where there\n"
"is one, the bridge. Returns the class that each says; None where x has a value beyond the limit.\n"
"`room`: classes doubles of working space. `ordered`: readings follow each other in time.");

static PyObject *guess(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    memories_t m = {.all = {.count = 0}};
    PyObject *found = NULL;
    if (!expect(count, 9, "guess") || !take_memories(&m, args)) goto done;
    Py_ssize_t n_scores = (1 + m.voices) * m.classes, n_room = m.classes;
    float *scores = take(&m.all, args[6], 'f', &n_scores, 1);
    double *room = scores ? take(&m.all, args[7], 'd', &n_room, 1) : NULL;
    const int ordered = room ? PyObject_IsTrue(args[8]) : -1;
    if (ordered < 0) goto done;
    const Py_ssize_t bad = read_columns(&m, args[5]);
    if (bad == -2) goto done;
    if (bad >= 0) {
        found = Py_NewRef(Py_None);
        goto done;
    }
    const float *x = m.ridge[0]->work.a;
    for (int voice = 0; voice < m.voices; voice++) {
        float *row = scores + (1 + voice) * m.classes;
        if (voice < 2) {
            ridge_predict(m.ridge[voice], 0, room);
        } else if (voice == 2) {
            straighten(m.logistic, x);
            logistic_scores(m.logistic, room);
        } else {
            bridge_scores(m.bridge, x, m.d, m.classes, room);
        }
        for (Py_ssize_t k = 0; k < m.classes; k++) row[k] = (float)room[k];
    }
    blend_of(m.errors, scores + m.classes, m.voices, m.classes, ordered, room, scores);
    found = winners(scores, 1 + m.voices, m.classes);
done:
    release(&m.all);
    return found;
}

PyDoc_STRVAR(learn_all_doc,
"learn_all(long, lately, logistic, errors, bridge, x, label, said, record)\n\n"
"One labelled reading, for all memories. `said` receives what each had said of it before (float64,\n"
"four rows: long, lately, logistic, bridge); with `record`, the blend takes it down. Returns -1, or\n"
"the index of the first value beyond the limit, in which case nothing has changed.");

static PyObject *learn_all(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    memories_t m = {.all = {.count = 0}};
    Py_ssize_t bad = -2;
    if (!expect(count, 9, "learn_all") || !take_memories(&m, args)) goto done;
    Py_ssize_t n_said = VOICES * m.classes;
    const Py_ssize_t label = place_below(args[6], m.classes, "label");
    double *said = label < 0 ? NULL : take(&m.all, args[7], 'd', &n_said, 1);
    const int record = said ? PyObject_IsTrue(args[8]) : -1;
    if (record < 0 || (bad = read_columns(&m, args[5])) != -1) goto done;
    for (int voice = 0; voice < 2; voice++) {
        double *row = said + voice * m.classes;
        ridge_learn(m.ridge[voice], label, row, NULL);
        for (Py_ssize_t k = 0; k < m.classes; k++) row[k] = (float)row[k];
    }
    straighten(m.logistic, m.ridge[0]->work.a);
    logistic_scores(m.logistic, said + 2 * m.classes);
    logistic_learn(m.logistic, said + 2 * m.classes, label);
    if (m.bridge)
        bridge_scores(m.bridge, m.ridge[0]->work.a, m.d, m.classes, said + 3 * m.classes);
    if (record) blend_record(m.errors, said, m.voices, m.classes, label);
done:
    release(&m.all);
    return bad == -2 ? NULL : PyLong_FromSsize_t(bad);
}

PyDoc_STRVAR(observe_doc,
"observe(gram, x)\n\n"
"As `learn_gram`, with every value rounded to a millionth: adding 16 and taking it away does that.");

static PyObject *observe(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    gram_t *s;
    if (!expect(count, 2, "observe") || !(s = PyCapsule_GetPointer(args[0], GRAM))) return NULL;
    const Py_ssize_t bad = copy_reading(args[1], s->x, s->d, s->limit);
    if (bad == -1) {
        for (Py_ssize_t i = 0; i < s->d; i++) s->x[i] = (s->x[i] + 16.0f) - 16.0f;
        gram_learn(s, 0);
    }
    return bad == -2 ? NULL : PyLong_FromSsize_t(bad);
}

/* ---- a layout ------------------------------------------------------------------------------- */

#define LAYOUT "edge_opid.layout"
typedef struct {
    held_t held;
    layout_t layout;
    int strangers; /* whether names that are not here are passed over */
} held_layout_t;

static int take_layout(held_layout_t *s, PyObject *const *args) {
    layout_t *m = &s->layout;
    buffers_t *all = &s->held.buffers;
    if (!PyTuple_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "names must be a tuple");
        return 0;
    }
    s->held.names = Py_NewRef(args[0]);
    m->sensors = PyTuple_Size(args[0]);
    Py_ssize_t n_lines = 0, n_both = 0;
    const double *slopes, *offsets;
    if (m->sensors < 1 || !(m->references = take(all, args[1], 'd', &m->sensors, 0)) ||
        !(m->scales = take(all, args[2], 'd', &m->sensors, 0)) ||
        !(m->z = take(all, args[3], 'd', &m->sensors, 1)) ||
        !(m->owners = take(all, args[4], 'i', &n_lines, 0)) || n_lines < 1 ||
        !(m->columns = take(all, args[5], 'i', &n_lines, 0)) || (n_both = 2 * n_lines, 0) ||
        !(slopes = take(all, args[6], 'd', &n_both, 0)) ||
        !(offsets = take(all, args[7], 'd', &n_both, 0)) ||
        !(m->floors = take(all, args[8], 'd', &n_lines, 0)) || !numbers(args + 9, 1, &m->gate)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a layout needs sensors and lines");
        return 0;
    }
    m->rise = slopes, m->fall = slopes + n_lines, m->left = offsets, m->right = offsets + n_lines;
    m->lines = n_lines, m->width = n_lines + 1;
    s->strangers = PyObject_IsTrue(args[10]);
    return s->strangers >= 0;
}

PyDoc_STRVAR(hold_layout_doc,
"hold_layout(names, references, scales, z, owners, columns, slopes, offsets, floors, gate,\n"
"            strangers)\n\n"
"A layout without pairs, checked, for `encode`.");

static PyObject *hold_layout(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    if (!expect(count, 11, "hold_layout")) return NULL;
    held_layout_t *s = emptied(sizeof(held_layout_t));
    if (!s || !take_layout(s, args)) return discarded(s);
    const layout_t *m = &s->layout;
    for (Py_ssize_t j = 0; j < m->lines; j++)
        if (m->owners[j] < 0 || m->owners[j] >= m->sensors || m->columns[j] < 0 ||
            m->columns[j] >= m->lines) {
            PyErr_Format(PyExc_ValueError, "line %zd is of sensor %d and column %d: there are %zd and %zd",
                         j, m->owners[j], m->columns[j], m->sensors, m->lines);
            return discarded(s);
        }
    return capsule_of(s, LAYOUT);
}

/* A plain finite number into `to`: 1; a missing one: 0; -1 for anything else, without an error. */
static int plain_number(PyObject *object, double *to) {
    if (object == NULL || object == Py_None) return 0;
    if (!PyFloat_CheckExact(object) && !PyLong_CheckExact(object)) return -1;
    *to = PyFloat_AsDouble(object);
    if (*to == -1.0 && PyErr_Occurred()) {
        PyErr_Clear(); /* a whole number beyond float64: the Python path says so */
        return -1;
    }
    return isfinite(*to) ? 1 : -1;
}

PyDoc_STRVAR(encode_doc,
"encode(layout, values, x)\n\n"
"The columns of a dict of numbers, into x (float32). Returns the places of the sensors at the gate\n"
"or beyond; None where anything is unusual, for Python to deal with: x means nothing then.");

static PyObject *encode(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    buffers_t all = {.count = 0};
    held_layout_t *s;
    PyObject *gated = NULL, *found = NULL;
    if (!expect(count, 3, "encode") || !(s = PyCapsule_GetPointer(args[0], LAYOUT))) return NULL;
    if (!PyDict_CheckExact(args[1])) return Py_NewRef(Py_None);
    const layout_t *m = &s->layout;
    Py_ssize_t width = m->width, present = 0;
    float *x = take(&all, args[2], 'f', &width, 1);
    if (!x) goto done;
    for (Py_ssize_t i = 0; i < m->sensors; i++) {
        double value;
        PyObject *given = PyDict_GetItemWithError(args[1], PyTuple_GetItem(s->held.names, i));
        if (!given && PyErr_Occurred()) goto done;
        const int there = plain_number(given, &value);
        if (there < 0) goto unusual;
        present += given != NULL;
        m->z[i] = 0;
        if (!there || !gate_value(m, i, value)) continue;
        PyObject *place = PyLong_FromSsize_t(i);
        if (!gated) gated = PyList_New(0);
        const int kept = place && gated ? PyList_Append(gated, place) : -1;
        Py_XDECREF(place);
        if (kept < 0) goto done;
    }
    if (present != PyDict_Size(args[1]) && !s->strangers) goto unusual;
    spread(m, x);
    found = gated ? PyList_AsTuple(gated) : PyTuple_New(0);
    goto done;
unusual:
    found = Py_NewRef(Py_None);
done:
    Py_XDECREF(gated);
    release(&all);
    return found;
}

/* ---- the time layer ------------------------------------------------------------------------ */

/* The arrays of a time layer, checked against each other, and the buffers of this call. */
typedef struct {
    buffers_t all;
    layer_t layer;
    evidence_t evidence;
    double *room; /* a place for each class, at the end of the state */
} timed_t;

/* The first two of `wanted` arguments. End with `done_with`, whatever this says. */
static int take_time(timed_t *s, const char *name, PyObject *const *args, Py_ssize_t count,
                     Py_ssize_t wanted) {
    Py_ssize_t n_state = 0, n_evidence = 0;
    double *state, *seen;
    s->all.count = 0;
    if (!expect(count, wanted, name) || !(state = take(&s->all, args[0], 'd', &n_state, 1)) ||
        !(seen = take(&s->all, args[1], 'd', &n_evidence, 1)))
        return 0;
    const Py_ssize_t classes = n_evidence / 5 - 1;
    if (n_evidence % 5 || classes < 1 || n_state != FIXED + (PER_CLASS + 1) * classes) {
        PyErr_Format(PyExc_ValueError, "a state of %zd numbers does not fit evidence of %zd",
                     n_state, n_evidence);
        return 0;
    }
    s->layer = layer_of(state, classes);
    s->evidence = evidence_of(seen, classes);
    s->room = state + n_state - classes;
    return 1;
}

static PyObject *done_with(timed_t *s, PyObject *found) {
    release(&s->all);
    return found;
}

/* A label in these numbers is used as an index: -1 for none, or one of the classes. */
static int fits_label(double label, Py_ssize_t classes) {
    if (label >= -1 && label < (double)classes) return 1;
    PyErr_Format(PyExc_ValueError, "a label of the time layer must be -1..%zd", classes - 1);
    return 0;
}

static int copy_scores(PyObject *object, double *to, Py_ssize_t classes) {
    floats_t scores;
    if (!open_floats(&scores, object, classes, "scores")) return 0;
    for (Py_ssize_t k = 0; k < classes; k++) to[k] = float_at(&scores, k);
    PyBuffer_Release(&scores.view);
    return 1;
}

static PyObject *list_of(const double *values, Py_ssize_t n) {
    PyObject *list = PyList_New(n);
    for (Py_ssize_t i = 0; list && i < n; i++) {
        PyObject *value = PyFloat_FromDouble(values[i]);
        if (!value || PyList_SetItem(list, i, value) < 0) Py_CLEAR(list);
    }
    return list;
}

PyDoc_STRVAR(time_answer_doc,
"time_answer(state, evidence, predictor, scores, time_ms)\n\n"
"Fills the evidence, and returns how probable each class is. Changes no state.");

static PyObject *time_answer(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    timed_t s;
    double time_ms;
    Py_ssize_t predictor;
    if (!take_time(&s, "time_answer", args, count, 5) ||
        (predictor = place_below(args[2], PREDICTORS, "predictor")) < 0 ||
        !numbers(args + 4, 1, &time_ms) ||
        !copy_scores(args[3], s.evidence.scores, s.layer.classes) ||
        !fits_label(s.layer.fixed->label, s.layer.classes))
        return done_with(&s, NULL);
    collect_evidence(&s.layer, &s.evidence, (int)predictor, time_ms);
    correct(&s.layer, s.evidence.said, s.room);
    return done_with(&s, list_of(s.room, s.layer.classes));
}

PyDoc_STRVAR(time_go_on_doc,
"time_go_on(state, evidence, looked)\n\n"
"Counts the instance among the last ones; `looked`: whether its predictor looks at readings.");

static PyObject *time_go_on(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    timed_t s;
    int looked;
    if (!take_time(&s, "time_go_on", args, count, 3) || (looked = PyObject_IsTrue(args[2])) < 0)
        return done_with(&s, NULL);
    go_on_from(&s.layer, &s.evidence, looked);
    return done_with(&s, Py_NewRef(Py_None));
}

PyDoc_STRVAR(time_learn_doc,
"time_learn(state, evidence, predictor, truth)\n\n"
"Learns the class of an instance from the evidence of when it was predicted.");

static PyObject *time_learn(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    timed_t s;
    Py_ssize_t predictor, truth;
    if (!take_time(&s, "time_learn", args, count, 4) ||
        (predictor = place_below(args[2], PREDICTORS, "predictor")) < 0 ||
        (truth = place_below(args[3], s.layer.classes, "truth")) < 0 ||
        !fits_label(*s.evidence.label, s.layer.classes))
        return done_with(&s, NULL);
    learn_truth(&s.layer, &s.evidence, (int)predictor, truth, s.room);
    return done_with(&s, Py_NewRef(Py_None));
}

#define FAST(function) {#function, (PyCFunction)(void (*)(void))function, METH_FASTCALL, function##_doc}
static PyMethodDef methods[] = {
    FAST(hold_ridge),  FAST(learn),     FAST(predict), FAST(hold_gram),  FAST(learn_gram),
    FAST(observe),     FAST(guess),     FAST(learn_all), FAST(hold_logistic),
    FAST(hold_layout), FAST(encode),    FAST(time_answer), FAST(time_go_on), FAST(time_learn),
    {NULL, NULL, 0, NULL},
};

static int set_up(PyObject *module) {
    return PyModule_AddIntConstant(module, "INTERFACE", INTERFACE);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, set_up}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_compiled", "The hot steps, compiled: see edge_opid.native.", 0, methods,
    slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__compiled(void) { return PyModuleDef_Init(&definition); }
