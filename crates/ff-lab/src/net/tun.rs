//! TUN devices: packets that a namespace sends are read here; packets written here arrive there.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};

use tappers::{AddAddressV4, DeviceState, Interface, linux};

use super::namespace::ip;

/// Largest IP packet, in bytes.
pub(super) const MTU_BYTES: usize = 1500;

/// Packets that a device holds until the emulator reads them. A network card stops TCP when it is
/// full (TCP small queues); a TUN device drops instead, and its usual 500 packets are less than a
/// relay writes at once. So it holds as much as Linux's own queue (`fq_codel`'s limit, 10,240).
pub(super) const QUEUE_PACKETS: usize = 10_240;

/// A device with one address, in the namespace of the thread that opened it.
pub(super) struct Tun {
    device: linux::Tun,
    address: Ipv4Addr,
}

impl Tun {
    /// Creates a device of an unused name, gives it an address whose neighbours are within
    /// `prefix_bits`, and switches it on. Dropping the value removes the device.
    pub(super) fn open(name: &str, address: Ipv4Addr, prefix_bits: u8) -> io::Result<Self> {
        let device = linux::Tun::create_named(Interface::new(name)?)?;
        let mut request = AddAddressV4::new(address);
        request.set_netmask(prefix_bits);
        device.add_addr(request)?;
        device.set_mtu(MTU_BYTES)?;
        ip(&["link", "set", name, "txqueuelen", &QUEUE_PACKETS.to_string()])?;
        device.set_state(DeviceState::Up)?;
        device.set_nonblocking(true)?;
        Ok(Self { device, address })
    }

    pub(super) fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Reads a sent packet, if there is one, and returns its length.
    pub(super) fn recv(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.device.recv(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            other => other.map(Some),
        }
    }

    /// Delivers a packet.
    pub(super) fn send(&self, packet: &[u8]) -> io::Result<()> {
        self.device.send(packet).map(|_| ())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

/// Destination of an IPv4 packet; `None` for other packets.
pub(super) fn destination(packet: &[u8]) -> Option<Ipv4Addr> {
    // RFC 791 §3.1: the version is in the first four bits, the destination in bytes 16 to 19.
    if packet.first()? >> 4 != 4 {
        return None;
    }
    let octets: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
    Some(octets.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_destination_is_where_rfc_791_has_it() {
        let mut packet = [0; 20];
        packet[0] = 0x45;
        packet[16..].copy_from_slice(&[10, 1, 2, 3]);
        assert_eq!(destination(&packet), Some(Ipv4Addr::new(10, 1, 2, 3)));
        packet[0] = 0x60;
        assert_eq!(destination(&packet), None);
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_destination_or_none(packet in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = destination(&packet);
        }
    }
}
