//! Attackers' gains, compared with formulas (paper §5, Table 2, App. A).
//!
//! ```text
//!   ff_proto::aggregate ─▶ lies      false background, echoes held back, bursts
//!   ff_proto::content ───▶ forged    cells that were never decrypted
//!   ff_plan::period ─────▶ slots     capacity, or an attack, in a share of slots
//!                          flood     new relays that take the room of others
//!                          machines  several relays on one, begun at once or apart
//!   ff_trust ────────────▶ framing   relays that dispute a measurer
//!   ff_plan::publish ────▶ days      days that a relay chooses
//!                          history   relays that come and go, or under new names
//!   crate::others ───────▶ descriptors, views, traffic: the systems of Table 2
//!     each ─▶ Attack: formula, paper's and our value, a curve of Points
//! ```
//!
//! [`all`] runs every attack on one network, [`against`] runs those on some systems. The [`Basis`]
//! of an [`Attack`] is the code that measures relays, a model of another system, or a citation.
//! Random points have their number of trials, and [`Point::agrees`] compares them with their
//! formula within three standard deviations and one event.
//!
//! Limits: an attack is the one that its module describes; better ones may exist. Two relays are
//! told apart only by their claims and behaviour, not by their location.

mod chance;
pub mod days;
pub mod descriptors;
pub mod flood;
pub mod forged;
pub mod framing;
pub mod history;
pub mod lies;
pub mod machines;
pub mod sample;
pub mod slots;
pub mod table2;
pub mod traffic;
pub mod views;

use ff_archives::network::Network;
use serde::Serialize;

/// The name of the attack that has the curves of all systems.
pub const TABLE2: &str = "Table 2";

/// A system for relays' weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum System {
    /// This system.
    FlashFlow,
    /// TorFlow, the former bandwidth scanner of Tor.
    TorFlow,
    /// sbws, Tor's bandwidth scanner.
    Sbws,
    /// EigenSpeed, by relays' ratings of each other.
    EigenSpeed,
    /// PeerFlow, by relays' reports of each other's traffic.
    PeerFlow,
}

impl System {
    /// All systems.
    pub const ALL: [Self; 5] =
        [Self::FlashFlow, Self::TorFlow, Self::Sbws, Self::EigenSpeed, Self::PeerFlow];

    /// The name in tables and on command lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FlashFlow => "flashflow",
            Self::TorFlow => "torflow",
            Self::Sbws => "sbws",
            Self::EigenSpeed => "eigenspeed",
            Self::PeerFlow => "peerflow",
        }
    }
}

/// The source of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// The code that measures relays: `ff_proto`, `ff_plan` and `ff_trust`.
    RealCode,
    /// A model of another system, in [`crate::others`] or in the attack's module.
    Model,
    /// The paper's number.
    Cited,
}

impl Basis {
    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RealCode => "real_code",
            Self::Model => "model",
            Self::Cited => "cited",
        }
    }
}

/// One value of a curve.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Point {
    /// The name of the curve.
    pub curve: String,
    /// The value on the axis.
    pub x: f64,
    /// The trusted share of the network, if it matters.
    pub trusted: Option<f64>,
    /// The value by the formula.
    pub formula: Option<f64>,
    /// The simulated value.
    pub ours: f64,
    /// The number of trials, if it is random.
    pub trials: Option<u32>,
    /// The relative tolerance, if the formula is not exact.
    pub within: Option<f64>,
}

/// The relative tolerance of an exact value.
const ROUNDING: f64 = 1e-6;

impl Point {
    /// A point without a formula.
    #[must_use]
    pub fn new(curve: impl Into<String>, x: f64, ours: f64) -> Self {
        Self { curve: curve.into(), x, ours, ..Self::default() }
    }

    /// The same with the value by the formula.
    #[must_use]
    pub fn beside(self, formula: f64) -> Self {
        Self { formula: Some(formula), ..self }
    }

    /// The same with the trusted share.
    #[must_use]
    pub fn trusting(self, trusted: f64) -> Self {
        Self { trusted: Some(trusted), ..self }
    }

    /// The same with this relative tolerance of the formula.
    #[must_use]
    pub fn within(self, part: f64) -> Self {
        Self { within: Some(part), ..self }
    }

    /// The same as a share of this number of trials.
    #[must_use]
    pub fn of_trials(self, trials: u32) -> Self {
        Self { trials: Some(trials), ..self }
    }

    /// Three standard deviations around the formula, if it is a probability that was simulated.
    #[must_use]
    pub fn interval(&self) -> Option<[f64; 2]> {
        let (formula, trials) = (self.formula?, self.trials?);
        let wide = chance::three_deviations(formula, trials);
        Some([formula - wide, formula + wide])
    }

    /// Whether it agrees with the formula: within three standard deviations and one event if it is
    /// random, otherwise within [`Point::within`] or 1e-6. `None` without a formula.
    ///
    /// One event, because an event with an expected count below one may happen once.
    #[must_use]
    pub fn agrees(&self) -> Option<bool> {
        let formula = self.formula?;
        let wide = formula.abs() * self.within.unwrap_or(ROUNDING);
        let one = self.trials.map_or(0.0, |trials| 1.0 / f64::from(trials));
        let [low, high] = self.interval().unwrap_or([formula - wide, formula + wide]);
        Some((low - one..=high + one).contains(&self.ours))
    }
}

/// The value at a place of one of these curves.
fn at(points: &[Point], curve: &str, x: f64, trusted: Option<f64>) -> f64 {
    let is_there = |point: &&Point| {
        point.curve == curve
            && point.x.total_cmp(&x).is_eq()
            && point.trusted.map(f64::to_bits) == trusted.map(f64::to_bits)
    };
    points.iter().find(is_there).map_or(f64::NAN, |point| point.ours)
}

/// An attack with its results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Attack {
    /// The id of its row in the ledger.
    pub id: &'static str,
    /// A short description.
    pub name: &'static str,
    /// The system that is attacked.
    pub system: System,
    /// The formula, as text.
    pub formula: &'static str,
    /// The unit of the numbers: "times", "probability", "seconds".
    pub unit: &'static str,
    /// The paper's value.
    pub paper: Option<f64>,
    /// Our value for the same.
    pub ours: f64,
    /// The expected range: three standard deviations around the formula, or the range in the paper
    /// or the ledger.
    pub interval: Option<[f64; 2]>,
    /// The source of the result.
    pub basis: Basis,
    /// The axis of the curves, with its unit.
    pub axis: &'static str,
    /// The points of all curves.
    pub points: Vec<Point>,
    /// Remarks on the result.
    pub note: String,
}

impl Attack {
    /// The points of one curve.
    pub fn curve<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Point> {
        self.points.iter().filter(move |point| point.curve == name)
    }
}

/// Runs an attack on a network with a seed.
type Run = fn(&Network, u64) -> Attack;

/// All attacks in the order of the ledger's rows, each with the systems that it attacks.
const ATTACKS: [(&[System], Run); 24] = [
    (&[System::FlashFlow], |_, _| lies::false_background()),
    (&[System::FlashFlow], |_, seed| forged::forged_cells(seed)),
    (&[System::FlashFlow], |_, seed| slots::part_time(seed)),
    (&[System::FlashFlow], |_, seed| slots::second_draws(seed)),
    (&[System::FlashFlow], |_, seed| days::refusing(seed)),
    (&[System::FlashFlow], |_, _| days::bursting()),
    (&[System::FlashFlow], |_, _| history::new_identities()),
    (&[System::FlashFlow], |_, seed| days::away(seed)),
    (&[System::FlashFlow], |_, seed| slots::denial_of_service(seed)),
    (&[System::FlashFlow], |_, _| lies::denied_seconds()),
    (&[System::FlashFlow], flood::flood),
    (&[System::FlashFlow], |_, _| framing::framing()),
    (&[System::FlashFlow], |_, seed| machines::one_machine(seed)),
    (&[System::FlashFlow], |_, _| machines::twins()),
    (&[System::FlashFlow], |_, seed| history::coming_and_going(seed)),
    (&[System::TorFlow, System::Sbws], |network, _| descriptors::one_step(network)),
    (&[System::TorFlow, System::Sbws], descriptors::loops),
    (&[System::EigenSpeed], views::liars),
    (&[System::EigenSpeed], views::framing),
    (&[System::EigenSpeed], views::sybils),
    (&[System::PeerFlow], traffic::concentrated),
    (&[System::FlashFlow], |network, _| table2::speed(network)),
    (&[System::FlashFlow], |_, _| lies::bursts()),
    (&[System::FlashFlow], |_, _| lies::held_back()),
];

/// Runs every attack on this network, and Table 2. The same seed gives the same numbers.
///
/// Capacities are scaled to those of the paper's network where a figure is of that network.
#[must_use]
pub fn all(network: &Network, seed: u64) -> Vec<Attack> {
    against(&System::ALL, network, seed)
}

/// Runs the attacks on some systems, and their part of Table 2; nothing else is computed.
#[must_use]
pub fn against(systems: &[System], network: &Network, seed: u64) -> Vec<Attack> {
    against_told(systems, network, seed, |_, _| {})
}

/// The same with a callback before each attack, which gets the number of finished attacks and of
/// all.
#[must_use]
pub fn against_told(
    systems: &[System],
    network: &Network,
    seed: u64,
    tell: impl Fn(usize, usize),
) -> Vec<Attack> {
    let is_wanted = |those: &[System]| those.iter().any(|system| systems.contains(system));
    let wanted: Vec<Run> =
        ATTACKS.iter().filter(|(those, _)| is_wanted(those)).map(|(_, run)| *run).collect();
    let mut all = Vec::new();
    for run in &wanted {
        tell(all.len(), wanted.len());
        all.push(run(network, seed));
    }
    if systems.contains(&System::PeerFlow) {
        all.extend(traffic::cited());
    }
    all.push(table2::table2(systems, &all));
    all
}
