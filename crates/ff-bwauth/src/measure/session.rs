//! The coordinator's session with the target over its link.

use std::time::{Duration, Instant};

use ff_measurer::link;
use ff_measurer::link::control::{ControlError, ControlLink};
use ff_proto::cell::CellRef;
use ff_proto::ids::MeasurementId;
use ff_proto::msg::{MeasParams, MeasParamsOk, MeasurerGrant};
use ff_proto::session::SessionFailure;
use ff_proto::session::coordinator::{CoordinatorEvent, CoordinatorLink};
use ff_proto::units::MonoTime;

use super::Plan;
use super::error::MeasureError;

/// How long a relay's reason may take to arrive behind what it has caused.
const REASON_TIMEOUT: Duration = Duration::from_millis(500);

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
    pub(super) async fn ask(link: link::Link, plan: &Plan) -> Result<Self, MeasureError> {
        let measurers = plan.team.iter().map(|member| MeasurerGrant {
            id: member.measurer.id(),
            sockets: member.sockets,
            address: None,
        });
        let request = MeasParams {
            measurement: MeasurementId(rand::random()),
            duration_secs: plan.params.duration_secs,
            measurers: measurers.collect(),
            crypto: plan.params.crypto.to_vec(),
        };
        let mut link = ControlLink::new(link)?;
        let (zero, probe) = (Instant::now(), rand::random());
        let (state, cells) =
            CoordinatorLink::new(request, &plan.key, link.exporter(), &probe, MonoTime::default())?;
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
            let cell = cell?;
            let cell = CellRef {
                circ_id: cell.circ_id,
                command: cell.command,
                body: &cell.body,
                wire_len: 0,
            };
            if let Some(event) = self.state.handle(cell, self.now())? {
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

    /// What a measurer's failure is a consequence of: what the relay says on this link at the same
    /// time, or the failure itself.
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
