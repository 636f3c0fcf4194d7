//! Divides the hosts' rates among pairs of hosts.

use ff_proto::units::BytesPerSec;

/// The rate of each pair by max-min fairness: all pairs' rates grow together until a host's rate is
/// used up; then those of the other pairs continue to grow.
///
/// `[a][b]` is the rate from a to b, and equals that from b to a. The sum of a row is at most its
/// host's rate.
#[must_use]
pub fn pair_rates(hosts: &[BytesPerSec]) -> Vec<Vec<BytesPerSec>> {
    let count = hosts.len();
    let mut left: Vec<u64> = hosts.iter().map(|rate| rate.get()).collect();
    let mut rates = vec![vec![0_u64; count]; count];
    let mut grows: Vec<bool> = vec![true; count];
    loop {
        // A pair grows while both of its hosts do.
        let growing = grows.iter().filter(|grows| **grows).count() as u64;
        if growing < 2 {
            break;
        }
        let others = growing - 1;
        let still = || (0..count).filter(|host| grows[*host]);
        let Some(step) = still().map(|host| left[host] / others).min() else { break };
        let hosts: Vec<usize> = still().collect();
        for &one in &hosts {
            for &other in hosts.iter().filter(|other| **other != one) {
                rates[one][other] += step;
            }
            left[one] -= step * others;
        }
        for host in hosts {
            grows[host] = left[host] >= others;
        }
    }
    rates.into_iter().map(|row| row.into_iter().map(BytesPerSec::new).collect()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_slow_host_slows_nobody_but_its_own_pairs() {
        let hosts = [1000, 1000, 100].map(BytesPerSec::new);
        let rates: Vec<Vec<u64>> = pair_rates(&hosts)
            .iter()
            .map(|row| row.iter().map(|rate| rate.get()).collect())
            .collect();
        assert_eq!(rates, [[0, 950, 50], [950, 0, 50], [50, 50, 0]]);
        assert_eq!(pair_rates(&hosts[..1]), [[BytesPerSec::new(0)]]);
        assert!(pair_rates(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn no_host_has_to_send_or_take_more_than_it_may(
            hosts in proptest::collection::vec(any::<u64>(), 0..20),
        ) {
            let hosts: Vec<_> = hosts.into_iter().map(|rate| BytesPerSec::new(rate >> 8)).collect();
            let rates = pair_rates(&hosts);
            for (one, row) in rates.iter().enumerate() {
                prop_assert!(row.iter().copied().sum::<BytesPerSec>() <= hosts[one]);
                for (other, rate) in row.iter().enumerate() {
                    prop_assert_eq!(*rate, rates[other][one]);
                }
            }
        }
    }
}
