//! Options of `measure`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::error::ErrorKind;
use ff_base::identity::key_base64;
use ff_coordinator::options::Common;
use ff_measurer::link::TargetAddr;
use ff_measurer::transit::TransitOrder;
use tor_llcrypto::pk::ed25519::Ed25519Identity;

use super::conflict::Conflict;
use super::transit::TransitArgs;

/// Options of `measure`.
#[derive(Args, Clone, Debug)]
pub struct Measure {
    /// The relay's ORPort. If the name has several addresses, the first that accepts a connection
    /// is measured.
    #[arg(long, value_name = "HOST:PORT")]
    pub target: String,
    /// The relay's Ed25519 identity, 43 base64 characters: `fingerprint-ed25519` in its data
    /// directory.
    #[arg(long, value_name = "BASE64", value_parser = parse_identity)]
    pub ed_identity: Ed25519Identity,
    /// The relay's RSA fingerprint from the consensus: 40 hexadecimal digits.
    ///
    /// The bandwidth file names relays by it, and the Ed25519 identity does not prove it. A relay
    /// with another fingerprint is not measured. Default: the fingerprint that the relay shows on
    /// the link.
    #[arg(long, value_name = "HEX", value_parser = parse_fingerprint)]
    pub fingerprint: Option<Fingerprint>,
    /// The file of the coordinator's key; created with a new key if missing.
    ///
    /// The relay must list the key's identity in FFAllowedCoordinators.
    #[arg(long, value_name = "FILE", default_value = "ff-coordinator.key")]
    pub key: PathBuf,
    /// What both ways have.
    #[command(flatten)]
    pub common: Common,
    /// Number of measurers (1 to 8), which share the cores of this machine.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub measurers: u8,
    /// How long a link to the relay may take to open, in seconds (1 to 120).
    #[arg(long, default_value_t = 20, value_name = "SECONDS",
          value_parser = clap::value_parser!(u16).range(1..=120))]
    pub timeout: u16,
    /// What only cells in transit need.
    #[command(flatten)]
    pub transit: TransitArgs,
}

impl Measure {
    /// Rejects options that contradict `--transit`.
    pub(super) fn check(&self) -> Result<(), Conflict> {
        if self.transit.transit && self.common.crypto.kinds().len() > 1 {
            let text =
                "with --transit the measurer chooses the cipher: --crypto must be cgo or aes-ctr";
            return Err(Conflict { kind: ErrorKind::ArgumentConflict, text });
        }
        Ok(())
    }

    /// The order for a relay at this address, if the options ask for cells in transit.
    #[must_use]
    pub fn transit_order(&self, addr: SocketAddr) -> Option<TransitOrder> {
        let (args, common) = (&self.transit, &self.common);
        let onion_key = args.onion_key.filter(|_| args.transit)?;
        let target = TargetAddr { addr, ed_identity: self.ed_identity };
        Some(TransitOrder {
            crypto: *common.crypto.kinds().first()?,
            links: args.links,
            circuits: args.circuits.unwrap_or(TransitOrder::circuits_for(args.links)),
            has_consent: args.i_have_the_operators_consent,
            rate: common.rate.0,
            duration: Duration::from_secs(common.duration.into()),
            cells_per_record: common.cells_per_record.into(),
            ..TransitOrder::new(target, onion_key, args.sinks.clone())
        })
    }
}

/// An RSA fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 20]);

/// Reads an RSA fingerprint, with or without the `$` and the blanks that tor writes.
fn parse_fingerprint(text: &str) -> Result<Fingerprint, String> {
    let digits: String = text.chars().filter(|&c| c != ' ').collect();
    let mut bytes = [0; 20];
    hex::decode_to_slice(digits.trim_start_matches('$'), &mut bytes)
        .map_err(|_| "not a fingerprint: give 40 hexadecimal digits".to_owned())?;
    Ok(Fingerprint(bytes))
}

/// Reads an Ed25519 identity.
fn parse_identity(text: &str) -> Result<Ed25519Identity, String> {
    key_base64(text.trim()).map(Ed25519Identity::from).ok_or_else(|| {
        "not an Ed25519 identity: give the 43 base64 characters from the file fingerprint-ed25519 in the relay's data \
         directory"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_read_as_tor_writes_it() {
        let expected = Ok(Fingerprint([0xAB; 20]));
        let spaced = ["ABAB"; 10].join(" ");
        for text in ["ab".repeat(20), format!("${}", "AB".repeat(20)), spaced] {
            assert_eq!(parse_fingerprint(&text), expected, "{text}");
        }
        for text in ["", "AB", &"AB".repeat(21), &"AG".repeat(20)] {
            assert!(parse_fingerprint(text).is_err(), "{text}");
        }
    }
}
