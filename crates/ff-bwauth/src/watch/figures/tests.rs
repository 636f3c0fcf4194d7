//! Tests that Prometheus accepts the metrics, and that alerts and dashboards use existing ones.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};

use ff_operator::http::text_format;

use super::*;
use crate::watch::made_up::status;

/// The metrics of an invented coordinator.
fn made_up() -> String {
    let surroundings = Surroundings {
        store_bytes: Some(1 << 30),
        resident_bytes: Some(1 << 26),
        files: Some((30, 1024)),
        published_unix_secs: Some(1_795_167_000),
    };
    let relays = [Estimate {
        fingerprint: [0xAB; 20],
        estimate: ff_proto::units::BytesPerSec::from_mbit(8),
        started_unix_secs: 0,
    }];
    text(Some(&status(10)), &surroundings, Some(&relays), 1_795_170_600).expect("text")
}

/// The names of all metrics.
fn names(text: &str) -> BTreeSet<&str> {
    let values = text.lines().filter(|line| !line.starts_with('#'));
    values.filter_map(|line| line.split(['{', ' ']).next()).collect()
}

#[test]
fn figures_have_units_and_labels_are_escaped() {
    let text = made_up();
    for line in [
        "# TYPE flashflow_build info",
        "# UNIT flashflow_publication_age_seconds seconds",
        "flashflow_publication_age_seconds 3600.0",
        "flashflow_store_bytes 1073741824.0",
        "flashflow_measurements_total 4321.0",
        "flashflow_measurement_failures_total{code=\"timeout\"} 17.0",
        "flashflow_measurement_failures_total{code=\"wrong_content\"} 0.0",
        "flashflow_measurer_up{measurer=\"ams1\"} 1.0",
        "flashflow_measurer_stated_bytes_per_second{measurer=\"ams1\"} 125000000.0",
        "flashflow_measurer_capacity_bytes_per_second{measurer=\"ams1\"} 125000000.0",
        "flashflow_measurer_clock_ahead_seconds{measurer=\"ams1\"} 0.012",
        "flashflow_period_relays{state=\"done\"} 5.0",
        "flashflow_problems{cause=\"measurer_down\"} 1.0",
        "flashflow_problems{cause=\"disk\"} 0.0",
        "flashflow_publication_voted 1.0",
        "flashflow_relay_capacity_bytes_per_second{fingerprint=\"ABABABABABABABABABABABABABABABABABABABAB\"} 1000000.0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
    assert!(
        text.contains(r#"{measurer="<script>document.title='owned'</script>\"'><img"#),
        "{text}"
    );
    assert!(names(&text).iter().all(|name| name.starts_with("flashflow_")));
}

#[test]
fn without_a_status_there_is_what_the_system_says() {
    let text = text(None, &Surroundings::default(), None, 0).expect("text");
    assert!(text.contains("flashflow_build_info{version="), "{text}");
    assert!(!text.contains("flashflow_measurer_up{") && text.ends_with("# EOF\n"));
    let here = Surroundings::look(std::path::Path::new("/nowhere/store.sqlite"), None);
    assert!(here.resident_bytes.is_some_and(|bytes| bytes > 1 << 20), "{here:?}");
    assert!(here.files.is_some_and(|(open, most)| 0 < open && open < most), "{here:?}");
    assert_eq!((here.store_bytes, here.published_unix_secs), (None, None));
}

/// Prometheus' own tool accepts the metrics. `FF_TEST_PROMTOOL=1` means that it is installed.
#[test]
fn promtool_accepts_the_older_format() {
    if std::env::var_os("FF_TEST_PROMTOOL").is_none_or(|value| value != "1") {
        eprintln!("nothing checked: set FF_TEST_PROMTOOL=1 if promtool is installed");
        return;
    }
    let mut promtool = Command::new("promtool");
    let promtool = promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = promtool.spawn().expect("promtool starts");
    let mut input = promtool.stdin.take().expect("its input");
    input.write_all(text_format(&made_up()).as_bytes()).expect("written");
    drop(input);
    let output = promtool.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Words of a text that are names of metrics.
fn named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("flashflow_")).collect()
}

#[test]
fn rules_and_dashboard_name_only_what_there_is() {
    let text = made_up();
    let exist = names(&text);
    let alerts = include_str!("../../../../../doc/alerts.yml");
    let dashboard = include_str!("../../../../../doc/grafana.json");
    for (file, least) in [(alerts, 15), (dashboard, 20)] {
        let missing: Vec<_> = named(file).difference(&exist).copied().collect();
        assert!(missing.is_empty(), "{missing:?} are not in /metrics");
        assert!(named(file).len() >= least, "{:?}", named(file));
    }
    // Labels that are selected by value have existing values.
    let codes: BTreeSet<_> = FailureKind::ALL.iter().map(|kind| kind.code()).collect();
    let picked = alerts
        .split("code")
        .flat_map(|behind| behind.split('"').nth(1))
        .filter(|words| words.contains('|'));
    for code in picked.flat_map(|words| words.split('|')) {
        assert!(codes.contains(code), "{code}");
    }
    let causes = alerts.split("cause=\"").skip(1).filter_map(|text| text.split('"').next());
    let named: BTreeSet<_> = causes.collect();
    let known = Cause::ALL.map(Cause::name);
    assert!(named.len() >= 4 && named.iter().all(|cause| known.contains(cause)), "{named:?}");
    let json: serde_json::Value = serde_json::from_str(dashboard).expect("JSON");
    assert!(json["panels"].as_array().is_some_and(|panels| panels.len() > 10));
}
