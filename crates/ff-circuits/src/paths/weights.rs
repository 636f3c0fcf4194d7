//! Replaces the weights of a consensus by those of a bandwidth file (v3bw), so that paths drawn by
//! both can be compared.

use anyhow::{Result, bail, ensure};
use ff_dir::bandwidth::{Reading, Severity};

use super::computed;
use super::pool::Pool;

/// Reads a bandwidth file as of its own time; it may have any age.
///
/// # Errors
/// One sentence with the file and the line, if authorities would refuse the file.
pub(crate) fn reading(file: &str, bytes: &[u8]) -> Result<Reading> {
    let first = bytes.split(|byte| *byte == b'\n').find(|line| !line.starts_with(b"@"));
    let now = first.and_then(|line| std::str::from_utf8(line).ok()?.trim().parse().ok());
    let reading = Reading::of(bytes, now.unwrap_or(0));
    let worst = reading.findings.iter().find(|finding| finding.severity == Severity::Refused);
    if let Some(finding) = worst {
        bail!("{file}, line {}: {}", finding.line, finding.text);
    }
    Ok(reading)
}

/// Gives a network's relays the weights of a bandwidth file; relays that are not in it, or without
/// a vote, get 0 and are not drawn by weight. The factors of positions are computed again, because
/// those in a consensus's footer are for its own weights. Returns the number of relays without a
/// weight.
///
/// # Errors
/// One sentence, if the file cannot be used or has none of the relays.
pub fn weigh(pool: &mut Pool, file: &str, bytes: &[u8]) -> Result<usize> {
    let reading = reading(file, bytes)?;
    let votes = reading.votes();
    let mut without = 0;
    for relay in &mut pool.network.relays {
        let line = votes.get(&relay.fingerprint);
        without += usize::from(line.is_none());
        relay.weight = line.map_or(0.0, |line| line.bw as f64);
    }
    let has_weight = pool.network.relays.iter().any(|relay| relay.weight > 0.0);
    ensure!(
        has_weight,
        "{file} has no weight for any relay of this network: is it for another network?"
    );
    pool.factors = Some(computed(&pool.network));
    pool.is_unweighted = false;
    Ok(without)
}

#[cfg(test)]
mod tests {
    use ff_archives::network::{Flags, Network, Relay};

    use super::*;

    /// A pool of a guard, a middle relay and two exits of weight 1.
    fn pool() -> Pool {
        let relay = |number: u8| Relay {
            fingerprint: [number; 20],
            weight: 1.0,
            flags: Flags {
                running: true,
                guard: number == 0,
                exit: number > 1,
                ..Flags::default()
            },
            ..Relay::default()
        };
        Pool::from(Network { relays: (0..4).map(relay).collect(), ..Network::default() })
    }

    /// A bandwidth file with these weights, by the relays' numbers.
    fn file(weights: &[(u8, u64)]) -> String {
        let line = |(number, bw): &(u8, u64)| {
            format!("bw={bw} node_id=${}\n", hex::encode_upper([*number; 20]))
        };
        let lines: String = weights.iter().map(line).collect();
        format!("1732269600\nversion=1.4.0\n=====\n{lines}")
    }

    #[test]
    fn relays_get_the_weights_of_the_file_and_positions_those_of_these() {
        let mut pool = pool();
        let without = weigh(&mut pool, "f", file(&[(0, 7), (1, 9), (2, 50)]).as_bytes());
        assert_eq!(without.expect("weights"), 1);
        let weights: Vec<f64> = pool.network.relays.iter().map(|relay| relay.weight).collect();
        assert_eq!(weights, [7.0, 9.0, 50.0, 0.0]);
        assert_eq!(pool.factors, Some(computed(&pool.network)));
    }

    #[test]
    fn a_file_of_another_network_and_one_that_is_refused_are_named() {
        let of =
            |text: &str| weigh(&mut pool(), "f", text.as_bytes()).expect_err("bad").to_string();
        assert!(of(&file(&[(9, 7)])).starts_with("f has no weight for any relay"));
        assert!(of("nothing").starts_with("f, line 1: "), "{}", of("nothing"));
    }
}
