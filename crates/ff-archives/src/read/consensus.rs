//! The fields of a consensus that are used here, scanned as bytes (dir-spec 3.4.1).
//!
//! Supports both flavours and all methods since 2008. [`Consensus::read`] reads the lines once, and
//! stores relays in one vector and texts in another, which are reused for the next document:
//! nothing is allocated per relay. Signatures are not checked. Additional arguments are ignored, as
//! the specification requires, and so are other keywords.
//!
//! A document must be complete: it has a footer (before method 9: a signature), and ends with a
//! line end or with the last line of an object. Truncation at a line end among the signatures goes
//! unnoticed if no object is open there; all fields have been read at that point.

mod again;
mod fields;
mod flags;
pub(crate) mod scan;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ff_base::identity::Fingerprint;
use ff_dir::DocumentError;

use self::again::Known;
pub use self::again::{Again, Sequence};
pub use self::flags::FlagBits;
use self::scan::{Line, Lines};

/// The greatest weight that is accepted: 2^53.
pub const MOST_BANDWIDTH: u64 = 1 << 53;
/// Consensuses have a line `directory-footer` from this method on.
const FIRST_METHOD_WITH_FOOTER: u32 = 9;

/// The flavour of a consensus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flavour {
    /// Relays are listed with digests of descriptors.
    #[default]
    Ns,
    /// Relays are listed with digests of microdescriptors.
    Microdesc,
}

/// The digest by which a relay's descriptor or microdescriptor is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Digest {
    /// No digest: the relay has no line `m`.
    #[default]
    None,
    /// The SHA-1 of its descriptor.
    Descriptor([u8; 20]),
    /// The SHA-256 of its microdescriptor.
    Microdescriptor([u8; 32]),
}

/// The place of a text among a consensus's texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Text {
    start: u32,
    end: u32,
}

/// A relay of a consensus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsensusRelay {
    /// The relay's fingerprint.
    pub fingerprint: Fingerprint,
    /// The digest of its descriptor or microdescriptor.
    pub digest: Digest,
    /// The relay's IPv4 address.
    pub address: Ipv4Addr,
    /// The OR port at that address.
    pub or_port: u16,
    /// The directory port at that address; 0 if it has none.
    pub dir_port: u16,
    /// The flags given by authorities.
    pub flags: FlagBits,
    /// The nickname, see [`Consensus::text`].
    pub nickname: Text,
    /// The version, without the leading word `Tor`; empty if none is listed.
    pub version: Text,
    /// The weight in kilobytes per second (`Bandwidth=`).
    pub bandwidth: Option<u64>,
    /// Whether too few authorities have measured it (`Unmeasured=1`).
    pub is_unmeasured: bool,
    /// The place of its other addresses among all.
    others_start: u32,
    /// The number of its other addresses.
    others_len: u32,
}

/// The fields of a consensus.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consensus {
    /// The flavour of the document.
    pub flavour: Flavour,
    /// The consensus method; 1 if it is not stated.
    pub method: u32,
    /// When it became valid, in seconds since 1970.
    pub valid_after_unix_secs: u64,
    /// The relays, in the order of their fingerprints.
    pub relays: Vec<ConsensusRelay>,
    /// The same time as text.
    valid_after: Text,
    /// The parameters of its header as text.
    params: Text,
    /// The footer's bandwidth-weights.
    weights: Vec<(Text, i32)>,
    /// All texts, one after another.
    texts: String,
    /// The other addresses of all relays, one relay after another.
    others: Vec<IpAddr>,
}

/// The part of a document that is being read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    /// Before the first line.
    #[default]
    Nothing,
    /// Before the relays.
    Header,
    /// Among the relays.
    Relays,
    /// After the line that begins the footer.
    FooterLine,
    /// Weights and signatures.
    Footer,
}

/// The error in a line; the line number is added later.
type Wrong = String;

impl Consensus {
    /// Reads a document.
    ///
    /// # Errors
    /// As for [`Self::read`].
    pub fn parse(document: &[u8]) -> Result<Self, DocumentError> {
        let mut consensus = Self::default();
        consensus.read(document)?;
        Ok(consensus)
    }

    /// Replaces the content by that of a document; after an error the content is empty.
    ///
    /// # Errors
    /// [`DocumentError`] if the text is not a consensus, or is of another flavour, truncated or
    /// without a footer, lists relays twice or out of order, is from before 2007, or has an invalid
    /// line.
    pub fn read(&mut self, document: &[u8]) -> Result<(), DocumentError> {
        self.read_with(document, None)
    }

    /// Reads a document; relays may be taken over from a known one.
    fn read_with(
        &mut self,
        document: &[u8],
        known: Option<&mut Known<'_>>,
    ) -> Result<(), DocumentError> {
        self.clear();
        let result = self.read_all(document, known);
        if result.is_err() {
            self.clear();
        }
        result
    }

    /// Clears the content but keeps allocated memory.
    fn clear(&mut self) {
        let Self { mut relays, mut weights, mut texts, mut others, .. } = std::mem::take(self);
        relays.clear();
        weights.clear();
        texts.clear();
        others.clear();
        *self = Self { relays, weights, texts, others, ..Self::default() };
    }

    fn read_all(
        &mut self,
        document: &[u8],
        mut known: Option<&mut Known<'_>>,
    ) -> Result<(), DocumentError> {
        if u32::try_from(document.len()).is_err() {
            return Err(scan::error(1, "the document has more than 4 GiB"));
        }
        let mut lines = Lines::of(document);
        let mut part = Part::Nothing;
        loop {
            let mut known = known.as_deref_mut();
            let is_among = matches!(part, Part::Header | Part::Relays);
            if is_among && lines.comes(b"r ") {
                let take = |known: &mut &mut Known<'_>| known.take(self, document, &mut lines);
                if known.as_mut().is_some_and(take) {
                    part = Part::Relays;
                    continue;
                }
            }
            let Some(line) = lines.next() else { break };
            let is_relay = line.keyword == b"r" && is_among;
            part = self.read_line(part, line).map_err(|wrong| scan::error(line.number, wrong))?;
            match (known, line.keyword, self.relays.last()) {
                (Some(known), b"r", Some(relay)) if is_relay => {
                    known.begin(line);
                    known.pass(&relay.fingerprint);
                }
                (Some(known), b"w", _) => known.weight(document, line),
                _ => {}
            }
        }
        let last = lines.number().max(1);
        match part {
            Part::Nothing => Err(scan::error(1, "this is not a consensus")),
            _ if self.valid_after == Text::default() => {
                Err(scan::error(1, "this is not a consensus: it has no valid-after time"))
            }
            Part::Header | Part::Relays | Part::FooterLine => {
                Err(scan::error(last, "the consensus ends too early: it has no footer"))
            }
            Part::Footer if !lines.is_whole() => {
                Err(scan::error(last, "the consensus ends too early: its last line is incomplete"))
            }
            Part::Footer => Ok(()),
        }
    }

    /// Reads a line, and returns the part of the document of the next line.
    fn read_line(&mut self, part: Part, line: Line<'_>) -> Result<Part, Wrong> {
        match (part, line.keyword) {
            // Nearly all lines belong to relays, and have keywords of one letter.
            (Part::Relays, [b'r']) => self.read_relay(line.rest),
            (Part::Relays, [_]) => self.read_of_relay(line.keyword, line.rest),
            (_, b"network-status-version") => self.read_flavour(part, line.rest),
            (Part::Nothing, keyword) => match keyword {
                [] | [b'@', ..] => Ok(part),
                _ => Err("this is not a consensus".to_owned()),
            },
            (Part::Header, b"r") => self.read_relay(line.rest),
            (Part::Header, keyword) if !is_footer(keyword) => self.read_header(keyword, line.rest),
            (Part::Relays, keyword) if !is_footer(keyword) => {
                self.read_of_relay(keyword, line.rest)
            }
            (Part::FooterLine | Part::Footer, b"r") => {
                Err("there is a relay after the footer".to_owned())
            }
            (Part::FooterLine | Part::Footer, b"bandwidth-weights") => self.read_weights(line.rest),
            (Part::FooterLine, b"directory-signature") => Ok(Part::Footer),
            (Part::FooterLine | Part::Footer, _) => Ok(part),
            (_, b"directory-signature") if self.method >= FIRST_METHOD_WITH_FOOTER => {
                Err("no line `directory-footer` is before the signatures".to_owned())
            }
            (_, b"directory-signature") => Ok(Part::Footer),
            _ => Ok(Part::FooterLine),
        }
    }

    /// `network-status-version 3`, and the flavour unless it is ns.
    fn read_flavour(&mut self, part: Part, rest: &[u8]) -> Result<Part, Wrong> {
        if part != Part::Nothing {
            return Err("another document begins here".to_owned());
        }
        let mut words = scan::words(rest);
        if words.next() != Some(b"3") {
            return Err("this is not a consensus of version 3".to_owned());
        }
        self.flavour = match words.next() {
            None | Some(b"ns") => Flavour::Ns,
            Some(b"microdesc") => Flavour::Microdesc,
            Some(_) => return Err("the consensus is of another flavour".to_owned()),
        };
        self.method = 1;
        Ok(Part::Header)
    }

    /// Reads a line before the relays.
    fn read_header(&mut self, keyword: &[u8], rest: &[u8]) -> Result<Part, Wrong> {
        match keyword {
            b"vote-status" if rest != b"consensus" => {
                return Err("this is not a consensus".to_owned());
            }
            b"consensus-method" => {
                let method = scan::words(rest).next().and_then(scan::number);
                let method = method.and_then(|method| method.try_into().ok());
                self.method = method.ok_or("the consensus method cannot be read")?;
            }
            b"valid-after" => {
                let secs = scan::time(rest).map_err(|wrong| format!("valid-after {wrong}"))?;
                self.valid_after_unix_secs = secs;
                self.valid_after = self.keep(rest).ok_or("valid-after is not a time")?;
            }
            b"params" => self.params = self.keep(rest).ok_or("the parameters are not text")?,
            _ => {}
        }
        Ok(Part::Header)
    }

    /// `r`: begins a relay.
    fn read_relay(&mut self, rest: &[u8]) -> Result<Part, Wrong> {
        let before = self.relays.last().map(|relay| relay.fingerprint);
        let now = self.push_relay(rest).ok_or("the relay cannot be read")?;
        match before {
            Some(before) if before == now => Err("the relay is listed twice".to_owned()),
            Some(before) if before > now => Err("relays are not in order".to_owned()),
            _ => Ok(Part::Relays),
        }
    }

    /// Adds a relay from the words after `r`, which have no digest in the flavour microdesc.
    /// Returns its fingerprint.
    fn push_relay(&mut self, rest: &[u8]) -> Option<Fingerprint> {
        let mut words = scan::words(rest);
        let nickname = words.next().filter(|word| scan::is_nickname(word))?;
        let fingerprint = scan::base64(words.of_len::<27>()?)?;
        let digest = match self.flavour {
            Flavour::Ns => Digest::Descriptor(scan::base64(words.of_len::<27>()?)?),
            Flavour::Microdesc => Digest::None,
        };
        let (_date, _time, address) = (words.next()?, words.next()?, words.next()?);
        let (or_port, dir_port) = (scan::port(words.next()?)?, scan::port(words.next()?)?);
        let (address, nickname) = (scan::ipv4(address)?, self.keep(nickname)?);
        let others_start = self.others.len().try_into().ok()?;
        self.relays.push(ConsensusRelay {
            fingerprint,
            digest,
            address,
            or_port,
            dir_port,
            flags: FlagBits::default(),
            nickname,
            version: Text::default(),
            bandwidth: None,
            is_unmeasured: false,
            others_start,
            others_len: 0,
        });
        Some(fingerprint)
    }

    /// Reads another line of the last relay.
    fn read_of_relay(&mut self, keyword: &[u8], rest: &[u8]) -> Result<Part, Wrong> {
        match keyword {
            [b's'] => self.last()?.flags = FlagBits::of(scan::words(rest)),
            [b'w'] => self.read_bandwidth(rest)?,
            [b'v'] => {
                let version = rest.strip_prefix(b"Tor ").unwrap_or(rest);
                let version = self.keep(version).ok_or("the version is not text")?;
                self.last()?.version = version;
            }
            [b'm'] => {
                let digest = scan::words(rest).next().and_then(scan::base64);
                let digest = digest.ok_or("the microdescriptor's digest cannot be read")?;
                self.last()?.digest = Digest::Microdescriptor(digest);
            }
            [b'a'] => {
                let address = scan::words(rest).next().and_then(scan::text);
                let address: Option<SocketAddr> = address.and_then(|text| text.parse().ok());
                self.others.push(address.ok_or("the address cannot be read")?.ip());
                self.last()?.others_len += 1;
            }
            _ => {}
        }
        Ok(Part::Relays)
    }

    /// The relay that is being read.
    fn last(&mut self) -> Result<&mut ConsensusRelay, Wrong> {
        self.relays.last_mut().ok_or_else(|| "no line `r` of a relay is before it".to_owned())
    }

    /// `w`: `Bandwidth=N` and `Unmeasured=1`.
    fn read_bandwidth(&mut self, rest: &[u8]) -> Result<(), Wrong> {
        for (key, value) in scan::words(rest).filter_map(scan::key_value) {
            match key {
                b"Bandwidth" => {
                    let number = scan::number(value).filter(|number| *number <= MOST_BANDWIDTH);
                    let number = number.ok_or_else(|| wrong_weight(value))?;
                    self.last()?.bandwidth = Some(number);
                }
                b"Unmeasured" => self.last()?.is_unmeasured = value == b"1",
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads the footer's bandwidth-weights.
    fn read_weights(&mut self, rest: &[u8]) -> Result<Part, Wrong> {
        if !self.weights.is_empty() {
            return Err("bandwidth-weights appear twice".to_owned());
        }
        for word in scan::words(rest) {
            let pair = scan::key_value(word)
                .and_then(|(key, value)| Some((self.keep(key)?, scan::text(value)?.parse().ok()?)));
            self.weights.push(pair.ok_or("the bandwidth-weights cannot be read")?);
        }
        Ok(Part::Footer)
    }

    /// Stores a text, if it is UTF-8.
    fn keep(&mut self, bytes: &[u8]) -> Option<Text> {
        let start = self.texts.len().try_into().ok()?;
        self.texts.push_str(scan::text(bytes)?);
        Some(Text { start, end: self.texts.len().try_into().ok()? })
    }
}

/// The error for a weight; at most 40 characters of it are quoted.
fn wrong_weight(value: &[u8]) -> Wrong {
    let value = String::from_utf8_lossy(value.get(..40).unwrap_or(value)).into_owned();
    format!("the weight Bandwidth={value} is not a whole number from 0 to 2^53")
}

/// Whether a line with this keyword comes after all relays.
const fn is_footer(keyword: &[u8]) -> bool {
    matches!(keyword, b"directory-footer" | b"directory-signature")
}

#[cfg(test)]
mod tests;
