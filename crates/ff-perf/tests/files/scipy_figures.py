"""What scipy makes of the samples that tests/files/scipy.rs sends: JSON on standard input, JSON on standard output.

    scipy_figures.py < {"fits": […], "ranks": […], "rhythms": […], "window": […]}

Each distribution is fitted from scipy's own start, from our parameters and from others near them; the best counts.
"""

import json, sys, time, warnings

import numpy as np
from scipy import stats

warnings.simplefilter("ignore")
LAWS = {
    "gev": stats.genextreme,
    "frechet": stats.invweibull,
    "weibull": stats.weibull_min,
    "pareto": stats.pareto,
    "lognormal": stats.lognorm,
}


def likelihood(law, parameters, values, beyond):
    """The logarithm of the likelihood, values that were given up as right-censored ones."""
    seen = np.sum(law.logpdf(values, *parameters))
    return float(seen + (np.sum(law.logsf(beyond, *parameters)) if len(beyond) else 0.0))


def best(law, ours, values, beyond):
    """The best fit of several starts whose likelihood has a bound."""
    data = stats.CensoredData(values, right=beyond) if len(beyond) else values
    starts = [None, ours, [ours[0] * 1.2 + 0.01, ours[1], ours[2] * 1.1], [ours[0] * 0.8, ours[1], ours[2] * 0.9]]
    found = []
    for start in starts:
        try:
            fit = law.fit(data) if start is None else law.fit(data, start[0], loc=start[1], scale=start[2])
        except Exception:
            continue
        # At a location that nearly is the least value some likelihoods have no bound.
        is_spike = law is not stats.genextreme and law is not stats.pareto and np.min(values) - fit[1] < 1e-5 * np.median(values)
        if np.all(np.isfinite(fit)) and fit[2] > 0 and not is_spike:
            found.append(likelihood(law, fit, values, beyond))
    found = [value for value in found if np.isfinite(value)]
    return max(found) if found else None


def distance(law, ours, values, beyond):
    """The greatest distance of a distribution from Kaplan and Meier's estimate, up to the last value or bound."""
    found = stats.ecdf(stats.CensoredData(values, right=beyond)).cdf
    parts = law.cdf(found.quantiles, *ours)
    return float(max(np.max(found.probabilities - parts), np.max(parts - np.concatenate(([0], found.probabilities[:-1])))))


def anderson_darling(parts):
    """A² of a known distribution, as in its definition."""
    n, parts = len(parts), np.clip(np.sort(parts), 1e-300, 1 - 1e-16)
    rank = np.arange(1, n + 1)
    return float(-n - np.sum((2 * rank - 1) * (np.log(parts) + np.log1p(-parts[::-1]))) / n)


def chi_square(parts):
    """The statistic over equally likely classes and its chance, three parameters fitted."""
    n = len(parts)
    classes = max(1, int(min(2 * n**0.4, n / 5)))
    seen = np.histogram(parts, bins=classes, range=(0, 1))[0]
    df = max(0, classes - 4)
    value = float(stats.chisquare(seen).statistic) if classes > 1 else 0.0
    return value, float(stats.chi2.sf(value, df)) if df else 1.0


def fits(case):
    values, beyond = np.array(case["values"]), np.array(case["beyond"])
    found = {}
    for name, ours in case["ours"].items():
        law = LAWS[name]
        parts = law.cdf(values, *ours)
        ks = stats.kstest(parts, "uniform", mode="asymp")
        statistic, p = chi_square(parts)
        found[name] = {
            "best": best(law, ours, values, beyond),
            "log_likelihood": likelihood(law, ours, values, beyond),
            "ks": distance(law, ours, values, beyond),
            "ks_p": float(stats.kstwobign.sf(ks.statistic * np.sqrt(len(values)))),
            "anderson_darling": anderson_darling(parts),
            "chi_square": statistic,
            "chi_square_p": p,
        }
    return found


def ranks(case):
    rho = stats.spearmanr(case["one"], case["other"])
    test = stats.kruskal(*case["groups"])
    return {"rho": float(rho.statistic), "p": float(rho.pvalue), "h": float(test.statistic), "h_p": float(test.pvalue)}


def rhythm(case):
    """The sum of cos(pause + round trip) over random orders of the pauses, and the chance of a greater one."""
    pauses, rtts = (np.array(case[key]) * 2 * np.pi / case["interval"] for key in ("pauses", "rtts"))
    statistic = lambda order, axis=-1: np.sum(np.cos(order + rtts), axis=axis)
    orders = 20_000
    test = stats.permutation_test(
        (pauses,), statistic, permutation_type="pairings", alternative="greater",
        vectorized=True, n_resamples=orders, random_state=1,
    )
    null = test.null_distribution
    return {"z": float((test.statistic - null.mean()) / null.std()), "p": float(test.pvalue), "orders": orders}


def window(case):
    """The quantiles of fits to a window that moves on by one value, and what a step costs: each begins at the last."""
    values, length, share = np.array(case["values"]), case["length"], case["share"]
    fit = stats.genextreme.fit(values[:length] / 1000)
    quantiles, secs = [], []
    for end in range(length, len(values) + 1):
        some = values[end - length : end] / 1000
        began = time.process_time()
        fit = stats.genextreme.fit(some, fit[0], loc=fit[1], scale=fit[2])
        secs.append(time.process_time() - began)
        quantiles.append(float(stats.genextreme.ppf(share, *fit)) * 1000)
    percentiles = [float(np.percentile(values[end - length : end], share * 100)) for end in range(length, len(values) + 1)]
    return {"quantiles": quantiles, "percentiles": percentiles, "step_cpu_secs": float(np.min(secs))}


def plain(value):
    """The same without numbers that JSON has not."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


asked = json.load(sys.stdin)
said = {"fits": list(map(fits, asked["fits"])), "ranks": list(map(ranks, asked["ranks"])), "rhythms": list(map(rhythm, asked["rhythms"])), "window": window(asked["window"])}
json.dump(plain(said), sys.stdout)
