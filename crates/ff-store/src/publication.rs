//! The store's data for a bandwidth file other than outcomes: the results of a month, groups of
//! relays by measurement or address, and relays for which the schedule has no slot.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use ff_base::identity::Fingerprint;
use ff_base::utc::DAY_SECS;
use ff_plan::outcome::Method;
use ff_plan::publish::days::MEMORY_DAYS;
use ff_plan::publish::v3bw::drawn::host_of;
use ff_plan::publish::v3bw::{Drawn, Month, NotScheduled, Publication, Scheduled};
use ff_proto::aggregate::{Draw, Verdict};
use ff_proto::params::PERIOD_SECS;
use ff_proto::units::BytesPerSec;
use rusqlite::params;

use super::in_columns::InColumns;
use super::plan::GONE;
use super::row::Columns;
use super::value::{Number, Stored, draw_name};
use super::{Reader, Store, StoreError, error};

impl Stored for NotScheduled {
    type As = String;

    fn read(stored: String) -> Option<Self> {
        Self::ALL.iter().copied().find(|why| why.name() == stored)
    }

    fn stored(&self) -> String {
        self.name().to_owned()
    }
}

/// The store's data for a bandwidth file other than outcomes.
#[derive(Clone, Debug)]
pub struct Memory {
    /// The length of a period in seconds, if one was planned.
    period_secs: Option<u64>,
    /// Relays that the schedule has no slot for.
    not_scheduled: BTreeMap<Fingerprint, NotScheduled>,
    /// Groups of relays that were measured at one address.
    groups: Vec<Vec<Fingerprint>>,
    /// Relays to be measured at once, by their schedules.
    scheduled: Vec<Scheduled>,
    /// The days of all relays within a month.
    month: Arc<Month>,
}

impl Memory {
    /// The relays that counted together with this one, by address or schedule.
    #[must_use]
    pub fn beside(&self, relay: &Fingerprint) -> Vec<Fingerprint> {
        let scheduled = self.scheduled.iter().map(|one| &one.members);
        let lists = self.groups.iter().chain(scheduled).filter(|list| list.contains(relay));
        lists.flatten().copied().collect()
    }

    /// Adds these data to the documents' data.
    pub fn complete(&self, publication: &mut Publication) {
        publication.period_secs = self.period_secs.or(publication.period_secs);
        publication.not_scheduled.clone_from(&self.not_scheduled);
        publication.groups.extend(self.groups.iter().cloned());
        publication.scheduled.clone_from(&self.scheduled);
        publication.month = Some(Arc::clone(&self.month));
    }
}

impl Store {
    /// Stores the relays for which the schedule has no slot.
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
        self.write("store the relays without a slot", |writing| {
            writing.execute("DELETE FROM not_scheduled", [])?;
            relays.iter().try_for_each(|(relay, why)| {
                let sql = "INSERT INTO not_scheduled (fingerprint, reason) VALUES (?1, ?2)";
                writing.execute(sql, params![relay, why.name()]).map(drop)
            })
        })
    }
}

impl Reader {
    /// Adds the store's data to the documents' data, so that all programs that make a bandwidth
    /// file from this store make the same.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn complete(&self, publication: &mut Publication) -> Result<(), StoreError> {
        let memory = self.memory(publication.now_unix_secs, publication.max_age_secs)?;
        memory.complete(publication);
        Ok(())
    }

    /// The store's data at a time, with results up to this age.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn memory(&self, now_unix_secs: u64, max_age_secs: u64) -> Result<Memory, StoreError> {
        // One transaction, so that all parts are from the same moment.
        let fail = error::sqlite(&self.path, "be read");
        let _moment = self.db.unchecked_transaction().map_err(fail)?;
        let since = now_unix_secs.saturating_sub(max_age_secs);
        let drawn = self.drawn(now_unix_secs)?;
        let mut at = BTreeMap::<IpAddr, Vec<Fingerprint>>::new();
        for one in drawn.iter().filter(|one| one.started_unix_secs >= since) {
            if let Some((host, relay)) = one.host.zip(one.fingerprint) {
                at.entry(host).or_default().push(relay);
            }
        }
        let once = |mut relays: Vec<Fingerprint>| {
            relays.sort_unstable();
            relays.dedup();
            relays
        };
        let groups = at.into_values().map(once).filter(|relays| relays.len() > 1).collect();
        let period_secs = self.last_period()?.map(|period| period.length_secs.into());
        let month = Month::of(&drawn, now_unix_secs, period_secs.unwrap_or(PERIOD_SECS));
        Ok(Memory {
            period_secs,
            not_scheduled: self.not_scheduled()?,
            groups,
            scheduled: self.scheduled_at_once(since, now_unix_secs)?,
            month: Arc::new(month),
        })
    }

    /// The groups of the schedules in a span of time.
    fn scheduled_at_once(&self, since: u64, until: u64) -> Result<Vec<Scheduled>, StoreError> {
        let sql = "SELECT number, start_unix_secs, length_secs FROM periods
                   WHERE start_unix_secs + length_secs > ?1 AND start_unix_secs <= ?2 ORDER BY number";
        let span = [Number(since), Number(until)];
        let periods = self.all("periods", sql, span, |columns| {
            let (number, start) = (columns.of::<u64>()?, columns.of::<u64>()?);
            Ok((number, start, columns.of::<u32>()?))
        })?;
        let mut scheduled = Vec::new();
        for (number, start, length) in periods {
            let period_unix_secs = start..start.saturating_add(length.into());
            let of = |members| Scheduled { period_unix_secs: period_unix_secs.clone(), members };
            scheduled.extend(self.groups(number)?.into_iter().map(of));
        }
        Ok(scheduled)
    }

    /// The relays for which the schedule has no slot.
    fn not_scheduled(&self) -> Result<BTreeMap<Fingerprint, NotScheduled>, StoreError> {
        let sql = "SELECT id, fingerprint, reason FROM not_scheduled";
        let relays = self.all("not_scheduled", sql, [], |columns| {
            let _id: i64 = columns.take()?;
            Ok((columns.take::<Fingerprint>()?, columns.of::<NotScheduled>()?))
        })?;
        Ok(relays.into_iter().collect())
    }

    /// The draws of all attempts of a month until now. Targets are read once each, because a join
    /// would read them for each attempt.
    fn drawn(&self, now: u64) -> Result<Vec<Drawn>, StoreError> {
        let sql = "SELECT id, ed_identity, shown_fingerprint, address FROM targets";
        let targets: HashMap<_, _> =
            self.all("targets", sql, [], read_target)?.into_iter().collect();
        let since = now.saturating_sub(MEMORY_DAYS * DAY_SECS);
        let (at_arrival, evaded) = (self.plans_at_arrival(since)?, self.evaded()?);
        let sql = "SELECT id, target, plan, started_unix_secs, draw, draw_bytes_per_sec,
                   CASE WHEN verdict = ?5 AND draw = ?6 THEN estimate_bytes_per_sec END,
                   verdict = ?3 AND estimate_bytes_per_sec IS NOT NULL FROM attempts
                   WHERE started_unix_secs >= ?1 AND started_unix_secs <= ?2
                   AND finished_unix_secs IS NOT NULL AND method = ?4";
        let names = (Verdict::Conclusive.name(), Method::Echo.name());
        let mut drawn = Vec::new();
        let limited = (Verdict::PathLimited.name(), draw_name(Draw::Void));
        let values = params![Number(since), Number(now), names.0, names.1, limited.0, limited.1];
        self.each("attempts", sql, values, read_drawn, |(id, target, plan, of_attempt)| {
            let at_arrival = plan.is_some_and(|plan| at_arrival.contains(&plan));
            let draw = if evaded.contains(&id) { Draw::Blank } else { of_attempt.draw };
            let of_attempt = OfAttempt { at_arrival, draw, ..of_attempt };
            drawn.extend(targets.get(&target).map(|target| target.drawn(of_attempt)));
            Ok::<_, StoreError>(())
        })?;
        Ok(drawn)
    }

    /// The rows of plans with relays that could choose their slot by the time at which they joined,
    /// of all periods that ended after a time in seconds since 1970. An attempt begins before its
    /// period ends, so attempts since then have no other rows.
    fn plans_at_arrival(&self, since: u64) -> Result<HashSet<i64>, StoreError> {
        let sql = "SELECT plan.id, period FROM periods
                   CROSS JOIN plan ON plan.period = periods.number
                   WHERE start_unix_secs + length_secs > ?1 AND at_arrival = 1";
        let ids = self.all("plan", sql, [Number(since)], |columns| columns.take::<i64>())?;
        Ok(ids.into_iter().collect())
    }

    /// Attempts that were to be repeated because the path was the limit, but whose relays had left
    /// before. They count without a value: otherwise a slow relay could drop packets and leave for
    /// an hour.
    fn evaded(&self) -> Result<HashSet<i64>, StoreError> {
        let sql = "SELECT a.id, again.period FROM plan again
                   JOIN periods p ON p.number = again.period
                   JOIN targets t ON t.fingerprint = again.fingerprint
                   JOIN attempts a ON a.target = t.id AND a.started_unix_secs >= p.start_unix_secs
                   AND a.started_unix_secs < p.start_unix_secs + p.length_secs
                   WHERE again.kind = 'retry' AND again.left_out IS NOT NULL AND again.left_out = ?1
                   AND a.verdict = ?2 AND a.draw = ?3";
        let values = params![GONE, Verdict::PathLimited.name(), draw_name(Draw::Void)];
        let ids = self.all("plan", sql, values, |columns| columns.take::<i64>())?;
        Ok(ids.into_iter().collect())
    }
}

/// The data of a draw about the measured relay.
struct Target {
    /// Its Ed25519 identity.
    ed_identity: [u8; 32],
    /// The RSA fingerprint that its link has shown.
    fingerprint: Option<Fingerprint>,
    /// The relay's address at that time.
    host: Option<IpAddr>,
}

/// The data of a draw about the attempt.
#[derive(Clone, Copy)]
struct OfAttempt {
    /// When it began, in seconds since 1970.
    started_unix_secs: u64,
    /// How the attempt counted.
    draw: Draw,
    /// The rate that the path limited, if the attempt is not a draw because of that.
    limited: Option<BytesPerSec>,
    /// Whether it was conclusive.
    concludes: bool,
    /// Whether the relay could choose its time by joining.
    at_arrival: bool,
}

impl Target {
    /// The draw of an attempt on this target.
    fn drawn(&self, of_attempt: OfAttempt) -> Drawn {
        let OfAttempt { started_unix_secs, draw, limited, concludes, at_arrival } = of_attempt;
        let Self { ed_identity, fingerprint, host } = *self;
        Drawn {
            ed_identity,
            fingerprint,
            host,
            started_unix_secs,
            draw,
            limited,
            concludes,
            at_arrival,
        }
    }
}

/// Reads a target, with its number.
fn read_target(columns: &mut Columns<'_, '_>) -> rusqlite::Result<(i64, Target)> {
    let id = columns.take()?;
    let (ed_identity, fingerprint) = (columns.take()?, columns.take()?);
    let host = host_of(&columns.take::<String>()?);
    Ok((id, Target { ed_identity, fingerprint, host }))
}

/// The numbers of an attempt, of its target and of its row of the plan, and the attempt's data.
type OfRow = (i64, i64, Option<i64>, OfAttempt);

/// Reads the data of an attempt for a draw.
fn read_drawn(columns: &mut Columns<'_, '_>) -> rusqlite::Result<OfRow> {
    let (id, target, plan) = (columns.take()?, columns.take()?, columns.take()?);
    let started_unix_secs = columns.of()?;
    let (draw, limited) = (InColumns::take(columns)?, columns.maybe()?);
    let concludes = columns.take()?;
    let of_attempt = OfAttempt { started_unix_secs, draw, limited, concludes, at_arrival: false };
    Ok((id, target, plan, of_attempt))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Period, ToPlan};

    #[test]
    fn only_periods_that_ended_after_a_time_are_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut store = Store::open(&dir.path().join("store"), [7; 32]).expect("a store");
        let row = ToPlan {
            fingerprint: [1; 20],
            slot: 3,
            kind: Kind::New,
            group: 5,
            demand: BytesPerSec::new(1),
        };
        let mut ids = Vec::new();
        for number in [100, 130, 131] {
            let period = Period {
                number,
                start_unix_secs: number * DAY_SECS,
                length_secs: 86_400,
                slot_secs: 45,
                slots: 1920,
                consensus_valid_after_unix_secs: number * DAY_SECS,
                seed_sha256: [1; 32],
                planned_unix_secs: number * DAY_SECS,
                finished_unix_secs: None,
            };
            store.set_plan(&period, &[]).expect("planned");
            // The relay comes, and is measured again in a slot that is drawn.
            let rows = [row, ToPlan { kind: Kind::Retry, ..row }];
            store.change_plan(number, "{}", &rows, &[], (&[], "")).expect("changed");
            let planned = store.planned(number).expect("read");
            assert_eq!(
                planned.iter().map(|row| row.what.kind).collect::<Vec<_>>(),
                [Kind::New, Kind::Retry]
            );
            ids.push(planned[0].id.0);
        }
        let since = |secs| store.plans_at_arrival(secs).expect("read");
        let last = |of: usize| ids[3 - of..].iter().copied().collect::<HashSet<i64>>();
        assert_eq!(since(101 * DAY_SECS - 1), last(3));
        assert_eq!(since(101 * DAY_SECS), last(2), "the first period is over");
        assert_eq!(since(130 * DAY_SECS + 1), last(2), "this period goes on");
        assert_eq!(since(131 * DAY_SECS), last(1));
        assert_eq!(since(132 * DAY_SECS), last(0));
    }
}
