//! What the codes of failures mean, and what an operator may do.

use ff_proto::failure::{FailureKind, Fault};

/// What a code means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// Who is at fault.
    pub fault: &'static str,
    /// What has happened, in a sentence.
    pub means: &'static str,
    /// What to do, in a sentence.
    pub advice: &'static str,
}

/// What a failure's code means; `None` for one that is not known here.
#[must_use]
pub fn meaning(code: &str) -> Option<Meaning> {
    let kind = FailureKind::from_code(code)?;
    let (means, advice) = words(kind);
    // Not taking part is not a fault.
    let fault = if kind == FailureKind::NotSupported { "nobody" } else { fault(kind.fault()) };
    Some(Meaning { fault, means, advice })
}

/// Who is at fault, in words.
fn fault(fault: Fault) -> &'static str {
    match fault {
        Fault::Coordinator => "we",
        Fault::Unclear => "unclear",
        Fault::Relay => "relay",
        Fault::Violation => "relay (broke the rules)",
    }
}

/// What has happened and what to do.
#[expect(clippy::too_many_lines, reason = "it is one table")]
fn words(kind: FailureKind) -> (&'static str, &'static str) {
    use FailureKind as K;
    match kind {
        K::SetupFailed => (
            "The measurement could not be set up, or took too long in all.",
            "Read the message of an attempt; ff-bwauth doctor looks for the usual causes.",
        ),
        K::BadPlan => (
            "The plan could not be carried out.",
            "If it persists, report it: the schedule does not fit the measurers' limits.",
        ),
        K::MeasurerFailed => (
            "A measurer refused its part, or had a problem on its host.",
            "Look at the page Team and at that measurer's log.",
        ),
        K::MissingSample => (
            "A second was not reported by all measurers.",
            "Look for a measurer that is overloaded or cut off.",
        ),
        K::Interrupted => (
            "The coordinator ended while it was measuring.",
            "Nothing, if you restarted it; otherwise find out why it died.",
        ),
        K::CountsDisagree => (
            "A measurer counted more cells than the relay reports to have echoed.",
            "If it happens to one measurer with several relays, suspect that measurer; otherwise the relay.",
        ),
        K::LinkFailed => (
            "A link to the relay could not be opened.",
            "Nothing, unless it is frequent; then look at the message.",
        ),
        K::TooFewLinks => (
            "Fewer than half of a measurer's links to the relay could be opened.",
            "If it happens with many relays, look at the measurer's file descriptors and firewall.",
        ),
        K::CircuitFailed => (
            "A circuit through the relay did not open, or ended.",
            "Nothing: it will be measured again.",
        ),
        K::NoEcho => (
            "The relay answered and returned no cells.",
            "Tell its operator; the relay's version may be broken.",
        ),
        K::NotSupported => (
            "The relay does not take part in FlashFlow.",
            "Nothing: it has no number until its operator turns it on.",
        ),
        K::WrongIdentity => (
            "Another relay answered at its address.",
            "Nothing, if it has moved or changed its keys; otherwise somebody intercepts the connection.",
        ),
        K::BadCertificates => (
            "It could not prove its identity.",
            "Tell its operator to look at its clock and its keys.",
        ),
        K::ConnectionRefused => (
            "Nothing listens at its port.",
            "Nothing: it is down, or its firewall refuses our hosts.",
        ),
        K::Unreachable => (
            "The host cannot be reached.",
            "If it happens with many relays, look at our own network; IPv6 may be missing.",
        ),
        K::NotTls => (
            "What answers there does not speak TLS 1.3.",
            "Nothing; its operator may have put something in front of it.",
        ),
        K::NotTor => (
            "What answers there speaks TLS and is not a Tor relay.",
            "Nothing; its operator may have put something in front of it.",
        ),
        K::Timeout => (
            "An answer or report did not arrive in time.",
            "If it happens with many relays, look at our own network and at the measurers' load.",
        ),
        K::Refused => (
            "The relay refused to be measured.",
            "Look at the message: is our key in its FFAllowedCoordinators, are its grants of the day used up?",
        ),
        K::CipherDenied => (
            "The relay has none of the ciphers that were asked for.",
            "Nothing: it needs a newer tor.",
        ),
        K::WrongContent => (
            "A checked cell was forged or damaged.",
            "Watch the relay; if it happens again, report it.",
        ),
        K::OutOfOrder => (
            "A checked cell stood in another's place.",
            "Watch the relay; if it happens again, report it.",
        ),
        K::MoreThanSent => (
            "More cells came back than were sent.",
            "Watch the relay; if it happens again, report it.",
        ),
        K::WrongCircuit => (
            "A cell came on a circuit that does not exist.",
            "Watch the relay; if it happens again, report it.",
        ),
        K::UnexpectedCommand => {
            ("A cell of an unexpected type arrived.", "Watch the relay; its version may be broken.")
        }
        K::UnexpectedMessage => {
            ("A message arrived at the wrong time.", "Watch the relay; its version may be broken.")
        }
        K::BadConfirmation => (
            "The relay derived other keys than we did.",
            "Watch the relay; its version may be broken.",
        ),
        K::BadGrant => (
            "The relay's grant does not match the request.",
            "Watch the relay; its version may be broken.",
        ),
        K::ReportOutOfOrder => (
            "A report of the relay was not the next one.",
            "Watch the relay; if it happens again, report it.",
        ),
        K::ReportTooEarly => (
            "The relay reported a second before it could be over.",
            "Watch the relay; its clock may run wrong.",
        ),
        K::ImpossibleReport => (
            "The relay reported more traffic of clients than it was allowed.",
            "Watch the relay: it may lie about its capacity.",
        ),
        K::MalformedMessage => (
            "A message of the relay cannot be read.",
            "Watch the relay; its version may be broken.",
        ),
        K::RelayAborted => (
            "The relay gave up a measurement that it had granted.",
            "Nothing; if it is frequent, ask its operator.",
        ),
        K::EndedEarly => (
            "The relay ended the measurement too early.",
            "Nothing; if it is frequent, ask its operator.",
        ),
        K::CoordinatorLinkLost => (
            "The coordinator's link to the relay closed during the measurement.",
            "If it happens with many relays, look at our own network.",
        ),
        K::LinksLost => (
            "More than half of a measurer's links closed during the measurement.",
            "If it happens with many relays, look at that measurer's network.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_means_something_and_is_a_sentence() {
        for kind in FailureKind::ALL {
            let meaning = meaning(kind.code()).expect("known");
            for text in [meaning.means, meaning.advice] {
                assert!(text.ends_with(['.', '?']) && text.len() > 10, "{}: {text}", kind.code());
            }
        }
        assert_eq!(meaning("not_supported").map(|one| one.fault), Some("nobody"));
        assert_eq!(meaning("no_such_code"), None);
    }
}
