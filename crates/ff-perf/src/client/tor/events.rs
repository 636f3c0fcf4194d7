//! Parses tor's events on circuits, streams and links (control-spec 4.1) and passes them on.

use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use ff_lab::{Control, Event};

use super::commands::Watch;
use super::refusal::RejectsInternal;
use super::table::{CircuitState, StreamState, Table};

/// Interval of checks whether the table is still used while no event comes.
const LOOK: Duration = Duration::from_millis(500);

/// tor's prefix of a stream's unknown reason, followed by its number.
const UNKNOWN: &str = "UNKNOWN_";
/// Bits of that number with the reason; the others are tor's own flags, such as "sent by the exit".
const REASON_BITS: u32 = 255;

/// Starts the thread that reads events; it ends when the table is dropped, or with tor.
pub(super) fn start(
    mut control: Control,
    table: Arc<Table>,
    watch: Watch,
    rejects: RejectsInternal,
) -> io::Result<()> {
    let table: Weak<Table> = Arc::downgrade(&table);
    let run = move || {
        loop {
            let event = control.next_event(LOOK);
            let at = Instant::now();
            let Some(table) = table.upgrade() else { return };
            match event {
                // The thread that sends commands checks which options have changed, and whether we
                // changed them.
                Ok(Some(event)) if event.kind == "CONF_CHANGED" => {
                    rejects.forget();
                    watch.hold();
                }
                Ok(Some(event)) => hand_on(&table, &event, at),
                Ok(None) => {}
                Err(error) => return table.lost(&error.to_string()),
            }
        }
    };
    thread::Builder::new().name("tor events".to_owned()).spawn(run).map(drop)
}

/// Passes an event to its waiters.
pub(super) fn hand_on(table: &Table, event: &Event, at: Instant) {
    let words: Vec<&str> = event.words().take(4).collect();
    match (event.kind.as_str(), &words[..]) {
        ("CIRC", [id, status, rest @ ..]) => {
            let state = match *status {
                "EXTENDED" => CircuitState::Hops(hops(rest.first().copied().unwrap_or_default())),
                "BUILT" => CircuitState::Built,
                "FAILED" | "CLOSED" => {
                    let by_relay = event.get("REMOTE_REASON").is_some();
                    CircuitState::Ended { reason: reason(event), by_relay }
                }
                _ => return,
            };
            table.circuit(id, at, state);
        }
        ("STREAM", [id, status, rest @ ..]) => stream(table, event, at, [id, status], rest),
        ("ORCONN", [relay, status, ..]) => {
            let id = relay.trim_start_matches('$').split(['~', '=']).next().unwrap_or_default();
            let connection = event.get("ID").unwrap_or_default();
            match *status {
                "LAUNCHED" => table.link_begins(id),
                "CONNECTED" => table.link_opens(id, connection, at),
                "FAILED" | "CLOSED" => table.link_closes(id, connection),
                _ => {}
            }
        }
        _ => {}
    }
}

/// Passes a stream event to its waiter.
fn stream(table: &Table, event: &Event, at: Instant, [id, status]: [&str; 2], rest: &[&str]) {
    let circuit = rest.first().copied().unwrap_or_default().to_owned();
    match status {
        "NEW" | "NEWRESOLVE" => {
            if let Some(source) = event.get("SOURCE_ADDR").and_then(|text| text.parse().ok()) {
                table.new_stream(id, source, at);
            }
        }
        "SENTCONNECT" => table.stream(id, at, StreamState::Sent(circuit)),
        "REMAP" => {
            let target = rest.get(1).copied().unwrap_or_default();
            let to = target.rsplit_once(':').map_or(target, |(host, _)| host).to_owned();
            table.stream(id, at, StreamState::Renamed { circuit, to });
        }
        "SUCCEEDED" => table.stream(id, at, StreamState::Connected(circuit)),
        "DETACHED" | "FAILED" | "CLOSED" => {
            let by_exit = event.get("REMOTE_REASON").is_some();
            table.stream(id, at, StreamState::Ended { circuit, reason: reason(event), by_exit });
        }
        _ => {}
    }
}

/// Number of relays in a path; tor omits an empty path.
fn hops(path: &str) -> usize {
    if path.starts_with('$') { path.split(',').count() } else { 0 }
}

/// Why something ended: the other end's reason if there is one. A reason that tor does not know is
/// its number.
pub(super) fn reason(event: &Event) -> String {
    let reason = event.get("REMOTE_REASON").or_else(|| event.get("REASON")).unwrap_or("closed");
    if reason.is_empty()
        && let Some(number) = event.words().find_map(|word| word.strip_prefix(UNKNOWN))
        && let Ok(number) = number.parse::<u32>()
    {
        return (number & REASON_BITS).to_string();
    }
    reason.to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str, text: &str) -> Event {
        Event { kind: kind.to_owned(), text: text.to_owned() }
    }

    #[tokio::test]
    async fn events_reach_whom_they_concern() {
        let table = Arc::new(Table::default());
        let at = Instant::now();
        // Events may come before its id is known here.
        hand_on(&table, &event("CIRC", "7 EXTENDED $AA~a BUILD_FLAGS=x"), at);
        let mut circuit = table.expect_circuit("7");
        hand_on(&table, &event("CIRC", "8 BUILT $AA~a"), at);
        hand_on(&table, &event("CIRC", "7 EXTENDED $AA~a,$BB~b"), at);
        hand_on(
            &table,
            &event("CIRC", "7 FAILED $AA~a REASON=DESTROYED REMOTE_REASON=CONNECTFAILED"),
            at,
        );
        for expected in [
            CircuitState::Hops(1),
            CircuitState::Hops(2),
            CircuitState::Ended { reason: "connectfailed".to_owned(), by_relay: true },
        ] {
            assert_eq!(circuit.next().await, Ok((at, expected)));
        }

        let source = "127.0.0.1:5".parse().expect("an address");
        let mut stream = table.expect_stream(source);
        hand_on(
            &table,
            &event("STREAM", "4 NEW 0 127.3.2.1:1 SOURCE_ADDR=127.0.0.1:5 PURPOSE=USER"),
            at,
        );
        hand_on(&table, &event("STREAM", "4 SENTCONNECT 7 127.3.2.1:1"), at);
        hand_on(
            &table,
            &event("STREAM", "4 DETACHED 7 127.3.2.1:1 REASON=END REMOTE_REASON=EXITPOLICY"),
            at,
        );
        for expected in [
            StreamState::New("4".to_owned()),
            StreamState::Sent("7".to_owned()),
            StreamState::Ended {
                circuit: "7".to_owned(),
                reason: "exitpolicy".to_owned(),
                by_exit: true,
            },
        ] {
            assert_eq!(stream.next().await, Ok((at, expected)));
        }
        table.lost("tor has ended");
        assert!(stream.next().await.is_err() && circuit.next().await.is_err());
    }

    #[test]
    fn links_are_remembered() {
        let table = Table::default();
        let began = Instant::now();
        assert!(table.link("AA", began).is_open, "of which nothing is told, it was there before");
        hand_on(&table, &event("ORCONN", "$AA~a LAUNCHED ID=1"), began);
        assert!(!table.link("AA", began).is_open);
        let opened = began + Duration::from_millis(3);
        hand_on(&table, &event("ORCONN", "$AA~a CONNECTED ID=1"), opened);
        assert_eq!(table.link("AA", began).opened, Some(opened));
        assert_eq!(table.link("AA", opened + LOOK).opened, None, "before that circuit began");
        // A connection that is too old is closed once there is another.
        hand_on(&table, &event("ORCONN", "$AA~a LAUNCHED ID=2"), opened);
        hand_on(&table, &event("ORCONN", "$AA~a CONNECTED ID=2"), opened);
        hand_on(&table, &event("ORCONN", "$AA~a CLOSED REASON=DONE ID=1"), opened);
        assert!(table.link("AA", began).is_open);
        hand_on(&table, &event("ORCONN", "$AA~a CLOSED REASON=DONE ID=2"), opened);
        assert!(!table.link("AA", began).is_open);
    }
}
