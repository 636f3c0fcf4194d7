//! Fetches the pieces that are listed and not there, from several servers at the same time.
//!
//! A few servers are asked for a batch each. One that fails, is slow, or answers with something
//! that it was not asked for is given up, and its batch goes to another one. What a server does not
//! have is asked of others in a next round, and of the authorities in the last.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use ff_base::identity::Fingerprint;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, timeout_at};

use super::ask::{Ask, AskError, Request, Servers};
use super::parts::{Microdescriptor, Part, ServerDescriptor};
use super::shelf::Shelf;

/// Digests in one request at most, as tor's own: a request is one line, and its answer is bounded
/// by it.
pub(super) const MAX_BATCH: usize = 96;
/// Rounds with caches before the authorities are asked.
const CACHE_ROUNDS: usize = 2;
/// What is said of servers at most; a network can have thousands.
const MAX_PROBLEMS: usize = 20;

/// A kind of pieces that can be asked for.
pub(super) trait Wanted: Part {
    /// The request for these.
    fn request(digests: &[Self::Digest]) -> Request;
}

impl Wanted for ServerDescriptor {
    fn request(digests: &[[u8; 20]]) -> Request {
        Request::Descriptors(digests.to_vec())
    }
}

impl Wanted for Microdescriptor {
    fn request(digests: &[[u8; 32]]) -> Request {
        Request::Microdescriptors(digests.to_vec())
    }
}

/// How much is asked for at once, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Requests at the same time.
    pub(super) parallel: usize,
    /// How long a server has for an answer.
    pub(super) answer_time: Duration,
    /// When everything must have come.
    pub(super) deadline: Instant,
    /// Bytes of pieces at most.
    pub(super) max_bytes: u64,
}

/// Problems during a refresh, a sentence for each server.
#[derive(Debug, Default)]
pub(super) struct Problems(Vec<String>);

impl Problems {
    /// Notes a sentence.
    pub(super) fn note(&mut self, sentence: String) {
        if self.0.len() < MAX_PROBLEMS {
            self.0.push(sentence);
        }
    }

    /// All sentences.
    pub(super) fn into_sentences(self) -> Vec<String> {
        self.0
    }
}

/// Puts the pieces that are listed and not there on the shelf; how many are still not there.
pub(super) async fn collect<P: Wanted, A: Ask>(
    ask: &A,
    servers: &Servers<A::Server>,
    pace: Pace,
    listed: &[(Fingerprint, P::Digest)],
    shelf: &mut Shelf<P>,
    problems: &mut Problems,
) -> usize {
    let mut caches: VecDeque<_> = servers.caches.iter().cloned().collect();
    for round in 0..=CACHE_ROUNDS {
        let wanted = missing(listed, shelf);
        if wanted.is_empty() || Instant::now() >= pace.deadline {
            break;
        }
        let mut authorities = servers.authorities.iter().cloned().collect();
        let supply = if round < CACHE_ROUNDS { &mut caches } else { &mut authorities };
        let queue = wanted.chunks(MAX_BATCH).map(<[P::Digest]>::to_vec).collect();
        let bytes_left = pace.max_bytes.saturating_sub(shelf.bytes_of(listed));
        Round { ask, pace, queue, supply, shelf, problems, bytes_left }.run().await;
    }
    missing(listed, shelf).len()
}

/// The listed documents that are missing.
fn missing<P: Part>(listed: &[(Fingerprint, P::Digest)], shelf: &Shelf<P>) -> Vec<P::Digest> {
    let digests = listed.iter().map(|(_, digest)| *digest);
    let mut missing: Vec<_> = digests.filter(|digest| !shelf.has(digest)).collect();
    missing.sort_unstable();
    missing.dedup();
    missing
}

/// One round.
struct Round<'a, P: Wanted, A: Ask> {
    /// Whom to ask through.
    ask: &'a A,
    /// How much at once, and for how long.
    pace: Pace,
    /// Batches that are to be asked for.
    queue: Vec<Vec<P::Digest>>,
    /// Servers that are not being asked; good ones come back to its end.
    supply: &'a mut VecDeque<A::Server>,
    /// Where pieces go.
    shelf: &'a mut Shelf<P>,
    /// The problems so far.
    problems: &'a mut Problems,
    /// How many bytes there is room for.
    bytes_left: u64,
}

impl<P: Wanted, A: Ask> Round<'_, P, A> {
    /// Asks until all batches have been asked for, or nobody is left to ask.
    async fn run(mut self) {
        // The first few servers are asked repeatedly, so that few connections are made.
        let count = self.supply.len().min(self.pace.parallel);
        let mut idle: Vec<_> = self.supply.drain(..count).collect();
        let mut asked = FuturesUnordered::new();
        loop {
            while !idle.is_empty()
                && !self.queue.is_empty()
                && Instant::now() < self.pace.deadline
                && let (Some(server), Some(batch)) = (idle.pop(), self.queue.pop())
            {
                asked.push(ask_for::<P, A>(self.ask, server, batch, self.pace));
            }
            let Some((server, batch, answer)) = asked.next().await else { break };
            match answer.and_then(|text| self.take(&batch, &text)) {
                Ok(()) => idle.push(server),
                Err(error) => {
                    self.problems.note(format!("{server}: {error}"));
                    self.queue.push(batch);
                    idle.extend(self.supply.pop_front());
                }
            }
        }
        self.supply.extend(idle);
    }

    /// Puts on the shelf what was asked for.
    fn take(&mut self, batch: &[P::Digest], text: &str) -> Result<(), AskError> {
        let wanted: HashSet<_> = batch.iter().copied().collect();
        let (mut taken, mut foreign) = (0_usize, 0_usize);
        for (digest, piece) in P::all(text) {
            if !wanted.contains(&digest) {
                foreign += 1;
                continue;
            }
            let Some(left) = self.bytes_left.checked_sub(piece.len() as u64) else {
                let reason = format!("{} are larger than limits.cache_bytes", P::NAME);
                return Err(AskError::BadAnswer(reason));
            };
            self.bytes_left = left;
            taken += 1;
            self.shelf.add(digest, piece, 0);
        }
        let count = batch.len();
        match (taken, foreign) {
            (_, 1..) => Err(format!("{foreign} of its {} were not asked for", P::NAME)),
            (0, 0) => Err(format!("it has none of {count} {}", P::NAME)),
            _ => Ok(()),
        }
        .map_err(AskError::BadAnswer)
    }
}

/// Asks a server for a batch, for as long as it has.
async fn ask_for<P: Wanted, A: Ask>(
    ask: &A,
    server: A::Server,
    batch: Vec<P::Digest>,
    pace: Pace,
) -> (A::Server, Vec<P::Digest>, Result<String, AskError>) {
    let until = pace.deadline.min(Instant::now() + pace.answer_time);
    let answer = timeout_at(until, ask.ask(&server, &P::request(&batch))).await;
    let answer = answer.unwrap_or(Err(AskError::TooSlow(pace.answer_time.as_secs())));
    (server, batch, answer)
}
