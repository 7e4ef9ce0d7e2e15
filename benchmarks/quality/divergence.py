"""How far an engine's next-token distributions lie from the oracle's, and whether one engine is nearer than another. numpy only."""
import numpy as np

ROWS = 64  # float64 copies of 64 rows of a 49,152-word vocabulary: 25 MB each
BLOCK = 64  # neighbouring positions share their context, so what is resampled is a run of 64 of them, not one
DRAWS = 10000
ALLOWED_LOSS = 0.01  # a mean KL up to 1 % above the peer's counts as none


def log_softmax(logits):
    x = logits.astype(np.float64)
    x -= x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def compare_logits(oracle, engine, targets):
    """Per position, float64 [T] each: KL(oracle || engine) in nats over the whole vocabulary, 1 where the top-1 agrees, both surprisals of the next token."""
    rows = []
    for at in range(0, len(oracle), ROWS):
        p, q, index = log_softmax(oracle[at:at + ROWS]), log_softmax(engine[at:at + ROWS]), targets[at:at + ROWS]
        kl = (np.exp(p) * (p - q)).sum(axis=-1)
        every = np.arange(len(p))
        rows.append(np.stack([kl, p.argmax(axis=-1) == q.argmax(axis=-1), -p[every, index], -q[every, index]]))
    return dict(zip(("kl", "top1", "nll_oracle", "nll"), np.concatenate(rows, axis=1)))


def summary(rows):
    """The figures of one engine."""
    kl = rows["kl"]
    low, high = bootstrap(kl)
    return {"positions": len(kl), "kl_mean": kl.mean(), "kl_mean_95": [low, high], "kl_p50": np.quantile(kl, 0.5), "kl_p99": np.quantile(kl, 0.99),
            "kl_max": kl.max(), "top1": rows["top1"].mean(), "top1_differ": int((1 - rows["top1"]).sum()),
            "perplexity": np.exp(rows["nll"].mean()), "perplexity_oracle": np.exp(rows["nll_oracle"].mean())}


def paired(ours, theirs):
    """The difference of mean KL, ours - theirs, position by position on the same ids: negative is nearer to fp32.

    `excludes_loss` is the verdict: both intervals of ours - 1.01 * theirs end below zero.
    """
    difference, margin = ours["kl"] - theirs["kl"], ours["kl"] - (1 + ALLOWED_LOSS) * theirs["kl"]
    return {"kl_difference": difference.mean(), "bootstrap_95": list(bootstrap(difference)), "normal_95": list(normal(difference)),
            "ratio": ours["kl"].mean() / theirs["kl"].mean(), "top1_difference": ours["top1"].mean() - theirs["top1"].mean(),
            "top1_difference_95": list(bootstrap(ours["top1"] - theirs["top1"])), "nearer_positions": float((difference < 0).mean()),
            "allowed_loss": ALLOWED_LOSS, "margin_bootstrap_95": list(bootstrap(margin)),
            "excludes_loss": bool(bootstrap(margin)[1] < 0 and normal(margin)[1] < 0)}


def perplexity_change(rows, base):
    """How much larger the perplexity of `rows` is than that of `base`, as a fraction, on the same ids."""
    difference = rows["nll"] - base["nll"]
    return {"change": np.expm1(difference.mean()), "bootstrap_95": [np.expm1(x) for x in bootstrap(difference)]}


def block_means(values):
    """Means of runs of about BLOCK positions; a rest is spread over the runs."""
    count = max(1, len(values) // BLOCK)
    return np.array([part.mean() for part in np.array_split(values, count)])


def bootstrap(values, seed=1):
    """95 % of the means of DRAWS resampled sets of blocks."""
    blocks = block_means(values)
    means = blocks[np.random.default_rng(seed).integers(0, len(blocks), (DRAWS, len(blocks)))].mean(axis=1)
    return tuple(np.quantile(means, [0.025, 0.975]))


def normal(values):
    """Mean ± 1.96 standard errors of the block means."""
    blocks = block_means(values)
    error = blocks.std(ddof=1) / np.sqrt(len(blocks)) if len(blocks) > 1 else np.inf
    return blocks.mean() - 1.96 * error, blocks.mean() + 1.96 * error
