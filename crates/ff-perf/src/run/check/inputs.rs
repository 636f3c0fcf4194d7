//! What `check` is told: which relays, what they were measured at, how busy they say they are.

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

/// The longest text that is read, in bytes: a month of extra-info documents has 700 MB.
const MOST_BYTES: u64 = 1 << 30;

/// The known facts of all relays of a network.
pub(super) struct Told {
    /// The relays that are checked, by their places in the network.
    pub(super) checked: Vec<usize>,
    /// The known facts of relays, by their places in the network.
    known: HashMap<usize, Known>,
}

impl Told {
    /// Reads it.
    pub(super) fn read(args: &CheckArgs, network: &CircuitNetwork) -> Result<Self> {
        let rates = match &args.histories {
            Some(path) => {
                let text = read_file(path, MOST_BYTES);
                let text = text.with_context(|| path.display().to_string())?;
                let rates = history::rates(&text);
                ensure!(
                    !rates.is_empty(),
                    "{}: no relay has a usable write-history or read-history there",
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

/// The relays of a list, or of a file that has one.
fn relays(list: &str, network: &CircuitNetwork) -> Result<Vec<usize>> {
    let (name, text) = if Path::new(list).is_file() {
        let text = read_file(Path::new(list), MOST_BYTES).with_context(|| list.to_owned())?;
        (list.to_owned(), text)
    } else {
        ("--relays".to_owned(), list.to_owned())
    };
    Ok(file::list(&name, &text, |id| network.find(id))?)
}

/// The part of a capacity that is in use, from 0 to 1; both are in bytes a second. Who can carry
/// nothing has none in use: a part of nothing would be no number, and nobody's path would be held
/// against it.
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
