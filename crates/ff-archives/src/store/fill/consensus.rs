//! Turns consensuses into rows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use ff_dir::DocumentError;
use memchr::memmem;

use super::{Bounds, Fill, Filled, check_len, finish, wrong};
use crate::read::archive::Document;
use crate::read::consensus::scan;
use crate::read::consensus::{Again, Consensus, ConsensusRelay, Digest, Flavour, Sequence};
use crate::store::batch::Cell;
use crate::store::error::ArchiveStoreError;
use crate::store::hours::Hours;
use crate::store::partition::Partition;
use crate::store::schema::CONSENSUS_RELAYS;

/// Columns of a relay's row that may differ from the hour before.
const VALID_AFTER: usize = CONSENSUS_RELAYS.place("valid_after");
const DIGEST: usize = CONSENSUS_RELAYS.place("digest");
const MICRODESCRIPTOR_DIGEST: usize = CONSENSUS_RELAYS.place("microdescriptor_digest");
const FLAGS: usize = CONSENSUS_RELAYS.place("flags");
const WEIGHT: usize = CONSENSUS_RELAYS.place("weight");
const IS_UNMEASURED: usize = CONSENSUS_RELAYS.place("is_unmeasured");

/// The greatest size of a consensus, in bytes.
const MOST_BYTES: usize = 1 << 24;
/// The greatest number of relays; it is checked only for documents above [`LONG_BYTES`].
const MOST_RELAYS: usize = 40_000;
/// The least size in bytes of a document with that number of relays.
const LONG_BYTES: usize = 1 << 22;

/// Receives consensuses.
pub(super) struct Consensuses {
    bounds: Bounds,
    /// One row per consensus.
    documents: Partition,
    /// One row per relay of a consensus.
    relays: Partition,
    /// Reads successive consensuses.
    sequence: Sequence,
    /// Whether the rows of the last consensus are in the table.
    is_added: bool,
    /// The times of each flavour.
    times: BTreeMap<&'static str, BTreeSet<u64>>,
    /// The number of duplicate documents.
    duplicates: u64,
    /// The number of documents that were not consensuses.
    passed_over: u64,
    texts: Texts,
}

/// Memory for texts, reused for each relay.
#[derive(Default)]
struct Texts {
    address: String,
    /// Other addresses.
    others: String,
}

impl Consensuses {
    /// Before the first consensus.
    pub(super) fn new(bounds: Bounds, documents: Partition, relays: Partition) -> Self {
        Self {
            bounds,
            documents,
            relays,
            sequence: Sequence::with_space(),
            is_added: false,
            times: BTreeMap::new(),
            duplicates: 0,
            passed_over: 0,
            texts: Texts::default(),
        }
    }

    /// Adds the rows of the last consensus; with `has_before`, unchanged rows of the one before are
    /// repeated.
    fn add(&mut self, document: Document<'_>, has_before: bool) {
        let consensus = self.sequence.now();
        let flavour = flavour_name(consensus.flavour);
        let (time, first_row) = (consensus.valid_after_unix_secs, self.relays.rows());
        let mut weight = 0_u64;
        let has_before = has_before && self.sequence.before().flavour == consensus.flavour;
        self.relays.fix(VALID_AFTER, Cell::Int(time));
        for (index, relay) in consensus.relays.iter().enumerate() {
            weight = weight.saturating_add(relay.bandwidth.unwrap_or(0));
            if has_before && push_again(&mut self.relays, &self.sequence, index, relay) {
                continue;
            }
            self.texts.read(consensus, relay);
            push_relay(&mut self.relays, consensus, relay, &self.texts);
        }
        self.relays.end_document();
        let mut weights = String::new();
        for (key, value) in consensus.bandwidth_weights() {
            let gap = if weights.is_empty() { "" } else { " " };
            // Writing to a string cannot fail.
            let _ = write!(weights, "{gap}{key}={value}");
        }
        self.documents.push(&[
            Cell::Int(time),
            flavour.into(),
            Cell::Int(consensus.method.into()),
            Cell::Int(consensus.relays.len() as u64),
            Cell::Int(first_row),
            Cell::Int(weight),
            consensus.params().into(),
            weights.as_str().into(),
            Cell::Int(document.bytes.len() as u64),
            document.file.into(),
            document.entry.into(),
        ]);
        self.documents.end_document();
    }
}

impl Texts {
    /// Formats the addresses of a relay.
    fn read(&mut self, consensus: &Consensus, relay: &ConsensusRelay) {
        self.address.clear();
        for (index, byte) in relay.address.octets().into_iter().enumerate() {
            if index > 0 {
                self.address.push('.');
            }
            // The library's formatting takes four times as long, five million times per month.
            for (least, unit) in [(100, 100), (10, 10), (0, 1)] {
                if byte >= least {
                    self.address.push(char::from(b'0' + byte / unit % 10));
                }
            }
        }
        self.others.clear();
        for address in consensus.addresses(relay).skip(1) {
            let gap = if self.others.is_empty() { "" } else { " " };
            // Writing to a string cannot fail.
            let _ = write!(self.others, "{gap}{address}");
        }
    }
}

/// Adds a relay's row.
fn push_relay(to: &mut Partition, consensus: &Consensus, relay: &ConsensusRelay, texts: &Texts) {
    let (digest, micro) = digests(relay);
    let others = Some(texts.others.as_str()).filter(|others| !others.is_empty());
    to.push(&[
        Cell::Int(consensus.valid_after_unix_secs),
        flavour_name(consensus.flavour).into(),
        Cell::Bytes(&relay.fingerprint),
        digest,
        micro,
        consensus.text(relay.nickname).into(),
        texts.address.as_str().into(),
        Cell::Int(relay.or_port.into()),
        Cell::Int(relay.dir_port.into()),
        others.into(),
        Cell::Int(relay.flags.bits().into()),
        consensus.text(relay.version).into(),
        relay.bandwidth.into(),
        Cell::Bool(relay.is_unmeasured),
    ]);
}

/// Repeats the relay's row in the previous consensus with changed cells. Returns `false` if there
/// is none, or if a column has changed that is constant from hour to hour.
fn push_again(
    to: &mut Partition,
    sequence: &Sequence,
    index: usize,
    relay: &ConsensusRelay,
) -> bool {
    let (now, before) = (sequence.now(), sequence.before());
    let at = match sequence.again(index) {
        Again::New => return false,
        Again::Same(at) => return to.push_again(at, []),
        Again::Changed(at) => at,
    };
    let Some(old) = before.relays.get(at) else { return false };
    let is_where_it_was =
        (relay.address, relay.or_port, relay.dir_port) == (old.address, old.or_port, old.dir_port);
    if !is_where_it_was
        || now.text(relay.nickname) != before.text(old.nickname)
        || now.text(relay.version) != before.text(old.version)
        || !now.addresses(relay).eq(before.addresses(old))
    {
        return false;
    }
    let (digest, micro) = digests(relay);
    let changes = [
        (relay.digest != old.digest, (DIGEST, digest)),
        (relay.digest != old.digest, (MICRODESCRIPTOR_DIGEST, micro)),
        (relay.flags != old.flags, (FLAGS, Cell::Int(relay.flags.bits().into()))),
        (relay.bandwidth != old.bandwidth, (WEIGHT, relay.bandwidth.into())),
        (
            relay.is_unmeasured != old.is_unmeasured,
            (IS_UNMEASURED, Cell::Bool(relay.is_unmeasured)),
        ),
    ];
    to.push_again(
        at,
        changes.into_iter().filter_map(|(has_changed, cell)| has_changed.then_some(cell)),
    )
}

/// The digests of a relay's descriptor and microdescriptor.
const fn digests(relay: &ConsensusRelay) -> (Cell<'_>, Cell<'_>) {
    match &relay.digest {
        Digest::None => (Cell::None, Cell::None),
        Digest::Descriptor(digest) => (Cell::Bytes(digest), Cell::None),
        Digest::Microdescriptor(digest) => (Cell::None, Cell::Bytes(digest)),
    }
}

impl Fill for Consensuses {
    fn take(&mut self, document: Document<'_>) -> Result<(), DocumentError> {
        if self.documents.is_lost() || self.relays.is_lost() {
            return Ok(());
        }
        if is_microdescriptor(document.bytes) {
            self.passed_over += 1;
            return Ok(());
        }
        check_relays(document)?;
        let consensus = match document.shared {
            Some(shared) => self.sequence.read_shared(shared)?,
            None => self.sequence.read(document.bytes)?,
        };
        let has_before = std::mem::replace(&mut self.is_added, false);
        let time = consensus.valid_after_unix_secs;
        self.bounds.check_month(time)?;
        let times = self.times.entry(flavour_name(consensus.flavour)).or_default();
        if !times.insert(time) {
            self.duplicates += 1;
            let time = consensus.valid_after();
            return Err(wrong(format!(
                "the consensus of {time} is there twice: the first is kept"
            )));
        }
        self.add(document, has_before);
        self.is_added = true;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Filled, ArchiveStoreError> {
        let hours: Vec<Hours> =
            self.times.iter().filter_map(|(flavour, times)| Hours::of(flavour, times)).collect();
        self.sequence.put_aside();
        let mut filled = finish([self.documents, self.relays])?;
        filled.counts.duplicates = self.duplicates;
        filled.counts.passed_over = self.passed_over;
        filled.counts.missing_hours = hours.iter().map(Hours::missing_hours).sum();
        filled.counts.hours = hours;
        Ok(filled)
    }
}

/// Checks the number of relays, if the document's size allows too many.
fn check_relays(document: Document<'_>) -> Result<(), DocumentError> {
    check_len(document, "consensus", MOST_BYTES)?;
    let is_long = document.bytes.len() > LONG_BYTES;
    if is_long && memmem::find_iter(document.bytes, b"\nr ").nth(MOST_RELAYS).is_some() {
        return Err(wrong(format!("it lists more than {MOST_RELAYS} relays")));
    }
    Ok(())
}

const fn flavour_name(flavour: Flavour) -> &'static str {
    match flavour {
        Flavour::Ns => "ns",
        Flavour::Microdesc => "microdesc",
    }
}

/// Whether a document is a microdescriptor; archives have these among consensuses of that flavour.
fn is_microdescriptor(document: &[u8]) -> bool {
    let mut lines = scan::Lines::of(document);
    let first = lines.find(|line| !matches!(line.keyword, [] | [b'@', ..]));
    first.is_some_and(|line| line.keyword == b"onion-key")
}
