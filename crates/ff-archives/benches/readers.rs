//! The scanners compared with tor-netdoc on the same documents, in one run: `FF_SIM_DATA=DIR cargo
//! bench -p ff-archives --bench readers` takes a whole consensus and 587 descriptors of the data,
//! and without it the tests' samples.

use std::hint::black_box;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use ff_archives::read::consensus::Consensus;
use ff_archives::read::descriptor::Descriptors;
use tor_netdoc::doc::netstatus::PlainConsensus;
use tor_netdoc::doc::routerdesc::RouterDesc;

/// The text of a file of the data, or of a sample.
fn text(whole: &str, sample: &str) -> String {
    let data = std::env::var_os("FF_SIM_DATA").map(|folder| PathBuf::from(folder).join(whole));
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let path = data.unwrap_or_else(|| samples.join(sample));
    let mut bytes = std::fs::read(&path).expect("it is there");
    if path.extension().is_some_and(|end| end == "xz") {
        let packed = std::mem::take(&mut bytes);
        let mut decoder = liblzma::read::XzDecoder::new_multi_decoder(&packed[..]);
        decoder.read_to_end(&mut bytes).expect("whole");
    }
    String::from_utf8(bytes).expect("UTF-8")
}

/// The shortest of thirty times of each, taken in turn.
fn shortest(mut ours: impl FnMut(), mut theirs: impl FnMut()) -> [Duration; 2] {
    let time = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    let mut best = [Duration::MAX; 2];
    for _ in 0..30 {
        best = [best[0].min(time(&mut ours)), best[1].min(time(&mut theirs))];
    }
    best
}

/// Prints how many times as long the other takes.
#[expect(clippy::print_stdout, reason = "a benchmark is for people")]
fn show(what: &str, [ours, theirs]: [Duration; 2]) {
    let ratio = theirs.as_secs_f64() / ours.as_secs_f64();
    println!("{what}: {ours:?}, tor-netdoc {theirs:?}: {ratio:.1} times");
}

/// Measures, and prints ratios.
fn readers(criterion: &mut Criterion) {
    let file = text("a-network/2020-02-29-11-00-00-consensus.xz", "read-2020-02-29-consensus");
    let begin = file.find("network-status-version ").expect("a consensus");
    let file = format!("{}\n", file[begin..].trim_end());
    let mut consensus = Consensus::default();
    let mut ours = || consensus.read(black_box(file.as_bytes())).expect("it is whole");
    let theirs = || drop(black_box(PlainConsensus::parse(black_box(&file)).expect("it is whole")));
    show("a consensus", shortest(&mut ours, theirs));
    criterion.bench_function("consensus", |bencher| bencher.iter(&mut ours));

    let file = text(
        "a-network/2020-02-29-10-05-00-server-descriptors.xz",
        "read-2020-02-29-descriptors.xz",
    );
    let begin = file.find("router ").expect("descriptors");
    let bare = file[begin..].replace("@type server-descriptor 1.0\n", "");
    let parts: Vec<String> = bare
        .split("\nrouter ")
        .map(|part| part.trim_start_matches("router ").trim_end())
        .map(|part| format!("router {part}\n"))
        .filter(|part| RouterDesc::parse(part).is_ok())
        .collect();
    let all: String = parts.concat();
    let mut descriptors = Descriptors::default();
    let mut ours = || {
        descriptors.clear();
        assert!(descriptors.add(black_box(all.as_bytes())).is_empty());
    };
    let theirs = || parts.iter().for_each(|part| drop(black_box(RouterDesc::parse(part))));
    show(&format!("{} descriptors", parts.len()), shortest(&mut ours, theirs));
    criterion.bench_function("descriptors", |bencher| bencher.iter(&mut ours));
}

criterion_group!(benches, readers);
criterion_main!(benches);
