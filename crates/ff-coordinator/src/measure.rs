//! Measures one relay: the coordinator's driver, with measurers in this process or elsewhere.
//!
//! ```text
//!   link to the target ──▶ MEAS_PARAMS ──▶ granted ──▶ measurers prepare ──▶ start together
//!        │ MEAS_BG, one a second                            │ their seconds
//!        └────────────────────▶ Samples ◀───────────────────┘
//!                                  └─▶ aggregate::estimate, judge ──▶ Outcome
//! ```
//!
//! Whatever goes wrong becomes the outcome's failure; nothing is published from it.

mod error;
mod session;
mod together;
mod transit;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ed25519_dalek::SigningKey;
use ff_measurer::link::{self, LinkOptions, TargetAddr};
use ff_measurer::{PartFailure, Task};
use ff_plan::outcome::{
    Asked, CpuSeconds, Dispute, Failure, MeasuredSeconds, Method, Outcome, PathRow, SocketCounts,
    TargetInfo,
};
use ff_plan::period::links::{KnownPath, links_for};
use ff_proto::aggregate::{self, Circumstances, Overclaim, Verdict};
use ff_proto::failure::FailureKind;
use ff_proto::msg::MeasParamsOk;
use ff_proto::params::{DURATION_SECS, MAX_SETTLE_SECS, Params, settle_secs};
use ff_proto::session::coordinator::CoordinatorEvent;
use ff_proto::session::{PeerViolation, SessionFailure};
use ff_proto::units::BytesPerSec;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::samples::Samples;
use crate::team::{PartEvent, ReadyPart, TeamMember};

use error::MeasureError;
use session::Session;

pub use self::together::StartPlace;
pub use self::transit::measure_transit;
pub use crate::progress::Progress;

/// How long the team may take to open its links: longer than the grant waits is in vain.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a relay may be busy with another measurement before that counts: so long one can
/// overrun its slot, when its links open slowly.
const BUSY_PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait before a busy relay is asked again.
const BUSY_PAUSE: Duration = Duration::from_millis(500);
/// Measurers' events that wait to be taken in.
const EVENTS: usize = 64;

/// The relay to measure, the team and the parameters.
#[derive(Clone)]
pub struct MeasurePlan {
    /// The relay.
    pub target: TargetAddr,
    /// How its user wrote the address.
    pub address_text: String,
    /// The SHA-1 fingerprint of its RSA identity, where it is known from somewhere else: a relay
    /// that shows another one is not measured. The Ed25519 identity does not vouch for it.
    pub fingerprint: Option<[u8; 20]>,
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
    /// The longest round trip from a measurer to it, where it is known; otherwise the coordinator's
    /// is taken for it.
    pub round_trip: Option<Duration>,
    /// The expected capacity, if the number of links is to follow from the measured path; otherwise
    /// the team's number of links is used.
    pub expected: Option<BytesPerSec>,
    /// Its place among measurements that begin together, if it is made together with others.
    pub place: Option<Arc<StartPlace>>,
    /// How to open links, the coordinator's and the measurers'.
    pub link: LinkOptions,
}

impl MeasurePlan {
    /// A plan for a relay on another machine, by its address alone; callers set what else they know.
    #[must_use]
    pub fn new(target: TargetAddr, key: SigningKey, params: Params, team: Vec<TeamMember>) -> Self {
        Self {
            address_text: target.addr.to_string(),
            target,
            fingerprint: None,
            key,
            params,
            team,
            limit: None,
            is_local: false,
            round_trip: None,
            expected: None,
            place: None,
            link: LinkOptions::default(),
        }
    }

    /// Whether nothing but processors lies between the relay and the team: a connection over
    /// loopback waits for a program.
    fn is_beside(&self) -> bool {
        self.is_local || self.target.addr.ip().to_canonical().is_loopback()
    }

    /// Gives the team as many links as what is expected takes over a path of this length, divided
    /// as before.
    fn spread_links(&mut self, round_trip: Option<Duration>) {
        let Some(expected) = self.expected else { return };
        let before: u32 = self.team.iter().map(|member| u32::from(member.sockets)).sum();
        let links = u32::from(links_for(expected, &KnownPath::of(round_trip)));
        if links <= before || before == 0 {
            return;
        }
        let sockets: Vec<_> = self.team.iter().map(|member| member.sockets).collect();
        for (member, sockets) in self.team.iter_mut().zip(spread(&sockets, links)) {
            member.sockets = sockets;
        }
    }

    /// The known facts about the measurement before the relay answers.
    fn asked(&self, started_unix_secs: u64) -> Asked {
        Asked {
            target: TargetInfo {
                address: self.address_text.clone(),
                ed_identity: self.target.ed_identity.into(),
                rsa_fingerprint: None,
                nickname: None,
            },
            started_unix_secs,
            method: Method::Echo,
            asked_secs: self.params.duration_secs,
            ratio: self.params.ratio,
            estimator: self.params.estimator,
            allocated: self.allotted().into_iter().sum(),
        }
    }

    /// a of each measurer.
    fn allotted(&self) -> Vec<Option<BytesPerSec>> {
        self.team.iter().map(|member| member.rate).collect()
    }

    /// Links that the team is to open.
    fn links(&self) -> u64 {
        self.team.iter().map(|member| u64::from(member.sockets)).sum()
    }
}

/// Measures the relay; runs on tokio. `watch` is told how it goes.
pub async fn measure(plan: &MeasurePlan, mut watch: impl FnMut(Progress<'_>)) -> Outcome {
    let mut run = Run {
        plan: plan.clone(),
        samples: Samples::new(&plan.params, plan.team.len()),
        rsa_fingerprint: None,
        settle_secs: 0,
        is_far: false,
        grant: None,
        has_started: false,
        started: unix_time(),
        opened: 0,
    };
    let result = run.carry_out(&mut watch).await;
    run.outcome(result)
}

/// The time since 1970.
fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The outcome of a measurement that this process aborted.
#[must_use]
pub fn failed(plan: &MeasurePlan, started_unix_secs: u64, failure: Failure) -> Outcome {
    Outcome {
        limit: plan.limit,
        sockets: SocketCounts { asked: plan.links(), opened: 0 },
        ..Outcome::failed(plan.asked(started_unix_secs), failure)
    }
}

/// A measurement that is going on.
struct Run {
    /// What was asked for, with as many links as the path takes.
    plan: MeasurePlan,
    /// What was counted.
    samples: Samples,
    /// The RSA fingerprint that the relay's links showed.
    rsa_fingerprint: Option<[u8; 20]>,
    /// Seconds that it is asked for beyond those that count.
    settle_secs: u16,
    /// Whether it takes seconds to find the relay's rate over this path.
    is_far: bool,
    /// The relay's grant.
    grant: Option<MeasParamsOk>,
    /// Whether the measurers have begun to send.
    has_started: bool,
    /// When they did, or the relay was asked if they have not, since 1970.
    started: Duration,
    /// Links that opened.
    opened: u64,
}

impl Run {
    /// Asks, prepares, runs and ends.
    async fn carry_out(
        &mut self,
        watch: &mut impl FnMut(Progress<'_>),
    ) -> Result<(), MeasureError> {
        self.plan.params.validate()?;
        let (mut session, grant) = self.ask(watch).await?;
        let result = match self.run_team(&mut session, &grant, watch).await {
            Ok(()) => Ok(()),
            Err(error) => Err(session.reason_for(error).await),
        };
        session.finish(result.as_ref().err()).await;
        result
    }

    /// Asks the relay, and again for a while if another coordinator's measurement, of the slot
    /// before, is not over yet.
    async fn ask(
        &mut self,
        watch: &mut impl FnMut(Progress<'_>),
    ) -> Result<(Session, MeasParamsOk), MeasureError> {
        let late = Instant::now() + BUSY_PATIENCE;
        loop {
            watch(Progress::Step("connecting to the relay"));
            let link = link::open(&self.plan.target, &self.plan.link).await?;
            self.rsa_fingerprint = link.rsa_identity.and_then(|id| id.as_bytes().try_into().ok());
            self.check_fingerprint()?;
            // The longest measurement leaves the relay no seconds to settle in.
            let longest = DURATION_SECS.end() - self.plan.params.duration_secs;
            let round_trip = link.round_trip().max(self.plan.round_trip);
            self.plan.spread_links(round_trip);
            let settle = settle_secs(round_trip);
            self.is_far = settle > 0;
            // Measurements of a group count the same seconds.
            let settle = if self.plan.place.is_some() { MAX_SETTLE_SECS } else { settle };
            self.settle_secs = settle.min(longest);
            let mut session = Session::ask(link, &self.plan, self.settle_secs).await?;
            let error = match session.wait_for_grant().await {
                Ok(grant) => return Ok((session, grant)),
                Err(error) => error,
            };
            session.finish(Some(&error)).await;
            if !error.is_busy() || Instant::now() >= late {
                return Err(error);
            }
            watch(Progress::Step("the relay is busy with another measurement; asking again"));
            tokio::time::sleep(BUSY_PAUSE).await;
        }
    }

    /// Compares the RSA identity with the one that is known, if one is.
    fn check_fingerprint(&self) -> Result<(), MeasureError> {
        let Some(expected) = self.plan.fingerprint else { return Ok(()) };
        if self.rsa_fingerprint == Some(expected) {
            return Ok(());
        }
        let found = self.rsa_fingerprint.map_or("none".to_owned(), hex::encode_upper);
        Err(MeasureError::WrongFingerprint { expected: hex::encode_upper(expected), found })
    }

    /// Has the team measure.
    async fn run_team(
        &mut self,
        session: &mut Session,
        grant: &MeasParamsOk,
        watch: &mut impl FnMut(Progress<'_>),
    ) -> Result<(), MeasureError> {
        // A relay that grants fewer has them counted from the first on.
        let beyond = grant.duration_secs.saturating_sub(self.plan.params.duration_secs);
        self.settle_secs = self.settle_secs.min(beyond);
        self.samples.set_grant(grant.duration_secs, self.settle_secs, grant.ratio);
        if self.plan.place.is_some() {
            self.samples.count_the_last(self.is_far);
        }
        self.grant = Some(grant.clone());
        watch(Progress::Step("granted; opening the measurement links"));
        let tasks = tasks(&self.plan, grant);
        let team = tokio::select! {
            team = tokio::time::timeout(PREPARE_TIMEOUT, prepare(&self.plan.team, &tasks)) => {
                team.map_err(|_| SessionFailure::Timeout("the measurement links' handshakes"))??
            }
            // Nothing may come from the relay now, so whatever comes is the reason to stop.
            error = session.watch_until_failure() => return Err(error),
        };
        self.opened = team.iter().map(|part| u64::from(part.opened())).sum();
        let lead = team.iter().map(|part| part.start_lead()).max().unwrap_or_default();
        let at = match &self.plan.place {
            None => Instant::now() + lead,
            Some(place) => tokio::select! {
                at = place.ready(lead) => at,
                error = session.watch_until_failure() => return Err(error),
            },
        };
        let mut team = team;
        // A measurer to which the way is shorter than it was begins before the others, and the
        // relay with it.
        let earliest = team.iter_mut().map(|part| part.start(at)).min().unwrap_or(at);
        session.start(earliest);
        // A relay may put this off, so only what begins at the same time from here on is measured
        // together.
        let begun = unix_time() + earliest.saturating_duration_since(Instant::now());
        (self.has_started, self.started) = (true, begun);
        watch(Progress::Started { at, seconds: grant.duration_secs });
        if self.settle_secs > 0 {
            watch(Progress::Step("measuring; the first seconds look for the relay's rate"));
        }
        let (events, _tasks) = forward_events(team);
        self.collect(session, events, watch).await
    }

    /// Collects seconds until all measurers are done and all reports have come.
    async fn collect(
        &mut self,
        session: &mut Session,
        mut events: mpsc::Receiver<(usize, PartEvent)>,
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
                    PartEvent::Second(report) => {
                        self.samples.add_measurement(index, &report);
                        self.samples.show_full_seconds(watch);
                    }
                    PartEvent::Done(totals) => {
                        self.samples.add_totals(&totals);
                        running -= 1;
                    }
                    PartEvent::Failed(source) => return Err(part_failed(&self.plan.team[index], source)),
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
    fn outcome(self, result: Result<(), MeasureError>) -> Outcome {
        let accuser = result.as_ref().err().and_then(MeasureError::accuser);
        let found = result.and_then(|()| self.judge()).map_err(Failure::from);
        let asked = self.plan.asked(self.started.as_secs());
        let asked = Asked {
            ratio: self.samples.ratio(),
            target: TargetInfo { rsa_fingerprint: self.rsa_fingerprint, ..asked.target },
            ..asked
        };
        let measured = MeasuredSeconds {
            grant: self.grant.clone(),
            settle_secs: self.settle_secs,
            has_started: self.has_started,
            seconds: self.samples.reported(),
            disputes: self.disputes(),
        };
        let outcome = Outcome::of(asked, measured, found);
        let is_bad_cell =
            outcome.result.as_ref().is_err_and(|failure| is_about_a_cell(failure.kind));
        Outcome {
            counted_unix_millis: self.counted_unix_millis(),
            settling_bytes: self.samples.settling_bytes(),
            limit: self.plan.limit,
            cells: self.samples.cells(is_bad_cell),
            round_trip: self.samples.round_trip(),
            cpu: CpuSeconds { measurers: self.samples.cpu_seconds(), target: None },
            sockets: SocketCounts { asked: self.plan.links(), opened: self.opened },
            paths: self.paths(),
            // Disputes may replace the failure.
            accuser: accuser.filter(|_| outcome.disputes.is_empty()),
            ..outcome
        }
    }

    /// When the first second that counts began, in milliseconds since 1970, if the measurers have
    /// begun.
    fn counted_unix_millis(&self) -> Option<u64> {
        let first = Duration::from_secs(self.samples.first_counted() as u64);
        let begun = self.started + first;
        self.has_started.then(|| u64::try_from(begun.as_millis()).unwrap_or(u64::MAX))
    }

    /// The measurers that say more than the relay.
    fn disputes(&self) -> Vec<Dispute> {
        let dispute = |(measurer, found): (usize, Overclaim)| Dispute {
            measurer,
            measurer_id: self.plan.team[measurer].measurer.id(),
            claimed_cells: found.claimed.0,
            reported_cells: found.reported.0,
        };
        self.samples.overclaims().into_iter().map(dispute).collect()
    }

    /// Estimate and verdict of a measurement that went to its end.
    fn judge(&self) -> Result<(BytesPerSec, Verdict), MeasureError> {
        let seconds = self.samples.whole()?;
        let params = &self.plan.params;
        let estimate = params.estimator.estimate(&seconds, self.samples.ratio());
        let nothing = match self.samples.was_team_stopped() {
            true => MeasureError::TeamStopped,
            false => MeasureError::NoEcho,
        };
        // Over a path that is too long, nothing comes back from an honest relay in most seconds.
        let is_too_long = !self.plan.is_beside() && self.samples.is_too_long();
        let estimate = estimate.filter(|estimate| estimate.get() > 0 || is_too_long);
        let estimate = estimate.ok_or(nothing)?;
        aggregate::check_reports(&self.samples.with_head_start(), self.samples.granted_ratio())
            .map_err(PeerViolation::from)?;
        let allotted = self.plan.allotted();
        let granted = self.grant.as_ref().map_or(0, |grant| grant.duration_secs);
        let how = Circumstances {
            allocated: allotted.iter().copied().sum(),
            is_local: self.plan.is_local,
            measurer_limited: self.samples.is_measurer_limited(),
            path_limited: estimate.get() == 0
                || !self.plan.is_beside()
                    && self.samples.is_path_limited(&allotted, params.headroom()),
            unsettled: self.samples.is_unsettled(),
            asked_secs: params.duration_secs,
            granted_secs: granted.saturating_sub(self.settle_secs),
        };
        Ok((estimate, aggregate::judge(estimate, &how, params)))
    }

    /// The paths of those measurers that know theirs.
    fn paths(&self) -> Vec<PathRow> {
        let paths = self.plan.team.iter().zip(self.samples.paths());
        let row = |(member, path): (&TeamMember, Option<_>)| {
            let (seen, is_too_far) = path?;
            Some(PathRow::new(member.measurer.id(), &seen, is_too_far))
        };
        paths.filter_map(row).collect()
    }
}

/// Whether a failure is about one checked or counted cell.
fn is_about_a_cell(kind: FailureKind) -> bool {
    matches!(kind, FailureKind::WrongContent | FailureKind::OutOfOrder | FailureKind::MoreThanSent)
}

/// What each measurer is to do.
fn tasks(plan: &MeasurePlan, grant: &MeasParamsOk) -> Vec<Task> {
    let task = |member: &TeamMember| Task {
        measurement: grant.measurement,
        target: plan.target,
        sockets: member.sockets,
        rate: member.rate,
        duration_secs: grant.duration_secs,
        cells_per_record: u8::try_from(plan.params.cells_per_record).unwrap_or(u8::MAX),
        crypto: grant.crypto,
        check_probability: plan.params.check_probability,
        connect_timeout: plan.link.connect_timeout,
        handshake_timeout: plan.link.handshake_timeout,
    };
    plan.team.iter().map(task).collect()
}

/// A measurer has failed.
fn part_failed(member: &TeamMember, source: PartFailure) -> MeasureError {
    let (name, id) = (member.measurer.name().to_owned(), member.measurer.id());
    MeasureError::Measurer { name, id, source }
}

/// Prepares all measurers at once; the first that fails ends it.
async fn prepare(
    team: &[TeamMember],
    tasks: &[Task],
) -> Result<Vec<Box<dyn ReadyPart>>, MeasureError> {
    let preparing = team.iter().zip(tasks).map(|(member, task)| async move {
        member.measurer.prepare(task).await.map_err(|source| part_failed(member, source))
    });
    futures::future::try_join_all(preparing).await
}

/// Brings all measurers' events together. The measurers stop when the tasks are dropped, and one
/// that has more to say than is taken in has to wait.
fn forward_events(
    team: Vec<Box<dyn ReadyPart>>,
) -> (mpsc::Receiver<(usize, PartEvent)>, JoinSet<()>) {
    let (sender, receiver) = mpsc::channel(EVENTS);
    let mut tasks = JoinSet::new();
    for (index, mut part) in team.into_iter().enumerate() {
        let sender = sender.clone();
        tasks.spawn(async move {
            loop {
                let event = part.next_event().await;
                let is_last = !matches!(event, PartEvent::Second(_));
                if sender.send((index, event)).await.is_err() || is_last {
                    return;
                }
            }
        });
    }
    (receiver, tasks)
}

/// As many links in total, divided as these.
fn spread(sockets: &[u16], links: u32) -> Vec<u16> {
    let before = sockets.iter().copied().map(u32::from).sum::<u32>().max(1);
    let (mut sum, mut given) = (0, 0);
    let part = |&sockets: &u16| {
        sum += u32::from(sockets);
        let up_to = sum * links / before;
        u16::try_from(up_to - std::mem::replace(&mut given, up_to)).unwrap_or(u16::MAX)
    };
    sockets.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plan for a relay at this address.
    fn plan(address: &str, is_local: bool) -> MeasurePlan {
        let addr = address.parse().expect("an address");
        let target = TargetAddr { addr, ed_identity: [2; 32].into() };
        let key = SigningKey::from_bytes(&[1; 32]);
        MeasurePlan { is_local, ..MeasurePlan::new(target, key, Params::default(), Vec::new()) }
    }

    #[test]
    fn a_team_gets_as_many_links_as_the_path_takes_and_no_more() {
        // 512 is what a relay grants.
        for members in 1..=8 {
            for near in [80, 81] {
                let spread = spread(&vec![near / members; usize::from(members)], 512);
                assert_eq!(spread.iter().sum::<u16>(), 512, "{members} members");
                let (least, most) = (spread.iter().min(), spread.iter().max());
                assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1));
            }
        }
        assert_eq!(spread(&[10, 30, 40], 160), [20, 60, 80]);
        assert_eq!(spread(&[0, 0], 160), [0, 0]);
    }

    #[test]
    fn a_relay_is_beside_its_team_on_this_machine_or_over_loopback() {
        for (address, is_beside) in [
            ("127.0.0.1:9001", true),
            ("127.9.9.9:9001", true),
            ("[::1]:9001", true),
            ("[::ffff:127.0.0.1]:9001", true),
            ("192.0.2.1:9001", false),
            ("10.0.0.1:9001", false),
            ("0.0.0.0:9001", false),
            ("[2001:db8::1]:9001", false),
            ("[::ffff:192.0.2.1]:9001", false),
            ("[fe80::1]:9001", false),
        ] {
            assert_eq!(plan(address, false).is_beside(), is_beside, "{address}");
            assert!(plan(address, true).is_beside(), "{address}, said to be local");
        }
    }
}
