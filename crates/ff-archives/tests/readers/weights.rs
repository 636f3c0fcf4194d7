//! The bandwidth-weights of real consensuses, recomputed from their relays' weights.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use ff_archives::network::Network;
use ff_archives::weights::{METHOD, SCALE, Sums, Weights};
use ff_dir::consensus::Consensus;

use crate::full::full_data;

/// A consensus: its file, the total weights of G, M, E and D with 1 added to each, and its footer.
type Row = (&'static str, [u64; 4], &'static str);

/// All ns consensuses in the samples. The sums are from tests/data/schedule.md.
const ROWS: [Row; 5] = [
    (
        "b-series/2019-05-27-20-00-00-consensus.xz",
        [44_724_661, 6_425_858, 1_630_968, 16_055_041],
        "Wbd=0 Wbe=0 Wbg=4281 Wbm=10000 Wdb=10000 Web=10000 Wed=10000 Wee=10000 Weg=10000 Wem=10000 Wgb=10000 \
         Wgd=0 Wgg=5719 Wgm=5719 Wmb=10000 Wmd=0 Wme=0 Wmg=4281 Wmm=10000",
    ),
    (
        "b-series/2019-07-14-00-00-00-consensus.xz",
        [45_614_101, 7_330_807, 2_128_576, 13_852_861],
        "Wbd=0 Wbe=0 Wbg=4196 Wbm=10000 Wdb=10000 Web=10000 Wed=10000 Wee=10000 Weg=10000 Wem=10000 Wgb=10000 \
         Wgd=0 Wgg=5804 Wgm=5804 Wmb=10000 Wmd=0 Wme=0 Wmg=4196 Wmm=10000",
    ),
    (
        "b-series/2019-07-17-23-00-00-consensus.xz",
        [45_391_318, 7_302_375, 2_019_661, 13_994_237],
        "Wbd=0 Wbe=0 Wbg=4195 Wbm=10000 Wdb=10000 Web=10000 Wed=10000 Wee=10000 Weg=10000 Wem=10000 Wgb=10000 \
         Wgd=0 Wgg=5805 Wgm=5805 Wmb=10000 Wmd=0 Wme=0 Wmg=4195 Wmm=10000",
    ),
    (
        "b-series/2019-07-20-18-00-00-consensus.xz",
        [45_172_560, 5_851_621, 1_956_136, 14_077_893],
        "Wbd=0 Wbe=0 Wbg=4352 Wbm=10000 Wdb=10000 Web=10000 Wed=10000 Wee=10000 Weg=10000 Wem=10000 Wgb=10000 \
         Wgd=0 Wgg=5648 Wgm=5648 Wmb=10000 Wmd=0 Wme=0 Wmg=4352 Wmm=10000",
    ),
    (
        "a-network/2020-02-29-11-00-00-consensus.xz",
        [43_192_924, 5_755_242, 1_979_691, 17_770_492],
        "Wbd=0 Wbe=0 Wbg=4333 Wbm=10000 Wdb=10000 Web=10000 Wed=10000 Wee=10000 Weg=10000 Wem=10000 Wgb=10000 \
         Wgd=0 Wgg=5667 Wgm=5667 Wmb=10000 Wmd=0 Wme=0 Wmg=4333 Wmm=10000",
    ),
];

/// Sums in the order of a row.
fn sums([guard, middle, exit, guard_exit]: [u64; 4]) -> Sums {
    Sums { guard, middle, exit, guard_exit }
}

#[test]
fn real_footers_follow_from_their_sums() {
    for (file, classes, footer) in ROWS {
        let weights = Weights::of(&sums(classes), SCALE).expect(file);
        assert_eq!(weights.to_string(), footer, "{file}");
    }
    // Without its unmeasured relays, February 2020 would have another footer.
    let measured =
        Sums { guard: 43_192_564, middle: 5_750_232, exit: 1_979_231, guard_exit: 17_770_392 };
    assert_eq!(Weights::of(&measured, SCALE).expect("weights").wmg, 4334);
}

/// The text of a file packed by xz.
fn text(path: &Path) -> String {
    let mut text = String::new();
    let file = File::open(path).expect("the file");
    liblzma::read::XzDecoder::new(file).read_to_string(&mut text).expect("UTF-8");
    text
}

#[test]
#[ignore = "needs FF_SIM_DATA: a folder with the data"]
fn full_consensuses_reproduce_their_footers() {
    let data = full_data();
    for (file, classes, footer) in ROWS {
        let text = text(&data.join(file));
        let consensus = Consensus::parse(&text).expect(file);
        let found = Sums::of(&Network::from(&consensus), METHOD);
        assert_eq!(found, sums(classes), "{file}");
        let weights = Weights::of(&found, SCALE).expect(file);
        let line = format!("bandwidth-weights {weights}");
        assert_eq!(line, format!("bandwidth-weights {footer}"), "{file}");
        assert!(text.lines().any(|found| found == line), "{file}: {line}");
        eprintln!("{file}: {} relays, {line}", consensus.relays.len());
    }
}
