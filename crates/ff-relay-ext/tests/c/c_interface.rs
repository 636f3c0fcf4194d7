//! A C program is measured through the header only.
//!
//! `tests/c/measure.c` is the relay, linked with the static library and run under AddressSanitizer
//! and LeakSanitizer. Coordinator and measurers are ff-proto's own sessions in this process; cells
//! are passed over the program's standard input and output.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use base64ct::{Base64Unpadded, Encoding};
use ed25519_dalek::SigningKey;
use ff_proto::cell::{CELL_LEN, CMD_MEAS_ECHO, Cell, peek_cell};
use ff_proto::ids::{CryptoKind, Ed25519Id, MeasurementId};
use ff_proto::msg::{MeasParams, MeasurerGrant, TeamCells};
use ff_proto::session::SessionFailure;
use ff_proto::session::coordinator::{CoordinatorEvent, CoordinatorLink};
use ff_proto::session::measurer::{EchoEvent, EchoLink, LinkSecrets, Opening, OpeningLink};
use ff_proto::units::MonoTime;

/// The coordinator's link.
const COORDINATOR: u64 = 1;
/// The measurers' links.
const MEASURERS: [u64; 2] = [2, 3];
/// Seconds measured: the least allowed number.
const SECONDS: u16 = 10;
/// Echo cells on each link in each second.
const CELLS_PER_SECOND: [u64; 2] = [30, 10];
/// Echo cells on both links in each second.
const CELLS_PER_SECOND_IN_ALL: u64 = CELLS_PER_SECOND[0] + CELLS_PER_SECOND[1];
/// The relay's clock at the start, in seconds.
const UNIX_SECS: u64 = 2_000_000_000;
const MEASUREMENT: MeasurementId = MeasurementId([9; 16]);

/// Runs a program that must succeed.
fn run(command: &mut Command) {
    let output = command.output().expect("the program is installed");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
}

/// Builds the static library as for C tor, and returns its path.
fn static_library(profile: &str, folder: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it is in `target`");
    run(Command::new(env!("CARGO"))
        .args(["rustc", "-p", "ff-relay-ext", "--lib", "--locked", "--no-default-features"])
        .args(["--features", "ffi", "--crate-type", "staticlib", "--profile", profile])
        .arg("--target-dir")
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR")));
    target.join(folder).join("libff_relay_ext.a")
}

/// Compiles a C program.
fn compile(program: &Path, flags: &[&str], library: Option<&Path>, source: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    run(Command::new("cc")
        .args(["-std=c11", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Wpedantic"])
        .arg("-Werror")
        .args(flags)
        .arg("-I")
        .arg(root.join("include"))
        .arg(source)
        .args(library)
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(program));
}

/// The C program's source.
fn measure_c() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/measure.c")
}

/// The C program under AddressSanitizer, built once.
fn measure_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let library = static_library("dev", "debug");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("measure");
        let flags = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover"];
        compile(&program, &flags, Some(&library), &measure_c());
        program
    })
}

/// The relay in C.
struct Host {
    /// The process.
    child: Child,
    /// For commands.
    stdin: ChildStdin,
    /// For answers.
    stdout: BufReader<ChildStdout>,
    /// Its clock.
    now: MonoTime,
}

impl Host {
    /// Starts the program with these arguments.
    fn start(args: &[&str]) -> Self {
        let mut child = Command::new(measure_program())
            .args(args)
            .env("ASAN_OPTIONS", "detect_leaks=1:abort_on_error=0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it was just compiled");
        let stdin = child.stdin.take().expect("piped");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, stdin, stdout, now: MonoTime::from_micros(1) }
    }

    /// Starts the program and allows this coordinator to measure.
    fn allowing(args: &[&str], coordinator: &SigningKey) -> Self {
        let mut host = Self::start(args);
        let id = Base64Unpadded::encode_string(&id(coordinator).0);
        host.command("option FFMeasurementsAllowed 1");
        host.command(&format!("option FFAllowedCoordinators {id}"));
        host.command("option FFMeasurementPeriod 1 hour");
        assert_eq!(host.command("options"), [""; 0]);
        host.at(1);
        host
    }

    /// Sends a command, and returns the lines of the answer.
    fn command(&mut self, command: &str) -> Vec<String> {
        writeln!(self.stdin, "{command}").expect("the program still runs");
        let mut answer = Vec::new();
        loop {
            let mut line = String::new();
            self.stdout.read_line(&mut line).expect("the program writes text");
            match line.trim_end() {
                "" => panic!("the program ended after {command:?}: {:?}", self.child.wait()),
                "ok" => return answer,
                text => answer.push(text.to_owned()),
            }
        }
    }

    /// Sets its clock to `micros` microseconds.
    fn at(&mut self, micros: u64) -> Vec<String> {
        self.now = MonoTime::from_micros(micros);
        self.command(&format!("time {micros} {}", UNIX_SECS + micros / 1_000_000))
    }

    /// Opens a link, and returns the stand-in for its TLS exporter's output.
    fn open(&mut self, link: u64) -> [u8; 32] {
        let exporter = [u8::try_from(link).expect("few links"); 32];
        assert_eq!(self.command(&format!("open {link} {}", hex::encode(exporter))), [""; 0]);
        exporter
    }

    /// Sends a cell over a link.
    fn cell(&mut self, link: u64, cell: &Cell) -> Vec<String> {
        self.command(&format!("cell {link} {}", hex::encode(cell)))
    }

    /// Ends the program; the sanitizers must not report anything.
    fn quit(mut self) {
        writeln!(self.stdin, "quit").expect("the program still runs");
        let status = self.child.wait().expect("it can be waited for");
        assert!(status.success(), "{status}; what is wrong stands above");
    }
}

/// A key's id.
fn id(key: &SigningKey) -> Ed25519Id {
    Ed25519Id(key.verifying_key().to_bytes())
}

/// The cells for a link among an answer's lines.
fn cells(lines: &[String], link: u64) -> Vec<Cell> {
    let prefix = format!("cell {link} ");
    let texts = lines.iter().filter_map(|line| line.strip_prefix(&prefix));
    texts
        .map(|text| {
            let mut cell = [0; CELL_LEN];
            hex::decode_to_slice(text, &mut cell).expect("a whole cell in hexadecimal");
            cell
        })
        .collect()
}

/// Whether an answer contains this line.
fn has(lines: &[String], line: &str) -> bool {
    lines.iter().any(|other| other == line)
}

/// The coordinator and its measurers.
struct Team {
    /// The coordinator's key.
    key: SigningKey,
    /// The measurers' keys, in the order of [`MEASURERS`].
    measurers: [SigningKey; 2],
    /// The cipher of the measurement.
    crypto: CryptoKind,
}

impl Team {
    /// A coordinator with two measurers.
    fn new() -> Self {
        Self {
            key: SigningKey::from_bytes(&[1; 32]),
            measurers: [2, 3].map(|seed| SigningKey::from_bytes(&[seed; 32])),
            crypto: CryptoKind::CGO_AES128,
        }
    }

    /// Requests a measurement; returns the session and the relay's answer.
    fn ask(&self, host: &mut Host) -> (CoordinatorLink, Vec<String>) {
        let exporter = host.open(COORDINATOR);
        let params = MeasParams {
            measurement: MEASUREMENT,
            duration_secs: SECONDS,
            measurers: vec![
                MeasurerGrant {
                    id: id(&self.measurers[0]),
                    sockets: 2,
                    address: Some([192, 0, 2, 7].into()),
                },
                MeasurerGrant { id: id(&self.measurers[1]), sockets: 1, address: None },
            ],
            crypto: vec![self.crypto],
        };
        let (session, [request, probe]) =
            CoordinatorLink::new(params, &self.key, &exporter, &[0; 20], host.now)
                .expect("a good request");
        let lines = host.cell(COORDINATOR, &request);
        if !has(&lines, &format!("close {COORDINATOR}")) {
            // The relay handles it itself, without the library.
            assert_eq!(host.cell(COORDINATOR, &probe), [""; 0]);
        }
        (session, lines)
    }

    /// Requests a measurement that must be granted.
    fn begin(&self, host: &mut Host) -> (CoordinatorLink, Vec<String>) {
        let (mut session, lines) = self.ask(host);
        let answers = cells(&lines, COORDINATOR);
        let event = session.handle(peek_cell(&answers[0]).expect("a cell"), host.now);
        let Ok(Some(CoordinatorEvent::Granted(grant))) = event else { panic!("{event:?}") };
        assert_eq!((grant.duration_secs, grant.ratio.percent()), (SECONDS, 25));
        assert_eq!(grant.crypto, self.crypto);
        (session, lines)
    }

    /// Opens a link's circuit, every cell of which is checked.
    fn join(&self, host: &mut Host, link: u64) -> Box<EchoLink> {
        let exporter = host.open(link);
        let measurer = &self.measurers[usize::from(link == MEASURERS[1])];
        let secrets = LinkSecrets { ephemeral: [3; 32], content: [4; 16], sampling: [5; 16] };
        let (opening, create) =
            OpeningLink::new(MEASUREMENT, measurer, exporter, secrets, self.crypto, 1.0);
        let answers = cells(&host.cell(link, &create), link);
        match opening.handle(peek_cell(&answers[0]).expect("a cell")) {
            Ok(Opening::Open(echo)) => echo,
            Ok(Opening::Waiting(_)) => panic!("the answer was no answer"),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Sends an echo cell and checks the returned one; returns the other lines.
fn echo(host: &mut Host, link: u64, echo: &mut EchoLink) -> Vec<String> {
    let mut cell = [0; CELL_LEN];
    echo.write(&mut cell);
    let lines = host.cell(link, &cell);
    let answers = cells(&lines, link);
    assert_eq!(answers.len(), 1);
    assert_ne!(answers[0], cell, "it was decrypted");
    let event = echo.handle(peek_cell(&answers[0]).expect("a cell"));
    assert!(matches!(event, Ok(EchoEvent::Checked)), "{event:?}");
    lines.into_iter().skip(1).collect()
}

/// The background bytes that may move now, received and sent.
fn allowance(host: &mut Host) -> Option<(u64, u64)> {
    let lines = host.command("allowance");
    let text = lines[0].strip_prefix("allowance ").expect("the answer");
    let numbers = text.split_once(' ')?;
    Some((numbers.0.parse().expect("a number"), numbers.1.parse().expect("a number")))
}

/// A whole measurement: grant, echoes, reports, end.
fn measure(team: &Team, host: &mut Host) {
    let start = host.now.micros();
    assert_eq!(host.command("exempt 192.0.2.7"), ["exempt 0"]);
    let (mut session, lines) = team.begin(host);
    assert!(lines.iter().any(|line| line.starts_with("tell 1 coordinator ")), "{lines:?}");
    for (address, is_exempt) in
        [("192.0.2.7", 1), ("::ffff:192.0.2.7", 1), ("192.0.2.8", 0), ("2001:db8::7", 0)]
    {
        let answer = host.command(&format!("exempt {address}"));
        assert_eq!(answer, [format!("exempt {is_exempt}")], "{address}");
    }
    // As many links as were announced are accepted, and no others.
    for (address, passes) in
        [("192.0.2.8", 0), ("192.0.2.7", 1), ("192.0.2.7", 1), ("192.0.2.7", 0)]
    {
        assert_eq!(host.command(&format!("arrive {address}")), [format!("arrive {passes}")]);
    }
    assert_eq!(host.command("exempt 192.0.2.7"), ["exempt 0"]);
    let mut links = MEASURERS.map(|link| (link, team.join(host, link)));
    assert_eq!(allowance(host), None, "granted is not measured yet");

    session.start(host.now);
    let mut ends = Vec::new();
    for second in 0..SECONDS {
        for ((link, circuit), cells) in links.iter_mut().zip(CELLS_PER_SECOND) {
            for cell in 0..cells {
                let lines = echo(host, *link, circuit);
                let is_first = second == 0 && cell == 0 && *link == MEASURERS[0];
                assert_eq!(lines.len(), usize::from(is_first), "{lines:?}");
            }
        }
        // Uses up the clients' allowance. They had nothing before, and their share of so little an
        // echo is less than the floor: 1 Mbit/s.
        let mut received = 0;
        for tenth in 0..10 {
            let lines = host.at(start + u64::from(second) * 1_000_000 + tenth * 100_000);
            assert_eq!(lines, [""; 0]);
            let (receive, send) = allowance(host).expect("a running measurement has a limit");
            assert!(receive > 0 && send > 0, "{receive} {send} in second {second}, {tenth}");
            host.command(&format!("background {receive} {receive}"));
            // Asking for an empty allowance counts as waiting, and clients that wait in three
            // seconds while they move more than is measured end a measurement.
            if second == 0 {
                assert_eq!(allowance(host).expect("as before").0, 0, "all is used up");
            }
            received += receive;
        }
        assert_eq!(received, 125_000, "in second {second}");
        let lines = host.at(start + (u64::from(second) + 1) * 1_000_000);
        let reports = cells(&lines, COORDINATOR);
        let event = session.handle(peek_cell(&reports[0]).expect("a cell"), host.now);
        let Ok(Some(CoordinatorEvent::Background(report))) = event else { panic!("{event:?}") };
        // The reported background is the most that may count for the cells of a second: a third of
        // them.
        let counts = CELLS_PER_SECOND_IN_ALL * 514 / 3;
        assert_eq!((report.second, report.sent, report.received), (second, counts, counts));
        assert_eq!(report.echoed, TeamCells::from_slice(&CELLS_PER_SECOND));
        ends = lines;
    }
    let last = cells(&ends, COORDINATOR).pop().expect("the end behind the last report");
    let event = session.handle(peek_cell(&last).expect("a cell"), host.now);
    assert_eq!(event, Ok(Some(CoordinatorEvent::Ended)));
    let mut late = [0; CELL_LEN];
    (late[0], late[4]) = (0x80, CMD_MEAS_ECHO);
    for (link, circuit) in &mut links {
        let end = cells(&ends, *link);
        let event = circuit.handle(peek_cell(&end[0]).expect("a cell"));
        assert!(matches!(event, Ok(EchoEvent::Ended)), "{event:?}");
        assert!(has(&ends, &format!("over {link}")));
        assert_eq!(host.cell(*link, &late), [""; 0], "what was on its way is dropped");
    }
    let lines = host.at(start + u64::from(SECONDS) * 1_000_000 + 2_000_000);
    assert_eq!(lines, MEASURERS.map(|link| format!("close {link}")));
    assert!(!has(&ends, &format!("close {COORDINATOR}")), "its own end is its own");
    assert_eq!(allowance(host), None);
    assert_eq!(host.command("exempt 192.0.2.7"), ["exempt 0"]);
    assert_eq!(host.command("idle"), ["idle 1"]);
    assert_eq!(host.command(&format!("gone {COORDINATOR}")), [""; 0]);
}

#[test]
fn a_whole_measurement_through_the_header() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let memory = dir.path().join("ff-grants");
    let path = memory.to_str().expect("UTF-8");
    let team = Team::new();
    let mut host = Host::allowing(&["file", path], &team.key);
    measure(&team, &mut host);
    let echoed = u64::from(SECONDS) * CELLS_PER_SECOND_IN_ALL;
    let totals = host.command("totals");
    let expected = format!("totals 1 0 1 0 {} ", echoed * 514);
    assert!(totals[0].starts_with(&expected) && totals[0].ends_with(" 10"), "{totals:?}");
    host.quit();
    let text = std::fs::read_to_string(&memory).expect("it was written before the grant");
    assert_eq!(text, format!("{} {UNIX_SECS}\n", id(&team.key)));

    // A restart forgets nothing: one retry in the period, and no more. It is with the other cipher.
    let team = Team { crypto: CryptoKind::AES128_CTR, ..team };
    let mut host = Host::allowing(&["file", path], &team.key);
    measure(&team, &mut host);
    let (mut session, lines) = team.ask(&mut host);
    let answers = cells(&lines, COORDINATOR);
    let event = session.handle(peek_cell(&answers[0]).expect("a cell"), host.now);
    assert!(matches!(&event, Err(SessionFailure::Refused(e)) if e.code.name() == "too_soon"));
    assert!(lines.iter().any(|line| line.starts_with("tell 1 refused")), "{lines:?}");
    host.quit();
}

#[test]
fn a_coordinator_that_is_not_listed_is_refused() {
    let team = Team::new();
    let mut host = Host::allowing(&["text"], &SigningKey::from_bytes(&[7; 32]));
    let (mut session, lines) = team.ask(&mut host);
    let event =
        session.handle(peek_cell(&cells(&lines, COORDINATOR)[0]).expect("a cell"), host.now);
    let refused = "coordinator_not_allowed";
    assert!(matches!(&event, Err(SessionFailure::Refused(e)) if e.code.name() == refused));
    assert!(has(&lines, &format!("close {COORDINATOR}")));
    assert!(lines.iter().any(|line| line.starts_with("tell 0 refused")), "{lines:?}");
    assert_eq!(host.command("totals"), ["totals 0 1 0 0 0 0 0"]);
    host.quit();
}

#[test]
fn options_and_parameters_decide_whether_there_are_measurements() {
    let team = Team::new();
    let mut host = Host::start(&["text"]);
    let (_, lines) = team.ask(&mut host);
    assert!(has(&lines, &format!("close {COORDINATOR}")), "off by default");

    host.command("option FFMaxMeasurementDuration 9");
    let error = host.command("options");
    assert!(error[0].starts_with("error ") && error[0].contains("10 to 120 seconds"), "{error:?}");

    let listed = Base64Unpadded::encode_string(&id(&team.key).0);
    host.command(&format!("option FFAllowedCoordinators {listed}"));
    assert_eq!(host.command("options"), [""; 0]);
    host.command("param FFMeasurementsAllowed 1");
    team.begin(&mut host);
    host.quit();
}

#[test]
fn a_host_that_stores_grants_itself_is_given_their_text_before_the_answer() {
    let team = Team::new();
    let mut host = Host::allowing(&["text"], &team.key);
    let (_, lines) = team.begin(&mut host);
    let stored = lines[0].strip_prefix("store ").expect("first of all");
    let text = String::from_utf8(hex::decode(stored).expect("hexadecimal")).expect("text");
    assert_eq!(text, format!("{} {UNIX_SECS}\n", id(&team.key)));
    host.quit();

    let twice = text.repeat(2);
    let mut host = Host::allowing(&["text", &twice], &team.key);
    let (mut session, lines) = team.ask(&mut host);
    let event =
        session.handle(peek_cell(&cells(&lines, COORDINATOR)[0]).expect("a cell"), host.now);
    assert!(matches!(&event, Err(SessionFailure::Refused(e)) if e.code.name() == "too_soon"));
    host.quit();
}

#[test]
fn a_memory_that_cannot_be_written_refuses_the_measurement() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("nowhere/ff-grants");
    let team = Team::new();
    let mut host = Host::allowing(&["file", path.to_str().expect("UTF-8")], &team.key);
    let (_, lines) = team.ask(&mut host);
    assert!(lines.iter().any(|line| line.starts_with("tell 2 cannot write")), "{lines:?}");
    assert!(has(&lines, &format!("close {COORDINATOR}")));
    assert_eq!(host.command("idle"), ["idle 1"]);
    host.quit();
}

#[test]
fn measurements_end_early_and_normal_service_is_back_at_once() {
    let team = Team::new();
    for end in ["abort", "gone"] {
        let mut host = Host::allowing(&["text"], &team.key);
        team.begin(&mut host);
        let mut circuit = team.join(&mut host, 2);
        echo(&mut host, 2, &mut circuit);
        assert!(allowance(&mut host).is_some());
        let command =
            if end == "abort" { "abort".to_owned() } else { format!("gone {COORDINATOR}") };
        let lines = host.command(&command);
        assert!(has(&lines, "over 2"), "{lines:?}");
        assert!(lines.iter().any(|line| line.contains("has ended early")), "{lines:?}");
        assert_eq!(allowance(&mut host), None);
        host.quit();
    }
}

#[test]
fn a_program_may_end_in_the_middle_of_a_measurement() {
    let team = Team::new();
    let mut host = Host::allowing(&["text"], &team.key);
    team.begin(&mut host);
    let mut circuit = team.join(&mut host, 2);
    echo(&mut host, 2, &mut circuit);
    host.quit();
}

#[test]
fn echo_cells_without_a_circuit_or_with_another_id_close_the_link() {
    let team = Team::new();
    let mut host = Host::allowing(&["text"], &team.key);
    team.begin(&mut host);
    let mut cell = [0; CELL_LEN];
    (cell[0], cell[4]) = (0x80, CMD_MEAS_ECHO);
    host.open(5);
    assert_eq!(host.cell(5, &cell), ["close 5"]);
    team.join(&mut host, 2);
    assert_eq!(host.cell(2, &cell), ["close 2"]);
    host.quit();
}

#[test]
#[ignore = "compiles an optimised library"]
fn the_library_adds_less_than_a_megabyte() {
    let library = static_library("release", "release");
    let dir = tempfile::tempdir().expect("a temporary folder");
    let flags = ["-Os", "-s", "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections"];
    let size = |name: &str, source: &Path, library| {
        let program = dir.path().join(name);
        compile(&program, &flags, library, source);
        std::fs::metadata(&program).expect("it was just compiled").len()
    };
    let empty = dir.path().join("empty.c");
    std::fs::write(&empty, "int main(void) { return 0; }\n").expect("a writable folder");
    let without = size("without", &empty, None);
    let with = size("with", &measure_c(), Some(&library));
    println!("{without} bytes without, {with} with all functions of the library and measure.c");
    assert!(with - without < 1_000_000);
}
