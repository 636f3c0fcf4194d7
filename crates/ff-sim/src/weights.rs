//! A consensus' bandwidth-weights (dir-spec 3.8.3): how much of a relay's weight counts where in a
//! circuit.
//!
//! Relays fall into four classes by the flags Guard and Exit ([`Position`]). [`Sums`] has what each
//! class weighs; [`Weights::of`] computes from it how the classes are divided among the three
//! places of a circuit, in integers as authorities do. Weights that change are a matter of
//! [`Sums::change`], so that they can be computed anew each time.
//!
//! Of a consensus every relay counts: what has no Running is not listed in any since method 4,
//! relays that were not measured weigh as they are listed (the consensus of 2020-02-29 has another
//! footer without them), and an Exit with BadExit is none (method 11). Elsewhere relays without
//! Running are left out. The obsolete constraints of methods 9 and 10 are not here. A network for
//! which the specification has no solution has no weights, see [`NoWeights`].

use std::fmt;

use crate::network::{Network, Position};

/// What weights are parts of, unless a consensus' `bwweightscale` says otherwise.
pub const SCALE: u32 = 10_000;
/// The first consensus method that counts 1 in each class before any relay.
pub const FIRST_METHOD_FROM_ONE: u32 = 26;
/// The method by which consensuses are made here if nothing else is asked for: that of 2019.
pub const METHOD: u32 = 28;
/// The sum of all relays' weights, if the weights of a network are fractions and are scaled.
const WHOLE: f64 = 1e12;

/// What the relays of each class weigh: G, M, E and D.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// G: Guard alone.
    pub guard: u64,
    /// M: neither.
    pub middle: u64,
    /// E: Exit alone.
    pub exit: u64,
    /// D: both.
    pub guard_exit: u64,
}

impl Sums {
    /// What a consensus of this method begins with.
    #[must_use]
    pub const fn start(method: u32) -> Self {
        let one = if method >= FIRST_METHOD_FROM_ONE { 1 } else { 0 };
        Self { guard: one, middle: one, exit: one, guard_exit: one }
    }

    /// Those of a network's running relays, as a consensus of this method has them. Weights that
    /// are not whole numbers are first made so large that rounding them does not matter.
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

    /// A relay of this class is added.
    pub const fn add(&mut self, position: Position, weight: u64) {
        let class = self.class(position);
        *class = class.saturating_add(weight);
    }

    /// A relay of this class weighs something else from now on.
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

/// Whether a number can be a weight of something.
fn is_weight(number: f64) -> bool {
    number.is_finite() && number > 0.0
}

/// A weight as a whole number; 0 for what is none.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts from floats saturate, and it is positive"
)]
fn whole(weight: f64) -> u64 {
    if is_weight(weight) { weight.round() as u64 } else { 0 }
}

/// A place in a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CircuitPlace {
    /// The first.
    Guard,
    /// One in between; also what directory requests go by.
    Middle,
    /// The last.
    Exit,
}

/// Which case of the specification a network is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Case {
    /// 1: neither guards nor exits are scarce.
    Plenty,
    /// 2a: both are, and one so much that it gets all of D.
    BothScarceOneRare,
    /// 2b: both are, and all places can be balanced with exits in the middle.
    BothScarceBalanced,
    /// 2b, second set of constraints: both are, and guards and exits stay what they are.
    BothScarceFixed,
    /// 2b with M > T/3: there is too much in the middle to be balanced.
    TooMuchMiddle,
    /// 3a: one is scarce, also with all of D.
    OneScarce,
    /// 3b: one is scarce, and D makes up for it.
    OneScarceBalanced,
}

impl Case {
    /// Whether all three places carry the same in it.
    #[must_use]
    pub const fn is_balanced(self) -> bool {
        !matches!(self, Self::BothScarceOneRare | Self::TooMuchMiddle | Self::OneScarce)
    }
}

/// Why a network has no bandwidth-weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoWeights {
    /// A class has nothing, which is possible before method 26 only: the formulas would divide by
    /// it.
    #[error("no relay is in the class {}", .0.name())]
    EmptyClass(Position),
    /// The specification's last resort gives numbers that are not shares of anything.
    #[error("there is too much bandwidth in the middle to divide the rest by dir-spec 3.8.3")]
    OutOfRange,
    /// `bwweightscale` is not within 1 and 2^31 - 1.
    #[error("the scale of weights is {0}, but must be within 1 and 2147483647")]
    BadScale(u32),
}

/// The bandwidth-weights of a consensus, in the specification's words: W, the place, the class (g,
/// m, e, d).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// What all of them are parts of.
    pub scale: u32,
    /// By which case they were computed.
    pub case: Case,
    /// Guards in the first place.
    pub wgg: u32,
    /// Those that are both in the first place.
    pub wgd: u32,
    /// Guards in the middle.
    pub wmg: u32,
    /// Exits in the middle.
    pub wme: u32,
    /// Those that are both in the middle.
    pub wmd: u32,
    /// Exits in the last place.
    pub wee: u32,
    /// Those that are both in the last place.
    pub wed: u32,
}

impl Weights {
    /// Those of a network whose classes have these sums of weights.
    ///
    /// # Errors
    /// [`NoWeights`] where the specification has no solution.
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

    /// How much of a relay's weight counts in this place, from 0 to 1. An exit is not a guard:
    /// there is no weight for that.
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
    /// As a consensus' footer has them, after `bandwidth-weights`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scale, wgg, wgd, wmg, wme, wmd, wee, wed, .. } = self;
        write!(f, "Wbd={wmd} Wbe={wme} Wbg={wmg} Wbm={scale} Wdb={scale} Web={scale} Wed={wed} ")?;
        write!(f, "Wee={wee} Weg={wed} Wem={wee} Wgb={scale} Wgd={wgd} Wgg={wgg} Wgm={wgg} ")?;
        write!(f, "Wmb={scale} Wmd={wmd} Wme={wme} Wmg={wmg} Wmm={scale}")
    }
}

/// The sums as they are reckoned with: wide enough for every product, and with a sign.
struct Classes {
    g: i128,
    m: i128,
    e: i128,
    d: i128,
    t: i128,
    /// The scale.
    one: i128,
}

/// The seven weights that are computed, before they are known to be within bounds.
#[derive(Clone, Copy)]
struct Shares {
    /// Wgg.
    gg: i128,
    /// Wgd.
    gd: i128,
    /// Wmg.
    mg: i128,
    /// Wme.
    me: i128,
    /// Wmd.
    md: i128,
    /// Wee.
    ee: i128,
    /// Wed.
    ed: i128,
}

impl Shares {
    /// The weights, if all are within 0 and the scale.
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

/// Divisions cut towards 0, as in C: authorities must agree to the last digit.
impl Classes {
    /// The shares, and by which case.
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

    /// Case 3 with few guards.
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

    /// Case 3 with few exits.
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
