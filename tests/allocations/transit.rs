//! Cells in transit: what the threads at both ends allocate.

use std::time::{Duration, Instant};

use ff_lab::LoneRelay;
use ff_measurer::link::TargetAddr;
use ff_measurer::transit::{Transit, TransitEvent, TransitOrder};
use ff_proto::units::BytesPerSec;

use crate::counting::ThreadCounts;
use crate::running::{Allocations, ONE_AT_A_TIME, PLANNED_SECS, WORKER, runtime};

/// Links to the relay.
const LINKS: u16 = 4;
/// Sockets at both ends: the relay has a link to each of two sinks.
const SOCKETS: u64 = 6;
/// Cells before the counting.
const FIRST_CELLS: u64 = 20_000;
/// Cells that are counted at least: a thousand for each allocation there may be.
const COUNTED_CELLS: u64 = 120_000;

#[test]
fn both_ends_allocate_for_their_reports_and_not_for_cells() {
    let _turn = ONE_AT_A_TIME.lock();
    let tor = LoneRelay::start().expect("a tor");
    let target = TargetAddr { addr: tor.or_addr(), ed_identity: tor.ed_identity().into() };
    let (onion_key, sinks) =
        (tor.ntor_onion_key().expect("a key"), vec![([127, 0, 0, 1], 0).into(); 2]);
    let order = TransitOrder {
        links: LINKS,
        circuits: 40,
        busy_circuits: 20,
        rate: Some(BytesPerSec::from_mbit(100)),
        duration: Duration::from_secs(PLANNED_SECS.into()),
        ..TransitOrder::new(target, onion_key, sinks)
    };
    let (allocated, reports, cells) = runtime().block_on(async {
        let mut transit = prepared(&order).await;
        let workers = ThreadCounts::all(WORKER);
        transit.start(Instant::now());
        let mut first = 0;
        while first < FIRST_CELLS {
            first += next(&mut transit).await;
        }
        let before: Vec<_> = workers.iter().map(|worker| Allocations::of(worker)).collect();
        let (mut reports, mut cells) = (0, 0);
        while cells < COUNTED_CELLS {
            cells += next(&mut transit).await;
            reports += workers.len() as u64;
        }
        let since = before.iter().zip(&workers).map(|(before, worker)| before.until(worker));
        (since.sum::<Allocations>(), reports, cells)
    });
    println!("two workers: {allocated:?} over {reports} reports and {cells} cells");
    allocated.assert_of(reports, SOCKETS);
    assert!(allocated.allocations * 1000 < cells, "far from one per 1000 cells");
}

/// Circuits that are there. A tor ends one as finished that it finds idle when it looks, also if it
/// is only being made; then they are made once more.
async fn prepared(order: &TransitOrder) -> Transit {
    for _ in 0..2 {
        match Transit::prepare(order).await {
            Ok(transit) => return transit,
            Err(error) if format!("{error:?}").contains("Destroyed(9)") => {}
            Err(error) => panic!("circuits: {error:?}"),
        }
    }
    Transit::prepare(order).await.expect("circuits")
}

/// The cells of the next second.
async fn next(transit: &mut Transit) -> u64 {
    match transit.next_event().await.expect("an honest relay") {
        TransitEvent::Second(second) => second.forward_cells + second.backward_cells,
        TransitEvent::Done(_) => panic!("it is over"),
    }
}
