//! Inputs of `check`: relays, their measured capacities, and the load that they report.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use ff_base::text::read_file;
use ff_circuits::capacities::Capacities;
use ff_circuits::check::{Known, history};
use ff_circuits::network::CircuitNetwork;
use ff_circuits::paths::file;
use ff_report::input::Inputs;

use crate::cli::check::CheckArgs;

/// Longest text read, in bytes; a month of extra-info documents has 700 MB.
const MOST_BYTES: u64 = 1 << 30;

/// Known facts of a network's relays.
pub(super) struct Told {
    /// Relays to check, by index in the network.
    pub(super) checked: Vec<usize>,
    /// Known facts by index in the network.
    known: HashMap<usize, Known>,
}

impl Told {
    pub(super) fn read(args: &CheckArgs, network: &CircuitNetwork) -> Result<Self> {
        let rates = match &args.histories {
            Some(path) => {
                let text = read_file(path, MOST_BYTES);
                let text = text.with_context(|| path.display().to_string())?;
                let rates = history::rates(&text);
                ensure!(
                    !rates.is_empty(),
                    "{}: no relay has a usable write-history or read-history",
                    path.display()
                );
                rates
            }
            None => HashMap::new(),
        };
        let capacities = Capacities::read(&args.capacities, &mut Inputs::default())?;
        let mut known = HashMap::new();
        for relay in &capacities.relays {
            let Some(place) = network.find(&relay.id) else { continue };
            let capacity = relay.kbytes_per_sec * 1e3;
            let rate = rates.get(&network.relays[place].id).copied().unwrap_or(0.0);
            known.insert(place, Known { capacity, busy: busy(rate, capacity) });
        }
        let checked = relays(&args.relays, network)?;
        for &relay in &checked {
            let relay = &network.relays[relay];
            let is_known = network.find(&relay.id).and_then(|place| known.get(&place));
            ensure!(
                is_known.is_some_and(|known| known.capacity > 0.0),
                "{}: no capacity of {} ({})",
                args.capacities.display(),
                relay.nick,
                relay.id
            );
        }
        Ok(Self { checked, known })
    }

    pub(super) fn of(&self, relay: usize) -> Option<Known> {
        self.known.get(&relay).copied()
    }
}

/// Relays of a list, or of a file with a list.
fn relays(list: &str, network: &CircuitNetwork) -> Result<Vec<usize>> {
    let (name, text) = if Path::new(list).is_file() {
        let text = read_file(Path::new(list), MOST_BYTES).with_context(|| list.to_owned())?;
        (list.to_owned(), text)
    } else {
        ("--relays".to_owned(), list.to_owned())
    };
    Ok(file::list(&name, &text, |id| network.find(id))?)
}

/// Share of a capacity in use, from 0 to 1; both in bytes per second. Without capacity it is 0: a
/// ratio would not be a number, and no path could be judged by it.
fn busy(rate: f64, capacity: f64) -> f64 {
    if capacity > 0.0 { (rate / capacity).clamp(0.0, 1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_use_is_a_part_whatever_relays_say() {
        for (rate, capacity, part) in [
            (0.0, 0.0, 0.0),
            (5.0, 0.0, 0.0),
            (5.0, 20.0, 0.25),
            (50.0, 20.0, 1.0),
            (0.0, 20.0, 0.0),
        ] {
            assert_eq!(busy(rate, capacity), part, "{rate} of {capacity}");
            assert!(Known { capacity, busy: busy(rate, capacity) }.spare() <= capacity);
        }
    }
}
