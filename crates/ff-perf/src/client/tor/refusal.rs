//! Exits' answers to probes, by tor's events on the probe's stream.
//!
//! An exit that refuses by its policy names the address that it refuses, and tor checks that. If it
//! is not the requested address, tor reports it by REMAP before the refusal. If it is an address
//! that tor does not accept, tor reports a protocol violation instead of the exit's answer. With
//! [`OPTION`], which tor requires in the public network, it accepts none of 127.0.0.0/8.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ff_lab::Control;

use super::stream::{News, astray, by_tor, false_address};
use super::table::StreamState;

use crate::client::{Answer, Fault};

/// Option by which tor rejects exits' answers with private addresses.
const OPTION: &str = "ClientDNSRejectInternalAddresses";

/// Whether [`OPTION`] is, or may be, set. Then tor reports an honest refusal as a protocol
/// violation, which cannot be told from a false one, nor from an exit that connects and says so.
#[derive(Clone, Debug)]
pub(super) struct RejectsInternal(Arc<AtomicBool>);

impl RejectsInternal {
    /// Asks tor.
    ///
    /// # Errors
    /// tor's message.
    pub(super) fn ask(control: &mut Control) -> ff_lab::Result<Self> {
        let rejects = Self(Arc::new(AtomicBool::new(true)));
        rejects.look(control).map(|()| rejects)
    }

    /// Asks tor again.
    ///
    /// # Errors
    /// tor's message.
    pub(super) fn look(&self, control: &mut Control) -> ff_lab::Result<()> {
        let value = control.getconf(OPTION)?;
        self.0.store(value.as_deref() != Some("0"), Ordering::Relaxed);
        Ok(())
    }

    /// Assumes that the option may have been set.
    pub(super) fn forget(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits for the refusal of a stream to this address; `destroyed` returns why its circuit ended.
pub(super) async fn wait(
    news: &mut News,
    address: Ipv4Addr,
    rejects: &RejectsInternal,
    destroyed: impl FnOnce() -> Fault,
) -> Result<Answer, Fault> {
    let (mut sent, mut said) = (None, None);
    loop {
        match news.next().await? {
            // Sent twice if tor had attached it before us.
            (_, StreamState::Sent(on)) if sent.is_some() => return Err(astray(&on)),
            (at, StreamState::Sent(_)) => sent = Some(at),
            // A name before the exit was asked does not come from the exit.
            (_, StreamState::Renamed { to, .. }) => said = sent.map(|_| to),
            (_, StreamState::Connected(_)) => {
                return Err(Fault::relay(format!("the exit accepted {address}")));
            }
            (at, StreamState::Ended { reason, by_exit, .. }) => {
                let sent = sent.ok_or_else(|| Fault::client(format!("never sent: {reason}")))?;
                check(address, said)?;
                // With the option set, an answer of the exit.
                if !by_exit && (reason != "torprotocol" || !rejects.0.load(Ordering::Relaxed)) {
                    return Err(by_tor(reason, destroyed, || false_address(address)));
                }
                let us = at.saturating_duration_since(sent).as_micros();
                return Ok(Answer { us: u64::try_from(us).unwrap_or(u64::MAX), reason });
            }
            (_, StreamState::New(_)) => {}
        }
    }
}

/// Checks that a refusal may be for this address, by the stream's name since it was sent.
fn check(address: Ipv4Addr, said: Option<String>) -> Result<(), Fault> {
    match said.filter(|said| *said != address.to_string()) {
        Some(said) => {
            Err(Fault::relay(format!("the exit refused {address} with a false address, {said}")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use ff_circuits::record::Whose;
    use ff_lab::Event;

    use super::*;
    use crate::client::tor::events::hand_on;
    use crate::client::tor::table::Table;

    const ASKED: Ipv4Addr = Ipv4Addr::new(127, 3, 2, 1);

    /// Result of these events of a stream, in the words of a real tor; the last two are 5 ms apart.
    async fn of(events: &[&str], rejects_internal: bool) -> Result<Answer, Fault> {
        let table = Arc::new(Table::default());
        let source = "127.0.0.1:5".parse().expect("an address");
        let mut news = News::of(table.expect_stream(source), "7");
        let at = Instant::now();
        let first = ["4 NEW 0 127.3.2.1:1 SOURCE_ADDR=127.0.0.1:5 PURPOSE=USER"];
        for (number, text) in first.iter().chain(events).enumerate() {
            let at = at + Duration::from_millis(5) * u32::from(number == events.len());
            hand_on(&table, &Event { kind: "STREAM".to_owned(), text: (*text).to_owned() }, at);
        }
        let rejects = RejectsInternal(Arc::new(AtomicBool::new(rejects_internal)));
        wait(&mut news, ASKED, &rejects, || Fault::circuit("destroyed")).await
    }

    /// The exit was asked.
    const SENT: &str = "4 SENTCONNECT 7 127.3.2.1:1";

    #[tokio::test]
    async fn a_refusal_is_an_answer_whatever_its_reason() {
        for (reason, expected) in [
            ("EXITPOLICY", "exitpolicy"),
            ("CONNECTREFUSED", "connectrefused"),
            // A tor exit's reason for a refused connection depends on its earlier failures.
            ("INTERNAL", "internal"),
            ("TORPROTOCOL", "torprotocol"),
            // tor's text for a reason of 200 that it does not know, with its own flag 512.
            (" UNKNOWN_712", "200"),
        ] {
            let refused = format!("4 DETACHED 7 127.3.2.1:1 REASON=END REMOTE_REASON={reason}");
            let answer = of(&[SENT, &refused], false).await;
            assert_eq!(answer, Ok(Answer { us: 5000, reason: expected.to_owned() }), "{reason}");
        }
    }

    #[tokio::test]
    async fn what_tor_itself_ends_is_no_answer() {
        for (reason, whose) in
            [("DESTROY", Whose::Relay), ("TIMEOUT", Whose::Unknown), ("INTERNAL", Whose::Client)]
        {
            let failed = format!("4 FAILED 7 127.3.2.1:1 REASON={reason}");
            let fault = of(&[SENT, &failed], false).await.expect_err("no answer");
            assert_eq!(fault.whose, whose, "{fault:?}");
        }
    }

    #[tokio::test]
    async fn a_false_address_is_the_exits_fault() {
        let renamed = "4 REMAP 7 198.51.100.7:1";
        let refused = "4 DETACHED 7 198.51.100.7:1 REASON=END REMOTE_REASON=EXITPOLICY";
        let fault = of(&[SENT, renamed, refused], true).await.expect_err("a lie");
        let said = "the exit refused 127.3.2.1 with a false address, 198.51.100.7";
        assert_eq!((fault.reason.as_str(), fault.whose), (said, Whose::Relay));
        // A name that tor cached before does not come from the exit.
        let renamed = "4 REMAP 0 198.51.100.7:1 SOURCE=CACHE";
        assert!(of(&[renamed, SENT, refused], true).await.is_ok());
    }

    #[tokio::test]
    async fn an_address_that_cannot_be_is_known_where_all_others_are_believed() {
        let closed = "4 CLOSED 7 127.3.2.1:1 REASON=TORPROTOCOL";
        let fault = of(&[SENT, closed], false).await.expect_err("a lie");
        assert!(fault.reason.contains("false address"), "{fault:?}");
        assert_eq!(fault.whose, Whose::Relay);
        let answer = of(&[SENT, closed], true).await.expect("an honest one looks the same");
        assert_eq!(answer.reason, "torprotocol");
    }

    #[tokio::test]
    async fn an_exit_that_accepts_is_named_for_that_whatever_it_says_of_the_address() {
        for to in ["127.3.2.1", "198.51.100.7"] {
            let renamed = format!("4 REMAP 7 {to}:1 SOURCE=EXIT");
            let connected = format!("4 SUCCEEDED 7 {to}:1");
            let fault = of(&[SENT, &renamed, &connected], false).await.expect_err("it accepts");
            assert_eq!(fault, Fault::relay("the exit accepted 127.3.2.1"));
        }
    }
}
