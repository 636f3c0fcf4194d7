//! Cells in transit: what the threads at both ends allocate.

use std::time::{Duration, Instant};

use ff_lab::LoneRelay;
use ff_measurer::link::TargetAddr;
use ff_measurer::transit::{Transit, TransitEvent, TransitOrder};
use ff_proto::units::BytesPerSec;

use crate::counting::ThreadCounts;
use crate::running::{
    COUNTED_SECS, MAX_WORKER_ALLOCATIONS_PER_SEC, ONE_AT_A_TIME, WORKER, runtime,
};

#[test]
fn both_ends_allocate_for_their_reports_and_not_for_cells() {
    let _turn = ONE_AT_A_TIME.lock();
    let tor = LoneRelay::start().expect("a tor");
    let target = TargetAddr { addr: tor.or_addr(), ed_identity: tor.ed_identity().into() };
    let (onion_key, sinks) =
        (tor.ntor_onion_key().expect("a key"), vec![([127, 0, 0, 1], 0).into(); 2]);
    let order = TransitOrder {
        links: 4,
        circuits: 40,
        busy_circuits: 20,
        rate: Some(BytesPerSec::from_mbit(100)),
        duration: Duration::from_secs(u64::from(COUNTED_SECS) + 2),
        ..TransitOrder::new(target, onion_key, sinks)
    };
    let (allocated, cells) = runtime().block_on(async {
        let mut transit = Transit::prepare(&order).await.expect("circuits");
        let workers = ThreadCounts::all(WORKER);
        let allocations = || workers.iter().map(|worker| worker.allocations()).sum::<u64>();
        transit.start(Instant::now());
        next(&mut transit).await;
        let (before, mut cells) = (allocations(), 0);
        for _ in 0..COUNTED_SECS {
            cells += next(&mut transit).await;
        }
        (allocations() - before, cells)
    });
    println!("{allocated} allocations of two workers over {COUNTED_SECS} s and {cells} cells");
    assert!(allocated <= 2 * MAX_WORKER_ALLOCATIONS_PER_SEC * u64::from(COUNTED_SECS));
    assert!(allocated * 1000 < cells, "far from one per 1000 cells");
}

/// The cells of the next second.
async fn next(transit: &mut Transit) -> u64 {
    match transit.next_event().await.expect("an honest relay") {
        TransitEvent::Second(second) => second.forward_cells + second.backward_cells,
        TransitEvent::Done(_) => panic!("it is over"),
    }
}
