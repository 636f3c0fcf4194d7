//! Descriptions of failure codes, with advice for operators.

use ff_proto::failure::{FailureKind, Fault};

/// The description of a failure code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// Who is at fault.
    pub fault: &'static str,
    /// The explanation, as a sentence.
    pub means: &'static str,
    /// Advice, as a sentence.
    pub advice: &'static str,
}

/// Describes a failure code; `None` if the code is unknown.
#[must_use]
pub fn meaning(code: &str) -> Option<Meaning> {
    let kind = FailureKind::from_code(code)?;
    let (means, advice) = words(kind);
    // Not taking part is not a fault.
    let fault = if kind == FailureKind::NotSupported { "nobody" } else { fault(kind.fault()) };
    Some(Meaning { fault, means, advice })
}

/// The party at fault, in words.
fn fault(fault: Fault) -> &'static str {
    match fault {
        Fault::Coordinator => "our side",
        Fault::Unclear => "unclear",
        Fault::Relay => "relay",
        Fault::Violation => "relay (broke the rules)",
    }
}

/// The description and the advice.
#[expect(clippy::too_many_lines, reason = "it is one table")]
fn words(kind: FailureKind) -> (&'static str, &'static str) {
    use FailureKind as K;
    match kind {
        K::SetupFailed => (
            "The measurement could not be set up, or took too long.",
            "Read the message of an attempt; ff-bwauth doctor checks for the usual causes.",
        ),
        K::BadPlan => (
            "The plan could not be carried out.",
            "If it persists, report it: the schedule does not fit the measurers' limits.",
        ),
        K::MeasurerFailed => (
            "A measurer refused its part, or its host had a problem.",
            "See the page Team and that measurer's log.",
        ),
        K::MissingSample => (
            "Not all measurers reported every second.",
            "Check for a measurer that is overloaded or disconnected.",
        ),
        K::Interrupted => (
            "The coordinator stopped during the measurement.",
            "Nothing, if you restarted it; otherwise find out why it stopped.",
        ),
        K::CountsDisagree => (
            "A measurer counted more cells than the relay reports as echoed.",
            "If one measurer disagrees with several relays, suspect that measurer; otherwise the relay.",
        ),
        K::LinkFailed => (
            "A link to the relay could not be opened.",
            "Nothing, unless it is frequent: then read the message.",
        ),
        K::TooFewLinks => (
            "Fewer than half of a measurer's links to the relay could be opened.",
            "If it happens with many relays, check the measurer's file descriptors and firewall.",
        ),
        K::CircuitFailed => (
            "A circuit through the relay did not open, or ended.",
            "Nothing: it will be measured again.",
        ),
        K::NoEcho => (
            "The relay answered but returned no cells.",
            "Tell its operator; the relay's version may be broken.",
        ),
        K::NotSupported => (
            "The relay does not take part in FlashFlow.",
            "Nothing: it gets no number until its operator enables FlashFlow.",
        ),
        K::WrongIdentity => (
            "Another relay answered at its address.",
            "Nothing, if it has moved or changed its keys; otherwise somebody intercepts the connection.",
        ),
        K::BadCertificates => (
            "The relay could not prove its identity.",
            "Tell its operator to check its clock and keys.",
        ),
        K::ConnectionRefused => (
            "Nothing listens at the relay's port.",
            "Nothing: it is down, or its firewall refuses our hosts.",
        ),
        K::Unreachable => (
            "The relay's host cannot be reached.",
            "If it happens with many relays, check our own network; IPv6 may be missing.",
        ),
        K::NotTls => (
            "The server at the relay's port does not speak TLS 1.3.",
            "Nothing; its operator may run a proxy there.",
        ),
        K::NotTor => (
            "The server at the relay's port speaks TLS but is not a Tor relay.",
            "Nothing; its operator may run a proxy there.",
        ),
        K::Timeout => (
            "An answer or report did not arrive in time.",
            "If it happens with many relays, check our own network and the measurers' load.",
        ),
        K::Refused => (
            "The relay refused to be measured.",
            "Read the message: our key may be missing from its FFAllowedCoordinators, or its grants of the day may be used up.",
        ),
        K::CipherDenied => (
            "The relay supports none of the ciphers that we ask for.",
            "Nothing: it needs a newer tor.",
        ),
        K::WrongContent => (
            "A checked cell was forged or damaged.",
            "Watch the relay; if it happens again, report it.",
        ),
        K::OutOfOrder => (
            "A checked cell came out of order.",
            "Watch the relay; if it happens again, report it.",
        ),
        K::MoreThanSent => (
            "More cells came back than were sent.",
            "Watch the relay; if it happens again, report it.",
        ),
        K::WrongCircuit => (
            "A cell arrived on a circuit that does not exist.",
            "Watch the relay; if it happens again, report it.",
        ),
        K::UnexpectedCommand => {
            ("A cell of an unexpected type arrived.", "Watch the relay; its version may be broken.")
        }
        K::UnexpectedMessage => {
            ("A message arrived at the wrong time.", "Watch the relay; its version may be broken.")
        }
        K::BadConfirmation => (
            "The relay derived different keys from ours.",
            "Watch the relay; its version may be broken.",
        ),
        K::BadGrant => (
            "The relay's grant does not match the request.",
            "Watch the relay; its version may be broken.",
        ),
        K::ReportOutOfOrder => (
            "A report of the relay came out of order.",
            "Watch the relay; if it happens again, report it.",
        ),
        K::ReportTooEarly => (
            "The relay reported a second before that second had ended.",
            "Watch the relay; its clock may be wrong.",
        ),
        K::ImpossibleReport => (
            "The relay reported more client traffic than it may.",
            "Watch the relay: it may lie about its capacity.",
        ),
        K::MalformedMessage => (
            "A message of the relay cannot be read.",
            "Watch the relay; its version may be broken.",
        ),
        K::RelayAborted => (
            "The relay abandoned a measurement that it had granted.",
            "Nothing; if it is frequent, ask its operator.",
        ),
        K::EndedEarly => (
            "The relay ended the measurement too early.",
            "Nothing; if it is frequent, ask its operator.",
        ),
        K::CoordinatorLinkLost => (
            "The coordinator's link to the relay closed during the measurement.",
            "If it happens with many relays, check our own network.",
        ),
        K::LinksLost => (
            "More than half of a measurer's links closed during the measurement.",
            "If it happens with many relays, check that measurer's network.",
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
