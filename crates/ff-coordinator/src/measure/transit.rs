//! Measures a relay that has no extension, by cells in transit.
//!
//! Its own report is missing, so of its clients' traffic nothing is known: what came through is a
//! lower bound of its capacity, and never published as more.

use std::time::Instant;

use ff_base::utc::now_unix_secs;
use ff_measurer::transit::{Transit, TransitOrder, TransitSecond};
use ff_measurer::{START_LEAD, WorkerTotals};
use ff_plan::outcome::{
    Asked, CellCounts, CpuSeconds, Failure, MeasuredSeconds, Method, Outcome, SocketCounts,
    TargetInfo,
};
use ff_proto::aggregate::{Estimator, SecondSample, Verdict};
use ff_proto::units::{Cells, Ratio};

use super::error::MeasureError;
use crate::progress::Progress;

/// Sends the order's cells; runs on tokio. `watch` is told how it goes. `address_text` is how the
/// user wrote the relay's address.
pub async fn measure_transit(
    order: &TransitOrder,
    address_text: &str,
    mut watch: impl FnMut(Progress<'_>),
) -> Outcome {
    let started = now_unix_secs();
    let mut run = Run { order, seconds: Vec::new(), totals: None, opened: 0, cpu_micros: 0 };
    let result = run.carry_out(&mut watch).await;
    run.outcome(started, address_text, result)
}

/// A measurement that is going on.
struct Run<'a> {
    /// The order.
    order: &'a TransitOrder,
    /// The seconds of cells that came through.
    seconds: Vec<SecondSample>,
    /// The totals of both ends.
    totals: Option<Box<[WorkerTotals; 2]>>,
    /// Links that opened.
    opened: u64,
    /// CPU time of both ends in microseconds.
    cpu_micros: u64,
}

impl Run<'_> {
    /// Opens circuits and sends.
    async fn carry_out(
        &mut self,
        watch: &mut impl FnMut(Progress<'_>),
    ) -> Result<(), MeasureError> {
        watch(Progress::Step("opening circuits through the relay"));
        let mut transit = Transit::prepare(self.order).await?;
        self.opened = self.order.links.into();
        let (at, seconds) = (Instant::now() + START_LEAD, self.duration_secs());
        transit.start(at);
        watch(Progress::Started { at, seconds });
        let totals = transit.finish(|second| self.add(&second, watch)).await?;
        self.totals = Some(totals);
        Ok(())
    }

    /// Seconds of the order.
    fn duration_secs(&self) -> u16 {
        u16::try_from(self.order.duration.as_secs()).unwrap_or(u16::MAX)
    }

    /// Adds a second and shows it.
    fn add(&mut self, second: &TransitSecond, watch: &mut impl FnMut(Progress<'_>)) {
        let measurement_bytes = Cells(second.forward_cells + second.backward_cells).bytes();
        self.seconds.push(SecondSample { measurement_bytes, ..SecondSample::default() });
        self.cpu_micros += second.cpu_micros;
        watch(Progress::Second {
            second: second.second,
            of: self.duration_secs(),
            measurement_bytes,
            background_bytes: None,
            round_trip_p50_micros: 0,
            measurers_cpu_micros: second.cpu_micros,
        });
    }

    /// Makes the outcome.
    #[expect(clippy::cast_precision_loss, reason = "CPU time lies far below 2^53 microseconds")]
    fn outcome(
        self,
        started_unix_secs: u64,
        address_text: &str,
        result: Result<(), MeasureError>,
    ) -> Outcome {
        let estimator = Estimator::default();
        let estimate = estimator.estimate(&self.seconds, Ratio::ZERO);
        let estimate = estimate.filter(|estimate| estimate.get() > 0);
        let found = result
            .and_then(|()| estimate.ok_or(MeasureError::NothingCameThrough))
            .map(|estimate| (estimate, Verdict::LowerBound))
            .map_err(Failure::from);
        let ends = self.totals.iter().flat_map(|ends| ends.iter());
        let cells = ends.fold(CellCounts::default(), |sum, end| CellCounts {
            sent: sum.sent + end.sent_cells,
            echoed: sum.echoed + end.echoed_cells,
            checked: sum.checked + end.checked_cells,
            bad: 0,
        });
        let is_bad_cell = found.as_ref().is_err_and(|failure| super::is_about_a_cell(failure.kind));
        let asked = Asked {
            target: TargetInfo {
                address: address_text.to_owned(),
                ed_identity: self.order.target.ed_identity.into(),
                rsa_fingerprint: None,
                nickname: None,
            },
            started_unix_secs,
            method: Method::Transit,
            asked_secs: self.duration_secs(),
            ratio: Ratio::ZERO,
            estimator,
            allocated: self.order.rate,
        };
        let measured = MeasuredSeconds { seconds: self.seconds, ..MeasuredSeconds::default() };
        Outcome {
            crypto: Some(self.order.crypto),
            cells: CellCounts { bad: is_bad_cell.into(), ..cells },
            cpu: CpuSeconds { measurers: self.cpu_micros as f64 / 1e6, target: None },
            sockets: SocketCounts { asked: self.order.links.into(), opened: self.opened },
            ..Outcome::of(asked, measured, found)
        }
    }
}
