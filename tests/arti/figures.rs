//! Compares its estimate with what it forwards.

use ed25519_dalek::SigningKey;
use ff_lab::{ArtiRelay, CpuQuota};
use ff_proto::params::Params;
use ff_proto::units::Cells;

use crate::support::{
    Running, as_f64, coordinator, estimate, measure, median, namespace, on_second_core, order,
    relay, section, send_through,
};

/// Rounds of one figure.
const ROUNDS: usize = 10;
/// Seconds that count of each.
const SECS: u16 = 5;
/// Bounds of the ratio.
const BOUNDS: (f64, f64) = (0.90, 1.10);

/// Bytes a second that it forwards, and what a GB of them costs in CPU seconds.
fn forwarded(relay: &ArtiRelay, links: u16) -> (f64, f64) {
    let before = relay.cpu_time().expect("its CPU time");
    let seconds = send_through(&order(relay, links, 2 * u32::from(links), u64::from(SECS) + 1));
    let seconds = seconds.expect("it forwards");
    let cpu = relay.cpu_time().expect("its CPU time").saturating_sub(before);
    let all: u64 = seconds.iter().map(|cells| cells.bytes()).sum();
    let rates = seconds[1..].iter().map(|cells| as_f64(cells.bytes())).collect();
    (median(rates), cpu.as_secs_f64() / as_f64(all) * 1e9)
}

/// The estimate, and the CPU time of a GB.
fn echoed(relay: &ArtiRelay, key: &SigningKey, sockets: u16) -> (f64, f64) {
    let before = relay.cpu_time().expect("its CPU time");
    let params = Params { sockets, duration_secs: SECS, ..Params::default() };
    let outcome = measure(relay, key, params);
    let cpu = relay.cpu_time().expect("its CPU time").saturating_sub(before);
    let estimate = as_f64(estimate(&outcome).get());
    (estimate, cpu.as_secs_f64() / as_f64(Cells(outcome.cells.echoed).bytes()) * 1e9)
}

/// The forwarded and the echoed traffic of one round: bytes a second, and CPU seconds a GB.
type Round = [(f64, f64); 2];

/// The medians of rounds of both in turn, with the relay on the first core and everything else on
/// the second, as the line of a figure; and whether their ratio is within its bounds.
fn compare(threads: usize, sockets: u16, quota: Option<f64>) -> (String, bool) {
    on_second_core();
    let namespace = namespace();
    let keys: Vec<_> = (0..ROUNDS.div_ceil(2)).map(|_| coordinator()).collect();
    let keys: Vec<_> = keys.iter().collect();
    let running = Running { threads, core: Some(0) };
    let relay = relay(&namespace, &section(&keys, ""), running);
    let period = std::time::Duration::from_millis(10);
    let _quota = quota.map(|percent| CpuQuota::set(relay.pid(), percent, period).expect("a quota"));
    let both =
        |round: usize| [forwarded(&relay, sockets), echoed(&relay, keys[round / 2], sockets)];
    let rounds: Vec<Round> =
        (0..ROUNDS).map(both).inspect(|round| eprintln!("{round:.3?}")).collect();
    let of = |value: fn(&Round) -> f64| median(rounds.iter().map(value).collect());
    let ratio = of(|[_, echoed]| echoed.0) / of(|[forwarded, _]| forwarded.0);
    let single: Vec<_> = rounds.iter().map(|[forwarded, echoed]| echoed.0 / forwarded.0).collect();
    let least = single.iter().copied().fold(f64::MAX, f64::min);
    let most = single.iter().copied().fold(f64::MIN, f64::max);
    let line = format!(
        "figure: arti-relay, estimate / forwarded, {}, {threads} threads, {sockets} links | {}..{} | {ratio:.3} | \
         {least:.3}..{most:.3}, {:.0} Mbit/s, {:.2} and {:.2} CPU s/GB",
        quota.map_or("one core".to_owned(), |percent| format!("{percent} % of a core")),
        BOUNDS.0,
        BOUNDS.1,
        of(|[forwarded, _]| forwarded.0) * 8.0 / 1e6,
        of(|[forwarded, _]| forwarded.1),
        of(|[_, echoed]| echoed.1),
    );
    (line, (BOUNDS.0..=BOUNDS.1).contains(&ratio))
}

/// Prints all of them.
///
/// # Panics
/// If one is out of its bounds.
fn show(cases: &[(usize, u16, Option<f64>)]) {
    // Each in its own thread, because a thread stays in the namespace that it has made.
    let figures = cases.iter().map(|&(threads, sockets, quota)| {
        std::thread::spawn(move || compare(threads, sockets, quota)).join().expect("a figure")
    });
    let (lines, within): (Vec<_>, Vec<_>) =
        figures.inspect(|(line, _)| eprintln!("{line}")).unzip();
    assert!(within.iter().all(|&is_within| is_within), "{lines:#?}");
}

#[test]
#[ignore = "a figure: needs FF_TEST_ARTI_RELAY, root, two cores and a quiet machine"]
fn a_core_echoes_what_it_forwards() {
    show(&[(1, 20, None), (1, 80, None)]);
}

#[test]
#[ignore = "a figure: needs FF_TEST_ARTI_RELAY, root, two cores and a quiet machine"]
fn a_part_of_a_core_echoes_what_it_forwards() {
    show(&[(1, 20, Some(15.0)), (1, 20, Some(20.0))]);
}

#[test]
#[ignore = "a figure: needs FF_TEST_ARTI_RELAY, root, two cores and a quiet machine"]
fn several_threads_on_a_core_echo_what_they_forward() {
    show(&[(2, 20, None), (4, 20, None)]);
}

/// The section of a relay that limits clients, once it has a consensus.
const LIMITED: &str = "[flashflow]\ningress_limit = true\nper_conn_bw_rate = 300000\n";

/// CPU seconds of a relay with this section for each GB that it forwards, in each of some rounds.
fn cpu_per_gb(section: &str) -> Vec<f64> {
    let namespace = namespace();
    let running = Running { threads: 1, core: Some(0) };
    let relay = relay(&namespace, section, running);
    let rounds = (0..4).map(|_| {
        let before = relay.cpu_time().expect("its CPU time");
        let seconds = send_through(&order(&relay, 20, 40, 5)).expect("it forwards");
        let cpu = relay.cpu_time().expect("its CPU time").saturating_sub(before);
        cpu.as_secs_f64() / as_f64(seconds.iter().map(|cells| cells.bytes()).sum()) * 1e9
    });
    rounds.collect()
}

#[test]
#[ignore = "a figure: needs FF_TEST_ARTI_RELAY, root, two cores and a quiet machine"]
fn rules_cost_links_without_a_limit_little() {
    on_second_core();
    // Without a consensus no link has a limit.
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let of = |section: String| {
            std::thread::spawn(move || cpu_per_gb(&section)).join().expect("a relay")
        };
        without.extend(of("[flashflow]\n".to_owned()));
        with.extend(of(LIMITED.to_owned()));
    }
    eprintln!("CPU s/GB without rules: {without:.2?}, with rules: {with:.2?}");
    let ratio = median(with) / median(without.clone());
    eprintln!(
        "figure: arti-relay, CPU time of a GB on links without a limit, with rules / without | ..1.15 | {ratio:.3} | \
         {:.2} s without",
        median(without)
    );
    assert!(ratio <= 1.15, "{ratio:.3}");
}
