//! Figures of clients' downloads: 9a to 9c of the paper, from one row per simulation.

use ff_report::figure::{Axis, Figure};

/// The drawn results of one simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct TransferRow {
    /// Name of the network.
    pub network: String,
    /// Name of the weights by which clients chose relays.
    pub weights: String,
    /// Users' demand, as a part of that of January 2019.
    pub load: f64,
    /// Median time to the first byte, in seconds.
    pub first_secs: Option<f64>,
    /// Median times to the last byte of 50 KiB, 1 MiB and 5 MiB, in seconds; `None` if no download
    /// finished.
    pub last_secs: [Option<f64>; 3],
    /// The share of downloads that timed out.
    pub timeouts: Option<f64>,
    /// Throughput of relays, in Gbit/s.
    pub gbit: f64,
}

/// Names of the download sizes.
const SIZES: [&str; 3] = ["50 KiB", "1 MiB", "5 MiB"];

/// The note below all three figures.
const NOTE: &str = "Points are means over networks, or over the simulations of a single network; they are shifted so that \
                    they do not hide each other. Faint dots: the values averaged. Bars: 95 % intervals of the mean \
                    (Student's t); a bar without an end continues outside the frame.";

/// Figures 9a (times to first and last byte), 9b (timeouts) and 9c (throughput) over the load:
/// means over networks, or over the simulations of a single network, with the values and 95 %
/// intervals.
#[must_use]
pub fn figures(rows: &[TransferRow]) -> Vec<Figure> {
    if rows.is_empty() {
        return Vec::new();
    }
    let figure = |name: &'static str, title: &str, y: Axis| {
        let load = Axis::linear("load, as a share of January 2019's").tight();
        Figure::new(name, title, load, y.tight()).noting(NOTE)
    };
    let mut times = figure("fig9a", "Download times (Fig. 9a)", Axis::log("median time, s"));
    let timeouts = Axis::linear("downloads that timed out, fraction");
    let mut timeouts = figure("fig9b", "Timeouts (Fig. 9b)", timeouts);
    let gbit = Axis::linear("what relays carried, Gbit/s");
    let mut throughput = figure("fig9c", "Throughput (Fig. 9c)", gbit);
    let names = names(rows);
    for name in &names {
        let first = values(rows, name, |row| row.first_secs);
        times = times.with_means("first byte", *name, first);
        timeouts = timeouts.with_means("", *name, values(rows, name, |row| row.timeouts));
        throughput = throughput.with_means("", *name, values(rows, name, |row| Some(row.gbit)));
    }
    for (index, size) in SIZES.iter().enumerate() {
        for name in &names {
            let last = values(rows, name, |row| row.last_secs[index]);
            times = times.with_means(&format!("last byte of {size}"), *name, last);
        }
    }
    vec![times, timeouts, throughput]
}

/// The weights, in order of appearance.
fn names(rows: &[TransferRow]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| row.load.is_finite()) {
        if !names.contains(&row.weights.as_str()) {
            names.push(&row.weights);
        }
    }
    names
}

/// The values at each load for some weights: the mean of each network, or the value of each
/// simulation of a single network.
fn values(
    rows: &[TransferRow],
    weights: &str,
    of: impl Fn(&TransferRow) -> Option<f64>,
) -> Vec<(f64, Vec<f64>)> {
    let those = || rows.iter().filter(|row| row.weights == weights && row.load.is_finite());
    let mut loads: Vec<f64> = those().map(|row| row.load).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    let at = |load: f64| {
        let mut networks: Vec<(&str, Vec<f64>)> = Vec::new();
        for row in those().filter(|row| row.load.total_cmp(&load).is_eq()) {
            let Some(value) = of(row).filter(|value| value.is_finite()) else { continue };
            match networks.iter_mut().find(|(network, _)| *network == row.network) {
                Some((_, values)) => values.push(value),
                None => networks.push((&row.network, vec![value])),
            }
        }
        let values = match networks.as_slice() {
            [(_, values)] => values.clone(),
            _ => networks.iter().filter_map(|(_, values)| ff_report::stats::mean(values)).collect(),
        };
        (load, values)
    };
    loads.into_iter().map(at).filter(|(_, values)| !values.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(network: &str, weights: &str, load: f64, gbit: f64) -> TransferRow {
        TransferRow {
            network: network.to_owned(),
            weights: weights.to_owned(),
            load,
            first_secs: Some(1.0),
            last_secs: [Some(2.0), Some(4.0), None],
            timeouts: Some(0.1),
            gbit,
        }
    }

    #[test]
    fn each_load_has_the_mean_of_its_simulations() {
        let rows = [
            row("n", "a", 1.3, 30.0),
            row("n", "a", 1.0, 10.0),
            row("n", "a", 1.0, 20.0),
            row("n", "b", 1.0, 7.0),
        ];
        let [times, timeouts, throughput] = figures(&rows).try_into().expect("three");
        assert_eq!(throughput.curves[0].points, [(1.0, 15.0), (1.3, 30.0)]);
        assert_eq!(throughput.curves[0].spread[0].values, [10.0, 20.0]);
        // By hand: the deviation of 10 and 20 is 7.071; divided by √2 and times t = 12.706 it is
        // 63.53.
        let (low, high) = throughput.curves[0].spread[0].interval.expect("of two");
        assert!((low + 48.53).abs() < 0.01 && (high - 78.53).abs() < 0.01, "{low} to {high}");
        assert_eq!(throughput.curves[0].spread[1].interval, None, "one has no interval");
        assert_eq!(throughput.curves[1].points, [(1.0, 7.0)]);
        assert_eq!(timeouts.curves.len(), 2);
        assert_eq!(times.curves.len(), 6, "nothing is known of 5 MiB");
        assert_eq!(times.panels, ["first byte", "last byte of 50 KiB", "last byte of 1 MiB"]);
        assert!(times.x.is_tight && times.y.is_tight, "axes begin where the data does");
        assert!(figures(&[]).is_empty());
    }

    #[test]
    fn a_mean_over_networks_counts_each_once() {
        let rows = [row("x", "a", 1.0, 10.0), row("x", "a", 1.0, 20.0), row("y", "a", 1.0, 25.0)];
        let [_, _, throughput] = figures(&rows).try_into().expect("three");
        assert_eq!(throughput.curves[0].points, [(1.0, 20.0)]);
        assert_eq!(throughput.curves[0].spread[0].values, [15.0, 25.0]);
    }

    #[test]
    fn no_panel_has_more_than_four_curves() {
        let systems = ["a", "b", "c", "d", "e", "f"];
        for figure in figures(&systems.map(|name| row("n", name, 1.0, 9.0))) {
            for panel in 0..figure.panels.len() {
                let curves = figure.curves.iter().filter(|curve| curve.panel == panel).count();
                assert!((1..=4).contains(&curves), "{}: {curves}", figure.name);
            }
        }
    }
}
