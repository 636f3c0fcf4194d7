//! Refreshes with valid and invalid answers, and the kept documents.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use super::super::fake::{Does, Fake, FakeServer, HOUR, Network, servers};
use super::*;

/// Limits under which tests need not wait long.
const QUICK: DocumentLimits =
    DocumentLimits { consensuses: 2, cache_bytes: 64 << 20, parallel: 4, answer_secs: 1 };

/// A view in this directory, of this network.
fn view_in(dir: &Path, network: &Network, limits: DocumentLimits) -> Arc<View> {
    let cache = Cache::open(dir.to_owned(), limits).expect("a cache");
    Arc::new(View::new(cache, network.ids(), limits))
}

/// A directory, and a view in it.
fn view(network: &Network) -> (TempDir, Arc<View>) {
    let dir = tempfile::tempdir().expect("a directory");
    let view = view_in(dir.path(), network, QUICK);
    (dir, view)
}

/// Refreshes at this time.
async fn refresh(
    view: &Arc<View>,
    fake: &Fake,
    caches: &[Does],
    authority: Does,
    now_secs: u64,
) -> Result<Refreshed, DirectoryError> {
    // Only a hang takes this long.
    let deadline = Instant::now() + Duration::from_secs(600);
    view.refresh(fake, &servers(caches, authority), deadline, now_secs).await
}

/// Refreshes from caches that do right.
async fn refresh_well(view: &Arc<View>, fake: &Fake, now_secs: u64) -> Documents {
    let refreshed = refresh(view, fake, &[Does::Right; 5], Does::Fail, now_secs).await;
    let refreshed = refreshed.expect("documents");
    assert!(refreshed.is_kept);
    refreshed.documents
}

#[tokio::test]
async fn everything_is_fetched_once_an_hour_and_only_what_is_new() {
    let mut network = Network::new(3, 250, 0);
    let (_dir, view) = view(&network);
    let fake = Fake::new(&network, HOUR);
    let first = refresh_well(&view, &fake, HOUR + 60).await;
    assert_eq!(first.problems, Vec::<String>::new());
    assert_eq!(
        (first.relays, first.descriptors.len(), first.microdescriptors.len()),
        (250, 250, 250)
    );
    assert_eq!((first.valid_after_secs, first.fetched_at_secs), (HOUR, HOUR + 60));
    assert!(first.from.starts_with("server "), "{}", first.from);
    let asked = fake.take_asked();
    assert!(asked.iter().all(|(_, count)| *count <= MAX_BATCH), "{asked:?}");
    assert_eq!(asked.iter().map(|(_, count)| count).sum::<usize>(), 500);

    let again = refresh_well(&view, &fake, HOUR + 120).await;
    assert_eq!((again.from.as_str(), again.descriptors.len()), ("the cache", 250));
    assert_eq!(fake.take_asked(), []);

    network.relays[7].1 = network.relays[7].1.replace("bandwidth 1", "bandwidth 2");
    let fake = Fake::new(&network, HOUR + 3600);
    let next = refresh_well(&view, &fake, HOUR + 3601).await;
    assert_eq!((next.valid_after_secs, next.descriptors.len()), (HOUR + 3600, 250));
    assert!(next.descriptors[7].contains("bandwidth 2 "), "{}", next.descriptors[7]);
    let pieces: Vec<_> = fake.take_asked().into_iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(pieces.len(), 1, "{pieces:?}");
}

#[tokio::test]
async fn a_consensus_that_is_not_one_to_go_by_is_refused_by_a_sentence() {
    let network = Network::new(3, 3, 0);
    let (_dir, view) = view(&network);
    let mut fake = Fake::new(&network, HOUR);
    let good = fake.consensuses.clone();
    let stranger = Network::new(3, 3, 0);
    let cut = good["ns"].split("directory-footer").next().expect("a part").to_owned();
    let flipped = good["ns"].replacen("Bandwidth=20", "Bandwidth=21", 1);
    let cases = [
        (stranger.consensus(Flavor::Ns, HOUR, 3), "another network's"),
        (network.consensus(Flavor::Ns, HOUR, 1), "only 1 of 3 authorities"),
        (network.consensus(Flavor::Ns, HOUR + 7200, 3), "from the future, of 2026-11-22T20:00:00"),
        (
            network.consensus(Flavor::Ns, HOUR - 4 * 3600, 3),
            "the consensus expired at 2026-11-22T17:00:00",
        ),
        (network.consensus(Flavor::Microdesc, HOUR, 3), "not a consensus of the flavour ns"),
        (good["ns"].replace("params x=1", "params x"), "cannot be read"),
        (cut, "ends too early"),
        (flipped, "signature of the consensus is wrong"),
        ("HTML".to_owned(), "not a consensus"),
        (String::new(), "not a consensus"),
    ];
    for (bad, part) in cases {
        fake.consensuses.insert("ns", bad);
        let result = refresh(&view, &fake, &[Does::Right], Does::Right, HOUR + 60).await;
        let error = result.expect_err(part).to_string();
        assert!(error.contains(part) && error.contains("server 1: "), "{error}, not {part}");
        assert!(view.stored(HOUR + 60).await.expect("readable").is_none());
    }
    fake.consensuses = good;
    fake.certificates = stranger.certificates();
    let result = refresh(&view, &fake, &[Does::Right], Does::Right, HOUR + 60).await;
    let error = result.expect_err("no certificates").to_string();
    assert!(error.contains("certificates are missing of 3 authorities"), "{error}");
}

#[tokio::test]
async fn the_last_view_stays_when_nothing_newer_is_to_be_had() {
    let network = Network::new(3, 3, 0);
    let (dir, view) = view(&network);
    refresh_well(&view, &Fake::new(&network, HOUR), HOUR + 60).await;
    // An older one, however well signed, does not replace it.
    let older = Fake::new(&network, HOUR - 3600);
    let now = HOUR + 2 * 3600 - 1;
    let result = refresh(&view, &older, &[Does::Right], Does::Fail, now).await;
    let documents = result.expect("still valid").documents;
    assert_eq!((documents.valid_after_secs, documents.descriptors.len()), (HOUR, 3));
    assert!(
        documents.problems[0]
            .contains("server 1: its consensus of 2026-11-22T17:00:00 is not newer"),
        "{documents:?}"
    );
    assert!(documents.problems[1].contains("server 0: no route"), "{documents:?}");

    let late = HOUR + 3 * 3600;
    refresh(&view, &older, &[Does::Fail], Does::Fail, late).await.expect_err("no longer valid");
    drop(view);
    let view = view_in(dir.path(), &network, QUICK);
    let last = view.stored(late).await.expect("readable").expect("documents");
    assert_eq!(
        (last.valid_after_secs, last.descriptors.len(), last.from.as_str()),
        (HOUR, 3, "the cache")
    );
    let at = |secs| std::time::UNIX_EPOCH + Duration::from_secs(secs);
    assert!(last.is_stale(at(late)) && !last.is_stale(at(late - 1)));
    assert!(!last.is_fresh(at(HOUR + 3600)) && last.is_fresh(at(HOUR + 3599)));
    assert_eq!(last.age_secs(at(late)), 3 * 3600);
    drop(view);

    let other = Network::new(3, 3, 0);
    let view = view_in(dir.path(), &other, QUICK);
    assert!(view.stored(late).await.expect("readable").is_none(), "it is another network's");
}

#[tokio::test]
async fn servers_that_fail_lie_or_hang_are_survived() {
    let network = Network::new(1, 200, 0);
    for bad in [Does::Fail, Does::Damage, Does::GiveAll, Does::GiveHalf, Does::HaveNothing] {
        let (_dir, view) = view(&network);
        let fake = Fake::new(&network, HOUR);
        let caches = [bad, bad, bad, bad, bad, Does::Right];
        let result = refresh(&view, &fake, &caches, Does::Right, HOUR + 60).await;
        let documents = result.expect("documents").documents;
        assert_eq!(documents.missing_descriptors(), 0, "{bad:?}: {:?}", documents.problems);
        assert_eq!(documents.microdescriptors.len(), 200, "{bad:?}: {:?}", documents.problems);
        let is_said = documents.problems.iter().any(|problem| problem.starts_with("server "));
        assert!(is_said || bad == Does::GiveHalf, "{bad:?}: {:?}", documents.problems);
    }
    let (_dir, view) = view(&network);
    let fake = Fake::new(&network, HOUR);
    let result = refresh(&view, &fake, &[Does::Hang, Does::Right], Does::Fail, HOUR + 60).await;
    let documents = result.expect("documents").documents;
    assert_eq!(documents.missing_descriptors(), 0, "{:?}", documents.problems);
    assert!(documents.problems[0].contains("server 1: no answer within 1 s"), "{documents:?}");
}

#[tokio::test]
async fn what_has_come_before_the_deadline_is_kept() {
    let network = Network::new(1, 200, 0);
    let fake = Fake::new(&network, HOUR);
    let few = servers(&[Does::GiveHalf], Does::Hang);
    let patient = DocumentLimits { answer_secs: 3600, ..QUICK };
    // Only the deadline ends it. It is put off until the machine has come as far as to the server that hangs.
    let (mut millis, asked_last) = (200, FakeServer(0, Does::Hang));
    let (_dir, view, refreshed) = loop {
        let dir = tempfile::tempdir().expect("a directory");
        let view = view_in(dir.path(), &network, patient);
        let deadline = Instant::now() + Duration::from_millis(millis);
        let refreshed = view.refresh(&fake, &few, deadline, HOUR + 60).await;
        assert!(Instant::now() >= deadline);
        if fake.take_asked().iter().any(|(server, count)| *server == asked_last && *count > 0) {
            break (dir, view, refreshed.expect("documents"));
        }
        millis *= 2;
    };
    let missing = refreshed.documents.missing_descriptors();
    assert!((1..200).contains(&missing), "{:?}", refreshed.documents.problems);
    let said = format!("{missing} of 200 descriptors are missing");
    assert!(refreshed.documents.problems.contains(&said), "{:?}", refreshed.documents.problems);
    let next = refresh_well(&view, &fake, HOUR + 61).await;
    assert_eq!(next.missing_descriptors(), 0);
    let counts: Vec<_> = fake.take_asked().iter().map(|(_, count)| *count).collect();
    assert!(counts.iter().sum::<usize>() < 400, "{counts:?}");
}

#[tokio::test]
async fn what_is_damaged_on_disk_is_fetched_anew() {
    let network = Network::new(1, 5, 0);
    let (dir, view) = view(&network);
    let fake = Fake::new(&network, HOUR);
    refresh_well(&view, &fake, HOUR + 60).await;
    let change = |name: &str, from: &str, to: &str| {
        let path = dir.path().join(name);
        let text = fs::read_to_string(&path).expect("a file");
        assert!(text.contains(from), "{name} has no {from}");
        fs::write(&path, text.replacen(from, to, 1)).expect("a file");
    };
    let names: Vec<_> = fs::read_dir(dir.path())
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .collect();
    assert_eq!(names.len(), 6, "{names:?}");

    change("descriptors", "bandwidth 1", "bandwidth 9");
    fake.take_asked();
    assert_eq!(view.stored(HOUR).await.expect("readable").expect("it").missing_descriptors(), 1);
    assert_eq!(refresh_well(&view, &fake, HOUR + 61).await.missing_descriptors(), 0);
    assert_eq!(fake.take_asked().len(), 1);

    for (name, from, to) in [
        ("consensus-2026-11-22-18-00-00.ns", "Bandwidth=20", "Bandwidth=21"),
        ("consensus-2026-11-22-18-00-00.ns", "directory-signature", "directory-signatur"),
        ("consensus-2026-11-22-18-00-00.microdesc", "directory-footer", "\u{0}"),
        ("certificates", "fingerprint", "fingerprin"),
    ] {
        change(name, from, to);
        let next = refresh_well(&view, &fake, HOUR + 62).await;
        assert_eq!((next.missing_descriptors(), next.microdescriptors.len()), (0, 5), "{name}");
        assert!(!fake.take_asked().is_empty(), "{name}");
        assert_eq!(next.problems, Vec::<String>::new(), "{name}");
    }
    fs::write(dir.path().join("descriptors"), b"\xff\x00junk").expect("a file");
    assert_eq!(refresh_well(&view, &fake, HOUR + 63).await.missing_descriptors(), 0);
}

#[tokio::test]
async fn what_cannot_be_kept_is_given_and_said() {
    let network = Network::new(1, 400, 4000);
    let dir = tempfile::tempdir().expect("a directory");
    let small = DocumentLimits { cache_bytes: 1 << 20, ..QUICK };
    let view = view_in(dir.path(), &network, small);
    let fake = Fake::new(&network, HOUR);
    let refreshed = refresh(&view, &fake, &[Does::Right; 3], Does::Right, HOUR + 60).await;
    let refreshed = refreshed.expect("documents");
    let problems = refreshed.documents.problems.join("\n");
    assert!(problems.contains("larger than limits.cache_bytes"), "{problems}");
    assert!(problems.contains("limits.cache_bytes: is too small"), "{problems}");
    assert!(!refreshed.is_kept && refreshed.documents.descriptors.len() > 100, "{problems}");
    drop(view);

    // A directory where a file should be is as good as a full disk: nothing can be renamed to it.
    let view = view_in(dir.path(), &network, QUICK);
    let path = dir.path().join("microdescriptors");
    let _ = fs::remove_file(&path);
    let refreshed = refresh(&view, &fake, &[Does::Right; 3], Does::Right, HOUR + 60).await;
    assert!(refreshed.expect("documents").is_kept);
    fs::remove_file(&path).expect("removed");
    fs::create_dir_all(path.join("x")).expect("a directory");
    let error = view.stored(HOUR).await.expect_err("no file").to_string();
    assert!(error.contains("microdescriptors"), "{error}");
}

#[tokio::test]
async fn files_stay_within_their_bounds() {
    let mut network = Network::new(1, 50, 1000);
    let (dir, view) = view(&network);
    let mut now = HOUR;
    for hour in 0..60 {
        now = HOUR + hour * 3600;
        for relay in &mut network.relays {
            relay.1 = relay.1.replacen("family ", &format!("family {hour}"), 1);
        }
        let fake = Fake::new(&network, now);
        assert_eq!(refresh_well(&view, &fake, now).await.missing_descriptors(), 0);
    }
    let count = |text: &str, word: &str| text.matches(word).count();
    let descriptors = fs::read_to_string(dir.path().join("descriptors")).expect("a file");
    assert_eq!(
        count(&descriptors, "\nrouter-signature\n"),
        50 * 49,
        "two days and the hour of now"
    );
    let files = fs::read_dir(dir.path()).expect("a directory").count();
    assert_eq!(files, 4 + 2 * QUICK.consensuses);
    drop(view);

    let bytes = descriptors.len() as u64;
    assert!(bytes > 2 << 20, "{bytes}");
    let small = view_in(dir.path(), &network, DocumentLimits { cache_bytes: 2 << 20, ..QUICK });
    let documents = refresh_well(&small, &Fake::new(&network, now + 3600), now + 3600).await;
    assert_eq!(documents.missing_descriptors(), 0, "{:?}", documents.problems);
    let kept = fs::read_to_string(dir.path().join("descriptors")).expect("a file");
    assert_eq!(count(&kept, "\nrouter-signature\n"), 50, "what is not listed goes first");
}

#[tokio::test]
#[ignore = "a measurement: the network of May 2024 costs so much time and memory"]
async fn seven_thousand_relays_cost() {
    let network = Network::new(9, 7000, 2900);
    let (_dir, view) = view(&network);
    let fake = Fake::new(&network, HOUR);
    let sizes = fake.descriptors.values().map(String::len).sum::<usize>();
    let begin = Instant::now();
    println!("{} MB of descriptors; before {} MB", sizes >> 20, memory_mb("VmRSS"));
    let documents = refresh_well(&view, &fake, HOUR + 60).await;
    println!(
        "first after {:?}: {} MB, at most {} MB",
        begin.elapsed(),
        memory_mb("VmRSS"),
        memory_mb("VmHWM")
    );
    drop(documents);
    println!("dropped: {} MB", memory_mb("VmRSS"));
    let (fake, begin) = (Fake::new(&network, HOUR + 3600), Instant::now());
    refresh_well(&view, &fake, HOUR + 3660).await;
    println!(
        "next after {:?}: {} MB, at most {} MB",
        begin.elapsed(),
        memory_mb("VmRSS"),
        memory_mb("VmHWM")
    );
}

/// This process' memory.
fn memory_mb(key: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("a file");
    let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("a line");
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().expect("a number") >> 10
}
