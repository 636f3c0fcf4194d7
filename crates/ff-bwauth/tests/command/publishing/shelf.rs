//! The directory: files that are never touched, files that are deleted, and remains of a crash.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, SystemTime};

use ff_plan::publish::v3bw::Publication;
use ff_plan::publish::{self, LATEST, PublishRules, Refused, Shelf};

use super::{measured, network};
use crate::names;
use crate::samples::{DAY, NOW};

/// The name of a file that is published now.
const NAME: &str = "2026-11-20-09-30-00.v3bw";

/// Publishes one relay's result this number of seconds from now; returns the message of the error.
fn publish_in(dir: &Path, secs: u64) -> Result<publish::Published, String> {
    let publication = Publication { now_unix_secs: NOW + secs, ..network(1) };
    let rules = PublishRules { max_newest_result_age_secs: u64::MAX, ..PublishRules::default() };
    let mut outcome = measured(1, 0, 8);
    outcome.started_unix_secs += secs;
    let publication =
        Publication { consensus_valid_after_unix_secs: Some(NOW + secs), ..publication };
    publish::publish(dir, &rules, &[outcome], publication).map_err(|error| error.to_string())
}

#[test]
fn what_is_not_ours_is_never_overwritten() {
    let ours = "1795165200\nversion=1.5.0\nsoftware=flashflow\n=====\n";
    let sbws = ours.replace("flashflow", "sbws");
    type Make<'a> = &'a dyn Fn(&Path);
    let cases: [(&str, Make<'_>, &str); 9] = [
        ("sbws's", &|dir| fs::write(dir.join(LATEST), &sbws).expect("a file"), "a file by sbws"),
        (
            "a text",
            &|dir| fs::write(dir.join(LATEST), "x").expect("a file"),
            "no bandwidth file of ours",
        ),
        ("a directory", &|dir| fs::create_dir(dir.join(LATEST)).expect("it"), "a directory"),
        (
            "an absolute link",
            &|dir| symlink("/etc/passwd", dir.join(LATEST)).expect("it"),
            "outside of its directory",
        ),
        (
            "a link upwards",
            &|dir| symlink("../x.v3bw", dir.join(LATEST)).expect("it"),
            "outside of its directory",
        ),
        (
            "a link to itself",
            &|dir| symlink(LATEST, dir.join(LATEST)).expect("it"),
            "no plain file",
        ),
        (
            "a link to sbws's",
            &|dir| {
                fs::write(dir.join("latest_bandwidth"), &sbws).expect("a file");
                symlink("latest_bandwidth", dir.join(LATEST)).expect("a link");
            },
            "latest_bandwidth is a file by sbws",
        ),
        (
            "the name is taken",
            &|dir| fs::write(dir.join(NAME), &sbws).expect("a file"),
            "09-30-00.v3bw is a file by sbws",
        ),
        (
            "the name is a link",
            &|dir| symlink("/etc/passwd", dir.join(NAME)).expect("it"),
            "no plain file",
        ),
    ];
    for (what, make, reason) in cases {
        let dir = tempfile::tempdir().expect("a directory");
        make(dir.path());
        let before = names(dir.path());
        let error = publish_in(dir.path(), 0).expect_err(what);
        assert!(error.contains(reason) && error.contains("left alone"), "{what}: {error}");
        assert_eq!(names(dir.path()), before, "{what}");
    }
    // Ours may be a plain file, as a copy has it, or a link to nothing.
    for make in
        [&(|dir: &Path| fs::write(dir.join(LATEST), ours).expect("a file")) as Make<'_>, &|dir| {
            symlink("2026-11-19-09-30-00.v3bw", dir.join(LATEST)).expect("a link")
        }]
    {
        let dir = tempfile::tempdir().expect("a directory");
        make(dir.path());
        publish_in(dir.path(), 0).expect("it is published");
        assert_eq!(fs::read_link(dir.path().join(LATEST)).expect("a link"), Path::new(NAME));
    }
}

#[test]
fn another_users_file_is_left_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    publish_in(dir.path(), 0).expect("it is published");
    // Only root can change a file's owner; other users skip this part.
    if std::os::unix::fs::chown(dir.path().join(NAME), Some(12_345), None).is_err() {
        return;
    }
    let error = publish_in(dir.path(), 3600).expect_err("refused");
    assert!(error.contains("belongs to user 12345 and you are root"), "{error}");
}

#[test]
fn old_files_of_ours_go_and_nothing_else_does() {
    let dir = tempfile::tempdir().expect("a directory");
    for days in [0, 1, 29, 30] {
        publish_in(dir.path(), days * DAY).expect("it is published");
    }
    let foreign = "2020-01-01-00-00-00.v3bw";
    fs::write(dir.path().join(foreign), "1\nsoftware=sbws\n=====\n").expect("a file");
    fs::create_dir(dir.path().join("2020-01-01-00-00-01.v3bw")).expect("a directory");
    symlink(NAME, dir.path().join("2020-01-01-00-00-02.v3bw")).expect("a link");
    fs::write(dir.path().join("notes.v3bw"), "1\nsoftware=flashflow\n=====\n").expect("a file");
    // Remains of a crash, old by the disk's clock, and another program's file.
    let ours = fs::read(dir.path().join(NAME)).expect("a file");
    fs::write(dir.path().join(".ff-123456.tmp"), &ours[..ours.len() / 2]).expect("a file");
    fs::write(dir.path().join(".ff-abcdef.tmp"), "secret").expect("a file");
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW);
    for name in [".ff-123456.tmp", ".ff-abcdef.tmp"] {
        let file = fs::File::options().append(true).open(dir.path().join(name)).expect("a file");
        file.set_modified(long_ago).expect("a time");
    }
    let before = names(dir.path());
    let published = publish_in(dir.path(), 30 * DAY + 1).expect("it is published");
    let gone = [".ff-123456.tmp", NAME];
    assert_eq!(published.deleted, gone.map(Path::new));
    let mut expected: Vec<_> =
        before.into_iter().filter(|name| !gone.contains(&name.as_str())).collect();
    expected.push("2026-12-20-09-30-01.v3bw".to_owned());
    expected.sort_unstable();
    assert_eq!(names(dir.path()), expected);
}

#[test]
fn the_file_of_a_day_before_is_the_newest_that_is_a_day_older() {
    let dir = tempfile::tempdir().expect("a directory");
    let before = || {
        let shelf = Shelf::open(dir.path()).expect("a shelf");
        shelf.day_before().expect("read").map(|file| file.name.display().to_string())
    };
    assert_eq!(before(), None, "the directory is empty");
    for (secs, expected) in [
        (0, None),
        // None is a day older yet: the oldest.
        (3600, Some("2026-11-20-09-30-00.v3bw")),
        (DAY, Some("2026-11-20-09-30-00.v3bw")),
        (DAY + 3600, Some("2026-11-20-10-30-00.v3bw")),
    ] {
        publish_in(dir.path(), secs).expect("it is published");
        assert_eq!(before().as_deref(), expected, "{secs}");
    }
}

#[test]
fn a_file_that_vanishes_is_no_reason_to_stop() {
    let dir = tempfile::tempdir().expect("a directory");
    publish_in(dir.path(), 0).expect("it is published");
    fs::remove_file(dir.path().join(NAME)).expect("it is there");
    publish_in(dir.path(), 3600).expect("it is published");
    assert_eq!(names(dir.path()), ["2026-11-20-10-30-00.v3bw", LATEST]);
}

#[test]
fn a_directory_that_is_not_there_or_not_one_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("file");
    fs::write(&file, "").expect("a file");
    for path in [&dir.path().join("none"), &file] {
        let error = publish_in(path, 0).expect_err("refused");
        assert!(error.contains(&path.display().to_string()), "{error}");
    }
    let nothing = publish::publish(dir.path(), &PublishRules::default(), &[], network(1));
    assert!(matches!(nothing, Err(Refused::Invalid(_))), "{nothing:?}");
}
