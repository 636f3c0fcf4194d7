//! Tests of links without their extension.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::task::Waker;

use ff_proto::cell::fixed_cell;

use super::super::gate::tests::{cells, check, extension};
use super::*;
use crate::options::TargetOptions;

/// A connection on which nothing moves.
struct Silent;

impl AsyncRead for Silent {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut [u8]) -> Moved {
        Poll::Pending
    }
}

impl AsyncWrite for Silent {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Moved {
        Poll::Pending
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

/// A connection that takes a hundred bytes at a time, and nothing every third time.
#[derive(Default)]
struct Slow {
    bytes: Vec<u8>,
    calls: usize,
}

impl AsyncRead for Slow {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut [u8]) -> Moved {
        Poll::Pending
    }
}

impl AsyncWrite for Slow {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Moved {
        self.calls += 1;
        if self.calls.is_multiple_of(3) {
            return Poll::Pending;
        }
        let len = bytes.len().min(100);
        self.bytes.extend_from_slice(&bytes[..len]);
        Poll::Ready(Ok(len))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Gives a connection neither keys nor certificates.
macro_rules! without_keys {
    ($connection:ty) => {
        impl CertifiedConn for $connection {
            fn export_keying_material(
                &self,
                _: usize,
                _: &[u8],
                _: Option<&[u8]>,
            ) -> io::Result<Vec<u8>> {
                Err(io::ErrorKind::Unsupported.into())
            }

            fn peer_certificate(&self) -> io::Result<Option<Cow<'_, [u8]>>> {
                Ok(None)
            }

            fn own_certificate(&self) -> io::Result<Option<Cow<'_, [u8]>>> {
                Ok(None)
            }
        }
    };
}

without_keys!(Slow);
without_keys!(Silent);

#[test]
fn without_the_extension_only_ordinary_links_stay() {
    let policy = TargetOptions::default().resolve(&BTreeMap::new());
    let links = [(Mode::Ordinary, true), (Mode::Ending, false), (Mode::Closing, false)];
    for (mode, stays) in links {
        let extension = Extension::new(policy.clone(), None, None).expect("it reads no file");
        let mut link = LinkStream::new(Silent, Arc::clone(&extension));
        link.mode = mode;
        // The peer does not read its last words.
        link.queue_control(&[0; CELL_LEN]);
        let mut cx = Context::from_waker(Waker::noop());
        let mut read = || Pin::new(&mut link).poll_read(&mut cx, &mut [0; 100]);
        assert!(read().is_pending());
        extension.fail();
        let after = read();
        match stays {
            true => assert!(after.is_pending()),
            false => assert!(matches!(after, Poll::Ready(Ok(0))), "{after:?}"),
        }
    }
}

/// Cells of tor-proto's and control cells in what was sent after VERSIONS.
fn sorted(bytes: &[u8]) -> (Vec<u8>, usize) {
    let (cells, rest) = bytes.as_chunks::<CELL_LEN>();
    assert!(rest.is_empty());
    let (control, cells): (Vec<&Cell>, Vec<&Cell>) =
        cells.iter().partition(|cell| cell[4] == CMD_MEASUREMENT);
    (cells.into_iter().flatten().copied().collect(), control.len())
}

#[test]
fn cells_that_wait_for_the_limit_and_control_cells_stay_whole() {
    let extension = extension(Some((10_000, 2000)));
    let mut link = LinkStream::new(Slow::default(), Arc::clone(&extension));
    extension.greet(link.handle.id, None);
    let mut cx = Context::from_waker(Waker::noop());
    let control = fixed_cell(0, CMD_MEASUREMENT, &[]).unwrap();
    let versions = [0, 0, 7, 0, 2, 0, 5];
    let bytes = [&versions[..], &cells(0, 300)].concat();
    let (mut sent, mut queued) = (0, 0);
    for turn in 0.. {
        let more = &bytes[sent..bytes.len().min(sent + 5000)];
        if more.is_empty() {
            break;
        }
        if let Poll::Ready(len) = Pin::new(&mut link).poll_write(&mut cx, more) {
            sent += len.unwrap();
        }
        if turn % 3 == 1 && queued < 50 {
            link.queue_control(&control);
            queued += 1;
        }
        assert!(Pin::new(&mut link).poll_read(&mut cx, &mut [0; 100]).is_pending());
        assert!(turn < 10_000, "{sent} bytes sent");
    }
    assert!(link.gate.holds_cells());
    extension.set_ingress(None);
    for _ in 0..10_000 {
        assert!(Pin::new(&mut link).poll_read(&mut cx, &mut [0; 100]).is_pending());
    }
    let (all, control) = sorted(&link.inner.bytes[versions.len()..]);
    assert_eq!((check(&all), control), (300, queued));
    assert!(!link.gate.is_busy());
}
