//! Sets up logging: its level and its format.
//!
//! Lines have colours on a terminal, and none in files and pipes. systemd's journal adds time
//! stamps, and reads a line's priority from a prefix (sd-daemon(3)).

use std::fmt;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// Logs to standard error: warnings; events if `verbose` is 1; details if it is greater. `RUST_LOG`
/// takes precedence.
pub fn init_logging(verbose: u8) {
    start(verbose, false);
}

/// The same for a measurer's service, which also logs measurements by default.
pub fn init_service_logging(verbose: u8) {
    start(verbose, true);
}

/// Starts logging.
fn start(verbose: u8, is_service: bool) {
    let filter = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new(filter(verbose, is_service)));
    if is_journal() {
        return journal(filter, BoxMakeWriter::new(io::stderr)).init();
    }
    let plain = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    plain.with_ansi(has_colours()).init();
}

/// The default filter.
const fn filter(verbose: u8, is_service: bool) -> &'static str {
    match (verbose, is_service) {
        // Arti's client warns of small networks, and of client circuits, which are not used here.
        (0, false) => "warn,tor_circmgr=error,tor_guardmgr=error,tor_netdir=error",
        (0, true) => "warn,ff_measurer=info",
        (1, _) => "info",
        _ => "debug",
    }
}

/// Whether standard error is a terminal with colours.
fn has_colours() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    io::stderr().is_terminal() && !is_set("NO_COLOR") && !is_dumb
}

/// Whether standard error is systemd's journal, whose device and inode are in `JOURNAL_STREAM`.
pub(crate) fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let found = io::stderr().as_fd().try_clone_to_owned().map(File::from);
    let found = found.and_then(|file| file.metadata());
    found.is_ok_and(|found| format!("{}:{}", found.dev(), found.ino()) == stream)
}

fn journal(filter: EnvFilter, writer: BoxMakeWriter) -> impl Subscriber + Send + Sync {
    let plain = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    let bare = plain.without_time().with_level(false).with_ansi(false);
    bare.map_event_format(Journal).finish()
}

/// Formats lines with their priorities.
struct Journal<F>(F);

impl<S, N, F> FormatEvent<S, N> for Journal<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        self.0.format_event(context, Writer::new(&mut text), event)?;
        writeln!(writer, "{}", prefixed(text.trim_end(), event.metadata().level()))
    }
}

/// A text whose lines have the priority of a level, numbered as in syslog(3).
pub(crate) fn prefixed(text: &str, level: &Level) -> String {
    let priority = match *level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    };
    text.lines().map(|line| format!("<{priority}>{line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("nobody has panicked").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_journal_gets_priorities_and_neither_times_nor_colours() {
        let written = Written::default();
        let to = written.clone();
        let writer = BoxMakeWriter::new(move || to.clone());
        tracing::subscriber::with_default(journal(EnvFilter::new("info"), writer), || {
            tracing::error!(target: "x", "one\ntwo");
            tracing::warn!(target: "x", "three");
            tracing::info!(target: "x", a = 1, "four");
            tracing::debug!(target: "x", "five");
        });
        let text = written.0.lock().expect("nobody has panicked").clone();
        let text = String::from_utf8(text).expect("UTF-8");
        assert_eq!(text, "<3>x: one\n<3>two\n<4>x: three\n<6>x: four a=1\n");
    }

    #[test]
    fn a_service_logs_its_measurements_and_commands_log_warnings() {
        assert!(filter(0, true).contains("ff_measurer=info"));
        for (verbose, is_service, beginning) in
            [(0, false, "warn"), (0, true, "warn"), (1, true, "info"), (2, false, "debug")]
        {
            assert!(filter(verbose, is_service).starts_with(beginning));
            EnvFilter::try_new(filter(verbose, is_service)).expect("a filter");
        }
    }
}
