/* From one value a sensor to the columns: edge_opid/layout/encoder.py and basis.py in C.
 *
 * z = (value - reference) / scale, clipped at the gate; a column is the lower of a rising and a
 * falling line of its sensor's z, and not below its floor. float64, in the order of the Python
 * files: the same bits.
 */
#define ABSURD 1e6 /* scales from its reference at which only a fault can be: it counts as missing */

typedef struct {
    const double *references, *scales;          /* of each sensor */
    const int *owners, *columns;                /* of each line: its sensor, and where it goes */
    const double *rise, *left, *fall, *right, *floors;
    double *z;                                  /* working space: one for each sensor */
    Py_ssize_t sensors, lines, width;
    double gate;
} layout_t;

/* Standardises and gates sensor i; whether it is at the gate or beyond. */
static int gate_value(const layout_t *m, Py_ssize_t i, double value) {
    const double z = (value - m->references[i]) / m->scales[i], size = fabs(z);
    m->z[i] = z;
    if (size < m->gate) return 0;
    if (size > ABSURD)
        m->z[i] = 0; /* missing: as at the reference */
    else
        m->z[i] = z > 0 ? m->gate : -m->gate;
    return 1;
}

static void spread(const layout_t *m, float *x) {
    for (Py_ssize_t j = 0; j < m->lines; j++) {
        const double z = m->z[m->owners[j]];
        const double up = m->rise[j] * z + m->left[j], down = m->fall[j] * z + m->right[j];
        const double lower = down < up ? down : up;
        x[m->columns[j]] = (float)(lower > m->floors[j] ? lower : m->floors[j]);
    }
    x[m->width - 1] = 1; /* the bias */
}
