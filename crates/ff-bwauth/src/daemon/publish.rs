//! Writes the bandwidth file from the store.

use std::path::PathBuf;

use ff_plan::publish::v3bw::{InvalidFile, Publication};
use ff_plan::publish::{Last, Limit, PublishRules, Published, Refused, Shelf, publish};
use ff_store::{Store, StoreError};

use super::written::{NotWritten, Written};
use crate::config::Config;

/// The writer of bandwidth files.
#[derive(Clone)]
pub(super) struct Publisher {
    /// The store's file, which is only read.
    pub(super) store: PathBuf,
    /// The directory of the files.
    pub(super) dir: PathBuf,
    /// The rules of the files.
    pub(super) rules: PublishRules,
    /// The nickname of the authority that votes with the files.
    pub(super) dirauth_nickname: Option<String>,
}

impl Publisher {
    /// The publisher of this config.
    #[must_use]
    pub(super) fn new(config: &Config) -> Self {
        Self {
            store: config.store(),
            dir: config.publish_dir.clone(),
            rules: config.publish.rules(),
            dirauth_nickname: config.publish.dirauth_nickname.clone(),
        }
    }

    /// Reads the file that authorities vote with now, if there is one.
    pub(super) fn last(&self) -> Option<Written> {
        let shelf = Shelf::open(&self.dir).ok()?;
        let Last { name, made_unix_secs, reading } = shelf.last()?;
        let number = |key: &str| reading.header(key).and_then(|value| value.parse::<u64>().ok());
        Some(Written {
            path: self.dir.join(name).display().to_string(),
            relays: number("number_eligible_relays").unwrap_or(reading.lines.len() as u64),
            consensus_relays: number("number_consensus_relays").unwrap_or(0),
            is_voted: reading.lines.iter().any(|line| line.votes),
            unix_secs: made_unix_secs.unwrap_or(reading.unix_secs),
            ..Written::default()
        })
    }

    /// Writes a file of all results, with these data of the network.
    ///
    /// # Errors
    /// The reason; the previous file stays.
    pub(super) fn publish(&self, mut network: Publication) -> Result<Written, NotWritten> {
        let now = network.now_unix_secs;
        network.max_age_secs = self.rules.max_age_secs;
        let reader = Store::open_read_only(&self.store)?;
        let since = now.saturating_sub(self.rules.max_age_secs);
        let outcomes = reader.outcomes(since..now.saturating_add(1))?;
        reader.complete(&mut network)?;
        network.dirauth_nickname.clone_from(&self.dirauth_nickname);
        std::fs::create_dir_all(&self.dir)
            .map_err(|error| format!("{}: {error}", self.dir.display()))?;
        let Published { path, prepared, .. } = publish(&self.dir, &self.rules, &outcomes, network)?;
        let file = &prepared.file;
        Ok(Written {
            path: path.display().to_string(),
            relays: file.relays().len() as u64,
            consensus_relays: file.header().consensus_relays,
            is_voted: !file.is_under_minimum(),
            unix_secs: now,
            since_last: prepared.since_last,
            from_consensus: prepared.from_consensus,
        })
    }
}

impl From<StoreError> for NotWritten {
    fn from(error: StoreError) -> Self {
        format!("{:#}", anyhow::Error::new(error)).into()
    }
}

impl From<Refused> for NotWritten {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Invalid(InvalidFile::NothingToPublish) => {
                Self { reason: "no relay has a usable result".to_owned(), is_too_few: true }
            }
            Refused::Limits(broken) => Self {
                is_too_few: broken.iter().all(|one| one.limit == Limit::MinRelays),
                reason: Refused::Limits(broken).to_string(),
            },
            // The text of this error contains its cause.
            Refused::Invalid(_) => refused.to_string().into(),
            _ => format!("{:#}", anyhow::Error::new(refused)).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use ff_base::files::FileError;
    use ff_plan::publish::Broken;

    use super::*;

    #[test]
    fn why_no_file_was_written_is_said_with_its_cause() {
        let full = std::io::Error::from_raw_os_error(28);
        let refused = Refused::File(FileError::new("write", "/x/y.v3bw".as_ref())(full));
        let not_written = NotWritten::from(refused);
        assert_eq!(
            not_written.reason,
            "failed to write /x/y.v3bw: No space left on device (os error 28)"
        );
        assert!(!not_written.is_too_few);
        let broken = |limit| Broken { limit, reason: "x".to_owned() };
        for (limits, is_too_few) in [
            (vec![Limit::MinRelays], true),
            (vec![Limit::MinRelays, Limit::TotalFactor], false),
            (vec![Limit::Clock], false),
        ] {
            let refused = Refused::Limits(limits.iter().copied().map(broken).collect());
            assert_eq!(NotWritten::from(refused).is_too_few, is_too_few, "{limits:?}");
        }
        assert!(NotWritten::from(Refused::Invalid(InvalidFile::NothingToPublish)).is_too_few);
    }

    #[test]
    fn the_file_of_the_last_process_is_known() {
        let dir = tempfile::tempdir().expect("a directory");
        let publisher = Publisher {
            store: dir.path().join("store"),
            dir: dir.path().to_owned(),
            rules: PublishRules::default(),
            dirauth_nickname: None,
        };
        assert!(publisher.last().is_none());
        let name = "2026-11-20-09-00-00.v3bw";
        let text = "1795165200\nversion=1.5.0\nsoftware=flashflow\nnumber_eligible_relays=1\n\
             number_consensus_relays=4\n=====\nnode_id=$0101010101010101010101010101010101010101 bw=7 vote=0\n";
        std::fs::write(dir.path().join(name), text).expect("written");
        std::os::unix::fs::symlink(name, dir.path().join("latest.v3bw")).expect("linked");
        let last = publisher.last().expect("a file");
        assert_eq!((last.relays, last.consensus_relays, last.is_voted), (1, 4, false));
        assert_eq!((last.unix_secs, last.path.ends_with(name)), (1_795_165_200, true));
    }
}
