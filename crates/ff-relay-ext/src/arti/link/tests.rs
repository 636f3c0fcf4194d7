//! Tests of links without their extension.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::task::Waker;

use super::*;
use crate::options::TargetOptions;

/// A connection on which nothing moves.
struct Silent;

impl AsyncRead for Silent {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Pending
    }
}

impl AsyncWrite for Silent {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Pending
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl CertifiedConn for Silent {
    fn export_keying_material(&self, _: usize, _: &[u8], _: Option<&[u8]>) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn peer_certificate(&self) -> io::Result<Option<Cow<'_, [u8]>>> {
        Ok(None)
    }

    fn own_certificate(&self) -> io::Result<Option<Cow<'_, [u8]>>> {
        Ok(None)
    }
}

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
