//! The bandwidth-weights of a consensus (dir-spec 3.8.3): the factor of a relay's weight in each
//! position of a circuit.
//!
//! Relays are in four classes by the flags Guard and Exit ([`Position`]). [`Sums`] has the total
//! weight of each class; [`Weights::of`] computes from it how the classes are divided among the
//! three positions of a circuit, in integers as authorities do. [`Sums::change`] updates sums when
//! weights change, so that the bandwidth-weights can be computed anew each time.
//!
//! In a consensus every relay counts: relays without Running are not listed since method 4,
//! unmeasured relays have their listed weight (without them the consensus of 2020-02-29 would have
//! another footer), and an Exit with BadExit does not count as an exit (method 11). In other
//! sources relays without Running are left out. The obsolete constraints of methods 9 and 10 are
//! not implemented. A network for which the specification has no solution has no weights, see
//! [`NoWeights`].

use std::fmt;

use crate::network::{Network, Position};

/// The denominator of weights, unless a consensus's `bwweightscale` differs.
pub const SCALE: u32 = 10_000;
/// The first consensus method in which each class begins with a weight of 1.
pub const FIRST_METHOD_FROM_ONE: u32 = 26;
/// The default consensus method: that of 2019.
pub const METHOD: u32 = 28;
/// The sum of all relays' weights after scaling, for networks with fractional weights.
const WHOLE: f64 = 1e12;

/// The total weight of each class: G, M, E and D.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// G: guards that are not exits.
    pub guard: u64,
    /// M: neither guards nor exits.
    pub middle: u64,
    /// E: exits that are not guards.
    pub exit: u64,
    /// D: both guards and exits.
    pub guard_exit: u64,
}

impl Sums {
    /// The sums before any relay, by consensus method.
    #[must_use]
    pub const fn start(method: u32) -> Self {
        let one = if method >= FIRST_METHOD_FROM_ONE { 1 } else { 0 };
        Self { guard: one, middle: one, exit: one, guard_exit: one }
    }

    /// The sums over a network's running relays, for a consensus of this method. Fractional weights
    /// are first scaled so that rounding is negligible.
    #[must_use]
    pub fn of(network: &Network, method: u32) -> Self {
        let weights = || network.relays.iter().map(|relay| relay.weight);
        let are_whole = weights().all(|weight| !weight.is_finite() || weight.fract() == 0.0);
        let total: f64 = weights().filter(|weight| is_weight(*weight)).sum();
        let unit = if are_whole || !is_weight(total) { 1.0 } else { WHOLE / total };
        let mut sums = Self::start(method);
        for relay in network.relays.iter().filter(|relay| relay.flags.running) {
            sums.add(relay.position(), whole(relay.weight * unit));
        }
        sums
    }

    /// Adds a relay of this class.
    pub const fn add(&mut self, position: Position, weight: u64) {
        let class = self.class(position);
        *class = class.saturating_add(weight);
    }

    /// Changes the weight of a relay of this class.
    pub const fn change(&mut self, position: Position, before: u64, after: u64) {
        let class = self.class(position);
        *class = class.saturating_sub(before).saturating_add(after);
    }

    /// The sum of a class.
    const fn class(&mut self, position: Position) -> &mut u64 {
        match position {
            Position::Guard => &mut self.guard,
            Position::Middle => &mut self.middle,
            Position::Exit => &mut self.exit,
            Position::GuardExit => &mut self.guard_exit,
        }
    }
}

/// Whether a number is a valid weight.
fn is_weight(number: f64) -> bool {
    number.is_finite() && number > 0.0
}

/// A weight as an integer; 0 if it is invalid.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts from floats saturate, and it is positive"
)]
fn whole(weight: f64) -> u64 {
    if is_weight(weight) { weight.round() as u64 } else { 0 }
}

/// A position in a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CircuitPlace {
    /// The first relay.
    Guard,
    /// A middle relay; also used for directory requests.
    Middle,
    /// The last relay.
    Exit,
}

/// The case of the specification for a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Case {
    /// 1: neither guards nor exits are scarce.
    Plenty,
    /// 2a: both are scarce, and one of them so much that it gets all of D.
    BothScarceOneRare,
    /// 2b: both are scarce, and all positions can be balanced with exits in the middle.
    BothScarceBalanced,
    /// 2b with the second set of constraints: both are scarce, and guards and exits keep their
    /// positions.
    BothScarceFixed,
    /// 2b with M > T/3: the middle has too much weight for a balance.
    TooMuchMiddle,
    /// 3a: one is scarce, even with all of D.
    OneScarce,
    /// 3b: one is scarce, and D compensates for it.
    OneScarceBalanced,
}

impl Case {
    /// Whether all three positions have the same total weight in this case.
    #[must_use]
    pub const fn is_balanced(self) -> bool {
        !matches!(self, Self::BothScarceOneRare | Self::TooMuchMiddle | Self::OneScarce)
    }
}

/// Why a network has no bandwidth-weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoWeights {
    /// A class has no weight, which is possible only before method 26: the formulas would divide by
    /// it.
    #[error("no relay of the class {} has a weight, so the formulas would divide by 0", .0.name())]
    EmptyClass(Position),
    /// The specification's last resort gives values outside the scale.
    #[error("there is too much bandwidth in the middle to divide the rest by dir-spec 3.8.3")]
    OutOfRange,
    /// `bwweightscale` is not between 1 and 2^31 - 1.
    #[error("the scale of weights is {0}, but must be within 1 and 2147483647")]
    BadScale(u32),
}

/// The bandwidth-weights of a consensus, with the specification's names: W, the position, the class
/// (g, m, e, d).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// The denominator of all weights.
    pub scale: u32,
    /// The case by which they were computed.
    pub case: Case,
    /// Guards (G) in the first position.
    pub wgg: u32,
    /// Guards that are exits (D) in the first position.
    pub wgd: u32,
    /// Guards (G) in the middle.
    pub wmg: u32,
    /// Exits (E) in the middle.
    pub wme: u32,
    /// Guards that are exits (D) in the middle.
    pub wmd: u32,
    /// Exits (E) in the last position.
    pub wee: u32,
    /// Guards that are exits (D) in the last position.
    pub wed: u32,
}

impl Weights {
    /// The bandwidth-weights of a network with these sums.
    ///
    /// # Errors
    /// [`NoWeights`] if the specification has no solution.
    pub fn of(sums: &Sums, scale: u32) -> Result<Self, NoWeights> {
        if scale == 0 || i32::try_from(scale).is_err() {
            return Err(NoWeights::BadScale(scale));
        }
        let classes = [sums.guard, sums.middle, sums.exit, sums.guard_exit];
        if let Some((_, empty)) = classes.iter().zip(Position::ALL).find(|(sum, _)| **sum == 0) {
            return Err(NoWeights::EmptyClass(empty));
        }
        let [g, m, e, d] = classes.map(i128::from);
        let network = Classes { g, m, e, d, t: g + m + e + d, one: scale.into() };
        let (case, shares) = network.solve();
        shares.weights(case, scale).ok_or(NoWeights::OutOfRange)
    }

    /// The factor of a relay's weight in this position, from 0 to 1. It is 0 for exits in the first
    /// position, for which there is no weight.
    #[must_use]
    pub fn factor(&self, place: CircuitPlace, class: Position) -> f64 {
        let weight = match (place, class) {
            (CircuitPlace::Guard, Position::Guard | Position::Middle) => self.wgg,
            (CircuitPlace::Guard, Position::Exit) => 0,
            (CircuitPlace::Guard, Position::GuardExit) => self.wgd,
            (CircuitPlace::Middle, Position::Guard) => self.wmg,
            (CircuitPlace::Middle, Position::Middle) => self.scale,
            (CircuitPlace::Middle, Position::Exit) => self.wme,
            (CircuitPlace::Middle, Position::GuardExit) => self.wmd,
            (CircuitPlace::Exit, Position::Guard | Position::GuardExit) => self.wed,
            (CircuitPlace::Exit, Position::Middle | Position::Exit) => self.wee,
        };
        f64::from(weight) / f64::from(self.scale)
    }
}

impl fmt::Display for Weights {
    /// The format of a consensus's footer, after `bandwidth-weights`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scale, wgg, wgd, wmg, wme, wmd, wee, wed, .. } = self;
        write!(f, "Wbd={wmd} Wbe={wme} Wbg={wmg} Wbm={scale} Wdb={scale} Web={scale} Wed={wed} ")?;
        write!(f, "Wee={wee} Weg={wed} Wem={wee} Wgb={scale} Wgd={wgd} Wgg={wgg} Wgm={wgg} ")?;
        write!(f, "Wmb={scale} Wmd={wmd} Wme={wme} Wmg={wmg} Wmm={scale}")
    }
}

/// The sums as signed integers, wide enough for every product.
struct Classes {
    g: i128,
    m: i128,
    e: i128,
    d: i128,
    t: i128,
    /// The scale.
    one: i128,
}

/// The seven weights before their bounds are checked.
#[derive(Clone, Copy)]
struct Shares {
    gg: i128,
    gd: i128,
    mg: i128,
    me: i128,
    md: i128,
    ee: i128,
    ed: i128,
}

impl Shares {
    /// The weights, if all are between 0 and the scale.
    fn weights(self, case: Case, scale: u32) -> Option<Weights> {
        let within = |share: i128| u32::try_from(share).ok().filter(|share| *share <= scale);
        Some(Weights {
            scale,
            case,
            wgg: within(self.gg)?,
            wgd: within(self.gd)?,
            wmg: within(self.mg)?,
            wme: within(self.me)?,
            wmd: within(self.md)?,
            wee: within(self.ee)?,
            wed: within(self.ed)?,
        })
    }
}

/// Divisions round towards 0, as in C: authorities must agree to the last digit.
impl Classes {
    /// The weights, with the case by which they were computed.
    fn solve(&self) -> (Case, Shares) {
        let is_scarce = |class: i128| 3 * class < self.t;
        match (is_scarce(self.g), is_scarce(self.e)) {
            (false, false) => (Case::Plenty, self.plenty()),
            (true, true) => self.both_scarce(),
            (true, false) => self.guards_scarce(),
            (false, true) => self.exits_scarce(),
        }
    }

    /// Case 1.
    fn plenty(&self) -> Shares {
        let Self { g, m, e, one, .. } = *self;
        let third = one / 3;
        let ee = one * (e + g + m) / (3 * e);
        let mg = one * (2 * g - e - m) / (3 * g);
        Shares { gg: one - mg, gd: third, mg, me: one - ee, md: third, ee, ed: third }
    }

    /// Case 2.
    fn both_scarce(&self) -> (Case, Shares) {
        let Self { g, m, e, d, one, .. } = *self;
        if g.min(e) + d < g.max(e) {
            let (gd, ed) = if e < g { (0, one) } else { (one, 0) };
            let shares = Shares { gg: one, gd, mg: 0, me: 0, md: 0, ee: one, ed };
            return (Case::BothScarceOneRare, shares);
        }
        let (ee, me) = (one * (e - g + m) / e, one * (g - m) / e);
        let ed = one * (d - 2 * e + 4 * g - 2 * m) / (3 * d);
        let half = (one - ed) / 2;
        let shares = Shares { gg: one, gd: half, mg: 0, me, md: half, ee, ed };
        if [ee, me, ed, half].iter().all(|share| (0..=one).contains(share)) {
            return (Case::BothScarceBalanced, shares);
        }
        self.both_scarce_fixed()
    }

    /// Case 2b with the second set of constraints.
    fn both_scarce_fixed(&self) -> (Case, Shares) {
        let Self { g, m, e, d, one, .. } = *self;
        let ed = one * (d - 2 * e + g + m) / (3 * d);
        let md = one * (d - 2 * m + g + e) / (3 * d);
        let case = if md < 0 { Case::TooMuchMiddle } else { Case::BothScarceFixed };
        let md = md.max(0);
        (case, Shares { gg: one, gd: one - ed - md, mg: 0, me: 0, md, ee: one, ed })
    }

    /// Case 3 with scarce guards.
    fn guards_scarce(&self) -> (Case, Shares) {
        let Self { g, m, e, d, t, one } = *self;
        if 3 * (g + d) < t {
            let me = if e < m { 0 } else { one * (e - m) / (2 * e) };
            let shares = Shares { gg: one, gd: one, mg: 0, me, md: 0, ee: one - me, ed: 0 };
            return (Case::OneScarce, shares);
        }
        let gd = one * (d - 2 * g + e + m) / (3 * d);
        let ee = one * (e + m) / (2 * e);
        let half = (one - gd) / 2;
        let shares = Shares { gg: one, gd, mg: 0, me: one - ee, md: half, ee, ed: half };
        (Case::OneScarceBalanced, shares)
    }

    /// Case 3 with scarce exits.
    fn exits_scarce(&self) -> (Case, Shares) {
        let Self { g, m, e, d, t, one } = *self;
        if 3 * (e + d) < t {
            let mg = if g < m { 0 } else { one * (g - m) / (2 * g) };
            let shares = Shares { gg: one - mg, gd: 0, mg, me: 0, md: 0, ee: one, ed: one };
            return (Case::OneScarce, shares);
        }
        let ed = one * (d - 2 * e + g + m) / (3 * d);
        let gg = one * (g + m) / (2 * g);
        let half = (one - ed) / 2;
        let shares = Shares { gg, gd: half, mg: one - gg, me: 0, md: half, ee: one, ed };
        (Case::OneScarceBalanced, shares)
    }
}

#[cfg(test)]
mod tests;
