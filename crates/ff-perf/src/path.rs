//! The paths of a run: from a file, or by a plain choice.

use rand::{Rng, RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha20Rng;

use crate::network::Network;
use crate::schedule::Task;

/// How many relays a path may have.
pub const LENGTHS: std::ops::RangeInclusive<usize> = 1..=8;

/// A line of a file with paths that cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct PathError {
    /// Which line, from 1.
    pub line: usize,
    /// What is wrong.
    pub reason: String,
}

/// Reads paths: one a line, fingerprints with commas or spaces between them; what stands behind `#` does not count.
///
/// # Errors
/// For a path of another length than 1 to 8, and a relay that is unknown or there twice.
pub fn read(text: &str, network: &Network) -> Result<Vec<Vec<usize>>, PathError> {
    let mut paths = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let path = one(line, network);
        paths.push(path.map_err(|reason| PathError { line: number + 1, reason })?);
    }
    if paths.is_empty() {
        return Err(PathError { line: 1, reason: "there is no path in it".to_owned() });
    }
    Ok(paths)
}

/// Reads one path.
fn one(line: &str, network: &Network) -> Result<Vec<usize>, String> {
    let words = line.split([',', ' ', '\t']).filter(|word| !word.is_empty());
    let mut path = Vec::new();
    for (at, word) in words.enumerate() {
        let hop = at + 1;
        let unknown = || format!("hop {hop}: the network has no usable relay {word}");
        let relay = network.find(word).ok_or_else(unknown)?;
        if path.contains(&relay) {
            return Err(format!("hop {hop}: relay {word} is in this path already"));
        }
        path.push(relay);
    }
    if LENGTHS.contains(&path.len()) {
        Ok(path)
    } else {
        Err(format!("a path has 1 to 8 relays, this one has {}", path.len()))
    }
}

/// The circuits of a run: these paths again and again, or paths that are drawn by a seed. Those of some numbers are
/// left out, and change no other one.
pub struct Plan {
    /// Where paths come from.
    source: Source,
    /// How many circuits there are.
    count: u64,
    /// The next one's number.
    next: u64,
    /// Whether a number is left out.
    is_left_out: Box<dyn Fn(u64) -> bool>,
}

/// Where paths come from.
enum Source {
    /// A file.
    Given(Vec<Vec<usize>>),
    /// The choice.
    Drawn(Choice, Box<ChaCha20Rng>),
}

impl Plan {
    /// Of these paths.
    pub fn given(
        paths: Vec<Vec<usize>>,
        count: u64,
        is_left_out: Box<dyn Fn(u64) -> bool>,
    ) -> Self {
        Self { source: Source::Given(paths), count, next: 0, is_left_out }
    }

    /// Of paths of this length, drawn by a seed.
    ///
    /// # Errors
    /// When the network has too few relays.
    pub fn drawn(
        network: &Network,
        length: usize,
        seed: u64,
        count: u64,
        is_left_out: Box<dyn Fn(u64) -> bool>,
    ) -> Result<Self, String> {
        let choice = Choice::new(network, length)?;
        let rng = Box::new(ChaCha20Rng::seed_from_u64(seed));
        Ok(Self { source: Source::Drawn(choice, rng), count, next: 0, is_left_out })
    }

    /// Begins with this number. Other paths are drawn then than behind those that have been left out.
    #[must_use]
    pub fn beginning_with(mut self, number: u64) -> Self {
        self.next = number;
        if let Source::Drawn(_, rng) = &mut self.source {
            rng.set_stream(number);
        }
        self
    }
}

impl Iterator for Plan {
    type Item = Task;

    fn next(&mut self) -> Option<Task> {
        while self.next < self.count {
            let number = self.next;
            self.next += 1;
            let path = match &mut self.source {
                Source::Given(paths) => {
                    let at = number % paths.len() as u64;
                    usize::try_from(at).ok().and_then(|at| paths.get(at)).cloned()?
                }
                Source::Drawn(choice, rng) => choice.draw(rng),
            };
            if !(self.is_left_out)(number) {
                return Some(Task { number, path, is_alone: true });
            }
        }
        None
    }
}

/// A plain choice: a first relay with the flag Guard, a last one with Exit, every fitting one as likely as the others.
struct Choice {
    /// Who may be first.
    firsts: Vec<usize>,
    /// Who may be in between.
    middles: Vec<usize>,
    /// Who may be last.
    lasts: Vec<usize>,
    /// How many relays a path has.
    length: usize,
}

impl Choice {
    /// Of this network's relays.
    fn new(network: &Network, length: usize) -> Result<Self, String> {
        let those = |fits: fn(&crate::network::Relay) -> bool| -> Vec<usize> {
            (0..).zip(&network.relays).filter(|(_, relay)| fits(relay)).map(|(at, _)| at).collect()
        };
        let firsts = those(|relay| relay.flags.is_guard && !relay.flags.is_authority);
        let lasts = those(|relay| relay.flags.is_exit && !relay.flags.is_bad_exit);
        let middles = those(|relay| !relay.flags.is_authority);
        if !LENGTHS.contains(&length) {
            return Err(format!("a path has 1 to 8 relays, not {length}"));
        }
        if lasts.is_empty() {
            return Err("the network has no relay with the flag Exit".to_owned());
        }
        if length > 1 && firsts.is_empty() {
            return Err("the network has no relay with the flag Guard".to_owned());
        }
        if let ([first], [last], 2..) = (&firsts[..], &lasts[..], length)
            && first == last
        {
            let nick = &network.relays[*first].nick;
            return Err(format!(
                "{nick} alone has the flag Guard, and it alone Exit: no path has both"
            ));
        }
        if middles.len() < length + 1 {
            let relays = middles.len();
            return Err(format!("the network has {relays} relays, too few for paths of {length}"));
        }
        Ok(Self { firsts, middles, lasts, length })
    }

    /// A path. There is one, so it is found.
    fn draw(&self, rng: &mut impl Rng) -> Vec<usize> {
        loop {
            let mut path = Vec::with_capacity(self.length);
            if self.length > 1 {
                path.push(pick(&self.firsts, rng));
            }
            while path.len() + 1 < self.length {
                path.push(pick(&self.middles, rng));
            }
            path.push(pick(&self.lasts, rng));
            let is_simple = path.iter().enumerate().all(|(at, relay)| !path[..at].contains(relay));
            if is_simple {
                return path;
            }
        }
    }
}

/// One of these, of which there is at least one.
fn pick(from: &[usize], rng: &mut impl Rng) -> usize {
    from[rng.random_range(0..from.len())]
}

#[cfg(test)]
mod tests {
    use ff_bwauth::network::consensus::Flags;
    use rand::SeedableRng;
    use rand_chacha::ChaCha12Rng;

    use super::*;
    use crate::network::Relay;

    /// A relay with these flags.
    fn relay(is_guard: bool, is_exit: bool) -> Relay {
        let flags = Flags { is_guard, is_exit, ..Flags::default() };
        let (id, nick, protocols) = (String::new(), "r".to_owned(), String::new());
        let (rsa, ed25519, ntor, addrs) = ([0; 20], [0; 32], [0; 32], Vec::new());
        Relay { id, nick, rsa, ed25519, ntor, addrs, protocols, flags }
    }

    #[test]
    fn a_network_whose_only_guard_is_its_only_exit_has_no_paths() {
        let mut relays = vec![relay(true, true)];
        relays.extend((0..5).map(|_| relay(false, false)));
        let of = |relays: &[Relay]| {
            let mut network = Network::default();
            network.relays = relays.to_vec();
            Choice::new(&network, 3)
        };
        let error = of(&relays).err().expect("no path");
        assert!(error.contains("alone"), "{error}");
        relays.push(relay(false, true));
        let path = of(&relays).expect("paths").draw(&mut ChaCha12Rng::seed_from_u64(1));
        assert_eq!((path.len(), path[0], path[2]), (3, 0, 6));
    }
}
