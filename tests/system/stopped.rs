//! Hosts of the team that stand still for a moment, which is not the relay's doing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use ff_coordinator::measure::MeasurePlan;
use ff_coordinator::team::{PartEvent, ReadyPart, TeamMeasurer, TeamMember};
use ff_measurer::{PartFailure, SecondReport, Task};
use ff_plan::outcome::Outcome;
use ff_proto::aggregate::Draw;
use ff_proto::ids::Ed25519Id;

use crate::plan::{assert_measured, failure, fresh_key, local, measure, plan};
use crate::relay::{Setup, TestRelay};
use crate::turn;

/// A fault of a measurer.
#[derive(Clone, Copy)]
enum What {
    /// It begins so much earlier than it was to: the way to it had been taken for longer than it
    /// is, because one of both hosts stood still while it was looked at.
    Early(Duration),
    /// It runs in the first seconds only, so many.
    Stopped {
        /// These.
        after: u16,
    },
    /// It gets nothing in the same seconds, and waits.
    InVain {
        /// From this one on.
        after: u16,
    },
}

/// A measurer to which that happens.
struct Odd(Arc<dyn TeamMeasurer>, What);

#[async_trait]
impl TeamMeasurer for Odd {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn id(&self) -> Ed25519Id {
        self.0.id()
    }

    async fn prepare(&self, task: &Task) -> Result<Box<dyn ReadyPart>, PartFailure> {
        Ok(Box::new(OddPart(self.0.prepare(task).await?, self.1)))
    }
}

/// Its part.
struct OddPart(Box<dyn ReadyPart>, What);

#[async_trait]
impl ReadyPart for OddPart {
    fn opened(&self) -> u16 {
        self.0.opened()
    }

    fn start_lead(&self) -> Duration {
        match self.1 {
            What::Early(early) => self.0.start_lead() + early,
            _ => self.0.start_lead(),
        }
    }

    fn start(&mut self, at: Instant) -> Instant {
        match self.1 {
            What::Early(early) => self.0.start(at - early),
            _ => self.0.start(at),
        }
    }

    async fn next_event(&mut self) -> PartEvent {
        let event = self.0.next_event().await;
        match (event, self.1) {
            (PartEvent::Second(report), What::Stopped { after }) if report.second >= after => {
                let SecondReport { second, sockets_alive, .. } = report;
                PartEvent::Second(SecondReport { second, sockets_alive, ..Default::default() })
            }
            (PartEvent::Second(report), What::InVain { after }) if report.second >= after => {
                let idle_micros = 990_000;
                PartEvent::Second(SecondReport {
                    sent_cells: 0,
                    echoed_cells: 0,
                    idle_micros,
                    ..report
                })
            }
            (event, _) => event,
        }
    }
}

/// Has such a measurer measure an honest relay of 20 Mbit/s for three seconds.
async fn measure_by(what: What) -> Outcome {
    let coordinator = fresh_key();
    let relay = TestRelay::start(Setup::allowing(&[&coordinator]));
    let plan = plan(&relay, &coordinator, 3);
    let measurer = Arc::new(Odd(local("odd"), what));
    let team = vec![TeamMember { measurer, sockets: plan.params.sockets, rate: None }];
    measure(&MeasurePlan { team, ..plan }).await
}

#[tokio::test]
async fn who_begins_before_it_was_to_makes_no_liar_of_the_relay() {
    let _turn = turn().await;
    let outcome = measure_by(What::Early(Duration::from_millis(700))).await;
    assert_measured(&outcome);
}

#[tokio::test]
async fn who_does_not_run_gets_nothing_and_the_relay_is_not_to_blame() {
    let _turn = turn().await;
    for (what, code) in [
        (What::Stopped { after: 1 }, "measurer_failed"),
        // And this is a relay's doing.
        (What::InVain { after: 1 }, "no_echo"),
    ] {
        let outcome = measure_by(what).await;
        assert_eq!(failure(&outcome).code(), code, "{outcome:?}");
        assert_eq!((outcome.estimate, outcome.publishable()), (None, None));
        let is_void = matches!(outcome.draw, Draw::Void);
        assert_eq!(is_void, code == "measurer_failed", "{:?}", outcome.draw);
    }
}
