//! Downloads compared with the packets on their client's link: the time of the last byte, and the
//! bytes that the link carried. Needs python3, and root for network namespaces and the capture.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ff_circuits::record::CircuitRecord;
use ff_lab::profile::Profile;
use ff_lab::{HostsPlan, Network};
use ff_perf::plan::{DownloadPlan, PlanSettings};

use crate::run::lines;

/// Host of Arti.
const PROBE: &str = "probe";
/// Host of the source.
const WEB: &str = "web";
/// Longest wait for the start of the capture.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of a cell on a link (tor-spec 3).
const CELL: u64 = 514;
/// Seconds after the recorded time in which packets still count.
const AFTER_SECS: f64 = 0.1;

/// Prints a line for each TLS record that a host receives: the kernel's time of its last packet, in
/// seconds and nanoseconds, the connection's number, and the bytes of all its records so far,
/// without the bytes that TLS 1.3 adds (RFC 8446 §5.2). A packet socket for IPv4 alone gets no
/// outgoing packets.
const CAPTURE: &str = r#"
import socket, struct
packets = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
SO_RCVBUFFORCE, SO_TIMESTAMPNS = 33, 35
packets.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 26)
packets.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
print("ready")
connections = {}
while True:
    packet, notes, _, device = packets.recvmsg(65536, socket.CMSG_SPACE(16))
    if device[0] == "lo" or packet[9] != socket.IPPROTO_TCP:
        continue
    secs, nanos = struct.unpack("qq", notes[0][2])
    tcp = packet[(packet[0] & 15) * 4:int.from_bytes(packet[2:4], "big")]
    ports, seq, body = tcp[:4], int.from_bytes(tcp[4:8], "big"), tcp[(tcp[12] >> 4) * 4:]
    key = packet[12:16] + ports
    if tcp[13] & 2:
        new = {"next": (seq + 1) % 2**32, "early": {}, "text": b"", "bytes": 0}
        connections[key] = {"number": len(connections), **new}
        continue
    one = connections.get(key)
    if one is None or not body:
        continue
    one["early"][seq] = body
    goes_on = True
    while goes_on:
        goes_on = False
        for begins, part in list(one["early"].items()):
            ahead = (begins - one["next"] + 2**31) % 2**32 - 2**31
            if ahead > 0:
                continue
            del one["early"][begins]
            if ahead + len(part) > 0:
                one["text"] += part[-ahead:] if ahead else part
                one["next"] = (begins + len(part)) % 2**32
                goes_on = True
    while len(one["text"]) >= 5:
        size = 5 + int.from_bytes(one["text"][3:5], "big")
        if len(one["text"]) < size:
            break
        if one["text"][0] == 23:
            one["bytes"] += size - 22
            print(secs, nanos, one["number"], one["bytes"])
        one["text"] = one["text"][size:]
"#;

/// A TLS record that was received.
#[derive(Clone, Copy, Debug)]
struct Came {
    /// Time of its last packet, in seconds since 1970.
    unix_secs: f64,
    /// Number of its connection.
    connection: usize,
    /// Bytes of the connection's records so far, including this one.
    bytes: u64,
}

/// A program that is killed when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A network; the hosts of Arti and of tor's client have the paper's LTE links.
fn network() -> Network {
    let lte = Profile::find("lte-paper").expect("a profile");
    let plan = HostsPlan {
        links: [PROBE, "client0"].map(|name| (name.to_owned(), lte.clone())).into(),
        extra: [PROBE, WEB].map(str::to_owned).to_vec(),
        seed: 4,
        ..HostsPlan::default()
    };
    let builder = Network::builder().middles(4).exits(3).clients(1).hosts(plan);
    builder.start().expect("a network, which needs root")
}

/// Starts a program on a host.
fn spawn(network: &Network, host: &str, command: &mut Command) -> Running {
    let host = network.host(host).expect("a host");
    Running(host.namespace().spawn(command).expect("it starts"))
}

/// Starts a source, and returns it with its URL.
fn source(network: &Network) -> (Running, String) {
    let address = network.host(WEB).expect("a host").address();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ff-perf"));
    command.args(["source", "--listen", &format!("{address}:0")]).stdout(Stdio::piped());
    let mut running = spawn(network, WEB, &mut command);
    let mut url = String::new();
    let told = running.0.stdout.take().expect("its output");
    BufReader::new(told).read_line(&mut url).expect("its URL");
    (running, url.trim().to_owned())
}

/// Starts the capture on a host, with a file for its output, and waits until it runs.
fn capture(network: &Network, host: &str, file: &Path) -> Running {
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-u", "-c", CAPTURE]).stdout(File::create(file).expect("a file"));
    let running = spawn(network, host, &mut command);
    let until = Instant::now() + PATIENCE;
    while !fs::read_to_string(file).expect("text").starts_with("ready\n") {
        assert!(Instant::now() < until, "the capture does not begin: see above");
        thread::sleep(Duration::from_millis(20));
    }
    running
}

/// The records in the output of a capture.
fn captured(file: &Path) -> Vec<Came> {
    let text = fs::read_to_string(file).expect("text");
    // The last line may be incomplete: the capture was killed.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let came = |line: &str| {
        let mut numbers = line.split(' ').map(|word| word.parse::<u64>().expect("a number"));
        let mut next = || numbers.next().expect("four numbers");
        let unix_secs = next() as f64 + next() as f64 / 1e9;
        Came { unix_secs, connection: usize::try_from(next()).expect("few"), bytes: next() }
    };
    whole.lines().skip(1).map(came).collect()
}

/// Runs downloads on a host, and returns their lines.
fn download(network: &Network, host: &str, out: &Path, options: &str) -> Vec<CircuitRecord> {
    let documents = if host == PROBE { network.dir() } else { network.node(host).data_dir() };
    let mut command = Command::new(env!("CARGO_BIN_EXE_ff-perf"));
    command.args(["downloads", "run", "--build-time", "300", "--timeout", "300"]);
    command.args(["--failures", "1", "--network"]).arg(documents).arg("--out").arg(out);
    command.args(options.split(' ')).stdout(Stdio::null());
    let status = spawn(network, host, &mut command).0.wait().expect("its end");
    assert!(status.success(), "{status}");
    lines(out)
}

/// Time of a download's last cell before the exit's END, in seconds since 1970: on the connection
/// with the most bytes from `from_secs` to `until_secs`.
fn last_cell(all: &[Came], from_secs: f64, until_secs: f64) -> Option<f64> {
    let during = |one: &&Came| (from_secs..until_secs).contains(&one.unix_secs);
    let of = |connection: usize| {
        all.iter().filter(during).filter(move |one| one.connection == connection)
    };
    let bytes = |connection: usize| {
        let first = of(connection).next().map_or(0, |one| one.bytes);
        of(connection).next_back().map_or(0, |one| one.bytes - first)
    };
    let connections = all.iter().map(|one| one.connection).max()?;
    let connection = (0..=connections).max_by_key(|connection| bytes(*connection))?;
    let last = of(connection).next_back()?.bytes;
    of(connection).find(|one| one.bytes + CELL >= last).map(|one| one.unix_secs)
}

/// The delay from the packet of a download's last byte to its recorded time, in ms; `None` if the
/// download is incomplete.
fn late_ms(circuit: &CircuitRecord, all: &[Came]) -> Option<f64> {
    let download = circuit.download.as_ref()?;
    let unix_secs =
        |us: u64| circuit.began_unix_secs + (download.at_us.unwrap_or(0) + us) as f64 / 1e6;
    let recorded = unix_secs(download.us?);
    let from = unix_secs(download.connected_us?);
    let packet = last_cell(all, from, recorded + AFTER_SECS).expect("packets of the download");
    Some((recorded - packet) * 1e3)
}

#[test]
fn the_packet_of_the_last_byte_is_the_one_before_the_end() {
    let came = |unix_secs, connection, bytes| Came { unix_secs, connection, bytes };
    let all = [
        came(1.0, 0, 9_000),
        came(1.1, 1, 10_000),
        came(1.2, 1, 13_598),
        came(1.3, 1, 17_196),
        came(1.4, 1, 17_196 + CELL),
        came(1.5, 0, 9_514),
        came(2.5, 1, 30_000),
    ];
    assert_eq!(last_cell(&all, 1.05, 2.0), Some(1.3));
    // The END is in the same record as the last cell.
    assert_eq!(last_cell(&all[..3], 1.05, 2.0), Some(1.2));
    assert_eq!(last_cell(&all, 3.0, 4.0), None);
}

/// Bytes that a host's link has carried in both directions.
fn counted(network: &Network, host: &str) -> u64 {
    let host = network.host(host).expect("a host");
    host.namespace().carried_bytes().expect("the kernel's table")
}

#[test]
#[ignore = "a figure: .ci/measure has it"]
fn the_last_byte_is_recorded_when_it_came() {
    const DOWNLOADS: usize = 100;
    let network = network();
    let (_source, url) = source(&network);
    let dir = tempfile::tempdir().expect("a directory");
    let mut medians = Vec::new();
    for (client, host) in [("arti", PROBE), ("tor", "client0")] {
        let packets = dir.path().join(format!("{client}.packets"));
        let capturing = capture(&network, host, &packets);
        if client == "tor" {
            // Links that were open before the capture cannot be read; this closes them.
            let node = network.node(host);
            let mut control = node.control().expect("a control connection");
            for value in ["1", "0"] {
                control.setconf("DisableNetwork", value).expect("an option");
            }
            node.wait_for_enough_documents().expect("documents");
        }
        let options =
            format!("--to {url} --client {client} --size 1MiB --rate 0.5 --count {DOWNLOADS}");
        let circuits = download(&network, host, &dir.path().join(client), &options);
        drop(capturing);
        let all = captured(&packets);
        let mut late: Vec<f64> = circuits.iter().filter_map(|one| late_ms(one, &all)).collect();
        late.sort_by(f64::total_cmp);
        assert!(late.len() * 10 >= DOWNLOADS * 9, "only {} are whole", late.len());
        let at = |percent: usize| late[(late.len() - 1) * percent / 100];
        println!(
            "figure: {client}: recorded time of the last byte less its packet's, ms, median | -1..1 | {:.3} | {:.3}..{:.3}: \
             5th and 95th percentiles of {}",
            at(50),
            at(5),
            at(95),
            late.len()
        );
        medians.push(at(50));
    }
    // A late emulator does not matter: both times are taken where the packet arrives.
    assert!(medians.iter().all(|ms| ms.abs() <= 1.0), "{medians:?} ms");
}

#[test]
#[ignore = "a figure: .ci/measure has it"]
fn a_plan_says_what_the_link_carries() {
    const SIZES: [(&str, u64); 3] = [("50KiB", 160), ("1MiB", 27), ("5MiB", 13)];
    let network = network();
    let (_source, url) = source(&network);
    let dir = tempfile::tempdir().expect("a directory");
    let downloads: u64 = SIZES.iter().map(|(_, count)| count).sum();
    let planned = |mix: &str, downloads: u64| {
        let plan = DownloadPlan::of(&PlanSettings {
            mix: mix.parse().expect("a mix"),
            every_secs: 30 * 86_400 / downloads,
            targets: 1,
            data_bytes: None,
            directory_bytes: 0,
            link: None,
        });
        let planned = plan.month.downloads;
        planned.all() as f64 * downloads as f64 / plan.downloads_a_month as f64
    };
    let (mut all, mut shares) = (0, Vec::new());
    for (size, count) in SIZES {
        let before = counted(&network, PROBE);
        let options = format!("--to {url} --size {size} --count {count} --rate 20");
        let circuits = download(&network, PROBE, &dir.path().join(size), &options);
        let whole = circuits.iter().filter(|one| one.failure.is_none()).count() as u64;
        assert_eq!(whole, count, "a failed download takes less: {circuits:?}");
        let bytes = counted(&network, PROBE) - before;
        all += bytes;
        let share = bytes as f64 / planned(&format!("{size}=1"), count);
        shares.push(format!("{size} {share:.3}"));
    }
    let mix = SIZES.map(|(size, count)| format!("{size}={count}")).join(",");
    let share = all as f64 / planned(&mix, downloads);
    println!(
        "figure: bytes on the link / those of the plan, {downloads} downloads | 0.95..1.05 | {share:.3} | {}",
        shares.join("; ")
    );
    assert!((0.95..=1.05).contains(&share), "{share}");
}
