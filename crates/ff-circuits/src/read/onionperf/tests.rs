use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// A file with a circuit of three relays that was used, one that was given up, one that was
/// filtered out and one for an onion service.
const FILE: &str = r#"{"type": "onionperf", "version": "4.0", "data": {"op-x": {"measurement_ip": "unknown",
    "tor": {"circuits": {
        "100": {"circuit_id": 100, "buildtime_seconds": 1.5, "unix_ts_start": 20.0, "unix_ts_end": 99.0, "elapsed_seconds": [["GENERAL:LAUNCHED", 0.0], ["GENERAL:BUILT", 1.5]], "path": [["$AAAA~one", 0.5], ["$BBBB~two", 1.0], ["$CCCC~three", 1.5]]},
        "99": {"circuit_id": 99, "unix_ts_start": 10.0, "unix_ts_end": 13.0, "elapsed_seconds": [["GENERAL:LAUNCHED", 0.0], ["GENERAL:FAILED", 3.0]], "failure_reason_local": "TIMEOUT", "path": [["$AAAA~one", 0.5]]},
        "97": {"circuit_id": 97, "unix_ts_start": 9.0, "buildtime_seconds": 1.0, "elapsed_seconds": [["HS_CLIENT_REND:LAUNCHED", 0.0], ["HS_CLIENT_REND:BUILT", 1.0]], "path": [["$AAAA~one", 0.2], ["$BBBB~two", 0.5], ["$DDDD~four", 1.0]]},
        "98": {"circuit_id": 98, "unix_ts_start": 10.0, "filtered_out": true, "buildtime_seconds": 1.0}},
      "streams": {"7": {"circuit_id": "100", "source": "127.0.0.1:36176", "stream_id": 7}}},
    "tgen": {"streams": {"s": {"is_success": true, "transport_info": {"local": "localhost:127.0.0.1:36176"},
        "byte_info": {"payload-bytes-recv": "5000000"},
        "time_info": {"usecs-to-proxy-request": "1000", "usecs-to-first-byte-recv": "401000", "usecs-to-last-byte-recv": "4401000"}}}}}}}"#;

fn read_text(text: &[u8]) -> Result<Circuits, ReadError> {
    let mut circuits = Circuits::default();
    read("f.json", text, &mut circuits).map(|()| circuits)
}

#[test]
fn circuits_come_with_what_their_downloads_took() {
    let found = read_text(FILE.as_bytes()).expect("circuits");
    let [given_up, built] = &found.all[..] else { panic!("two: {found:?}") };
    assert_eq!(
        (given_up.hops, given_up.build_ms, given_up.given_up_ms),
        (None, None, Some(3000.0))
    );
    assert_eq!((built.hops, built.build_ms, built.given_up_ms), (Some(3), Some(1500.0), None));
    let near = |value: Option<f64>, expected: f64| (value.expect("one") - expected).abs() < 1e-9;
    assert!(near(built.ttfb_ms, 400.0) && near(built.mbit_per_sec, 10.0), "{built:?}");
    assert_eq!(found.relays, ["AAAA", "BBBB", "CCCC"]);
    assert_eq!(found.left_out, 2);
    assert_eq!(
        (found.hosts.as_slice(), built.path.as_slice()),
        (&["op-x".to_owned()][..], &[0, 1, 2][..])
    );
}

#[test]
fn records_of_a_kind_have_a_bound_and_the_others_are_read() {
    let (begin, end) = FILE.split_once(r#""streams": {"7""#).expect("tor's streams");
    let (_, end) = end.split_once("}},").expect("their end");
    let streams = r#""":0,"#.repeat(4_000_000);
    let text = format!(r#"{begin}"streams": {{{streams}"":0}}}},{end}"#);
    let found = read_text(text.as_bytes()).expect("circuits");
    assert_eq!((found.all.len(), found.damaged.count), (2, 1));
    let first = found.damaged.first.first().expect("one");
    assert!(first.contains("more than 4000000 records"), "{first}");
}

/// Values of JSON would be built in 32 bytes each; of a number out of range that is an error, by
/// which it is noticed here.
#[test]
fn lists_that_are_not_read_are_skipped_and_not_built() {
    let zeros = format!("[1e999,{}0]", "0,".repeat(1_000_000));
    let filters = FILE.replace(r#""version""#, &format!(r#""filters": {zeros}, "version""#));
    assert_eq!(read_text(filters.as_bytes()).expect("circuits").all.len(), 2);
    let info = FILE.replace(r#""byte_info": {"#, &format!(r#""byte_info": {{"x": {zeros},"#));
    let found = read_text(info.as_bytes()).expect("circuits");
    assert_eq!((found.all.len(), found.damaged.count), (2, 0));
    let path = FILE.replacen(r#""path": [["#, &format!(r#""path": {zeros}, "x": [["#), 1);
    assert_eq!(read_text(path.as_bytes()).expect("circuits").damaged.count, 1);
}

#[test]
fn a_file_that_is_far_longer_than_a_day_is_refused() {
    let error = read_text(&vec![b' '; (256 << 20) + 1]).expect_err("too long").to_string();
    assert!(error.contains("f.json") && error.contains("256 MiB"), "{error}");
}

#[test]
fn downloads_of_versions_before_3_are_read_too() {
    // As OnionPerf wrote until 2020: the first payload byte of a failed transfer is at 0.
    let transfers = r#""transfers": {"transfer5m:1": {"transfer_id": "transfer5m:1", "is_success": true, "is_error": false,
        "endpoint_local": "localhost:127.0.0.1:36176", "filesize_bytes": 5000000, "total_bytes_read": 5000090,
        "elapsed_seconds": {"socket_create": 2e-06, "proxy_request": 0.001, "proxy_response": 0.3, "command": 0.31,
            "response": 0.39, "first_byte": 0.401, "last_byte": 4.401, "payload_progress": {"0.0": 0.4}}},
      "transfer5m:2": {"is_success": false, "endpoint_local": "localhost:127.0.0.1:36177",
        "elapsed_seconds": {"proxy_request": 0.01, "first_byte": 0.0, "last_byte": 0.0}}}, "transfers_summary": {}"#;
    let (begin, _) = FILE.split_once(r#""streams": {"s""#).expect("downloads");
    for version in ["1.0", "\"2.0\""] {
        let text = format!("{begin}{transfers}}}}}}}}}").replace("\"4.0\"", version);
        let found = read_text(text.as_bytes()).expect("circuits");
        let [_, built] = &found.all[..] else { panic!("two: {found:?}") };
        let near =
            |value: Option<f64>, expected: f64| (value.expect("one") - expected).abs() < 1e-9;
        assert!(near(built.ttfb_ms, 400.0) && near(built.mbit_per_sec, 10.0), "{built:?}");
    }
}

#[test]
fn of_records_with_the_same_name_the_last_is_read_and_the_others_are_counted() {
    // Python's json reads the last value with a name.
    let again = r#""circuits": {
        "100": {"buildtime_seconds": 9.0, "unix_ts_start": 20.0, "path": []},"#;
    let text = FILE.replace(r#""circuits": {"#, again);
    let found = read_text(text.as_bytes()).expect("circuits");
    assert_eq!((found.all.len(), found.damaged.count), (2, 1));
    assert_eq!(found.all[1].build_ms, Some(1500.0));
    let named = "f.json, op-x, circuit 100: another record has the same name; the last one is read";
    assert_eq!(found.damaged.first, [named]);
    // A whole host.
    let text = FILE.replace(r#""data": {"#, r#""data": {"op-x": {}, "op-x": {"tor": {}}, "#);
    let found = read_text(text.as_bytes()).expect("circuits");
    assert_eq!((found.all.len(), found.damaged.count), (2, 2));
    assert!(found.damaged.first[0].starts_with("f.json, op-x: another record"), "{found:?}");
    // A name that the reader itself uses.
    let text = FILE.replace(
        r#""unix_ts_start": 10.0, "unix_ts_end": 13.0"#,
        r#""unix_ts_start": 1.0, "unix_ts_start": 10.0"#,
    );
    let found = read_text(text.as_bytes()).expect("circuits");
    assert_eq!((found.all.len(), found.damaged.count), (1, 1));
    assert!(found.damaged.first[0].contains("duplicate field `unix_ts_start`"), "{found:?}");
}

#[test]
fn versions_from_1_to_5_are_read_and_others_are_not() {
    for version in ["\"1.0\"", "1.0", "\"2.0\"", "\"3.1\"", "\"5.0\""] {
        let text = FILE.replace("\"4.0\"", version);
        assert_eq!(read_text(text.as_bytes()).expect(version).all.len(), 2);
    }
    for version in ["\"6.0\"", "0.9", "\"x\"", "null"] {
        let error = read_text(FILE.replace("\"4.0\"", version).as_bytes()).expect_err(version);
        assert!(error.to_string().starts_with("f.json: its version is not"), "{error}");
    }
    for odd in [FILE.replace("onionperf", "torperf"), "{}".to_owned(), FILE[..300].to_owned()] {
        let error = read_text(odd.as_bytes()).expect_err("odd");
        assert!(error.to_string().contains("f.json: this is not an analysis file"), "{error}");
    }
}

/// A file in OnionPerf's format of forty circuits, each with one download, five minutes apart;
/// download i has its first byte after 0.1 · i s and this local port.
fn forty(port: impl Fn(u32) -> u32) -> Value {
    let (mut circuits, mut streams, mut downloads) = (json!({}), json!({}), json!({}));
    for i in 1..=40_u32 {
        let (end, ttfb) = (1.7e9 + 300.0 * f64::from(i), 100_000 * i);
        let path: Vec<_> =
            (0..3).map(|hop| json!([format!("${:040X}~r", 3 * i + hop), 0.3])).collect();
        circuits[i.to_string()] = json!({
            "circuit_id": i, "buildtime_seconds": 1.0, "unix_ts_start": end - 60.0, "path": path,
            "elapsed_seconds": [["GENERAL:LAUNCHED", 0.0], ["GENERAL:BUILT", 1.0]],
        });
        streams[(1000 + i).to_string()] = json!({
            "circuit_id": i.to_string(), "source": format!("127.0.0.1:{}", port(i)), "unix_ts_end": end + 0.01,
        });
        downloads[format!("{i:05}")] = json!({
            "is_success": true, "unix_ts_end": end, "byte_info": {"payload-bytes-recv": "5242880"},
            "time_info": {"usecs-to-proxy-request": "1000", "usecs-to-first-byte-recv": (1000 + ttfb).to_string(),
                "usecs-to-last-byte-recv": (4_001_000 + ttfb).to_string()},
            "transport_info": {"local": format!("localhost:127.0.0.1:{}", port(i))},
        });
    }
    json!({"type": "onionperf", "version": "3.0", "data": {"op-a": {
        "tor": {"circuits": circuits, "streams": streams}, "tgen": {"streams": downloads}}}})
}

/// Times to first byte in ms, rounded, in the order of circuits.
fn first_bytes(found: &Circuits) -> Vec<String> {
    found.all.iter().filter_map(|seen| seen.ttfb_ms).map(|ms| format!("{ms:.0}")).collect()
}

#[test]
fn a_port_that_is_used_again_belongs_to_the_stream_that_ended_with_the_download() {
    let all: Vec<_> = (1..=40).map(|i| (100 * i).to_string()).collect();
    for ports in [40, 20, 1] {
        let found = read_text(forty(|i| 30_000 + i % ports).to_string().as_bytes());
        assert_eq!(first_bytes(&found.expect("circuits")), all, "{ports} ports");
    }
    // Of two downloads near one stream, the nearer one uses it.
    let mut two = forty(|_| 30_000);
    let data = &mut two["data"]["op-a"];
    data["tor"]["streams"].as_object_mut().expect("streams").remove("1008");
    for (name, secs) in [("00007", 0.0), ("00008", 100.0)] {
        data["tgen"]["streams"][name]["unix_ts_end"] = json!(1.7e9 + 300.0 * 7.0 + secs);
    }
    let found = read_text(two.to_string().as_bytes()).expect("circuits");
    let without_8: Vec<_> = all.iter().filter(|ms| *ms != "800").cloned().collect();
    assert_eq!(first_bytes(&found), without_8);
    let mut late = forty(|i| 30_000 + i);
    let end = &mut late["data"]["op-a"]["tor"]["streams"]["1007"]["unix_ts_end"];
    *end = json!(end.as_f64().expect("a time") + 150.0);
    let found = read_text(late.to_string().as_bytes()).expect("circuits");
    assert_eq!(first_bytes(&found).len(), 39, "its stream ended at another time");
}

#[test]
fn a_number_of_a_circuit_may_have_a_fraction_of_zero() {
    let whole = forty(|i| 30_000 + i).to_string();
    let changed = whole.replacen(r#""circuit_id":"7""#, r#""circuit_id":7.0"#, 1);
    assert_ne!(whole, changed);
    assert_eq!(first_bytes(&read_text(changed.as_bytes()).expect("circuits")).len(), 40);
}

#[test]
fn a_record_that_cannot_be_read_costs_no_other_and_is_named() {
    let whole = forty(|i| 30_000 + i).to_string();
    let host = |name: &str, from: &str, to: &str| {
        assert!(whole.contains(from), "{name}: {from}");
        read_text(whole.replacen(from, to, 1).as_bytes())
            .unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    // The first of the forty, by name.
    let build = r#""buildtime_seconds":1.0"#;
    for (name, from, to, circuits, downloads, damaged) in [
        ("NaN", build, r#""buildtime_seconds":NaN"#, 39, 39, Some("circuit 1:")),
        ("-Infinity", build, r#""buildtime_seconds":-Infinity"#, 39, 39, Some("circuit 1:")),
        ("not used", build, r#""other":Infinity,"buildtime_seconds":1.0"#, 40, 40, None),
        ("null", build, r#""buildtime_seconds":null"#, 40, 40, None),
        ("hop", ",0.3]", ",null]", 39, 39, Some("circuit 1:")),
        (
            "events",
            r#""elapsed_seconds":[["GENERAL:LAUNCHED",0.0],["GENERAL:BUILT",1.0]]"#,
            r#""elapsed_seconds":null"#,
            40,
            40,
            None,
        ),
        ("success", r#""is_success":true"#, r#""is_success":null"#, 40, 39, Some("stream 00001:")),
        (
            "end",
            r#""unix_ts_end":1700000300.0"#,
            r#""unix_ts_end":NaN"#,
            40,
            39,
            Some("stream 00001:"),
        ),
    ] {
        let found = host(name, from, to);
        assert_eq!((found.all.len(), first_bytes(&found).len()), (circuits, downloads), "{name}");
        assert_eq!(found.damaged.count, u64::from(damaged.is_some()), "{name}");
        let said = found.damaged.first.first().map(String::as_str).unwrap_or_default();
        assert!(
            damaged.is_none_or(|what| said.starts_with(&format!("f.json, op-a, {what}"))),
            "{name}: {said}"
        );
    }
    let none = whole.replacen(r#""circuits":{"1""#, r#""circuits":null,"c":{"1""#, 1);
    assert_eq!(read_text(none.as_bytes()).expect("nothing").all.len(), 0);
}

#[test]
fn a_part_of_a_host_that_cannot_be_read_costs_no_other_host() {
    let host = forty(|i| 30_000 + i)["data"]["op-a"].to_string();
    let [no_tgen, no_tor] = ["tgen", "tor"].map(|part| {
        host.replacen(&format!(r#""{part}":{{"#), &format!(r#""{part}":NaN,"other":{{"#), 1)
    });
    let text = |other: &str| {
        format!(r#"{{"type":"onionperf","version":"3.0","data":{{"op-a":{host},"op-b":{other}}}}}"#)
    };
    for (other, circuits, damaged) in [
        (r#"{"tor": NaN}"#, 40, Some("tor")),
        (r#"{"tor": [], "tgen": null}"#, 40, Some("tor")),
        (r#"{"tor": null}"#, 40, None),
        ("NaN", 40, Some("record")),
        ("null", 40, Some("record")),
        (r#"{"tor": {"circuits": -Infinity}}"#, 40, Some("circuits")),
        (r#"{"tor": {"streams": 1}}"#, 40, Some("tor's streams")),
        (r#"{"tgen": Infinity}"#, 40, Some("tgen")),
        (r#"{"tgen": {"transfers": "x"}}"#, 40, Some("transfers")),
        (&no_tgen[..], 80, Some("tgen")),
        (&no_tor[..], 40, Some("tor")),
    ] {
        let found = read_text(text(other).as_bytes()).expect("circuits");
        assert_eq!((found.all.len(), first_bytes(&found).len()), (circuits, 40), "{damaged:?}");
        assert_eq!(found.damaged.count, u64::from(damaged.is_some()), "{:?}", found.damaged);
        let said = found.damaged.first.first().map(String::as_str).unwrap_or_default();
        let expected = damaged.map(|what| format!("f.json, op-b, {what}: ")).unwrap_or_default();
        assert!(said.starts_with(&expected), "{said}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_circuits_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = read_text(&bytes);
    }

    #[test]
    fn changed_files_are_circuits_or_an_error(at in 0..FILE.len(), byte in any::<u8>()) {
        let mut bytes = FILE.as_bytes().to_vec();
        bytes[at] = byte;
        if let Ok(found) = read_text(&bytes) {
            for one in &found.all {
                prop_assert!(one.build_ms.is_none_or(|ms| ms.is_finite() && ms >= 0.0));
                prop_assert!(one.path.iter().all(|place| (*place as usize) < found.relays.len()));
            }
        }
    }
}
