//! Means over drawn paths, where no formula exists.

use std::collections::HashMap;

use anyhow::{Context as _, Result};
use ff_archives::network::{Flags, Network, Relay};
use ff_circuits::bound::sampled::{Sampled, sampled};
use ff_circuits::capacities::{Capacities, Capacity};
use ff_circuits::paths::pool::Pool;
use ff_circuits::paths::{Choice, MOST_TRIES, NoLengths, drawn};
use ff_flow::path::{Factors, Paths};
use rand_chacha::ChaCha12Rng;

use crate::cli::paths::PORT;

pub(super) struct DrawnPaths {
    paths: Paths,
    /// Capacities of the relays, in kB/s.
    capacities: Vec<f64>,
}

/// Rules for a consensus, as in `ff-perf paths`.
pub(super) fn choice() -> Result<Choice, NoLengths> {
    Choice::of_clients(PORT, false)
}

impl DrawnPaths {
    /// By weight alone, no relay twice.
    pub(super) fn by_weight(all: &Capacities) -> Self {
        let relay = |relay: &Capacity| Relay {
            weight: relay.weight,
            flags: Flags { guard: true, exit: true, ..Flags::default() },
            ..Relay::default()
        };
        let relays = all.relays.iter().map(relay).collect();
        let network = Network { relays, ..Network::default() };
        let factors = Factors { guard: [1.0; 4], middle: [1.0; 4], exit: [1.0; 4] };
        Self::of(all, &network, &factors)
    }

    /// As Tor's clients do, from a consensus; without one, as far as flags and weights allow.
    pub(super) fn by_tor(all: &Capacities, pool: Option<&Pool>) -> Result<Self> {
        if let Some(pool) = pool {
            return Self::by_pool(all, pool);
        }
        let network = all.network.as_ref();
        let network = network.context("--select tor needs flags and weights: give a consensus")?;
        let weights: Vec<f64> = network.relays.iter().map(|relay| relay.weight).collect();
        Ok(Self::of(all, network, &Factors::of(network, &weights)))
    }

    /// With these bandwidth-weights.
    fn of(all: &Capacities, network: &Network, factors: &Factors) -> Self {
        let weights: Vec<f64> = all.relays.iter().map(|relay| relay.weight).collect();
        let capacities = all.relays.iter().map(|relay| relay.kbytes_per_sec).collect();
        Self { paths: Paths::new(network, &weights, factors), capacities }
    }

    /// From all relays of a consensus; a relay without a capacity counts as not running.
    fn by_pool(all: &Capacities, pool: &Pool) -> Result<Self> {
        let known: HashMap<&str, f64> =
            all.relays.iter().map(|one| (one.id.as_str(), one.kbytes_per_sec)).collect();
        let capacity = |relay: &Relay| {
            let id = hex::encode_upper(relay.fingerprint);
            known.get(id.as_str()).copied().unwrap_or_default()
        };
        let capacities = pool.network.relays.iter().map(capacity).collect();
        Ok(Self { paths: drawn(pool, &choice()?), capacities })
    }

    /// Mean over drawn paths of a length.
    pub(super) fn sampled(
        &self,
        samples: u64,
        length: u8,
        rng: &mut ChaCha12Rng,
    ) -> Option<Sampled> {
        sampled(samples, rng, |rng| {
            let draw = |_| self.paths.draw_of_length(rng, &[], length.into());
            let path = (0..MOST_TRIES).find_map(draw)?;
            let capacity = |relay: &u32| self.capacities[*relay as usize];
            path.iter().map(capacity).min_by(f64::total_cmp)
        })
    }
}
