//! The coordinator's session with the target over its link.

use std::time::{Duration, Instant};

use ed25519_dalek::SigningKey;
use ff_measurer::link;
use ff_measurer::link::control::{ControlError, ControlLink};
use ff_proto::cell::Cell;
use ff_proto::ids::MeasurementId;
use ff_proto::msg::{MeasParams, MeasParamsOk, MeasurerGrant};
use ff_proto::session::SessionFailure;
use ff_proto::session::coordinator::{BadRequest, CoordinatorEvent, CoordinatorLink};
use ff_proto::units::MonoTime;

use super::MeasurePlan;
use super::error::MeasureError;
use crate::team::TeamMember;

/// How long a relay's reason may arrive after its effect.
const REASON_TIMEOUT: Duration = Duration::from_millis(500);

/// The request to the target: `settle_secs` are added to the seconds that count.
fn request(plan: &MeasurePlan, measurement: MeasurementId, settle_secs: u16) -> MeasParams {
    let target = plan.target.addr;
    let grant = |member: &TeamMember| MeasurerGrant {
        id: member.measurer.id(),
        sockets: member.sockets,
        // So that the target's defence against floods lets its links pass. They come from an
        // address of the family that the target has.
        address: member
            .measurer
            .addresses()
            .into_iter()
            .find(|one| one.is_ipv4() == target.is_ipv4()),
    };
    MeasParams {
        measurement,
        duration_secs: plan.params.duration_secs.saturating_add(settle_secs),
        measurers: plan.team.iter().map(grant).collect(),
        crypto: plan.params.crypto.to_vec(),
    }
}

/// The session's beginning, and its first cells.
fn begin(
    mut request: MeasParams,
    key: &SigningKey,
    exporter: &[u8; 32],
    probe: &[u8; 20],
) -> Result<(CoordinatorLink, [Cell; 2]), BadRequest> {
    let new = |request| CoordinatorLink::new(request, key, exporter, probe, MonoTime::default());
    new(request.clone()).or_else(|_| {
        // Eight IPv6 addresses do not fit with eight measurers. They are optional.
        request.measurers.iter_mut().for_each(|measurer| measurer.address = None);
        new(request)
    })
}

/// The session with the target and its link.
pub(super) struct Session {
    /// The link.
    link: ControlLink,
    /// The protocol.
    state: CoordinatorLink,
    /// Zero of its clock.
    zero: Instant,
}

impl Session {
    /// Sends the request.
    pub(super) async fn ask(
        link: link::Link,
        plan: &MeasurePlan,
        settle_secs: u16,
    ) -> Result<Self, MeasureError> {
        let request = request(plan, MeasurementId(rand::random()), settle_secs);
        let mut link = ControlLink::new(link)?;
        let (zero, probe) = (Instant::now(), rand::random());
        let (state, cells) = begin(request, &plan.key, link.exporter(), &probe)?;
        link.send_cells(cells.as_flattened()).await?;
        Ok(Self { link, state, zero })
    }

    /// The next event; cancel-safe.
    pub(super) async fn next_event(&mut self) -> Result<CoordinatorEvent, MeasureError> {
        loop {
            let now = self.now();
            self.state.handle_timeout(now)?;
            let deadline = self.state.poll_timeout();
            let wait = deadline.map_or(Duration::from_secs(3600), |deadline| deadline.since(now));
            let Ok(cell) = tokio::time::timeout(wait, self.link.recv_cell()).await else {
                continue;
            };
            if let Some(event) = self.state.handle(cell?.as_cell(), self.now())? {
                return Ok(event);
            }
        }
    }

    /// Waits for MEAS_PARAMS_OK.
    pub(super) async fn wait_for_grant(&mut self) -> Result<MeasParamsOk, MeasureError> {
        loop {
            match self.next_event().await {
                Ok(CoordinatorEvent::Granted(grant)) => return Ok(grant),
                Ok(_) => {}
                Err(MeasureError::Control(ControlError::Closed { .. })) => {
                    return Err(MeasureError::ClosedOnRequest);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits while only a failure may come.
    pub(super) async fn watch_until_failure(&mut self) -> MeasureError {
        loop {
            match self.next_event().await {
                // It cannot come before the last report, and before the start there is none.
                Ok(CoordinatorEvent::Ended) => return SessionFailure::EndedEarly.into(),
                Ok(_) => {}
                Err(error) => return error,
            }
        }
    }

    /// The cause of a measurer's failure: the relay's message on this link at the same time, or the
    /// failure itself.
    pub(super) async fn reason_for(&mut self, failure: MeasureError) -> MeasureError {
        if self.is_reported() || !failure.may_be_a_consequence() {
            return failure;
        }
        let reason = tokio::time::timeout(REASON_TIMEOUT, self.watch_until_failure()).await;
        reason.unwrap_or(failure)
    }

    /// Notes when the measurers start.
    pub(super) fn start(&mut self, at: Instant) {
        self.state.start(at.saturating_duration_since(self.zero).into());
    }

    /// Whether every second has been reported.
    pub(super) fn is_reported(&self) -> bool {
        self.state.is_reported()
    }

    /// Says goodbye.
    pub(super) async fn finish(mut self, error: Option<&MeasureError>) {
        let cell = match error {
            // After its last report the relay ends by itself.
            None if self.state.is_reported() => None,
            None => Some(self.state.end()),
            Some(error) => Some(self.state.abort(error.kind().code())),
        };
        if let Some(cell) = cell {
            // The relay may be gone already, and there is nothing left to lose.
            let _ = self.link.send_cells(&cell).await;
        }
        self.link.close().await;
    }

    /// The time on the session's clock.
    fn now(&self) -> MonoTime {
        self.zero.elapsed().into()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};
    use std::sync::Arc;

    use ff_measurer::link::TargetAddr;
    use ff_measurer::{PartFailure, Task};
    use ff_proto::ids::Ed25519Id;
    use ff_proto::params::Params;

    use super::*;
    use crate::team::{ReadyPart, TeamMeasurer};

    /// A measurer at these addresses.
    struct At(Vec<IpAddr>);

    #[async_trait::async_trait]
    impl TeamMeasurer for At {
        fn name(&self) -> &str {
            "at"
        }

        fn id(&self) -> Ed25519Id {
            Ed25519Id([1; 32])
        }

        fn addresses(&self) -> Vec<IpAddr> {
            self.0.clone()
        }

        async fn prepare(&self, _task: &Task) -> Result<Box<dyn ReadyPart>, PartFailure> {
            unreachable!("nobody asks for it")
        }
    }

    #[test]
    fn measurers_are_announced_with_the_address_that_the_target_will_see() {
        let [four, six] = ["192.0.2.7", "2001:db8::7"].map(|text| text.parse().expect("one"));
        let team = [vec![six, four], vec![four], vec![]].map(|addresses| TeamMember {
            measurer: Arc::new(At(addresses)),
            sockets: 20,
            rate: None,
        });
        let announced = |target: &str| {
            let addr: SocketAddr = target.parse().expect("an address");
            let target = TargetAddr { addr, ed_identity: [3; 32].into() };
            let key = SigningKey::from_bytes(&[2; 32]);
            let plan = MeasurePlan::new(target, key, Params::default(), team.to_vec());
            let request = request(&plan, MeasurementId([0; 16]), 0);
            request.measurers.iter().map(|grant| grant.address).collect::<Vec<_>>()
        };
        assert_eq!(announced("198.51.100.1:9001"), [Some(four), Some(four), None]);
        assert_eq!(announced("[2001:db8::1]:9001"), [Some(six), None, None]);
    }

    #[test]
    fn addresses_that_do_not_fit_are_not_announced() {
        let grant = |address| MeasurerGrant { id: Ed25519Id([1; 32]), sockets: 20, address };
        let six: IpAddr = "2001:db8::7".parse().expect("one");
        let announced = |team: usize| {
            let measurers = (0..team)
                .map(|number| MeasurerGrant {
                    id: Ed25519Id([u8::try_from(number).expect("few"); 32]),
                    ..grant(Some(six))
                })
                .collect();
            let measurement = MeasurementId([0; 16]);
            let crypto = Params::default().crypto.to_vec();
            let request = MeasParams { measurement, duration_secs: 30, measurers, crypto };
            let (_, cells) = begin(request, &SigningKey::from_bytes(&[2; 32]), &[3; 32], &[4; 20])
                .expect("a request");
            let bytes = six.to_string().parse::<std::net::Ipv6Addr>().expect("one").octets();
            cells[0].windows(16).filter(|window| *window == bytes).count()
        };
        assert_eq!((announced(2), announced(8)), (2, 0));
    }
}
