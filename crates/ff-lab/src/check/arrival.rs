//! UDP packets with the kernel's arrival times, which do not depend on when the reader wakes.

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

/// Wait until the kernel notes arrival times: it enables this in a work queue.
const BEGIN: Duration = Duration::from_millis(100);

/// Has the kernel note when packets arrive at a socket, and waits until it does: packets before
/// that have the time at which they are read.
pub(super) fn note_arrivals(socket: &UdpSocket) -> io::Result<()> {
    setsockopt(socket, ReceiveTimestampns, &true)?;
    thread::sleep(BEGIN);
    Ok(())
}

/// Monotonic time.
pub(super) fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

/// Time since an arrival, by the realtime clock that the kernel uses for it. That clock may be
/// adjusted, so it is used only for the short time from arrival to reading.
fn age(arrived: Duration) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(arrived)
}

/// Receives a packet: its length, its arrival by [`now`]'s clock and its sender.
///
/// Fails as `recv` does, and if the kernel notes no arrivals at this socket.
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
        // On a busy machine the kernel may begin later than `BEGIN`.
        let deadline = now() + Duration::from_secs(120);
        while !is_by_arrival() {
            assert!(now() < deadline, "never by its arrival");
        }
    }
}
