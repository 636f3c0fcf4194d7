//! Fits, tests and the moving window compared with scipy on the same values (`scipy_figures.py`).
//! `FF_TEST_SCIPY=1` says that the Python of `FF_TEST_PYTHON` has scipy; `.ci/test` sets both.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use ff_circuits::buckets::rhythm::rhythm;
use ff_circuits::fit::gev::Gev;
use ff_circuits::fit::{Fits, LawFit};
use ff_circuits::rank::{kruskal_wallis, spearman};
use ff_circuits::read::{Circuits, Trip};
use ff_circuits::replay::window::{GevWindow, Window};
use ff_report::input::Inputs;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// Length of the window.
const LENGTH: usize = 1000;
/// Steps of the window that scipy computes too.
const STEPS: usize = 40;
/// Refill interval of round trips, in ms.
const INTERVAL: f64 = 100.0;
/// Share of circuits that the timeout accepts.
const SHARE: f64 = 0.8;

/// A sample to fit.
struct Case {
    /// Name in failures.
    name: String,
    /// Observed values, in ms.
    values: Vec<f64>,
    /// Lower bounds of censored values, in ms.
    beyond: Vec<f64>,
}

/// Random seed.
fn seed() -> u64 {
    let seed = std::env::var("FF_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(15);
    eprintln!("FF_TEST_SEED={seed}");
    seed
}

fn drawn(gev: Gev, count: usize, rng: &mut ChaCha12Rng) -> Vec<f64> {
    (0..count).map(|_| gev.quantile(rng.random_range(1e-9..1.0))).collect()
}

/// Build times of OnionPerf's day.
fn day() -> Vec<f64> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/onionperf");
    let circuits = Circuits::read(&[dir], &mut Inputs::default()).expect("the sample");
    let is_whole = |seen: &&ff_circuits::read::Seen| seen.hops == Some(3);
    circuits.all.iter().filter(is_whole).filter_map(|seen| seen.build_ms).collect()
}

/// Real build times, and samples of several shapes, lengths and grids, some of them censored.
fn cases(rng: &mut ChaCha12Rng) -> Vec<Case> {
    let case =
        |name: &str, values: Vec<f64>| Case { name: name.to_owned(), values, beyond: Vec::new() };
    let mut all = vec![case("OnionPerf's day", day())];
    for (xi, count) in [(-0.3, 400), (0.0, 1000), (0.1, 60), (0.3, 2000), (0.7, 300)] {
        let values = drawn(Gev { xi, mu: 350.0, sigma: 90.0 }, count, rng);
        all.push(case(&format!("GEV, xi {xi}, {count} values"), values));
    }
    let mixed: Vec<f64> = [(120.0, 15.0, 700), (400.0, 60.0, 300)]
        .iter()
        .flat_map(|&(mu, sigma, count)| drawn(Gev { xi: 0.2, mu, sigma }, count, rng))
        .collect();
    all.push(case("two kinds of circuits", mixed.clone()));
    let round = mixed.iter().map(|value| (value / 10.0).ceil() * 10.0).collect();
    all.push(case("in steps of 10 ms", round));
    for part in [0.6, 0.9] {
        let truth = Gev { xi: 0.15, mu: 500.0, sigma: 120.0 };
        let bound = truth.quantile(part);
        let (values, cut): (Vec<f64>, Vec<f64>) =
            drawn(truth, 800, rng).into_iter().partition(|value| *value <= bound);
        let beyond = vec![bound; cut.len()];
        all.push(Case { name: format!("given up beyond {part}"), values, beyond });
    }
    all
}

/// Results of fits: parameters in scipy's order and signs, likelihood, and distances.
fn ours(fits: &Fits) -> Vec<(&'static str, [f64; 3], f64, ff_circuits::fit::good::Goodness)> {
    let gev = fits.gev.expect("a fit");
    let laws = [
        ("frechet", fits.frechet),
        ("weibull", fits.weibull),
        ("pareto", fits.pareto),
        ("lognormal", fits.lognormal),
    ];
    let law = |(name, law): (&'static str, Option<LawFit>)| {
        let law = law.expect("a fit");
        (name, [law.shape, law.shift_ms, law.scale_ms], law.log_likelihood, law.good)
    };
    let gev = ("gev", [-gev.xi, gev.mu_ms, gev.sigma_ms], gev.log_likelihood, gev.good);
    [gev].into_iter().chain(laws.map(law)).collect()
}

/// Inputs for scipy.
struct Asked {
    /// Samples to fit, with our fits.
    fits: Vec<(Case, Fits)>,
    /// Pairs and groups, with ties.
    ranks: Vec<(Vec<f64>, Vec<f64>)>,
    /// Round trips with pauses: some partly from a bucket, some not.
    rhythms: Vec<Vec<Trip>>,
    /// Values that move through a window.
    window: Vec<f64>,
}

/// Inputs and scipy's results, computed once. `None` without scipy.
fn scipy() -> Option<&'static (Asked, Value)> {
    static FOUND: OnceLock<Option<(Asked, Value)>> = OnceLock::new();
    let ask = || {
        if std::env::var_os("FF_TEST_SCIPY").is_none_or(|value| value != "1") {
            eprintln!("nothing compared: FF_TEST_SCIPY=1 says that scipy is there");
            return None;
        }
        let mut rng = ChaCha12Rng::seed_from_u64(seed());
        let fits = cases(&mut rng)
            .into_iter()
            .map(|case| {
                let fits = Fits::of(&case.values, &case.beyond);
                (case, fits)
            })
            .collect();
        let grid = |rng: &mut ChaCha12Rng| f64::from(rng.random_range(0..40_u32));
        let ranks = [8, 50, 400].map(|count: usize| {
            let one: Vec<f64> = (0..count).map(|_| grid(&mut rng)).collect();
            let other = one.iter().map(|value| value / 2.0 + grid(&mut rng)).collect();
            (one, other)
        });
        let truth = Gev { xi: 0.2, mu: 300.0, sigma: 80.0 };
        let window = drawn(truth, LENGTH + STEPS - 1, &mut rng);
        let rhythms = [0.0, 0.2, 0.6].map(|part| trips(part, &mut rng)).into();
        let asked = Asked { fits, ranks: ranks.into(), rhythms, window };
        let said = run(&asked);
        Some((asked, said))
    };
    FOUND.get_or_init(ask).as_ref()
}

/// Round trips of about 80 ms after random pauses; a share of them ends with a refill.
fn trips(part: f64, rng: &mut ChaCha12Rng) -> Vec<Trip> {
    let mut trip = || {
        let pause_ms = rng.random_range(20.0..20.0 + INTERVAL);
        let free = 80.0 + rng.random_range(0.0..60.0);
        let waits = (INTERVAL - (pause_ms + free) % INTERVAL) % INTERVAL;
        let rtt_ms = if rng.random_bool(part) { free + waits } else { free };
        Trip { pause_ms, rtt_ms }
    };
    (0..39).map(|_| trip()).collect()
}

fn run(asked: &Asked) -> Value {
    let fit = |(case, fits): &(Case, Fits)| {
        let ours: serde_json::Map<String, Value> =
            ours(fits).into_iter().map(|(name, at, ..)| (name.to_owned(), json!(at))).collect();
        json!({"values": case.values, "beyond": case.beyond, "ours": ours})
    };
    let rank = |(one, other): &(Vec<f64>, Vec<f64>)| json!({"one": one, "other": other, "groups": [one, other]});
    let rhythms = |trips: &Vec<Trip>| {
        let of = |value: fn(&Trip) -> f64| trips.iter().map(value).collect::<Vec<_>>();
        json!({"pauses": of(|trip| trip.pause_ms), "rtts": of(|trip| trip.rtt_ms), "interval": INTERVAL})
    };
    let input = json!({
        "fits": asked.fits.iter().map(fit).collect::<Vec<_>>(),
        "ranks": asked.ranks.iter().map(rank).collect::<Vec<_>>(),
        "rhythms": asked.rhythms.iter().map(rhythms).collect::<Vec<_>>(),
        "window": {"values": asked.window, "length": LENGTH, "share": SHARE},
    });
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files/scipy_figures.py");
    let python = std::env::var_os("FF_TEST_PYTHON").unwrap_or_else(|| "python3".into());
    let mut child = Command::new(python)
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input.to_string().as_bytes()).expect("written");
    drop(stdin);
    let output = child.wait_with_output().expect("python");
    assert!(output.status.success(), "the script has failed");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// A number in scipy's results.
fn number(said: &Value, key: &str) -> f64 {
    said[key].as_f64().unwrap_or_else(|| panic!("{key} in {said}"))
}

/// Whether two numbers are equal except for rounding.
fn near(one: f64, other: f64, relative: f64) -> bool {
    (one - other).abs() <= relative * one.abs().max(other.abs()).max(1.0)
}

#[test]
fn no_fit_of_scipys_is_better() {
    let Some((asked, said)) = scipy() else { return };
    let mut compared = 0;
    for ((case, fits), said) in asked.fits.iter().zip(said["fits"].as_array().expect("a list")) {
        for (name, at, likelihood, _) in ours(fits) {
            let (what, said) = (&case.name, &said[name]);
            let same = number(said, "log_likelihood");
            assert!(
                near(likelihood, same, 1e-8),
                "{what}, {name} {at:?}: {likelihood}, by scipy {same}"
            );
            if let Some(best) = said["best"].as_f64() {
                assert!(
                    likelihood >= best - 0.01,
                    "{what}, {name} {at:?}: {likelihood}, scipy's best {best}"
                );
                compared += 1;
            }
        }
    }
    eprintln!("{compared} fits compared");
    assert!(compared >= 40, "{compared}: of 10 samples and 5 distributions some have no bound");
}

#[test]
fn distances_are_scipys() {
    let Some((asked, said)) = scipy() else { return };
    for ((case, fits), said) in asked.fits.iter().zip(said["fits"].as_array().expect("a list")) {
        for (name, at, _, good) in ours(fits) {
            let said = &said[name];
            for (key, ours) in [
                ("ks", Some(good.ks)),
                ("ks_p", good.ks_p),
                ("chi_square", good.chi_square),
                ("chi_square_p", good.chi_square_p),
                ("anderson_darling", good.anderson_darling),
            ] {
                assert_eq!(ours.is_some(), key == "ks" || case.beyond.is_empty(), "{}", case.name);
                let Some(ours) = ours else { continue };
                let theirs = number(said, key);
                // The least value of a Pareto distribution has probability 0, up to rounding.
                let is_unbound = name == "pareto" && key == "anderson_darling";
                assert!(
                    is_unbound || near(ours, theirs, 1e-6),
                    "{}, {name} {at:?}, {key}: {ours}, by scipy {theirs}",
                    case.name
                );
            }
        }
    }
}

#[test]
fn ranks_are_scipys() {
    let Some((asked, said)) = scipy() else { return };
    for ((one, other), said) in asked.ranks.iter().zip(said["ranks"].as_array().expect("a list")) {
        let pairs: Vec<(f64, f64)> = one.iter().copied().zip(other.iter().copied()).collect();
        let rho = spearman(&pairs).expect("pairs");
        let test = kruskal_wallis(&[one, other]).expect("groups");
        for (key, ours) in [("rho", rho.rho), ("p", rho.p), ("h", test.h), ("h_p", test.p)] {
            let theirs = number(said, key);
            assert!(near(ours, theirs, 1e-9), "{} pairs, {key}: {ours}, {theirs}", pairs.len());
        }
    }
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().expect("a time")
}

#[test]
fn the_window_gives_scipys_timeouts_at_a_fiftieth_of_its_cost() {
    let Some((asked, said)) = scipy() else { return };
    let said = &said["window"];
    let (mut window, mut fitted) = (Window::new(LENGTH), GevWindow::new(LENGTH));
    let mut least_secs = f64::INFINITY;
    for (place, value) in asked.window.iter().enumerate() {
        let is_full = window.push(*value);
        let began = cpu_time();
        let gev = fitted.push(*value);
        // The first fit starts from nothing; none of scipy's measured fits does.
        if place >= LENGTH {
            least_secs = least_secs.min((cpu_time() - began).as_secs_f64());
        }
        assert_eq!(gev.is_some(), is_full);
        let Some(gev) = gev else { continue };
        let step = place + 1 - LENGTH;
        let quantile = said["quantiles"][step].as_f64().expect("a quantile");
        let percentile = said["percentiles"][step].as_f64().expect("a percentile");
        // scipy's search stops when parameters move by less than 1e-4 s.
        assert!(
            near(gev.quantile(SHARE), quantile, 1e-3),
            "{step}: {}, {quantile}",
            gev.quantile(SHARE)
        );
        let ours = window.percentile(100.0 * SHARE).expect("values");
        assert!(near(ours, percentile, 1e-12), "{step}: {ours}, {percentile}");
    }
    let scipys = number(said, "step_cpu_secs");
    eprintln!(
        "a step: {:.1} us; scipy {:.1} us: 1/{:.0}",
        1e6 * least_secs,
        1e6 * scipys,
        scipys / least_secs
    );
    assert!(50.0 * least_secs <= scipys, "{least_secs} s, scipy {scipys} s");
}

#[test]
fn beats_are_as_rare_as_scipys_orders_say() {
    let Some((asked, said)) = scipy() else { return };
    for (trips, said) in asked.rhythms.iter().zip(said["rhythms"].as_array().expect("a list")) {
        let ours = rhythm(trips, INTERVAL).expect("pauses are spread");
        let [z, p, orders] = ["z", "p", "orders"].map(|key| number(said, key));
        // From 20,000 random orders: five standard errors, and the error of the normal
        // approximation for 39 pauses.
        let off = 5.0 * (ours.p * (1.0 - ours.p) / orders).sqrt() + 2.0 / orders + 0.01;
        assert!((ours.z - z).abs() < 0.05 * z.abs().max(1.0), "z {}, by scipy {z}", ours.z);
        assert!((ours.p - p).abs() < off, "p {}, by scipy {p}", ours.p);
    }
}
