//! Consensuses of the other flavour, and relays that are unmeasured or have no weight.

use std::fs;
use std::path::Path;

use ff_archives::network::{CapacitySource, Network};
use ff_archives::source;
use ff_report::input::Inputs;
use serde_json::Value;

use super::made::{self, Archive, fails};
use crate::program::prints;

#[test]
fn unmeasured_relays_and_weights_of_0_are_the_same_in_files_and_stores() {
    let temporary = tempfile::tempdir().expect("a directory");
    let dir = temporary.path();
    let text = made::consensus("2020-02-29 11:00:00", 1);
    let mut lines: Vec<&str> = text.lines().collect();
    let is_measured = |line: &&str| line.starts_with("w ") && !line.contains("Unmeasured");
    let mut odd =
        ["w Bandwidth=0", "w Bandwidth=0 Unmeasured=1", "w Bandwidth=20 Unmeasured=1"].iter();
    for line in lines.iter_mut().filter(|line| is_measured(line)) {
        let Some(other) = odd.next() else { break };
        *line = other;
    }
    let text = lines.join("\n") + "\n";
    let unmeasured = text.matches("Unmeasured=1").count();
    fs::write(dir.join("consensus"), &text).expect("written");
    Archive::new(&dir.join("archives/consensuses-2020-02.tar.xz"))
        .put("a", text.as_bytes())
        .finish(true);
    let ingest =
        |store| prints(dir, &["ingest", "--collector", "archives", "--store", store, "--strict"]);
    ingest("weights");
    made::descriptors(&dir.join("archives"));
    ingest("described");
    let network = |name: &str| -> Network {
        let found = source::network(&dir.join(name), &mut Inputs::default());
        found.expect("a network").0
    };
    let file = network("consensus");
    assert_eq!(file.relays.iter().filter(|relay| relay.is_unmeasured).count(), unmeasured);
    let no_weight = file.relays.iter().filter(|relay| relay.weight == 0.0);
    assert!(
        no_weight.clone().count() >= 2 && no_weight.clone().all(|relay| relay.capacity.is_none())
    );
    let no_weight = no_weight.filter(|relay| !relay.is_unmeasured).count();
    let without = file.relays.iter().filter(|relay| relay.capacity.is_none()).count();
    assert_eq!(
        without,
        unmeasured + no_weight,
        "weights that nobody measured stand for no capacity"
    );
    let mut stored = network("weights@2020-02-29T11:00");
    assert_eq!(stored.capacities, CapacitySource::Weights);
    stored.name.clone_from(&file.name);
    assert_eq!(stored, file);
    let stored = network("described@2020-02-29T11:00");
    for (one, other) in stored.relays.iter().zip(&file.relays) {
        assert_eq!((one.fingerprint, one.is_unmeasured), (other.fingerprint, other.is_unmeasured));
        assert!((one.weight - other.weight).abs() < f64::EPSILON);
    }
    // Both sources give the same result: a relay with weight 0 can be measured nevertheless.
    for name in ["consensus", "weights@2020-02-29T11:00"] {
        let args = ["schedule", "--greedy", "--json", "--network", name];
        let found: Value = serde_json::from_str(&prints(dir, &args)).expect("JSON");
        assert_eq!(
            (&found["relays"], &found["from_weights"]),
            (&22.into(), &true.into()),
            "{found}"
        );
    }
    let analyse = ["analyse", "--json", "--windows", "1d", "--store", "described"];
    let found: Value = serde_json::from_str(&prints(dir, &analyse)).expect("JSON");
    assert_eq!(found["times"], 1, "{found}");
    let error = found["windows"][0]["network_weight_error"]["median"].as_f64();
    assert!(error.is_some_and(|error| (0.0..=1.0).contains(&error)), "{found}");
}

#[test]
fn archives_of_microdescriptors_are_read_for_their_consensuses() {
    let temporary = tempfile::tempdir().expect("a directory");
    let dir = temporary.path();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ff-archives/tests/data");
    let consensus = fs::read(data.join("read-2022-11-19-microdesc")).expect("a sample");
    let micro = b"@type microdescriptor 1.0\nonion-key\n-----BEGIN RSA PUBLIC KEY-----\nAA==\n\
                  -----END RSA PUBLIC KEY-----\nid ed25519 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n";
    Archive::new(&dir.join("archives/microdescs-2022-11.tar.xz"))
        .put("microdescs-2022-11/micro/0/0/00", micro)
        .put("microdescs-2022-11/micro/0/1/01", &[&micro[..], micro].concat())
        .put(
            "microdescs-2022-11/consensus-microdesc/19/2022-11-19-10-00-00-consensus-microdesc",
            &consensus,
        )
        .finish(true);
    let ingest = ["ingest", "--collector", "archives", "--store", "store", "--json", "--strict"];
    let found: Value = serde_json::from_str(&prints(dir, &ingest)).expect("JSON");
    assert_eq!(found[0]["documents"], "consensuses");
    let counts = (&found[0]["read"], &found[0]["left_out"], &found[0]["rows"]);
    assert_eq!(counts, (&1.into(), &0.into(), &7.into()), "a consensus and its six relays");
    let manifest = fs::read_to_string(dir.join("store/manifests/consensuses-2022-11.json"));
    let manifest: Value = serde_json::from_str(&manifest.expect("a manifest")).expect("JSON");
    assert_eq!(manifest["passed_over"], 3, "microdescriptors are no fault of the archive");
    assert_eq!(manifest["hours"][0]["flavour"], "microdesc");
    // It lists no descriptors, so it cannot be used as a network or analysed.
    let (status, said) = fails(dir, &["analyse", "--network", "store@2022-11-19T10:00"]);
    assert!(status == Some(1) && said.contains("no consensus of 2022-11-19T10:00:00"), "{said}");
    let (status, said) = fails(dir, &["analyse", "--store", "store"]);
    assert!(status == Some(1) && said.contains("no server descriptors"), "{said}");
    // As a file, it has weights.
    fs::write(dir.join("consensus"), &consensus).expect("written");
    let found = prints(dir, &["schedule", "--greedy", "--json", "--network", "consensus"]);
    let found: Value = serde_json::from_str(&found).expect("JSON");
    assert_eq!(found["from_weights"], true, "{found}");
}
