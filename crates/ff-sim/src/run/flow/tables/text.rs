//! Simulations and their means as text.

use std::fmt::Write as _;

use super::{Run, means};

/// Simulations as text.
pub(in crate::run::flow) fn text(runs: &[Run]) -> String {
    let mut text = String::from(
        "weights       load  seed  first byte  50 KiB   1 MiB   5 MiB  timeouts      throughput  weight error  network\n",
    );
    for run in runs {
        let secs = |secs: Option<f64>| secs.map_or("-".to_owned(), |secs| format!("{secs:.2} s"));
        let [small, middle, large] = run.last_byte_secs.map(secs);
        let timeouts = run.timeouts.map_or("-".to_owned(), |part| format!("{:.2} %", part * 100.0));
        let error = run.weight_error.map_or("-".to_owned(), |e| format!("{:.1} %", e * 100.0));
        let _ = writeln!(
            text,
            "{:<13} {:>4} {:>5} {:>11} {small:>7} {middle:>7} {large:>7} {timeouts:>9} {:>8.2} Gbit/s {error:>13}  {}",
            run.weights,
            run.load,
            run.seed,
            secs(run.first_byte_secs),
            run.throughput_gbit_per_sec,
            run.network
        );
    }
    text.push_str(
        "weight error: by usable capacity, the capacity of a relay within its operator's limits\n",
    );
    let over = means(runs).into_iter().filter(|mean| mean.count > 1);
    for (at, mean) in over.enumerate() {
        if at == 0 {
            text.push_str("\nmeans with 95 % intervals (Student's t): over the seeds of a network; over networks, of their means\n");
        }
        let network = mean.network.as_deref().unwrap_or("all networks");
        let figure = |at: usize, scale: f64| {
            let (value, half) = mean.figures[at];
            if !value.is_finite() {
                return "-".to_owned();
            }
            let half = half.map_or("?".to_owned(), |half| format!("{:.2}", half * scale));
            format!("{:.2} ± {half}", value * scale)
        };
        let _ = writeln!(
            text,
            "{:<13} {:>4}  {} of {network}: first byte {} s, 50 KiB {} s, 1 MiB {} s, 5 MiB {} s, timeouts {} %, {} Gbit/s",
            mean.weights,
            mean.load,
            mean.count,
            figure(0, 1.0),
            figure(1, 1.0),
            figure(2, 1.0),
            figure(3, 1.0),
            figure(7, 100.0),
            figure(11, 1.0)
        );
    }
    text
}

/// Closed loops as text.
pub(in crate::run::flow) fn loops_text(runs: &[Run], rounds: u32, minutes: u32) -> String {
    if runs.iter().all(|run| run.loop_weight_errors.is_empty()) {
        return String::new();
    }
    format!(
        "\nclosed loops: time is compressed, {rounds} rounds of {minutes} min stand for 18 h each\n"
    )
}
