//! Tests without a network.

use std::sync::Arc;

use clap::Parser as _;
use ff_circuits::paths::file;

use super::*;
use crate::cli::lab::LabCommand;
use crate::cli::{Cli, Command as Told};
use crate::course::Course;
use crate::path::PathPlan;
use crate::probe::Program;
use crate::run::measure::tests::{Fake, parsed};
use crate::schedule::{ScheduleLimits, Task};

/// Number of paths drawn.
const DRAWS: u32 = 20_000;

fn args(words: &str) -> LabNavigatorArgs {
    let words = ["ff-perf", "lab", "navigator"].into_iter().chain(words.split_whitespace());
    match Cli::try_parse_from(words).expect("a command").command {
        Told::Lab(LabCommand::Navigator(args)) => args,
        other => panic!("{other:?}"),
    }
}

/// Whether an event occurred in [`DRAWS`] draws about as often as its probability says: within 5
/// standard deviations.
fn is_about(found: u32, chance: f64) -> bool {
    let (draws, found) = (f64::from(DRAWS), f64::from(found));
    (found - draws * chance).abs() <= 5.0 * (draws * chance * (1.0 - chance)).sqrt()
}

/// The arguments as `circuits run` parses them.
fn told(args: &LabNavigatorArgs) -> crate::cli::measure::MeasureArgs {
    let target = SocketAddr::from(([10, 0, 0, 1], 80));
    parsed(words(args, target, ["a network", "paths", "out"].map(Path::new)))
}

/// Numbers of the circuits with a download.
fn downloads(args: &LabNavigatorArgs, circuits: u64) -> Vec<u64> {
    let told = told(args).measuring;
    let program = Program {
        rtt: told.rtt,
        resolve: 0,
        rtt_pause: Duration::ZERO,
        ttfb: told.ttfb,
        latency: None,
        download_bytes: told.download,
        target: None,
        build_time: Duration::ZERO,
        trip_time: Duration::ZERO,
        download_time: Duration::ZERO,
    };
    let limits = ScheduleLimits {
        in_flight: 1,
        per_guard_per_sec: told.per_guard,
        per_sec: 1.0,
        builds_share: told.share_builds,
        probes_share: told.share_probes,
        downloads_share: told.share_downloads,
        failures: 1.0,
    };
    let course = Course {
        client: Arc::new(Fake { builds: true }),
        relays: Vec::new(),
        program: Arc::new(program),
        download_share: told.download_share,
        limits,
    };
    // If probes share relays, only circuits with a download need theirs alone.
    let plan = PathPlan::given(vec![vec![0, 1, 2]], circuits, Box::new(|_| false));
    course.tasks(plan).filter(|task: &Task| task.is_alone).map(|task| task.number).collect()
}

#[test]
fn exits_are_last_and_only_there_and_each_relay_is_in_its_share_of_paths() {
    let mut rng = rand_chacha::ChaCha12Rng::seed_from_u64(15);
    for relays in [9, 11, 24, 100] {
        let all: Vec<usize> = (0..relays).collect();
        let (exits, others) = all.split_at(exits(relays));
        let mut found = vec![[0_u32; 3]; relays];
        for _ in 0..DRAWS {
            let path = path(exits, others, &mut rng);
            let [first, second, last] = path[..] else { panic!("three: {path:?}") };
            assert!(exits.contains(&last), "{path:?}");
            assert!(others.contains(&first) && others.contains(&second), "{path:?}");
            assert_ne!(first, second);
            path.iter().enumerate().for_each(|(place, &relay)| found[relay][place] += 1);
        }
        let (of_exit, of_other) = (1.0 / exits.len() as f64, 1.0 / others.len() as f64);
        for (relay, [first, second, last]) in found.into_iter().enumerate() {
            let [at_ends, at_last] =
                if exits.contains(&relay) { [0.0, of_exit] } else { [of_other, 0.0] };
            let is_fair = is_about(first, at_ends) && is_about(second, at_ends);
            assert!(is_fair && is_about(last, at_last), "{relays}: {first}, {second}, {last}");
        }
    }
}

#[test]
fn exits_and_others_are_in_about_as_many_paths() {
    let of = |relays: usize| {
        let exits = exits(relays);
        (1.0 / exits as f64, 2.0 / (relays - exits) as f64)
    };
    let (of_exit, of_other) = of(24);
    assert_eq!(of_exit, of_other, "of the usual network's all are in as many");
    for relays in 9..=100 {
        let (of_exit, of_other) = of(relays);
        assert!((0.75..=1.0).contains(&(of_other / of_exit)), "{relays}: {of_other}, {of_exit}");
    }
}

#[test]
fn the_file_of_paths_has_as_many_as_there_are_circuits_up_to_a_bound() {
    let ids: Vec<String> = (0_u8..9).map(|relay| hex::encode_upper([relay; 20])).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let (exits, others) = ids.split_at(3);
    let mut rng = ChaCha12Rng::seed_from_u64(1);
    for (circuits, paths) in [(100, 100), (MOST_PATHS, MOST_PATHS), (MOST_PATHS + 1, MOST_PATHS)] {
        let text = paths_text(exits, others, circuits, &mut rng);
        assert_eq!(text.lines().count() as u64, paths);
        // `circuits run` would refuse a path with a relay twice.
        let read = file::parse("paths", &text).expect("paths");
        let is_one = |path: &Vec<String>| {
            path.len() == 3
                && path.iter().map(|id| exits.contains(&id.as_str())).eq([false, false, true])
        };
        assert!(read.len() as u64 == paths && read.iter().all(is_one));
    }
}

#[test]
fn one_circuit_in_16_downloads_and_more_in_larger_networks() {
    let usual = downloads(&args(""), 112);
    assert_eq!(usual, [15, 31, 47, 63, 79, 95, 111]);
    for relays in [9_u8, 12, 24, 48, 100] {
        // 24 relays have 24 in 384.
        let found = downloads(&args(&format!("--relays {relays}")), 384).len();
        assert!(found.abs_diff(relays.into()) <= 1, "{relays}: {found}");
    }
    assert_eq!(downloads(&args("--ttfb-for 60"), 384), [0; 0], "it downloads nothing");
}

#[test]
fn the_experiment_is_what_it_is_documented_to_be() {
    let run = told(&args("--seed 7"));
    assert_eq!(
        (run.count, run.measuring.drawing.seed, run.measuring.download),
        (20_000, 7, 256 << 10)
    );
    assert_eq!((run.measuring.rtt, run.measuring.ttfb, run.measuring.ttfb_for), (5, 1, None));
    assert!(run.measuring.share_builds && run.measuring.share_probes && !run.recording.resume);
    assert_eq!(run.measuring.network, Path::new("a network"));
    assert_eq!(run.measuring.path_file.as_deref(), Some(Path::new("paths")));
    assert_eq!(
        (run.recording.out.as_path(), told(&args("--short")).count),
        (Path::new("out"), 1000)
    );
    let over_time = told(&args("--ttfb-for 60")).measuring;
    assert_eq!((over_time.ttfb_for, over_time.download), (Some(60), 0));
}
