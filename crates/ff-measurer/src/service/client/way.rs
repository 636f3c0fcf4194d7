//! The address of a measurer, and why the last connection to it failed.

use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use ff_proto::ids::Ed25519Id;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::{Code, Status};

use super::odd;
use crate::service::wire::printable;
use crate::service::words;
use crate::task::PartFailure;

/// The address of a measurer and the state that all connections to it share.
#[derive(Debug)]
pub(super) struct Way {
    /// `HOST:PORT`.
    address: String,
    /// The identity that it must prove.
    measurer: Ed25519Id,
    /// The identity of the coordinator that connects.
    coordinator: Ed25519Id,
    /// The state of its connections.
    known: Mutex<Known>,
}

/// The state of the connections to a measurer.
#[derive(Debug, Default)]
struct Known {
    /// The address of its last connection.
    reached: Option<IpAddr>,
    /// Why the last connection failed, if it did. gRPC's errors name neither end.
    failed: Option<String>,
}

impl Way {
    /// The way to the measurer with an identity at `HOST:PORT`, for the coordinator with another.
    pub(super) fn new(address: &str, measurer: Ed25519Id, coordinator: Ed25519Id) -> Self {
        Self { address: address.to_owned(), measurer, coordinator, known: Mutex::default() }
    }

    /// `HOST:PORT`.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// The identity that the measurer must prove.
    pub(super) fn measurer(&self) -> Ed25519Id {
        self.measurer
    }

    /// The address of its last connection, if there was one.
    pub(super) fn reached_at(&self) -> Option<IpAddr> {
        self.known().reached
    }

    /// Notes that a new connection begins.
    pub(super) fn begin(&self) {
        self.known().failed = None;
    }

    /// Notes the address of a new connection.
    pub(super) fn note_reached(&self, address: IpAddr) {
        self.known().reached = Some(address);
    }

    /// Notes why a connection failed.
    pub(super) fn note(&self, error: &io::Error) {
        self.known().failed = Some(self.words(error));
    }

    /// Notes why a connection failed, unless a reason is known.
    fn note_if_unknown(&self, error: &io::Error) {
        let words = self.words(error);
        self.known().failed.get_or_insert(words);
    }

    /// The failure that a gRPC status means. It is never the relay's fault.
    pub(super) fn failure(&self, status: &Status) -> PartFailure {
        let text = printable(status.message());
        match (status.code(), Error::source(status)) {
            (Code::FailedPrecondition | Code::PermissionDenied | Code::InvalidArgument, None) => {
                odd(&format!("it refused: {text}"))
            }
            (Code::Unimplemented, None) => {
                odd("it does not know this request: coordinator and measurer need the same version")
            }
            (_, None) => odd(&format!("it answered: {text}")),
            (_, Some(source)) => {
                let known = self.known().failed.clone();
                let why = known.unwrap_or_else(|| self.why(source));
                odd(&format!("no connection to it at {}: {why}", self.address))
            }
        }
    }

    /// Why a connection ended for which no reason was noted.
    fn why(&self, source: &(dyn Error + 'static)) -> String {
        let (mut last, mut system) = (source, source.downcast_ref::<io::Error>());
        while let Some(cause) = last.source() {
            last = cause;
            system = cause.downcast_ref().or(system);
        }
        let ended = || format!("the connection ended ({})", printable(&last.to_string()));
        system.map_or_else(ended, |error| self.words(error))
    }

    /// An error in words for the operator.
    fn words(&self, error: &io::Error) -> String {
        words::for_coordinator(error, &self.measurer, &self.coordinator)
    }

    /// The state, locked.
    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that notes why it fails.
pub(super) struct Noting<S> {
    /// The connection.
    stream: S,
    /// Where the reason is noted.
    way: Arc<Way>,
}

impl<S> Noting<S> {
    /// A connection whose failure is noted in `way`.
    pub(super) fn new(stream: S, way: Arc<Way>) -> Self {
        Self { stream, way }
    }

    /// Notes an error of sending, unless the other end already gave a reason.
    fn sent<T>(&self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &result {
            self.way.note_if_unknown(error);
        }
        result
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Noting<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_read(cx, buf);
        if let Poll::Ready(Err(error)) = &result {
            self.way.note(error);
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Noting<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.sent(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.sent(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.sent(result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;
    use crate::key::identity_text;

    /// The message for a status.
    fn said(way: &Way, status: &Status) -> String {
        way.failure(status).message
    }

    #[test]
    fn a_failure_is_said_by_what_the_connection_knows_before_what_grpc_says() {
        let [measurer, coordinator] = [Ed25519Id([1; 32]), Ed25519Id([2; 32])];
        let way = Way::new("m1.example:9230", measurer, coordinator);
        let canceled = Status::from_error(Box::new(fmt_error("operation was canceled")));
        let ended = said(&way, &canceled);
        assert!(
            ended.starts_with("no connection to it at m1.example:9230: the connection ended ("),
            "{ended}"
        );
        way.note_if_unknown(&ErrorKind::BrokenPipe.into());
        assert!(said(&way, &canceled).contains("it closed the connection"));
        let alert = rustls::Error::AlertReceived(rustls::AlertDescription::AccessDenied);
        way.note(&io::Error::new(ErrorKind::InvalidData, alert));
        way.note_if_unknown(&ErrorKind::BrokenPipe.into());
        let turned_away = said(&way, &canceled);
        assert!(turned_away.contains(&identity_text(&coordinator)), "{turned_away}");
        way.begin();
        let refused = Status::from_error(Box::new(io::Error::from(ErrorKind::ConnectionRefused)));
        assert!(said(&way, &refused).contains("m1.example:9230: connection refused: does"));
        let own = Status::failed_precondition("this measurer is busy");
        assert_eq!(said(&way, &own), "it refused: this measurer is busy");
        assert_eq!(said(&way, &Status::unavailable("it is ending")), "it answered: it is ending");
    }

    /// An error that has only a text.
    fn fmt_error(text: &'static str) -> impl Error + Send + Sync + 'static {
        #[derive(Debug, thiserror::Error)]
        #[error("{0}")]
        struct Text(&'static str);
        Text(text)
    }
}
