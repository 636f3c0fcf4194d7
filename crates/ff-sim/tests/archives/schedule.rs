//! Schedules of real networks.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use ff_archives::network::Network;
use ff_archives::read::relayinfo;
use ff_dir::consensus::Consensus;
use ff_proto::units::BytesPerSec;
use ff_sim::schedule::errors::Errors;
use ff_sim::schedule::greedy::{Greedy, greedy, hours};
use ff_sim::schedule::outcome::{PeriodOutcome, Reason};
use ff_sim::schedule::replay::{World, replay};
use ff_sim::schedule::scaling::scale;
use ff_sim::schedule::units::{bits_per_sec, team};
use ff_sim::schedule::what_if::what_if;
use ff_sim::schedule::{Setup, Subject, Subjects};

use crate::full::full_data;

fn rate(text: &str) -> BytesPerSec {
    bits_per_sec(text).expect("a rate")
}

/// The paper's team.
fn setup() -> Setup {
    Setup::new(team("1G,1G,1G").expect("a team"))
}

/// A network scaled as by `--total` and `--max-relay`, with a greedy schedule.
fn scheduled(network: &Network, total: &str, grouped: bool) -> Greedy {
    let mut subjects = Subjects::of(network, grouped);
    subjects.scale(Some(rate(total)), Some(rate("998M"))).expect("capacities");
    let at_brim = subjects.all.iter().filter(|one| one.truth == rate("998M")).count();
    eprintln!("{total}: {at_brim} relays at the brim");
    greedy(&subjects, &setup()).expect("a schedule")
}

/// The numbers in the only column of a packed table.
fn column(packed: &[u8]) -> Vec<u64> {
    let mut text = String::new();
    liblzma::read::XzDecoder::new(packed).read_to_string(&mut text).expect("UTF-8");
    text.lines().skip(1).map(|line| line.parse().expect("a number")).collect()
}

/// Relays with these rates, each in a group of its own.
fn alone(rates: &[BytesPerSec]) -> Subjects {
    let mut subjects = Subjects::default();
    for number in 0..u32::try_from(rates.len()).expect("few") {
        let mut one = Subject::default();
        one.relay.fingerprint[..4].copy_from_slice(&number.to_be_bytes());
        subjects.all.push(one);
    }
    subjects.set(rates);
    subjects
}

#[test]
fn a_family_by_key_is_measured_together() {
    let relay = |number: u8| ff_archives::network::Relay {
        fingerprint: [number; 20],
        capacity: Some(rate("1M")),
        running: 1.0,
        family_ids: vec![format!("ed25519:{}", number / 5)],
        ..Default::default()
    };
    let network = Network { relays: (0..6).map(relay).collect(), ..Network::default() };
    let groups = |grouped: bool| {
        let subjects = Subjects::of(&network, grouped);
        let relays: Vec<_> = subjects.all.into_iter().map(|one| one.relay).collect();
        ff_plan::period::group::together(&relays)
    };
    assert_eq!(groups(true), [vec![0, 1, 2, 3, 4], vec![5]]);
    assert_eq!(groups(false).len(), 6);
}

#[test]
fn the_papers_slots_come_of_the_papers_totals() {
    // Ledger B2.
    let weights =
        column(include_bytes!("../../../ff-archives/tests/data/2019-07-14-weights.csv.xz"));
    let weights: Vec<_> =
        weights.into_iter().map(|kilobytes| BytesPerSec::new(kilobytes * 1000)).collect();
    for (total, slots, seconds) in
        [("592G", 583, 17_490), ("608G", 599, 17_970), ("621G", 612, 18_360)]
    {
        let scaled = scale(&weights, Some(rate(total)), Some(rate("998M"))).expect("capacities");
        let found = greedy(&alone(&scaled), &setup()).expect("a schedule");
        assert_eq!((found.slots, found.seconds, found.relays), (slots, seconds, 6528));
        assert_eq!((found.unmeasurable.len(), found.largest_bytes_per_sec), (0, 124_750_000));
        let json = serde_json::to_value(&found).expect("JSON");
        assert_eq!((&json["slots"], &json["seconds"]), (&slots.into(), &seconds.into()));
        assert_eq!(json["unmeasurable"], serde_json::json!([]));
    }
    // Without a bound some relays need more than the team has.
    let scaled = scale(&weights, Some(rate("608G")), None).expect("capacities");
    let found = greedy(&alone(&scaled), &setup()).expect("a schedule");
    assert_eq!((found.slots, found.unmeasurable.len()), (574, 21));
}

#[test]
fn may_2024_takes_785_slots_by_its_sample() {
    let capacities =
        column(include_bytes!("../../../ff-archives/tests/data/2024-05-capacities.csv.xz"));
    let capacities: Vec<_> = capacities.into_iter().map(BytesPerSec::new).collect();
    let found = greedy(&alone(&capacities), &setup()).expect("a schedule");
    assert_eq!((found.slots, found.relays, found.spare_slots), (785, 7203, 2095));
    // Half the slots of a day are too few for a team of a third.
    let small = Setup::new(team("300M,300M,400M").expect("a team"));
    let small = Setup { period_secs: 43_200, ..small };
    let found = greedy(&alone(&capacities), &small).expect("a schedule");
    assert_eq!(found.spare_slots, 0);
    assert!(found.missing_slots > 0 && !found.unmeasurable.is_empty());
    let late: u64 = found.behind_period.iter().map(|one| one.needs_bytes_per_sec).sum();
    let slots = u64::from(found.missing_slots);
    assert!((slots - 1) * 125_000_000 < late && late <= slots * 125_000_000, "{late} in {slots}");
}

#[test]
fn the_least_slots_are_those_of_the_team_that_takes_longest() {
    // Each needs 2.953 times its rate: m (1 + e2) / (1 - e1).
    let rates: Vec<BytesPerSec> = [10, 10, 10, 10, 90].map(BytesPerSec::from_mbit).to_vec();
    let teams = |texts: &[&str]| {
        let teams = texts.iter().map(|text| team(text).expect("a team")).collect();
        let found = greedy(&alone(&rates), &setup().with_teams(teams)).expect("a schedule");
        (found.least_slots, found.slots)
    };
    assert_eq!(teams(&["400M"]), (1, 1));
    // The small team has no room for the fastest relay, and one slot for each of the others.
    assert_eq!(teams(&["400M", "40M"]), (teams(&["40M"]).0, 4));
    assert_eq!(teams(&["40M", "400M"]), teams(&["400M", "40M"]));
    assert_eq!(teams(&["40M"]).0, 3, "4 times 29.5M over 40M");
}

#[test]
fn a_sample_of_the_relayinfo_is_read() {
    let sample = include_bytes!("../../../ff-archives/tests/data/relayinfo-2024-05-sample.json.xz")
        .as_slice();
    let (network, skips) = relayinfo::parse("sample", sample);
    assert_eq!((skips.all.len(), skips.read, network.relays.len()), (0, 347, 347));
    let subjects = Subjects::of(&network, true);
    // Computed in Python.
    assert_eq!(network.total_capacity(), BytesPerSec::new(5_085_697_990));
    assert_eq!((subjects.all.len(), subjects.total()), (296, BytesPerSec::new(4_565_584_756)));
    let count = |is_such: fn(&ff_archives::network::Relay) -> bool| {
        network.relays.iter().filter(|relay| is_such(relay)).count()
    };
    assert_eq!(count(|relay| relay.capacity.is_none()), 8);
    assert_eq!((count(|relay| relay.flags.guard), count(|relay| relay.flags.exit)), (176, 101));
    assert_eq!(network.unix_secs, Some(1_714_521_600));
}

fn data(file: &str) -> PathBuf {
    full_data().join(file)
}

/// A consensus of the full data.
fn consensus(file: &str) -> Network {
    let mut text = String::new();
    let file = File::open(data(file)).expect("the file");
    liblzma::read::XzDecoder::new(file).read_to_string(&mut text).expect("UTF-8");
    Network::from(&Consensus::parse(&text).expect("a consensus"))
}

#[test]
#[ignore = "needs FF_SIM_DATA: a folder with the data"]
fn july_2019_takes_599_slots() {
    let network = consensus("b-series/2019-07-14-00-00-00-consensus.xz");
    for (total, slots) in [("592G", 583), ("608G", 599), ("621G", 612)] {
        for grouped in [false, true] {
            let mut found = scheduled(&network, total, grouped);
            eprintln!("{} relays, {}", found.relays, found.unmeasurable.len());
            found.unmeasurable.clear();
            eprintln!("{total} grouped {grouped}: {found:?} {} h", hours(found.seconds));
            if !grouped {
                assert_eq!((found.slots, found.relays), (slots, 6528));
            }
        }
    }
}

#[test]
#[ignore = "needs FF_SIM_DATA: a folder with the data"]
fn may_2024_takes_785_slots() {
    let (network, skips) =
        relayinfo::read(&data("a-network/relayinfo_staging_2024-05-01--2024-05-31.json.xz"))
            .expect("the file");
    assert_eq!((skips.all.len(), skips.read, network.relays.len()), (0, 8665, 8665));
    let percentile = |rates: Vec<BytesPerSec>| {
        let rates = ff_report::stats::sorted(rates.iter().map(|one| one.mbit()).collect());
        ff_report::stats::percentile(&rates, 75.0).expect("some")
    };
    let all: Vec<_> =
        network.relays.iter().map(|relay| relay.capacity.unwrap_or_default()).collect();
    let largest = all.iter().max().expect("some").mbit();
    let total = network.total_capacity().mbit();
    assert_eq!(
        (percentile(all).round(), largest.round(), total.round()),
        (137.0, 896.0, 907_459.0)
    );
    for grouped in [false, true] {
        let subjects = Subjects::of(&network, grouped);
        let usable = subjects.all.iter().map(|one| one.truth).collect();
        assert_eq!(
            (percentile(usable).round(), subjects.total().mbit().round()),
            (145.0, 797_195.0)
        );
        let found = greedy(&subjects, &setup()).expect("a schedule");
        eprintln!("grouped {grouped}: {found:?} {} h", hours(found.seconds));
        if !grouped {
            assert_eq!((found.slots, found.relays), (785, 7203));
        }
    }
}

/// The new relays of the first day of January 2019, with the capacities of the network's own relays
/// in turn.
fn january(subjects: &Subjects) -> impl FnMut(u32) -> Vec<Subject> {
    let text = include_str!("../../../ff-archives/tests/data/jan2019-new-per-hour.csv");
    let count =
        |line: &str| line.split(',').nth(1).expect("a cell").parse::<u32>().expect("a number");
    let counts: Vec<u32> = text.lines().skip(1).map(count).collect();
    let truths: Vec<_> = subjects.all.iter().map(|one| one.truth).collect();
    move |hour| {
        let make = |number: u32| {
            let mut one = Subject::default();
            one.relay.fingerprint[..8]
                .copy_from_slice(&(u64::from(hour) << 32 | u64::from(number)).to_be_bytes());
            one.truth = truths[(hour as usize * 1009 + number as usize * 97) % truths.len()];
            one
        };
        (0..counts[hour as usize - 1]).map(make).collect()
    }
}

/// Prints the results of a period.
fn print(name: &str, found: &PeriodOutcome) {
    eprintln!("{name}: guess {} B/s, {:?}", found.new_guess_bytes_per_sec, found.coordinators);
    for reason in
        [Reason::TooFast, Reason::NoRoom, Reason::NoGrant, Reason::Waiting, Reason::NotMeasured]
    {
        eprintln!("  {reason:?}: {}", found.count(reason));
    }
    eprintln!("  {:?}", found.waits());
}

#[test]
#[ignore = "needs FF_SIM_DATA: a folder with the data"]
fn a_day_of_real_networks() {
    let july = consensus("b-series/2019-07-14-00-00-00-consensus.xz");
    let may = "a-network/relayinfo_staging_2024-05-01--2024-05-31.json.xz";
    let (may, _) = relayinfo::read(&data(may)).expect("the file");
    for (name, network) in [("July 2019", july), ("May 2024", may)] {
        for grouped in [false, true] {
            let mut subjects = Subjects::of(&network, grouped);
            if subjects.from_weights {
                subjects.scale(Some(rate("608G")), Some(rate("998M"))).expect("capacities");
            }
            for coordinators in [1, 3] {
                let setup = setup().with_coordinators(coordinators);
                let world = World::new(Errors::PAPER);
                let begin = std::time::Instant::now();
                let found =
                    replay(&subjects.all, &setup, &world, &mut january(&subjects)).expect("a day");
                let name = format!("{name}, grouped {grouped}, {coordinators} coordinators");
                eprintln!("{:?}", begin.elapsed());
                print(&name, &found);
                assert_eq!(found.count(Reason::NotMeasured), 0);
                if !grouped {
                    let came = found.newcomers.len();
                    let old = found.estimates.len() + found.unmeasured.len() - came;
                    assert_eq!(old, subjects.all.len() * usize::from(coordinators));
                    let late = found
                        .unmeasured
                        .iter()
                        .filter(|one| !one.fingerprint.starts_with("000000"))
                        .count();
                    assert_eq!(late, 0, "every old relay is measured");
                }
            }
        }
    }
}

#[test]
#[ignore = "needs FF_SIM_DATA: a folder with the data"]
fn what_more_measurers_would_bring() {
    let may = "a-network/relayinfo_staging_2024-05-01--2024-05-31.json.xz";
    let (may, _) = relayinfo::read(&data(may)).expect("the file");
    for (slot_secs, multiplier) in [(30, 2.25), (10, 2.25), (30, 3.0)] {
        let mut setup = Setup { slot_secs, ..setup() };
        setup.params.multiplier = multiplier;
        let found = what_if(&Subjects::of(&may, true), &setup, &[rate("1G"), rate("10G")])
            .expect("figures");
        eprintln!("{slot_secs} s, m {multiplier}: {found:#?}");
        assert!(found.additions[1].then.hours < found.now.hours);
    }
}
