"""The sentences of the page that do not change with the figures."""

ABOUT = """# Many changes, one after another

Written by `make bench-changes` (`python benchmarks/changes.py`) from the files in `changes/`;
`make bench-peers` measures the peers alone, which take most of the time, into the same files.

A window slides over the sensors of a real data set: at every change a third of the sensors alive is
replaced, and a sensor that is gone never returns. The seed draws the order of the sensors and of
the rows; Room occupancy keeps its rows in the order of time, and the seed draws where it starts.
Every reading is predicted, then its label is learned.

*node* is the node's durable half (`NodeState`), fed with accepted readings and the gateway's
orders, without sockets, signatures and journal, which change no prediction. It chooses κ itself.
*lifted*: up to eight hats a sensor, within the 160 columns of a node; a set whose sensors have two
values has nothing to lift. A new sensor speaks for 200 readings before it replaces another: from
these values, without labels, come its reference, scale and knots, as at the gateway, and the peers'
scalers learn from the same ones.

*restart*: a node set up anew at every change. *zero-fill*: a node with the columns of all sensors
for ever, absent ones at 0. *oracle*: a node that is told at every change what the sensors now alive
would have said in all readings before. These three have the form, linear or lifted, of the node
that is judged. Peers: river's logistic regression (one a class, standard scaler), Hoeffding tree,
Gaussian naive Bayes and adaptive random forest (10 trees), OpenMOA's FESL (two classes only), FTRL
and FOBOS, all with their default settings. Each peer ran twice, going on through the changes and
starting *anew* at each; every figure is that of the mode that suits the peer better in that figure.
"""

AIMS_ABOUT = """First or tied for first against everyone but the oracle, by the paired t-test over
the seeds at 0.05: in the first 100 readings after a change, and over the whole stream. With few
seeds the test sees only large differences; the last column therefore names everyone whose mean is
higher, too."""

CHOICES = """ρ = 10 for the lifted node and 100 for the linear one, and how the node weighs its
memories (docs/decisions/0011), were chosen on other streams: scikit-learn's digits with seeds not
used here, breast cancer, MNIST 0/3/5 on other pixels (images may be the same), the occupancy
detection data (time order), and synthetic ones with numeric and with binary sensors. The digits of
this page are therefore development data. Seed 1 of the streams of this page was looked at three
times: with ρ = 1 before any choice, and after each of the two changes of the node, to see what they
do. Three other seeds of Room occupancy were looked at to see where its first 100 readings go wrong.
No setting was taken from these; the seeds of this page, from 1000 on, had not been looked at."""

PRECISION = """The node's learners in float64 instead of float32, on the same float32 columns."""
