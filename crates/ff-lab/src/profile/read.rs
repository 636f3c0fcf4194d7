//! Reads and checks profiles.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ff_proto::units::BytesPerSec;
use serde::Deserialize;

use super::Profile;
use crate::error::{Error, Result};
use crate::link::{
    Change, CoDel, Cut, Delay, DelayTable, Direction, Jitter, Loss, MAX_DELAY, QueueLimit, Rate,
    Reorder, Timetable, Trace,
};

/// Largest file read, in bytes; a day's trace at 300 Mbit/s has 15 MB.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Shortest period of a timetable; a shorter one would only waste the emulator's time.
const MIN_PERIOD: Duration = Duration::from_millis(1);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileFile {
    description: String,
    up: DirectionFile,
    down: DirectionFile,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct DirectionFile {
    rate: Option<String>,
    trace: Option<PathBuf>,
    queue_ms: Option<f64>,
    queue_bytes: Option<u64>,
    codel: bool,
    loss: Option<f64>,
    bursts: Option<BurstsFile>,
    delay_ms: Option<f64>,
    jitter: Option<JitterFile>,
    overtaking: bool,
    duplicate: f64,
    reorder: Option<ReorderFile>,
    change: Vec<ChangeFile>,
    repeat_ms: Option<f64>,
}

/// Loss in bursts, as shares of packets.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BurstsFile {
    to_bad: f64,
    to_good: f64,
    lost_in_bad: f64,
    #[serde(default)]
    lost_in_good: f64,
}

/// Exactly one kind of jitter: normal, Pareto with its shape, or a table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JitterFile {
    normal_ms: Option<f64>,
    pareto_ms: Option<f64>,
    shape: Option<f64>,
    table: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReorderFile {
    share: f64,
    by_ms: f64,
}

/// A change; missing keys keep their values.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeFile {
    at_ms: f64,
    rate: Option<String>,
    trace: Option<PathBuf>,
    queue_ms: Option<f64>,
    queue_bytes: Option<u64>,
    codel: Option<bool>,
    loss: Option<f64>,
    bursts: Option<BurstsFile>,
    delay_ms: Option<f64>,
    jitter: Option<JitterFile>,
    overtaking: Option<bool>,
    duplicate: Option<f64>,
    reorder: Option<ReorderFile>,
    gap_ms: Option<f64>,
    keeps_queue: Option<bool>,
}

/// Position for errors: the file, and the key of the direction.
#[derive(Clone, Copy)]
struct Place<'a> {
    file: &'a str,
    dir: &'a Path,
    key: &'a str,
}

/// Reads a profile; files that it names are below `dir`.
pub(super) fn profile(file: &str, text: &str, dir: &Path) -> Result<Profile> {
    let wrong = |what: String| Error::Profile { file: file.to_owned(), what };
    let found: ProfileFile =
        toml::from_str(text).map_err(|error| wrong(in_a_line(text, &error)))?;
    let direction = |key, found| Place { file, dir, key }.direction(found);
    Ok(Profile {
        name: file.to_owned(),
        description: found.description,
        up: direction("up", found.up)?,
        down: direction("down", found.down)?,
    })
}

/// Text of a TOML error, with its line.
fn in_a_line(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().replace('\n', " ");
    let begin = error.span().and_then(|span| text.get(..span.start));
    match begin {
        Some(begin) => format!("line {}: {message}", begin.matches('\n').count() + 1),
        None => message,
    }
}

/// Parses a rate such as `5Mbit` or `unlimited`, or reads the trace in a file of that name.
pub fn rate(key: &str, text: &str) -> Result<Rate> {
    let path = Path::new(text);
    match path.is_file() {
        true => trace(path),
        false => Place { file: key, dir: Path::new("."), key: "" }.constant_rate(text),
    }
}

/// Reads a text file of limited size.
pub(super) fn text(path: &Path) -> Result<String> {
    let name = || path.display().to_string();
    let bytes = fs::metadata(path).map_err(Error::io(format!("read {}", name())))?.len();
    if bytes > MAX_FILE_BYTES {
        let what = format!("it has {bytes} bytes; at most {MAX_FILE_BYTES} are read");
        return Err(Error::Profile { file: name(), what });
    }
    let mut text = fs::read_to_string(path).map_err(Error::io(format!("read {}", name())))?;
    // Some editors add a byte order mark.
    if text.starts_with('\u{feff}') {
        text.remove(0);
    }
    Ok(text)
}

/// Reads a trace.
fn trace(path: &Path) -> Result<Rate> {
    let trace = Trace::parse(&text(path)?);
    let file = path.display().to_string();
    let trace = trace.map_err(|error| Error::Profile { file, what: error.to_string() })?;
    Ok(Rate::Trace(Arc::new(trace)))
}

impl Place<'_> {
    /// Error about a key of the direction.
    fn wrong(&self, key: &str, what: &str) -> Error {
        let dot = if key.is_empty() || self.key.is_empty() { "" } else { "." };
        let key = format!("{}{dot}{key}", self.key);
        let colon = if key.is_empty() { "" } else { ": " };
        Error::Profile { file: self.file.to_owned(), what: format!("{key}{colon}{what}") }
    }

    fn direction(&self, found: DirectionFile) -> Result<Direction> {
        let delay = self.delay(&found)?;
        let place = Place { key: &format!("{}.change", self.key), ..*self };
        let changes = found.change.iter().map(|change| place.change(change));
        let changes = changes.collect::<Result<Vec<_>>>()?;
        let period = found.repeat_ms.map(|ms| self.long_time("repeat_ms", ms)).transpose()?;
        let timetable = Timetable::new(changes, period);
        if period.is_some_and(|period| period < MIN_PERIOD) {
            return Err(self.wrong("repeat_ms", "it must be at least 1"));
        }
        let never = "it must be later than the last change";
        Ok(Direction {
            rate: self.rate(found.rate.as_deref(), found.trace.as_deref())?.unwrap_or_default(),
            queue: self.queue(found.queue_ms, found.queue_bytes)?.unwrap_or_default(),
            codel: found.codel.then(CoDel::default),
            loss: self.loss(found.loss, found.bursts.as_ref())?.unwrap_or(Loss::None),
            delay,
            duplicate: self.share("duplicate", found.duplicate)?,
            reorder: found.reorder.map(|one| self.reorder(&one)).transpose()?.unwrap_or_default(),
            timetable: timetable.ok_or_else(|| self.wrong("repeat_ms", never))?,
        })
    }

    /// Rate, from one of its two keys.
    fn rate(&self, rate: Option<&str>, file: Option<&Path>) -> Result<Option<Rate>> {
        match (rate, file) {
            (Some(_), Some(_)) => {
                Err(self.wrong("", "rate and trace exclude each other: give one of them"))
            }
            (Some(rate), None) => self.constant_rate(rate).map(Some),
            (None, Some(file)) => trace(&self.dir.join(file)).map(Some),
            (None, None) => Ok(None),
        }
    }

    fn constant_rate(&self, text: &str) -> Result<Rate> {
        if text == "unlimited" {
            return Ok(Rate::Unlimited);
        }
        let rate = text.parse::<BytesPerSec>();
        let file = if self.key.is_empty() {
            "a trace's file"
        } else {
            "a file, which needs the key `trace`"
        };
        let form = "is neither a rate above 0 such as 200kbit or 5Mbit, nor unlimited, nor";
        rate.map(Rate::Constant).map_err(|_| self.wrong("rate", &format!("{text:?} {form} {file}")))
    }

    /// Queue limit, from one of its two keys.
    fn queue(&self, ms: Option<f64>, bytes: Option<u64>) -> Result<Option<QueueLimit>> {
        match (ms, bytes) {
            (Some(_), Some(_)) => {
                Err(self.wrong("", "queue_ms and queue_bytes exclude each other: give one of them"))
            }
            (Some(ms), None) => Ok(Some(QueueLimit::Time(self.time("queue_ms", ms)?))),
            (None, bytes) => Ok(bytes.map(QueueLimit::Bytes)),
        }
    }

    /// Loss, from one of its two keys.
    fn loss(&self, loss: Option<f64>, bursts: Option<&BurstsFile>) -> Result<Option<Loss>> {
        match (loss, bursts) {
            (Some(_), Some(_)) => {
                Err(self.wrong("", "loss and bursts exclude each other: give one of them"))
            }
            (Some(loss), None) => Ok(Some(Loss::Independent(self.share("loss", loss)?))),
            (None, Some(bursts)) => Ok(Some(Loss::GilbertElliott {
                to_bad: self.share("bursts.to_bad", bursts.to_bad)?,
                to_good: self.share("bursts.to_good", bursts.to_good)?,
                lost_in_bad: self.share("bursts.lost_in_bad", bursts.lost_in_bad)?,
                lost_in_good: self.share("bursts.lost_in_good", bursts.lost_in_good)?,
            })),
            (None, None) => Ok(None),
        }
    }

    /// Delay with jitter.
    fn delay(&self, found: &DirectionFile) -> Result<Delay> {
        let base = self.time("delay_ms", found.delay_ms.unwrap_or(0.0))?;
        let jitter = found.jitter.as_ref().map(|one| self.jitter(one)).transpose()?;
        Ok(Delay { base, jitter: jitter.unwrap_or_default(), overtaking: found.overtaking })
    }

    fn jitter(&self, found: &JitterFile) -> Result<Jitter> {
        let JitterFile { normal_ms, pareto_ms, shape, table } = found;
        match (*normal_ms, *pareto_ms, *shape, table) {
            (Some(ms), None, None, None) => {
                Ok(Jitter::Normal { sigma: self.time("jitter.normal_ms", ms)? })
            }
            (None, Some(ms), Some(shape), None) => {
                let scale = self.time("jitter.pareto_ms", ms)?;
                if !(shape.is_finite() && shape > 0.0) {
                    return Err(
                        self.wrong("jitter.shape", &format!("{shape} is not greater than 0"))
                    );
                }
                Ok(Jitter::Pareto { scale, shape })
            }
            (None, None, None, Some(table)) => Ok(Jitter::Table(Arc::new(self.table(table)?))),
            _ => Err(self.wrong("jitter", "it needs normal_ms, pareto_ms and shape, or table")),
        }
    }

    /// Reads a table of delays.
    fn table(&self, file: &Path) -> Result<DelayTable> {
        let path = self.dir.join(file);
        let file = path.display().to_string();
        DelayTable::parse(&text(&path)?)
            .map_err(|error| Error::Profile { file, what: error.to_string() })
    }

    fn reorder(&self, found: &ReorderFile) -> Result<Reorder> {
        let share = self.share("reorder.share", found.share)?;
        Ok(Reorder { share, by: self.time("reorder.by_ms", found.by_ms)? })
    }

    fn change(&self, found: &ChangeFile) -> Result<Change> {
        let gap = found.gap_ms.map(|ms| self.time("gap_ms", ms)).transpose()?;
        if gap.is_none() && found.keeps_queue.is_some() {
            return Err(self.wrong("keeps_queue", "it needs a gap_ms, which may be 0"));
        }
        let duplicate = found.duplicate.map(|share| self.share("duplicate", share)).transpose()?;
        Ok(Change {
            at: self.long_time("at_ms", found.at_ms)?,
            rate: self.rate(found.rate.as_deref(), found.trace.as_deref())?,
            queue: self.queue(found.queue_ms, found.queue_bytes)?,
            codel: found.codel.map(|is_there| is_there.then(CoDel::default)),
            loss: self.loss(found.loss, found.bursts.as_ref())?,
            delay: found.delay_ms.map(|ms| self.time("delay_ms", ms)).transpose()?,
            jitter: found.jitter.as_ref().map(|one| self.jitter(one)).transpose()?,
            overtaking: found.overtaking,
            duplicate,
            reorder: found.reorder.as_ref().map(|one| self.reorder(one)).transpose()?,
            cut: gap.map(|gap| Cut { gap, keeps_queue: found.keeps_queue.unwrap_or(true) }),
        })
    }

    /// Checks a share from 0 to 1.
    fn share(&self, key: &str, share: f64) -> Result<f64> {
        let form = || self.wrong(key, &format!("{share} is not a share from 0 to 1"));
        if (0.0..=1.0).contains(&share) { Ok(share) } else { Err(form()) }
    }

    /// Checks a delay of a packet.
    fn time(&self, key: &str, ms: f64) -> Result<Duration> {
        let max_ms = MAX_DELAY.as_secs_f64() * 1e3;
        let form = || self.wrong(key, &format!("{ms} is not a time from 0 to {max_ms} ms"));
        if (0.0..=max_ms).contains(&ms) { self.long_time(key, ms) } else { Err(form()) }
    }

    /// Checks a time of a timetable: at most a month.
    fn long_time(&self, key: &str, ms: f64) -> Result<Duration> {
        let max_ms = 31.0 * 86_400e3;
        let form = || self.wrong(key, &format!("{ms} is not a time from 0 to {max_ms} ms"));
        match (0.0..=max_ms).contains(&ms) {
            true => Ok(Duration::from_secs_f64(ms / 1e3)),
            false => Err(form()),
        }
    }
}
