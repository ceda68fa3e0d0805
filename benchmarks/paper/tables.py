"""The paper's own numbers: the sizes of its Table 1 and the accuracies of its Table 2."""

from __future__ import annotations

from dataclasses import dataclass

COLUMNS = ("SVM", "SVM(s)", "SVM(a)", "OPIDe", "OPID")
"""Of Table 2, in its order."""

# set, n, then mean and standard deviation of each column.
TABLE_2 = """
mnist05   40  .9485 .0309  .9455 .0334  .7105 .0569  .9700 .0286  .9840 .0158
mnist05   80  .9630 .0196  .9633 .0196  .6403 .0434  .9868 .0088  .9888 .0099
mnist05  160  .9571 .0137  .9528 .0136  .6691 .0271  .9794 .0097  .9875 .0090
mnist05  320  .9604 .0104  .9585 .0102  .6508 .0220  .9738 .0058  .9721 .0066
mnist035  60  .9043 .0424  .9093 .0399  .5137 .0534  .9280 .0339  .9403 .0265
mnist035 120  .9233 .0218  .9240 .0243  .4852 .0381  .9458 .0178  .9497 .0130
mnist035 240  .9125 .0165  .9133 .0134  .4653 .0266  .9345 .0141  .9348 .0135
mnist035 480  .9265 .0110  .9232 .0101  .4843 .0182  .9330 .0086  .9337 .0079
dna       60  .7693 .0495  .8017 .0511  .3063 .0499  .9183 .0246  .9253 .0248
dna      120  .8418 .0327  .8630 .0308  .3855 .0428  .9315 .0191  .9322 .0172
dna      240  .8732 .0182  .8890 .0203  .3778 .0256  .9385 .0111  .9343 .0132
dna      300  .8857 .0174  .8969 .0188  .3957 .0242  .9405 .0120  .9348 .0118
splice    40  .6625 .0621  .6755 .0618  .4640 .0513  .8150 .0468  .8025 .0455
splice    80  .7512 .0403  .7597 .0446  .4680 .0486  .8122 .0373  .8050 .0353
splice   160  .8084 .0258  .8116 .0244  .4829 .0354  .8400 .0203  .8391 .0205
splice   320  .8408 .0174  .8387 .0171  .4961 .0232  .8555 .0132  .8594 .0138
sensit    60  .6533 .0536  .6513 .0561  .5533 .0727  .7113 .0443  .7147 .0482
sensit   120  .6418 .0482  .6550 .0439  .5777 .0512  .7253 .0410  .7218 .0365
sensit   240  .6816 .0287  .6805 .0293  .5942 .0352  .7237 .0187  .7242 .0183
sensit   480  .7088 .0177  .7076 .0164  .6065 .0214  .7206 .0132  .7223 .0139
gisette   40  .8795 .0564  .8710 .0566  .8550 .0627  .9600 .0331  .9710 .0185
gisette  100  .9172 .0276  .9028 .0286  .9116 .0264  .9714 .0128  .9756 .0126
gisette  200  .9133 .0155  .9039 .0181  .8998 .0201  .9559 .0095  .9539 .0106
gisette  300  .9413 .0106  .9308 .0109  .9231 .0126  .9636 .0069  .9533 .0093
"""


@dataclass(frozen=True)
class TableLine:
    """One line of Table 1, and where its data comes from."""

    title: str
    file: str
    """`FILE.npz` in the data folder: X_train, y_train and, where there are any, X_test, y_test."""
    openml: str
    """What OpenML calls it; empty where it has nothing of the kind."""
    total: int
    """Instances of the C-stage, as many of each class."""
    sizes: tuple[int, ...]
    """n: instances to fit the E-stage on, and as many to test it on."""
    vanished: int
    survived: int
    augmented: int
    labels: tuple[str, ...] = ()
    """The labels to keep; all where empty."""
    ordered: bool = True
    """False: the file's rows are in no order of the source's, so `following` means nothing."""

    @property
    def width(self) -> int:
        """d_v + d_s + d_a."""
        return self.vanished + self.survived + self.augmented


MNIST, USPS = ("mnist035", "mnist_784"), ("usps", "USPS")
TWO, THREE = ("0", "5"), ("0", "3", "5")
SETTINGS = {
    "mnist05": TableLine("Mnist0vs5", *MNIST, 3200, (40, 80, 160, 320), 114, 228, 113, TWO),
    "mnist035": TableLine("Mnist0vs3vs5", *MNIST, 4800, (60, 120, 240, 480), 123, 245, 121, THREE),
    "dna": TableLine("DNA", "dna", "", 1200, (60, 120, 240, 300), 50, 80, 50),
    "splice": TableLine(
        "Splice", "splice", "", 2240, (40, 80, 160, 320), 10, 40, 10, ordered=False
    ),
    "sensit": TableLine(
        "SensIT Vehicle", "sensit", "vehicle_sensIT", 48000, (60, 120, 240, 480), 25, 50, 25
    ),
    "gisette": TableLine(
        "Gisette", "gisette", "gisette", 6000, (40, 100, 200, 300), 1239, 2478, 1238
    ),
    "usps05": TableLine("USPS0vs5", *USPS, 960, (20, 40, 60, 80), 64, 128, 64, TWO),
    "usps035": TableLine("USPS0vs3vs5", *USPS, 1440, (30, 60, 90, 120), 64, 128, 64, THREE),
    "protein": TableLine("Protein", "protein", "", 4500, (60, 150, 300, 450), 70, 200, 86),
    # The paper has three of the six classes and does not say which: the three largest.
    "satimage": TableLine(
        "Satimage", "satimage", "satimage", 1080, (30, 60, 90, 120), 10, 18, 8, ("1", "3", "7")
    ),
    "digits05": TableLine("digits 0 vs 5", "", "", 160, (20, 40, 80), 16, 32, 16, TWO),
    "digits035": TableLine("digits 0 vs 3 vs 5", "", "", 240, (30, 60, 90), 16, 32, 16, THREE),
}
"""The paper's ten sets, then two of scikit-learn's that are always at hand."""


def paper_cell(name: str, n: int) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation of each column of Table 2, or nothing where it has no such cell.

    >>> paper_cell("dna", 60)["OPID"]
    (0.9253, 0.0248)
    """
    for line in TABLE_2.split("\n"):
        words = line.split()
        if words[:2] == [name, str(n)]:
            figures = [float(word) for word in words[2:]]
            pairs = zip(figures[::2], figures[1::2], strict=True)
            return dict(zip(COLUMNS, pairs, strict=True))
    return {}
