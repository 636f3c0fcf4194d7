//! One refresh: from what is kept and what servers say to the documents of now.
//!
//! ```text
//!   cache ─▶ Kept ─▶ consensus: is there a newer one?  ask 3 caches, then authorities ─▶ verify
//!                 ─▶ the other flavour of the same time
//!                 ─▶ descriptors, microdescriptors that are listed and not there ─▶ compare digests
//!                 ─▶ Documents, and back to the cache
//! ```

use std::sync::Arc;

use ff_base::files::FileError;
use ff_base::identity::Fingerprint;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};
use tor_llcrypto::pk::rsa::RsaIdentity;

use super::ask::{Ask, AskError, Request, Servers};
use super::cache::{Cache, Kept};
use super::collect::{MAX_BATCH, Pace, Problems, Wanted, collect};
use super::config::DocumentLimits;
use super::documents::Documents;
use super::error::DirectoryError;
use super::head::{Flavor, Head, descriptor_digests, microdescriptor_digests};
use super::parts::{Microdescriptor, ServerDescriptor};
use super::shelf::Shelf;
use super::signed::{self, Certificates, Refusal};

/// Directory caches that are asked for a consensus, before authorities are.
const CONSENSUS_CACHES: usize = 3;

/// The source of cached documents.
const THE_CACHE: &str = "the cache";

/// The network's view and its cache.
#[derive(Debug)]
pub(super) struct View {
    /// Where documents are kept.
    cache: Cache,
    /// The authorities whose signatures count.
    authorities: Vec<RsaIdentity>,
    /// What may be kept and asked for.
    limits: DocumentLimits,
}

/// The result of a refresh.
#[derive(Debug)]
pub(super) struct Refreshed {
    /// The documents.
    pub(super) documents: Documents,
    /// Whether they are in the cache.
    pub(super) is_kept: bool,
}

/// A consensus that has been verified.
type Verified = (Head, Arc<str>);

/// The documents at hand.
#[derive(Debug, Default)]
struct Held {
    /// The authorities' certificates.
    certificates: Certificates,
    /// The newest consensus.
    consensus: Option<Verified>,
    /// When it was fetched.
    fetched_at_secs: u64,
    /// The same consensus of the microdesc flavour.
    microdesc: Option<Verified>,
    /// Descriptors.
    descriptors: Shelf<ServerDescriptor>,
    /// Microdescriptors.
    microdescriptors: Shelf<Microdescriptor>,
}

impl View {
    /// Of these authorities' network, kept in this cache.
    pub(super) fn new(cache: Cache, authorities: Vec<RsaIdentity>, limits: DocumentLimits) -> Self {
        Self { cache, authorities, limits }
    }

    /// The last documents that are kept, however old; `None` if there are none.
    pub(super) async fn stored(
        self: &Arc<Self>,
        now_secs: u64,
    ) -> Result<Option<Documents>, FileError> {
        let held = self.load(now_secs).await?;
        Ok(held.documents(THE_CACHE))
    }

    /// Brings the documents up to date as far as possible before the deadline.
    pub(super) async fn refresh<A: Ask>(
        self: &Arc<Self>,
        ask: &A,
        servers: &Servers<A::Server>,
        deadline: Instant,
        now_secs: u64,
    ) -> Result<Refreshed, DirectoryError> {
        let mut held = self.load(now_secs).await?;
        let mut problems = Problems::default();
        let pace = Pace {
            parallel: self.limits.parallel,
            answer_time: self.limits.answer_time(),
            deadline,
            max_bytes: self.limits.cache_bytes,
        };
        let inquiry = Inquiry { view: self, ask, servers, pace, now_secs };
        let giver = inquiry.consensus(&mut held, &mut problems).await?;
        inquiry.microdesc(giver.as_ref(), &mut held, &mut problems).await;
        let from = giver.map_or_else(|| THE_CACHE.to_owned(), |giver| giver.to_string());
        let listed = held.listed_descriptors();
        inquiry.pieces(&listed, &mut held.descriptors, &mut problems).await;
        let listed = held.listed_microdescriptors();
        inquiry.pieces(&listed, &mut held.microdescriptors, &mut problems).await;
        let documents = held.documents(&from);
        let kept = self.save(held, now_secs).await;
        if let Err(error) = &kept {
            problems.note(format!("the documents are not kept: {error}"));
        }
        let mut documents = documents.ok_or(DirectoryError::NoConsensus { tried: Vec::new() })?;
        documents.problems = problems.into_sentences();
        Ok(Refreshed { documents, is_kept: kept.is_ok() })
    }

    /// Reads what is kept, without what is damaged.
    async fn load(self: &Arc<Self>, now_secs: u64) -> Result<Held, FileError> {
        let view = Arc::clone(self);
        let loading = spawn_blocking(move || view.load_now(now_secs));
        loading.await.unwrap_or_else(|_| Ok(Held::default()))
    }

    /// As [`Self::load`], while the thread waits.
    fn load_now(&self, now_secs: u64) -> Result<Held, FileError> {
        let mut held = Held {
            descriptors: self.cache.shelf()?,
            microdescriptors: self.cache.shelf()?,
            ..Held::default()
        };
        let certificates = self.cache.certificates()?;
        held.certificates.add(&certificates, &self.authorities, now_secs);
        let times = self.cache.consensus_times(Flavor::Ns)?;
        held.consensus =
            times.into_iter().find_map(|time| self.kept(Flavor::Ns, time, &held, now_secs));
        if let Some((head, _)) = &held.consensus {
            let time = head.valid_after_secs;
            held.fetched_at_secs = self.cache.fetched_at_secs(Flavor::Ns, time).unwrap_or(time);
            held.microdesc = self.kept(Flavor::Microdesc, time, &held, now_secs);
        }
        Ok(held)
    }

    /// A consensus that is kept, if it can be read and verified.
    fn kept(&self, flavor: Flavor, time_secs: u64, held: &Held, now_secs: u64) -> Option<Verified> {
        let text = self.cache.consensus(flavor, time_secs).ok()?;
        let head = signed::head(&text, flavor, now_secs).ok()?;
        signed::verify(&text, flavor, &self.authorities, &held.certificates).ok()?;
        (head.valid_after_secs == time_secs).then(|| (head, Arc::from(text)))
    }

    /// Keeps what is to be kept.
    async fn save(self: &Arc<Self>, mut held: Held, now_secs: u64) -> Result<(), DirectoryError> {
        let view = Arc::clone(self);
        let saving = spawn_blocking(move || {
            let listed_at = held.consensus.as_ref().map_or(0, |_| now_secs);
            let listed = held.listed_descriptors();
            held.descriptors.note_listed(&listed, listed_at);
            held.descriptors.drop_unlisted(now_secs);
            let listed = held.listed_microdescriptors();
            held.microdescriptors.note_listed(&listed, listed_at);
            held.microdescriptors.drop_unlisted(now_secs);
            view.save_now(&mut held, now_secs)
        });
        saving.await.unwrap_or_else(|error| {
            Err(DirectoryError::config("cache", format!("could not be written: {error}")))
        })
    }

    /// Writes it, the consensuses last, so that they never lack what they list because of a crash.
    fn save_now(&self, held: &mut Held, now_secs: u64) -> Result<(), DirectoryError> {
        held.certificates.forget_expired(now_secs);
        self.cache.keep_certificates(&held.certificates.text())?;
        self.cache.drop_old_consensuses()?;
        let consensuses = [&held.consensus, &held.microdesc];
        let new: u64 = consensuses.into_iter().flatten().map(|(_, text)| text.len() as u64).sum();
        let others = self.cache.other_bytes()? + new;
        if others + held.bytes() > self.limits.cache_bytes {
            held.descriptors.drop_listed_before(now_secs);
            held.microdescriptors.drop_listed_before(now_secs);
        }
        let bytes = others + held.bytes();
        if bytes > self.limits.cache_bytes {
            let reason =
                format!("is too small: the documents of now are {bytes} bytes, and are not kept");
            return Err(DirectoryError::config("limits.cache_bytes", reason));
        }
        self.cache.keep_shelf(&held.descriptors)?;
        self.cache.keep_shelf(&held.microdescriptors)?;
        for (head, text) in [&held.microdesc, &held.consensus].into_iter().flatten() {
            let is_kept =
                self.cache.consensus(head.flavor, head.valid_after_secs)?.as_str() == &**text;
            if !is_kept {
                self.cache.keep_consensus(head, text)?;
            }
        }
        Ok(self.cache.drop_old_consensuses()?)
    }
}

impl Held {
    /// The descriptors that the consensus lists.
    fn listed_descriptors(&self) -> Vec<(Fingerprint, [u8; 20])> {
        self.consensus.as_ref().map(|(_, text)| descriptor_digests(text)).unwrap_or_default()
    }

    /// The microdescriptors that its other flavour lists.
    fn listed_microdescriptors(&self) -> Vec<(Fingerprint, [u8; 32])> {
        self.microdesc.as_ref().map(|(_, text)| microdescriptor_digests(text)).unwrap_or_default()
    }

    /// Bytes of the pieces.
    fn bytes(&self) -> u64 {
        self.descriptors.bytes() + self.microdescriptors.bytes()
    }

    /// What is there, as documents.
    fn documents(&self, from: &str) -> Option<Documents> {
        let (head, consensus) = self.consensus.as_ref()?;
        let listed = self.listed_descriptors();
        Some(Documents {
            consensus: Arc::clone(consensus),
            microdesc_consensus: self.microdesc.as_ref().map(|(_, text)| Arc::clone(text)),
            descriptors: self.descriptors.texts(&listed),
            microdescriptors: self.microdescriptors.texts(&self.listed_microdescriptors()),
            relays: listed.len(),
            valid_after_secs: head.valid_after_secs,
            fresh_until_secs: head.fresh_until_secs,
            valid_until_secs: head.valid_until_secs,
            fetched_at_secs: self.fetched_at_secs,
            from: from.to_owned(),
            problems: Vec::new(),
        })
    }
}

/// What a refresh asks of whom.
struct Inquiry<'a, A: Ask> {
    /// Of which network, and by which limits.
    view: &'a Arc<View>,
    /// Through what.
    ask: &'a A,
    /// Whom.
    servers: &'a Servers<A::Server>,
    /// How much at once, and for how long.
    pace: Pace,
    /// The time on our clock.
    now_secs: u64,
}

impl<A: Ask> Inquiry<'_, A> {
    /// Looks for a newer consensus than the one that is held; says who gave it, if there is one.
    async fn consensus(
        &self,
        held: &mut Held,
        problems: &mut Problems,
    ) -> Result<Option<A::Server>, DirectoryError> {
        let is_fresh = |held: &Held| {
            held.consensus.as_ref().is_some_and(|(head, _)| self.now_secs < head.fresh_until_secs)
        };
        let (mut giver, mut tried) = (None, Vec::new());
        for server in self.consensus_servers() {
            if is_fresh(held) || Instant::now() >= self.pace.deadline {
                break;
            }
            match self.consensus_of(server, Flavor::Ns, held).await {
                Ok(newer) => {
                    held.consensus = Some(newer);
                    held.fetched_at_secs = self.now_secs;
                    giver = Some(server.clone());
                }
                Err(reason) => tried.push(format!("{server}: {reason}")),
            }
        }
        let is_valid = |(head, _): &Verified| self.now_secs < head.valid_until_secs;
        if !held.consensus.as_ref().is_some_and(is_valid) {
            return Err(DirectoryError::NoConsensus { tried });
        }
        // Caches usually lag by some minutes, which does not matter if another one is up to date.
        if !is_fresh(held) {
            tried.into_iter().for_each(|sentence| problems.note(sentence));
        }
        Ok(giver)
    }

    /// Looks for the other flavour of the consensus that is held, where that came from at first.
    async fn microdesc(&self, giver: Option<&A::Server>, held: &mut Held, problems: &mut Problems) {
        let Some((wanted, _)) = held.consensus else { return };
        let is_of_then = |(head, _): &Verified| head.valid_after_secs == wanted.valid_after_secs;
        held.microdesc = held.microdesc.take().filter(is_of_then);
        for server in giver.into_iter().chain(self.consensus_servers()) {
            if held.microdesc.is_some() || Instant::now() >= self.pace.deadline {
                return;
            }
            match self.consensus_of(server, Flavor::Microdesc, held).await {
                Ok(found) => held.microdesc = Some(found),
                Err(reason) => problems.note(format!("{server}: {reason}")),
            }
        }
    }

    /// Whom to ask for a consensus.
    fn consensus_servers(&self) -> impl Iterator<Item = &A::Server> {
        self.servers.caches.iter().take(CONSENSUS_CACHES).chain(&self.servers.authorities)
    }

    /// Asks a server for a consensus, and verifies it.
    async fn consensus_of(
        &self,
        server: &A::Server,
        flavor: Flavor,
        held: &mut Held,
    ) -> Result<Verified, String> {
        let request = Request::Consensus(flavor, self.view.authorities.clone());
        let text = self.answer(server, &request).await.map_err(|error| error.to_string())?;
        let refused = |refusal: Refusal| refusal.to_string();
        let head = signed::head(&text, flavor, self.now_secs).map_err(refused)?;
        self.check_time(&head, held).map_err(refused)?;
        let keys = signed::signers(&text, &self.view.authorities).map_err(refused)?;
        let missing = held.certificates.missing(&keys, &self.view.authorities);
        if !missing.is_empty() {
            let request = Request::Certificates(missing);
            held.certificates.add(
                &self.ask.at_hand(&request),
                &self.view.authorities,
                self.now_secs,
            );
        }
        let missing = held.certificates.missing(&keys, &self.view.authorities);
        if !missing.is_empty() {
            let answer = self.answer(server, &Request::Certificates(missing)).await;
            let text = answer.map_err(|error| format!("certificates: {error}"))?;
            held.certificates.add(&text, &self.view.authorities, self.now_secs);
        }
        let text: Arc<str> = Arc::from(text);
        let (view, copy, certificates) =
            (Arc::clone(self.view), Arc::clone(&text), held.certificates.clone());
        let verifying =
            spawn_blocking(move || signed::verify(&copy, flavor, &view.authorities, &certificates));
        verifying.await.map_err(|error| error.to_string())?.map_err(refused)?;
        Ok((head, text))
    }

    /// Whether a consensus of this time is of use beside what is held.
    fn check_time(&self, head: &Head, held: &Held) -> Result<(), Refusal> {
        if self.now_secs >= head.valid_until_secs {
            return Err(Refusal::Expired(head.valid_until_secs));
        }
        match (&held.consensus, head.flavor) {
            (Some((ours, _)), Flavor::Ns) if head.valid_after_secs <= ours.valid_after_secs => {
                Err(Refusal::NotNewer(head.valid_after_secs))
            }
            (Some((ours, _)), Flavor::Microdesc)
                if head.valid_after_secs != ours.valid_after_secs =>
            {
                Err(Refusal::OtherTime(head.valid_after_secs))
            }
            _ => Ok(()),
        }
    }

    /// Fetches pieces that are listed and not there; what is at hand is taken first.
    async fn pieces<P: Wanted + Kept>(
        &self,
        listed: &[(Fingerprint, P::Digest)],
        shelf: &mut Shelf<P>,
        problems: &mut Problems,
    ) {
        let digests = listed.iter().map(|(_, digest)| *digest);
        let wanted: Vec<_> = digests.filter(|digest| !shelf.has(digest)).collect();
        for batch in wanted.chunks(MAX_BATCH) {
            for (digest, piece) in P::all(&self.ask.at_hand(&P::request(batch))) {
                shelf.add(digest, piece, 0);
            }
        }
        let missing = collect(self.ask, self.servers, self.pace, listed, shelf, problems).await;
        if missing > 0 {
            problems.note(format!("{missing} of {} {} are missing", listed.len(), P::NAME));
        }
    }

    /// A server's answer, if it comes in time.
    async fn answer(&self, server: &A::Server, request: &Request) -> Result<String, AskError> {
        let until = self.pace.deadline.min(Instant::now() + self.pace.answer_time);
        let answer = timeout_at(until, self.ask.ask(server, request)).await;
        answer.unwrap_or(Err(AskError::TooSlow(self.pace.answer_time.as_secs())))
    }
}

#[cfg(test)]
mod tests;
