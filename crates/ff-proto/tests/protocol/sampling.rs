//! The probability of detecting a relay that forges cells, by simulation with the real sampler.

use ff_proto::content::Sampler;

/// The number of simulated relays that forge.
const TRIALS: u64 = 2_000;

/// A fresh sampler for each link of each trial.
fn sampler(trial: u64, link: u64, probability: f64) -> Sampler {
    let mut secret = [0; 16];
    secret[..8].copy_from_slice(&trial.to_be_bytes());
    secret[8..].copy_from_slice(&link.to_be_bytes());
    Sampler::new(&secret, probability)
}

/// The share of the trials in which one of the last `forged` of `cells` cells is checked. The cells
/// are sent in turn on `links` links, or on one of them only after the first turn.
fn found(cells: u64, forged: u64, links: u64, one_only: bool, probability: f64) -> f64 {
    let is_found = |trial: &u64| {
        let (last, each) = if one_only { (1, cells) } else { (links, cells / links) };
        (0..last).any(|link| {
            let mut sampler = sampler(*trial, link, probability);
            let first_forged = each - forged / last - u64::from(link < forged % last);
            while sampler.next() < first_forged {
                let echoed = sampler.next() + 1;
                sampler.advance(if one_only { echoed } else { echoed * links });
            }
            sampler.next() < each
        })
    };
    let found = (0..TRIALS).filter(is_found).count();
    found as f64 / TRIALS as f64
}

/// Three standard deviations of a share of the trials.
fn three_deviations(share: f64) -> f64 {
    3.0 * (share * (1.0 - share) / TRIALS as f64).sqrt()
}

#[test]
fn forging_k_cells_is_found_with_1_minus_the_kth_power_of_1_minus_p() {
    // Enough cells that the probability is the requested one.
    let cases = [(1e-2_f64, 60_000, 50), (1e-2, 60_000, 200), (1e-3, 600_000, 500)];
    for (probability, cells, forged) in cases.into_iter().chain([(1e-3, 600_000, 2_000_u64)]) {
        let expected = 1.0 - (1.0 - probability).powf(forged as f64);
        let share = found(cells, forged, 1, false, probability);
        println!("p = {probability}, {forged} forged: found {share}, expected {expected:.3}");
        assert!((share - expected).abs() < three_deviations(expected), "{share} for {expected}");
    }
}

#[test]
fn forging_a_hundredth_of_any_number_of_cells_is_found_19_times_in_20() {
    for cells in [3_000, 10_000, 100_000, 1_000_000] {
        for (links, one_only) in [(1, false), (20, false), (20, true)] {
            // The last cells are those with the least probability of a check.
            let share = found(cells, cells / 100, links, one_only, 1e-5);
            println!("{cells} cells, {links} links, on one: {one_only}: found {share}");
            assert!(share > 0.95 - three_deviations(0.95), "{cells}, {links} links: {share}");
        }
    }
}
