//! What has been read of a consensus: its texts, addresses and weights, and the network that it
//! describes.

use std::net::IpAddr;

use ff_proto::units::BytesPerSec;

use super::{Consensus, ConsensusRelay, Text};
use crate::network::{self, CapacitySource, Network};

impl Consensus {
    /// A text of it: a relay's nickname or version.
    #[must_use]
    pub fn text(&self, text: Text) -> &str {
        let place = |index: u32| usize::try_from(index).unwrap_or(usize::MAX);
        self.texts.get(place(text.start)..place(text.end)).unwrap_or_default()
    }

    /// When it became valid, as it stands there: `2019-07-14 00:00:00`, in UTC.
    #[must_use]
    pub fn valid_after(&self) -> &str {
        self.text(self.valid_after)
    }

    /// The parameters of its header, as they stand there; empty if it does not have the line.
    #[must_use]
    pub fn params(&self) -> &str {
        self.text(self.params)
    }

    /// The bandwidth-weights of its footer, as they stand there; none if it does not have the line.
    pub fn bandwidth_weights(&self) -> impl ExactSizeIterator<Item = (&str, i32)> {
        self.weights.iter().map(|(key, value)| (self.text(*key), *value))
    }

    /// A relay's addresses, the IPv4 address of its line `r` first.
    pub fn addresses(&self, relay: &ConsensusRelay) -> impl Iterator<Item = IpAddr> {
        let place = |index: u32| usize::try_from(index).unwrap_or(usize::MAX);
        let (start, len) = (place(relay.others_start), place(relay.others_len));
        let others = self.others.get(start..start.saturating_add(len)).unwrap_or_default();
        std::iter::once(IpAddr::V4(relay.address)).chain(others.iter().copied())
    }

    /// The network that it describes, as [`Network::from`] has it from `ff_dir`'s reader: weights
    /// stand in for capacities where relays have been measured.
    #[must_use]
    pub fn to_network(&self) -> Network {
        Network {
            name: self.valid_after().to_owned(),
            unix_secs: Some(self.valid_after_unix_secs),
            capacities: CapacitySource::Weights,
            relays: self.relays.iter().map(|relay| self.network_relay(relay)).collect(),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "weights do not lie above 2^53")]
    fn network_relay(&self, relay: &ConsensusRelay) -> network::Relay {
        // A relay that is not measured, or has no weight, does not have a capacity that could be
        // derived from it.
        let measured = relay.bandwidth.filter(|weight| !relay.is_unmeasured && *weight > 0);
        network::Relay {
            fingerprint: relay.fingerprint,
            nickname: self.text(relay.nickname).to_owned(),
            addresses: self.addresses(relay).collect(),
            flags: relay.flags.into(),
            capacity: measured.map(|kilobytes| BytesPerSec::new(kilobytes.saturating_mul(1000))),
            weight: relay.bandwidth.map_or(0.0, |bandwidth| bandwidth as f64),
            is_unmeasured: relay.is_unmeasured,
            running: 1.0,
            ..network::Relay::default()
        }
    }
}
