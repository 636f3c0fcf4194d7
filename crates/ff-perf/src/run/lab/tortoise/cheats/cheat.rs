//! An attempt to evade the limit, with its result, as text, JSON and a row of a table.

use serde::Serialize;

/// An attempt to evade the limit, with its result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(in crate::run::lab::tortoise) struct Cheat {
    /// The paper's claim that it tests; empty if there is none.
    pub(in crate::run::lab::tortoise) id: &'static str,
    /// What the client does.
    pub(in crate::run::lab::tortoise) cheat: String,
    /// Bytes per second of its links, divided by the limit; `None` if it failed.
    pub(in crate::run::lab::tortoise) times_the_limit: Option<f64>,
    /// Lower bound of the expected result.
    pub(in crate::run::lab::tortoise) low: f64,
    /// Upper bound of the expected result; `null` if unbounded.
    pub(in crate::run::lab::tortoise) high: f64,
    /// The result in each second; empty if only its mean was observed.
    pub(in crate::run::lab::tortoise) each_second: Vec<f64>,
    /// Reason of a failure.
    pub(in crate::run::lab::tortoise) reason: String,
}

impl Cheat {
    /// Whether the result is within its bounds.
    pub(in crate::run::lab::tortoise) fn holds(&self) -> bool {
        self.times_the_limit.is_some_and(|times| (self.low..=self.high).contains(&times))
    }

    pub(in crate::run::lab::tortoise) fn line(&self) -> String {
        let verdict = if self.holds() { "as expected" } else { "NOT AS EXPECTED" };
        let times = match self.times_the_limit {
            Some(times) => format!("{times:.2} times the limit"),
            None => format!("failed: {}", self.reason),
        };
        let expected = match self.high.is_finite() {
            true => format!("{:.2} to {:.2}", self.low, self.high),
            false => format!("{:.2} or more", self.low),
        };
        let mut line = format!("{:<4} {}: {times} ({verdict}: {expected})", self.id, self.cheat);
        if !(self.holds() || self.each_second.is_empty()) {
            line.push_str(&format!("; in each second: {}", self.each_second()));
        }
        line
    }

    /// The result in each second, as text.
    fn each_second(&self) -> String {
        let texts: Vec<_> = self.each_second.iter().map(|times| format!("{times:.2}")).collect();
        texts.join(" ")
    }

    pub(in crate::run::lab::tortoise) fn cells(&self) -> Vec<String> {
        let times = self.times_the_limit.map_or_else(String::new, |times| times.to_string());
        let numbers = [self.low, self.high].map(|bound| bound.to_string());
        let [low, high] = numbers;
        let (id, cheat, reason) = (self.id.to_owned(), self.cheat.clone(), self.reason.clone());
        vec![id, cheat, times, low, high, self.each_second(), reason]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_was_expected() {
        let cheat = |times_the_limit, high| Cheat {
            id: "T29",
            cheat: "two guards".to_owned(),
            times_the_limit,
            low: 1.7,
            high,
            each_second: vec![1.0, 0.5],
            reason: "no stream".to_owned(),
        };
        let line = cheat(Some(1.94), 2.2).line();
        assert_eq!(line, "T29  two guards: 1.94 times the limit (as expected: 1.70 to 2.20)");
        let line = cheat(Some(1.0), f64::INFINITY).line();
        let end = "(NOT AS EXPECTED: 1.70 or more); in each second: 1.00 0.50";
        assert!(line.ends_with(end), "{line}");
        let failed = cheat(None, 2.2);
        assert!(!failed.holds() && failed.line().contains("failed: no stream"));
    }
}
