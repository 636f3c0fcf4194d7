//! Measures one relay: the coordinator's driver, with measurers in this process.
//!
//! ```text
//!   link to the target ──▶ MEAS_PARAMS ──▶ granted ──▶ measurers prepare ──▶ start together
//!        │ MEAS_BG, one a second                            │ their seconds
//!        └────────────────────▶ Samples ◀───────────────────┘
//!                                  └─▶ aggregate::estimate, judge ──▶ Outcome
//! ```
//!
//! Whatever goes wrong becomes the outcome's failure; nothing is published from it.

use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ed25519_dalek::SigningKey;
use ff_measurer::link::control::{ControlError, ControlLink};
use ff_measurer::link::{self, LinkError, LinkOptions, TargetAddr};
use ff_measurer::{
    LinkFailure, Measurer, MeasurerError, MeasurerEvent, Order, START_LEAD, measurer_id,
};
use ff_proto::aggregate::{self, Verdict};
use ff_proto::cell::CellRef;
use ff_proto::msg::{CryptoKind, MeasParams, MeasParamsOk, MeasurementId, MeasurerGrant};
use ff_proto::params::Params;
use ff_proto::session::SessionFailure;
use ff_proto::session::coordinator::{CoordinatorEvent, CoordinatorLink};
use ff_proto::units::{BytesPerSec, MonoTime};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::outcome::{CpuSeconds, Failure, Outcome, SocketCounts, TargetInfo};
use crate::samples::Samples;

/// How long the team may take to open its links: longer than the grant waits is in vain.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(30);

/// What to measure, and with what.
#[derive(Clone)]
pub struct Plan {
    /// The relay.
    pub target: TargetAddr,
    /// How its user wrote the address.
    pub address_text: String,
    /// The coordinator's key, which the relay must allow.
    pub key: SigningKey,
    /// The measurement's parameters.
    pub params: Params,
    /// The team.
    pub team: Vec<TeamMember>,
    /// The relay's known limit, if it has one.
    pub limit: Option<BytesPerSec>,
    /// Whether the relay is on this machine, so that only processors lie between it and the team.
    /// Elsewhere a team whose capacity is not told by its rates may itself be what is measured.
    pub is_local: bool,
    /// How to open links, the coordinator's and the measurers'.
    pub link: LinkOptions,
}

/// One measurer of the team.
#[derive(Clone)]
pub struct TeamMember {
    /// Its key.
    pub key: SigningKey,
    /// Its share of the sockets.
    pub sockets: u16,
    /// Its share of the rate.
    pub rate: Option<BytesPerSec>,
    /// The cores it runs on.
    pub cores: Vec<usize>,
}

/// What the user may watch.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// Something is being done.
    Step(&'a str),
    /// A second is full, of so many.
    Second {
        /// From 0.
        second: u16,
        /// Of how many.
        of: u16,
        /// Echo bytes in it.
        measurement_bytes: u64,
        /// Background bytes counted in it; `None` when the relay's report has not come yet.
        background_bytes: Option<u64>,
        /// Median round trip in it, in microseconds; 0 without a checked cell.
        round_trip_p50_micros: u64,
        /// CPU time of the measurers' threads in it, in microseconds.
        measurers_cpu_micros: u64,
    },
}

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
enum MeasureError {
    /// The link to the target did not open.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// It broke.
    #[error("the link to the relay broke: {0}")]
    Control(#[from] ControlError),
    /// The session failed.
    #[error(transparent)]
    Session(#[from] SessionFailure),
    /// The relay closed the link instead of answering, as Arti relays do on an unknown cell.
    #[error(
        "the relay closed the link on the measurement request: it does not support FlashFlow, \
         or it is shutting down"
    )]
    ClosedOnRequest,
    /// A measurer failed.
    #[error("measurer {index} failed")]
    Measurer {
        /// Which.
        index: usize,
        /// How.
        source: MeasurerError,
    },
    /// The measurers counted nothing.
    #[error("no second was measured")]
    NoSeconds,
    /// The relay answered and did not echo.
    #[error("the relay echoed nothing in most seconds")]
    NoEcho,
    /// The plan cannot be carried out.
    #[error("{0}")]
    Plan(String),
}

impl MeasureError {
    /// A stable name.
    fn code(&self) -> &'static str {
        match self {
            Self::Link(error) => link_code(error),
            Self::Control(_) => "coordinator_link_lost",
            Self::ClosedOnRequest => "not_supported",
            Self::Session(failure) => failure.code(),
            // A team that cannot reach the relay at all has the reason of its links.
            Self::Measurer {
                source: MeasurerError::TooFewLinks { opened: 0, source, .. }, ..
            } => match source.as_ref() {
                LinkFailure::Open(error) => link_code(error),
                _ => "too_few_links",
            },
            Self::Measurer { source, .. } => source.code(),
            Self::NoSeconds => "no_seconds",
            Self::NoEcho => "no_echo",
            Self::Plan(_) => "bad_plan",
        }
    }
}

/// A stable name for a link that did not open.
fn link_code(error: &LinkError) -> &'static str {
    match error {
        LinkError::Refused { .. } => "connection_refused",
        LinkError::Unreachable { .. } => "unreachable",
        LinkError::ConnectTimeout { .. } | LinkError::HandshakeTimeout { .. } => "timeout",
        LinkError::NotTls { .. } => "not_tls",
        LinkError::NotTor { .. } => "not_tor",
        LinkError::WrongIdentity { .. } => "wrong_identity",
        LinkError::BadCertificates { .. } | LinkError::CertificatesExpired { .. } => {
            "bad_certificates"
        }
        _ => "link_failed",
    }
}

/// Measures the relay; runs on tokio. `watch` is told how it goes.
pub async fn measure(plan: &Plan, mut watch: impl FnMut(Progress<'_>)) -> Outcome {
    let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let mut run = Run {
        plan,
        samples: Samples::new(plan.params.duration_secs, plan.params.ratio, plan.team.len()),
        zero: Instant::now(),
        rsa_fingerprint: None,
        crypto: None,
        opened: 0,
    };
    let result = run.carry_out(&mut watch).await;
    run.outcome(started, result)
}

/// A measurement that is going on.
struct Run<'a> {
    /// What was asked for.
    plan: &'a Plan,
    /// What was counted.
    samples: Samples,
    /// Zero of the session's clock.
    zero: Instant,
    /// What the relay's links showed.
    rsa_fingerprint: Option<[u8; 20]>,
    /// The cipher that the relay granted.
    crypto: Option<CryptoKind>,
    /// Links that opened.
    opened: u64,
}

impl Run<'_> {
    /// Asks, prepares, runs and ends.
    async fn carry_out(
        &mut self,
        watch: &mut impl FnMut(Progress<'_>),
    ) -> Result<(), MeasureError> {
        self.plan.params.validate().map_err(|error| MeasureError::Plan(error.to_string()))?;
        watch(Progress::Step("connecting to the relay"));
        let link = link::open(&self.plan.target, &self.plan.link).await?;
        self.rsa_fingerprint = link.rsa_identity.and_then(|id| id.as_bytes().try_into().ok());
        let mut session = Session::ask(link, self.plan, self.zero).await?;
        let result = self.run_team(&mut session, watch).await;
        session.finish(result.as_ref().err()).await;
        result
    }

    /// Has the team measure.
    async fn run_team(
        &mut self,
        session: &mut Session,
        watch: &mut impl FnMut(Progress<'_>),
    ) -> Result<(), MeasureError> {
        let grant = session.wait_for_grant().await?;
        self.samples.set_grant(grant.duration_secs, grant.ratio);
        self.crypto = Some(grant.crypto);
        watch(Progress::Step("granted; opening the measurement links"));
        let orders = orders(self.plan, &grant);
        let team = tokio::select! {
            team = tokio::time::timeout(PREPARE_TIMEOUT, prepare(&orders)) => {
                team.map_err(|_| SessionFailure::Timeout("the measurement links' handshakes"))??
            }
            // Nothing may come from the relay now, so whatever comes is the reason to stop.
            error = session.watch_until_failure() => return Err(error),
        };
        self.opened = team.iter().map(|measurer| u64::from(measurer.opened())).sum();
        watch(Progress::Step("measuring"));
        let start = Instant::now() + START_LEAD;
        for measurer in &team {
            measurer.start(start);
        }
        session.start();
        let (events, _tasks) = forward_events(team);
        self.collect(session, events, watch).await
    }

    /// Collects seconds until all measurers are done and all reports have come.
    async fn collect(
        &mut self,
        session: &mut Session,
        mut events: mpsc::UnboundedReceiver<(usize, MeasurerEvent)>,
        watch: &mut impl FnMut(Progress<'_>),
    ) -> Result<(), MeasureError> {
        let mut running = self.plan.team.len();
        let mut ended = false;
        loop {
            // A relay that has reported everything may close its link before our last second.
            let reporting = !(session.is_reported() || ended);
            if running == 0 && !reporting {
                break;
            }
            tokio::select! {
                Some((index, event)) = events.recv() => match event {
                    MeasurerEvent::Second(report) => {
                        self.samples.add_measurement(&report);
                        self.samples.show_full_seconds(watch);
                    }
                    MeasurerEvent::Done(totals) => {
                        self.samples.add_totals(&totals);
                        running -= 1;
                    }
                    MeasurerEvent::Failed(source) => {
                        return Err(MeasureError::Measurer { index, source });
                    }
                    _ => {}
                },
                event = session.next_event(), if reporting => match event? {
                    CoordinatorEvent::Background(report) => {
                        self.samples.add_background(&report);
                        self.samples.show_full_seconds(watch);
                    }
                    CoordinatorEvent::Ended => ended = true,
                    _ => {}
                },
            }
        }
        self.samples.show_rest(watch);
        Ok(())
    }

    /// Makes the outcome.
    fn outcome(self, started_unix_secs: u64, result: Result<(), MeasureError>) -> Outcome {
        let Plan { params, team, limit, target, address_text, .. } = self.plan;
        let (seconds, ratio) = (self.samples.seconds(), self.samples.ratio());
        let allocated = team.iter().map(|member| member.rate).sum::<Option<BytesPerSec>>();
        let estimate = aggregate::estimate(&seconds, ratio);
        let result = match (result, estimate) {
            (Err(error), _) => Err(failure(error)),
            (Ok(()), None) => Err(failure(MeasureError::NoSeconds)),
            (Ok(()), Some(estimate)) if estimate.get() == 0 => Err(failure(MeasureError::NoEcho)),
            (Ok(()), Some(estimate)) => {
                let limited = self.samples.is_measurer_limited();
                let unknown = allocated.is_none() && !self.plan.is_local;
                Ok(match aggregate::judge(estimate, allocated, limited, params) {
                    Verdict::Conclusive if unknown => Verdict::NeedsMoreCapacity,
                    verdict => verdict,
                })
            }
        };
        let asked = team.iter().map(|member| u64::from(member.sockets)).sum();
        Outcome {
            target: TargetInfo {
                address: address_text.clone(),
                ed_identity: target.ed_identity.into(),
                rsa_fingerprint: self.rsa_fingerprint,
                nickname: None,
            },
            started_unix_secs,
            ratio,
            crypto: self.crypto,
            allocated,
            estimate: estimate.filter(|_| result.is_ok()),
            limit: *limit,
            cells: self.samples.cells(is_bad_cell(&result)),
            round_trip: self.samples.round_trip(),
            cpu: CpuSeconds { measurers: self.samples.cpu_seconds(), target: None },
            sockets: SocketCounts { asked, opened: self.opened },
            seconds,
            result,
        }
    }
}

/// Whether the failure was a checked cell.
fn is_bad_cell<T>(result: &Result<T, Failure>) -> bool {
    result.as_ref().is_err_and(|failure| {
        matches!(failure.code.as_str(), "wrong_content" | "out_of_order" | "more_cells_than_sent")
    })
}

/// Makes a failure whose message holds the error and all its causes.
fn failure(error: MeasureError) -> Failure {
    let code = error.code().to_owned();
    Failure { code, message: format!("{:#}", anyhow::Error::from(error)) }
}

/// What each measurer is to do.
fn orders(plan: &Plan, grant: &MeasParamsOk) -> Vec<Order> {
    let order = |member: &TeamMember| Order {
        measurement: grant.measurement,
        target: plan.target,
        key: member.key.clone(),
        sockets: member.sockets,
        rate: member.rate,
        duration: Duration::from_secs(u64::from(grant.duration_secs)),
        cells_per_record: plan.params.cells_per_record,
        crypto: grant.crypto,
        check_probability: plan.params.check_probability,
        cores: member.cores.clone(),
        link: plan.link.clone(),
    };
    plan.team.iter().map(order).collect()
}

/// Prepares all measurers at once; the first that fails ends it.
async fn prepare(orders: &[Order]) -> Result<Vec<Measurer>, MeasureError> {
    let preparing = orders.iter().enumerate().map(|(index, order)| async move {
        let prepared = Measurer::prepare(order).await;
        prepared.map_err(|source| MeasureError::Measurer { index, source })
    });
    futures::future::try_join_all(preparing).await
}

/// Brings all measurers' events together. The measurers stop when the tasks are dropped.
fn forward_events(
    team: Vec<Measurer>,
) -> (mpsc::UnboundedReceiver<(usize, MeasurerEvent)>, JoinSet<()>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    for (index, mut measurer) in team.into_iter().enumerate() {
        let sender = sender.clone();
        tasks.spawn(async move {
            loop {
                let event = measurer.next_event().await;
                let is_last = !matches!(event, MeasurerEvent::Second(_));
                if sender.send((index, event)).is_err() || is_last {
                    return;
                }
            }
        });
    }
    (receiver, tasks)
}

/// The session with the target and its link.
struct Session {
    /// The link.
    link: ControlLink,
    /// The protocol.
    state: CoordinatorLink,
    /// Zero of its clock.
    zero: Instant,
}

impl Session {
    /// Sends the request.
    async fn ask(link: link::Link, plan: &Plan, zero: Instant) -> Result<Self, MeasureError> {
        let request = MeasParams {
            measurement: MeasurementId(rand::random()),
            duration_secs: plan.params.duration_secs,
            measurers: plan
                .team
                .iter()
                .map(|member| MeasurerGrant {
                    id: measurer_id(&member.key),
                    sockets: member.sockets,
                    address: None,
                })
                .collect(),
            crypto: plan.params.crypto.to_vec(),
        };
        let mut link = ControlLink::new(link)?;
        let (now, probe) = (MonoTime::from(zero.elapsed()), rand::random());
        let (state, cells) = CoordinatorLink::new(request, &plan.key, link.exporter(), &probe, now)
            .map_err(|error| MeasureError::Plan(format!("the team is too large: {error}")))?;
        link.send_cells(cells.as_flattened()).await?;
        Ok(Self { link, state, zero })
    }

    /// The next event; cancel-safe.
    async fn next_event(&mut self) -> Result<CoordinatorEvent, MeasureError> {
        loop {
            let now = MonoTime::from(self.zero.elapsed());
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
            if let Some(event) = self.state.handle(cell)? {
                return Ok(event);
            }
        }
    }

    /// Waits for MEAS_PARAMS_OK.
    async fn wait_for_grant(&mut self) -> Result<MeasParamsOk, MeasureError> {
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
    async fn watch_until_failure(&mut self) -> MeasureError {
        loop {
            match self.next_event().await {
                Ok(CoordinatorEvent::Ended) => {
                    return MeasureError::Control(ControlError::Closed { peer: self.link.peer() });
                }
                Ok(_) => {}
                Err(error) => return error,
            }
        }
    }

    /// Notes that the measurers start.
    fn start(&mut self) {
        self.state.start(self.zero.elapsed().into());
    }

    /// Whether every second has been reported.
    fn is_reported(&self) -> bool {
        self.state.is_reported()
    }

    /// Says goodbye.
    async fn finish(mut self, error: Option<&MeasureError>) {
        let cell = match error {
            // After its last report the relay ends by itself.
            None if self.state.is_reported() => None,
            None => Some(self.state.end()),
            Some(error) => Some(self.state.abort(error.code())),
        };
        if let Some(cell) = cell {
            // The relay may be gone already, and there is nothing left to lose.
            let _ = self.link.send_cells(&cell).await;
        }
        self.link.close().await;
    }
}

/// Resolves `host:port`; the first address counts.
///
/// # Errors
/// A text that says what is wrong with the address.
pub async fn resolve(address: &str) -> Result<SocketAddr, String> {
    let mut found = tokio::net::lookup_host(address)
        .await
        .map_err(|error| format!("{address:?} is not an address HOST:PORT: {error}"))?;
    found.next().ok_or_else(|| format!("{address:?} has no address"))
}
