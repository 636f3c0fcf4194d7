//! Thousands of links: what each costs does not depend on how many there are. It is CPU time, which
//! grows when others take the caches, and is therefore a figure.

use std::time::Duration;

use futures::future::join_all;

use super::session::{Coordinator, LONGEST_SECS, MeasurementLink, Member};
use super::{LAB, Relay};

/// So many links, and how many more.
const LINKS: u16 = 500;
const TIMES: u16 = 6;
/// Links that are opened at the same time.
const AT_ONCE: usize = 32;
/// The greatest ratio of a link's CPU time when there are [`TIMES`] times as many links: it would
/// be [`TIMES`] if it grew with their number, and in between, by ratio, lies its square root.
/// Caches, and what else the machine does, have come to 1.7.
const MOST: f64 = 2.45;
/// A cost of all link ends below this is too small to be compared.
const NOISE: Duration = Duration::from_millis(60);

#[test]
#[ignore = "a figure: .ci/measure has it; needs FF_TEST_TOR: a tor that build-tor has built"]
fn issue_11_a_link_costs_the_same_among_thousands() {
    LAB.run(async |lab| {
        let relay = lab.relay("many");
        let few = costs(&relay, LINKS).await;
        let many = costs(&relay, LINKS * TIMES).await;
        println!(
            "opening and closing: {few:.2?} for {LINKS} links, {many:.2?} for {TIMES} times as many"
        );
        let least = NOISE.as_secs_f64() / MOST;
        let ratios = [0, 1].map(|step| {
            let in_proportion = few[step].as_secs_f64() * f64::from(TIMES);
            many[step].as_secs_f64() / in_proportion.max(least)
        });
        for (what, ratio) in ["open", "close"].into_iter().zip(ratios) {
            let claim = format!("CPU time to {what} a link among thousands / among {LINKS}");
            println!("figure: {claim} | ..{MOST} | {ratio:.2} | -");
        }
        assert!(ratios.iter().all(|ratio| *ratio <= MOST), "{ratios:?}");
        relay.assert_in_order().await;
    });
}

/// The relay's CPU time to open this many measurement links, and to close them again.
async fn costs(relay: &Relay<'_>, links: u16) -> [Duration; 2] {
    let cpu = || relay.node.cpu_time().expect("the relay runs");
    let per_member = links.div_ceil(8);
    let team: Vec<_> = (0..8).map(|_| Member::new(per_member)).collect();
    let (coordinator, _) =
        Coordinator::granted(&relay.target(), relay.key(), LONGEST_SECS, &team).await;
    let begin = cpu();
    let mut open = Vec::new();
    while open.len() < links.into() {
        let key = |number: usize| &team[(open.len() + number) % team.len()].key;
        let count = AT_ONCE.min(usize::from(links) - open.len());
        let (target, id) = (relay.target(), coordinator.measurement);
        let opening = (0..count).map(|number| MeasurementLink::open(&target, id, key(number)));
        open.extend(join_all(opening).await);
    }
    let middle = cpu();
    coordinator.end().await;
    drop(open);
    relay.wait_until_no_link_is_open().await;
    [middle - begin, cpu() - middle]
}
