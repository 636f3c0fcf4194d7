//! Random orders of cells on many links of one relay, and measurements that are granted meanwhile.
//!
//! ```text
//!   measure_once   has a measurement granted, fuzzes its own link, and ends it in one of several ways
//!   workers        open links and send orders; half of the links ask to be measurement links first
//! ```
//!
//! An order is 1 to 24 cells of the commands that mean something to a relay or to us, on three
//! circuit ids and none, sent at once; a link that stays open gets the next one. The seed gives the
//! orders, but not which of them come while a measurement is granted, running or over.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ed25519_dalek::SigningKey;
use ff_measurer::link::TargetAddr;
use ff_measurer::link::control::ControlLink;
use ff_proto::cell::{CMD_MEASUREMENT, Cell, fixed_cell, is_variable_length};
use ff_proto::ids::{CryptoKind, MeasurementId};
use ff_proto::msg::{MeasEnd, Msg};
use ff_proto::session::measurer::{LinkSecrets, MEASUREMENT_CIRC_ID, OpeningLink};
use futures::future::join_all;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use tokio::time::timeout;

use crate::rules::session::{Member, control_cell, request, try_open};
use crate::support::coordinator;

/// Links at the same time.
const WORKERS: u64 = 48;
/// How long a link may stay silent before it gets its next order.
const SILENCE: Duration = Duration::from_millis(30);
/// Orders on one link.
const ORDERS: usize = 6;
/// Cells of an order.
const CELLS: usize = 24;
/// Longer than any answer takes, however busy the machine is.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// tor-spec's commands for circuits, and what else has a meaning on a link.
const COMMANDS: [u8; 19] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 80, 81, 82, 128, 130, 131];
/// The most important commands: CREATE, RELAY, DESTROY, CREATE_FAST, CREATE2, MEASUREMENT and
/// MEAS_ECHO.
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

/// The state shared by the workers and the granter.
pub(crate) struct Fuzz {
    /// The relay.
    pub(crate) target: TargetAddr,
    /// The measurement that is going on.
    joinable: Mutex<Option<Joinable>>,
    /// Orders sent.
    pub(crate) orders: AtomicU64,
    /// Links opened, and those on which a measurement circuit was.
    pub(crate) links: [AtomicU64; 2],
    /// Measurements granted.
    pub(crate) granted: AtomicU64,
    /// Whether the relay is gone or the time is over.
    pub(crate) is_over: AtomicBool,
}

impl Fuzz {
    /// Nothing sent yet.
    pub(crate) fn new(target: TargetAddr) -> Self {
        Self {
            target,
            joinable: Mutex::new(None),
            orders: AtomicU64::new(0),
            links: [const { AtomicU64::new(0) }; 2],
            granted: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        }
    }

    /// Whether the relay is gone or the time is over.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Whether there has been at least one of everything.
    pub(crate) fn has_tested_all(&self) -> bool {
        [&self.orders, &self.links[1], &self.granted]
            .iter()
            .all(|counter| counter.load(Ordering::Relaxed) > 0)
    }

    /// What has been done, as a line.
    ///
    /// # Panics
    /// If something has not been done at all.
    pub(crate) fn summary(&self) -> String {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let summary = format!(
            "{} orders on {} links, {} of them with a measurement circuit; {} measurements",
            count(&self.orders),
            count(&self.links[0]),
            count(&self.links[1]),
            count(&self.granted),
        );
        assert!(self.has_tested_all(), "something was not tested: {summary}");
        summary
    }
}

/// Opens links and sends orders on them until it is over.
pub(crate) async fn run_workers(fuzz: &Fuzz, seed: u64) {
    join_all((0..WORKERS).map(|worker| work(fuzz, seed, worker))).await;
}

/// Opens links and sends orders.
async fn work(fuzz: &Fuzz, seed: u64, worker: u64) {
    let mut rng = StdRng::seed_from_u64(seed.wrapping_add(worker));
    while !fuzz.is_over() {
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

/// Has a measurement granted, and ends it in one way or the other.
pub(crate) async fn measure_once(fuzz: &Fuzz, key: &SigningKey, rng: &mut StdRng) {
    let Ok(mut link) = try_open(&fuzz.target).await else { return };
    let team: Vec<_> = (0..8).map(|_| Member::new(4096)).collect();
    let measurement = MeasurementId(rng.random());
    let cells = request(&link, measurement, key, rng.random_range(1..=6), &team);
    if rng.random_bool(0.1) {
        // After circuits of its own, or cells that make none. One of variable length would swallow
        // the request.
        let mut before = Orders::new(fuzz, &link, rng).next(rng);
        before.retain(|cell| !is_variable_length(cell[4]));
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
