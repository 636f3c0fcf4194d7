//! The states of the three sessions, found by running the sessions and compared with STATES.md.
//!
//! Each session is brought into each of its states, and each event happens there.

mod coordinator;
mod measurer;
mod target;

use std::fmt::Write;
use std::fs;
use std::path::Path;

/// The environment variable that makes the test write STATES.md, with any value.
const REWRITE: &str = "FF_WRITE_STATES";

/// The text before the first session.
const INTRODUCTION: &str = "\
# States of the sessions

This page is drawn from the code: the test `tests/protocol/sessions/states.rs` puts each session into each of its states,
lets each event happen there and compares the outcome with this page. `FF_WRITE_STATES=1 cargo test -p ff-proto --test
protocol states` writes the page. [PROTOCOL.md](PROTOCOL.md#7-who-may-send-what-and-when) says what the sessions must do.

Each cell of a table has the outcome of the event and, after an arrow, the next state if it changes. A dash means that
nothing happens. *Fails* is followed by the failure's code; a session that has failed is not used again.
";

/// A session: its states, and the events in them.
struct Session {
    /// Its heading.
    name: &'static str,
    /// Notes for the reader.
    notes: &'static str,
    /// Its states; it begins in the first one. A state has a column for each place that an event
    /// may come from.
    columns: &'static [Column],
    events: &'static [&'static str],
    /// Makes an event happen.
    step: fn(&str, Column) -> Step,
}

/// A state, and the place that an event comes from.
#[derive(Clone, Copy)]
struct Column {
    state: &'static str,
    /// The place; empty if the state has only one.
    place: &'static str,
}

/// A state in which all events come from the same place.
const fn state(state: &'static str) -> Column {
    Column { state, place: "" }
}

/// The result of an event.
struct Step {
    /// Its visible effects.
    outcome: String,
    /// The state that follows; `None` when the session has failed.
    next: Option<&'static str>,
}

impl Step {
    /// The outcome of an event that the session accepted.
    fn to(next: &'static str, outcome: &str) -> Self {
        Self { outcome: outcome.to_owned(), next: Some(next) }
    }

    /// A failure of the session with this code.
    fn failed(code: &str) -> Self {
        Self { outcome: format!("fails: {code}"), next: None }
    }

    /// A cell of the table, in the column of a state.
    fn text(&self, state: &str) -> String {
        let follows = self.next.filter(|next| *next != state);
        match (self.outcome.as_str(), follows) {
            ("", None) => "–".to_owned(),
            (outcome, None) => outcome.to_owned(),
            ("", Some(next)) => format!("→ {next}"),
            (outcome, Some(next)) => format!("{outcome} → {next}"),
        }
    }
}

/// An event, and its result in each column.
type Row = (&'static str, Vec<Step>);

impl Session {
    /// The session's section of the page.
    fn draw(&self) -> String {
        let row = |&event: &&'static str| -> Row {
            (event, self.columns.iter().map(|&column| (self.step)(event, column)).collect())
        };
        let rows: Vec<Row> = self.events.iter().map(row).collect();
        let (graph, table) = (self.graph(&rows), self.table(&rows));
        format!("\n## {}\n\n{}\n\n```mermaid\n{graph}```\n\n{table}", self.name, self.notes)
    }

    /// The graph of the states, in Mermaid's language.
    fn graph(&self, rows: &[Row]) -> String {
        let mut states: Vec<_> = self.columns.iter().map(|column| column.state).collect();
        states.dedup();
        let mut graph = format!("stateDiagram-v2\n    [*] --> {}\n", states[0]);
        for &from in &states {
            for &to in states.iter().filter(|to| **to != from) {
                let labels = rows.iter().filter_map(|row| self.label(row, from, to));
                let labels: Vec<_> = labels.collect();
                if !labels.is_empty() {
                    writeln!(graph, "    {from} --> {to}: {}", labels.join("<br/>"))
                        .expect("a string takes everything");
                }
            }
        }
        graph
    }

    /// The label of an event in the graph if it leads from one state to another; with its place if
    /// events from other places do not.
    fn label(&self, (event, steps): &Row, from: &str, to: &str) -> Option<String> {
        let here = self.columns.iter().zip(steps).filter(|(column, _)| column.state == from);
        let leads = |step: &Step| step.next == Some(to);
        let leading = here.clone().filter(|(_, step)| leads(step));
        let places: Vec<_> = leading.map(|(column, _)| column.place).collect();
        let all = here.count();
        match places.len() {
            0 => None,
            leading if leading == all => Some((*event).to_owned()),
            _ => Some(format!("{event}, {}", places.join(" or "))),
        }
    }

    /// The outcome of each event in each column.
    fn table(&self, rows: &[Row]) -> String {
        let name = |column: &Column| match column.place {
            "" => column.state.to_owned(),
            place => format!("{}: {place}", column.state),
        };
        let names: Vec<_> = self.columns.iter().map(name).collect();
        let mut table =
            format!("| event | {} |\n|---{}|\n", names.join(" | "), "|---".repeat(names.len()));
        for (event, steps) in rows {
            let cells =
                self.columns.iter().zip(steps).map(|(column, step)| step.text(column.state));
            let cells: Vec<_> = cells.collect();
            writeln!(table, "| {event} | {} |", cells.join(" | "))
                .expect("a string takes everything");
        }
        table
    }
}

#[test]
fn the_committed_states_are_those_of_the_sessions() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("STATES.md");
    let sessions = [target::SESSION, coordinator::SESSION, measurer::SESSION];
    let drawn = INTRODUCTION.to_owned() + &sessions.map(|session| session.draw()).concat();
    if std::env::var_os(REWRITE).is_some() {
        fs::write(&path, &drawn).expect("the folder can be written to");
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    for (committed, drawn) in committed.lines().zip(drawn.lines()) {
        assert_eq!(committed, drawn, "in {}; {REWRITE}=1 writes it", path.display());
    }
    assert!(committed == drawn, "{} ends elsewhere; {REWRITE}=1 writes it", path.display());
}
