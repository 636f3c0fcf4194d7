//! Random orders of cells against a relay that is being measured all the time: nothing that peers
//! send in any order ends tor, and it serves its clients afterwards.
//!
//! ```text
//!   granter   a fresh coordinator after the other has measurements granted, fuzzes its own link,
//!             ends them in every way, and lists new coordinators when all have had their two
//!   workers   open links and send orders; half of the links ask to be measurement links first
//! ```
//!
//! An order is 1 to 24 cells of the commands that mean something to tor or to us, on three circuit
//! ids and none, sent at once; a link that stays open gets the next one. The seed gives the orders, but
//! not which of them come while a measurement is granted, running or over.
//!
//! The relay is the tor-asan beside the tor that FF_TEST_TOR names, as `build-tor --asan` makes it: it
//! ends itself at the first access to memory that is not its own. FF_FUZZ_SECONDS says how long it
//! takes, by default a minute.

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ed25519_dalek::SigningKey;
use ff_lab::{Network, Node, RelayConfig};
use ff_measurer::link::TargetAddr;
use ff_measurer::link::control::ControlLink;
use ff_proto::cell::{CMD_MEASUREMENT, Cell, fixed_cell};
use ff_proto::ids::{CryptoKind, MeasurementId};
use ff_proto::msg::{MeasEnd, Msg};
use ff_proto::session::measurer::{LinkSecrets, MEASUREMENT_CIRC_ID, OpeningLink};
use futures::future::join_all;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use tokio::time::timeout;

use crate::rules::session::{Member, control_cell, request, try_open};
use crate::support::{among_others, coordinator, ff_tor, identity, number};

/// Links at the same time.
const WORKERS: u64 = 48;
/// Coordinators that the relay allows at the same time; there cannot be more.
const COORDINATORS: usize = 64;
/// How long a link may stay silent before it gets its next order.
const SILENCE: Duration = Duration::from_millis(30);
/// Orders on one link.
const ORDERS: usize = 6;
/// Cells of an order.
const CELLS: usize = 24;
/// Longer than any answer takes, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(120);

/// tor-spec's commands for circuits, and what else has a meaning on a link.
const COMMANDS: [u8; 19] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 80, 81, 82, 128, 130, 131];
/// Those that matter most: CREATE, RELAY, DESTROY, CREATE_FAST, CREATE2, MEASUREMENT and MEAS_ECHO.
const FREQUENT: [u8; 9] = [1, 3, 4, 5, 10, 10, 80, 81, 81];
/// CREATE2's type of the ntor handshake, and how long that is.
const NTOR: [u8; 4] = [0, 2, 0, 84];

/// The measurement that links may join.
struct Joinable {
    /// Its name.
    measurement: MeasurementId,
    /// Its measurers.
    keys: Vec<SigningKey>,
}

/// What workers and the granter share.
struct Fuzz {
    /// The relay.
    target: TargetAddr,
    /// The measurement that is going on.
    joinable: Mutex<Option<Joinable>>,
    /// Orders sent.
    orders: AtomicU64,
    /// Links opened, and those on which a measurement circuit was.
    links: [AtomicU64; 2],
    /// Measurements granted.
    granted: AtomicU64,
    /// Whether the relay is gone or the time is over.
    is_over: AtomicBool,
}

/// The tor to test: with AddressSanitizer, without which much would go unseen.
fn asan_tor() -> PathBuf {
    let tor = ff_tor().with_file_name("tor-asan");
    assert!(tor.exists(), "there is no {}: build-tor --asan makes it", tor.display());
    tor
}

#[test]
#[ignore = "needs FF_TEST_TOR: a tor that build-tor has built"]
fn no_order_of_cells_ends_the_relay() {
    let _others = among_others();
    let seconds = number("FF_FUZZ_SECONDS").unwrap_or(60);
    let seed = number("FF_TEST_SEED").unwrap_or_else(rand::random);
    let tor = asan_tor();
    println!("FF_TEST_SEED={seed}, {seconds} s against {}", tor.display());
    let relay = RelayConfig::middle("fuzzed").tor(tor).torrc("FFMeasurementsAllowed 1");
    let network = Network::builder()
        .relay(relay.torrc("FFMaxMeasurementSockets 32768"))
        .exits(1)
        .clients(1)
        .voting_interval(Duration::from_secs(1800))
        .start()
        .expect("a network");
    let node = network.node("fuzzed");
    let pid = node.pid().expect("the relay runs");

    let fuzz = Fuzz {
        target: TargetAddr { addr: node.or_addr(), ed_identity: node.ed_identity().into() },
        joinable: Mutex::new(None),
        orders: AtomicU64::new(0),
        links: [const { AtomicU64::new(0) }; 2],
        granted: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let until = Instant::now() + Duration::from_secs(seconds);
        let workers = join_all((0..WORKERS).map(|worker| work(&fuzz, seed, worker)));
        tokio::join!(workers, grant(&fuzz, node, seed), watch(&fuzz, node, until));
    });

    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    println!(
        "{} orders on {} links, {} of them with a measurement circuit; {} measurements",
        count(&fuzz.orders),
        count(&fuzz.links[0]),
        count(&fuzz.links[1]),
        count(&fuzz.granted),
    );
    // What AddressSanitizer says is not in tor's own log.
    let said = fs::read_to_string(node.data_dir().join("out")).unwrap_or_default();
    let log = node.log() + &said;
    for complaint in ["AddressSanitizer", "Bug: ", "ssertion ", "nternal error"] {
        let found = log.lines().find(|line| line.contains(complaint));
        assert_eq!(found, None, "FF_TEST_SEED={seed}; the log is in:\n{}", last_lines(&log));
    }
    assert_eq!(node.pid().ok(), Some(pid), "FF_TEST_SEED={seed}:\n{}", last_lines(&log));
    let path = [node, network.node("exit0")];
    let downloads = network.download_through(network.node("client0"), &path, 1).expect("a circuit");
    let deadline = Instant::now() + PATIENCE;
    while downloads.bytes() < 100_000 {
        assert!(
            Instant::now() < deadline,
            "{} bytes through an ordinary circuit",
            downloads.bytes()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    for counter in [&fuzz.orders, &fuzz.links[1], &fuzz.granted] {
        assert!(count(counter) > 0, "nothing was tested");
    }
}

/// The end of a log.
fn last_lines(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}

/// Watches the relay until it is gone or the time is over.
#[expect(clippy::print_stdout, reason = "who fuzzes for hours wants to know how far it is")]
async fn watch(fuzz: &Fuzz, node: &Node, until: Instant) {
    let mut told = Instant::now();
    while Instant::now() < until && node.is_running() {
        if told.elapsed() > Duration::from_secs(60) {
            told = Instant::now();
            println!("{} orders", fuzz.orders.load(Ordering::Relaxed));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    fuzz.is_over.store(true, Ordering::Relaxed);
}

/// Opens links and sends orders.
async fn work(fuzz: &Fuzz, seed: u64, worker: u64) {
    let mut rng = StdRng::seed_from_u64(seed.wrapping_add(worker));
    while !fuzz.is_over.load(Ordering::Relaxed) {
        let Ok(mut link) = try_open(&fuzz.target).await else { continue };
        fuzz.links[0].fetch_add(1, Ordering::Relaxed);
        let orders = Orders::new(fuzz, &link, &mut rng);
        let mut is_first = true;
        for _ in 0..ORDERS {
            let mut cells = orders.next(&mut rng);
            if is_first && rng.random_bool(0.5) {
                cells.splice(..0, orders.create.first().copied());
            }
            is_first = false;
            // Where they end, the record does as well.
            let parts = rng.random_range(1..=3);
            let mut is_open = true;
            for part in cells.chunks(cells.len().div_ceil(parts)) {
                is_open &= link.send_cells(part.as_flattened()).await.is_ok();
            }
            fuzz.orders.fetch_add(1, Ordering::Relaxed);
            if !is_open || !drain(fuzz, &mut link).await {
                break;
            }
        }
        // Without having read all, a link is reset.
        if rng.random_bool(0.3) {
            let _ = link.send_cells(orders.next(&mut rng).as_flattened()).await;
        }
    }
}

/// Reads until the relay is silent. Whether the link is open.
async fn drain(fuzz: &Fuzz, link: &mut ControlLink) -> bool {
    loop {
        match timeout(SILENCE, link.recv_cell()).await {
            Ok(Ok(cell)) => {
                let created = cell.command == CMD_MEASUREMENT
                    && matches!(Msg::decode(&cell.body), Ok(Msg::Created(_)));
                fuzz.links[1].fetch_add(u64::from(created), Ordering::Relaxed);
            }
            Ok(Err(_)) => return false,
            Err(_) => return true,
        }
    }
}

/// What a link's orders are made of.
struct Orders {
    /// Messages that are good for this link, MEAS_CREATE first, if there is a measurement.
    create: Vec<Cell>,
    /// Other messages that are.
    others: Vec<Cell>,
}

impl Orders {
    /// Messages for a link.
    fn new(fuzz: &Fuzz, link: &ControlLink, rng: &mut StdRng) -> Self {
        let id = MeasurementId(rng.random());
        let (mut create, mut others) =
            (Vec::new(), vec![control_cell(&Msg::End(MeasEnd { measurement: id }))]);
        others.extend(request(link, id, &coordinator(), 10, &[Member::new(1)]));
        if let Some(joinable) = &*fuzz.joinable.lock().expect("no panic") {
            let Joinable { measurement, keys } = joinable;
            let secrets = LinkSecrets {
                ephemeral: rng.random(),
                content: rng.random(),
                sampling: rng.random(),
            };
            let crypto = if rng.random() { CryptoKind::AES128_CTR } else { CryptoKind::CGO_AES128 };
            let key = &keys[rng.random_range(0..keys.len())];
            let made = OpeningLink::new(*measurement, key, *link.exporter(), secrets, crypto, 1.0);
            create.push(made.1);
            others.push(control_cell(&Msg::End(MeasEnd { measurement: *measurement })));
        }
        Self { create, others }
    }

    /// The next order.
    fn next(&self, rng: &mut StdRng) -> Vec<Cell> {
        (0..rng.random_range(1..=CELLS)).map(|_| self.cell(rng)).collect()
    }

    /// A cell.
    fn cell(&self, rng: &mut StdRng) -> Cell {
        let frequent = rng.random_bool(0.8);
        let commands = if frequent { &FREQUENT[..] } else { &COMMANDS };
        let command = commands[rng.random_range(0..commands.len())];
        let circ_id = match rng.random_range(0..10) {
            0 => 0,
            1 => MEASUREMENT_CIRC_ID + 1,
            2 => MEASUREMENT_CIRC_ID + 2,
            _ => MEASUREMENT_CIRC_ID,
        };
        let mut body: [u8; 509] = [0; 509];
        rng.fill_bytes(&mut body);
        match command {
            // A version and a command that exist, and a length that may fit.
            CMD_MEASUREMENT if rng.random() => {
                body[..3].copy_from_slice(&[1, rng.random_range(0..10), rng.random_range(0..3)]);
            }
            CMD_MEASUREMENT => {
                let good: Vec<_> = self.create.iter().chain(&self.others).collect();
                let mut cell = *good[rng.random_range(0..good.len())];
                cell[..4].copy_from_slice(&circ_id.to_be_bytes());
                return cell;
            }
            // One that another thread looks at.
            10 if rng.random_bool(0.8) => body[..4].copy_from_slice(&NTOR),
            _ => {}
        }
        fixed_cell(circ_id, command, &body).unwrap_or_else(|_| {
            let mut cell = [0; 514];
            cell[..4].copy_from_slice(&circ_id.to_be_bytes());
            cell[4] = command;
            cell[5..].copy_from_slice(&body);
            cell
        })
    }
}

/// Has measurements granted, one after the other.
async fn grant(fuzz: &Fuzz, node: &Node, seed: u64) {
    let mut rng = StdRng::seed_from_u64(!seed);
    let mut control = node.control().expect("a control connection");
    while !fuzz.is_over.load(Ordering::Relaxed) {
        let keys: Vec<_> = (0..COORDINATORS).map(|_| coordinator()).collect();
        let listed: Vec<_> = keys.iter().map(identity).collect();
        if control.setconf("FFAllowedCoordinators", &listed.join(",")).is_err() {
            return;
        }
        // Each may measure twice.
        for key in keys.iter().chain(&keys) {
            if fuzz.is_over.load(Ordering::Relaxed) {
                return;
            }
            measure_once(fuzz, key, &mut rng).await;
        }
    }
}

/// Has a measurement granted, and ends it in one way or the other.
async fn measure_once(fuzz: &Fuzz, key: &SigningKey, rng: &mut StdRng) {
    let Ok(mut link) = try_open(&fuzz.target).await else { return };
    let team: Vec<_> = (0..8).map(|_| Member::new(4096)).collect();
    let measurement = MeasurementId(rng.random());
    let cells = request(&link, measurement, key, rng.random_range(1..=6), &team);
    if rng.random_bool(0.1) {
        // Behind circuits of its own, or what is none.
        let before = Orders::new(fuzz, &link, rng).next(rng);
        let _ = link.send_cells(before.as_flattened()).await;
    }
    let _ = link.send_cells(cells.as_flattened()).await;
    let answer = timeout(PATIENCE, async {
        loop {
            match link.recv_cell().await {
                Ok(cell) if cell.command == CMD_MEASUREMENT => return Msg::decode(&cell.body).ok(),
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    });
    if !matches!(answer.await, Ok(Some(Msg::ParamsOk(_)))) {
        return;
    }
    fuzz.granted.fetch_add(1, Ordering::Relaxed);
    let keys = team.into_iter().map(|member| member.key).collect();
    *fuzz.joinable.lock().expect("no panic") = Some(Joinable { measurement, keys });

    let until = Instant::now() + Duration::from_millis(rng.random_range(200..4000));
    while Instant::now() < until {
        if matches!(timeout(SILENCE, link.recv_cell()).await, Ok(Err(_))) {
            break;
        }
    }
    let last = match rng.random_range(0..4) {
        0 => vec![control_cell(&Msg::End(MeasEnd { measurement }))],
        1 => Orders::new(fuzz, &link, rng).next(rng),
        2 => (0..20).flat_map(|_| Orders::new(fuzz, &link, rng).next(rng)).take(100).collect(),
        _ => Vec::new(),
    };
    let _ = link.send_cells(last.as_flattened()).await;
    drain(fuzz, &mut link).await;
}
