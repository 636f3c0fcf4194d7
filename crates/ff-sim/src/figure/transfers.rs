//! Figures of what clients see: 9a to 9c of the paper, from one row for each simulation.

use super::{Axis, Figure};

/// What came out of one simulation, as far as it is drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// By which weights clients chose relays.
    pub weights: String,
    /// How much users asked for, as a part of what they did.
    pub load: f64,
    /// Median seconds to the first byte.
    pub first_secs: Option<f64>,
    /// Median seconds to the last byte of 50 KiB, 1 MiB and 5 MiB; none where none came.
    pub last_secs: [Option<f64>; 3],
    /// The part of downloads that timed out.
    pub timeouts: Option<f64>,
    /// What relays carried, in Gbit/s.
    pub gbit: f64,
}

/// Names of the sizes of downloads.
const SIZES: [&str; 3] = ["50 KiB", "1 MiB", "5 MiB"];

/// Figures 9a (times to the first and to the last bytes), 9b (timeouts) and 9c (throughput), over the load. Where
/// several networks or seeds have been simulated, their mean is drawn.
#[must_use]
pub fn figures(rows: &[Row]) -> Vec<Figure> {
    if rows.is_empty() {
        return Vec::new();
    }
    let load = || Axis::linear("load, as a part of January 2019's");
    let times =
        Figure::new("fig9a", "Times of downloads (Fig. 9a)", load(), Axis::log("median time, s"));
    let timeouts = Axis::linear("downloads that timed out, as a part of 1");
    let timeouts = Figure::new("fig9b", "Timeouts (Fig. 9b)", load(), timeouts);
    let gbit = Axis::linear("what relays carried, Gbit/s");
    let throughput = Figure::new("fig9c", "Throughput (Fig. 9c)", load(), gbit);
    let mut names: Vec<&str> = Vec::new();
    rows.iter().filter(|row| row.load.is_finite()).for_each(|row| {
        if !names.contains(&row.weights.as_str()) {
            names.push(&row.weights);
        }
    });
    let mut all = [times, timeouts, throughput];
    for name in names {
        let [times, timeouts, throughput] = all;
        let first = means(rows, name, |row| row.first_secs);
        let mut times = times.with_marks(format!("{name}: first byte"), first);
        for (index, size) in SIZES.iter().enumerate() {
            let last = means(rows, name, |row| row.last_secs[index]);
            times = times.with_marks(format!("{name}: last byte of {size}"), last);
        }
        all = [
            times,
            timeouts.with_marks(name, means(rows, name, |row| row.timeouts)),
            throughput.with_marks(name, means(rows, name, |row| Some(row.gbit))),
        ];
    }
    all.into()
}

/// The mean of a value at each load, for some weights.
fn means(rows: &[Row], weights: &str, of: impl Fn(&Row) -> Option<f64>) -> Vec<(f64, f64)> {
    let those = || rows.iter().filter(|row| row.weights == weights && row.load.is_finite());
    let mut loads: Vec<f64> = those().map(|row| row.load).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    let mean = |load: f64| {
        let at = those().filter(|row| row.load.total_cmp(&load).is_eq());
        let good: Vec<f64> = at.filter_map(&of).filter(|value| value.is_finite()).collect();
        crate::stats::mean(&good).map(|mean| (load, mean))
    };
    loads.into_iter().filter_map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_load_has_the_mean_of_its_simulations() {
        let row = |weights: &str, load, gbit| Row {
            weights: weights.to_owned(),
            load,
            first_secs: Some(1.0),
            last_secs: [Some(2.0), Some(4.0), None],
            timeouts: Some(0.1),
            gbit,
        };
        let rows =
            [row("a", 1.3, 30.0), row("a", 1.0, 10.0), row("a", 1.0, 20.0), row("b", 1.0, 7.0)];
        let [times, timeouts, throughput] = figures(&rows).try_into().expect("three");
        assert_eq!(throughput.curves[0].points, [(1.0, 15.0), (1.3, 30.0)]);
        assert_eq!(throughput.curves[1].points, [(1.0, 7.0)]);
        assert_eq!(timeouts.curves.len(), 2);
        assert_eq!(times.curves.len(), 6, "nothing is known of 5 MiB");
        assert!(figures(&[]).is_empty());
    }
}
