//! Marks circuits of analysis files by their relays, like OnionPerf's `filter`: the downloads of a
//! marked circuit do not count.

use std::collections::BTreeSet;

use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::read::onionperf::{Scalar, check, fingerprint};

/// The relays of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayList {
    /// The file.
    pub path: String,
    /// Their fingerprints: 40 upper-case hexadecimal digits.
    pub ids: BTreeSet<String>,
}

/// The circuits to keep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CircuitFilter {
    /// Circuits with only these relays.
    pub include: Option<RelayList>,
    /// Circuits with none of these relays.
    pub exclude: Option<RelayList>,
    /// Whether first relays are checked. If neither first nor last relays are, all relays are.
    pub guards: bool,
    /// Whether last relays are checked.
    pub exits: bool,
    /// Whether only circuits are kept that began after tor had computed its timeout.
    pub exclude_cbt: bool,
}

impl CircuitFilter {
    /// Marks the circuits of a document that are not kept, and adds the filter to its list; returns
    /// the number of circuits that are marked now.
    ///
    /// # Errors
    /// The problem with the document, if it is not an analysis file of a known version.
    pub fn apply(&self, analysis: &mut Value) -> Result<u64, String> {
        let has_data = analysis.get("data").is_some_and(Value::is_object);
        let scalar = |key: &str| Scalar::deserialize(analysis.get(key)?).ok();
        check(scalar("type").as_ref(), scalar("version").as_ref(), has_data)?;
        let lists =
            [("include_fingerprints", &self.include), ("exclude_fingerprints", &self.exclude)];
        for (name, list) in lists {
            if let Some(list) = list {
                note(analysis, json!({ "name": name, "filepath": list.path }))?;
            }
        }
        if self.exclude_cbt {
            note(analysis, json!({ "name": "exclude_cbt" }))?;
        }
        // The first version that has filters.
        analysis["version"] = "5.0".into();
        let mut marked = 0;
        let hosts = analysis["data"].as_object_mut().into_iter().flatten();
        for (_, host) in hosts {
            let circuits = host.pointer_mut("/tor/circuits").and_then(Value::as_object_mut);
            for (_, circuit) in circuits.into_iter().flatten() {
                if circuit.is_object() && !self.keeps(circuit) {
                    circuit["filtered_out"] = true.into();
                }
                marked += u64::from(circuit["filtered_out"] == true);
            }
        }
        Ok(marked)
    }

    /// Whether a circuit is kept.
    fn keeps(&self, circuit: &Value) -> bool {
        let path = circuit.get("path").and_then(Value::as_array);
        // OnionPerf keeps circuits whose path is empty. Here nobody knows their relays.
        let Some(path) = path.filter(|path| !path.is_empty()) else { return false };
        let ids = path.iter().filter_map(|hop| hop.get(0)?.as_str());
        let ids: Vec<String> = ids.map(|name| fingerprint(name).to_ascii_uppercase()).collect();
        let looks_at_all = !self.guards && !self.exits;
        let is_looked_at =
            |at: usize| looks_at_all || self.guards && at == 0 || self.exits && at + 1 == ids.len();
        let mut looked_at = ids.iter().enumerate().filter(|(at, _)| is_looked_at(*at));
        let is_good = |id: &String| {
            self.include.as_ref().is_none_or(|list| list.ids.contains(id))
                && self.exclude.as_ref().is_none_or(|list| !list.ids.contains(id))
        };
        let has_cbt = circuit.get("cbt_set").and_then(Value::as_bool) == Some(true);
        looked_at.all(|(_, id)| is_good(id)) && (has_cbt || !self.exclude_cbt)
    }
}

/// Adds a filter to a document's list.
fn note(analysis: &mut Value, filter: Value) -> Result<(), String> {
    let document = analysis.as_object_mut().ok_or("it is not an object")?;
    let filters = document.entry("filters").or_insert_with(|| json!({}));
    let filters = filters.as_object_mut().ok_or("\"filters\" is not an object")?;
    let list = filters.entry("tor/circuits").or_insert_with(|| json!([]));
    list.as_array_mut().ok_or("\"tor/circuits\" is not a list")?.push(filter);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the circuits that a filter marks.
    fn marked(filter: &CircuitFilter) -> Vec<String> {
        let (a, b, c) = ("A".repeat(40), "B".repeat(40), "C".repeat(40));
        let path = |ids: &[&String]| -> Value {
            ids.iter().map(|id| json!([format!("${id}~x"), 1.0])).collect()
        };
        let mut analysis = json!({ "type": "onionperf", "version": "4.0", "data": { "h": { "tor": { "circuits": {
            "1": { "path": path(&[&a, &b, &c]), "cbt_set": true },
            "2": { "path": path(&[&b, &c, &a]), "cbt_set": false },
            "3": { "path": path(&[&c, &c, &c]) },
            "4": {},
            "5": { "path": [] },
        } } } } });
        let count = filter.apply(&mut analysis).expect("an analysis file");
        assert_eq!(analysis["version"], "5.0");
        let circuits = analysis["data"]["h"]["tor"]["circuits"].as_object().expect("circuits");
        let marked = circuits.iter().filter(|(_, circuit)| circuit["filtered_out"] == true);
        let marked: Vec<String> = marked.map(|(id, _)| id.clone()).collect();
        assert_eq!(marked.len() as u64, count);
        assert!(analysis["filters"]["tor/circuits"].as_array().is_some_and(|all| !all.is_empty()));
        marked
    }

    #[test]
    fn circuits_are_marked_by_their_relays() {
        let list = |ids: &[&str]| {
            let ids = ids.iter().map(|id| id.repeat(40)).collect();
            Some(RelayList { path: "f".to_owned(), ids })
        };
        let none = CircuitFilter::default;
        let include = CircuitFilter { include: list(&["B", "C"]), ..none() };
        assert_eq!(marked(&include), ["1", "2", "4", "5"]);
        assert_eq!(marked(&CircuitFilter { guards: true, ..include.clone() }), ["1", "4", "5"]);
        assert_eq!(marked(&CircuitFilter { exits: true, ..include }), ["2", "4", "5"]);
        let exclude = CircuitFilter { exclude: list(&["A"]), ..none() };
        assert_eq!(marked(&exclude), ["1", "2", "4", "5"]);
        assert_eq!(marked(&CircuitFilter { exits: true, ..exclude }), ["2", "4", "5"]);
        assert_eq!(marked(&CircuitFilter { exclude_cbt: true, ..none() }), ["2", "3", "4", "5"]);
    }

    #[test]
    fn what_is_no_analysis_file_is_refused() {
        for (odd, said) in [
            (json!([]), "not an analysis file"),
            (json!({ "type": "onionperf", "version": "6.0", "data": {} }), "version"),
            (json!({ "type": "onionperf", "version": "3.0", "data": {}, "filters": 1 }), "filters"),
        ] {
            let filter = CircuitFilter { exclude_cbt: true, ..CircuitFilter::default() };
            let error = filter.apply(&mut odd.clone()).expect_err(said);
            assert!(error.contains(said), "{error}");
        }
    }
}
