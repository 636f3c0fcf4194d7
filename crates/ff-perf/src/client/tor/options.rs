//! tor's options, which measuring needs otherwise, and what they were before.
//!
//! They are set in one command, so that all of them are or none is, and set back when [`Taken`] is dropped. A process that
//! is killed leaves them as they are; tor then has its torrc's again after SIGHUP or a restart.

use std::collections::BTreeMap;

use ff_lab::{Control, Reply, Result};

/// Options that leave circuits and streams to us, and take away what would disturb: circuits of tor's own, a timeout
/// that it learns, the end of streams that are not answered for ten seconds, the refusal of the addresses that probes
/// ask for, the end of circuits that were used for ten minutes, and the round in which tor, every half minute, closes
/// circuits that a refusal has made too old.
const OPTIONS: [(&str, &str); 8] = [
    ("__LeaveStreamsUnattached", "1"),
    ("__DisablePredictedCircuits", "1"),
    ("LearnCircuitBuildTimeout", "0"),
    ("CircuitBuildTimeout", "600"),
    ("CircuitStreamTimeout", "1200"),
    ("ClientRejectInternalAddresses", "0"),
    ("MaxCircuitDirtiness", "2 days"),
    ("NewCircuitPeriod", "2 days"),
];

/// Values by option as tor tells them: none of one that is not set, several of a list.
type Values = BTreeMap<String, Vec<String>>;

/// A tor's options, taken over.
pub(super) struct Taken {
    /// Its control connection.
    control: Control,
    /// Which ones are ours, and with what.
    options: &'static [(&'static str, &'static str)],
    /// What they were.
    before: Values,
    /// What tor says that they are now.
    ours: Values,
    /// Whether they are still to be set back.
    is_owed: bool,
}

impl Drop for Taken {
    fn drop(&mut self) {
        // There is nobody left who could do something about an error.
        let _ = self.give_back();
    }
}

impl Taken {
    /// Remembers the options, and sets them.
    ///
    /// # Errors
    /// What tor says; then nothing has changed.
    pub(super) fn new(control: Control) -> Result<Self> {
        Self::of(control, &OPTIONS)
    }

    /// These options.
    fn of(mut control: Control, options: &'static [(&'static str, &'static str)]) -> Result<Self> {
        let before = ask(&mut control, options)?;
        set(&mut control, options)?;
        let mut taken = Self { control, options, before, ours: Values::new(), is_owed: true };
        taken.ours = ask(&mut taken.control, options)?;
        Ok(taken)
    }

    /// Whether tor had all of them already as we want them: then one who was killed has left them so, and what they were
    /// before is not known.
    pub(super) fn is_left_over(&self) -> bool {
        self.before == self.ours
    }

    /// Where commands go.
    pub(super) fn control(&mut self) -> &mut Control {
        &mut self.control
    }

    /// Sets again what somebody else has set since, as a tor does that reads its torrc again. What came so is what is
    /// set back at the end.
    ///
    /// # Errors
    /// What tor says.
    pub(super) fn hold(&mut self) -> Result<()> {
        let now = ask(&mut self.control, self.options)?;
        if now == self.ours {
            return Ok(());
        }
        let others = now.into_iter().filter(|(name, values)| self.ours.get(name) != Some(values));
        self.before.extend(others);
        set(&mut self.control, self.options)
    }

    /// Sets the options back, once.
    ///
    /// # Errors
    /// What tor says.
    pub(super) fn give_back(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.is_owed) {
            return Ok(());
        }
        self.control.command(&back(&self.before)).map(drop)
    }
}

/// What the options are.
fn ask(control: &mut Control, options: &[(&str, &str)]) -> Result<Values> {
    let names: Vec<_> = options.iter().map(|(name, _)| *name).collect();
    Ok(values(&control.command(&format!("GETCONF {}", names.join(" ")))?))
}

/// Sets the options.
fn set(control: &mut Control, options: &[(&str, &str)]) -> Result<()> {
    let pairs: Vec<_> = options.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
    control.command(&format!("SETCONF {}", pairs.join(" "))).map(drop)
}

/// What a reply to GETCONF says (control-spec 3.3).
fn values(reply: &Reply) -> Values {
    let mut all = Values::new();
    for line in &reply.lines {
        let (name, value) = match line.text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (line.text.as_str(), None),
        };
        all.entry(name.to_owned()).or_default().extend(value.map(str::to_owned));
    }
    all
}

/// The command that sets these: those without a value get their default.
fn back(values: &Values) -> String {
    let mut line = "RESETCONF".to_owned();
    for (name, values) in values {
        if values.is_empty() {
            line = format!("{line} {name}");
        }
        for value in values {
            // What has odd letters in it, tor tells in quotes already, as it wants to read it.
            let quoted =
                if value.starts_with('"') { value.clone() } else { format!("\"{value}\"") };
            line = format!("{line} {name}={quoted}");
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use ff_lab::ReplyLine;

    use super::*;

    /// A reply of these lines.
    fn reply(lines: &[&str]) -> Reply {
        let line = |text: &&str| ReplyLine { text: (*text).to_owned(), data: None };
        Reply { code: 250, lines: lines.iter().map(line).collect() }
    }

    #[test]
    fn lists_quotes_and_what_is_not_set_go_back_as_they_came() {
        let told = reply(&["A=1", "B=a,b", "B=c d", "C", "D=\"x # \\\"y\\\"\""]);
        assert_eq!(
            back(&values(&told)),
            "RESETCONF A=\"1\" B=\"a,b\" B=\"c d\" C D=\"x # \\\"y\\\"\""
        );
    }
}
