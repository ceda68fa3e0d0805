"""The sentences of the page that do not change with the figures."""

ABOUT = """# The paper's experiments

Written by `make bench-paper` (`python -m benchmarks.paper`) from the files in `paper/`.

Hou & Zhou, *One-Pass Learning with Incremental and Decremental Features*, Tables 1 and 2 and Fig. 2
and 4. The first columns vanish, the middle ones survive, the last ones are new. The C-stage learns
the first instances of each class in one pass and keeps only sums (λ = 1; ρ by generalised
cross-validation on these sums; a constant column among the survivors, as every node has). The
E-stage's 2n instances are those that follow, as many of each class, split at random in each repeat
into n to fit and n to test on. Splice's file is in no order of its source's, so there the 2n are
drawn anew from all that follow. MNIST's pixels are those lit in at least 98 of the set's images,
which gives the 455 and 489 of Table 1.

That the paper took the instances *that follow* and not any is a reading of ours: it says that the
E-stage's 2n examples are split at random, not that they are drawn. The three SVM columns, which
contain nothing of either method, speak for it (below). A cell's repeats are then splits of the same
2n instances: standard errors and t-tests speak of these, not of the next ones.

SVM is the paper's name for L2-regularised logistic regression on the E-stage batch. *ridge* is on
the survivors alone, *ridge, 0* and *ridge, mean* are on all columns with the vanished ones filled
in; each has its own ρ by generalised cross-validation. *OPID* is the balanced form, *OPID printed*
Eq. 14 as printed, *residual* a ridge of Y − Z. *update* continues the C-stage on the batch.
"""

DIFFERENCES = """Why figures differ:

- **OPIDe, OPID.** The paper does not say how λ, ρ and γ were set, nor whether its columns were
  scaled or had a constant among them; ours have one, and ρ from the sums. On Splice the constant
  alone is worth some ten points of Z, so ours are higher. OPID is our balanced form: the printed
  one does not reproduce the paper's figures (column *OPID printed*).
- **SVM, SVM(s), SVM(a).** LIBLINEAR's costs and scaling are not in the paper; ours are 10⁻³…10³ on
  columns within ±1, chosen by log-loss, not by accuracy. Splice's instances are others than the
  paper's, and MNIST's pixels are chosen by a rule of ours that gives their number.
- The standard errors are those of the repeats. Where both sides split a fixed set of 2n instances,
  a difference of one instance in the sets themselves is not in them, and for small n it is most of
  the difference."""

CHOICES = """All choices are made without test instances. ρ: generalised cross-validation on the
C-stage's sums. Settings and shares: 2 × 5-fold cross-validation on the n instances of the batch.
`fit_best` is what the gateway calls: a mixture of Z, the update and OPIDe whose shares have the
smallest held-out log-loss plus two standard errors of its difference from Z alone; where nothing is
surely better, it is Z. The forms, the grids and the charge for doubt were fixed on other data
(decision 15): the same sets with their columns in another order and instances that no cell of this
page tests on (Splice: C-stage instances of this page), other digits, breast cancer, room occupancy,
and made-up worlds. A gateway takes ρ from its configuration instead (1 unless said otherwise).

What was known of this page before: ten repeats of every cell with two earlier rules (decisions 7
and 10), one too timid and one too bold, which is why another was looked for. Ten cells with the
present rule but a charge of *one* standard error: it reached the paper in all of them and lost more
than .005 to a baseline in three. That led to the question which charge is safe on sets as small as
these; the answer, two, comes from the other data. After that one thing was changed, on other data
but knowing this page: the update takes innovations for new columns (decision 36). DNA 60 to 300
have been measured again with it; *update* and *fit_best* of all other cells are of the code before.
Also known: which reading of the protocol brings the SVM columns close to the paper's, and how right
Z is for seven values of ρ. No value was taken from that, but ρ by generalised cross-validation was
adopted after it."""

SHARES_ABOUT = """The middle columns survive, the rest is halved into vanished and new ones. The
paper's Fig. 4 shows SensIT Vehicle and Gisette without numbers; these run when their data is given.
The sets at hand, with the second n of each:"""

PRECISION_ABOUT = """Test accuracy in a node's numbers minus the same in float64, over the first
repeats. *Z alone, float32*: W^(s) of a node's `WoodburyLearner` after one pass in float32, and its
scores. *fit_best, float32* and *float16*: the gateway fits in float64 from that learner's float32
summary, the weights travel in that type, and the node multiplies in float32. Where two settings or
shares are all but tied, the float32 sums may tip the choice."""
