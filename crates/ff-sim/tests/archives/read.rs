//! Real consensuses and descriptors, read by the scanners and by `ff_dir`'s readers.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use ff_archives::network::{CapacitySource, Network};
use ff_archives::read::consensus::{Consensus, Digest, Flavour};
use ff_archives::read::descriptor::{Descriptors, join};
use ff_dir::consensus::Consensus as Reference;
use ff_sim::analysis::moment::{CapacityKind, Scale, weight_error};

use crate::full::{CONSENSUSES, full_data};

fn samples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ff-archives/tests/data")
}

/// The content of a file, unpacked if its name ends in .xz.
fn bytes(path: &Path) -> Vec<u8> {
    if path.extension().is_none_or(|end| end != "xz") {
        return fs::read(path).expect("the file");
    }
    let mut bytes = Vec::new();
    let file = File::open(path).expect("the file");
    liblzma::read::XzDecoder::new(file).read_to_end(&mut bytes).expect("whole");
    bytes
}

/// A consensus, after checking that `ff_dir` reads the same.
fn agreed(path: &Path) -> Consensus {
    let document = bytes(path);
    let text = str::from_utf8(&document).expect("UTF-8");
    let consensus = Consensus::parse(&document).expect("a consensus");
    let reference = Reference::parse(text).expect("a consensus");
    assert_eq!(consensus.to_network(), Network::from(&reference), "{}", path.display());
    for (found, wanted) in consensus.relays.iter().zip(&reference.relays) {
        let digest = match found.digest {
            Digest::Microdescriptor(digest) => Some(digest),
            Digest::None | Digest::Descriptor(_) => None,
        };
        assert_eq!(digest, wanted.microdescriptor);
        assert_eq!(Some(found.or_port), wanted.or_ports.first().map(|port| port.port()));
    }
    let weights: String =
        consensus.bandwidth_weights().map(|(key, value)| format!(" {key}={value}")).collect();
    assert!(text.contains(&format!("\nbandwidth-weights{weights}\n")), "{weights}");
    consensus
}

#[test]
fn samples_are_read_as_ff_dir_reads_them() {
    for (file, flavour, method, relays, weight) in [
        ("read-2020-02-29-consensus", Flavour::Ns, 29, 22, 184_095),
        ("read-2022-11-19-microdesc", Flavour::Microdesc, 32, 6, 88_290),
    ] {
        let consensus = agreed(&samples().join(file));
        let sum: u64 = consensus.relays.iter().filter_map(|relay| relay.bandwidth).sum();
        let found = (consensus.flavour, consensus.method, consensus.relays.len(), sum);
        assert_eq!(found, (flavour, method, relays, weight), "{file}");
    }
}

#[test]
#[ignore = "needs FF_SIM_DATA: a folder with the data"]
fn full_consensuses_are_read_as_ff_dir_reads_them() {
    for (_, file, relays) in CONSENSUSES {
        let consensus = agreed(&full_data().join(file));
        assert_eq!(consensus.relays.len(), relays, "{file}");
    }
}

/// Figures of a consensus joined with descriptors.
struct Joined {
    /// The number of descriptors.
    all: usize,
    /// The number of these that the consensus lists.
    matched: usize,
    /// Their relays' share of total weight.
    share: f64,
    /// The weight error of these relays by observed bandwidth.
    by_observed: f64,
    /// The weight error by advertised bandwidth: observed bandwidth within the limits.
    by_advertised: f64,
}

impl Joined {
    /// The figures for these files.
    fn of(consensus: &Path, file: &Path) -> Self {
        let consensus = Consensus::parse(&bytes(consensus)).expect("a consensus");
        let file = bytes(file);
        let mut descriptors = Descriptors::default();
        assert_eq!(descriptors.add(&file), []);
        agree_on_fields(str::from_utf8(&file).expect("UTF-8"), &descriptors);
        let mut network = join(&consensus, &descriptors);
        assert_eq!(network.capacities, CapacitySource::Observed);
        let matched = network.relays.iter().filter(|relay| relay.capacity.is_some()).count();
        let observed = weight_error(&network, CapacityKind::Known, Scale::None, |_| true);
        for relay in &mut network.relays {
            relay.capacity = relay.usable();
        }
        let advertised = weight_error(&network, CapacityKind::Known, Scale::None, |_| true);
        let of_matched = network.relays.iter().filter(|relay| relay.capacity.is_some());
        Self {
            all: descriptors.all.len(),
            matched,
            share: of_matched.map(|relay| relay.weight).sum::<f64>() / network.total_weight(),
            by_observed: observed.weight_error.expect("some relays have both"),
            by_advertised: advertised.weight_error.expect("some relays have both"),
        }
    }

    /// All figures as one line.
    fn show(&self) -> String {
        let Self { all, matched, share, by_observed, by_advertised } = self;
        format!("{all} {matched} {share:.6} {by_observed:.6} {by_advertised:.6}")
    }
}

/// Compares descriptors with `ff_dir`'s reading of the same file.
fn agree_on_fields(file: &str, found: &Descriptors) {
    let wanted = ff_dir::descriptors::Descriptors::parse(file);
    assert_eq!(wanted.skipped, []);
    for (index, one) in found.all.iter().enumerate() {
        let later = found.all.get(index + 1..).unwrap_or_default();
        if later.iter().any(|other| other.fingerprint == one.fingerprint) {
            continue;
        }
        let wanted = &wanted.relays[&one.fingerprint];
        assert_eq!(one.rate, wanted.rate_bytes_per_sec);
        assert_eq!(one.burst, wanted.burst_bytes_per_sec);
        assert_eq!(one.observed, wanted.observed_bytes_per_sec);
        assert_eq!(Some(one.published_unix_secs), wanted.published_unix_secs);
        assert_eq!(one.overloaded_unix_secs, wanted.overloaded_unix_secs);
        assert_eq!(found.family(one), wanted.family);
        assert_eq!(found.family_ids(one).collect::<Vec<_>>(), wanted.family_ids);
    }
}

/// Descriptors of 2026, each with a family certificate; the first two are of the same family.
const KEYED: &str = include_str!("../../../ff-dir/tests/data/descriptors");

#[test]
fn families_by_key_are_read_as_by_ff_dir() {
    let mut descriptors = Descriptors::default();
    assert_eq!(descriptors.add(KEYED.as_bytes()), []);
    agree_on_fields(KEYED, &descriptors);
    let ids = |of: usize| descriptors.family_ids(&descriptors.all[of]).collect::<Vec<_>>();
    // The authorities' result for the certificate: the line in the relay's microdescriptor.
    assert_eq!(ids(0), ["ed25519:xiRC4fYUyj3pROyHeAm5dQerbUMHrLkeOJpG21vff44"]);
    assert!(ids(1) == ids(0) && ids(2).len() == 1 && ids(2) != ids(0));
    let line = 1 + KEYED.lines().position(|line| line == "family-cert").expect("a certificate");
    for (to, reason) in [
        ("AQwAB5PCAWb6qbpK", "the family's certificate is another relay's"),
        ("AQQAB5PCAWb6qbpJ", "the family's certificate cannot be read"),
        ("", "the family's certificate cannot be read"),
    ] {
        let mut others = Descriptors::default();
        let errors = others.add(KEYED.replacen("AQwAB5PCAWb6qbpJ", to, 1).as_bytes());
        let found: Vec<_> = errors.iter().map(|error| (error.line, &*error.reason)).collect();
        assert_eq!((found, others.all.len()), (vec![(line, reason)], 2));
    }
}

#[test]
fn descriptors_join_by_digest() {
    let consensus = samples().join("read-2020-02-29-consensus");
    let joined = Joined::of(&consensus, &samples().join("read-2020-02-29-descriptors.xz"));
    assert_eq!(joined.show(), "9 6 0.392542 0.046785 0.059317");
}

#[test]
#[ignore = "needs FF_SIM_DATA: a folder with the data"]
fn all_descriptors_of_february_2020_join_by_digest() {
    let folder = full_data().join("a-network");
    let joined = Joined::of(
        &folder.join("2020-02-29-11-00-00-consensus.xz"),
        &folder.join("2020-02-29-10-05-00-server-descriptors.xz"),
    );
    // Ledger A10: 5.0 % of the weight and an error of 0.132, computed from advertised bandwidths.
    assert_eq!(joined.show(), "587 381 0.049990 0.143673 0.131776");
}
