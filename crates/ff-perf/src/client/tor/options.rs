//! Options that measurements change in tor, and their previous values.
//!
//! They are set in one command, so that all or none change, and restored when [`Taken`] is dropped.
//! A killed process leaves them changed until tor gets SIGHUP or is restarted, and has its torrc's
//! again.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::thread;
use std::time::Duration;

use ff_lab::{Control, Error, Reply, Result};

/// Options that leave circuits and streams to this program and switch off disturbances: tor's own
/// circuits, learned timeouts, the end of streams without an answer for ten seconds, the refusal of
/// probes' addresses, the end of circuits used for ten minutes, and the check every half minute
/// that closes circuits made too old by a refusal.
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

/// Interval of checks whether the options are still lent while no event comes.
const LOOK: Duration = Duration::from_millis(500);

/// Most circuits that are looked at when unused ones are closed: more than a client has.
const MOST_CIRCUITS: usize = 1000;

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

/// Values by option as tor reports them: empty if not set, several for a list.
type Values = BTreeMap<String, Vec<String>>;

/// Options by name and value; a list's name appears once per value.
type Lines = [(String, String)];

/// Options of a tor, taken over.
pub(super) struct Taken {
    control: Control,
    /// Options set, with their values.
    options: Vec<(String, String)>,
    before: Values,
    /// Their values as tor reports them.
    ours: Values,
    /// Whether they must still be restored.
    is_owed: bool,
}

impl Drop for Taken {
    fn drop(&mut self) {
        // An error could not be handled any more.
        let _ = self.give_back();
    }
}

impl Taken {
    /// Saves the options that all runs need and `further` ones, and sets them.
    ///
    /// # Errors
    /// tor's message; nothing has changed.
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

    /// Whether tor already had this program's values of the options that every run needs: a killed
    /// run left them, and the values before are unknown.
    pub(super) fn is_left_over(&self) -> bool {
        self.before
            .iter()
            .filter(|(name, _)| is_ours(name))
            .all(|(name, values)| self.ours.get(name) == Some(values))
    }

    /// The control connection, for commands.
    pub(super) fn control(&mut self) -> &mut Control {
        &mut self.control
    }

    /// Sets options again that were changed meanwhile, for example because tor read its torrc
    /// again. The changed values are restored at the end. Returns whether any had changed.
    ///
    /// # Errors
    /// tor's message.
    pub(super) fn hold(&mut self) -> Result<bool> {
        if !self.is_owed {
            return Ok(false);
        }
        let now = ask(&mut self.control, &self.options)?;
        if now == self.ours {
            return Ok(false);
        }
        let others = now.into_iter().filter(|(name, values)| self.ours.get(name) != Some(values));
        self.before.extend(others);
        set(&mut self.control, &self.options).map(|()| true)
    }

    /// Restores the options, once.
    ///
    /// # Errors
    /// tor's message.
    pub(super) fn give_back(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.is_owed) {
            return Ok(());
        }
        self.control.command(&back(&self.before)).map(drop)
    }
}

/// Options that a tor has until this is dropped; others stay.
pub(super) struct Lent {
    held: Arc<Held>,
    /// Reports whether they were restored.
    tell: mpsc::SyncSender<Result<()>>,
}

impl Lent {
    /// Sets these options. Circuits without streams are closed now and at the end, as they were
    /// built with other options. The receiver reports whether the options were restored.
    ///
    /// # Errors
    /// tor's message; nothing has changed.
    pub(super) fn new(
        open: impl Fn() -> Result<Control>,
        lines: &Lines,
    ) -> Result<(Self, mpsc::Receiver<Result<()>>)> {
        let mut events = open()?;
        events.subscribe(&["CONF_CHANGED"])?;
        let (tell, told) = mpsc::sync_channel(1);
        let taken = Mutex::new(Taken::of(open()?, lines.to_vec())?);
        let held = Held { taken, changes: AtomicU64::new(0), is_lost: AtomicBool::new(false) };
        let held = Arc::new(held);
        let lent = Self { held, tell };
        close_unused(lent.held.lock().control())?;
        let watched = watch(events, Arc::downgrade(&lent.held));
        watched.map_err(|error| Error::Control(format!("starting a thread: {error}")))?;
        Ok((lent, told))
    }

    /// Number of times that others changed the options; `None` once tor may no longer have
    /// them: it was restarted, or does not accept them again.
    pub(super) fn changes(&self) -> Option<u64> {
        let is_lost = self.held.is_lost.load(Ordering::Relaxed);
        (!is_lost).then(|| self.held.changes.load(Ordering::Relaxed))
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut taken = self.held.lock();
        let given = taken.give_back();
        if given.is_ok() {
            // tor closes unused circuits itself, later.
            let _ = close_unused(taken.control());
        }
        drop(taken);
        let _ = self.tell.send(given);
    }
}

/// Lent options, shared with the thread that watches them.
struct Held {
    taken: Mutex<Taken>,
    /// Number of times that others changed them.
    changes: AtomicU64,
    /// Whether nothing sets them again any more.
    is_lost: AtomicBool,
}

impl Held {
    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the options again if others changed them, and then closes circuits without streams,
    /// which may have been built with the changed options.
    fn hold(&self) -> Result<()> {
        let mut taken = self.lock();
        let held = taken.hold();
        if !matches!(held, Ok(false)) {
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
        if held? { close_unused(taken.control()) } else { Ok(()) }
    }
}

/// Starts the thread that sets changed options again. It ends when the options are no longer lent,
/// or if a connection to tor is lost.
fn watch(mut events: Control, held: Weak<Held>) -> io::Result<()> {
    let run = move || {
        loop {
            let event = events.next_event(LOOK);
            let Some(held) = held.upgrade() else { return };
            let gone = match event {
                Ok(Some(_)) => held.hold().is_err(),
                Ok(None) => false,
                Err(_) => true,
            };
            // tor may have other options from now on, and dropping these need not fail.
            if gone {
                held.is_lost.store(true, Ordering::Relaxed);
                return;
            }
        }
    };
    thread::Builder::new().name("tor options".to_owned()).spawn(run).map(drop)
}

/// Closes circuits without streams.
fn close_unused(control: &mut Control) -> Result<()> {
    let status = control.getinfo("circuit-status")?;
    let ids = status.lines().filter_map(|line| line.split(' ').next());
    for id in ids.take(MOST_CIRCUITS) {
        match control.command(&format!("CLOSECIRCUIT {id} IfUnused")) {
            // It may have ended meanwhile.
            Ok(_) | Err(Error::Refused { .. }) => {}
            // A tor that does not answer would cost a time limit for each circuit.
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether every run sets this option.
fn is_ours(name: &str) -> bool {
    OPTIONS.iter().any(|(ours, _)| ours.eq_ignore_ascii_case(name))
}

/// Whether an arm must not set this option, because tor is reached by it or given paths need it.
pub(super) fn is_needed(name: &str, has_given_paths: bool) -> bool {
    let is_way = REACHED_BY.iter().any(|by| by.eq_ignore_ascii_case(name));
    is_way || has_given_paths && is_ours(name)
}

/// The first of these options that tor refuses, with its message; `None` if it accepts all
/// together. None stays set.
///
/// # Errors
/// Other errors of the control connections, each of which `open` opens.
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
    // An option may need another one, so the first wrong one is searched only now.
    for count in 1..lines.len() {
        if let Some(reply) = tried(count)? {
            return Ok(Some((count - 1, reply)));
        }
    }
    Ok(Some((last, whole)))
}

/// Names of these options that tor has set although its torrc, with this text, does not: they were
/// set over a control connection, for example by a killed run. Ignores files that the torrc
/// includes, and does not find which values were replaced.
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

/// Names of these options that are in the first text but not in the second.
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

/// Asks for the options' values.
fn ask(control: &mut Control, options: &Lines) -> Result<Values> {
    Ok(values(&control.command(&question(options))?))
}

/// Command that asks for the options, each once.
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

/// Command that sets the options (control-spec 2.1.1: quoted strings).
fn setting(options: &Lines) -> String {
    let mut line = "SETCONF".to_owned();
    for (name, value) in options {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"");
        line = format!("{line} {name}=\"{value}\"");
    }
    line
}

/// Values in a reply to GETCONF (control-spec 3.3).
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

/// Command that sets these values; options without a value get their default.
fn back(values: &Values) -> String {
    let mut line = "RESETCONF".to_owned();
    for (name, values) in values {
        if values.is_empty() {
            line = format!("{line} {name}");
        }
        for value in values {
            // tor already quotes values with special characters as it wants to read them.
            let quoted =
                if value.starts_with('"') { value.clone() } else { format!("\"{value}\"") };
            line = format!("{line} {name}={quoted}");
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::Shutdown;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::Path;

    use ff_lab::ReplyLine;

    use super::*;

    /// A fake tor with one option, `A`.
    #[derive(Default)]
    struct Fake {
        /// The option's value.
        value: String,
        /// Connections that subscribed to events.
        events: Vec<UnixStream>,
        /// Whether it refuses to set the option.
        is_refusing: bool,
        /// Lines of its circuits.
        circuits: &'static str,
        /// Numbers of circuits that it was asked to close.
        closed: Vec<String>,
        /// Whether it ends when it is asked to close a circuit.
        is_ending: bool,
    }

    impl Fake {
        /// Reads its torrc again, in which the option has this value.
        fn reload(&mut self, value: &str) {
            value.clone_into(&mut self.value);
            self.tell();
        }

        /// Reports the option's value to subscribers.
        fn tell(&mut self) {
            let event = format!("650-CONF_CHANGED\r\n650-A={}\r\n650 OK\r\n", self.value);
            for socket in &mut self.events {
                // The connection may be closed.
                let _ = socket.write_all(event.as_bytes());
            }
        }

        /// The reply to a command.
        fn answer(&mut self, line: &str, socket: &UnixStream) -> String {
            match line.split_once(' ').unwrap_or((line, "")) {
                ("GETCONF", _) => return format!("250 A={}\r\n", self.value),
                ("GETINFO", _) => {
                    let circuits = self.circuits;
                    return format!("250+circuit-status=\r\n{circuits}.\r\n250 OK\r\n");
                }
                ("CLOSECIRCUIT", which) => {
                    self.closed.push(which.to_owned());
                    if self.is_ending {
                        socket.shutdown(Shutdown::Both).expect("an end");
                    }
                    return "552 Unknown circuit\r\n".to_owned();
                }
                ("SETEVENTS", _) => self.events.push(socket.try_clone().expect("a handle")),
                ("SETCONF", _) if self.is_refusing => return "513 Unacceptable\r\n".to_owned(),
                ("SETCONF" | "RESETCONF", set) => {
                    let value = set.split_once('=').map_or("", |(_, value)| value);
                    value.trim_matches('"').clone_into(&mut self.value);
                    self.tell();
                }
                _ => {}
            }
            "250 OK\r\n".to_owned()
        }
    }

    /// Starts a fake tor with a control socket in a directory; in its torrc the option has the
    /// value `1`.
    fn fake_tor(dir: &Path) -> Arc<Mutex<Fake>> {
        let fake = Arc::new(Mutex::new(Fake { value: "1".to_owned(), ..Fake::default() }));
        let listener = UnixListener::bind(dir.join("control")).expect("a socket");
        let of_tor = Arc::clone(&fake);
        thread::spawn(move || {
            for socket in listener.incoming() {
                let (mut socket, fake) = (socket.expect("a client"), Arc::clone(&of_tor));
                thread::spawn(move || {
                    let reader = BufReader::new(socket.try_clone().expect("a handle"));
                    for line in reader.lines().map_while(io::Result::ok) {
                        let answer = fake.lock().expect("a tor").answer(&line, &socket);
                        if socket.write_all(answer.as_bytes()).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        fake
    }

    #[test]
    fn lent_options_outlast_a_reload_and_the_new_torrcs_are_set_back() {
        let dir = tempfile::tempdir().expect("a directory");
        let fake = fake_tor(dir.path());
        let value = || fake.lock().expect("a tor").value.clone();
        let lines = [("A".to_owned(), "2".to_owned())];
        let (lent, told) = Lent::new(|| Control::open(dir.path()), &lines).expect("a tor");
        assert_eq!((value().as_str(), lent.changes()), ("2", Some(0)));
        for (torrc, changes) in [("3", 1), ("4", 2)] {
            fake.lock().expect("a tor").reload(torrc);
            while lent.changes() < Some(changes) || value() != "2" {
                thread::sleep(Duration::from_millis(1));
            }
        }
        drop(lent);
        told.recv().expect("an end").expect("set back");
        assert_eq!(value(), "4", "the last torrc's");
    }

    #[test]
    fn lent_options_that_tor_does_not_accept_again_are_lost() {
        let dir = tempfile::tempdir().expect("a directory");
        let fake = fake_tor(dir.path());
        let lines = [("A".to_owned(), "2".to_owned())];
        let (lent, told) = Lent::new(|| Control::open(dir.path()), &lines).expect("a tor");
        {
            let mut tor = fake.lock().expect("a tor");
            tor.is_refusing = true;
            tor.reload("3");
        }
        while lent.changes().is_some() {
            thread::sleep(Duration::from_millis(1));
        }
        drop(lent);
        told.recv().expect("an end").expect("set back");
        assert_eq!(fake.lock().expect("a tor").value, "3");
    }

    #[test]
    fn unused_circuits_are_closed_until_tor_does_not_answer() {
        let dir = tempfile::tempdir().expect("a directory");
        let fake = fake_tor(dir.path());
        fake.lock().expect("a tor").circuits = "5 BUILT $A\r\n6 EXTENDED $B\r\n";
        let mut control = Control::open(dir.path()).expect("a tor");
        close_unused(&mut control).expect("circuits that have ended are no error");
        let asked = ["5 IfUnused", "6 IfUnused"];
        assert_eq!(std::mem::take(&mut fake.lock().expect("a tor").closed), asked);
        fake.lock().expect("a tor").is_ending = true;
        close_unused(&mut control).expect_err("tor has ended");
        assert_eq!(fake.lock().expect("a tor").closed, asked[..1]);
    }

    #[test]
    fn own_changes_are_not_taken_for_a_reload() {
        let dir = tempfile::tempdir().expect("a directory");
        let fake = fake_tor(dir.path());
        let lines = [("A".to_owned(), "2".to_owned())];
        let control = Control::open(dir.path()).expect("a tor");
        let mut taken = Taken::of(control, lines.to_vec()).expect("an answer");
        assert!(!taken.hold().expect("an answer"), "they are ours");
        fake.lock().expect("a tor").reload("3");
        assert!(taken.hold().expect("an answer"), "they were the torrc's");
        taken.give_back().expect("an answer");
        assert!(!taken.hold().expect("an answer"), "they stay as they are set back");
        assert_eq!(fake.lock().expect("a tor").value, "3");
    }

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
