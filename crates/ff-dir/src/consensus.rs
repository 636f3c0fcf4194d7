//! A consensus, of either flavour (dir-spec 3.4.1).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use base64ct::{Base64, Encoding};
use ff_base::identity::{Fingerprint, fingerprint_base64, key_base64};
use ff_proto::units::BytesPerSec;

use super::{DocumentError, Item, Items, ed25519_id, unix_secs, words};

/// The fields read from a consensus.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consensus {
    /// When it became valid: `2019-07-14 00:00:00`, in UTC.
    pub valid_after: String,
    /// Until when it is the freshest, in the same form.
    pub fresh_until: String,
    /// Until when it is valid, in the same form.
    pub valid_until: String,
    /// The current shared random value, which the authorities have drawn together (srv-spec).
    pub shared_random: Option<[u8; 32]>,
    /// The relays, in their order.
    pub relays: Vec<Entry>,
}

/// A relay in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Its nickname.
    pub nickname: String,
    /// Its fingerprint.
    pub fingerprint: Fingerprint,
    /// Its Ed25519 identity. Consensuses do not have it, but votes; a descriptor or microdescriptor
    /// has it, too.
    pub ed25519: Option<[u8; 32]>,
    /// Where it listens, its IPv4 address first.
    pub or_ports: Vec<SocketAddr>,
    /// The authorities' flags.
    pub flags: Flags,
    /// The SHA-1 of its descriptor, in the ns flavour.
    pub descriptor: Option<[u8; 20]>,
    /// The SHA-256 of its microdescriptor, in the microdesc flavour.
    pub microdescriptor: Option<[u8; 32]>,
    /// Its weight: kilobytes a second, or what authorities make of it.
    pub weight: Option<u32>,
    /// Whether too few authorities have measured it.
    pub is_unmeasured: bool,
}

impl Entry {
    /// Its addresses.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.or_ports.iter().map(SocketAddr::ip).collect()
    }

    /// The relay's estimate, if it was measured: its weight.
    #[must_use]
    pub fn estimate(&self) -> Option<BytesPerSec> {
        let weight = self.weight.filter(|_| !self.is_unmeasured);
        weight.map(|kilobytes| BytesPerSec::new(u64::from(kilobytes) * 1000))
    }
}

/// The flags of a relay that are used here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent of each other")]
pub struct Flags {
    /// Usable now.
    pub is_running: bool,
    /// Should be used.
    pub is_valid: bool,
    /// May be a client's first relay.
    pub is_guard: bool,
    /// May be a circuit's last relay.
    pub is_exit: bool,
    /// Must not be a circuit's last relay.
    pub is_bad_exit: bool,
    /// Fast enough for common circuits.
    pub is_fast: bool,
    /// Has been running long enough for long-lived circuits.
    pub is_stable: bool,
    /// A directory authority.
    pub is_authority: bool,
}

impl Flags {
    /// Reads the words of an `s` line; most flags do not matter.
    fn parse(rest: &str) -> Self {
        let mut flags = Self::default();
        for word in words(rest) {
            match word {
                "Running" => flags.is_running = true,
                "Valid" => flags.is_valid = true,
                "Guard" => flags.is_guard = true,
                "Exit" => flags.is_exit = true,
                "BadExit" => flags.is_bad_exit = true,
                "Fast" => flags.is_fast = true,
                "Stable" => flags.is_stable = true,
                "Authority" => flags.is_authority = true,
                _ => {}
            }
        }
        flags
    }
}

impl Consensus {
    /// Reads a consensus. Relays must be in the order of their fingerprints, as they are in every
    /// consensus, and so none can be listed twice.
    ///
    /// # Errors
    /// [`DocumentError`] for what is not a consensus, is cut, or has a line that cannot be read.
    pub fn parse(text: &str) -> Result<Self, DocumentError> {
        let mut consensus = Self::default();
        let (mut is_consensus, mut is_whole, mut last) = (false, false, 0);
        for Item { line: number, keyword, rest, .. } in Items::of(text) {
            last = number;
            let bad = |what: &str| DocumentError::new(number, format!("{what} cannot be read"));
            match keyword {
                "vote-status" => is_consensus = rest == "consensus",
                "valid-after" => rest.clone_into(&mut consensus.valid_after),
                "fresh-until" => rest.clone_into(&mut consensus.fresh_until),
                "valid-until" => rest.clone_into(&mut consensus.valid_until),
                "shared-rand-current-value" => {
                    consensus.shared_random =
                        Some(random(rest).ok_or_else(|| bad("the shared random value"))?);
                }
                "r" => {
                    let entry = Entry::parse(rest).ok_or_else(|| bad("the relay"))?;
                    if consensus.relays.last().is_some_and(|r| r.fingerprint >= entry.fingerprint) {
                        return Err(DocumentError::new(number, "relays are not in their order"));
                    }
                    consensus.relays.push(entry);
                }
                "a" | "s" | "w" | "m" | "id" => {
                    if let Some(relay) = consensus.relays.last_mut() {
                        let read = relay.read(keyword, rest);
                        read.map_err(|wrong| DocumentError::new(number, wrong))?;
                    }
                }
                "directory-footer" => {
                    is_whole = true;
                    break;
                }
                _ => {}
            }
        }
        if !is_consensus || consensus.valid_after.is_empty() {
            return Err(DocumentError::new(1, "this is not a consensus"));
        }
        if !is_whole {
            return Err(DocumentError::new(last, "the consensus ends too early: it has no footer"));
        }
        Ok(consensus)
    }
}

impl Consensus {
    /// When it became valid, in seconds since 1970; `None` if that is no time.
    #[must_use]
    pub fn valid_after_unix_secs(&self) -> Option<u64> {
        unix_secs(&self.valid_after)
    }

    /// Until when it is the freshest, in seconds since 1970; `None` if that is no time.
    #[must_use]
    pub fn fresh_until_unix_secs(&self) -> Option<u64> {
        unix_secs(&self.fresh_until)
    }

    /// Until when it is valid, in seconds since 1970; `None` if that is no time.
    #[must_use]
    pub fn valid_until_unix_secs(&self) -> Option<u64> {
        unix_secs(&self.valid_until)
    }
}

/// The value of `shared-rand-current-value N base64`.
fn random(rest: &str) -> Option<[u8; 32]> {
    let value = rest.split_once(' ')?.1;
    Base64::decode_vec(value).ok()?.try_into().ok()
}

impl Entry {
    /// Parses the text after `r`; the flavours differ in the middle.
    fn parse(rest: &str) -> Option<Self> {
        let mut words = words(rest);
        let (nickname, fingerprint) = (words.next()?, words.next()?);
        let descriptor = words.next().and_then(fingerprint_base64);
        let (_, port, address) = (words.next_back()?, words.next_back()?, words.next_back()?);
        let address: Ipv4Addr = address.parse().ok()?;
        Some(Self {
            nickname: nickname.to_owned(),
            fingerprint: fingerprint_base64(fingerprint)?,
            descriptor,
            or_ports: vec![SocketAddr::from((address, port.parse().ok()?))],
            ..Self::default()
        })
    }

    /// Reads a line about it, or says why it cannot be read.
    fn read(&mut self, keyword: &str, rest: &str) -> Result<(), String> {
        let bad = |what: &str| format!("{what} cannot be read");
        match keyword {
            "a" => self.or_ports.push(rest.parse().map_err(|_| bad("the address"))?),
            "s" => self.flags = Flags::parse(rest),
            "w" => self.read_weight(rest)?,
            // Votes have several digests in a line of another form, with a list of methods in
            // front.
            "m" if !rest.contains(' ') => {
                let digest = key_base64(rest).ok_or_else(|| bad("the digest"))?;
                self.microdescriptor = Some(digest);
            }
            "id" => self.ed25519 = ed25519_id(rest).map_err(|()| bad("the identity"))?,
            _ => {}
        }
        Ok(())
    }

    /// Takes over `Bandwidth=N` and `Unmeasured=1`.
    fn read_weight(&mut self, rest: &str) -> Result<(), String> {
        for (key, value) in words(rest).filter_map(|word| word.split_once('=')) {
            match key {
                "Bandwidth" => {
                    let weight = value.parse().map_err(|_| wrong_weight(value))?;
                    self.weight = Some(weight);
                }
                "Unmeasured" => self.is_unmeasured = value == "1",
                _ => {}
            }
        }
        Ok(())
    }
}

/// Says why a weight is not valid. Clients read it into 32 bits.
fn wrong_weight(value: &str) -> String {
    let value: String = value.chars().take(MOST_QUOTED).flat_map(char::escape_debug).collect();
    format!("the weight Bandwidth={value} is not a whole number from 0 to {}", u32::MAX)
}

/// Characters of a value that are quoted at most.
const MOST_QUOTED: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    /// A consensus with these entries.
    fn text(entries: &str) -> String {
        format!(
            "network-status-version 3\nvote-status consensus\nvalid-after 2019-07-14 00:00:00\n\
             fresh-until 2019-07-14 01:00:00\nvalid-until 2019-07-14 03:00:00\n\
             shared-rand-current-value 9 D6JVuHg2/A/55Us978mpE3ReEDRI4kgSAc4sTg2tDOU=\n{entries}\
             directory-footer\nbandwidth-weights Wbd=0\n"
        )
    }

    /// A relay of the ns flavour, and one of the microdesc flavour.
    const RELAYS: &str = "\
        r seele AAoQ1DAR6kkoo19hBAX5K0QztNw py8AEJA46MwVBm52k0zr1P5Trcg 2019-07-13 19:30:19 192.0.2.1 9001 0\n\
        a [2001:db8::7]:9001\ns Running Valid\nw Bandwidth=11 Unmeasured=1\n\
        r titan ABElTMhEQ2myDvERVriZBDgiGlQ 2022-11-18 21:31:58 192.0.2.2 443 0\n\
        m PSFWDSIK+sMS6+fkLrc7PSZ6L0Rkscbz2WcmKCDIdOQ\nw Bandwidth=38000\ns Exit Fast Guard HSDir Stable\n";

    #[test]
    fn both_flavours_are_read() {
        let consensus = Consensus::parse(&text(RELAYS)).expect("a consensus");
        assert_eq!(consensus.valid_after, "2019-07-14 00:00:00");
        assert_eq!(consensus.valid_after_unix_secs(), Some(1_563_062_400));
        assert_eq!(consensus.fresh_until_unix_secs(), Some(1_563_066_000));
        assert_eq!(consensus.valid_until_unix_secs(), Some(1_563_073_200));
        assert_eq!(consensus.shared_random.expect("a value")[..3], [0x0f, 0xa2, 0x55]);
        let [seele, titan] = &consensus.relays[..] else { panic!("{consensus:?}") };
        assert_eq!(hex::encode(seele.fingerprint), "000a10d43011ea4928a35f610405f92b4433b4dc");
        let or_ports: Vec<_> = seele.or_ports.iter().map(ToString::to_string).collect();
        assert_eq!(or_ports, ["192.0.2.1:9001", "[2001:db8::7]:9001"]);
        let flags = Flags { is_running: true, is_valid: true, ..Flags::default() };
        assert_eq!((seele.flags, seele.microdescriptor), (flags, None));
        assert!(titan.flags.is_guard && titan.flags.is_exit && !titan.flags.is_running);
        assert_eq!(titan.microdescriptor.expect("a digest")[..2], [0x3d, 0x21]);
        assert_eq!((seele.weight, seele.is_unmeasured), (Some(11), true));
        assert_eq!((titan.nickname.as_str(), titan.weight), ("titan", Some(38_000)));
    }

    #[test]
    fn errors_name_the_line() {
        let swapped: String =
            RELAYS.lines().skip(4).chain(RELAYS.lines().take(4)).flat_map(|l| [l, "\n"]).collect();
        for (bad, line, part) in [
            (text(&RELAYS.replace("192.0.2.2", "192.0.2")), 11, "the relay"),
            (text(&RELAYS.replace("443", "65536")), 11, "the relay"),
            (text(&RELAYS.replace("AAoQ", "AAo")), 7, "the relay"),
            (text(&RELAYS.replace("m PS", "m P")), 12, "the digest"),
            (text(&RELAYS.replace("=38000", "=-1")), 13, "the weight Bandwidth=-1 is not a whole"),
            (
                text(&RELAYS.replace("=38000", "=4294967296")),
                13,
                "the weight Bandwidth=4294967296 is not a whole number from 0 to 4294967295",
            ),
            (text(&RELAYS.replace("a [", "a ")), 8, "the address"),
            (text(&RELAYS.replace("a [", "id ed25519 xyz\na [")), 8, "the identity"),
            (text(&swapped), 11, "order"),
            (text(RELAYS).replace("9 D6", "9 D"), 6, "shared random"),
            (text(RELAYS).replace("directory-footer", "x"), 16, "footer"),
            (text(RELAYS).replace("status consensus", "status vote"), 1, "not a consensus"),
            (String::new(), 1, "not a consensus"),
        ] {
            let error = Consensus::parse(&bad).expect_err(part);
            assert!(
                error.line == line && error.reason.contains(part),
                "{error}, not {line} {part}"
            );
        }
    }
}
