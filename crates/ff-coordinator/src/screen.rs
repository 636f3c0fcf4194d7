//! The text for the user: a line a second, a progress bar on a terminal, and the summary.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use ff_plan::outcome::{ClientTraffic, Method, Outcome};
use ff_proto::aggregate::{Draw, Verdict};
use ff_proto::units::BytesPerSec;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::progress::Progress;

/// Shows progress on standard error.
pub struct Screen {
    /// On a terminal, the bar under the lines.
    bar: Option<ProgressBar>,
}

impl Default for Screen {
    fn default() -> Self {
        Self::new()
    }
}

impl Screen {
    /// A bar on a terminal, plain lines elsewhere.
    #[must_use]
    pub fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{bar:40} {pos}/{len} s  {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        // A terminal that cannot move its cursor (TERM=dumb) shows no bar, only lines.
        let bar = bar.filter(|bar| !bar.is_hidden());
        Self { bar }
    }

    /// Shows what happens.
    pub fn show(&self, progress: Progress<'_>) {
        match progress {
            Progress::Step(step) => self.step(step),
            Progress::Started { .. } => self.step("measuring"),
            Progress::Second { second, of, .. } => {
                self.line(&second_line(progress));
                if let Some(bar) = &self.bar {
                    bar.set_length(of.into());
                    bar.set_position(u64::from(second) + 1);
                }
            }
        }
    }

    /// Shows what is being done.
    fn step(&self, step: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(step.to_owned()),
            None => self.line(step),
        }
    }

    /// Writes a line above the bar.
    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            // Standard error may be closed, and that is not a reason to stop.
            None => drop(writeln!(std::io::stderr(), "{text}")),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A second as a line.
fn second_line(progress: Progress<'_>) -> String {
    let Progress::Second {
        second,
        of,
        measurement_bytes,
        background_bytes,
        round_trip_p50_micros,
        ..
    } = progress
    else {
        return String::new();
    };
    let mbit = |bytes| BytesPerSec::new(bytes).mbit();
    let background =
        background_bytes.map_or("   (none)".to_owned(), |bytes| format!("{:9.2}", mbit(bytes)));
    let total = mbit(measurement_bytes + background_bytes.unwrap_or(0));
    let round_trip = match round_trip_p50_micros {
        0 => "-".to_owned(),
        micros => format!("{:.1} ms", f64::from(u32::try_from(micros).unwrap_or(u32::MAX)) / 1e3),
    };
    format!(
        "second {:3}/{of}  measurement {:9.2}  background {background}  total {total:9.2} Mbit/s  RTT {round_trip}",
        second + 1,
        mbit(measurement_bytes),
    )
}

/// The summary for people.
#[must_use]
pub fn summary(outcome: &Outcome, clients: Option<&ClientTraffic>, files: &[PathBuf]) -> String {
    let rate = |rate: Option<BytesPerSec>| rate.map_or("none".to_owned(), |r| r.to_string());
    let name = if outcome.result == Ok(Verdict::LowerBound) { "at least" } else { "estimate" };
    let mut lines = vec![(name, rate(outcome.estimate))];
    lines.push(("truth", outcome.limit.map_or("unknown (no limit)".to_owned(), |l| l.to_string())));
    if let Some(percent) = outcome.error_percent() {
        lines.push(("error", format!("{percent:+.2} %")));
    }
    lines.push(("verdict", verdict(outcome)));
    if outcome.publishable().is_none() {
        lines.push(("draw", draw(outcome.draw)));
    }
    let cells = outcome.cells;
    lines.push((
        "cells",
        format!(
            "{} sent, {} {}, {} checked, {} bad",
            cells.sent,
            cells.echoed,
            returned(outcome.method),
            cells.checked,
            cells.bad
        ),
    ));
    let millis = |ms: Option<f64>| ms.map_or("-".to_owned(), |ms| format!("{ms:.1}"));
    let rtt = outcome.round_trip;
    lines.push((
        "RTT",
        format!(
            "p50 {}  p90 {}  p99 {}  max {} ms",
            millis(rtt.p50),
            millis(rtt.p90),
            millis(rtt.p99),
            millis(rtt.max)
        ),
    ));
    let target = outcome.cpu.target.map_or(String::new(), |cpu| format!(", target {cpu:.2} s"));
    lines.push(("CPU", format!("measurers {:.2} s{target}", outcome.cpu.measurers)));
    if let Some(crypto) = outcome.crypto {
        lines.push(("cipher", crypto.name().to_owned()));
    }
    lines.extend(outcome.paths.iter().map(|path| ("path", path.to_string())));
    let sockets = outcome.sockets;
    lines.push(("sockets", format!("{} of {} opened", sockets.opened, sockets.asked)));
    if let Some(clients) = clients {
        lines.push(("clients", clients_line(clients)));
    }
    for file in files {
        lines.push(("file", file.display().to_string()));
    }
    lines.iter().map(|(name, value)| format!("{name:>9}  {value}\n")).collect()
}

/// What cells have done that are counted.
fn returned(method: Method) -> &'static str {
    match method {
        Method::Echo => "echoed",
        Method::Transit => "arrived",
    }
}

/// The verdict and what to make of it.
fn verdict(outcome: &Outcome) -> String {
    match &outcome.result {
        Ok(Verdict::Conclusive) => "conclusive".to_owned(),
        Ok(Verdict::NeedsMoreCapacity) => match outcome.allocated {
            Some(_) => "needs more capacity: measure again with a greater --rate",
            None => "needs to know the team's capacity: measure again with --rate set to it",
        }
        .to_owned(),
        Ok(Verdict::MeasurerLimited) => {
            "measurer limited: the measurers were the bottleneck, so the relay can do more"
                .to_owned()
        }
        Ok(Verdict::PathLimited) => {
            "path limited: the network path could not carry much more, so the relay may be faster; \
             measure again with more --sockets, or from another host"
                .to_owned()
        }
        Ok(Verdict::Unsettled) => "unsettled: the rate never stopped growing".to_owned(),
        Ok(Verdict::ShortGrant) => format!(
            "short grant: the relay granted {} s of {} s, and may not last longer",
            outcome.granted_secs.unwrap_or(0),
            outcome.asked_secs
        ),
        Ok(Verdict::LowerBound) => {
            "lower bound: our own traffic; that of the relay's clients is unknown".to_owned()
        }
        Err(failure) => format!("failed: {} ({})", failure.message, failure.code()),
    }
}

/// How the attempt counts when the relay is measured again.
fn draw(draw: Draw) -> String {
    match draw {
        Draw::Void => "does not count".to_owned(),
        Draw::Blank => "counts, without a value".to_owned(),
        Draw::Value(value) => format!("counts as {value}"),
    }
}

/// The clients' rates before, during and after.
fn clients_line(clients: &ClientTraffic) -> String {
    let rate = |bytes: u64| format!("{:.1}", BytesPerSec::new(bytes).mbit());
    let rates = |bytes: &[u64]| bytes.iter().map(|&b| rate(b)).collect::<Vec<_>>().join(", ");
    let mut during = clients.during_bytes.clone();
    during.sort_unstable();
    let during = match during[..] {
        [] => "none".to_owned(),
        [least, .., most] => {
            format!("{} to {}, median {}", rate(least), rate(most), rate(during[during.len() / 2]))
        }
        [one] => rate(one),
    };
    format!(
        "{} Mbit/s offered; by second, before {}; during {during}; after {}",
        rate(clients.offered_bytes_per_sec),
        rates(&clients.before_bytes),
        rates(&clients.after_bytes)
    )
}
