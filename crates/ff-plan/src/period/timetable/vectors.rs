//! Compares with the results of a second implementation, in Python, for the same inputs
//! (PROTOCOL.md §11).

use ff_proto::params::Params;
use serde_json::Value;

use super::*;
use crate::period::Measurer;
use crate::period::schedule::Shortage;

/// Bytes of hexadecimal digits.
fn bytes<const N: usize>(value: &Value) -> [u8; N] {
    let all = hex::decode(text(value)).expect("hexadecimal digits");
    all.try_into().expect("the right length")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

fn whole<N: TryFrom<u64>>(value: &Value) -> N {
    let number = value.as_u64().unwrap_or_else(|| panic!("{value} is not a number"));
    N::try_from(number).unwrap_or_else(|_| panic!("{number} is too great"))
}

fn list<T>(value: &Value, of: impl FnMut(&Value) -> T) -> Vec<T> {
    value.as_array().unwrap_or_else(|| panic!("{value} is no list")).iter().map(of).collect()
}

fn relay(value: &Value) -> ScheduledRelay {
    ScheduledRelay {
        fingerprint: bytes(&value["fingerprint"]),
        estimate: value["estimate"].as_u64().map(BytesPerSec::new),
        addresses: list(&value["addresses"], |address| text(address).parse().expect("an address")),
        family: list(&value["family"], bytes),
        family_ids: list(&value["family_ids"], |id| text(id).to_owned()),
        tied_to: Vec::new(),
    }
}

/// A coordinator with its measurers.
fn team(value: &Value) -> Team {
    let measurer = |capacity: &Value| Measurer {
        name: String::new(),
        capacity: BytesPerSec::new(whole(capacity)),
    };
    Team {
        coordinator: bytes(&value["coordinator"]),
        measurers: list(&value["measurers"], measurer),
    }
}

/// Applies an event.
fn happen(timetable: &mut Timetable, event: &Value) {
    if event.get("add").is_some() {
        timetable.add(list(&event["add"], relay), whole(&event["from_slot"]));
    } else if let Some(gone) = event.get("gone") {
        timetable.vanish(&bytes(gone), whole(&event["from_slot"]));
    } else {
        let z = event["measured"].as_u64().map(BytesPerSec::new);
        let measured = [(bytes(&event["again"]), z)];
        let retry = timetable.retry(whole(&event["team"]), &measured, whole(&event["now"]), 1);
        let slot = event["slot"].as_u64().map(|_| whole(&event["slot"]));
        assert_eq!(retry.as_ref().ok().map(|retry| retry.slot), slot, "{event}: {retry:?}");
    }
}

/// All assignments in the form of the vectors.
fn rows(timetable: &Timetable) -> Vec<Value> {
    let teams = 0..timetable.teams().len();
    let slots = 0..timetable.schedule().slots();
    let all = teams.flat_map(|team| slots.clone().map(move |slot| (team, slot)));
    all.flat_map(|(team, slot)| {
        timetable.assignments(team, slot).into_iter().map(move |assignment| {
            let name = hex::encode(timetable.relays()[assignment.relay as usize].fingerprint);
            let shares = assignment.shares.iter();
            let shares: Vec<_> = shares.map(|share| (share.measurer, share.rate.get())).collect();
            serde_json::json!([team, slot, name, shares])
        })
    })
    .collect()
}

/// Relays that need more than they can have, in the form of the vectors.
fn short(timetable: &Timetable, relays: &[Shortage], has_given: bool) -> Vec<Value> {
    let row = |short: &Shortage| {
        let name = hex::encode(timetable.relays()[short.relay as usize].fingerprint);
        match has_given {
            true => serde_json::json!([name, short.needs.get(), short.given.get()]),
            false => serde_json::json!([name, short.needs.get()]),
        }
    };
    let mut rows: Vec<_> = relays.iter().map(row).collect();
    rows.sort_by_key(|row| text(&row[0]).to_owned());
    rows
}

#[test]
fn a_second_implementation_comes_to_the_same_timetable() {
    let vectors: Value =
        serde_json::from_str(include_str!("../../../tests/schedule-vectors.json")).expect("JSON");
    for case in vectors["cases"].as_array().expect("cases") {
        let rules = ScheduleRules {
            teams: list(&case["teams"], team),
            slots: whole(&case["slots"]),
            seed: bytes(&case["seed"]),
            new_guess: BytesPerSec::new(whole(&case["new_guess"])),
            params: Params::PAPER,
        };
        let mut timetable = Timetable::new(list(&case["relays"], relay), rules);
        for event in case["events"].as_array().expect("events") {
            happen(&mut timetable, event);
        }
        let schedule = timetable.schedule();
        assert_eq!(Value::from(short(&timetable, schedule.too_fast(), false)), case["too_fast"]);
        assert_eq!(Value::from(short(&timetable, schedule.capped(), true)), case["capped"]);
        let (rows, expected) = (rows(&timetable), case["rows"].as_array().expect("rows"));
        for (row, expected) in rows.iter().zip(expected) {
            assert_eq!(row, expected);
        }
        assert_eq!(rows.len(), expected.len());
    }
    let derived = &vectors["seed"];
    let seed = crate::period::seed::of_period(
        &bytes(&derived["shared_random"]),
        &hex::decode(text(&derived["secret"])).expect("hexadecimal digits"),
        whole(&derived["period"]),
    );
    assert_eq!(hex::encode(*seed), derived["seed"]);
}
