//! The result of a check.

use core::fmt;

use serde::Serialize;

use crate::watch::text::plain;

/// How severe a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// No problem.
    Ok,
    /// Something works and could be better.
    Warn,
    /// Something does not work, or numbers will be wrong.
    Bad,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The subject of the check.
    pub about: String,
    /// How severe the finding is.
    pub level: Level,
    /// The finding, as a sentence.
    pub found: String,
    /// Advice; empty if there is nothing to do.
    pub advice: String,
}

impl Finding {
    /// A check without a problem.
    pub(super) fn ok(about: &str, found: impl Into<String>) -> Self {
        Self {
            about: about.to_owned(),
            level: Level::Ok,
            found: found.into(),
            advice: String::new(),
        }
    }

    /// A finding about something that could be better.
    pub(super) fn warn(about: &str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        let (found, advice) = (found.into(), advice.into());
        Self { about: about.to_owned(), level: Level::Warn, found, advice }
    }

    /// A finding about something that does not work.
    pub(super) fn bad(about: &str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { level: Level::Bad, ..Self::warn(about, found, advice) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Ok => "ok  ",
            Level::Warn => "warn",
            Level::Bad => "bad ",
        };
        write!(f, "{level}  {:<20}  {}", plain(&self.about), plain(&self.found))?;
        if !self.advice.is_empty() {
            write!(f, "\n{:28}-> {}", "", plain(&self.advice))?;
        }
        Ok(())
    }
}
