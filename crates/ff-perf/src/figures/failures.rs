//! Names of failures in labels: their stages, and classes of their reasons.

use ff_circuits::record::{Failure, Stage, Whose};

/// Reasons of failures.
pub(super) const REASONS: [&str; 11] = [
    "timeout",
    "destroyed",
    "refused",
    "unreachable",
    "closed",
    "accepted",
    "false-address",
    "client",
    "budget",
    "disk",
    "other",
];
/// Stages at which circuits fail. In the last three no circuit begins, because the client is
/// missing, or the budget or the disk is full.
pub(super) const STAGES: [&str; 8] =
    ["link", "build", "rtt", "first-byte", "download", NO_CLIENT, "budget", "disk"];
/// Stage of a missing client.
pub(super) const NO_CLIENT: &str = "client";

/// Name of a stage in lines.
pub(super) const fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Link => "link",
        Stage::Build => "build",
        Stage::Rtt => "rtt",
        Stage::FirstByte => "first-byte",
        Stage::Download => "download",
        Stage::Client => NO_CLIENT,
        Stage::Budget => "budget",
        Stage::Disk => "disk",
    }
}

/// Class of a failure; reasons in lines have many texts, and Arti's differ from tor's.
pub(super) fn reason(failure: &Failure) -> &'static str {
    if matches!(failure.stage, Stage::Budget | Stage::Disk) {
        return stage(failure.stage);
    }
    if failure.whose == Whose::Client {
        return "client";
    }
    let text = failure.reason.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    match () {
        () if text.starts_with("destroyed") => "destroyed",
        () if has(&["timeout", "timed out"]) => "timeout",
        () if has(&["accepted"]) => "accepted",
        () if has(&["false address"]) => "false-address",
        () if has(&["refuse", "exitpolicy"]) => "refused",
        () if has(&["destroy", "circuit closed"]) => "destroyed",
        () if has(&["unreach", "noroute", "no route", "connectfailed", "failed to connect"]) => {
            "unreachable"
        }
        () if has(&["closed", "reset", "eof"]) => "closed",
        () => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_in_many_words_comes_to_few_reasons() {
        for (said, expected) in [
            ("timeout", "timeout"),
            ("the exit accepted 127.0.0.9", "accepted"),
            ("the exit refused 127.3.2.1 with a false address, 198.51.100.7", "false-address"),
            ("the exit resolved 192.0.2.1 to 10.0.0.1, a false address", "false-address"),
            ("connectrefused", "refused"),
            ("Channel failed: Connection refused (os error 111)", "refused"),
            ("destroyed", "destroyed"),
            ("destroyed (timeout)", "destroyed"),
            ("channel_closed", "closed"),
            ("closed after 3 of 9 bytes", "closed"),
            ("Network is unreachable (os error 101)", "unreachable"),
            ("whatever comes", "other"),
        ] {
            let failure =
                |whose| Failure { stage: Stage::Build, hop: None, reason: said.to_owned(), whose };
            assert_eq!(reason(&failure(Whose::Relay)), expected, "{said}");
            assert_eq!(reason(&failure(Whose::Client)), "client");
            assert!(REASONS.contains(&expected));
        }
    }
}
