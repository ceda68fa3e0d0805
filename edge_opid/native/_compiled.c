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
#include <math.h>
#include <string.h>

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

/* GramLearner's step: G + x x' on the factor G = L' diag(w) L, L unit upper triangular, packed row
 * by row with w on its diagonal. Row after row takes its share of x and hands on the rest. */
FOR_THIS_CPU
static void add_outer(float *restrict row, float *restrict x, size_t d, double decay) {
    double left = 1; /* the weight with which the rest of x counts */
    for (size_t n = d; n > 0; row += n, x++, n--) {
        const double w = decay * row[0], share = x[0], total = w + left * share * share;
        row[0] = (float)total;
        if (!(total > 0)) continue; /* nothing ever seen in this column */
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

#define MOST_BUFFERS 6
typedef struct {
    Py_buffer taken[MOST_BUFFERS];
    int count;
} buffers_t;

static void release(buffers_t *all) {
    while (all->count) PyBuffer_Release(&all->taken[--all->count]);
}

/* Memory of `object`, which must hold exactly `items` of the type `code` (0: any number). */
static void *take(buffers_t *all, PyObject *object, char code, Py_ssize_t *items, int writable) {
    Py_buffer *view = &all->taken[all->count];
    const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object, view, flags) < 0) return NULL;
    all->count++;
    const Py_ssize_t found = view->len / view->itemsize;
    if (!view->format || view->format[0] != code || view->format[1]) {
        PyErr_Format(PyExc_TypeError, "expected an array of type '%c'", code);
        return NULL;
    }
    if (*items && *items != found) {
        PyErr_Format(PyExc_ValueError, "expected %zd items of type '%c', got %zd", *items, code,
                     found);
        return NULL;
    }
    *items = found;
    return view->buf;
}

/* Copies a reading into `to` as float32. Returns the first value beyond the limit (which NaN and
 * infinities are too), -1 where all are fine, -2 with a Python error. */
static Py_ssize_t copy_reading(PyObject *object, float *to, Py_ssize_t width, double limit) {
    Py_buffer view;
    Py_ssize_t bad = -1;
    if (PyObject_GetBuffer(object, &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) return -2;
    const char code = view.format && !view.format[1] ? view.format[0] : '?';
    if ((code != 'f' && code != 'd') || view.len != width * view.itemsize) {
        PyErr_Format(PyExc_ValueError, "expected %zd values of float32 or float64", width);
        bad = -2;
    }
    for (Py_ssize_t i = 0; i < width && bad == -1; i++) {
        const double value = code == 'f' ? ((float *)view.buf)[i] : ((double *)view.buf)[i];
        if (!(fabs(value) <= limit)) bad = i;
        to[i] = (float)value;
    }
    PyBuffer_Release(&view);
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

/* The arrays of a WoodburyLearner, checked against each other. */
typedef struct {
    float *U, *B;
    double *v;
    work_t work;
    Py_ssize_t vanishing, surviving, d, D, classes;
} woodbury_t;

static int take_woodbury(buffers_t *all, PyObject *const *args, woodbury_t *s) {
    s->vanishing = PyLong_AsSsize_t(args[4]);
    s->surviving = PyLong_AsSsize_t(args[5]);
    if (PyErr_Occurred()) return 0;
    if (s->vanishing < 0 || s->surviving < 1) {
        PyErr_SetString(PyExc_ValueError, "vanishing must be >= 0 and surviving >= 1");
        return 0;
    }
    s->d = s->vanishing + s->surviving;
    s->D = s->vanishing ? s->d + s->surviving : s->d;
    Py_ssize_t n_U = (Py_ssize_t)packed_size(s->D), n_v = s->D, n_B = 0;
    Py_ssize_t n_work = 4 * (Py_ssize_t)padded(s->D);
    float *work;
    if (!(s->U = take(all, args[0], 'f', &n_U, 1)) || !(s->v = take(all, args[1], 'd', &n_v, 1)) ||
        !(s->B = take(all, args[2], 'f', &n_B, 1)) || !(work = take(all, args[3], 'f', &n_work, 1)))
        return 0;
    if (n_B == 0 || n_B % s->D) {
        PyErr_Format(PyExc_ValueError, "B has %zd items, not a multiple of D = %zd", n_B, s->D);
        return 0;
    }
    s->classes = n_B / s->D;
    s->work = work_of(work, s->D);
    return 1;
}

PyDoc_STRVAR(learn_doc,
"learn(U, v, B, work, vanishing, surviving, x, label, lam, decay, ceiling, limit, scores)\n\n"
"One Woodbury step. Returns -1, or the index of the first value beyond the limit, in which case\n"
"nothing has changed. `scores` (2 x classes doubles, or None) receives both classifiers'\n"
"predictions for x, made before it is learned.");

static PyObject *learn(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    buffers_t all = {.count = 0};
    woodbury_t s;
    double option[4], *scores = NULL;
    Py_ssize_t bad = -2;
    if (!expect(count, 13, "learn") || !take_woodbury(&all, args, &s)) goto done;
    const Py_ssize_t label = PyLong_AsSsize_t(args[7]);
    if ((label == -1 && PyErr_Occurred()) || !numbers(args + 8, 4, option)) goto done;
    if (label < 0 || label >= s.classes) {
        PyErr_Format(PyExc_ValueError, "label must be 0..%zd, got %zd", s.classes - 1, label);
        goto done;
    }
    if (args[12] != Py_None) {
        Py_ssize_t wanted = 2 * s.classes;
        if (!(scores = take(&all, args[12], 'd', &wanted, 1))) goto done;
    }
    if ((bad = copy_reading(args[6], s.work.a, s.d, option[3])) != -1) goto done;
    if (s.vanishing)
        memcpy(s.work.b + s.d, s.work.a + s.vanishing, (size_t)s.surviving * sizeof(float));
    absorb(s.U, s.v, s.work, (size_t)s.d, (size_t)s.D, option[0], option[1], option[2]);
    scale(s.B, (size_t)(s.D * s.classes), option[1]);
    if (scores) {
        float *second = s.vanishing ? s.work.gain_b : s.work.gain_a;
        scores_from(s.work.gain_a, s.B, (size_t)s.D, (size_t)s.classes, scores);
        scores_from(second, s.B, (size_t)s.D, (size_t)s.classes, scores + s.classes);
    }
    add_to_column(s.B, s.work.a, (size_t)s.d, (size_t)s.classes, (size_t)label);
    if (s.vanishing)
        add_to_column(s.B + s.d * s.classes, s.work.b + s.d, (size_t)s.surviving,
                      (size_t)s.classes, (size_t)label);
done:
    release(&all);
    return bad == -2 ? NULL : PyLong_FromSsize_t(bad);
}

PyDoc_STRVAR(predict_doc,
"predict(U, v, B, work, vanishing, surviving, x, survivors, limit, scores)\n\n"
"The scores of one classifier (survivors: 0 or 1) for x. Returns as `learn` does.");

static PyObject *predict(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    buffers_t all = {.count = 0};
    woodbury_t s;
    double limit, *scores;
    Py_ssize_t bad = -2;
    if (!expect(count, 10, "predict") || !take_woodbury(&all, args, &s)) goto done;
    int second = PyObject_IsTrue(args[7]);
    if (second < 0 || !numbers(args + 8, 1, &limit)) goto done;
    Py_ssize_t wanted = s.classes;
    if (!(scores = take(&all, args[9], 'd', &wanted, 1))) goto done;
    second = second && s.vanishing;
    bad = second ? copy_reading(args[6], s.work.b + s.d, s.surviving, limit)
                 : copy_reading(args[6], s.work.a, s.d, limit);
    if (bad != -1) goto done;
    project(s.U, s.v, s.work, (size_t)s.d, (size_t)s.D, second);
    scores_from(second ? s.work.gain_b : s.work.gain_a, s.B, (size_t)s.D, (size_t)s.classes,
                scores);
done:
    release(&all);
    return bad == -2 ? NULL : PyLong_FromSsize_t(bad);
}

PyDoc_STRVAR(learn_gram_doc,
"learn_gram(G, B, width, x, label, decay, limit)\n\n"
"G += x x' on the packed factor of G, and B[:, label] += x. Returns as `learn` does.");

static PyObject *learn_gram(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    (void)module;
    buffers_t all = {.count = 0};
    double option[2];
    float *G, *B, *x = NULL;
    Py_ssize_t bad = -2, n_B = 0;
    if (!expect(count, 7, "learn_gram")) goto done;
    const Py_ssize_t d = PyLong_AsSsize_t(args[2]), label = PyLong_AsSsize_t(args[4]);
    if (PyErr_Occurred() || !numbers(args + 5, 2, option)) goto done;
    Py_ssize_t n_G = d * (d + 1) / 2;
    if (!(G = take(&all, args[0], 'f', &n_G, 1)) || !(B = take(&all, args[1], 'f', &n_B, 1)))
        goto done;
    if (d < 1 || n_B % d || label < 0 || label >= n_B / d) {
        PyErr_Format(PyExc_ValueError, "label %zd does not fit B with %zd items", label, n_B);
        goto done;
    }
    if (!(x = PyMem_Malloc((size_t)d * sizeof(float)))) {
        PyErr_NoMemory();
        goto done;
    }
    if ((bad = copy_reading(args[3], x, d, option[1])) != -1) goto done;
    scale(B, (size_t)n_B, option[0]);
    add_to_column(B, x, (size_t)d, (size_t)(n_B / d), (size_t)label);
    add_outer(G, x, (size_t)d, option[0]); /* uses up x */
done:
    PyMem_Free(x);
    release(&all);
    return bad == -2 ? NULL : PyLong_FromSsize_t(bad);
}

#define FAST(function) {#function, (PyCFunction)(void (*)(void))function, METH_FASTCALL, function##_doc}
static PyMethodDef methods[] = {FAST(learn), FAST(predict), FAST(learn_gram), {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_compiled", "The hot steps, compiled: see edge_opid.native.", 0, methods,
    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__compiled(void) { return PyModuleDef_Init(&definition); }
