//! Schedules of real networks.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use ff_bwauth::network::consensus::Consensus;
use ff_proto::units::BytesPerSec;
use ff_sim::network::Network;
use ff_sim::read::relayinfo;
use ff_sim::schedule::greedy::{Greedy, greedy, hours};
use ff_sim::schedule::scaling::scale;
use ff_sim::schedule::units::{bits_per_sec, team};
use ff_sim::schedule::{Setup, Subjects};

/// A rate as on the command line.
fn rate(text: &str) -> BytesPerSec {
    bits_per_sec(text).expect("a rate")
}

/// The paper's team.
fn setup() -> Setup {
    Setup::new(team("1G,1G,1G").expect("a team"))
}

/// A network scaled as by `--total` and `--max-relay`, and scheduled greedily.
fn scheduled(network: &Network, total: &str, grouped: bool) -> Greedy {
    let mut subjects = Subjects::of(network, grouped);
    let weights: Vec<_> = subjects.all.iter().map(|subject| subject.truth).collect();
    let scaled = scale(&weights, Some(rate(total)), Some(rate("998M"))).expect("capacities");
    let at_brim = scaled.iter().filter(|one| **one == rate("998M")).count();
    println!("{total}: {at_brim} relays at the brim");
    subjects.set(&scaled);
    greedy(&subjects, &setup()).expect("a schedule")
}

/// A file of the full data.
fn data(file: &str) -> PathBuf {
    Path::new(&std::env::var("FF_SIM_DATA").expect("FF_SIM_DATA")).join(file)
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
            println!("{} relays, {}", found.relays, found.unmeasurable.len());
            found.unmeasurable.clear();
            println!("{total} grouped {grouped}: {found:?} {} h", hours(found.seconds));
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
        let rates = ff_sim::stats::sorted(rates.iter().map(|one| one.mbit()).collect());
        ff_sim::stats::percentile(&rates, 75.0).expect("some")
    };
    let all: Vec<_> =
        network.relays.iter().map(|relay| relay.capacity.unwrap_or_default()).collect();
    println!("p75 {}, sum {}", percentile(all), network.total_capacity());
    for grouped in [false, true] {
        let subjects = Subjects::of(&network, grouped);
        println!("p75 {}", percentile(subjects.all.iter().map(|one| one.truth).collect()));
        let found = greedy(&subjects, &setup()).expect("a schedule");
        println!("grouped {grouped}: {found:?} {} h", hours(found.seconds));
        if !grouped {
            assert_eq!((found.slots, found.relays), (785, 7203));
        }
    }
}
