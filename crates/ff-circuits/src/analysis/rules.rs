//! Applies each rule to each host's circuits, and explains why some circuits are not decided.
//!
//! Selections are compared with `all`, which has exactly the circuits that they decide: at each
//! host those after its window, and none of hosts whose window never fills.

use super::analysed::{Hosts, host_name};
use super::options::AnalysisOptions;
use crate::fit::estimator;
use crate::read::{Circuits, Seen};
use crate::replay::{self, Decisions, Measure, Rule, Timeout};

/// The share of the congestion-aware scheme that is compared with the best of three (NavigaTor,
/// section 7.6).
const THIRD: f64 = 0.33;

/// A rule with its decisions for each host.
pub(super) type Decided = (Rule, Vec<Decisions>);

/// The rules with their decisions; first all circuits that any of them decides.
pub(super) fn decide(hosts: &Hosts<'_>, options: &AnalysisOptions) -> Vec<Decided> {
    let shares = shares(options);
    let mut rules = fastest(hosts, options, &shares);
    for share in shares {
        combine(hosts, options, share, &mut rules);
    }
    let base = base(hosts, &rules);
    let best = hosts.iter().zip(&base).map(|((_, all), base)| best_of_three(all, base)).collect();
    rules.push((Rule::BestOfThree, best));
    rules.insert(0, (Rule::All, base));
    rules
}

/// The requested shares without duplicates: shares with the same name in results are the same.
pub(super) fn shares(options: &AnalysisOptions) -> Vec<f64> {
    let mut found: Vec<f64> = Vec::new();
    for share in &options.shares {
        if !is_among(*share, &found) {
            found.push(*share);
        }
    }
    found
}

/// Whether one of these shares has the same name.
fn is_among(share: f64, shares: &[f64]) -> bool {
    let name = |share| Rule::Fastest(Measure::Congestion, share).name();
    shares.iter().any(|other| name(*other) == name(share))
}

/// The rules by one measure.
fn fastest(hosts: &Hosts<'_>, options: &AnalysisOptions, asked: &[f64]) -> Vec<Decided> {
    let mut rules = Vec::new();
    for measure in Measure::ALL {
        let mut shares = asked.to_vec();
        // The paper has this share only for congestion.
        if measure == Measure::Congestion && !is_among(THIRD, asked) {
            shares.push(THIRD);
        }
        let of_host = |(_, all): &(usize, Vec<&Seen>)| {
            let timeouts = replay::timeouts(all, measure, &shares, options.timeout, options.window);
            timeouts.iter().map(|timeouts| replay::accepted(all, measure, timeouts)).collect()
        };
        let found: Vec<Vec<Decisions>> = hosts.iter().map(of_host).collect();
        for (place, share) in shares.iter().enumerate() {
            let decisions = found.iter().map(|host| host[place].clone()).collect();
            rules.push((Rule::Fastest(measure, *share), decisions));
        }
    }
    rules
}

/// Adds the rule by build time and round trip together, and the rule by round trip alone for the
/// share that both accept (002, section 7.3).
fn combine(hosts: &Hosts<'_>, options: &AnalysisOptions, share: f64, rules: &mut Vec<Decided>) {
    let find = |measure| {
        let rule = Rule::Fastest(measure, share);
        rules.iter().find(|(other, _)| *other == rule).map(|(_, decisions)| decisions)
    };
    let Some((build, rtt)) = find(Measure::Build).zip(find(Measure::Rtt)) else { return };
    let both: Vec<Decisions> =
        build.iter().zip(rtt).map(|(build, rtt)| replay::both(build, rtt)).collect();
    let effective = overall(&both);
    rules.push((Rule::BuildAndRtt(share), both));
    let Some(effective) = effective else { return };
    let effective = (effective * 1000.0).round() / 1000.0;
    let rule = Rule::Fastest(Measure::Rtt, effective);
    if rules.iter().any(|(other, _)| other.name() == rule.name()) || effective <= 0.0 {
        return;
    }
    let of_host = |(_, all): &(usize, Vec<&Seen>)| {
        let timeouts =
            replay::timeouts(all, Measure::Rtt, &[effective], options.timeout, options.window);
        replay::accepted(all, Measure::Rtt, &timeouts[0])
    };
    rules.push((rule, hosts.iter().map(of_host).collect()));
}

/// All circuits that any timeout decides; all circuits if none does.
fn base(hosts: &Hosts<'_>, rules: &[Decided]) -> Vec<Decisions> {
    let of_host = |(host, (_, all)): (usize, &(usize, Vec<&Seen>))| -> Vec<bool> {
        let decided = |place: usize| by_timeout(rules).any(|all| all[host][place].is_some());
        (0..all.len()).map(decided).collect()
    };
    let decided: Vec<Vec<bool>> = hosts.iter().enumerate().map(of_host).collect();
    let is_any = decided.iter().flatten().any(|is| *is);
    let of_host = |all: &Vec<bool>| all.iter().map(|is| (*is || !is_any).then_some(true)).collect();
    decided.iter().map(of_host).collect()
}

fn by_timeout(rules: &[Decided]) -> impl Iterator<Item = &Vec<Decisions>> {
    let is_timeout = |rule: &Rule| matches!(rule, Rule::Fastest(..));
    rules.iter().filter(move |(rule, _)| is_timeout(rule)).map(|(_, decisions)| decisions)
}

/// The best of each three circuits of those in `all`: earlier ones would be in no other selection.
fn best_of_three(all: &[&Seen], base: &Decisions) -> Decisions {
    let mut decided = replay::best_of_three(&kept(all, base)).into_iter();
    base.iter().map(|is| is.and_then(|_| decided.next().flatten())).collect()
}

/// Why no timeout decides anything, if so.
pub(super) fn not_decided(
    hosts: &Hosts<'_>,
    rules: &[Decided],
    options: &AnalysisOptions,
) -> Option<String> {
    if by_timeout(rules).flatten().any(|decisions| replay::share(decisions).is_some()) {
        return None;
    }
    let most = hosts.iter().map(|(_, all)| all.len()).max().unwrap_or(0);
    let (window, least) = (options.window, estimator::LEAST);
    let why = if options.timeout == Timeout::Tor && window < least {
        format!(
            "tor's estimator takes {least} circuits and its window has {window}; --window N takes a longer one"
        )
    } else if most < window {
        format!(
            "its window takes {window} circuits and there are {most}; --window N takes a shorter one"
        )
    } else {
        "nothing can be estimated from its window, as from values that are all the same".to_owned()
    };
    Some(format!("no selection decides: {why}"))
}

/// The hosts with no circuit that a timeout decides, while other hosts have some.
pub(super) fn undecided_hosts(
    circuits: &Circuits,
    hosts: &Hosts<'_>,
    base: &[Decisions],
) -> Vec<String> {
    let is_left_out = |(_, base): &(_, &Decisions)| base.iter().all(Option::is_none);
    let left_out = hosts.iter().zip(base).filter(is_left_out);
    left_out.map(|((host, _), _)| host_name(circuits, *host)).collect()
}

/// Whether any analysed circuit has the value that a rule needs.
pub(super) fn is_measured(rule: Rule, hosts: &Hosts<'_>) -> bool {
    let any = |measure: Measure| {
        let mut all = hosts.iter().flat_map(|(_, all)| all);
        all.any(|seen| measure.of(seen).is_some())
    };
    match rule {
        Rule::All => true,
        Rule::Fastest(measure, _) => any(measure),
        Rule::BuildAndRtt(_) => any(Measure::Build) && any(Measure::Rtt),
        Rule::BestOfThree => any(Measure::Congestion),
    }
}

/// The accepted share over all hosts; none if nothing is decided.
pub(super) fn overall(decisions: &[Decisions]) -> Option<f64> {
    replay::share(&decisions.iter().flatten().copied().collect())
}

/// The accepted circuits.
pub(super) fn kept<'a>(all: &[&'a Seen], decisions: &Decisions) -> Vec<&'a Seen> {
    all.iter().zip(decisions).filter(|(_, is)| **is == Some(true)).map(|(seen, _)| *seen).collect()
}

#[cfg(test)]
mod tests {
    use super::super::text::text;
    use super::super::{Report, hosts};
    use super::*;

    /// A host's circuits whose times vary around this one.
    fn circuits(host: u32, count: u32, ms: f64) -> impl Iterator<Item = Seen> {
        let seen = move |number: u32| {
            let ms = ms + f64::from(number * 7_919 % 101);
            Seen {
                host,
                path: vec![number % 7, 7, 8 + number % 5],
                hops: Some(3),
                build_ms: Some(4.0 * ms),
                rtt_ms: Some(ms),
                congestion_ms: Some(f64::from(number * 31 % 97)),
                ttfb_ms: Some(ms),
                ..Seen::default()
            }
        };
        (0..count).map(seen)
    }

    /// The circuits of hosts `a`, `b` and so on: numbers and times.
    fn of_hosts(all: &[(u32, f64)]) -> Circuits {
        let mut found = Circuits::default();
        found.relays = (0..13).map(|relay| format!("{relay:040X}")).collect();
        for ((host, name), (count, ms)) in (0..).zip(["a", "b"]).zip(all) {
            found.hosts.push(name.to_owned());
            found.all.extend(circuits(host, *count, *ms));
        }
        found
    }

    /// The default options.
    fn options() -> AnalysisOptions {
        let timeout = Timeout::Percentile;
        AnalysisOptions {
            hops: 3,
            window: 1000,
            shares: vec![0.8],
            timeout,
            seed: 1,
            refill_ms: 100,
        }
    }

    /// The part of a report about a selection.
    fn find<'a>(report: &'a Report, name: &str) -> &'a super::super::Selection {
        report.selections.iter().find(|one| one.name == name).expect("a selection")
    }

    #[test]
    fn a_host_of_which_nothing_is_decided_is_in_no_selection() {
        let circuits = of_hosts(&[(2000, 100.0), (600, 1000.0)]);
        let report = Report::of(&circuits, None, &options());
        assert_eq!(
            (report.undecided_hosts.as_slice(), &report.not_decided),
            (&["b".to_owned()][..], &None)
        );
        for one in &report.selections {
            assert_eq!(one.hosts.keys().collect::<Vec<_>>(), ["a"], "{}", one.name);
        }
        let all = find(&report, "all").performance;
        assert_eq!(all.circuits, 1001);
        assert!(all.ttfb_median_ms.is_some_and(|ms| ms < 201.0), "{all:?}");
        let text = text(&report);
        assert!(
            text.contains(
                "no selection was possible at these hosts, so `all` leaves them out too: b"
            )
        );
        // If no host decides, all of them are shown.
        let report = Report::of(&of_hosts(&[(500, 100.0), (600, 1000.0)]), None, &options());
        assert_eq!((report.undecided_hosts.len(), find(&report, "all").hosts.len()), (0, 2));
    }

    #[test]
    fn a_selection_of_fewer_hosts_than_all_is_named() {
        let mut circuits = of_hosts(&[(2000, 100.0), (2000, 1000.0)]);
        let few = |report: &Report| {
            text(report).contains("hosts than `all`, so not comparable with it: rtt80, build_rtt80")
        };
        assert!(!few(&Report::of(&circuits, None, &options())));
        for seen in circuits.all.iter_mut().filter(|seen| seen.host == 1).skip(600) {
            seen.rtt_ms = None;
        }
        let report = Report::of(&circuits, None, &options());
        assert_eq!((find(&report, "all").hosts.len(), find(&report, "rtt80").hosts.len()), (2, 1));
        assert!(few(&report), "{}", text(&report));
    }

    /// OnionPerf measures no round trips. The rule by both measures does not decide a circuit that
    /// its build time discards.
    #[test]
    fn what_was_not_measured_is_said_and_has_no_share() {
        let mut circuits = of_hosts(&[(2000, 100.0), (2000, 1000.0)]);
        for seen in &mut circuits.all {
            (seen.rtt_ms, seen.congestion_ms) = (None, None);
        }
        let report = Report::of(&circuits, None, &options());
        let text = text(&report);
        for name in ["rtt80", "build_rtt80", "congestion80", "congestion_best_of_3"] {
            let found = find(&report, name);
            assert_eq!((found.accepted_share, &found.anonymity), (None, &None), "{name}");
            assert_eq!((found.performance.circuits, found.hosts.len()), (0, 0), "{name}");
            let mut rows = text.lines().filter(|line| line.trim_start().starts_with(name));
            let row = rows.next().map(str::trim_end);
            assert!(row.is_some_and(|row| row.ends_with("not measured")), "{name}: {row:?}");
            assert_eq!(rows.next(), None, "{name}");
        }
        assert!(!text.contains("from fewer hosts"), "{text}");
        assert!(find(&report, "build80").accepted_share.is_some());
        // Fewer are measured than the window has, so none is decided.
        circuits.all[0].rtt_ms = Some(1.0);
        let report = Report::of(&circuits, None, &options());
        assert!(!report.selections.iter().any(|one| one.name == "build_rtt80"));
    }

    #[test]
    fn medians_stand_beside_the_number_of_their_values() {
        let mut circuits = of_hosts(&[(2000, 100.0)]);
        for seen in circuits.all.iter_mut().rev().skip(1) {
            seen.ttfb_ms = None;
        }
        let report = Report::of(&circuits, None, &options());
        let found = find(&report, "all").performance;
        assert_eq!((found.circuits, found.ttfb_circuits, found.throughput_circuits), (1001, 1, 0));
        assert!(found.ttfb_median_ms.is_some());
        let text = text(&report);
        let row = text.lines().find(|line| line.starts_with("  all ")).expect("a row");
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(cells[..4], ["all", "100.0", "%", "1"], "{row}");
    }

    #[test]
    fn a_selection_of_few_circuits_leaves_the_others_as_they_are() {
        let mut circuits = of_hosts(&[(2000, 100.0)]);
        let entropy = |circuits: &Circuits| {
            let report = Report::of(circuits, None, &options());
            let of = |name| find(&report, name).anonymity.as_ref()?.corrected;
            let text = text(&report);
            let mut lines = text.lines().skip_while(|line| !line.starts_with("table 2"));
            let row = lines.find(|line| line.contains("best_of_3")).map(str::to_owned);
            (
                report.common_size,
                of("rtt80").map(|found| found.pair_entropy_bits),
                of("congestion_best_of_3"),
                row,
            )
        };
        let (size, many, best, _) = entropy(&circuits);
        assert!(size.is_some_and(|size| size > 300) && best.is_some(), "{size:?}");
        // After the window three circuits have a congestion delay, one of which is accepted.
        for seen in circuits.all.iter_mut().skip(3) {
            seen.congestion_ms = None;
        }
        for seen in circuits.all.iter_mut().rev().take(3) {
            seen.congestion_ms = Some(1.0);
        }
        let (size, few, best, row) = entropy(&circuits);
        assert!(size.is_some_and(|size| size > 300) && best.is_none(), "{size:?}");
        assert!(
            few.zip(many).is_some_and(|(few, many)| (few - many).abs() < 0.2),
            "{few:?} {many:?}"
        );
        assert!(row.is_some_and(|row| row.ends_with('-')));
    }

    #[test]
    fn the_best_of_three_is_one_of_all() {
        let circuits = of_hosts(&[(1500, 100.0)]);
        let report = Report::of(&circuits, None, &options());
        let (all, best) = (find(&report, "all"), find(&report, "congestion_best_of_3"));
        assert_eq!((all.performance.circuits, best.performance.circuits), (501, 167));
        let is_in_all =
            |(all, best): (&Option<bool>, &Option<bool>)| all.is_some() || best.is_none();
        assert!(all.decisions[0].iter().zip(&best.decisions[0]).all(is_in_all));
        let anonymity = best.anonymity.as_ref().expect("decided");
        let (found, random) = (anonymity.published, anonymity.at_random);
        assert!(
            found.entropy < 0.6 && (found.entropy / random.entropy - 1.0).abs() < 0.1,
            "{found:?}"
        );
    }

    #[test]
    fn who_decides_nothing_says_what_is_missing() {
        let of = |count, timeout, window| {
            let circuits = of_hosts(&[(count, 100.0)]);
            let options = AnalysisOptions { timeout, window, ..options() };
            Report::of(&circuits, None, &options).not_decided.unwrap_or_default()
        };
        // The best of three needs no window.
        let few = of(600, Timeout::Percentile, 1000);
        assert!(
            few.contains("1000 circuits and there are 600") && few.contains("a shorter one"),
            "{few}"
        );
        let short = of(600, Timeout::Tor, 50);
        assert!(
            short.contains("100 circuits and its window has 50") && short.contains("a longer one"),
            "{short}"
        );
        assert_eq!([of(600, Timeout::Tor, 100), of(600, Timeout::Percentile, 50)], ["", ""]);
        let mut equal = of_hosts(&[(300, 100.0)]);
        for seen in &mut equal.all {
            (seen.build_ms, seen.rtt_ms, seen.congestion_ms) = (Some(1.0), Some(1.0), Some(1.0));
        }
        let options = AnalysisOptions { timeout: Timeout::Tor, window: 100, ..options() };
        let equal = not_decided(&hosts(&equal, 3), &decide(&hosts(&equal, 3), &options), &options);
        assert!(equal.is_some_and(|why| why.contains("all the same")));
    }

    #[test]
    fn a_share_has_one_row_however_often_it_is_asked_for() {
        let circuits = of_hosts(&[(1500, 100.0)]);
        let options = AnalysisOptions { shares: vec![0.33, 0.33, 0.8, 0.330_01], ..options() };
        let report = Report::of(&circuits, None, &options);
        let names: Vec<&str> = report.selections.iter().map(|one| one.name.as_str()).collect();
        let mut once = names.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(names.len(), once.len(), "{names:?}");
        assert!(names.contains(&"congestion33") && names.contains(&"build80"), "{names:?}");
    }
}
