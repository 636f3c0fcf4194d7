//! Paths of three through given relays, with the other relays drawn as by Tor's clients.
//!
//! A relay has the place in which clients use it: last if it is an exit that allows the port, else
//! first if it is a guard, else in the middle. It does not have a place in which its weight does
//! not count, unless no relay's does.

use std::collections::{BTreeMap, HashSet};

use ff_flow::path::Paths;
use rand::Rng;

use super::pool::Pool;
use super::{Choice, MOST_TRIES, NoPaths, Places, drawn};

/// How often a path is drawn again because one of its relays is busy.
const DRAWS: usize = 256;
/// How often a path is drawn if no relay is busy: a path was found in [`MOST_TRIES`] draws, so in
/// many times as many there are several.
const LONE_DRAWS: usize = 100 * MOST_TRIES;

/// Draws paths through given relays.
#[derive(Clone, Debug)]
pub struct Through {
    /// The relays to draw from.
    paths: Paths,
    /// The place of each given relay in a path; 0 is the guard's, 2 the exit's.
    at: BTreeMap<usize, usize>,
}

/// Why there are no paths, or none through a given relay.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NoPlace {
    /// There are no paths at all.
    #[error(transparent)]
    Network(#[from] NoPaths),
    /// There are no paths through this relay.
    #[error("no client has a path through {nick} ({id}): {why}")]
    Relay {
        /// Its nickname.
        nick: String,
        /// Its fingerprint.
        id: String,
        /// The reason.
        why: Why,
    },
}

/// Why a relay is on no path.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Why {
    /// Clients ignore it.
    #[error(
        "it lacks the flag Running, or one that others have: Fast, or for ports of long streams Stable"
    )]
    Flags,
    /// It would be the exit, but does not allow the port.
    #[error("it is an exit that does not allow port {0}, and clients use it in no other position")]
    Port(u16),
    /// Its weight counts at no place.
    #[error("its weight is 0 in each position where it may be")]
    Weight,
    /// The other relays allow none.
    #[error(
        "too few relays can be on a path with it, because of families, /16s or a small network"
    )]
    Others,
}

impl Through {
    /// Paths through these relays of a network, given by index. In a young network, whose weights
    /// come and go, a relay may also have a place in which its weight does not count.
    ///
    /// # Errors
    /// [`NoPlace`] if the rules allow no paths.
    pub fn new(
        pool: &Pool,
        choice: &Choice,
        relays: &[usize],
        is_young: bool,
        rng: &mut impl Rng,
    ) -> Result<Self, NoPlace> {
        let places = Places::new(pool, choice);
        places.check()?;
        let anybody = places.counted();
        let mut through = Self { paths: drawn(pool, choice), at: BTreeMap::new() };
        for &relay in relays {
            let fitting = places.fitting(relay, anybody, is_young);
            let found = fitting.and_then(|fitting| {
                let mut fitting = fitting.into_iter();
                fitting.find(|&place| through.is_possible(relay, place, rng)).ok_or(Why::Others)
            });
            let place = found.map_err(|why| {
                let one = &pool.network.relays[relay];
                let id = hex::encode_upper(one.fingerprint);
                NoPlace::Relay { nick: one.nickname.clone(), id, why }
            })?;
            through.at.insert(relay, place);
        }
        Ok(through)
    }

    /// A path through one of the relays, the first hop first, without busy relays; none if there
    /// seems to be none. If a relay is busy, the search ends soon; a later call without busy relays
    /// finds rare paths too.
    pub fn draw_free(
        &self,
        relay: usize,
        busy: &HashSet<usize>,
        rng: &mut impl Rng,
    ) -> Option<Vec<usize>> {
        let draws = if busy.is_empty() { LONE_DRAWS } else { DRAWS };
        let drawn = (0..draws).filter_map(|_| self.draw(relay, rng));
        let mut paths = drawn.map(|path| path.map(|relay| relay as usize));
        let is_free = |path: &[usize; 3]| path.iter().all(|relay| !busy.contains(relay));
        paths.find(is_free).map(Vec::from)
    }

    /// A path through one of the relays; none if the draw cannot be completed.
    fn draw(&self, relay: usize, rng: &mut impl Rng) -> Option<[u32; 3]> {
        self.paths.draw_through(rng, u32::try_from(relay).ok()?, *self.at.get(&relay)?)
    }

    /// Whether there seems to be a path with a relay at a place.
    fn is_possible(&self, relay: usize, place: usize, rng: &mut impl Rng) -> bool {
        let Ok(relay) = u32::try_from(relay) else { return false };
        (0..MOST_TRIES).any(|_| self.paths.draw_through(rng, relay, place).is_some())
    }
}

impl Places<'_> {
    /// The places at which any relay's weight counts.
    fn counted(&self) -> [bool; 3] {
        let all = self.pool.network.relays.iter().enumerate().map(|one| self.counts(one));
        all.fold([false; 3], |found, counts| {
            std::array::from_fn(|place| found[place] || counts[place].is_some_and(|one| one > 0.0))
        })
    }

    /// The places that a relay may have, best first.
    fn fitting(&self, relay: usize, anybody: [bool; 3], is_young: bool) -> Result<Vec<usize>, Why> {
        let one = &self.pool.network.relays[relay];
        let counts = self.counts((relay, one));
        let is_exit = one.flags.exit && !one.flags.bad_exit;
        let order = if is_exit { [2, 0, 1] } else { [0, 1, 2] };
        let may = order.into_iter().filter(|&place| counts[place].is_some());
        let (mut fitting, idle): (Vec<usize>, Vec<usize>) = may
            .partition(|&place| counts[place].is_some_and(|count| count > 0.0) || !anybody[place]);
        if is_young {
            fitting.extend(idle);
        }
        match (fitting.is_empty(), self.is_usable(one)) {
            (false, _) => Ok(fitting),
            (true, false) => Err(Why::Flags),
            (true, true) if is_exit && counts[2].is_none() => Err(Why::Port(self.port)),
            (true, true) => Err(Why::Weight),
        }
    }
}

#[cfg(test)]
mod tests {
    use ff_archives::network::{Flags, Network, Relay};
    use ff_flow::path::Factors;
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha12Rng;

    use super::*;

    /// Three guards, three relays without a flag, and three exits, the last of which allows 443 but
    /// not 80. Exits are only used as exits.
    fn pool() -> Pool {
        let relay = |i: u8| Relay {
            fingerprint: [i; 20],
            nickname: format!("relay{i}"),
            flags: Flags {
                guard: i < 3,
                exit: i > 5,
                running: true,
                fast: true,
                stable: true,
                ..Flags::default()
            },
            weight: f64::from(i + 1),
            ..Relay::default()
        };
        let relays = (0..9).map(relay).collect();
        let mut pool = Pool::from(Network { relays, ..Network::default() });
        pool.factors = Some(Factors {
            guard: [0.6, 0.6, 0.0, 0.0],
            middle: [0.4, 1.0, 0.0, 0.0],
            exit: [0.0, 0.0, 1.0, 1.0],
        });
        let policy = |i| ["reject 1-65535", "accept 80,443", "accept 443"][i];
        let policies = [0, 0, 0, 0, 0, 0, 1, 1, 2].map(|i| policy(i).parse().expect("a policy"));
        pool.policies = Some(policies.to_vec());
        pool
    }

    /// Paths through a relay, for streams to a port.
    fn through(pool: &Pool, relay: usize, port: u16, is_young: bool) -> Result<Vec<[u32; 3]>, Why> {
        let mut rng = ChaCha12Rng::seed_from_u64(6);
        let choice = Choice::of_clients(port, false).expect("a choice");
        let through = match Through::new(pool, &choice, &[relay], is_young, &mut rng) {
            Ok(through) => through,
            Err(NoPlace::Relay { why, .. }) => return Err(why),
            Err(NoPlace::Network(error)) => panic!("{error}"),
        };
        Ok((0..300).map(|_| through.draw(relay, &mut rng).expect("a path")).collect())
    }

    #[test]
    fn a_relay_is_where_clients_have_it_and_so_are_the_others() {
        let mut pool = pool();
        pool.network.relays[0].flags.stable = false;
        pool.network.relays[4].flags.fast = false;
        pool.network.relays[1].family = vec![[5; 20]];
        pool.network.relays[5].family = vec![[1; 20]];
        for (relay, place) in [(0, 1), (1, 0), (3, 1), (5, 1), (6, 2)] {
            for path in through(&pool, relay, 80, false).expect("paths") {
                assert_eq!(path[place] as usize, relay, "{path:?}");
                assert!([1, 2].contains(&path[0]), "a guard that is stable: {path:?}");
                assert!(
                    [0, 1, 2, 3, 5].contains(&path[1]),
                    "no exit, and one that is fast: {path:?}"
                );
                assert!([6, 7].contains(&path[2]), "an exit that lets 80 out: {path:?}");
                assert!(!(path.contains(&1) && path.contains(&5)), "a family: {path:?}");
            }
        }
        pool.network.relays[8].flags.guard = true;
        pool.factors.as_mut().expect("factors").guard[3] = 0.1;
        let paths = through(&pool, 8, 80, false).expect("it is a guard, too");
        assert!(paths.iter().all(|path| path[0] == 8 && path[2] != 8));
    }

    #[test]
    fn a_relay_that_few_paths_have_is_drawn_when_nobody_is_busy() {
        let (mut pool, mut rng) = (pool(), ChaCha12Rng::seed_from_u64(8));
        // The exit is almost always one that no guard can be with.
        (pool.network.relays[6].weight, pool.network.relays[7].weight) = (400.0, 1.0);
        pool.network.relays[6].family = (0..3).map(|guard| [guard; 20]).collect();
        pool.network.relays[..3].iter_mut().for_each(|guard| guard.family = vec![[6; 20]]);
        let choice = Choice::of_clients(80, false).expect("a choice");
        // A relay is refused if none of a thousand draws is a path: here once in twelve times.
        let mut new = || Through::new(&pool, &choice, &[3], false, &mut rng).ok();
        let through = (0..100).find_map(|_| new()).expect("there are paths");
        let single = (0..40_000).filter(|_| through.draw(3, &mut rng).is_some()).count();
        assert!((50..200).contains(&single), "about one draw in 400: {single}");
        let mut free =
            |busy: &[usize]| through.draw_free(3, &busy.iter().copied().collect(), &mut rng);
        for _ in 0..200 {
            let path = free(&[]).expect("a path");
            assert!(path[0] < 3 && path[1..] == [3, 7], "{path:?}");
        }
        // A queue that can wait for a client draws for a short time only, and waits for the only
        // exit.
        let soon = (0..200).filter(|_| free(&[5]).is_some()).count();
        assert!((50..150).contains(&soon), "about half of 200: {soon}");
        assert!(free(&[7]).is_none() && free(&[3]).is_none());
    }

    #[test]
    fn a_relay_that_no_path_has_is_refused_with_the_reason() {
        let mut pool = pool();
        assert_eq!(through(&pool, 8, 80, false), Err(Why::Port(80)));
        let young = through(&pool, 8, 80, true).expect("it is in between");
        assert!(young.iter().all(|path| path[1] == 8));
        assert!(through(&pool, 8, 443, false).is_ok());
        pool.network.relays[4].flags.fast = false;
        pool.network.relays[3].weight = 0.0;
        assert_eq!(through(&pool, 4, 80, true), Err(Why::Flags));
        assert_eq!(through(&pool, 3, 80, false), Err(Why::Weight));
        pool.network.relays[5].family = vec![[6; 20], [7; 20]];
        pool.network.relays[6].family = vec![[5; 20]];
        pool.network.relays[7].family = vec![[5; 20]];
        assert_eq!(through(&pool, 5, 80, true), Err(Why::Others));
        let choice = Choice::of_clients(80, false).expect("a choice");
        let error =
            Through::new(&pool, &choice, &[1, 5], false, &mut ChaCha12Rng::seed_from_u64(7));
        let text = error.expect_err("none").to_string();
        assert!(text.contains("relay5 (0505050505"), "{text}");
        // A young network has no weights: all relays count equally.
        pool.network.relays.iter_mut().for_each(|relay| relay.weight = 0.0);
        assert!(through(&pool, 3, 80, false).is_ok());
        // Long-lived streams need Stable relays.
        pool.network.relays[3].flags.stable = false;
        pool.policies = None;
        assert!(through(&pool, 3, 80, false).is_ok());
        assert_eq!(through(&pool, 3, 22, false), Err(Why::Flags));
    }
}
