//! Tests of the folder of a run, on a disk.

use super::run_options::OPTIONS;
use super::*;

pub(super) fn options() -> CircuitRunOptions {
    CircuitRunOptions {
        client: ff_circuits::record::Client::Arti,
        seed: 1,
        path_file: None,
        rules: Some("tor".to_owned()),
        arms_sha256: Vec::new(),
        rtt: 5,
        rtt_pause_ms: 0,
        ttfb: 0,
        latency: None,
        download_bytes: 0,
        download_share: 0.0,
        download_mix: None,
        download_secs: None,
        setting: Some(Setting {
            paths_sha256: Some("ab".to_owned()),
            network: PathBuf::from("/a"),
            target: None,
            resolve: 0,
            build_secs: 60,
            trip_secs: 15,
            share_builds: false,
            share_probes: false,
            as_client: false,
        }),
        pace: Some(Pace { in_flight: 10, per_sec: 1.5, per_guard_per_sec: 2.0 }),
    }
}

pub(super) fn circuit(number: u64) -> CircuitRecord {
    let line = format!(
        r#"{{"schema":1,"number":{number},"client":"arti","began_unix_secs":0.0,"began_us":0,"path":[],"ended_us":9}}"#
    );
    serde_json::from_str(&line).expect("a circuit")
}

#[test]
fn a_run_goes_on_behind_its_last_whole_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let Opened { mut store, done, .. } =
        Store::open(dir.path(), &options(), false).expect("a store");
    assert!(done.is_empty());
    assert!(matches!(Store::open(dir.path(), &options(), true), Err(StoreError::Busy(_))));
    store.add(&circuit(3)).expect("a line");
    store.add(&circuit(5)).expect("a line");
    store.finish().expect("kept");
    drop(store);
    let path = dir.path().join(LINES);
    let whole = fs::read(&path).expect("lines");
    fs::write(&path, [&whole[..], b"{\"schema\":1,\"num"].concat()).expect("half a line");

    assert!(matches!(Store::open(dir.path(), &options(), false), Err(StoreError::Occupied(_))));
    let other = CircuitRunOptions { seed: 2, ..options() };
    assert!(matches!(Store::open(dir.path(), &other, true), Err(StoreError::Other { .. })));
    let Opened { done, note, .. } = Store::open(dir.path(), &options(), true).expect("a store");
    assert_eq!((done, note), (HashSet::from([3, 5]), None));
    assert_eq!(fs::read(&path).expect("lines"), whole);
}

#[test]
fn lines_of_a_run_have_one_name_and_those_of_the_next_another() {
    let dir = tempfile::tempdir().expect("a directory");
    for numbers in [[0, 1], [2, 3]] {
        let Opened { mut store, .. } =
            Store::open(dir.path(), &options(), numbers[0] > 0).expect("a store");
        numbers.iter().for_each(|number| store.add(&circuit(*number)).expect("a line"));
    }
    let text = fs::read_to_string(dir.path().join(LINES)).expect("lines");
    let name = |line| serde_json::from_str::<CircuitRecord>(line).expect("a line").run_unix_secs;
    let names: Vec<_> = text.lines().map(name).collect();
    assert!(names[0].is_some() && names[0] == names[1], "{names:?}");
    assert!(names[2].is_some() && names[2] == names[3] && names[2] != names[0], "{names:?}");
}

#[test]
fn what_differs_from_the_first_run_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let begin = |options: &CircuitRunOptions| {
        write_options(dir.path(), options).expect("options");
        fs::write(dir.path().join(LINES), "{\"number\":1}\n").expect("lines");
    };
    let go_on = |options: &CircuitRunOptions| {
        let opened = Store::open(dir.path(), options, true);
        opened.map(|opened| opened.note).map_err(|error| error.to_string())
    };
    begin(&options());
    let setting = options().setting.expect("a setting");
    let target = Some("http://b/".to_owned());
    let paths_sha256 = Some("cd".to_owned());
    let other = Setting { target, network: PathBuf::from("/b"), paths_sha256, ..setting };
    let error = go_on(&CircuitRunOptions { setting: Some(other.clone()), seed: 2, ..options() });
    let error = error.expect_err("another network");
    for part in [
        "run.json",
        "network \"/b\" instead of \"/a\"",
        "target \"http://b/\" instead of null",
        "paths_sha256 \"cd\" instead of \"ab\"",
        "seed 2 instead of 1",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(!error.contains("resolve"), "only what differs: {error}");
    let pace = Some(Pace { in_flight: 3, per_sec: 1.5, per_guard_per_sec: 2.0 });
    let slower = CircuitRunOptions { pace, ..options() };
    let note = go_on(&slower).expect("the same circuits").expect("a note");
    assert!(note.ends_with("continues with in_flight 3 instead of 10"), "{note}");
    // A file of an older version has no setting and no pace; from now on it has.
    begin(&CircuitRunOptions { setting: None, pace: None, ..options() });
    assert_eq!(go_on(&options()), Ok(None));
    go_on(&CircuitRunOptions { setting: Some(other), ..options() }).expect_err("another network");
    // A version without digests.
    let setting = options().setting.expect("a setting");
    begin(&CircuitRunOptions {
        setting: Some(Setting { paths_sha256: None, ..setting.clone() }),
        ..options()
    });
    assert_eq!(go_on(&options()), Ok(None));
    let other = Setting { paths_sha256: Some("cd".to_owned()), ..setting };
    let error =
        go_on(&CircuitRunOptions { setting: Some(other), ..options() }).expect_err("other paths");
    assert!(error.contains("paths_sha256 \"cd\" instead of \"ab\""), "{error}");
}

#[test]
fn a_line_that_is_no_circuit_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    drop(Store::open(dir.path(), &options(), false).expect("a store"));
    fs::write(dir.path().join(LINES), "{\"number\":1}\nx\n").expect("lines");
    let error = Store::open(dir.path(), &options(), true).expect_err("a bad line").to_string();
    assert!(error.contains("circuits-000.jsonl, line 2"), "{error}");
}

#[test]
fn options_that_cannot_be_read_are_named() {
    let dir = tempfile::tempdir().expect("a directory");
    drop(Store::open(dir.path(), &options(), false).expect("a store"));
    fs::write(dir.path().join(LINES), "{\"number\":1}\n").expect("lines");
    for (odd, said) in [
        ("{\n\"seed\":-1}".to_owned(), "run.json, line 2: these are not a run's options"),
        (" ".repeat(70_000), "longer than 65536 bytes"),
    ] {
        fs::write(dir.path().join(OPTIONS), odd).expect("a file");
        let error = Store::open(dir.path(), &options(), true).expect_err("odd").to_string();
        assert!(error.contains("run.json") && error.contains(said), "{error}");
    }
}

#[test]
fn what_another_program_does_to_the_file_costs_no_whole_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, moved) = (dir.path().join(LINES), dir.path().join("moved"));
    let numbers = |path: &Path| {
        let text = fs::read_to_string(path).expect("lines");
        let number =
            |line| serde_json::from_str::<CircuitRecord>(line).expect("a whole line").number;
        text.lines().map(number).collect::<Vec<_>>()
    };
    let opened = Store::open(dir.path(), &options(), false).expect("a store");
    let mut add = {
        let mut store = opened.store;
        move |number| store.add(&circuit(number)).expect("a line")
    };
    add(0);
    // Another program writes an incomplete line.
    let mut other = OpenOptions::new().append(true).open(&path).expect("the file");
    other.write_all(b"{\"schema\":1,\"num").expect("half a line");
    add(1);
    assert_eq!(numbers(&path), [0, 1]);
    other.set_len(9).expect("shorter");
    add(2);
    assert_eq!(numbers(&path), [2]);
    fs::rename(&path, &moved).expect("another name");
    add(3);
    assert_eq!((numbers(&path), numbers(&moved)), (vec![3], vec![2]));
    fs::remove_file(&path).expect("gone");
    add(4);
    assert_eq!(numbers(&path), [4]);
}

#[test]
fn a_full_disk_is_an_error_that_names_the_file() {
    let file = OpenOptions::new().append(true).open("/dev/full").expect("/dev/full");
    let mut store = Store {
        path: PathBuf::from("/dev/full"),
        file,
        length: 0,
        run_unix_secs: 0.0,
        _lock: None,
    };
    let error = store.add(&circuit(1)).expect_err("no space").to_string();
    assert!(error.contains("/dev/full"), "{error}");
}
