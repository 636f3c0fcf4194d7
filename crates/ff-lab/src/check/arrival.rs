//! Packets of UDP with the time at which the kernel got them, however late the reader is woken.

use std::io::{self, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::cmsg_space;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, setsockopt, sockopt::ReceiveTimestampns,
};
use nix::sys::time::TimeSpec;
use rustix::time::{ClockId, clock_gettime};

/// How long the kernel may take to begin: it does so by a queue of work, not at once.
const BEGIN: Duration = Duration::from_millis(100);

/// Asks the kernel to note when packets arrive at a socket. What comes before it has begun has the
/// time at which it is read, so this waits a moment.
pub(super) fn note_arrivals(socket: &UdpSocket) -> io::Result<()> {
    setsockopt(socket, ReceiveTimestampns, &true)?;
    thread::sleep(BEGIN);
    Ok(())
}

/// A clock that nobody sets, since some moment.
pub(super) fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

/// How long ago it was so late by the clock by which the kernel notes arrivals. That one may be
/// set, so nothing longer than from an arrival to its reading is taken from it.
fn age(arrived: Duration) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(arrived)
}

/// Receives a packet: its length, when the kernel got it by [`now`]'s clock, and who sent it.
///
/// Fails as `recv` does, and for a socket of which the kernel notes nothing.
pub(super) fn receive(
    socket: &UdpSocket,
    buffer: &mut [u8],
) -> io::Result<(usize, Duration, Option<SockaddrIn>)> {
    let mut space = cmsg_space!(TimeSpec);
    let mut parts = [IoSliceMut::new(buffer)];
    let packet =
        recvmsg::<SockaddrIn>(socket.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::empty())?;
    let arrived = packet.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
        _ => None,
    });
    let arrived = arrived.ok_or_else(|| io::Error::other("the kernel recorded no arrival time"))?;
    Ok((packet.bytes, now().saturating_sub(age(arrived)), packet.address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_late_learns_when_it_came() {
        let socket = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        note_arrivals(&socket).unwrap();
        let is_by_arrival = || {
            let sent = now();
            socket.send_to(b"cell", socket.local_addr().unwrap()).unwrap();
            thread::sleep(Duration::from_millis(80));
            let mut buffer = [0; 8];
            let (length, arrived, from) = receive(&socket, &mut buffer).unwrap();
            assert_eq!((length, &buffer[..4]), (4, &b"cell"[..]));
            assert_eq!(from.unwrap().port(), socket.local_addr().unwrap().port());
            arrived >= sent && now() - arrived >= Duration::from_millis(79)
        };
        // On a full machine the kernel may begin later than it should.
        let deadline = now() + Duration::from_secs(120);
        while !is_by_arrival() {
            assert!(now() < deadline, "never by its arrival");
        }
    }
}
