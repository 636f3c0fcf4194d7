//! Why measurements fail: a table of all kinds with their code, exit status and party at fault.
//!
//! An error returns its kind by a method `kind` where it is defined; all that follows from the kind
//! (the stable name, the exit status, the party at fault) is only here.

/// The party at fault, as far as the coordinator can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The coordinator or its team.
    Coordinator,
    /// The relay, or the path to it: a relay that cannot answer and one that does not want to look
    /// alike. Or either the relay or a measurer, whose counts contradict each other.
    Unclear,
    /// The relay, by its own choice.
    Relay,
    /// The relay, which broke the protocol: its results are worthless.
    Violation,
}

/// Declares the kinds.
macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal, $exit:literal, $fault:ident;)+) => {
        /// Kind of a failed measurement.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum FailureKind {
            $($(#[doc = $doc])+ $name,)+
        }

        impl FailureKind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// A stable name for logs and JSON.
            #[must_use]
            pub const fn code(self) -> &'static str {
                match self {
                    $(Self::$name => $code,)+
                }
            }

            /// The kind with this code.
            #[must_use]
            pub fn from_code(code: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|kind| kind.code() == code)
            }

            /// The exit status of programs that fail by it.
            #[must_use]
            pub const fn exit_status(self) -> u8 {
                match self {
                    $(Self::$name => $exit,)+
                }
            }

            /// The party at fault.
            #[must_use]
            pub const fn fault(self) -> Fault {
                match self {
                    $(Self::$name => Fault::$fault,)+
                }
            }
        }
    };
}

kinds! {
    /// The measurement could not be set up.
    SetupFailed = "setup_failed", 1, Coordinator;
    /// The plan cannot be carried out.
    BadPlan = "bad_plan", 1, Coordinator;
    /// A measurer's machine failed it.
    MeasurerFailed = "measurer_failed", 1, Coordinator;
    /// A second was not reported by all.
    MissingSample = "missing_sample", 1, Coordinator;
    /// The coordinator ended while it was measuring.
    Interrupted = "interrupted", 1, Coordinator;
    /// A measurer says that it got more than the relay says that it echoed to it.
    CountsDisagree = "counts_disagree", 1, Unclear;
    /// A link could not be opened, for a reason that has no name of its own.
    LinkFailed = "link_failed", 1, Unclear;
    /// Fewer than half of a measurer's links could be opened.
    TooFewLinks = "too_few_links", 1, Unclear;
    /// A circuit through the relay did not open, or ended.
    CircuitFailed = "circuit_failed", 1, Unclear;
    /// The relay answered, and did not echo or pass on a cell.
    NoEcho = "no_echo", 1, Relay;
    /// The relay does not take part in FlashFlow.
    NotSupported = "not_supported", 3, Relay;
    /// Another relay answered.
    WrongIdentity = "wrong_identity", 4, Unclear;
    /// The relay cannot prove its identity.
    BadCertificates = "bad_certificates", 4, Unclear;
    /// Nothing listens at the relay's port.
    ConnectionRefused = "connection_refused", 5, Unclear;
    /// There is no way to the relay.
    Unreachable = "unreachable", 5, Unclear;
    /// The peer does not speak TLS 1.3.
    NotTls = "not_tls", 6, Unclear;
    /// The peer speaks TLS, but not Tor.
    NotTor = "not_tor", 6, Unclear;
    /// Something due did not come.
    Timeout = "timeout", 7, Unclear;
    /// The relay refused the measurement.
    Refused = "refused", 8, Relay;
    /// The relay says that it has none of the ciphers that were asked for.
    CipherDenied = "cipher_denied", 8, Relay;
    /// A checked cell was forged or damaged.
    WrongContent = "wrong_content", 9, Violation;
    /// A checked cell stood in another's place.
    OutOfOrder = "out_of_order", 9, Violation;
    /// More cells came back than were sent.
    MoreThanSent = "more_cells_than_sent", 9, Violation;
    /// A cell came on a circuit that does not exist.
    WrongCircuit = "wrong_circuit", 9, Violation;
    /// A cell of an unexpected type arrived.
    UnexpectedCommand = "unexpected_command", 9, Violation;
    /// A message did not belong there or then.
    UnexpectedMessage = "unexpected_message", 9, Violation;
    /// The relay derived other keys.
    BadConfirmation = "bad_confirmation", 9, Violation;
    /// The grant does not answer the request.
    BadGrant = "bad_grant", 9, Violation;
    /// A report was not the one that was due.
    ReportOutOfOrder = "report_out_of_order", 9, Violation;
    /// A report came before its second could be over.
    ReportTooEarly = "report_too_early", 9, Violation;
    /// The relay reported more background than it was allowed.
    ImpossibleReport = "impossible_report", 9, Violation;
    /// A message does not decode.
    MalformedMessage = "malformed_message", 9, Violation;
    /// The relay gave the measurement up when it had been granted.
    RelayAborted = "relay_aborted", 12, Relay;
    /// The relay said that the measurement was over when it was not.
    EndedEarly = "ended_early", 12, Relay;
    /// The coordinator's link closed when the measurement had been granted.
    CoordinatorLinkLost = "coordinator_link_lost", 12, Unclear;
    /// More than half of a measurer's links closed.
    LinksLost = "links_lost", 12, Unclear;
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_kind_has_a_code_of_its_own_and_a_status_that_fits_its_fault() {
        let codes: HashSet<_> = FailureKind::ALL.iter().map(|kind| kind.code()).collect();
        assert_eq!(codes.len(), FailureKind::ALL.len());
        for kind in FailureKind::ALL {
            let code = kind.code();
            assert_eq!(FailureKind::from_code(code), Some(*kind));
            assert!(code.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{code}");
            // 0 is success, 2 an invalid command line; 10, 11 and 13 are verdicts.
            assert!(matches!(kind.exit_status(), 1 | 3..=9 | 12), "{code}");
            // 9 means that the relay broke the rules, and no other status does.
            assert_eq!(kind.exit_status() == 9, kind.fault() == Fault::Violation, "{code}");
        }
    }
}
