//! Coordinators and measurers driven cell by cell, for what the real ones never do.
//!
//! [`Coordinator::ask`] sends MEAS_PARAMS with the probe and waits for the answer;
//! [`MeasurementLink::open`] joins a measurement. Neither sends or reads anything by itself.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use ed25519_dalek::SigningKey;
use ff_measurer::link::control::{ControlLink, OwnedCell};
use ff_measurer::link::{self, LinkError, LinkOptions, TargetAddr};
use ff_measurer::measurer_id;
use ff_proto::cell::{CMD_MEAS_ECHO, CMD_MEASUREMENT, CMD_PADDING, CMD_VPADDING, Cell, fixed_cell};
use ff_proto::ids::{CryptoKind, MeasurementId};
use ff_proto::msg::{ErrCode, MeasEnd, MeasErr, MeasParams, MeasParamsOk, MeasurerGrant, Msg};
use ff_proto::session::SessionFailure;
use ff_proto::session::coordinator::CoordinatorLink;
use ff_proto::session::measurer::{EchoEvent, EchoLink, LinkSecrets, Opening, OpeningLink};
use ff_proto::units::MonoTime;
use tokio::time::timeout;

/// Longer than any single answer takes, however busy the machine is.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// What a test asks for that ends its measurement itself: no relay grants more.
pub(crate) const LONGEST_SECS: u16 = 120;
/// Before a busy relay is asked again.
const BUSY_PAUSE: Duration = Duration::from_millis(20);
/// Echo cells that are on the way at once: few enough to fit into the sockets' buffers.
const BATCH: u64 = 32;

/// Opens a link to a relay.
pub(crate) async fn try_open(target: &TargetAddr) -> Result<ControlLink, LinkError> {
    let link = link::open(target, &LinkOptions::default()).await?;
    Ok(ControlLink::new(link).expect("tokio takes the socket"))
}

/// Opens a link to a relay.
///
/// # Panics
/// If the relay does not let it.
pub(crate) async fn open(target: &TargetAddr) -> ControlLink {
    try_open(target).await.expect("the relay takes links")
}

/// The next cell that is not padding; `None` when the relay has closed the link.
///
/// # Panics
/// If nothing happens for a long time.
pub(crate) async fn next_cell(link: &mut ControlLink) -> Option<OwnedCell> {
    loop {
        let cell = timeout(PATIENCE, link.recv_cell()).await.expect("the relay does something");
        match cell {
            Ok(cell) if [CMD_PADDING, CMD_VPADDING].contains(&cell.command) => {}
            cell => return cell.ok(),
        }
    }
}

/// The next control message; `None` when the relay has closed the link. Other cells are dropped.
pub(crate) async fn next_message(link: &mut ControlLink) -> Option<Msg> {
    loop {
        let cell = next_cell(link).await?;
        if cell.command == CMD_MEASUREMENT {
            return Some(Msg::decode(&cell.body).expect("the relay's own message"));
        }
    }
}

/// Waits until the relay has closed the link; the codes of the MEAS_ERR cells that came.
///
/// # Panics
/// If the relay does not close it.
pub(crate) async fn codes_until_closed(link: &mut ControlLink) -> Vec<ErrCode> {
    let mut codes = Vec::new();
    while let Some(message) = next_message(link).await {
        codes.extend(error_code(&message));
    }
    codes
}

/// The code, if the message is MEAS_ERR.
pub(crate) fn error_code(message: &Msg) -> Option<ErrCode> {
    match message {
        Msg::Err(MeasErr { code, .. }) => Some(*code),
        _ => None,
    }
}

/// Sends whole cells.
///
/// # Panics
/// If the link is closed.
pub(crate) async fn send(link: &mut ControlLink, cells: &[Cell]) {
    let sent = timeout(PATIENCE, link.send_cells(cells.as_flattened())).await;
    sent.expect("the relay reads").expect("the link is open");
}

/// A MEASUREMENT cell.
pub(crate) fn control_cell(message: &Msg) -> Cell {
    let body = message.encode().expect("a message fits into its cell");
    fixed_cell(0, CMD_MEASUREMENT, &body).expect("a body is as long as a body")
}

/// A request for a measurement, followed by the probe.
pub(crate) fn request(
    link: &ControlLink,
    measurement: MeasurementId,
    key: &SigningKey,
    duration_secs: u16,
    team: &[Member],
) -> [Cell; 2] {
    request_with(link, measurement, key, duration_secs, team, CryptoKind::AES128_CTR)
}

/// A request for a measurement with this cipher.
pub(crate) fn request_with(
    link: &ControlLink,
    measurement: MeasurementId,
    key: &SigningKey,
    duration_secs: u16,
    team: &[Member],
    crypto: CryptoKind,
) -> [Cell; 2] {
    let measurers = team.iter().map(Member::grant).collect();
    let crypto = vec![crypto];
    let request = MeasParams { measurement, duration_secs, measurers, crypto };
    let (probe, now) = (rand::random(), MonoTime::default());
    let made = CoordinatorLink::new(request, key, link.exporter(), &probe, now);
    made.expect("a request that can be sent").1
}

/// A measurer of a team.
pub(crate) struct Member {
    /// Its key.
    pub(crate) key: SigningKey,
    /// How many links it is announced with.
    pub(crate) sockets: u16,
    /// Where they are announced to come from.
    pub(crate) address: Option<IpAddr>,
}

impl Member {
    /// A fresh measurer that may come from anywhere.
    pub(crate) fn new(sockets: u16) -> Self {
        Self { key: crate::support::coordinator(), sockets, address: None }
    }

    /// How MEAS_PARAMS announces it.
    fn grant(&self) -> MeasurerGrant {
        let Self { key, sockets, address } = self;
        MeasurerGrant { id: measurer_id(key), sockets: *sockets, address: *address }
    }
}

/// A coordinator's link. Dropping it closes it without a word.
pub(crate) struct Coordinator {
    /// The link.
    pub(crate) link: ControlLink,
    /// The name of the measurement that was asked for.
    pub(crate) measurement: MeasurementId,
}

impl Coordinator {
    /// Asks for a measurement; with the relay's answer.
    ///
    /// # Panics
    /// If no control message comes.
    pub(crate) async fn ask(
        target: &TargetAddr,
        key: &SigningKey,
        duration_secs: u16,
        team: &[Member],
    ) -> (Self, Msg) {
        let mut link = open(target).await;
        let measurement = MeasurementId(rand::random());
        let cells = request(&link, measurement, key, duration_secs, team);
        send(&mut link, &cells).await;
        let answer = next_message(&mut link).await.expect("an answer to the request");
        (Self { link, measurement }, answer)
    }

    /// Asks for a measurement and has it granted.
    ///
    /// # Panics
    /// If it is refused.
    pub(crate) async fn granted(
        target: &TargetAddr,
        key: &SigningKey,
        duration_secs: u16,
        team: &[Member],
    ) -> (Self, MeasParamsOk) {
        match Self::ask(target, key, duration_secs, team).await {
            (coordinator, Msg::ParamsOk(grant)) => {
                assert_eq!(grant.measurement, coordinator.measurement);
                (coordinator, grant)
            }
            (_, answer) => panic!("no grant: {answer:?}"),
        }
    }

    /// Asks for a measurement, and again as long as the relay has not noticed the end of the one
    /// before.
    ///
    /// # Panics
    /// If it is refused, or the relay stays busy.
    pub(crate) async fn granted_when_free(
        target: &TargetAddr,
        key: &SigningKey,
        duration_secs: u16,
        team: &[Member],
    ) -> Self {
        let late = Instant::now() + PATIENCE;
        loop {
            match Self::ask(target, key, duration_secs, team).await {
                (coordinator, Msg::ParamsOk(_)) => return coordinator,
                (_, answer) if error_code(&answer) == Some(ErrCode::BUSY) => {
                    assert!(Instant::now() < late, "the relay stays busy");
                    tokio::time::sleep(BUSY_PAUSE).await;
                }
                (_, answer) => panic!("no grant: {answer:?}"),
            }
        }
    }

    /// Asks for a measurement and is refused, with the code and then the end of the link.
    ///
    /// # Panics
    /// If it is granted.
    pub(crate) async fn refused(target: &TargetAddr, key: &SigningKey) -> ErrCode {
        let (mut coordinator, answer) = Self::ask(target, key, 1, &[Member::new(1)]).await;
        let code = error_code(&answer);
        let code = code.unwrap_or_else(|| panic!("not refused but answered: {answer:?}"));
        assert_eq!(codes_until_closed(&mut coordinator.link).await, []);
        code
    }

    /// The next control message that the relay sends; `None` when it has closed the link.
    pub(crate) async fn next_message(&mut self) -> Option<Msg> {
        next_message(&mut self.link).await
    }

    /// Ends the measurement as planned, and waits for the relay to agree. On a busy machine it may
    /// have gone on for so long without a cell that the relay has ended it.
    ///
    /// # Panics
    /// If it does not.
    pub(crate) async fn end(mut self) {
        let end = Msg::End(MeasEnd { measurement: self.measurement });
        send(&mut self.link, &[control_cell(&end)]).await;
        loop {
            match self.next_message().await {
                Some(Msg::Bg(_)) => {}
                Some(message) if message == end => return,
                Some(Msg::Err(error)) if error.code == ErrCode::TOO_LITTLE_TRAFFIC => return,
                other => panic!("instead of MEAS_END: {other:?}"),
            }
        }
    }
}

/// A link with a measurement circuit.
pub(crate) struct MeasurementLink {
    /// The link.
    pub(crate) link: ControlLink,
    /// Makes the echo cells and checks every one that returns.
    pub(crate) state: EchoLink,
}

impl MeasurementLink {
    /// Opens a link and its measurement circuit, or gives the code that the relay refuses with.
    ///
    /// # Panics
    /// If neither happens.
    pub(crate) async fn try_open(
        target: &TargetAddr,
        measurement: MeasurementId,
        key: &SigningKey,
    ) -> Result<Self, ErrCode> {
        Self::join(open(target).await, measurement, key).await
    }

    /// Opens a measurement circuit on a link, or gives the code that the relay refuses with.
    /// Answers to other cells are dropped.
    ///
    /// # Panics
    /// If neither happens.
    pub(crate) async fn join(
        mut link: ControlLink,
        measurement: MeasurementId,
        key: &SigningKey,
    ) -> Result<Self, ErrCode> {
        let secrets = LinkSecrets {
            ephemeral: rand::random(),
            content: rand::random(),
            sampling: rand::random(),
        };
        let (exporter, crypto) = (*link.exporter(), CryptoKind::AES128_CTR);
        let (opening, create) = OpeningLink::new(measurement, key, exporter, secrets, crypto, 1.0);
        send(&mut link, &[create]).await;
        let cell = loop {
            let cell = next_cell(&mut link).await.expect("an answer to MEAS_CREATE");
            if cell.command == CMD_MEASUREMENT {
                break cell;
            }
        };
        match opening.handle(cell.as_cell()) {
            Ok(Opening::Open(state)) => Ok(Self { link, state: *state }),
            Err(SessionFailure::Refused(error)) => {
                assert_eq!(codes_until_closed(&mut link).await, []);
                Err(error.code)
            }
            Ok(Opening::Waiting(_)) => panic!("padding is no answer"),
            Err(failure) => panic!("{failure}"),
        }
    }

    /// Opens a link and its measurement circuit.
    ///
    /// # Panics
    /// If the relay refuses.
    pub(crate) async fn open(
        target: &TargetAddr,
        measurement: MeasurementId,
        key: &SigningKey,
    ) -> Self {
        let opened = Self::try_open(target, measurement, key).await;
        opened.unwrap_or_else(|code| panic!("MEAS_CREATE is refused: {}", code.name()))
    }

    /// Echo cells to send, at most 127 at once.
    pub(crate) fn cells(&mut self, count: u64) -> Vec<Cell> {
        let make = |_| {
            let mut cell = [0; 514];
            self.state.write(&mut cell);
            cell
        };
        (0..count).map(make).collect()
    }

    /// Sends this many echo cells and checks that they come back correctly.
    ///
    /// # Panics
    /// If they do not, or another cell comes.
    pub(crate) async fn echo(&mut self, cells: u64) {
        for sent in (0..cells).step_by(usize::try_from(BATCH).expect("a small number")) {
            let batch = self.cells(BATCH.min(cells - sent));
            send(&mut self.link, &batch).await;
            for _ in batch {
                let cell = next_cell(&mut self.link).await.expect("echo cells come back");
                assert_eq!(cell.command, CMD_MEAS_ECHO);
                let event = self.state.handle(cell.as_cell());
                assert!(matches!(event, Ok(EchoEvent::Checked)), "{event:?}");
            }
        }
    }
}
