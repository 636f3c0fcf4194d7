//! A consensus document, as far as FlashFlow needs it: parameters and relays.
//!
//! The relay's own directory client has checked its signatures.

use std::time::UNIX_EPOCH;

use tor_checkable::{ExternallySigned as _, Timebound as _};
use tor_netdoc::doc::netstatus::{MdConsensus, RelayWeight};

use super::ingress::Listings;
use crate::ingress::Listing;

/// The parameters: the text after `params`, or an empty one.
pub(super) fn params(document: &str) -> &str {
    let mut lines = document.lines().take_while(|line| !line.starts_with("r "));
    lines.find_map(|line| line.strip_prefix("params ")).unwrap_or_default()
}

/// The relays of a microdesc consensus.
///
/// # Errors
/// What tor-netdoc says about a document that it cannot read.
pub(super) fn listings(document: &str) -> Result<Listings, tor_netdoc::Error> {
    let (_, _, unchecked) = MdConsensus::parse(document)?;
    let consensus = unchecked.dangerously_assume_timely().dangerously_assume_wellsigned();
    let valid_after = consensus.lifetime().valid_after().duration_since(UNIX_EPOCH);
    let is_any_measured = consensus.relays().iter().any(|relay| relay.weight().is_measured());
    let relays = consensus.relays().iter().map(|relay| {
        let measured_bytes_per_sec = match relay.weight() {
            RelayWeight::Measured(kilobytes) => Some(u64::from(*kilobytes) * 1000),
            _ => None,
        };
        let listing = Listing {
            is_fast: relay.is_flagged_fast(),
            is_stable: relay.is_flagged_stable(),
            measured_bytes_per_sec,
            is_any_measured,
        };
        (relay.rsa_identity().to_bytes(), listing)
    });
    Ok(Listings {
        valid_after_secs: valid_after.map_or(0, |time| time.as_secs()),
        relays: relays.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A consensus with relays of these flags and `w` lines.
    fn consensus(relays: &[(&str, &str)]) -> String {
        let entries = relays.iter().enumerate().map(|(index, (flags, weight))| {
            format!(
                "r relay{index} {} 2026-11-30 11:00:00 192.0.2.{index} 9001 0\n\
                 m AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\ns {flags}\nv Tor 0.4.9.11\n\
                 pr Link=1-5\nw {weight}\n",
                id(index)
            )
        });
        let entries: String = entries.collect();
        format!(
            "network-status-version 3 microdesc\nvote-status consensus\nconsensus-method 33\n\
             valid-after 2026-11-30 12:00:00\nfresh-until 2026-11-30 13:00:00\n\
             valid-until 2026-11-30 15:00:00\nvoting-delay 300 300\nclient-versions \n\
             server-versions \nknown-flags Exit Fast Running Stable Valid\n\
             params FFIngressLimit=1 perconnbwrate=100000\n\
             dir-source auth F533C81CEF0BC0267857C99B2F471ADF249FA232 192.0.2.7 192.0.2.7 80 443\n\
             contact none\nvote-digest F533C81CEF0BC0267857C99B2F471ADF249FA232\n{entries}\
             directory-footer\nbandwidth-weights Wbd=0\n\
             directory-signature sha256 F533C81CEF0BC0267857C99B2F471ADF249FA232 \
             AB3348A2C13D478A0C4F404531CDF51C27381EBB\n-----BEGIN SIGNATURE-----\nAAAA\n\
             -----END SIGNATURE-----\n"
        )
    }

    /// The identity of a relay of [`consensus`], in base64.
    fn id(index: usize) -> String {
        // 26 letters of zero bits, and one with the last four.
        format!("{}{}", "A".repeat(26), ["A", "E", "I", "M"][index])
    }

    #[test]
    fn its_relays_have_flags_and_measured_weights() {
        let text = consensus(&[
            ("Fast Running Stable Valid", "Bandwidth=7"),
            ("Fast Running Valid", "Bandwidth=20 Unmeasured=1"),
            ("Running Valid", "Bandwidth=0"),
        ]);
        assert_eq!(params(&text), "FFIngressLimit=1 perconnbwrate=100000");
        let listings = listings(&text).unwrap();
        assert_eq!(listings.valid_after_secs, 1_796_040_000);
        let listing = |is_fast, is_stable, measured_bytes_per_sec| {
            Some(Listing { is_fast, is_stable, measured_bytes_per_sec, is_any_measured: true })
        };
        for (last, expected) in [
            (0, listing(true, true, Some(7000))),
            (1, listing(true, false, None)),
            (2, listing(false, false, Some(0))),
            (3, None),
        ] {
            let mut id = [0; 20];
            id[19] = last;
            assert_eq!(listings.relays.get(&id).copied(), expected, "{last}");
        }
    }

    #[test]
    fn without_a_measured_weight_that_is_said() {
        let listings = listings(&consensus(&[("Fast", "Bandwidth=7 Unmeasured=1")])).unwrap();
        assert!(listings.relays.values().all(|listing| !listing.is_any_measured));
    }

    #[test]
    fn what_is_no_consensus_has_no_parameters_and_is_refused() {
        for text in ["", "params", "r x\nparams a=1\n", "\0\u{fffd}"] {
            assert_eq!(params(text), "", "{text}");
            assert!(listings(text).is_err(), "{text}");
        }
    }
}
