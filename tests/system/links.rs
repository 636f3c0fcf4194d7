//! Limits of single links: the coordinator's, and those with circuits of their own.

use std::time::{Duration, Instant};

use ed25519_dalek::SigningKey;
use ff_measurer::link::control::{ControlError, ControlLink};
use ff_measurer::link::{self, LinkOptions};
use ff_proto::cell::{
    CELL_LEN, CMD_CREATE_FAST, CMD_CREATED_FAST, CMD_MEASUREMENT, Cell, fixed_cell,
};
use ff_proto::ids::{CryptoKind, MeasurementId};
use ff_proto::msg::{ErrCode, MeasEnd, MeasParams, MeasurerGrant, Msg};
use ff_proto::session::SessionFailure;
use ff_proto::session::coordinator::CoordinatorLink;
use ff_proto::session::measurer::{LinkSecrets, Opening, OpeningLink};
use ff_proto::units::MonoTime;
use tokio::time::timeout;

use crate::plan::{fresh_key, measure, plan};
use crate::relay::{Setup, TestRelay};
use crate::{is_run_by_itself, turn};

/// The cipher of the measurements here.
const CRYPTO: CryptoKind = CryptoKind::SUPPORTED[0];
/// Longer than anything here takes that does not hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// Opens a link to the relay.
async fn open(relay: &TestRelay) -> ControlLink {
    let link = link::open(&relay.target, &LinkOptions::default()).await.expect("a link");
    ControlLink::new(link).expect("a socket for tokio")
}

/// A request of this coordinator on this link, followed by the probe.
fn request(link: &ControlLink, coordinator: &SigningKey) -> [Cell; 2] {
    request_for(link, coordinator, MeasurementId(rand::random()), &fresh_key(), 1)
}

/// The same for a measurement and a measurer that are known, with so many sockets.
fn request_for(
    link: &ControlLink,
    coordinator: &SigningKey,
    measurement: MeasurementId,
    measurer: &SigningKey,
    sockets: u16,
) -> [Cell; 2] {
    let id = ff_measurer::measurer_id(measurer);
    let params = MeasParams {
        measurement,
        duration_secs: 10,
        measurers: vec![MeasurerGrant { id, sockets, address: None }],
        crypto: vec![CRYPTO],
    };
    let (exporter, now) = (link.exporter(), MonoTime::default());
    let asked = CoordinatorLink::new(params, coordinator, exporter, &rand::random(), now);
    asked.expect("a request").1
}

/// A link of a measurement, its circuit open and six echo cells on it; `None` if the relay has just
/// ended the measurement.
async fn echoing(
    relay: &TestRelay,
    measurement: MeasurementId,
    measurer: &SigningKey,
) -> Option<ControlLink> {
    let mut link = open(relay).await;
    let secrets = LinkSecrets {
        ephemeral: rand::random(),
        content: rand::random(),
        sampling: rand::random(),
    };
    let exporter = *link.exporter();
    let (opening, create) = OpeningLink::new(measurement, measurer, exporter, secrets, CRYPTO, 1.0);
    link.send_cells(&create).await.expect("sent");
    let answer = timeout(PATIENCE, link.recv_cell()).await.expect("in time").expect("an answer");
    let mut circuit = match opening.handle(answer.as_cell()) {
        Ok(Opening::Open(circuit)) => circuit,
        Err(SessionFailure::Refused(error)) if error.code == ErrCode::UNKNOWN_MEASUREMENT => {
            return None;
        }
        _ => panic!("no MEAS_CREATED but {answer:?}"),
    };
    let mut cells = [[0; CELL_LEN]; 6];
    cells.iter_mut().for_each(|cell| circuit.write(cell));
    link.send_cells(cells.as_flattened()).await.expect("sent");
    Some(link)
}

/// Has a measurement whose links come and go, one at a time, until the relay ends it. Returns with
/// which code, and how many links there were.
pub(crate) async fn come_and_go(relay: &TestRelay, coordinator: &SigningKey) -> (ErrCode, u16) {
    let (measurement, measurer) = (MeasurementId(rand::random()), fresh_key());
    let mut control = open(relay).await;
    let cells = request_for(&control, coordinator, measurement, &measurer, 400);
    control.send_cells(cells.as_flattened()).await.expect("sent");
    let answer = next_message(&mut control).await;
    assert!(matches!(answer, Some(Msg::ParamsOk(_))), "{answer:?}");
    let mut count = 0;
    let links = async {
        let mut last = None;
        loop {
            // The one before is closed when the next is open.
            let Some(next) = echoing(relay, measurement, &measurer).await else {
                // The coordinator's link says why.
                std::future::pending().await
            };
            drop(last.replace(next));
            count += 1;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let end = async {
        loop {
            match next_message(&mut control).await {
                Some(Msg::Err(error)) => return error.code,
                Some(Msg::Bg(_)) => {}
                other => panic!("no MEAS_ERR but {other:?}"),
            }
        }
    };
    let code = tokio::select! {
        code = end => code,
        () = links => unreachable!("it goes on for ever"),
    };
    (code, count)
}

/// CREATE_FAST on this circuit.
fn create_fast(circ_id: u32) -> Cell {
    fixed_cell(circ_id, CMD_CREATE_FAST, &[7; 20]).expect("a cell")
}

/// The next message on the link, or `None` when the relay closes it; other cells are left out.
async fn next_message(link: &mut ControlLink) -> Option<Msg> {
    loop {
        match timeout(PATIENCE, link.recv_cell()).await.expect("the relay answers or closes") {
            Ok(cell) if cell.command == CMD_MEASUREMENT => {
                return Some(Msg::decode(&cell.body).expect("a message"));
            }
            Ok(_) => {}
            Err(ControlError::Closed { .. } | ControlError::Io { .. }) => return None,
            Err(error) => panic!("{error}"),
        }
    }
}

/// The code of the next message, which must be MEAS_ERR.
async fn next_error(link: &mut ControlLink) -> ErrCode {
    match next_message(link).await {
        Some(Msg::Err(error)) => error.code,
        other => panic!("no MEAS_ERR but {other:?}"),
    }
}

/// A link on which this coordinator has been granted a measurement.
pub(crate) async fn granted(relay: &TestRelay, coordinator: &SigningKey) -> ControlLink {
    let mut link = open(relay).await;
    let cells = request(&link, coordinator);
    link.send_cells(cells.as_flattened()).await.expect("sent");
    let answer = next_message(&mut link).await;
    assert!(matches!(answer, Some(Msg::ParamsOk(_))), "{answer:?}");
    link
}

/// Memory of this process that is not paged out, in KB.
fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches(" kB").trim().parse().expect("a number")
}

#[tokio::test]
async fn a_link_with_circuits_cannot_ask_for_a_measurement() {
    let _turn = turn().await;
    let coordinator = fresh_key();
    let relay = TestRelay::start(Setup::allowing(&[&coordinator]));
    let mut link = open(&relay).await;
    link.send_cells(&create_fast(0x8000_0005)).await.expect("sent");
    let created = timeout(PATIENCE, link.recv_cell()).await.expect("in time").expect("an answer");
    assert_eq!(created.command, CMD_CREATED_FAST);

    let cells = request(&link, &coordinator);
    link.send_cells(&cells[0]).await.expect("sent");
    assert_eq!(next_error(&mut link).await, ErrCode::UNEXPECTED_MESSAGE);
    assert_eq!(next_message(&mut link).await, None, "the link closes");
    assert_eq!((relay.totals().granted, relay.totals().refused), (0, 1));
}

#[tokio::test]
async fn a_second_circuit_on_a_coordinators_link_closes_it() {
    let _turn = turn().await;
    let coordinator = fresh_key();
    let relay = TestRelay::start(Setup::allowing(&[&coordinator]));
    let mut link = granted(&relay, &coordinator).await;
    link.send_cells(&create_fast(0x8000_0005)).await.expect("sent");
    assert_eq!(next_message(&mut link).await, None, "the link closes");
    relay.wait_until("end", |now| now.failed == 1).await;
}

#[tokio::test]
async fn a_coordinators_link_with_its_probes_circuit_asks_no_second_time() {
    let _turn = turn().await;
    let coordinator = fresh_key();
    let relay = TestRelay::start(Setup::allowing(&[&coordinator]));
    let (mut link, measurement) = (open(&relay).await, MeasurementId(rand::random()));
    let cells = request_for(&link, &coordinator, measurement, &fresh_key(), 1);
    link.send_cells(cells.as_flattened()).await.expect("sent");
    let answer = next_message(&mut link).await;
    assert!(matches!(answer, Some(Msg::ParamsOk(_))), "{answer:?}");
    let end = Msg::End(MeasEnd { measurement }).encode().expect("a message");
    let end = fixed_cell(0, CMD_MEASUREMENT, &end).expect("a cell");
    link.send_cells(&end).await.expect("sent");
    let answer = next_message(&mut link).await;
    assert!(matches!(answer, Some(Msg::End(_))), "{answer:?}");

    let cells = request(&link, &coordinator);
    link.send_cells(&cells[0]).await.expect("sent");
    assert_eq!(next_error(&mut link).await, ErrCode::UNEXPECTED_MESSAGE);
    assert_eq!(next_message(&mut link).await, None, "the link closes");
    assert_eq!((relay.totals().granted, relay.totals().refused), (1, 1));
}

#[tokio::test]
async fn garbage_on_a_coordinators_link_ends_it_and_costs_no_memory() {
    if is_run_by_itself("links::garbage_on_a_coordinators_link_ends_it_and_costs_no_memory") {
        return;
    }
    let coordinator = fresh_key();
    let relay = TestRelay::start(Setup::allowing(&[&coordinator]));
    let mut link = granted(&relay, &coordinator).await;
    let unknown = fixed_cell(0, CMD_MEASUREMENT, &[1, 99, 0, 0]).expect("a cell");
    let garbage = unknown.repeat(100);
    let (before, mut sent) = (resident_kb(), 0);
    // The answers are not read.
    while sent < 40_000_000 {
        match timeout(PATIENCE, link.send_cells(&garbage)).await {
            Ok(Ok(())) => sent += garbage.len(),
            Ok(Err(_)) => break,
            Err(_) => panic!("the link is still open after {sent} bytes"),
        }
    }
    assert!(sent < 40_000_000, "the relay has read everything");
    relay.wait_until("end", |now| now.failed == 1).await;
    let grown = resident_kb().saturating_sub(before);
    assert!(grown <= 2000, "{grown} KB more");
    assert!(relay.totals().refused <= 9, "{:?}", relay.totals());
}

#[tokio::test]
#[ignore = "a figure: .ci/measure has it"]
async fn a_full_relay_opens_links_for_others_meanwhile() {
    let _turn = turn().await;
    let coordinator = fresh_key();
    let relay = TestRelay::start(Setup::allowing(&[&coordinator]));
    let _clients = relay.clients(ff_proto::units::BytesPerSec::from_mbit(100));
    let plan = plan(&relay, &coordinator, 3);
    let opening = async {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let start = Instant::now();
        drop(open(&relay).await);
        start.elapsed()
    };
    let (outcome, took) = tokio::join!(measure(&plan), opening);
    assert!(outcome.result.is_ok(), "{:?}", outcome.result);
    assert!(took < Duration::from_secs(2), "{took:?}");
}

/// CPU time that links cost when they are opened and closed; only for a look at the figures.
#[tokio::test]
#[ignore = "takes minutes; prints CPU time and memory for each thousand links"]
async fn ten_thousand_links_opened_and_closed() {
    let _turn = turn().await;
    let relay = TestRelay::start(Setup::allowing(&[]));
    let cpu = || rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let secs = |time: rustix::time::Timespec| time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
    let (mut before, mut costs) = (secs(cpu()), Vec::new());
    for _ in 0..10 {
        for _ in 0..50 {
            let links = (0..20).map(|_| open(&relay));
            let links = futures::future::join_all(links).await;
            futures::future::join_all(links.into_iter().map(ControlLink::close)).await;
        }
        let now = secs(cpu());
        println!("{:.3} CPU s for 1000 links, {} KB", now - before, resident_kb());
        costs.push(now - before);
        before = now;
    }
    assert!(costs[9] < 1.5 * costs[0], "the cost of a link grows with their number: {costs:.2?}");
}
