//! A consensus, of either flavour (dir-spec 3.4.1).

use std::net::{IpAddr, SocketAddr};

use base64ct::{Base64, Encoding};
use time::{Date, Month};

use super::{DocumentError, fingerprint_base64, keyword, lines, words};
use crate::period::Fingerprint;

/// What is read of a consensus.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consensus {
    /// When it became valid: `2019-07-14 00:00:00`, in UTC.
    pub valid_after: String,
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
    /// Where it listens.
    pub addresses: Vec<IpAddr>,
    /// Its weight: kilobytes a second, or what authorities make of it.
    pub weight: Option<u32>,
    /// Whether too few authorities have measured it.
    pub is_unmeasured: bool,
}

impl Consensus {
    /// Reads a consensus. Relays must be in the order of their fingerprints, as they are in every
    /// consensus, and so none can be listed twice.
    ///
    /// # Errors
    /// [`DocumentError`] for what is no consensus, is cut, or has a line that cannot be read.
    pub fn parse(text: &str) -> Result<Self, DocumentError> {
        let mut consensus = Self::default();
        let (mut is_consensus, mut is_whole, mut last) = (false, false, 0);
        for (number, line) in lines(text) {
            last = number;
            let (keyword, rest) = keyword(line);
            let bad = |what: &str| DocumentError::new(number, format!("{what} cannot be read"));
            match keyword {
                "vote-status" => is_consensus = rest == "consensus",
                "valid-after" => rest.clone_into(&mut consensus.valid_after),
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
                "a" => {
                    let address: SocketAddr = rest.parse().map_err(|_| bad("the address"))?;
                    if let Some(relay) = consensus.relays.last_mut() {
                        relay.addresses.push(address.ip());
                    }
                }
                "w" => {
                    if let Some(relay) = consensus.relays.last_mut() {
                        relay.read_weight(rest).ok_or_else(|| bad("the weight"))?;
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
            return Err(DocumentError::new(1, "this is no consensus"));
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
        let numbers: Option<Vec<u32>> =
            self.valid_after.split(['-', ' ', ':']).map(|number| number.parse().ok()).collect();
        let [year, month, day, hour, minute, second] = numbers?.try_into().ok()?;
        let small = |number: u32| u8::try_from(number).ok();
        let month = Month::try_from(small(month)?).ok()?;
        let date = Date::from_calendar_date(i32::try_from(year).ok()?, month, small(day)?).ok()?;
        let time = date.with_hms(small(hour)?, small(minute)?, small(second)?).ok()?;
        u64::try_from(time.assume_utc().unix_timestamp()).ok()
    }
}

/// The value of `shared-rand-current-value N base64`.
fn random(rest: &str) -> Option<[u8; 32]> {
    let value = rest.split_once(' ')?.1;
    Base64::decode_vec(value).ok()?.try_into().ok()
}

impl Entry {
    /// What stands behind `r`; the flavours differ in the middle.
    fn parse(rest: &str) -> Option<Self> {
        let mut words = words(rest);
        let (nickname, fingerprint) = (words.next()?, words.next()?);
        let address: IpAddr = words.nth_back(2)?.parse().ok()?;
        Some(Self {
            nickname: nickname.to_owned(),
            fingerprint: fingerprint_base64(fingerprint)?,
            addresses: vec![address],
            ..Self::default()
        })
    }

    /// Takes over `Bandwidth=N` and `Unmeasured=1`.
    fn read_weight(&mut self, rest: &str) -> Option<()> {
        for (key, value) in words(rest).filter_map(|word| word.split_once('=')) {
            match key {
                "Bandwidth" => self.weight = Some(value.parse().ok()?),
                "Unmeasured" => self.is_unmeasured = value == "1",
                _ => {}
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A consensus with these entries.
    fn text(entries: &str) -> String {
        format!(
            "network-status-version 3\nvote-status consensus\nvalid-after 2019-07-14 00:00:00\n\
             shared-rand-current-value 9 D6JVuHg2/A/55Us978mpE3ReEDRI4kgSAc4sTg2tDOU=\n{entries}\
             directory-footer\nbandwidth-weights Wbd=0\n"
        )
    }

    /// A relay of the ns flavour, and one of the microdesc flavour.
    const RELAYS: &str = "\
        r seele AAoQ1DAR6kkoo19hBAX5K0QztNw py8AEJA46MwVBm52k0zr1P5Trcg 2019-07-13 19:30:19 192.0.2.1 9001 0\n\
        a [2001:db8::7]:9001\ns Running Valid\nw Bandwidth=11 Unmeasured=1\n\
        r titan ABElTMhEQ2myDvERVriZBDgiGlQ 2022-11-18 21:31:58 192.0.2.2 443 0\nw Bandwidth=38000\n";

    #[test]
    fn both_flavours_are_read() {
        let consensus = Consensus::parse(&text(RELAYS)).expect("a consensus");
        assert_eq!(consensus.valid_after, "2019-07-14 00:00:00");
        assert_eq!(consensus.valid_after_unix_secs(), Some(1_563_062_400));
        for odd in
            ["", "2019-07-14", "2019-02-30 00:00:00", "2019-07-14 24:00:00", "2019-07-14 0:0:0:0"]
        {
            let odd = Consensus { valid_after: odd.to_owned(), ..Consensus::default() };
            assert_eq!(odd.valid_after_unix_secs(), None, "{odd:?}");
        }
        assert_eq!(consensus.shared_random.expect("a value")[..3], [0x0f, 0xa2, 0x55]);
        let [seele, titan] = &consensus.relays[..] else { panic!("{consensus:?}") };
        assert_eq!(hex::encode(seele.fingerprint), "000a10d43011ea4928a35f610405f92b4433b4dc");
        let addresses: Vec<_> = seele.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["192.0.2.1", "2001:db8::7"]);
        assert_eq!((seele.weight, seele.is_unmeasured), (Some(11), true));
        assert_eq!((titan.nickname.as_str(), titan.weight), ("titan", Some(38_000)));
    }

    #[test]
    fn errors_name_the_line() {
        let swapped: String =
            RELAYS.lines().skip(4).chain(RELAYS.lines().take(4)).flat_map(|l| [l, "\n"]).collect();
        for (bad, line, part) in [
            (text(&RELAYS.replace("192.0.2.2", "192.0.2")), 9, "the relay"),
            (text(&RELAYS.replace("AAoQ", "AAo")), 5, "the relay"),
            (text(&RELAYS.replace("=38000", "=-1")), 10, "the weight"),
            (text(&RELAYS.replace("=38000", "=4294967296")), 10, "the weight"),
            (text(&RELAYS.replace("a [", "a ")), 6, "the address"),
            (text(&swapped), 7, "order"),
            (text(RELAYS).replace("9 D6", "9 D"), 4, "shared random"),
            (text(RELAYS).replace("directory-footer", "x"), 12, "footer"),
            (text(RELAYS).replace("status consensus", "status vote"), 1, "no consensus"),
            (String::new(), 1, "no consensus"),
        ] {
            let error = Consensus::parse(&bad).expect_err(part);
            assert!(
                error.line == line && error.reason.contains(part),
                "{error}, not {line} {part}"
            );
        }
    }
}
