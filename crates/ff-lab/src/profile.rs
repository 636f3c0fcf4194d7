//! Named settings of links: built-in profiles and TOML files of the same form.
//!
//! A profile has two directions, `up` (from a host) and `down` (to it). Keys name the units of
//! their numbers. The built-in profiles are round numbers for trials, not measurements of a
//! network, or numbers of a paper that they name.

mod read;

use std::path::Path;

use crate::error::{Error, Result};
use crate::link::Direction;

/// Both directions of an access link.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Name, or path of the file.
    pub name: String,
    /// Description for lists.
    pub description: String,
    /// Direction from the host.
    pub up: Direction,
    /// Direction to the host.
    pub down: Direction,
}

/// Built-in profiles: name and text.
const BUILT_IN: [(&str, &str); 17] = [
    ("3g", include_str!("../profiles/3g.toml")),
    ("baseline", include_str!("../profiles/baseline.toml")),
    ("cable", include_str!("../profiles/cable.toml")),
    ("dsl", include_str!("../profiles/dsl.toml")),
    ("edge", include_str!("../profiles/edge.toml")),
    ("edge-lossy", include_str!("../profiles/edge-lossy.toml")),
    ("fibre", include_str!("../profiles/fibre.toml")),
    ("gap", include_str!("../profiles/gap.toml")),
    ("geo", include_str!("../profiles/geo.toml")),
    ("handover", include_str!("../profiles/handover.toml")),
    ("leo", include_str!("../profiles/leo.toml")),
    ("lossy", include_str!("../profiles/lossy.toml")),
    ("lte", include_str!("../profiles/lte.toml")),
    ("lte-moving", include_str!("../profiles/lte-moving.toml")),
    ("lte-paper", include_str!("../profiles/lte-paper.toml")),
    ("none", include_str!("../profiles/none.toml")),
    ("wifi-crowded", include_str!("../profiles/wifi-crowded.toml")),
];

impl Profile {
    /// Finds a built-in profile by name, or reads a file.
    pub fn find(name: &str) -> Result<Self> {
        if let Some((name, text)) = BUILT_IN.iter().find(|(found, _)| *found == name) {
            return read::profile(name, text, Path::new("."));
        }
        let path = Path::new(name);
        if !path.exists() {
            let names = BUILT_IN.map(|(name, _)| name).join(", ");
            let what = format!("there is no such file or profile; the profiles are {names}");
            return Err(Error::Profile { file: name.to_owned(), what });
        }
        let text = read::text(path)?;
        read::profile(name, &text, path.parent().unwrap_or(Path::new(".")))
    }

    /// Parses a profile. `file` is its name in messages; files that it names are below `dir`.
    ///
    /// # Errors
    /// [`Error::Profile`] with the invalid line or key.
    pub fn parse(file: &str, text: &str, dir: &Path) -> Result<Self> {
        read::profile(file, text, dir)
    }

    /// All built-in profiles.
    pub fn built_in() -> Result<Vec<Self>> {
        BUILT_IN.iter().map(|(name, text)| read::profile(name, text, Path::new("."))).collect()
    }
}

pub use read::rate;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;
    use crate::link::{Change, CoDel, Cut, Jitter, Loss, QueueLimit, Rate, Reorder, Timetable};

    #[test]
    fn all_built_in_profiles_are_read() {
        let all = Profile::built_in().unwrap();
        assert_eq!(all.len(), BUILT_IN.len());
        for profile in all {
            assert!(!profile.description.is_empty(), "{}", profile.name);
            assert!(profile.down.delay.base <= Duration::from_millis(400), "{}", profile.name);
        }
        let lte = Profile::find("lte").unwrap();
        assert!(matches!(lte.down.delay.jitter, Jitter::Pareto { .. }));
        assert!(!Profile::find("lte-moving").unwrap().down.timetable.is_empty());
    }

    /// Changes of a profile's link to the host, each with its cut.
    fn changes(name: &str) -> Vec<(Duration, Option<Cut>)> {
        let table = Profile::find(name).unwrap().down.timetable;
        let change = |index| table.change(index).map(|(at, change)| (at, change.cut));
        (0..3).map_while(change).collect()
    }

    #[test]
    fn mobile_links_have_the_gaps_and_rates_of_their_sources() {
        let ms = Duration::from_millis;
        let cut = |us, keeps_queue| Some(Cut { gap: Duration::from_micros(us), keeps_queue });
        let gaps = [cut(27_500, true), cut(40_000, true), cut(60_000, false)];
        let times = [ms(10_000), ms(20_000), ms(29_900)];
        assert_eq!(changes("handover"), times.into_iter().zip(gaps).collect::<Vec<_>>());
        let lost = cut(4_500_000, false);
        assert_eq!(changes("gap")[..2], [(ms(15_000), lost), (ms(35_000), lost)]);
        let edge = Profile::find("edge-lossy").unwrap();
        assert!(edge.down.loss.mean() < 0.01 && edge.up.loss.mean() < 0.01);
        assert_eq!(edge.down.delay, Profile::find("edge").unwrap().down.delay);
        assert_eq!(changes("edge-lossy").len(), 3);
        assert!(Profile::find("wifi-crowded").unwrap().down.loss.mean() > 0.005);
    }

    #[test]
    fn a_file_has_its_trace_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("up.trace"), "1\n2\n").unwrap();
        let file = dir.path().join("mine.toml");
        fs::write(&file, "description = 'x'\n[up]\ntrace = 'up.trace'\n[down]\n").unwrap();
        let profile = Profile::find(file.to_str().unwrap()).unwrap();
        assert_eq!(profile.up.rate.mean().unwrap().get(), 1_500_000);
        assert_eq!(profile.down, Direction::default());
    }

    /// Error of a profile with this direction.
    fn refused(direction: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("falls.trace"), "5\n3\n").unwrap();
        let file = dir.path().join("bad.toml");
        fs::write(&file, format!("description = 'x'\n[up]\n{direction}\n[down]\n")).unwrap();
        Profile::find(file.to_str().unwrap()).unwrap_err().to_string()
    }

    #[test]
    fn mistakes_are_named() {
        for (direction, expected) in [
            ("rate = '0Mbit'", "up.rate"),
            ("rate = '1Mbit'\ntrace = 'falls.trace'", "up: rate and trace"),
            ("trace = 'falls.trace'", "falls.trace: line 2: 3 ms comes after 5 ms"),
            ("trace = 'missing.trace'", "missing.trace"),
            ("loss = 1.5", "up.loss: 1.5 is not a share from 0 to 1"),
            ("loss = nan", "up.loss"),
            ("delay_ms = -1", "up.delay_ms"),
            ("delay_ms = 1e9", "up.delay_ms"),
            ("queue_ms = 5\nqueue_bytes = 5", "up: queue_ms and queue_bytes"),
            ("jitter = { pareto_ms = 3, shape = 0 }", "up.jitter"),
            ("jitter = { pareto_ms = 4 }", "pareto_ms and shape"),
            ("rate = \"up.trace\"", "needs the key `trace`"),
            ("change = [{ at_ms = 5, keeps_queue = false }]", "up.change.keeps_queue"),
            ("speed = 3", "line 3: unknown field `speed`"),
            ("change = [{ at_ms = 5 }]\nrepeat_ms = 4", "up.repeat_ms"),
            ("change = [{ at_ms = 0 }]\nrepeat_ms = 0.0001", "up.repeat_ms: it must be at least 1"),
            ("change = [{ at_ms = 5, duplicate = 2.0 }]", "up.change.duplicate: 2 is not a share"),
            ("change = [{ at_ms = 5, jitter = { normal_ms = -1 } }]", "up.change.jitter.normal_ms"),
            ("change = [{ at_ms = 5, queue_ms = 1, queue_bytes = 1 }]", "up.change: queue_ms and"),
        ] {
            let found = refused(direction);
            assert!(found.contains(expected), "{direction}: {found}");
            assert!(found.contains("bad.toml") || found.contains(".trace"), "{found}");
        }
    }

    #[test]
    fn a_change_may_be_of_anything() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("mine.toml");
        let change = "at_ms = 5, rate = '1Mbit', queue_bytes = 9000, codel = true, \
                      bursts = { to_bad = 0.1, to_good = 0.5, lost_in_bad = 1 }, delay_ms = 3, \
                      jitter = { normal_ms = 2 }, overtaking = true, duplicate = 0.5, \
                      reorder = { share = 0.1, by_ms = 4 }, gap_ms = 7";
        let text = format!("description = 'x'\n[up]\nchange = [{{ {change} }}]\n[down]\n");
        fs::write(&file, text).unwrap();
        let profile = Profile::find(file.to_str().unwrap()).unwrap();
        let whole = Change {
            at: Duration::from_millis(5),
            rate: Some(rate("--up", "1Mbit").unwrap()),
            queue: Some(QueueLimit::Bytes(9000)),
            codel: Some(Some(CoDel::default())),
            loss: Some(Loss::GilbertElliott {
                to_bad: 0.1,
                to_good: 0.5,
                lost_in_bad: 1.0,
                lost_in_good: 0.0,
            }),
            delay: Some(Duration::from_millis(3)),
            jitter: Some(Jitter::Normal { sigma: Duration::from_millis(2) }),
            overtaking: Some(true),
            duplicate: Some(0.5),
            reorder: Some(Reorder { share: 0.1, by: Duration::from_millis(4) }),
            cut: Some(Cut { gap: Duration::from_millis(7), keeps_queue: true }),
        };
        assert_eq!(profile.up.timetable, Timetable::new(vec![whole], None).unwrap());
    }

    #[test]
    fn rates_are_numbers_or_traces() {
        assert!(
            matches!(rate("--up", "5Mbit").unwrap(), Rate::Constant(rate) if rate.get() == 625_000)
        );
        assert_eq!(rate("--up", "unlimited").unwrap(), Rate::Unlimited);
        assert!(rate("--up", "0").unwrap_err().to_string().contains("--up"));
    }
}
