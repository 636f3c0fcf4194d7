//! `ff-perf circuits run` on a private network, as users run it.

use std::collections::HashSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ff_circuits::record::{CircuitRecord, Client, Probe, Stage, Whose};
use ff_lab::Network;

use crate::lost;
use crate::serve::signal;

/// Options that make a circuit wait for tors short of CPU time.
pub(crate) const PATIENT: &str = "--build-time 300 --trip-time 300";

/// The command; options are separated by spaces.
fn command(network: &Path, out: &Path, options: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ff-perf"));
    command.args(["circuits", "run", "--network"]).arg(network).arg("--out").arg(out);
    command.args(options.split_whitespace()).args(PATIENT.split(' '));
    command
}

/// Runs the command; repeats it in a new folder if a relay closes one of its circuits as idle.
fn run(network: &Path, out: &Path, options: &str) -> Output {
    let is_new = !out.join(LINES).exists();
    for _ in 0..5 {
        let output = command(network, out, options).output().expect("the program");
        if !(is_new && forget_if_idle(out)) {
            return output;
        }
    }
    panic!("relays find new circuits idle, again and again");
}

/// File of the circuits.
const LINES: &str = "circuits-000.jsonl";

/// Lines of a run.
pub(crate) fn lines(out: &Path) -> Vec<CircuitRecord> {
    let text = fs::read_to_string(out.join(LINES)).expect("lines");
    text.lines().map(|line| serde_json::from_str(line).expect("a circuit")).collect()
}

/// Removes a folder if one of its circuits was closed as idle while it was built.
///
/// A relay closes a circuit as finished if it arrives in the second of its check for idle circuits
/// and the relay has written nothing on that link yet (`circuit_expire_old_circuits_serverside` of
/// tor 0.4.9). Arti reports no reason if the circuit has not been created yet.
pub(crate) fn forget_if_idle(out: &Path) -> bool {
    let is_idle = |circuit: &CircuitRecord| {
        circuit.failure.as_ref().is_some_and(|failure| {
            (failure.stage, failure.hop) == (Stage::Build, Some(1))
                && (failure.reason == "finished"
                    || failure.reason.contains("replied to CREATE2 with DESTROY"))
        })
    };
    let is_any = out.join(LINES).exists() && lines(out).iter().any(is_idle);
    if is_any {
        eprintln!("a relay has found a new circuit idle; once more: {:?}", lines(out));
        fs::remove_dir_all(out).expect("a folder");
    }
    is_any
}

/// Runs the command to its end; returns its directory and lines.
fn run_whole(network: &Network, options: &str) -> (tempfile::TempDir, Vec<CircuitRecord>) {
    let dir = tempfile::tempdir().expect("a directory");
    let output = run(network.dir(), dir.path(), options);
    assert!(output.status.success(), "{output:?}");
    let circuits = lines(dir.path());
    (dir, circuits)
}

/// Standard error of a run with exit status 1.
pub(crate) fn error(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Checks that no relay is in two measurements at a time.
fn no_overlaps(circuits: &[CircuitRecord]) {
    for (at, one) in circuits.iter().enumerate() {
        for other in &circuits[..at] {
            let at_once = one.began_us < other.began_us + other.ended_us
                && other.began_us < one.began_us + one.ended_us;
            let shared = one.path.iter().find(|relay| other.path.contains(relay));
            assert!(
                !(at_once && shared.is_some()),
                "{} and {}: {shared:?}",
                one.number,
                other.number
            );
        }
    }
}

/// Checks that a complete circuit has all results, in order.
fn is_whole(circuit: &CircuitRecord) {
    assert_eq!(circuit.failure, None, "{circuit:?}");
    assert!(circuit.hops_us.len() == 3 && circuit.hops_us.is_sorted(), "{circuit:?}");
    let of = |probe| circuit.rtt.iter().filter(|trip| trip.probe == probe).count();
    let resolves = usize::from(circuit.client == Client::Arti);
    assert_eq!((of(Probe::Refused), of(Probe::Resolve)), (5, resolves), "{circuit:?}");
    assert!(
        circuit.rtt.iter().all(|trip| 0 < trip.us && trip.us < circuit.ended_us),
        "{circuit:?}"
    );
    let first = circuit.first_bytes.first().expect("a first byte");
    assert!(first.open_us < first.us, "{circuit:?}");
    assert!(circuit.congestion_us.is_some());
}

#[test]
fn circuits_are_measured_and_what_is_wrong_is_named() {
    let builder = Network::builder().middles(5).exits(4).clients(1);
    // tor's minimum. Measured circuits live longer than those of its users.
    let network =
        builder.client_torrc("MaxCircuitDirtiness 10 seconds").start().expect("a network");
    // The tests mostly wait. A tor has one user at a time.
    thread::scope(|scope| {
        for client in ["arti", "tor"] {
            let network = &network;
            scope.spawn(move || {
                measures(network, client);
                measures_over_time(network, client);
                heeds_the_status(network, client);
                lost::in_silence(network, client);
                lost::by_its_target(network, client);
                lost::by_a_target_that_sends_more(network, client);
                if client == "tor" {
                    says_what_tor_cannot_do(network);
                }
            });
        }
        goes_on(&network);
        says_what_it_has_when_it_is_stopped(&network);
        draws_what_paths_draws(&network);
        refuses(&network);
        asks_before_it_measures_the_internet(&network);
        says_when_everything_fails(&network);
    });
    // Last, because relays do not try for a minute to reach one that was down.
    lost::with_its_circuit(&network);
    lost::at_a_mute_guard(&network);
    for client in ["arti", "tor"] {
        names_dead_relays(&network, client);
    }
}

/// Measures complete circuits with this client.
fn measures(network: &Network, client: &str) {
    let resolves = u8::from(client == "arti");
    let options = format!(
        "--client {client} --count 12 --in-flight 3 --rtt 5 --resolve {resolves} --ttfb 1 --download 100kB --download-share 0.5"
    );
    let (_dir, circuits) = run_whole(network, &options);
    circuits.iter().for_each(is_whole);
    no_overlaps(&circuits);
    let numbers: HashSet<u64> = circuits.iter().map(|circuit| circuit.number).collect();
    assert_eq!(numbers, (0..12).collect());
    let downloads: Vec<_> =
        circuits.iter().filter_map(|circuit| circuit.download.as_ref()).collect();
    assert_eq!(downloads.len(), 6);
    assert!(downloads.iter().all(|download| download.bytes == 100_000 && download.us.is_some()));
}

/// Repeated first bytes over 13 s, and their analysis.
fn measures_over_time(network: &Network, client: &str) {
    let options = format!(
        "--client {client} --count 3 --in-flight 3 --rtt 5 --ttfb 1 --ttfb-for 13 --ttfb-every 0.25"
    );
    let (dir, circuits) = run_whole(network, &options);
    for circuit in &circuits {
        assert_eq!((circuit.failure.as_ref(), circuit.latency.len()), (None, 52), "{circuit:?}");
        let moments = (0..).map(|number| number * 250_000);
        let mut all = circuit.latency.iter().zip(moments);
        assert!(all.all(|(one, moment)| one.at_us >= moment), "none begins before: {circuit:?}");
        assert!(circuit.latency.iter().all(|one| 0 < one.open_us && one.open_us < one.us));
    }
    no_overlaps(&circuits);
    let mut analyze = Command::new(env!("CARGO_BIN_EXE_ff-perf"));
    let analyze = analyze.args(["circuits", "analyze", "--json"]).arg(dir.path());
    let output = analyze.output().expect("the program");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let found = &report["selections"][0]["performance"];
    let all: Vec<f64> =
        circuits.iter().flat_map(|one| &one.latency).map(|one| one.us as f64 / 1e3).collect();
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    assert_eq!(
        (&found["latency_circuits"], &found["latency_cut_circuits"]),
        (&3.into(), &0.into())
    );
    let is = |name: &str, value: f64| {
        let found = found[name].as_f64().expect("a number");
        assert!((found - value).abs() < 1e-6 * value, "{name}: {found}, {value}");
    };
    is("latency_mean_ms", mean);
    is("latency_probes", 52.0);
    let squares = all.iter().map(|one| (one - mean).powi(2)).sum::<f64>();
    is("latency_pooled_deviation_ms", (squares / all.len() as f64).sqrt());
}

/// A relay that does not run is the failing hop.
fn names_dead_relays(network: &Network, client: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let ids = ["middle0", "middle1", "exit0"].map(|name| network.node(name).rsa_fingerprint());
    let paths = dir.path().join("paths");
    fs::write(&paths, format!("# one\n{}\n", ids.join(", "))).expect("a file");
    let options = format!("--client {client} --count 1 --path-file {}", paths.display());
    let text = error(&run(network.dir(), &dir.path().join("out"), &options));
    assert!(text.contains("middle1") && text.contains(ids[1]), "{text}");
    let circuits = lines(&dir.path().join("out"));
    let failure = circuits[0].failure.clone().expect("a failure");
    assert_eq!((failure.stage, failure.hop), (Stage::Build, Some(2)), "{failure:?}");
    assert_eq!(circuits[0].hops_us.len(), 1);
}

/// A web server on loopback that gives this response to each request while the test runs.
pub(crate) fn web_server(answer: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if !matches!(stream.read(&mut byte), Ok(1)) {
                    break;
                }
                request.extend(byte);
            }
            // A reader closes once it has read enough.
            let _ = stream.write_all(&answer);
        }
    });
    addr
}

/// The page that a web server sends with an error status does not count as a download.
fn heeds_the_status(network: &Network, client: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    for (status, is_well) in [("200 OK", true), ("404 Not Found", false)] {
        let addr =
            web_server(format!("HTTP/1.1 {status}\r\n\r\n{}", "x".repeat(200_000)).into_bytes());
        let out = dir.path().join(status);
        let options = format!(
            "--client {client} --count 2 --ttfb 1 --download 100kB --target http://{addr}/x"
        );
        let output = run(network.dir(), &out, &options);
        assert_eq!(output.status.success(), is_well, "{output:?}");
        for circuit in lines(&out) {
            let whole = circuit.download.as_ref().is_some_and(|download| download.us.is_some());
            let found = (whole, circuit.first_bytes.len());
            assert_eq!(found, (is_well, 1), "{circuit:?}");
            let Some(failure) = circuit.failure else { continue };
            assert_eq!((failure.stage, failure.hop), (Stage::Download, None), "{failure:?}");
            assert_eq!(
                (failure.whose, failure.reason.as_str()),
                (Whose::Target, "HTTP status 404")
            );
        }
    }
}

/// A run is continued, and has each number once.
fn goes_on(network: &Network) {
    let dir = tempfile::tempdir().expect("a directory");
    assert!(run(network.dir(), dir.path(), "--count 4").status.success());
    let before = lines(dir.path());
    let text = error(&run(network.dir(), dir.path(), "--count 8"));
    assert!(text.contains("--resume"), "{text}");
    let text = error(&run(network.dir(), dir.path(), "--count 8 --resume --seed 5"));
    assert!(text.contains("run.json") && text.contains("seed 5 instead of 0"), "{text}");
    let kept = dir.path().join("kept");
    keep_documents(network, &kept);
    let text = error(&run(&kept, dir.path(), "--count 8 --resume"));
    assert!(text.contains("network") && text.contains("kept"), "{text}");
    let target = "--target bytes://127.0.0.1:1";
    let text = error(&run(network.dir(), dir.path(), &format!("--count 8 --resume {target}")));
    assert!(text.contains("target \"bytes://127.0.0.1:1\" instead of null"), "{text}");
    assert_eq!(lines(dir.path()), before, "nothing was measured so");
    is_alone(network, dir.path());
    let output = run(network.dir(), dir.path(), "--count 8 --resume --in-flight 2");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("in_flight 2 instead of 10"), "{said}");
    let after = lines(dir.path());
    assert_eq!(before[..], after[..before.len()]);
    let numbers: HashSet<u64> = after.iter().map(|circuit| circuit.number).collect();
    assert_eq!((numbers.len(), after.len()), (8, 8));
}

/// A run that the user stops reports the results so far.
fn says_what_it_has_when_it_is_stopped(network: &Network) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = command(network.dir(), dir.path(), "--count 1000000 --rate 20 --json");
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let running = running.expect("the program");
    let (file, deadline) =
        (dir.path().join("circuits-000.jsonl"), Instant::now() + Duration::from_secs(180));
    let has_some = || fs::read_to_string(&file).is_ok_and(|text| text.matches('\n').count() >= 3);
    while !has_some() {
        assert!(Instant::now() < deadline, "three circuits never ended");
        thread::sleep(Duration::from_millis(20));
    }
    signal(running.id(), "TERM");
    let output = running.wait_with_output().expect("its end");
    let text = error(&output);
    assert!(text.contains("stopped by a signal"), "{text}");
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let circuits = lines(dir.path());
    let built = circuits.iter().filter(|circuit| circuit.build_us().is_some()).count();
    assert!(circuits.len() >= 3 && summary["built"] == built, "{built}: {summary}");
}

/// A second program cannot use a folder that another one writes to.
fn is_alone(network: &Network, out: &Path) {
    let folder = fs::File::open(out).expect("the folder");
    folder.try_lock().expect("nobody has it");
    let text = error(&run(network.dir(), out, "--count 8 --resume"));
    assert!(text.contains("is in use") && text.contains(&out.display().to_string()), "{text}");
}

/// Paths are drawn by the requested rules, the same as by `ff-perf paths`.
fn draws_what_paths_draws(network: &Network) {
    let dir = tempfile::tempdir().expect("a directory");
    // Authorities may agree on a new consensus between two commands; these documents stay.
    let kept = dir.path().join("kept");
    keep_documents(network, &kept);
    let mut known = HashSet::new();
    for rules in ["--select uniform --lengths 2=1,3=1 --guards 1", "--select tor --subnets any"] {
        let out = dir.path().join(rules.replace(' ', "-"));
        let output = run(&kept, &out, &format!("--seed 7 --count 8 {rules}"));
        assert!(output.status.success(), "{output:?}");
        let mut circuits = lines(&out);
        circuits.sort_by_key(|circuit| circuit.number);
        let mut paths = Command::new(env!("CARGO_BIN_EXE_ff-perf"));
        paths.args(["paths", "--seed", "7", "--count", "8", "--network"]).arg(&kept);
        let output = paths.args(rules.split(' ')).output().expect("the program");
        let drawn = ff_circuits::paths::file::parse("", &String::from_utf8_lossy(&output.stdout));
        let ids = |circuit: &CircuitRecord| circuit.path.iter().map(|one| one.id.clone()).collect();
        let built: Vec<Vec<String>> = circuits.iter().map(ids).collect();
        assert_eq!(drawn.expect("paths"), built, "{rules}");
        known.extend(built.into_iter().flatten());
    }
    // With a bandwidth file's weights only its relays are drawn.
    let weights = dir.path().join("weights.v3bw");
    let text: String = known.iter().map(|id| format!("bw=5 node_id=${id}\n")).collect();
    fs::write(&weights, format!("1732269600\nversion=1.4.0\n=====\n{text}")).expect("written");
    let mut paths = Command::new(env!("CARGO_BIN_EXE_ff-perf"));
    paths.args(["paths", "--subnets", "any", "--count", "8", "--network"]).arg(&kept);
    let output = paths.arg("--weights").arg(&weights).output().expect("the program");
    let text = String::from_utf8_lossy(&output.stdout);
    let drawn = ff_circuits::paths::file::parse("", &text).expect("paths");
    let mut paths = Command::new(env!("CARGO_BIN_EXE_ff-perf"));
    paths.args(["paths", "--select", "uniform", "--network"]).arg(&kept);
    let uniform = paths.arg("--weights").arg(&weights).output().expect("the program");
    assert!(error(&uniform).contains("draw relays by weight"), "{uniform:?}");
    assert!(drawn.len() == 8 && drawn.iter().flatten().all(|id| known.contains(id)), "{output:?}");
    let apart = run(&kept, &dir.path().join("apart"), "--subnets apart");
    assert!(error(&apart).contains("--subnets"), "one address has them all: {apart:?}");
    let other = run(&kept, &dir.path().join("port"), "--select old --port 25");
    assert!(other.status.success(), "a lab's exits let everything out: {other:?}");
    let again = "--resume --seed 7 --count 8 --select uniform";
    let first = dir.path().join("--select-tor---subnets-any");
    let text = error(&run(&kept, &first, again));
    assert!(text.contains("run.json"), "{text}");
}

/// Documents of a tor of the network: names and texts of files, without those that tor is about to
/// rename.
fn documents(network: &Network) -> impl Iterator<Item = (&'static str, String)> {
    let dir = network.node("client0").data_dir().to_owned();
    let names = ["cached-microdesc-consensus", "cached-microdescs", "cached-microdescs.new"];
    names.into_iter().filter_map(move |name| Some((name, fs::read_to_string(dir.join(name)).ok()?)))
}

/// tor builds circuits of one relay but attaches no streams to them: that is not a relay's fault.
fn says_what_tor_cannot_do(network: &Network) {
    let dir = tempfile::tempdir().expect("a directory");
    let paths = dir.path().join("paths");
    fs::write(&paths, network.node("exit0").rsa_fingerprint()).expect("a file");
    let options = format!("--client tor --count 1 --path-file {}", paths.display());
    let out = dir.path().join("out");
    let text = error(&run(network.dir(), &out, &options));
    assert!(text.contains("circuits of one relay"), "{text}");
    let failure = lines(&out)[0].failure.clone().expect("a failure");
    assert_eq!((failure.whose, failure.hop), (Whose::Client, None), "{failure:?}");
}

/// Copies the documents of a tor of the network.
fn keep_documents(network: &Network, kept: &Path) {
    fs::create_dir(kept).expect("a directory");
    for (name, text) in documents(network) {
        fs::write(kept.join(name), text).expect("a file");
    }
}

/// Impossible options are refused before anything starts.
fn refuses(network: &Network) {
    let dir = tempfile::tempdir().expect("a directory");
    let (out, paths) = (dir.path().join("out"), dir.path().join("paths"));
    let known = network.node("middle0").rsa_fingerprint();
    let unknown = "0".repeat(40);
    let cases = [
        (format!("{known} {unknown}"), "line 2: hop 2"),
        (format!("{known},{known}"), "already"),
        (",".to_owned(), "1 to 8"),
        ([known; 9].join(" "), "already"),
        (String::new(), "it has no paths"),
    ];
    for (line, expected) in cases {
        fs::write(&paths, format!("# nothing\n{line}\n")).expect("a file");
        let options = format!("--path-file {}", paths.display());
        let text = error(&run(network.dir(), &out, &options));
        assert!(text.contains(expected) && text.contains("paths"), "{text}");
    }
    let text = error(&run(dir.path(), &out, ""));
    assert!(text.contains("cached-microdesc-consensus"), "{text}");
    assert!(!out.exists(), "nothing is left");
}

/// Relays on the Internet are not measured by mistake. The addresses are for documentation (RFC
/// 5737), so no host is contacted in any case.
fn asks_before_it_measures_the_internet(network: &Network) {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, text) in documents(network) {
        let text = text.replace(" 127.0.0.1 ", " 192.0.2.1 ");
        fs::write(dir.path().join(name), text).expect("a file");
    }
    let out = dir.path().join("out");
    let text = error(&run(dir.path(), &out, ""));
    assert!(text.contains("ETHICS.md") && text.contains("--public"), "{text}");
    let mut paths = Command::new(env!("CARGO_BIN_EXE_ff-perf"));
    let paths = paths.args(["paths", "--network"]).arg(dir.path());
    let text = error(&paths.output().expect("the program"));
    assert!(text.contains("ETHICS.md") && text.contains("--public"), "{text}");
    let output = paths.args(["--public", "--subnets", "any"]).output().expect("the program");
    assert!(output.status.success(), "{output:?}");
    for options in [
        "--per-guard 5",
        "--in-flight 1000",
        "--rate 50",
        "--failures 0.9",
        "--share-builds",
        "--ttfb 1",
    ] {
        let text = error(&run(dir.path(), &out, &format!("--public {options}")));
        assert!(text.contains(options.split(' ').next().expect("a word")), "{text}");
    }
    assert!(!out.exists(), "nothing is left");
}

/// A target that does not exist.
fn says_when_everything_fails(network: &Network) {
    let dir = tempfile::tempdir().expect("a directory");
    let text =
        error(&run(network.dir(), dir.path(), "--count 3 --ttfb 1 --target bytes://127.0.0.1:1"));
    assert!(text.contains("all 3 circuits failed"), "{text}");
    let circuits = lines(dir.path());
    assert_eq!(circuits.len(), 3);
    for circuit in circuits {
        let failure = circuit.failure.expect("a failure");
        assert_eq!((failure.stage, failure.hop), (Stage::FirstByte, None), "{failure:?}");
        assert_eq!(circuit.hops_us.len(), 3, "what was measured is kept");
    }
}
