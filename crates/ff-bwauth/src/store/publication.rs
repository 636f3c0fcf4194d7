//! What a store adds to a bandwidth file beside the outcomes: what is remembered of a month, who was measured together
//! or shared an address, and whom the schedule has no place for.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ff_proto::aggregate::Verdict;
use rusqlite::params;

use super::in_columns::InColumns;
use super::row::Columns;
use super::value::{Number, Stored};
use super::{Reader, Store, StoreError};
use crate::outcome::Method;
use crate::period::Fingerprint;
use crate::period::group::merged;
use crate::publish::days::MEMORY_DAYS;
use crate::publish::v3bw::drawn::host_of;
use crate::publish::v3bw::{Drawn, NotScheduled, Publication};

/// Seconds of a day.
const DAY_SECS: u64 = 24 * 60 * 60;

impl Stored for NotScheduled {
    type As = String;

    fn read(stored: String) -> Option<Self> {
        Self::ALL.iter().copied().find(|why| why.name() == stored)
    }

    fn stored(&self) -> String {
        self.name().to_owned()
    }
}

impl Store {
    /// Keeps whom the schedule has no place for.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn set_not_scheduled(
        &mut self,
        relays: &BTreeMap<Fingerprint, NotScheduled>,
    ) -> Result<(), StoreError> {
        if self.not_scheduled()? == *relays {
            return Ok(());
        }
        self.write("keep who has no place", |writing| {
            writing.execute("DELETE FROM not_scheduled", [])?;
            relays.iter().try_for_each(|(relay, why)| {
                let sql = "INSERT INTO not_scheduled (fingerprint, reason) VALUES (?1, ?2)";
                writing.execute(sql, params![relay, why.name()]).map(drop)
            })
        })
    }
}

impl Reader {
    /// Adds what the store knows to what the documents say: with it everybody who makes a bandwidth file of this store makes
    /// the same.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn complete(&self, publication: &mut Publication) -> Result<(), StoreError> {
        let now = publication.now_unix_secs;
        if let Some(period) = self.last_period()? {
            publication.period_secs = Some(period.length_secs.into());
        }
        publication.not_scheduled = self.not_scheduled()?;
        let drawn = self.drawn(now)?;
        let ties = self.ties_by(&drawn, now, publication.max_age_secs)?;
        publication.groups = merged(publication.groups.drain(..).chain(ties));
        publication.drawn = Some(drawn);
        Ok(())
    }

    /// The relays that belong together by what was measured within the greatest age.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn ties(&self, now: u64, max_age_secs: u64) -> Result<Vec<Vec<Fingerprint>>, StoreError> {
        self.ties_by(&self.drawn(now)?, now, max_age_secs)
    }

    /// The same, by what all attempts counted as.
    fn ties_by(
        &self,
        drawn: &[Drawn],
        now: u64,
        max_age_secs: u64,
    ) -> Result<Vec<Vec<Fingerprint>>, StoreError> {
        let since = now.saturating_sub(max_age_secs);
        let mut lists = Vec::new();
        let sql = "SELECT number FROM periods WHERE start_unix_secs + length_secs > ?1 AND start_unix_secs <= ?2";
        let span = [Number(since), Number(now)];
        for period in self.all("periods", sql, span, |columns| columns.of::<u64>())? {
            lists.extend(self.groups(period)?);
        }
        let mut at = BTreeMap::<IpAddr, Vec<Fingerprint>>::new();
        for one in drawn.iter().filter(|one| one.started_unix_secs >= since) {
            if let Some((host, relay)) = one.host.zip(one.fingerprint) {
                at.entry(host).or_default().push(relay);
            }
        }
        Ok(merged(lists.into_iter().chain(at.into_values())))
    }

    /// Whom the schedule has no place for.
    fn not_scheduled(&self) -> Result<BTreeMap<Fingerprint, NotScheduled>, StoreError> {
        let sql = "SELECT id, fingerprint, reason FROM not_scheduled";
        let relays = self.all("not_scheduled", sql, [], |columns| {
            let _id: i64 = columns.take()?;
            Ok((columns.take::<Fingerprint>()?, columns.of::<NotScheduled>()?))
        })?;
        Ok(relays.into_iter().collect())
    }

    /// What all attempts of a month until now counted as.
    fn drawn(&self, now: u64) -> Result<Vec<Drawn>, StoreError> {
        let sql = "SELECT a.id, t.ed_identity, t.shown_fingerprint, t.address, a.started_unix_secs, a.draw,
                   a.draw_bytes_per_sec, a.verdict = ?3 AND a.estimate_bytes_per_sec IS NOT NULL
                   FROM attempts a JOIN targets t ON t.id = a.target
                   WHERE a.started_unix_secs >= ?1 AND a.started_unix_secs <= ?2
                   AND a.finished_unix_secs IS NOT NULL AND a.method = ?4";
        let since = Number(now.saturating_sub(MEMORY_DAYS * DAY_SECS));
        let names = (Verdict::Conclusive.name(), Method::Echo.name());
        self.all("attempts", sql, params![since, Number(now), names.0, names.1], read_drawn)
    }
}

/// Reads what an attempt counted as.
fn read_drawn(columns: &mut Columns<'_, '_>) -> rusqlite::Result<Drawn> {
    let _id: i64 = columns.take()?;
    Ok(Drawn {
        ed_identity: columns.take()?,
        fingerprint: columns.take()?,
        host: host_of(&columns.take::<String>()?),
        started_unix_secs: columns.of()?,
        draw: InColumns::take(columns)?,
        concludes: columns.take()?,
    })
}
