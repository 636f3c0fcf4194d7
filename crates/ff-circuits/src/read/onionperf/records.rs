//! The records of an analysis file, host by host; those that cannot be read are counted and named.
//!
//! A packed file of 150 kB can have 1 GiB of lists of zeros, of which each takes 32 bytes as a
//! value of JSON. So lists and maps that are not read are skipped and not built, and those that are
//! read within a record have a bound.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use ff_report::python_json;
use serde::de::{DeserializeOwned, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Number;
use serde_json::value::RawValue;

use super::format::{
    Analysis, Host, OldTransfer, Part, Records, Tgen, Tor, TorCircuit, TorStream, Transfer,
};
use crate::read::{Damaged, ReadError};

/// The most that an analysis file may have, unpacked: a day of OnionPerf has 2 MB. What is built
/// from it takes several times as much.
const MOST_BYTES: usize = 256 << 20;

/// The largest number of values of a map or a list within a record: a circuit or a download of
/// OnionPerf has about 20.
const MOST_VALUES: usize = 10_000;

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

/// Text, a number, or something else, which is skipped.
#[derive(Debug, PartialEq)]
pub(crate) enum Scalar {
    /// A string.
    Text(String),
    /// A number.
    Number(Number),
    /// Anything else.
    Other,
}

impl Scalar {
    /// The text.
    pub(crate) fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// A finite number, not negative, which may be written as text.
    pub(crate) fn number(&self) -> Option<f64> {
        let number = match self {
            Self::Text(text) => text.parse().ok(),
            Self::Number(number) => number.as_f64(),
            Self::Other => None,
        };
        number.filter(|number: &f64| number.is_finite() && *number >= 0.0)
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor)
    }
}

/// Reads a [`Scalar`].
struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Scalar;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Scalar, E> {
        Ok(Scalar::Other)
    }

    fn visit_u64<E>(self, number: u64) -> Result<Scalar, E> {
        Ok(Scalar::Number(number.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Scalar, E> {
        Ok(Scalar::Number(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Scalar, E> {
        Ok(Number::from_f64(number).map_or(Scalar::Other, Scalar::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(text.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Scalar, E> {
        Ok(Scalar::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Scalar, A::Error> {
        IgnoredAny.visit_seq(seq).map(|_| Scalar::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Scalar, A::Error> {
        IgnoredAny.visit_map(map).map(|_| Scalar::Other)
    }
}

/// Whether `onionperf filter` has marked circuits of the file.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Filters {
    /// Whether there is a list of filters of circuits.
    pub(super) has_circuits: bool,
}

impl<'de> Deserialize<'de> for Filters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FiltersVisitor)
    }
}

/// Reads [`Filters`]; what is no map has none.
struct FiltersVisitor;

impl<'de> Visitor<'de> for FiltersVisitor {
    type Value = Filters;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("filters by kind of record")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Filters, E> {
        Ok(Filters::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Filters, E> {
        Ok(Filters::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Filters, E> {
        Ok(Filters::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Filters, E> {
        Ok(Filters::default())
    }

    fn visit_str<E>(self, _: &str) -> Result<Filters, E> {
        Ok(Filters::default())
    }

    fn visit_unit<E>(self) -> Result<Filters, E> {
        Ok(Filters::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Filters, A::Error> {
        IgnoredAny.visit_seq(seq).map(|_| Filters::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Filters, A::Error> {
        let mut filters = Filters::default();
        while let Some((kind, IgnoredAny)) = map.next_entry::<String, IgnoredAny>()? {
            filters.has_circuits |= kind == "tor/circuits";
        }
        Ok(filters)
    }
}

/// At most [`MOST_VALUES`] values by name; of values with the same name the last.
#[derive(Debug)]
pub(super) struct Few<T>(BTreeMap<String, T>);

impl<T> Few<T> {
    /// The value of this name.
    pub(super) fn get(&self, name: &str) -> Option<&T> {
        self.0.get(name)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FewVisitor::<BTreeMap<String, T>>(PhantomData)).map(Self)
    }
}

/// Reads a [`Few`], or a list of as many values.
struct FewVisitor<V>(PhantomData<V>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for FewVisitor<BTreeMap<String, T>> {
    type Value = BTreeMap<String, T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = BTreeMap::new();
        while let Some((name, value)) = map.next_entry()? {
            values.insert(name, value);
            bounded(values.len())?;
        }
        Ok(values)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for FewVisitor<Vec<T>> {
    type Value = Vec<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = seq.next_element()? {
            values.push(value);
            bounded(values.len())?;
        }
        Ok(values)
    }
}

/// Checks the number of values.
fn bounded<E: Error>(values: usize) -> Result<(), E> {
    if values > MOST_VALUES {
        return Err(E::custom(format!("it has more than {MOST_VALUES} values")));
    }
    Ok(())
}

/// A list of at most [`MOST_VALUES`] values, or nothing.
pub(super) fn few<'de, D, T>(deserializer: D) -> Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let list = Option::<FewList<T>>::deserialize(deserializer)?;
    Ok(list.map(|list| list.0))
}

/// A list of at most [`MOST_VALUES`] values.
struct FewList<T>(Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for FewList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(FewVisitor::<Vec<T>>(PhantomData)).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value in a text.
    fn read<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn lists_and_maps_among_values_are_skipped() {
        let found: Few<Scalar> =
            read(r#"{"a": [0, [0], {}], "b": {"c": [1]}, "d": "x", "e": 7, "f": null, "g": true}"#)
                .expect("values");
        for (name, expected) in [
            ("a", Scalar::Other),
            ("b", Scalar::Other),
            ("d", Scalar::Text("x".to_owned())),
            ("e", Scalar::Number(7.into())),
            ("f", Scalar::Other),
            ("g", Scalar::Other),
        ] {
            assert_eq!(found.get(name), Some(&expected), "{name}");
        }
        let numbers: Vec<Scalar> = read(r#"["1.5", 2, -1, "NaN", "x"]"#).expect("values");
        let numbers: Vec<_> = numbers.iter().map(Scalar::number).collect();
        assert_eq!(numbers, [Some(1.5), Some(2.0), None, None, None]);
    }

    #[test]
    fn filters_are_noticed_and_not_kept() {
        for (text, expected) in [
            (r#"{"tor/circuits": [{"name": "exclude_cbt"}]}"#, true),
            (r#"{"tor/circuits": null, "other": [0]}"#, true),
            (r#"{"other": [0]}"#, false),
            ("[0, 0]", false),
            ("null", false),
            ("\"tor/circuits\"", false),
        ] {
            let found: Filters = read(text).expect(text);
            assert_eq!(found.has_circuits, expected, "{text}");
        }
    }

    #[test]
    fn values_of_a_record_have_a_bound() {
        let numbers = (0..MOST_VALUES).map(|at| format!("\"{at}\": 0")).collect::<Vec<_>>();
        let map = |more: &str| format!("{{{}{more}}}", numbers.join(","));
        assert!(read::<Few<f64>>(&map("")).is_ok());
        let error = read::<Few<f64>>(&map(",\"x\": 0")).expect_err("one more").to_string();
        assert!(error.contains("more than 10000 values"), "{error}");
        let list = |count: usize| format!("[{}0]", "0,".repeat(count - 1));
        assert!(read::<FewList<f64>>(&list(MOST_VALUES)).is_ok());
        assert!(read::<FewList<f64>>(&list(MOST_VALUES + 1)).is_err());
    }
}
