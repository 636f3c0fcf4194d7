//! Chooses the size of the next download, if the month's budget has room for it.
//!
//! The bytes held for a download are written before it begins, so that a killed run has spent them
//! and a new start does not spend them again.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use ff_circuits::record::CircuitRecord;
use ff_circuits::traffic;

use crate::budget::{Budget, Counter};
use crate::cli::serve::Terms;
use crate::clocks::Now;
use crate::interface;
use crate::mix::Mix;
use crate::store::spent;

/// Reads the counters of an interface of this name.
type Reader = Box<dyn Fn(&str) -> Result<Counter, String>>;

/// Sizes of downloads in order, and the budget.
pub(super) struct Orders {
    /// Folder of the budget's file.
    dir: PathBuf,
    mix: Mix,
    /// Random seed of the order.
    seed: u64,
    budget: Budget,
    /// Network interface whose counters are used, if any.
    interface: Option<String>,
    read: Reader,
    /// Whether they were read since the start.
    has_counted: bool,
    /// Age of the month in the file, in seconds.
    kept_age_secs: u64,
}

/// Difference of the month's age from that in the file at which it is written although no download
/// begins, in seconds. A program that is started again and again would otherwise never reach the
/// age at which a month that a wrong clock began is renewed.
const AGE_SECS: u64 = 3600;

impl Orders {
    /// Continues with the budget in a folder, which is locked.
    ///
    /// # Errors
    /// If that budget cannot be read, or the interface does not exist.
    pub(super) fn open(dir: &Path, terms: &Terms, seed: u64, now: Now) -> Result<Self> {
        Self::open_by(dir, terms, seed, now, Box::new(interface::read))
    }

    /// As [`Self::open`], with another reader of counters.
    fn open_by(dir: &Path, terms: &Terms, seed: u64, now: Now, read: Reader) -> Result<Self> {
        let budget = Budget::new(terms.data_bytes, spent::read(dir)?, now);
        let mut orders = Self {
            dir: dir.to_owned(),
            mix: terms.mix.clone(),
            seed,
            budget,
            interface: terms.data_interface.clone(),
            read,
            has_counted: false,
            kept_age_secs: 0,
        };
        orders.kept_age_secs = orders.budget.spent().age_secs;
        orders.count(now).map_err(|reason| anyhow!("--data-interface: {reason}"))?;
        Ok(orders)
    }

    /// Size in bytes of the next download, which then begins.
    ///
    /// # Errors
    /// One sentence, if it is put off.
    pub(super) fn next(&mut self, now: Now) -> Result<u64, String> {
        self.count(now)?;
        let size = self.wanted();
        if let Err(full) = self.budget.hold(traffic::most(size), now) {
            self.keep_age();
            return Err(full.to_string());
        }
        if let Err(error) = self.keep() {
            self.budget.release();
            return Err(format!("cannot write the budget: {error}"));
        }
        Ok(size)
    }

    /// Size of the next download, in bytes.
    pub(super) fn wanted(&self) -> u64 {
        self.mix.at(self.budget.spent().begun, self.seed)
    }

    /// Settles the download of a finished circuit; a circuit that never began has used nothing. If
    /// the budget cannot be written now, that is done when the next download begins, and all bytes
    /// held for this one count until then.
    pub(super) fn ended(&mut self, circuit: &CircuitRecord, now: Now) {
        if !circuit.has_begun() {
            return;
        }
        let taken = match self.interface {
            None => traffic::of_circuit(circuit),
            // The counters include it. If they cannot be read, all bytes held count.
            Some(_) => self.count(now).map_or(self.budget.spent().held_bytes, |()| 0),
        };
        self.budget.settle(taken, now);
        let _ = self.keep();
    }

    /// Bytes left in the month's budget; `None` without a limit.
    pub(super) fn left_bytes(&self) -> Option<u64> {
        self.budget.left_bytes()
    }

    /// Notes to log at the start, if a download begins every `every_secs`.
    pub(super) fn notes(&self, every_secs: f64) -> Vec<String> {
        let mut notes = Vec::new();
        if self.mix.sizes().len() > 1 {
            notes.push(format!("sizes {}, in an order drawn by --seed", self.mix));
        }
        let (Some(most), Some(left)) = (self.budget.most_bytes(), self.left_bytes()) else {
            return notes;
        };
        let how = self.interface.as_ref().map_or_else(
            || {
                "computed from the payload with cells, TLS, TCP and IP; without directory documents"
                    .to_owned()
            },
            |interface| format!("as counted on {interface}, including traffic of other programs"),
        );
        let month = &self.budget.spent().month;
        notes
            .push(format!("at most {most} bytes a month, {how}; {left} bytes are left of {month}"));
        let mean = self.round_bytes() as f64 / self.mix.round().max(1) as f64;
        let wanted = mean * 30.0 * 86_400.0 / every_secs;
        if wanted > most as f64 {
            notes.push(format!(
                "30 days of these downloads take about {:.1} GB, more than --data: some will be put off (see `ff-perf downloads plan`)",
                wanted / 1e9
            ));
        }
        notes
    }

    /// Traffic of a round of downloads, in bytes.
    fn round_bytes(&self) -> u64 {
        let of = |(size, weight): &(u64, u32)| {
            traffic::of_download(*size).times(u64::from(*weight)).all()
        };
        self.mix.sizes().iter().map(of).fold(0, u64::saturating_add)
    }

    /// Adds the interface's traffic since the last reading.
    fn count(&mut self, now: Now) -> Result<(), String> {
        let Some(name) = &self.interface else { return Ok(()) };
        let counter = (self.read)(name)?;
        let spent = self.budget.spent();
        let bytes = counter.since(spent.counter.as_ref());
        // Before the start there may have been downloads, and the time without them is unknown.
        if self.has_counted && spent.held_bytes == 0 {
            self.budget.spend_otherwise(bytes, now);
        } else {
            self.budget.spend(bytes, now);
        }
        self.has_counted = true;
        self.budget.read(counter);
        Ok(())
    }

    /// Writes the budget, if a new start needs it.
    fn keep(&mut self) -> Result<()> {
        if self.budget.most_bytes().is_some() || self.mix.sizes().len() > 1 {
            spent::write(&self.dir, self.budget.spent())?;
            self.kept_age_secs = self.budget.spent().age_secs;
        }
        Ok(())
    }

    /// Writes the budget, if its month has become much older.
    fn keep_age(&mut self) {
        if self.budget.spent().age_secs.abs_diff(self.kept_age_secs) >= AGE_SECS {
            // If that fails, the next download that is put off tries again.
            let _ = self.keep();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeMap;
    use std::rc::Rc;
    use std::time::Duration;

    use ff_base::utc::Utc;

    use super::*;

    /// 2026-11-20, in seconds since 1970.
    const NOVEMBER: u64 = 1_795_132_800;

    /// This many seconds after the start, by both clocks.
    fn at(secs: u64) -> Now {
        Now { unix_secs: NOVEMBER + secs, elapsed: Duration::from_secs(secs) }
    }

    fn terms(mix: &str, data_bytes: Option<u64>) -> Terms {
        let mix = mix.parse().expect("a mix");
        Terms { mix, data_bytes, data_interface: None, host: "op-a".to_owned(), address: None }
    }

    /// A circuit on which `came` of `asked` bytes arrived; complete if equal.
    fn circuit(came: u64, asked: u64) -> CircuitRecord {
        let us = (came == asked).then_some(9);
        let download =
            serde_json::json!({ "bytes": came, "asked_bytes": asked, "connected_us": 1, "us": us });
        let line = serde_json::json!({ "schema": 1, "number": 0, "client": "arti", "began_unix_secs": 0.0,
            "began_us": 0, "path": [{ "id": "A" }], "ended_us": 9, "download": download });
        serde_json::from_value(line).expect("a circuit")
    }

    /// Two slots a day for a year, of which some fail: no month exceeds its budget, downloads that
    /// do not fit are put off, and sizes follow the order of the mix whatever was put off.
    #[test]
    fn a_year_keeps_to_its_budget_and_its_order() {
        let dir = tempfile::tempdir().expect("a directory");
        let terms = terms("1MiB=3,20MiB=2", Some(400_000_000));
        let mut orders = Orders::open(dir.path(), &terms, 3, at(0)).expect("orders");
        let (mut sizes, mut put_off) = (Vec::new(), 0);
        let mut months = BTreeMap::<String, u64>::new();
        for slot in 0..365 * 2 {
            let secs = slot * 43_200;
            let size = match orders.next(at(secs)) {
                Ok(size) => size,
                Err(reason) => {
                    assert!(reason.contains("left of the data budget of 20"), "{reason}");
                    put_off += 1;
                    continue;
                }
            };
            sizes.push(size);
            // Some are cut off.
            let circuit = circuit(if slot % 5 == 0 { size / 2 } else { size }, size);
            let took = traffic::of_circuit(&circuit);
            *months.entry(orders.budget.spent().month.clone()).or_default() += took;
            if slot % 29 == 0 {
                // Killed. The simulated clocks continue from the start of the year.
                let now = Now { elapsed: Duration::ZERO, ..at(secs) };
                orders = Orders::open(dir.path(), &terms, 3, now).expect("orders");
                let spent = orders.budget.spent().clone();
                orders.budget = Budget::new(terms.data_bytes, Some(spent), at(secs));
            } else {
                orders.ended(&circuit, at(secs + 60));
            }
        }
        assert_eq!(months.len(), 13);
        assert!(months.values().all(|took| *took <= 400_000_000), "{months:?}");
        assert!(months.values().filter(|took| **took > 320_000_000).count() >= 11, "{months:?}");
        assert!(put_off > 50, "{put_off}");
        let order = (0..).map(|place| terms.mix.at(place, 3));
        assert!(order.take(sizes.len()).eq(sizes.iter().copied()), "no size is skipped");
    }

    /// The clock was a year ahead; from then on the program is started again every day.
    #[test]
    fn a_month_of_the_future_ends_also_if_the_program_starts_again_every_day() {
        let dir = tempfile::tempdir().expect("a directory");
        let terms = terms("9kB", Some(traffic::most(9000)));
        let ahead = at(365 * 86_400);
        let mut orders = Orders::open(dir.path(), &terms, 0, ahead).expect("orders");
        assert_eq!(orders.next(ahead), Ok(9000));
        orders.ended(&circuit(9000, 9000), ahead);
        let begins = |day: u64| {
            let unix_secs = NOVEMBER + day * 86_400;
            let start = Now { unix_secs, elapsed: Duration::ZERO };
            let mut orders = Orders::open(dir.path(), &terms, 0, start).expect("orders");
            let late = Now { unix_secs: unix_secs + 86_000, elapsed: Duration::from_secs(86_000) };
            orders.next(late).is_ok()
        };
        let days: Vec<u64> = (0..40).filter(|day| begins(*day)).collect();
        // 32 times 86,000 s are more than 31 days.
        assert_eq!(days, [31]);
    }

    /// A year of two slots a day, and of directory documents over the same interface: the budget
    /// covers both.
    #[test]
    fn a_year_on_an_interface_keeps_to_its_budget_with_directory_documents() {
        let dir = tempfile::tempdir().expect("a directory");
        let data_interface = Some("wwan0".to_owned());
        let terms = Terms { data_interface, ..terms("1MiB=3,20MiB=2", Some(600_000_000)) };
        let bytes = Rc::new(Cell::new(7000));
        let counter = Rc::clone(&bytes);
        let read = move |name: &str| {
            let (interface, bytes) = (name.to_owned(), counter.get());
            Ok(Counter { interface, bytes, ..Counter::default() })
        };
        let orders = Orders::open_by(dir.path(), &terms, 3, at(0), Box::new(read));
        let mut orders = orders.expect("orders");
        let (mut begun, mut months) = (0, BTreeMap::<String, u64>::new());
        let mut goes = |secs: u64, more: u64| {
            bytes.set(bytes.get() + more);
            let month = Utc::from_unix_secs(at(secs).unix_secs).expect("a time").to_string();
            *months.entry(month[..7].to_owned()).or_default() += more;
        };
        for slot in 0..365 * 2 {
            let secs = slot * 43_200;
            goes(secs, 1_500_000 + slot % 3 * 1_000_000);
            let Ok(size) = orders.next(at(secs)) else { continue };
            begun += 1;
            // Some packets are lost.
            goes(secs + 60, traffic::of_download(size).all() / 100 * 103);
            orders.ended(&circuit(size, size), at(secs + 60));
        }
        assert!(months.values().all(|spent| *spent <= 600_000_000), "{months:?}");
        assert!(months.values().filter(|spent| **spent > 500_000_000).count() >= 11, "{months:?}");
        assert!((100..730).contains(&begun), "{begun}");
    }

    #[test]
    fn what_a_new_start_does_not_need_is_not_written() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut orders = Orders::open(dir.path(), &terms("9kB", None), 0, at(0)).expect("orders");
        assert_eq!(orders.next(at(0)), Ok(9000));
        orders.ended(&circuit(9000, 9000), at(1));
        assert_eq!((spent::read(dir.path()).expect("nothing"), orders.left_bytes()), (None, None));
        assert!(orders.notes(300.0).is_empty());
    }

    #[test]
    fn nothing_begins_that_cannot_be_written_down() {
        let dir = tempfile::tempdir().expect("a directory");
        let there = dir.path().join("there");
        std::fs::create_dir(&there).expect("a directory");
        let terms = terms("12:2:1", Some(1_000_000_000));
        let mut orders = Orders::open(&there, &terms, 0, at(0)).expect("orders");
        std::fs::remove_dir(&there).expect("gone");
        let reason = orders.next(at(0)).expect_err("no folder");
        assert!(reason.contains("budget.json"), "{reason}");
        assert_eq!(orders.left_bytes(), Some(1_000_000_000));
        std::fs::create_dir(&there).expect("a directory");
        assert_eq!(orders.wanted(), terms.mix.at(0, 0), "no size is skipped");
        assert_eq!(orders.next(at(1)), Ok(terms.mix.at(0, 0)));
        assert_eq!(orders.wanted(), terms.mix.at(1, 0));
    }

    #[test]
    fn a_start_says_what_counts_and_what_will_not_fit() {
        let dir = tempfile::tempdir().expect("a directory");
        let terms = terms("12:2:1", Some(5_000_000_000));
        let orders = Orders::open(dir.path(), &terms, 0, at(0)).expect("orders");
        let notes = orders.notes(300.0).join("\n");
        for part in [
            "sizes 50KiB=12,1MiB=2,5MiB=1",
            "at most 5000000000 bytes a month",
            "without directory documents",
            "5000000000 bytes are left of 2026-11",
            "about 5.3 GB, more than --data",
        ] {
            assert!(notes.contains(part), "{part} in {notes}");
        }
        assert!(!orders.notes(400.0).join("\n").contains("put off"));
        let odd = Terms { data_interface: Some("nowhere9".to_owned()), ..terms };
        let error =
            Orders::open(dir.path(), &odd, 0, at(0)).err().expect("no interface").to_string();
        assert!(
            error.contains("--data-interface: there is no network interface nowhere9"),
            "{error}"
        );
    }

    /// The loopback interface exists in every network namespace.
    #[test]
    fn what_went_over_an_interface_counts_from_the_first_look_on() {
        let dir = tempfile::tempdir().expect("a directory");
        let terms = Terms { data_interface: Some("lo".to_owned()), ..terms("9kB", Some(u64::MAX)) };
        let mut orders = Orders::open(dir.path(), &terms, 0, at(0)).expect("orders");
        assert_eq!(orders.budget.spent().bytes, 0, "what went over it before is not counted");
        assert_eq!(orders.next(at(0)), Ok(9000));
        let counted = orders.budget.spent().counter.clone().expect("a counter");
        orders.ended(&circuit(9000, 9000), at(1));
        let spent = orders.budget.spent();
        let now = spent.counter.clone().expect("a counter");
        assert!(now.bytes >= counted.bytes && spent.held_bytes == 0, "{spent:?}");
        assert!(spent.bytes >= now.since(Some(&counted)), "{spent:?}");
        assert_eq!(spent::read(dir.path()).expect("a budget").as_ref(), Some(spent));
    }
}
