//! What `measure --transit` takes.

use std::net::SocketAddr;
use std::time::Duration;

use base64ct::{Base64Unpadded, Encoding};
use clap::Args;
use ff_measurer::link::{LinkOptions, TargetAddr};
use ff_measurer::transit::{Direction, TransitOrder};
use ff_proto::ids::CryptoKind;
use ff_proto::params::Params;

use super::Measure;

/// Options of `measure --transit`.
#[derive(Args, Clone, Debug)]
pub struct TransitArgs {
    /// Measure a relay without FlashFlow: what of our own cells comes through its circuits.
    ///
    /// Cells of random content go to sinks of this process and back. Nothing is known of the relay's
    /// clients then, so the verdict is `lower_bound`, and there is no bandwidth file. --sockets, --ratio
    /// and --key mean nothing here; --rate is that of each way.
    #[arg(long, requires_all = ["onion_key", "sinks"])]
    pub transit: bool,
    /// The relay's key for circuits: `ntor-onion-key` in its descriptor.
    #[arg(long, value_name = "BASE64", requires = "transit", value_parser = parse_key)]
    pub onion_key: Option<[u8; 32]>,
    /// Where our sinks listen: addresses of this host that the relay can reach.
    #[arg(long, value_name = "IP:PORT,...", requires = "transit", value_delimiter = ',')]
    pub sinks: Vec<SocketAddr>,
    /// Links to the relay (1 to 90).
    ///
    /// A relay refuses those of an address that has 100 of them.
    #[arg(long, default_value_t = 20, value_name = "NUMBER",
          value_parser = clap::value_parser!(u16).range(1..=90))]
    pub links: u16,
    /// Circuits over all of them; by default two a link.
    #[arg(long, value_name = "NUMBER", requires = "transit",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub circuits: Option<u32>,
    /// The relay's operator has agreed; without it only private addresses are measured.
    #[arg(long, requires = "transit")]
    pub i_have_the_operators_consent: bool,
}

/// Circuits that are opened in a second at a relay with a public address: a relay takes more than two or
/// three a second from one address for an attack.
const PUBLIC_CIRCUITS_PER_SEC: u32 = 2;

impl Measure {
    /// The order for a relay at this address, if cells in transit are asked for.
    ///
    /// # Errors
    /// A text for people when they may not be sent.
    pub fn transit_order(&self, addr: SocketAddr) -> Result<Option<TransitOrder>, String> {
        let (args, common) = (&self.transit, &self.common);
        let Some(onion_key) = args.onion_key.filter(|_| args.transit) else { return Ok(None) };
        let crypto = *common.crypto.kinds().first().unwrap_or(&CryptoKind::CGO_AES128);
        let mut order = TransitOrder {
            target: TargetAddr { addr, ed_identity: self.ed_identity },
            onion_key,
            crypto,
            links: args.links,
            circuits: args.circuits.unwrap_or(2 * u32::from(args.links)),
            busy_circuits: u32::MAX,
            circuits_per_sec: None,
            sinks: args.sinks.clone(),
            direction: Direction::Both,
            rate: common.rate.0,
            duration: Duration::from_secs(common.duration.into()),
            cells_per_record: common.cells_per_record.into(),
            check_probability: Params::default().check_probability,
            cores: [Vec::new(), Vec::new()],
            link: LinkOptions::default(),
        };
        if order.circuits < order.links.into() {
            return Err(format!(
                "{} circuits are too few for {} links",
                order.circuits, order.links
            ));
        }
        if !order.is_private() {
            if !args.i_have_the_operators_consent {
                return Err(format!(
                    "{addr} is a public address: ask the relay's operator, then say so with \
                     --i-have-the-operators-consent"
                ));
            }
            order.circuits_per_sec = Some(PUBLIC_CIRCUITS_PER_SEC);
        }
        Ok(Some(order))
    }
}

/// Reads a key for circuits.
fn parse_key(text: &str) -> Result<[u8; 32], String> {
    let bytes = Base64Unpadded::decode_vec(text.trim().trim_end_matches('='));
    let bytes = bytes.ok().and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| "not a key: give the 43 base64 characters of ntor-onion-key".to_owned())
}
