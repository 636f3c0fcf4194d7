//! The scanners' fields equal tor-netdoc's for all documents that tor-netdoc accepts. Its reader of
//! descriptors has no bandwidth and no uptime: those are compared with `ff_dir`'s reader and
//! stem's.

use std::fs::{self, File};
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ff_archives::read::consensus::{Consensus, ConsensusRelay, Digest, FlagBits};
use ff_archives::read::descriptor::Descriptors;
use tor_checkable::{ExternallySigned, SelfSigned, Timebound};
use tor_netdoc::doc::netstatus::{MdConsensus, PlainConsensus, RelayWeight};
use tor_netdoc::doc::routerdesc::RouterDesc;

use crate::full::{CONSENSUSES, full_data};

fn sample(name: &str) -> String {
    text(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name))
}

/// The text of a file, unpacked if its name ends in .xz.
fn text(path: &Path) -> String {
    let mut bytes = fs::read(path).expect("the file");
    if path.extension().is_some_and(|end| end == "xz") {
        bytes.clear();
        let file = File::open(path).expect("the file");
        liblzma::read::XzDecoder::new_multi_decoder(file).read_to_end(&mut bytes).expect("whole");
    }
    String::from_utf8(bytes).expect("UTF-8")
}

/// A text from its first line with this keyword on, with one line feed at its end: tor-netdoc
/// accepts neither annotations nor blank lines.
fn bare(text: &str, keyword: &str) -> String {
    let begin = text.find(keyword).expect("it begins so");
    format!("{}\n", text[begin..].trim_end())
}

/// The digest of a relay's descriptor or microdescriptor.
fn digest(relay: &ConsensusRelay) -> &[u8] {
    match &relay.digest {
        Digest::Descriptor(digest) => digest,
        Digest::Microdescriptor(digest) => digest,
        Digest::None => &[],
    }
}

/// Compares the fields that both flavours have.
macro_rules! compare {
    ($text:expr, $type:ty, $digest:ident) => {{
        let ours = Consensus::parse($text.as_bytes()).expect("we read it");
        let parsed = <$type>::parse(&$text).expect("it reads it");
        let theirs = parsed.2.dangerously_assume_timely().dangerously_assume_wellsigned();
        assert_eq!(theirs.relays().len(), ours.relays.len());
        let valid_after = UNIX_EPOCH + Duration::from_secs(ours.valid_after_unix_secs);
        assert_eq!(SystemTime::from(theirs.lifetime().valid_after()), valid_after);
        for (name, value) in ours.bandwidth_weights() {
            assert_eq!(theirs.bandwidth_weights().get(name), Some(&value), "{name}");
        }
        assert_eq!(ours.bandwidth_weights().len(), 19);
        for (a, b) in ours.relays.iter().zip(theirs.relays()) {
            assert_eq!(a.fingerprint, *b.rsa_identity().as_bytes());
            assert_eq!(digest(a), &b.$digest()[..]);
            assert_eq!(ours.text(a.nickname), b.nickname());
            let addresses: Vec<SocketAddr> = b.addrs().collect();
            assert_eq!(addresses.first(), Some(&SocketAddr::from((a.address, a.or_port))));
            let ips: Vec<_> = addresses.iter().map(SocketAddr::ip).collect();
            assert!(ours.addresses(a).eq(ips), "{}", b.nickname());
            let version = b.version().map(ToString::to_string).unwrap_or_default();
            assert_eq!(ours.text(a.version), version.trim_start_matches("Tor "));
            let weight = match b.weight() {
                RelayWeight::Unmeasured(weight) => (u64::from(*weight), true),
                RelayWeight::Measured(weight) => (u64::from(*weight), false),
                odd => panic!("{odd:?}"),
            };
            assert_eq!((a.bandwidth.expect("all have one"), a.is_unmeasured), weight);
            for (flag, is_set) in [
                (FlagBits::BAD_EXIT, b.is_flagged_bad_exit()),
                (FlagBits::EXIT, b.is_flagged_exit()),
                (FlagBits::FAST, b.is_flagged_fast()),
                (FlagBits::GUARD, b.is_flagged_guard()),
                (FlagBits::HS_DIR, b.is_flagged_hsdir()),
                (FlagBits::STABLE, b.is_flagged_stable()),
                (FlagBits::V2_DIR, b.is_flagged_v2dir()),
                (FlagBits::NO_ED_CONSENSUS, !b.ed25519_id_is_usable()),
            ] {
                assert_eq!(a.flags.has(flag), is_set, "{} {flag:?}", b.nickname());
            }
        }
        ours.relays.len()
    }};
}

/// Compares a consensus; returns its number of relays.
fn compare_consensus(text: &str) -> usize {
    let text = bare(text, "network-status-version ");
    if text.starts_with("network-status-version 3 microdesc") {
        compare!(text, MdConsensus, md_digest)
    } else {
        compare!(text, PlainConsensus, rd_digest)
    }
}

/// Compares the descriptors in a file; returns their number, and the nicknames of those that
/// tor-netdoc rejects.
fn compare_descriptors(text: &str) -> (usize, Vec<String>) {
    let mut ours = Descriptors::default();
    assert_eq!(ours.add(text.as_bytes()), []);
    let begin = text.find("router ").expect("a descriptor");
    let parts: Vec<&str> = text[begin + "router ".len()..].split("\nrouter ").collect();
    assert_eq!(parts.len(), ours.all.len());
    let mut rejected = Vec::new();
    for (one, part) in ours.all.iter().zip(parts) {
        let end = part.find("-----END SIGNATURE-----\n").expect("a signature");
        let part = format!("router {}-----END SIGNATURE-----\n", &part[..end]);
        let Ok(parsed) = RouterDesc::parse(&part) else {
            rejected.push(ours.nickname(one).to_owned());
            continue;
        };
        let theirs = parsed.dangerously_assume_wellsigned().dangerously_assume_timely();
        assert_eq!(theirs.rsa_identity().as_bytes(), &one.fingerprint);
        assert_eq!(theirs.published(), UNIX_EPOCH + Duration::from_secs(one.published_unix_secs));
        let first = theirs.or_ports().next();
        assert_eq!(first, Some(SocketAddr::from((one.address, one.or_port))));
    }
    (ours.all.len(), rejected)
}

#[test]
fn samples_are_read_as_by_tor_netdoc() {
    assert_eq!(compare_consensus(&sample("read-2020-02-29-consensus")), 22);
    assert_eq!(compare_consensus(&sample("read-2022-11-19-microdesc")), 6);
    let (all, rejected) = compare_descriptors(&sample("read-2020-02-29-descriptors.xz"));
    println!("tor-netdoc rejects {rejected:?} of {all}");
    assert!(all == 9 && rejected.len() < 3, "{rejected:?}");
}

#[test]
#[ignore = "needs FF_SIM_DATA: a folder with the data"]
fn the_data_is_read_as_by_tor_netdoc() {
    let data = full_data();
    for (_, file, relays) in CONSENSUSES {
        assert_eq!(compare_consensus(&text(&data.join(file))), relays, "{file}");
    }
    let file = text(&data.join("a-network/2020-02-29-10-05-00-server-descriptors.xz"));
    let (all, rejected) = compare_descriptors(&file);
    println!("tor-netdoc rejects {} of {all}: {rejected:?}", rejected.len());
    assert_eq!((all, rejected.len()), (587, 16));
}
