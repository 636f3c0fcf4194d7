//! The records of an analysis file, host by host; those that cannot be read are counted and named.

use std::collections::BTreeMap;

use ff_report::python_json;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::format::{
    Analysis, Host, OldTransfer, Part, Records, Tgen, Tor, TorCircuit, TorStream, Transfer,
};
use super::values::Scalar;
use crate::read::{Damaged, ReadError};

/// The most that an analysis file may have, unpacked: a day of OnionPerf has 2 MB. What is built
/// from it takes several times as much.
const MOST_BYTES: usize = 256 << 20;

/// The reason for a record that is left out because a later one has the same name.
const REPLACED: &str = "another record has the same name; the last one is read";

/// The records of hosts by name.
pub(super) fn hosts(
    file: &str,
    analysis: Analysis,
    damaged: &mut Damaged,
) -> BTreeMap<String, Box<RawValue>> {
    let Records { by_name, replaced } = analysis.data.unwrap_or_default();
    for name in replaced {
        damaged.add(|| format!("{file}, {name}: {REPLACED}"));
    }
    by_name
}

/// Parses an analysis file of a known version.
pub(super) fn parse(file: &str, bytes: &[u8]) -> Result<Analysis, ReadError> {
    let fail = |reason: String| ReadError::Content { file: file.to_owned(), reason };
    if bytes.len() > MOST_BYTES {
        let most = MOST_BYTES >> 20;
        return Err(fail(format!("it has more than {most} MiB, the most of an analysis file")));
    }
    let bytes = python_json::quote(bytes.to_vec());
    let analysis: Analysis = serde_json::from_slice(&bytes).map_err(|error| {
        fail(format!(
            "this is not an analysis file of OnionPerf ({error}); our own lines end in .jsonl"
        ))
    })?;
    let (kind, version) = (analysis.kind.as_ref(), analysis.version.as_ref());
    check(kind, version, analysis.data.is_some()).map_err(fail)?;
    Ok(analysis)
}

/// Checks that a document of this type and version is an analysis file of a known version.
pub(crate) fn check(
    kind: Option<&Scalar>,
    version: Option<&Scalar>,
    has_data: bool,
) -> Result<(), String> {
    if kind.and_then(Scalar::text) != Some("onionperf") || !has_data {
        return Err(
            "this is not an analysis file of OnionPerf: it lacks \"type\": \"onionperf\" or \"data\""
                .to_owned(),
        );
    }
    match version.and_then(Scalar::number) {
        Some(version) if (1.0..6.0).contains(&version) => Ok(()),
        _ => {
            Err("its version is not between 1.0 and 5.x: convert it, or use a newer ff-perf"
                .to_owned())
        }
    }
}

/// Reads the records of a host.
pub(super) struct Reader<'a> {
    pub(super) file: &'a str,
    pub(super) host: &'a str,
    /// Records that could not be read.
    pub(super) damaged: &'a mut Damaged,
}

/// The records of a host that could be read.
pub(super) struct HostRecords {
    /// Circuits by their numbers.
    pub(super) circuits: BTreeMap<String, TorCircuit>,
    /// tor's streams by their numbers.
    pub(super) streams: BTreeMap<String, TorStream>,
    /// Downloads by their names, from version 3.0 on.
    pub(super) new: BTreeMap<String, Transfer>,
    /// Downloads by their names, up to version 2.0.
    pub(super) old: BTreeMap<String, OldTransfer>,
}

impl Reader<'_> {
    /// The records of a host.
    pub(super) fn host(&mut self, host: Box<RawValue>) -> HostRecords {
        let host: Host = self.part("record", Some(host));
        let tor: Tor = self.part("tor", host.tor);
        let tgen: Tgen = self.part("tgen", host.tgen);
        HostRecords {
            circuits: self.records("circuit", tor.circuits),
            streams: self.records("tor's stream", tor.streams),
            new: self.records("stream", tgen.streams),
            old: self.records("transfer", tgen.transfers),
        }
    }

    /// The readable records of a kind; the others are counted and named.
    fn records<T: DeserializeOwned>(&mut self, kind: &str, part: Part) -> BTreeMap<String, T> {
        let Records { by_name, replaced } = self.part(&format!("{kind}s"), part);
        let (file, host) = (self.file, self.host);
        for name in replaced {
            self.damaged.add(|| format!("{file}, {host}, {kind} {name}: {REPLACED}"));
        }
        let mut found = BTreeMap::new();
        for (name, record) in by_name {
            if let Some(record) = self.one(&format!("{kind} {name}"), &record) {
                found.insert(name, record);
            }
        }
        found
    }

    /// A part of a record; empty if it is missing or cannot be read, in which case it is counted
    /// and named.
    fn part<T: DeserializeOwned + Default>(&mut self, name: &str, part: Part) -> T {
        part.and_then(|part| self.one(name, &part)).unwrap_or_default()
    }

    /// The value if it can be read; otherwise it is counted and named.
    fn one<T: DeserializeOwned>(&mut self, name: &str, text: &RawValue) -> Option<T> {
        match serde_json::from_str(text.get()) {
            Ok(one) => Some(one),
            Err(error) => {
                let (file, host) = (self.file, self.host);
                self.damaged.add(|| format!("{file}, {host}, {name}: {error}"));
                None
            }
        }
    }
}
