//! The limit where clients enter: which options are accepted, what clients get, which links are
//! exempt, and what the operator sees.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use ed25519_dalek::SigningKey;
use ff_lab::{Control, DownloadPlan, Network, Node, RelayConfig, RunningDownloads};
use ff_proto::params::Params;

use crate::options::verify;
use crate::rules::{Lab, SharedLab, metrics_page, open_metrics_port, silent};
use crate::support;
use crate::support::meter::as_f64;

/// The limit of the relays that have it in torrc, in bytes per second.
const LIMIT: u64 = 100_000;
/// The tokens that limited links may save, in bytes: the least allowed.
const BURST: u64 = 20_000;
/// The limit of the consensus, in bytes per second.
const CONSENSUS_LIMIT: i64 = 150_000;
/// The tokens that limited links may save by the consensus, in bytes.
const CONSENSUS_BURST: i64 = 40_000;
/// How long a download is observed.
const LOOK: Duration = Duration::from_secs(8);
/// How long a download takes to reach its rate.
const WARM_UP: Duration = Duration::from_secs(2);
/// How long a new circuit and a stream on it may take during downloads of the same client. They
/// wait for the limited link five times: without the hook `kist-limit` that is 40 seconds, with it
/// less than one.
const DURING_BULK: Duration = Duration::from_secs(10);
/// How long to wait for what a relay does at once: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn good_values_are_taken() {
    let whole = "FFIngressLimit 1\nPerConnBWRate 100 KBytes\n";
    for lines in [
        "FFIngressLimit 0",
        "FFIngressLimit 0\nPerConnBWRate 1 KBytes\nPerConnBWBurst 1 bytes",
        "PerConnBWRate 1 KBytes",
        "FFIngressLimit 1\nPerConnBWRate 10 KBytes",
        "FFIngressLimit 1\nPerConnBWRate 2147483647 bytes",
        &format!("{whole}PerConnBWBurst 20480 bytes"),
        &format!("{whole}FFIngressExempt fast"),
        &format!("{whole}FFIngressExempt Stable-Fast"),
        &format!("{whole}ffingressexempt listed"),
        &format!("{whole}FFIngressExempt none"),
        &format!("{whole}FFIngressShare 1000"),
        &format!("{whole}FFIngressExemptAddress 192.0.2.1\nFFIngressExemptAddress [2001:db8::]/32"),
        &format!("{whole}FFIngressExemptAddress 192.0.2.0/24, 198.51.100.0/255.255.255.0"),
        "FFIngressExempt none\nFFIngressShare 0\nFFIngressExemptAddress 192.0.2.1/0",
    ] {
        let (is_taken, text) = verify(lines);
        assert!(is_taken && text.contains("Configuration was valid"), "{lines}:\n{text}");
    }
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn bad_values_are_refused_with_the_option_the_value_and_the_bounds() {
    let on = "FFIngressLimit 1\n";
    let limited = "FFIngressLimit 1\nPerConnBWRate 100000 bytes\n";
    for (before, line, texts) in [
        ("", "FFIngressLimit 2", ["FFIngressLimit", "\"2\"", "from 0 to 1"]),
        ("", "FFIngressLimit yes", ["FFIngressLimit", "\"yes\"", "from 0 to 1"]),
        ("", on, ["FFIngressLimit is 1", "PerConnBWRate is not set", "from 10000 to 2147483647"]),
        (on, "PerConnBWRate 0", ["FFIngressLimit is 1", "PerConnBWRate is not set", "10000"]),
        (on, "PerConnBWRate 9 KBytes", ["PerConnBWRate", "\"9216\"", "from 10000 to 2147483647"]),
        (on, "PerConnBWRate 3 GBytes", ["PerConnBWRate", "(32212254", "at most 2147483647"]),
        (limited, "PerConnBWBurst 19999 bytes", ["PerConnBWBurst", "\"19999\"", "from 20000 to"]),
        (limited, "PerConnBWBurst 3 GBytes", ["PerConnBWBurst", "(32212254", "at most 2147483647"]),
        (
            "",
            "FFIngressExempt quick",
            ["FFIngressExempt", "\"quick\"", "stable-fast, listed or none"],
        ),
        ("", "FFIngressShare 1001", ["FFIngressShare", "\"1001\"", "from 0 to 1000 percent"]),
        ("", "FFIngressShare -1", ["FFIngressShare", "\"-1\"", "from 0 to 1000 percent"]),
        (
            "",
            "FFIngressExemptAddress 192.0.2.0/33",
            ["FFIngressExemptAddress", "\"192.0.2.0/33\"", "0 to 32"],
        ),
        (
            "",
            "FFIngressExemptAddress example.org",
            ["FFIngressExemptAddress", "\"example.org\"", "128"],
        ),
    ] {
        let (is_taken, text) = verify(&format!("{before}{line}"));
        assert!(!is_taken, "{line}:\n{text}");
        let reason = text.lines().find(|line| line.contains("[warn] Failed to parse/validate"));
        let reason = reason.unwrap_or_else(|| panic!("{line}:\n{text}"));
        assert!(texts.iter().all(|text| reason.contains(text)), "{line}: {reason}");
    }
}

/// The network of the other tests. Its consensus has a limit, and one parameter that is out of
/// bounds.
static LAB: SharedLab = SharedLab::new(|| {
    // With the longest interval no relay fetches a consensus during the tests.
    let builder = Network::builder()
        .voting_interval(Duration::from_secs(1800))
        .consensus_param("FFIngressLimit", 1)
        .consensus_param("FFIngressShare", 5000)
        .consensus_param("perconnbwrate", CONSENSUS_LIMIT)
        .consensus_param("perconnbwburst", CONSENSUS_BURST)
        .middles(1)
        .exits(1)
        .clients(2);
    let relays = vec![
        limited("limited"),
        limited("changing"),
        limited("measured").torrc("FFMeasurementsAllowed 1"),
        silent("silent"),
        silent("opposed").torrc("FFIngressLimit 0"),
    ];
    Lab::start(builder, relays)
});

/// A relay with the limit in torrc.
fn limited(nickname: &str) -> RelayConfig {
    silent(nickname)
        .torrc("FFIngressLimit 1")
        .torrc(format!("PerConnBWRate {LIMIT} bytes"))
        .torrc(format!("PerConnBWBurst {BURST} bytes"))
}

/// A download through this relay.
fn plan(lab: &Lab, entry: &str) -> DownloadPlan {
    let path = [entry, "middle0", "exit0"].map(|name| lab.network().node(name));
    DownloadPlan::through(&path)
}

/// Downloads through a client that enters at this relay, over several circuits.
fn download(lab: &Lab, client: &str, entry: &str) -> RunningDownloads {
    let plan = plan(lab, entry).streams(5);
    lab.network().download(lab.network().node(client), &plan).expect("downloads")
}

/// What a value with a label is on a MetricsPort; `None` when it is not there.
fn labelled(addr: SocketAddr, name: &str, label: &str, value: &str) -> Option<u64> {
    let page = metrics_page(addr);
    let start = format!("tor_flashflow_ingress_{name}{{{label}=\"{value}\"}} ");
    let line = page.lines().find_map(|line| line.strip_prefix(&start));
    line.map(|number| number.parse().expect("a number"))
}

/// How many links are in this state.
fn links(addr: SocketAddr, state: &str) -> Option<u64> {
    labelled(addr, "links", "state", state)
}

/// How many bytes limited links have moved.
fn moved(addr: SocketAddr, direction: &str) -> u64 {
    labelled(addr, "limited_bytes_total", "direction", direction).expect("a value")
}

/// What limited links write for a while, as a part of one link's limit.
fn part_of_limit(addr: SocketAddr) -> f64 {
    let (begin, before) = (Instant::now(), moved(addr, "written"));
    thread::sleep(LOOK);
    let bytes = moved(addr, "written") - before;
    as_f64(bytes) / begin.elapsed().as_secs_f64() / as_f64(LIMIT)
}

/// Bytes per second of a download, from now on.
fn bytes_per_sec(downloads: &RunningDownloads) -> f64 {
    thread::sleep(WARM_UP);
    let (begin, before) = (Instant::now(), downloads.bytes());
    thread::sleep(LOOK);
    as_f64(downloads.bytes() - before) / begin.elapsed().as_secs_f64()
}

/// Waits until `is_so` is true.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let late = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < late, "{what}: not after {PATIENCE:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// A notice of the rules in the node's log, once it is there.
fn rules_in_log(node: &Node, limit: &str) -> String {
    let text = format!("links of clients are limited: {limit}");
    node.wait_for_log(&text, PATIENCE).expect("a notice")
}

/// tor has found no error of its own.
fn no_complaint(node: &Node) {
    let log = node.log();
    for complaint in ["Bug: ", "ssertion ", "nternal error"] {
        assert!(!log.contains(complaint), "{complaint} in:\n{log}");
    }
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn a_client_gets_its_limit_however_many_circuits_it_has() {
    LAB.run(async |lab| {
        let relay = lab.relay("limited");
        let metrics = open_metrics_port(relay.node);
        let downloads = download(lab, "client0", "limited");
        thread::sleep(WARM_UP);
        // A busy machine can only lower it, so one time at the limit is enough.
        let late = Instant::now() + PATIENCE;
        let mut most = 0.0_f64;
        while most < 0.8 {
            assert!(Instant::now() < late, "{most}");
            let part = part_of_limit(metrics);
            println!("a limited link moved {part:.3} of its limit");
            // The client's link saves a fifth of a second at most, and other limited links carry
            // little.
            assert!(part < 1.06, "{part}");
            most = most.max(part);
        }
        assert!(moved(metrics, "read") > 0);
        assert_eq!(downloads.errors(), [""; 0]);
        no_complaint(relay.node);
    });
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn a_limited_clients_circuits_do_not_wait_for_its_bulk() {
    LAB.run(async |lab| {
        let _turn = lab.relay("limited");
        let bulk = download(lab, "client0", "limited");
        thread::sleep(WARM_UP);
        let begin = Instant::now();
        let client = lab.network().node("client0");
        let one = plan(lab, "limited").bytes_each(1);
        let small = lab.network().download(client, &one).expect("a download");
        small.wait(PATIENCE).expect("a byte");
        let took = begin.elapsed();
        println!("a circuit and a byte during bulk took {took:.1?}");
        assert!(took < DURING_BULK, "{took:?}");
        assert_eq!((bulk.alive(), bulk.errors()), (5, Vec::new()));
    });
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn a_measurement_is_not_limited() {
    LAB.run(async |lab| {
        let relay = lab.relay("measured");
        let params = || Params { sockets: 1, duration_secs: 5, ..Params::default() };
        let plan = |key: &SigningKey| support::plan(relay.node, key, params());
        let (_, _, outcome) = relay.measured(plan, || ()).await;
        let estimate = outcome.estimate.expect("an estimate").get();
        // The relay's rate is fifty times the limit of a link.
        assert!(estimate > 3 * LIMIT, "{estimate} bytes/s over one link");
    });
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn exemptions_and_the_limit_change_at_runtime() {
    LAB.run(async |lab| {
        let relay = lab.relay("changing");
        let mut tor = relay.node.control().expect("a control connection");
        let metrics = open_metrics_port(relay.node);
        let downloads = download(lab, "client1", "changing");
        let set = |tor: &mut Control, name: &str, value: &str| {
            tor.setconf(name, value).expect("a good value");
        };
        // The relays of the network are Fast, and one of them is the next hop.
        let has = |state: &str, is_any: bool| {
            wait_until(state, || links(metrics, state).is_some_and(|count| (count > 0) == is_any));
        };
        has("limited", true);
        has("exempt", true);
        assert_eq!(links(metrics, "two_addresses"), Some(0));
        set(&mut tor, "FFIngressExempt", "none");
        has("exempt", false);
        rules_in_log(relay.node, "100000 bytes/s each way, burst 20000 bytes, exempt: none");
        set(&mut tor, "FFIngressExempt", "listed");
        has("exempt", true);
        assert!(bytes_per_sec(&downloads) < 1.06 * as_f64(LIMIT));

        set(&mut tor, "FFIngressExemptAddress", "127.0.0.0/8");
        has("limited", false);
        // The next relay does not know this one, and limits it to what the consensus says: 1.5
        // times as much.
        wait_until("more than the limit", || bytes_per_sec(&downloads) > 1.2 * as_f64(LIMIT));
        tor.command("RESETCONF FFIngressExemptAddress").expect("an option");
        has("limited", true);

        set(&mut tor, "FFIngressLimit", "0");
        wait_until("no links in the metrics", || links(metrics, "limited").is_none());
        relay.node.wait_for_log("limit for links of clients is off", PATIENCE).expect("a notice");
        // What waited for room goes on.
        let before = downloads.bytes();
        wait_until("bytes without the limit", || downloads.bytes() > before + 2 * LIMIT);
        assert_eq!((downloads.alive(), downloads.errors()), (5, Vec::new()));
        // tor's own rule holds, which is that of PerConnBWRate.
        set(&mut tor, "PerConnBWRate", "0");
        assert!(tor.setconf("FFIngressLimit", "1").is_err(), "torrc has none");
    });
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn links_close_while_they_wait_for_room() {
    LAB.run(async |lab| {
        let relay = lab.relay("changing");
        let client = lab.network().node("client1");
        let mut tor = client.control().expect("a control connection");
        for _ in 0..3 {
            // With five streams, its link waits nearly always.
            let bulk = download(lab, "client1", "changing");
            wait_until("bytes", || bulk.bytes() > BURST + LIMIT);
            tor.setconf("DisableNetwork", "1").expect("a good value");
            wait_until("closed streams", || bulk.alive() == 0);
            tor.setconf("DisableNetwork", "0").expect("a good value");
            let one = plan(lab, "changing").bytes_each(1);
            wait_until("a byte over a new link", || {
                let small = lab.network().download(client, &one);
                small.is_ok_and(|small| small.wait(DURING_BULK).is_ok())
            });
        }
        no_complaint(relay.node);
    });
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn torrc_beats_the_consensus_and_parameters_out_of_bounds_are_told() {
    LAB.run(async |lab| {
        let of = |name: &str| lab.network().node(name);
        let consensus = "150000 bytes/s each way, burst 40000 bytes, exempt: fast";
        let notice = rules_in_log(of("silent"), consensus);
        assert!(notice.contains("[notice]") && notice.contains(" without Fast"), "{notice}");
        let told =
            of("silent").wait_for_log("the consensus parameter FFIngressShare is 5000", PATIENCE);
        assert!(told.expect("a notice").contains("from 0 to 1000"));
        let own = "100000 bytes/s each way, burst 20000 bytes, exempt: fast";
        rules_in_log(of("limited"), own);
        // One notice at a change, and none where the operator says no.
        let lines = |name: &str| of(name).log().matches("links of clients are limited").count();
        assert_eq!((lines("silent"), lines("limited"), lines("opposed")), (1, 1, 0));
    });
}
