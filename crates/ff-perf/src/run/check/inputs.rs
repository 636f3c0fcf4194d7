//! What `check` is told: which relays, what they were measured at, how busy they say they are.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use ff_sim::input::Inputs;

use crate::capacities::Capacities;
use crate::check::{Known, history};
use crate::cli::check::CheckArgs;
use crate::network::Network;

/// What is known of all relays of a network.
pub(super) struct Told {
    /// The relays that are checked, by their places in the network.
    pub(super) checked: Vec<usize>,
    /// What is known of relays, by their places in the network.
    known: HashMap<usize, Known>,
}

impl Told {
    /// Reads it.
    pub(super) fn read(args: &CheckArgs, network: &Network) -> Result<Self> {
        let rates = match &args.histories {
            Some(path) => {
                let bytes = fs::read(path).with_context(|| path.display().to_string())?;
                let rates = history::rates(&String::from_utf8_lossy(&bytes));
                ensure!(
                    !rates.is_empty(),
                    "{}: no relay says there how busy it is",
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
            let busy = rates.get(&network.relays[place].id).map_or(0.0, |rate| rate / capacity);
            known.insert(place, Known { capacity, busy: busy.clamp(0.0, 1.0) });
        }
        let checked = relays(&args.relays, network)?;
        for &relay in &checked {
            let relay = &network.relays[relay];
            let is_known = network.find(&relay.id).and_then(|place| known.get(&place));
            ensure!(
                is_known.is_some_and(|known| known.capacity > 0.0),
                "{}: it has no capacity of {} ({})",
                args.capacities.display(),
                relay.nick,
                relay.id
            );
        }
        Ok(Self { checked, known })
    }

    /// What is known of a relay.
    pub(super) fn of(&self, relay: usize) -> Option<Known> {
        self.known.get(&relay).copied()
    }
}

/// The relays of a list, or of a file that has one.
fn relays(list: &str, network: &Network) -> Result<Vec<usize>> {
    let (name, text) = if Path::new(list).is_file() {
        (list.to_owned(), fs::read_to_string(list).with_context(|| list.to_owned())?)
    } else {
        ("--relays".to_owned(), list.to_owned())
    };
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default();
        for word in line.split([',', ' ', '\t']).filter(|word| !word.is_empty()) {
            let place = network.find(word).with_context(|| {
                format!("{name}, line {number}: the network has no usable relay {word}")
            })?;
            if found.contains(&place) {
                bail!("{name}, line {number}: relay {word} is there twice");
            }
            found.push(place);
        }
    }
    ensure!(!found.is_empty(), "{name}: there is no relay in it");
    Ok(found)
}
