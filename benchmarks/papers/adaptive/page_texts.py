"""The text of docs/adaptive.md around its tables."""

ADAPTIVE_INTRODUCTION = """# Adaptive softmax against its paper

Written by `make reproduce DATA=folder`; do not edit. `ptb` is the 2 x 200 LSTM of the data set (V = 10,000, d = 200).
All heads on this page are trained in the same way: from random weights, on the contexts of a third of train and their
next words, while the LSTM stays as it is; by Adam with a learning rate that falls from .003 to a tenth of that, in
batches of 512, for two epochs. Figures are of all of test. Times are of one thread of this machine, contenders
measured in turn; the last section says which were taken while the machine did other work.
"""

LEFT_OUT_SECTION = """## What is left out

| of the paper | here |
|---|---|
| text8, One Billion Word, Europarl | not run: the texts are not available here |
| training of the whole network | the output layer alone, over contexts of an LSTM that was trained with a full softmax |
| Adagrad, batches of 128 x 20 | Adam, batches of 512: one recipe for every head |
| times on a GPU | not run: there was no GPU; k0 and lambda are of this processor |
| D-softmax, one of its baselines | trained and served: the table above |
| importance sampling, noise-contrastive estimation | not run: they train a dense layer, and give no head to serve |

The step times of training were taken beside other work on the same two cores. The least of several rounds in turn is
given, and the predictions come from a cost model that was fitted under the same load.
"""  # noqa: E501

HEADS_REMARKS = """Multiply-adds are means over contexts of train; a tail that stays closed costs nothing. Wall times are of `Head.topk`
with k = 5, batch 1 and one thread, in blocks of 50 calls in turn. Dense is the fastest of eight ONNX Runtime
spellings, and it computes no normaliser. "Times dense" is the total time of dense over that of the head.
"""  # noqa: E501

CUTOFFS_REMARKS = """A dynamic programme over 100 cut points chooses the cutoffs that serve single rows with k = 5 fastest. How often a
tail must be opened is measured on 2,000 contexts of train under the given dense layer. Two rules keep quality: the
head holds 80 % of the targets, and at most a fifth, a twentieth and an eightieth of them lie behind the start of the
first, second and third tail, since each tail is narrower than the one before. Of the numbers of tails whose predicted
time is within 5 % of the least, the smallest is taken.

"""  # noqa: E501

OPENINGS_REMARKS = """Measured on 20,000 contexts of test. The plan asks tails in their own order, so that a batch reads the weights of each
tail once. The last column is the least possible number: it opens tails by falling cluster probability, which needs a
sort and reads a tail several times a batch.

"""  # noqa: E501

BRUTE_FORCE_REMARKS = """The plan's answers for every k from 1 to 100 are compared with the sorted log-probabilities of all classes: with those
of the same graphs when every tail is opened, and with those of the trained module by `torch` in float64, which shows
what float32 costs. An id counts as wrong if its log-probability is further than 1e-5 from that of the id that belongs
in its place; otherwise the two are a tie.

"""  # noqa: E501

PICTURE_REMARKS = """A hierarchical step scores sqrt(V) bins, and the words of the bins that its targets are in. It is faster than an
adaptive step on this processor, which computes many small products as fast as a few large ones. It is a baseline for
training alone: when served, every bin that may hold an answer would have to be opened.

![Training step against head size and number of tails](pictures/adaptive-training.png)
"""  # noqa: E501
