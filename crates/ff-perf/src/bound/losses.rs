//! Which relays cost users most: by how much B would be higher without them.

use serde::Serialize;

use super::Capacities;

/// What leaving relays out changes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Loss {
    /// Who: a nickname, a family's first relay, a class.
    pub who: String,
    /// How many relays these are.
    pub relays: u64,
    /// What they have together, in kB/s.
    pub capacity_kbytes_per_sec: f64,
    /// B without them less B with them, in kB/s: above 0 if users would be faster without them.
    pub loss_kbytes_per_sec: f64,
}

/// Relays that are left out together.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Who.
    pub who: String,
    /// Places in the list of relays.
    pub relays: Vec<usize>,
}

/// What each group costs, the worst first; groups without which there would be no path are left out.
pub fn losses(
    relays: &[(f64, f64)],
    groups: impl IntoIterator<Item = Group>,
    bound: impl Fn(&Capacities) -> Option<f64>,
) -> Vec<Loss> {
    let Some(with) = bound(&Capacities::new(relays.iter().copied())) else { return Vec::new() };
    let loss = |group: Group| {
        let mut left = relays.to_vec();
        let mut capacity = 0.0;
        for &relay in &group.relays {
            // A capacity that is none is left out of all sums.
            capacity += std::mem::replace(&mut left[relay].0, f64::NAN);
        }
        let without = bound(&Capacities::new(left))?;
        Some(Loss {
            who: group.who,
            relays: group.relays.len() as u64,
            capacity_kbytes_per_sec: capacity,
            loss_kbytes_per_sec: without - with,
        })
    };
    let mut found: Vec<_> = groups.into_iter().filter_map(loss).collect();
    found.sort_by(|one, other| other.loss_kbytes_per_sec.total_cmp(&one.loss_kbytes_per_sec));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_costs_most_and_the_fastest_is_a_loss_to_lose() {
        let relays = [(10.0, 10.0), (9.0, 9.0), (1.0, 1.0), (4.0, 4.0)];
        let group =
            |who: &str, relays: &[usize]| Group { who: who.into(), relays: relays.to_vec() };
        let groups = [
            group("fast", &[0]),
            group("slow", &[2]),
            group("two", &[2, 3]),
            group("three", &[0, 1, 2]),
        ];
        let found = losses(&relays, groups, |left| left.uniform(2));
        let names: Vec<_> = found.iter().map(|loss| loss.who.as_str()).collect();
        assert_eq!(names, ["two", "slow", "fast"], "of one relay there is no path of two");
        // Pairs of 10, 9, 1, 4 have 9, 1, 4, 1, 4, 1 as their slowest: 20 / 6; without the 1 these are 9, 4, 4.
        assert!((found[1].loss_kbytes_per_sec - (17.0 / 3.0 - 20.0 / 6.0)).abs() < 1e-12);
        assert_eq!((found[0].relays, found[0].capacity_kbytes_per_sec), (2, 5.0));
        assert!(found[2].loss_kbytes_per_sec < 0.0);
    }
}
