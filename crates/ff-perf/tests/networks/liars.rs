//! Exits that lie to `ff-perf circuits run`: real ones that accept the probe that they should
//! refuse, in a private network (needs root, for a namespace in which port 1 of every address is
//! ours), and one of our own that can answer anything.

use std::collections::HashMap;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ff_circuits::network::{self, NetworkRelay};
use ff_circuits::record::{CircuitRecord, Failure, Probe, Stage, Whose};
use ff_lab::net::Namespace;
use ff_lab::{Network, RelayConfig};
use ff_measurer::link::control::ControlLink;
use ff_measurer::link::{LinkIdentity, accept};
use ff_perf::client::arti::Arti;
use ff_perf::figures::{self, Figures, OptionalFigures};
use ff_perf::probe::{Measured, Program};
use ff_proto::cell::{BODY_LEN, Body, Cell, fixed_cell};
use ff_proto::circuit::EphemeralKey;
use ff_proto::ids::Ed25519Id;
use ff_proto::keystream::Keystream;
use ff_proto::onion::extend::{
    CMD_CREATE2, CMD_CREATED2, CMD_RELAY, CMD_RELAY_EARLY, created, is_extensions, read_create,
};
use ff_proto::onion::ntor::{HANDSHAKE_TYPE, KeySource, NtorServer};
use sha1::{Digest as _, Sha1};
use tokio::net::{TcpListener as AsyncListener, TcpStream};

use crate::run::PATIENT;

/// Port of probes.
const PROBE_PORT: u16 = 1;
/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs the command; options are separated by spaces.
fn run(network: &Network, out: &Path, options: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ff-perf"));
    command.args(["circuits", "run", "--per-guard", "100", "--in-flight", "3", "--network"]);
    command.arg(network.dir()).arg("--out").arg(out).args(options.split_whitespace());
    command.output().expect("the program")
}

/// Lines of a run, all complete; the folder has only the expected files.
fn lines(out: &Path) -> Vec<CircuitRecord> {
    let names = fs::read_dir(out).expect("the folder").map(|entry| entry.expect("a file"));
    let mut names: Vec<_> = names.map(|entry| entry.file_name()).collect();
    names.sort();
    assert_eq!(names, ["circuits-000.jsonl", "run.json"]);
    let text = fs::read_to_string(out.join("circuits-000.jsonl")).expect("lines");
    assert!(text.ends_with('\n'), "the last line is whole: {text}");
    text.lines().map(|line| serde_json::from_str(line).expect("a circuit")).collect()
}

/// Standard error of a failed run: one sentence.
fn sentence(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stderr.clone()).expect("text");
    assert_eq!(said.trim_end().lines().count(), 1, "one sentence: {said}");
    said
}

#[test]
fn real_exits_that_accept_the_probe_are_named() {
    let namespace = Namespace::new("liars", "cubic").expect("root, for a network namespace");
    let inside = || {
        let honest = RelayConfig::middle("honest").torrc("ExitRelay 1");
        let honest = honest.torrc("ExitPolicy reject 127.0.0.0/8:1,accept *:*");
        let builder = Network::builder().middles(2).relay(RelayConfig::exit("liar"));
        let network = builder.relay(honest).clients(1).start().expect("a network");
        listen_everywhere();
        for client in ["arti", "tor"] {
            names_who_accepts(&network, client);
            ends_by_itself(&network, client);
            believes_who_refuses(&network, client, "exitpolicy");
            names_who_refuses(&network, client);
        }
        tells_no_private_address_on_the_internet(&network);
    };
    namespace.run(inside).expect("it went well inside: see above");
}

/// Accepts exits' connections for probes while the test runs.
fn listen_everywhere() {
    let everywhere = (Ipv4Addr::UNSPECIFIED, PROBE_PORT);
    let listener = TcpListener::bind(everywhere).expect("nobody has port 1 of a new namespace");
    thread::spawn(move || listener.incoming().for_each(drop));
}

/// Options for circuits to an exit.
fn options(network: &Network, dir: &Path, client: &str, exit: &str) -> String {
    let ids = ["middle0", "middle1", exit].map(|name| network.node(name).rsa_fingerprint());
    let paths = dir.join("paths");
    fs::write(&paths, format!("{}\n", ids.join(","))).expect("a file");
    format!("--client {client} --path-file {} --rtt 3 {PATIENT}", paths.display())
}

/// Each line names the address in 127.0.0.0/8 that the last relay accepted; nothing was measured of
/// it.
fn all_accepted(network: &Network, circuits: &[CircuitRecord]) {
    let liar = network.node("liar").rsa_fingerprint();
    for circuit in circuits {
        let Some(Failure { stage, hop, reason, whose }) = &circuit.failure else {
            panic!("{circuit:?}");
        };
        assert_eq!((*stage, *hop, *whose), (Stage::Rtt, Some(3), Whose::Relay), "{circuit:?}");
        let address = reason.strip_prefix("the exit accepted ").expect("what it did");
        let address: Ipv4Addr = address.parse().expect("the address, and nothing else");
        assert!(address.is_loopback(), "{address}");
        assert_eq!(circuit.path[2].id, liar);
        assert_eq!((circuit.hops_us.len(), circuit.rtt.len()), (3, 0), "{circuit:?}");
    }
}

/// With a few circuits, all fail, and the last sentence names exit and address.
fn names_who_accepts(network: &Network, client: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let (out, options) = (dir.path().join("out"), options(network, dir.path(), client, "liar"));
    let said = sentence(&run(network, &out, &format!("{options} --count 3")));
    let liar = network.node("liar").rsa_fingerprint();
    let expected = format!(
        "all 3 circuits failed; the last one: Rtt at liar ({liar}): the exit accepted 127."
    );
    assert!(said.contains(&expected), "{said}");
    let circuits = lines(&out);
    assert_eq!(circuits.len(), 3);
    all_accepted(network, &circuits);
}

/// With many circuits, the run ends by itself before the last.
fn ends_by_itself(network: &Network, client: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let (out, options) = (dir.path().join("out"), options(network, dir.path(), client, "liar"));
    let said = sentence(&run(network, &out, &format!("{options} --count 100000")));
    for part in ["30 of the last 30 circuits failed", "at liar (", "the exit accepted 127."] {
        assert!(said.contains(part), "{said}");
    }
    let circuits = lines(&out);
    assert_eq!(circuits.len(), 30);
    all_accepted(network, &circuits);
}

/// An exit that refuses correctly also gives the address, and does not count as a liar.
fn believes_who_refuses(network: &Network, client: &str, reason: &str) {
    let circuits = succeeds(network, client, "honest");
    for trip in circuits.iter().flat_map(|circuit| &circuit.rtt) {
        assert_eq!((trip.probe, trip.reason.as_str()), (Probe::Refused, reason), "{client}");
    }
}

/// If an exit's policy refuses a target, the exit is named, not the target.
fn names_who_refuses(network: &Network, client: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let (out, options) = (dir.path().join("out"), options(network, dir.path(), client, "honest"));
    let target = format!("bytes://127.0.0.1:{PROBE_PORT}");
    let output = run(network, &out, &format!("{options} --count 1 --ttfb 1 --target {target}"));
    let said = sentence(&output);
    let circuits = lines(&out);
    let failure = circuits[0].failure.as_ref().expect("a failure");
    let Failure { stage, hop, whose, reason } = failure;
    assert_eq!((*stage, *hop, *whose), (Stage::FirstByte, Some(3), Whose::Relay), "{failure:?}");
    let honest = network.node("honest").rsa_fingerprint();
    assert!(said.contains(honest) && said.contains(reason), "{said}");
}

/// Complete circuits to this exit.
fn succeeds(network: &Network, client: &str, exit: &str) -> Vec<CircuitRecord> {
    let dir = tempfile::tempdir().expect("a directory");
    let (out, options) = (dir.path().join("out"), options(network, dir.path(), client, exit));
    let output = run(network, &out, &format!("{options} --count 3"));
    assert!(output.status.success(), "{output:?}");
    let circuits = lines(&out);
    assert_eq!(circuits.len(), 3);
    for circuit in &circuits {
        assert_eq!((circuit.failure.as_ref(), circuit.rtt.len()), (None, 3), "{circuit:?}");
    }
    circuits
}

/// With the option that tor requires in the public network, it reports an honest refusal and an
/// exit that connects to private addresses alike, as a protocol violation. Both are cells that came
/// back, and not a fault of the exit.
fn tells_no_private_address_on_the_internet(network: &Network) {
    let mut control = network.node("client0").control().expect("a control connection");
    control.setconf("ClientDNSRejectInternalAddresses", "1").expect("set");
    believes_who_refuses(network, "tor", "torprotocol");
    for trip in succeeds(network, "tor", "liar").iter().flat_map(|circuit| &circuit.rtt) {
        assert_eq!(trip.reason, "torprotocol");
    }
}

/// Commands of relay messages (tor-spec 6.1).
const BEGIN: u8 = 1;
const END: u8 = 3;
const CONNECTED: u8 = 4;
const RESOLVE: u8 = 11;
const RESOLVED: u8 = 12;
/// END's reason for a policy (tor-spec 6.3).
const EXITPOLICY: u8 = 4;
/// An undefined reason.
const UNKNOWN: u8 = 200;
/// A time to live of one minute.
const TTL: [u8; 4] = [0, 0, 0, 60];
/// Address that the probe asks to resolve.
const LITERAL: [u8; 4] = [192, 0, 2, 1];
/// An address that was not asked for.
const FALSE: [u8; 4] = [10, 0, 0, 1];

/// An exit's answer to any message of a stream: command and data.
type Answer = (u8, Vec<u8>);

/// Our relay, as clients know it.
pub(crate) fn as_known(
    identity: &LinkIdentity,
    ntor: [u8; 32],
    listener: &AsyncListener,
) -> NetworkRelay {
    let rsa: [u8; 20] = identity.rsa_identity().as_bytes().try_into().expect("20 bytes");
    NetworkRelay {
        id: hex::encode_upper(rsa),
        nick: "ours".to_owned(),
        rsa,
        ed25519: identity.ed_identity().into(),
        ntor,
        addrs: vec![listener.local_addr().expect("an address")],
        // Without FlowCtrl, so that no congestion control is negotiated.
        protocols: "Link=4-5 LinkAuth=3 Relay=1-4".to_owned(),
        flags: ff_dir::consensus::Flags::default(),
    }
}

/// An exit of our own.
struct Exit {
    /// Identity on links.
    identity: LinkIdentity,
    /// Key for circuits.
    server: NtorServer,
    answer: Answer,
}

impl Exit {
    /// Listens while the runtime runs; returns the relay as clients know it.
    async fn start(answer: Answer) -> Arc<NetworkRelay> {
        let identity = LinkIdentity::generate().expect("an identity");
        let ed25519: [u8; 32] = identity.ed_identity().into();
        let server = NtorServer { id: Ed25519Id(ed25519), key: EphemeralKey::new(rand::random()) };
        let listener = AsyncListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let relay = as_known(&identity, server.public().key, &listener);
        let exit = Arc::new(Self { identity, server, answer });
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&exit).serve(tcp));
            }
        });
        Arc::new(relay)
    }

    /// Answers all cells of a link until it ends.
    async fn serve(self: Arc<Self>, tcp: TcpStream) {
        let link = accept(tcp, &self.identity, PATIENCE).await.expect("a link");
        let mut link = ControlLink::new(link).expect("tokio's socket");
        let mut circuits = HashMap::new();
        while let Ok(cell) = link.recv_cell().await {
            let answer = match cell.command {
                CMD_CREATE2 => {
                    let (layers, answer) = self.create(cell.circ_id, &cell.body);
                    circuits.insert(cell.circ_id, layers);
                    answer
                }
                CMD_RELAY | CMD_RELAY_EARLY => {
                    let layers = circuits.get_mut(&cell.circ_id).expect("a circuit");
                    let (command, data) = &self.answer;
                    match layers.open(&cell.body) {
                        (BEGIN | RESOLVE, stream) => {
                            let body = layers.seal(*command, stream, data);
                            fixed_cell(cell.circ_id, CMD_RELAY, &body).expect("a cell")
                        }
                        _ => continue,
                    }
                }
                _ => continue,
            };
            if link.send_cells(&answer).await.is_err() {
                return;
            }
        }
    }

    /// Creates a circuit and its CREATED2.
    fn create(&self, circ_id: u32, body: &[u8]) -> (Layers, Cell) {
        let (kind, handshake) = read_create(body).expect("CREATE2");
        assert_eq!(kind, HANDSHAKE_TYPE);
        let respond = |message: &[u8]| is_extensions(message).then(|| vec![0]);
        let ephemeral = EphemeralKey::new(rand::random());
        let answered = self.server.answer(handshake, &ephemeral, respond);
        let (reply, mut keys) = answered.expect("a handshake with us");
        let body = created(&reply).expect("it fits");
        let cell = fixed_cell(circ_id, CMD_CREATED2, &body).expect("a cell");
        (Layers::new(&mut keys), cell)
    }
}

/// Relay cryptography of a circuit's last relay (tor-spec 5.5).
struct Layers {
    /// For the client's messages.
    forward: Keystream,
    /// For messages to the client.
    backward: Keystream,
    /// Over all messages to the client.
    digest: Sha1,
}

impl Layers {
    /// From the handshake's keys: two digest seeds, then two keys.
    fn new(keys: &mut KeySource) -> Self {
        let (mut seeds, mut ciphers) = ([[0; 20]; 2], [[0; 16]; 2]);
        seeds.iter_mut().for_each(|seed| keys.fill(seed));
        ciphers.iter_mut().for_each(|key| keys.fill(key));
        let [forward, backward] = ciphers.map(|key| Keystream::new(&key));
        Self { forward, backward, digest: Sha1::new_with_prefix(seeds[1]) }
    }

    /// Command and stream of a client's message.
    fn open(&mut self, body: &[u8]) -> (u8, [u8; 2]) {
        let mut body: Body = body.try_into().expect("a body");
        self.forward.apply(&mut body);
        assert_eq!(body[1..3], [0; 2], "it is for us");
        (body[0], [body[3], body[4]])
    }

    /// A message to the client.
    fn seal(&mut self, command: u8, stream: [u8; 2], data: &[u8]) -> Body {
        let mut body = [0; BODY_LEN];
        body[0] = command;
        body[3..5].copy_from_slice(&stream);
        body[9..11].copy_from_slice(&u16::try_from(data.len()).expect("it fits").to_be_bytes());
        body[11..11 + data.len()].copy_from_slice(data);
        self.digest.update(body);
        body[5..9].copy_from_slice(&self.digest.clone().finalize()[..4]);
        self.backward.apply(&mut body);
        body
    }
}

/// RESOLVED with these addresses.
fn resolved(addresses: &[[u8; 4]]) -> Answer {
    let one = |address: &[u8; 4]| [&[4, 4], &address[..], &TTL].concat();
    (RESOLVED, addresses.iter().flat_map(one).collect())
}

/// A circuit of Arti to an exit with this answer, and one probe.
async fn measured(probe: Probe, answer: Answer) -> CircuitRecord {
    let path = vec![Exit::start(answer).await];
    let client = Arti::new(&network::CircuitNetwork::default()).expect("Arti");
    let (time, probes) = (PATIENCE, |of| u32::from(probe == of));
    let program = Program {
        rtt: probes(Probe::Refused),
        resolve: probes(Probe::Resolve),
        rtt_pause: Duration::ZERO,
        ttfb: 0,
        latency: None,
        download_bytes: 0,
        target: None,
        build_time: time,
        trip_time: time,
        download_time: time,
    };
    let (run_began, number) = (Instant::now(), 0);
    let (client, program) = (&client, &program);
    loop {
        let path = path.clone();
        let one = Measured { client, program, number, path, run_began, probes_share: false };
        let circuit = one.measure(|| async {}).await;
        // Arti waits 5 s for a link, too little on a busy machine.
        let is_late =
            |failure: &Failure| (failure.stage, failure.whose) == (Stage::Link, Whose::Unknown);
        if !circuit.failure.as_ref().is_some_and(is_late) {
            return circuit;
        }
    }
}

/// An answer that Arti reports as false is a failure that names the exit, with its own class in the
/// metrics.
#[tokio::test]
async fn arti_names_an_exit_that_says_what_cannot_be() {
    let false_address = "the exit resolved 192.0.2.1 to 10.0.0.1, a false address";
    let accepted = "the exit accepted 127.1.1.1";
    let connected = [&FALSE[..], &TTL].concat();
    for (probe, answer, reason, class) in [
        (Probe::Resolve, resolved(&[FALSE]), false_address, "false-address"),
        (Probe::Resolve, resolved(&[LITERAL, FALSE]), false_address, "false-address"),
        (Probe::Refused, (CONNECTED, connected), accepted, "accepted"),
        (Probe::Refused, (CONNECTED, Vec::new()), accepted, "accepted"),
    ] {
        let circuit = measured(probe, answer).await;
        let (stage, hop, whose) = (Stage::Rtt, Some(1), Whose::Relay);
        let expected = Failure { stage, hop, reason: reason.to_owned(), whose };
        assert_eq!(circuit.failure, Some(expected), "{circuit:?}");
        assert_eq!((circuit.hops_us.len(), circuit.rtt.len()), (1, 0), "{circuit:?}");
        let said = ff_perf::course::failure(&circuit);
        assert_eq!(said, format!("Rtt at ours ({}): {reason}", circuit.path[0].id));
        let (figures, registry) = Figures::new(OptionalFigures::default());
        figures.note(&circuit);
        let text = figures::text(&registry).expect("text");
        let counted = format!("ff_circuit_failures_total{{stage=\"rtt\",reason=\"{class}\"}} 1\n");
        assert!(text.contains(&counted), "{text}");
    }
}

/// All other answers are cells that came back, with their content: Arti does not tell the address
/// of a refusal.
#[tokio::test]
async fn arti_measures_whatever_else_comes_back() {
    let refusal = [&[EXITPOLICY], &FALSE[..], &TTL].concat();
    let error = [&[0xf1, 0][..], &TTL].concat();
    for (probe, answer, reason) in [
        (Probe::Refused, (END, refusal), "exitpolicy"),
        (Probe::Refused, (END, vec![UNKNOWN]), "200"),
        (Probe::Refused, (END, Vec::new()), "misc"),
        (Probe::Resolve, resolved(&[LITERAL]), ""),
        (Probe::Resolve, resolved(&[]), "error"),
        (Probe::Resolve, (RESOLVED, error), "error"),
    ] {
        let circuit = measured(probe, answer).await;
        assert_eq!((circuit.failure.as_ref(), circuit.rtt.len()), (None, 1), "{circuit:?}");
        let trip = &circuit.rtt[0];
        assert_eq!((trip.probe, trip.reason.as_str()), (probe, reason));
        assert!((1..=circuit.ended_us).contains(&trip.us), "{trip:?}");
    }
}
