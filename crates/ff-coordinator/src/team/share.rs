//! From the command line to parameters and a team: sockets, rate and cores shared out.

use std::sync::Arc;

use ed25519_dalek::SigningKey;
use ff_plan::period::links::{KnownPath, links_for};
use ff_proto::params::Params;
use ff_proto::units::BytesPerSec;

use super::{LocalMeasurer, TeamMember};
use crate::options::Common;

/// The parameters of a measurement over a path like this.
#[must_use]
pub fn params(common: &Common, path: &KnownPath) -> Params {
    Params {
        sockets: sockets(common, path),
        duration_secs: common.duration,
        ratio: common.ratio,
        cells_per_record: usize::from(common.cells_per_record),
        crypto: common.crypto.kinds(),
        ..Params::default()
    }
}

/// Links to the relay, which follow from the fastest one that the team's rate is enough for, and
/// from the path.
#[must_use]
pub fn sockets(common: &Common, path: &KnownPath) -> u16 {
    common.sockets.unwrap_or_else(|| {
        expected(common).map_or(Params::default().sockets, |expected| links_for(expected, path))
    })
}

/// The fastest relay that the team's rate is enough for; `None` where the number of sockets does
/// not follow from it.
#[must_use]
pub fn expected(common: &Common) -> Option<BytesPerSec> {
    let rate = common.rate.0.filter(|_| common.sockets.is_none())?;
    Some(rate.scale(1.0 / Params::default().excess_factor()))
}

/// Shares so many sockets, the rate and cores out among measurers with fresh keys.
#[must_use]
pub fn share_out(common: &Common, sockets: u16, measurers: u8, cores: &[usize]) -> Vec<TeamMember> {
    let count = u16::from(measurers).clamp(1, sockets);
    (0..count)
        .map(|index| TeamMember {
            measurer: Arc::new(LocalMeasurer::new(
                &index.to_string(),
                SigningKey::from_bytes(&rand::random()),
                share_of_cores(cores, usize::from(index), usize::from(count)),
            )),
            sockets: sockets / count + u16::from(index < sockets % count),
            rate: common.rate.0.map(|rate| rate.scale(1.0 / f64::from(count))),
        })
        .collect()
}

/// The cores of one measurer of several: every `count`th, and at least one.
fn share_of_cores(cores: &[usize], index: usize, count: usize) -> Vec<usize> {
    if cores.is_empty() {
        return Vec::new();
    }
    let share: Vec<_> = cores.iter().copied().skip(index).step_by(count).collect();
    if share.is_empty() { vec![cores[index % cores.len()]] } else { share }
}

/// The processor cores of this machine.
#[must_use]
pub fn cores() -> Vec<usize> {
    core_affinity::get_core_ids().unwrap_or_default().into_iter().map(|core| core.id).collect()
}
