//! Values of OnionPerf's analysis files whose memory is bounded.
//!
//! A packed file of 150 kB can have 1 GiB of lists of zeros, of which each takes 32 bytes as a
//! value of JSON. So lists and maps that are not read are skipped and not built, and those that are
//! read within a record have a bound.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Number;

/// The largest number of values of a map or a list within a record: a circuit or a download of
/// OnionPerf has about 20.
const MOST_VALUES: usize = 10_000;

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

/// Reads [`Filters`]; anything but a map has none.
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
