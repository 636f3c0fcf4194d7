//! All attacks on a made-up network, held against formulas and the paper's figures.

use ff_sim::attack::sample::{PAPERS_MOST, PAPERS_RELAYS, PAPERS_TOTAL, made_up};
use ff_sim::attack::{Attack, Basis, all};

#[test]
fn print() {
    let network = made_up(1, PAPERS_RELAYS, PAPERS_TOTAL, PAPERS_MOST);
    let start = std::time::Instant::now();
    let attacks: Vec<Attack> = all(&network, 1);
    println!("{:?}", start.elapsed());
    for attack in &attacks {
        println!(
            "{} {}: paper {:?} ours {} {:?} {:?}",
            attack.id, attack.name, attack.paper, attack.ours, attack.interval, attack.note
        );
        for point in &attack.points {
            println!(
                "    {} x={} tr={:?} f={:?} ours={} {:?}",
                point.curve,
                point.x,
                point.trusted,
                point.formula,
                point.ours,
                point.agrees()
            );
        }
        let _ = Basis::Model;
    }
}
