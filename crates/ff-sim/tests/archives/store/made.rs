//! Archives made from the samples, and failed runs of the program.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use base64ct::{Base64, Base64Unpadded, Encoding};
use ff_archives::read::descriptor::{Descriptor, Descriptors};
use liblzma::read::XzDecoder;
use liblzma::write::XzEncoder;

use crate::program::run;

/// The exit status and the messages of a failed run.
pub(crate) fn fails(dir: &Path, args: &[&str]) -> (Option<i32>, String) {
    let output = run(dir, args);
    assert!(!output.status.success(), "{args:?}");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn sample(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ff-archives/tests/data").join(name);
    fs::read(path).expect("a sample")
}

/// The real consensus of the samples at another time, with its own weights.
pub(crate) fn consensus(valid_after: &str, number: u64) -> String {
    let text = String::from_utf8(sample("read-2020-02-29-consensus")).expect("UTF-8");
    let mut relay = number;
    let line = |line: &str| {
        if line.starts_with("valid-after ") {
            return format!("valid-after {valid_after}\n");
        }
        let Some(weight) = line.strip_prefix("w Bandwidth=") else { return format!("{line}\n") };
        let digits = weight.split(' ').next().unwrap_or_default();
        let rest = weight.strip_prefix(digits).unwrap_or_default();
        relay =
            relay.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let weight: u64 = digits.parse().expect("a weight");
        format!("w Bandwidth={}{rest}\n", weight + weight * (relay >> 60) / 40)
    };
    text.lines().map(line).collect()
}

/// An archive that is being made.
pub(crate) struct Archive {
    path: PathBuf,
    tar: RefCell<tar::Builder<Vec<u8>>>,
}

impl Archive {
    /// An empty archive.
    pub(crate) fn new(path: &Path) -> Self {
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        Self { path: path.to_owned(), tar: RefCell::new(tar::Builder::new(Vec::new())) }
    }

    /// Adds an entry with any name.
    pub(crate) fn put(self, name: &str, content: &[u8]) -> Self {
        let mut header = tar::Header::new_gnu();
        header.as_gnu_mut().expect("such a header").name[..name.len()]
            .copy_from_slice(name.as_bytes());
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        self.tar.borrow_mut().append(&header, content).expect("a vector takes all");
        self
    }

    /// The content of the archive.
    pub(crate) fn bytes(self, is_packed: bool) -> Vec<u8> {
        let bytes = self.tar.into_inner().into_inner().expect("a vector takes all");
        if !is_packed {
            return bytes;
        }
        let mut packed = XzEncoder::new(Vec::new(), 0);
        packed.write_all(&bytes).expect("a vector takes all");
        packed.finish().expect("a vector takes all")
    }

    /// Writes the archive.
    pub(crate) fn finish(self, is_packed: bool) {
        let path = self.path.clone();
        fs::write(path, self.bytes(is_packed)).expect("written");
    }
}

/// The first hours of a month, as an archive or as a folder.
pub(crate) fn month_of_consensuses(dir: &Path, month: &str, hours: usize, is_packed: bool) {
    let mut archive = Archive::new(&dir.join(format!("consensuses-{month}.tar.xz")));
    let last = if month.ends_with("02") { 29 * 24 } else { 30 * 24 };
    for hour in 0..hours.min(last) {
        let (day, clock) = (hour / 24 + 1, hour % 24);
        let text = consensus(&format!("{month}-{day:02} {clock:02}:00:00"), hour as u64);
        let text = format!("@type network-status-consensus-3 1.0\n{text}");
        let name =
            format!("consensuses-{month}/{day:02}/{month}-{day:02}-{clock:02}-00-00-consensus");
        if is_packed {
            archive = archive.put(&name, text.as_bytes());
        } else {
            let path = dir.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        }
    }
    if is_packed {
        archive.finish(true);
    }
}

pub(crate) fn sample_descriptors() -> Vec<u8> {
    let mut text = Vec::new();
    let packed = sample("read-2020-02-29-descriptors.xz");
    XzDecoder::new(&*packed).read_to_end(&mut text).expect("whole");
    text
}

/// Writes an archive of the samples' descriptors.
pub(crate) fn descriptors(dir: &Path) {
    let text = sample_descriptors();
    Archive::new(&dir.join("server-descriptors-2020-02.tar.xz"))
        .put("server-descriptors-2020-02/all", &text)
        .finish(true);
}

/// The descriptors of the samples, each with a certificate by the same family key (proposal 321),
/// and the digests by which a consensus lists each of them, before and after that change.
pub(crate) fn in_one_family() -> (String, Vec<(String, String)>) {
    let text = String::from_utf8(sample_descriptors()).expect("UTF-8");
    let line = |line: &str| match line.strip_prefix("master-key-ed25519 ") {
        Some(key) => format!("{line}\n{}", family_cert(key)),
        None => format!("{line}\n"),
    };
    let changed: String = text.lines().map(line).collect();
    let digests = |text: &str| -> Vec<String> {
        let mut descriptors = Descriptors::default();
        assert_eq!(descriptors.add(text.as_bytes()), []);
        let digest = |one: &Descriptor| Base64Unpadded::encode_string(&one.digest);
        descriptors.all.iter().map(digest).collect()
    };
    let named = digests(&text).into_iter().zip(digests(&changed)).collect();
    (changed, named)
}

/// A family certificate for a relay's Ed25519 identity, with a signature that these tests do not
/// check.
fn family_cert(identity: &str) -> String {
    let identity = Base64Unpadded::decode_vec(identity).expect("a key");
    let head: &[u8] = &[1, 12, 0, 0, 0, 0, 1];
    // An extension with the key, and the signature.
    let bytes = [head, &identity, &[1, 0, 32, 4, 0], &[7; 32], &[0; 64]].concat();
    let text = Base64::encode_string(&bytes);
    format!("family-cert\n-----BEGIN FAMILY CERT-----\n{text}\n-----END FAMILY CERT-----\n")
}

/// Writes two bandwidth files of the consensus's relays.
pub(crate) fn bandwidth_files(dir: &Path) {
    let mut archive = Archive::new(&dir.join("bandwidths-2020-02.tar.xz"));
    for (name, time) in [("one", 1_582_970_400), ("other", 1_582_974_000)] {
        let text = format!(
            "@type bandwidth-file 1.0\n{time}\nversion=1.4.0\nsoftware=sbws\n=====\n\
             bw=38000 node_id=$000A10D43011EA4928A35F610405F92B4433B4DC nick=seele\n\
             bw=1 node_id=$0011BD2485AD45D984EC4159C88FC066E5E3300E vote=0\n"
        );
        archive = archive.put(name, text.as_bytes());
    }
    archive.finish(true);
}

/// The files in a folder by name, without locks.
pub(crate) fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let (mut all, mut left) = (BTreeMap::new(), vec![dir.to_owned()]);
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(
                fs::read_dir(&path).expect("read").map(|entry| entry.expect("read").path()),
            );
            continue;
        }
        let name = path.strip_prefix(dir).expect("within").to_str().expect("UTF-8").to_owned();
        if !name.starts_with("locks/") && path.exists() {
            all.insert(name, fs::read(&path).expect("read"));
        }
    }
    all
}
