//! Real consensuses and descriptors, read by the scanners and by `ff_bwauth`'s readers.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use ff_bwauth::network::consensus::Consensus as Reference;
use ff_sim::network::Network;
use ff_sim::read::consensus::{Consensus, Digest, Flavour};

/// The folder of samples.
fn samples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

/// The folder of the full data.
fn full_data() -> PathBuf {
    PathBuf::from(std::env::var_os("FF_SIM_DATA").expect("FF_SIM_DATA"))
}

/// A file's bytes, unpacked if its name ends in .xz.
fn bytes(path: &Path) -> Vec<u8> {
    if path.extension().is_none_or(|end| end != "xz") {
        return fs::read(path).expect("the file");
    }
    let mut bytes = Vec::new();
    let file = File::open(path).expect("the file");
    liblzma::read::XzDecoder::new(file).read_to_end(&mut bytes).expect("whole");
    bytes
}

/// A consensus, which has to be as `ff_bwauth` reads it.
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
fn samples_are_read_as_ff_bwauth_reads_them() {
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
fn full_consensuses_are_read_as_ff_bwauth_reads_them() {
    for (file, relays) in [
        ("a-network/2020-02-29-11-00-00-consensus.xz", 6_463),
        ("a-network/cached-microdesc-consensus.xz", 6_088),
        ("b-series/2019-05-27-20-00-00-consensus.xz", 6_667),
        ("b-series/2019-07-14-00-00-00-consensus.xz", 6_528),
        ("b-series/2019-07-17-23-00-00-consensus.xz", 6_421),
        ("b-series/2019-07-20-18-00-00-consensus.xz", 6_456),
    ] {
        let consensus = agreed(&full_data().join(file));
        assert_eq!(consensus.relays.len(), relays, "{file}");
    }
}
