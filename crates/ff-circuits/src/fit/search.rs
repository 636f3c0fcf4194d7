//! Minimises a function of a few parameters without derivatives (Nelder and Mead).
//!
//! It starts with a simplex around a point and ends when the simplex's values differ by less than a
//! tolerance. A function returns infinity outside of its domain.

/// The largest number of evaluations.
const MOST_EVALUATIONS: usize = 4000;

/// The best point found, and its value.
#[must_use]
pub(super) fn least<const N: usize>(
    start: [f64; N],
    step: f64,
    tolerance: f64,
    mut of: impl FnMut(&[f64; N]) -> f64,
) -> ([f64; N], f64) {
    let mut value = |point: &[f64; N]| {
        let value = of(point);
        if value.is_nan() { f64::INFINITY } else { value }
    };
    let mut simplex = vec![(start, value(&start))];
    for axis in 0..N {
        let mut point = start;
        point[axis] += step;
        let mut found = value(&point);
        if found.is_infinite() {
            point[axis] = start[axis] - step;
            found = value(&point);
        }
        simplex.push((point, found));
    }
    for _ in 0..MOST_EVALUATIONS / 2 {
        simplex.sort_by(|one, other| one.1.total_cmp(&other.1));
        // If all values are infinite, the difference is NaN.
        let apart = simplex[N].1 - simplex[0].1;
        if apart.is_nan() || apart <= tolerance {
            break;
        }
        turn(&mut simplex, &mut value);
    }
    simplex.sort_by(|one, other| one.1.total_cmp(&other.1));
    simplex[0]
}

/// Replaces the worst point of a sorted simplex by a better one, or shrinks the simplex towards the
/// best.
fn turn<const N: usize>(simplex: &mut [([f64; N], f64)], value: &mut impl FnMut(&[f64; N]) -> f64) {
    let (best, worst) = (simplex[0], simplex[N]);
    let mut centre = [0.0; N];
    for (point, _) in &simplex[..N] {
        for axis in 0..N {
            centre[axis] += point[axis] / N as f64;
        }
    }
    let mut at = |distance: f64| {
        let mut point = centre;
        for axis in 0..N {
            point[axis] += distance * (centre[axis] - worst.0[axis]);
        }
        (point, value(&point))
    };
    let mirrored = at(1.0);
    let found = if mirrored.1 < best.1 {
        let further = at(2.0);
        if further.1 < mirrored.1 { further } else { mirrored }
    } else if mirrored.1 < simplex[N - 1].1 {
        mirrored
    } else if mirrored.1 < worst.1 {
        let outside = at(0.5);
        if outside.1 <= mirrored.1 { outside } else { worst }
    } else {
        at(-0.5)
    };
    if found.1 < worst.1 {
        simplex[N] = found;
        return;
    }
    for corner in &mut simplex[1..] {
        for axis in 0..N {
            corner.0[axis] = f64::midpoint(corner.0[axis], best.0[axis]);
        }
        corner.1 = value(&corner.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curved_valley_is_walked_to_its_end() {
        let valley = |x: &[f64; 2]| (1.0 - x[0]).powi(2) + 100.0 * (x[1] - x[0] * x[0]).powi(2);
        let (point, value) = least([-1.2, 1.0], 0.5, 1e-14, valley);
        assert!(value < 1e-10 && (point[0] - 1.0).abs() < 1e-4, "{point:?} {value}");
    }

    #[test]
    fn a_function_without_a_domain_ends_at_once() {
        let (point, value) = least([3.0], 1.0, 1e-9, |_| f64::NAN);
        assert_eq!((point, value), ([3.0], f64::INFINITY));
    }
}
