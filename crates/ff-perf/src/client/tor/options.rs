//! tor's options, which measuring needs otherwise, and what they were before.
//!
//! They are set in one command, so that all of them are or none is, and set back when [`Taken`] is
//! dropped. A process that is killed leaves them as they are; tor then has its torrc's again after
//! SIGHUP or a restart.

use std::collections::BTreeMap;
use std::sync::mpsc;

use ff_lab::{Control, Error, Reply, Result};

/// Options that leave circuits and streams to us, and take away what would disturb: circuits of
/// tor's own, a timeout that it learns, the end of streams that are not answered for ten seconds,
/// the refusal of the addresses that probes ask for, the end of circuits that were used for ten
/// minutes, and the round in which tor, every half minute, closes circuits that a refusal has made
/// too old.
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

/// Options by which tor is reached, or which end it.
const REACHED_BY: [&str; 9] = [
    "SocksPort",
    "ControlPort",
    "ControlSocket",
    "CookieAuthentication",
    "CookieAuthFile",
    "HashedControlPassword",
    "DataDirectory",
    "DisableNetwork",
    "__OwningControllerProcess",
];

/// Values by option as tor tells them: none of one that is not set, several of a list.
type Values = BTreeMap<String, Vec<String>>;

/// Options by name and value. The names of lists come once for each value.
type Lines = [(String, String)];

/// A tor's options, taken over.
pub(super) struct Taken {
    /// Its control connection.
    control: Control,
    /// Which ones are ours, and with what.
    options: Vec<(String, String)>,
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
    /// Remembers the options and further ones, and sets them.
    ///
    /// # Errors
    /// What tor says; then nothing has changed.
    pub(super) fn new(control: Control, further: &Lines) -> Result<Self> {
        let ours = OPTIONS.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self::of(control, ours.into_iter().chain(further.iter().cloned()).collect())
    }

    fn of(mut control: Control, options: Vec<(String, String)>) -> Result<Self> {
        let before = ask(&mut control, &options)?;
        set(&mut control, &options)?;
        let mut taken = Self { control, options, before, ours: Values::new(), is_owed: true };
        taken.ours = ask(&mut taken.control, &taken.options)?;
        Ok(taken)
    }

    /// Whether tor already had our values of the options that every run needs: a run that was
    /// killed has left them, and what they were before is not known.
    pub(super) fn is_left_over(&self) -> bool {
        self.before
            .iter()
            .filter(|(name, _)| is_ours(name))
            .all(|(name, values)| self.ours.get(name) == Some(values))
    }

    /// Where commands go.
    pub(super) fn control(&mut self) -> &mut Control {
        &mut self.control
    }

    /// Sets again what somebody else has set since, as a tor does that reads its torrc again. What
    /// came so is what is set back at the end.
    ///
    /// # Errors
    /// What tor says.
    pub(super) fn hold(&mut self) -> Result<()> {
        let now = ask(&mut self.control, &self.options)?;
        if now == self.ours {
            return Ok(());
        }
        let others = now.into_iter().filter(|(name, values)| self.ours.get(name) != Some(values));
        self.before.extend(others);
        set(&mut self.control, &self.options)
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

/// Options that a tor has until this is dropped; its other options stay.
pub(super) struct Lent {
    /// The options.
    taken: Taken,
    /// Where it is told whether they are set back.
    tell: mpsc::SyncSender<Result<()>>,
}

impl Lent {
    /// Sets these options. Circuits that no stream uses are closed, now and at the end: they were built by other options.
    /// Whether they are set back comes from the receiver.
    ///
    /// # Errors
    /// What tor says; then nothing has changed.
    pub(super) fn new(
        control: Control,
        lines: &Lines,
    ) -> Result<(Self, mpsc::Receiver<Result<()>>)> {
        let (tell, told) = mpsc::sync_channel(1);
        let mut lent = Self { taken: Taken::of(control, lines.to_vec())?, tell };
        close_unused(lent.taken.control())?;
        Ok((lent, told))
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let given = self.taken.give_back();
        if given.is_ok() {
            // tor closes unused circuits itself, later.
            let _ = close_unused(self.taken.control());
        }
        let _ = self.tell.send(given);
    }
}

/// Closes the circuits that no stream uses.
fn close_unused(control: &mut Control) -> Result<()> {
    let status = control.getinfo("circuit-status")?;
    for id in status.lines().filter_map(|line| line.split(' ').next()) {
        // It may have ended meanwhile.
        let _ = control.command(&format!("CLOSECIRCUIT {id} IfUnused"));
    }
    Ok(())
}

/// Whether every run needs this option with a value of its own.
fn is_ours(name: &str) -> bool {
    OPTIONS.iter().any(|(ours, _)| ours.eq_ignore_ascii_case(name))
}

/// Whether an arm must leave this option as it is: tor is reached by it, or given paths need it.
pub(super) fn is_needed(name: &str, has_given_paths: bool) -> bool {
    let is_way = REACHED_BY.iter().any(|by| by.eq_ignore_ascii_case(name));
    is_way || has_given_paths && is_ours(name)
}

/// Which of these options tor refuses, and its words; none if it takes all of them together. None
/// of them stays set.
///
/// # Errors
/// What else goes wrong on a control connection, each of which `open` opens.
pub(super) fn refused(
    open: impl Fn() -> Result<Control>,
    lines: &Lines,
) -> Result<Option<(usize, String)>> {
    let tried = |count: usize| -> Result<Option<String>> {
        match Taken::of(open()?, lines[..count].to_vec()) {
            Ok(mut taken) => taken.give_back().map(|()| None),
            Err(Error::Refused { reply, .. }) => Ok(Some(reply)),
            Err(error) => Err(error),
        }
    };
    let Some(last) = lines.len().checked_sub(1) else { return Ok(None) };
    let Some(whole) = tried(lines.len())? else { return Ok(None) };
    // One option may need another one, so the first that makes it wrong is looked for only now.
    for count in 1..lines.len() {
        if let Some(reply) = tried(count)? {
            return Ok(Some((count - 1, reply)));
        }
    }
    Ok(Some((last, whole)))
}

/// The names of these options that a tor has set although its torrc, of this text, does not: somebody has set them over a control
/// connection, such as a run that was killed. What a torrc includes is not known, nor which values it has lost.
pub(super) fn not_of_torrc(
    control: &mut Control,
    torrc: &str,
    lines: &Lines,
) -> Result<Vec<String>> {
    if lines.is_empty() {
        return Ok(Vec::new());
    }
    Ok(only_in(&control.getinfo("config-text")?, torrc, lines))
}

/// The names of these options that one text has and the other has not.
fn only_in(config: &str, torrc: &str, lines: &Lines) -> Vec<String> {
    let has = |text: &str, name: &str| {
        let mut names = text.lines().filter_map(|line| line.split_whitespace().next());
        names.any(|known| known.trim_start_matches('+').eq_ignore_ascii_case(name))
    };
    let mut names: Vec<String> = lines.iter().map(|(name, _)| name.clone()).collect();
    names.retain(|name| has(config, name) && !has(torrc, name));
    names.dedup();
    names
}

/// What the options are.
fn ask(control: &mut Control, options: &Lines) -> Result<Values> {
    Ok(values(&control.command(&question(options))?))
}

/// The command that asks for them, each once.
fn question(options: &Lines) -> String {
    let mut names = Vec::<&str>::new();
    for (name, _) in options {
        if !names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            names.push(name);
        }
    }
    format!("GETCONF {}", names.join(" "))
}

fn set(control: &mut Control, options: &Lines) -> Result<()> {
    control.command(&setting(options)).map(drop)
}

/// The command that sets them (control-spec 2.1.1: quoted strings).
fn setting(options: &Lines) -> String {
    let mut line = "SETCONF".to_owned();
    for (name, value) in options {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"");
        line = format!("{line} {name}=\"{value}\"");
    }
    line
}

/// The values of a reply to GETCONF (control-spec 3.3).
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
    fn a_list_is_asked_for_once_and_quotes_are_quoted() {
        let lines = [("Bridge", "192.0.2.1:1"), ("UseBridges", "1"), ("bridge", "a \"b\\")];
        let lines = lines.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(question(&lines), "GETCONF Bridge UseBridges");
        assert_eq!(
            setting(&lines),
            r#"SETCONF Bridge="192.0.2.1:1" UseBridges="1" bridge="a \"b\\""#
        );
        assert!(is_needed("circuitbuildtimeout", true) && !is_needed("CircuitBuildTimeout", false));
        assert!(is_needed("__OwningControllerProcess", false));
        assert!(is_needed("socksport", false) && !is_needed("ConfluxEnabled", true));
    }

    #[test]
    fn options_of_a_run_that_was_killed_are_those_that_the_torrc_does_not_have() {
        let lines =
            [("UseBridges", "1"), ("Bridge", "a"), ("Bridge", "b"), ("numentryguards", "2")];
        let lines = lines.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let config = "Bridge a\nBridge b\nNumEntryGuards 2\nSocksPort 9050\n";
        assert_eq!(only_in(config, "SocksPort 9050\n", &lines), ["Bridge", "numentryguards"]);
        assert_eq!(only_in(config, "  NumEntryGuards 3\n+Bridge x\n", &lines), [""; 0]);
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
